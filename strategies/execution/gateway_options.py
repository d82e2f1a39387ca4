"""The configuration of order gateways: to which venues orders are really sent, and whether they are.

Sources: Binance documentation of USD-M Futures, "General Info", "Testnet API Information".
"""

import ipaddress
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from orderbook.core.options import Duration, Section, matching, read_by
from orderbook.core.units import delay, nanoseconds

GATEWAYS = ("binance_futures",)
# Where nothing is worth anything.
_TESTNET = frozenset(
    {
        "demo-fapi.binance.com",
        "fstream.binancefuture.com",
        "testnet.binancefuture.com",
        "stream.binancefuture.com",
    }
)


def _private(url: str) -> str:
    """An address that can be trusted with a key."""
    parts = urlsplit(url)
    if parts.username or parts.query or parts.fragment:
        raise PydanticCustomError("address", "an address without a user, a query or a fragment")
    if parts.scheme not in ("https", "wss") and not _is_loopback(parts.hostname or ""):
        raise PydanticCustomError("address", "an https or wss address, as a key is sent there")
    return url.rstrip("/")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def is_mainnet(url: str) -> bool:
    """Whether orders sent to an address may be worth money: it is not known to be a testnet or this
    machine."""
    host = (urlsplit(url).hostname or "").lower()
    return host not in _TESTNET and not _is_loopback(host)


class GatewayOptions(Section):
    """How orders go to a venue.

    `mode`: "off", they are simulated; "dry", everything is done but sending orders; "live". `rest_url` and
    `stream_url` are the testnet's unless given; others need `real_money` as well. What is open is cancelled
    by the venue `cancel_after` the run was last heard of, "0s" never; a request is good for `receive_window`;
    all is compared with the venue every `reconcile`.
    """

    mode: Literal["off", "dry", "live"] = "off"
    real_money: bool = False
    rest_url: Annotated[str, matching(r"https?://.+", "an http(s) address"), AfterValidator(_private)] = (
        "https://demo-fapi.binance.com"
    )
    stream_url: Annotated[str, matching(r"wss?://.+", "a ws(s) address"), AfterValidator(_private)] = (
        "wss://fstream.binancefuture.com"
    )
    cancel_after: Annotated[str, read_by(delay, 'a time such as "60s"')] = "60s"
    receive_window: Duration = "5s"
    reconcile: Duration = "60s"

    @field_validator("rest_url", "stream_url")
    @classmethod
    def _not_by_chance(cls, url: str, info: ValidationInfo) -> str:
        if is_mainnet(url) and not info.data.get("real_money"):
            raise PydanticCustomError(
                "mainnet", "the testnet's address, or real_money = true as well, as orders there cost money"
            )
        return url

    @field_validator("cancel_after")
    @classmethod
    def _long_enough(cls, text: str) -> str:
        seconds = delay(text) / 1e9
        if seconds and seconds < 5:
            raise PydanticCustomError("countdown", 'a time of at least "5s", or "0s"')
        return text

    @property
    def cancel_seconds(self) -> float:
        """`cancel_after`, 0 for never."""
        return delay(self.cancel_after) / 1e9

    @property
    def receive_seconds(self) -> float:
        """`receive_window`."""
        return nanoseconds(self.receive_window) / 1e9

    @property
    def reconcile_seconds(self) -> float:
        """`reconcile`."""
        return nanoseconds(self.reconcile) / 1e9
