"""Where notifications go: webhooks, signed as Standard Webhooks specifies, and services by apprise.

Source: https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
"""

import asyncio
import base64
import hashlib
import hmac
import logging
import os
import time
from typing import Protocol

import msgspec

from orderbook.configuration.alert_options import ChannelOptions
from orderbook.core.errors import OrderbookError, SourceError, UserError, visible
from orderbook.feeds.live.http_requests import RefusedRequest, http_get, is_private

# A receiver's wish to be left alone is heard for so many seconds at most.
_LONGEST_WISH = 3600.0


class DeliveryError(OrderbookError):
    """An attempt failed; the next is made after `wait` seconds at least."""

    def __init__(self, message: str, wait: float = 0.0) -> None:
        super().__init__(message)
        self.wait = wait


class Channel(Protocol):
    """Where notifications go; one thread calls it."""

    def send(self, id_: str, body: str) -> None:
        """Has a notification taken on return; raises DeliveryError where it may not have been."""


class Webhook:
    """POSTs notifications. Every attempt of one has the same `webhook-id`, by which a receiver drops repeats.

    secret: of HMAC-SHA256 over "ID.TIMESTAMP.BODY"; "whsec_…" is base64, any other text is taken as it is.
    """

    def __init__(self, url: str, secret: str, seconds: float) -> None:
        self._url, self._seconds = url, seconds
        prefix, _, encoded = secret.partition("whsec_")
        try:
            self._key = (
                base64.b64decode(encoded, validate=True) if encoded and not prefix else secret.encode()
            )
        except ValueError:
            raise UserError("the secret of a webhook: base64 is expected after whsec_") from None

    def send(self, id_: str, body: str) -> None:
        """See Channel; any answer but 2xx is a failure, also a redirection."""
        data, moment = body.encode(), str(int(time.time()))
        headers = {
            "Content-Type": "application/json",
            "webhook-id": id_,
            "webhook-timestamp": moment,
            "webhook-signature": "v1," + signature(self._key, id_, moment, data),
        }

        async def post() -> None:
            async with asyncio.timeout(self._seconds):
                await http_get(self._url, self._seconds, data, headers)

        try:
            asyncio.run(post())
        except RefusedRequest as error:
            raise DeliveryError(self._shown(error), min(error.retry_after, _LONGEST_WISH)) from None
        except TimeoutError:
            raise DeliveryError(f"no whole answer within {self._seconds:g} s") from None
        except SourceError as error:
            raise DeliveryError(self._shown(error)) from None

    def _shown(self, error: Exception) -> str:
        """Without the address, which may be a secret."""
        return visible(str(error).replace(self._url, "…"))


def signature(key: bytes, id_: str, moment: str, body: bytes) -> str:
    """What stands after "v1," in `webhook-signature`; moment: `webhook-timestamp`, seconds."""
    signed = f"{id_}.{moment}.".encode() + body
    return base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()


class _Text(msgspec.Struct):
    """What of a notification is for people."""

    class Data(msgspec.Struct):
        name: str
        message: str
        severity: str

    type: str
    data: Data


_TYPES = {"info": "info", "warning": "warning", "critical": "failure"}


class Service:
    """A service that apprise knows, by an address such as `slack://…`; it may be told something twice.

    Raises UserError where apprise is not installed, or does not know the address.
    """

    def __init__(self, address: str, name: str) -> None:
        try:
            import apprise
        except ImportError:
            raise UserError(
                f"channels.{name}: services need apprise: pip install 'orderbook[alerts]'"
            ) from None
        # What it says of failures may have parts of the address.
        logging.getLogger("apprise").setLevel(logging.CRITICAL)
        asset = apprise.AppriseAsset(app_id="Orderbook", app_desc="Orderbook", async_mode=False)
        self._service = apprise.Apprise(asset=asset)
        if not self._service.add(address):
            raise UserError(f"channels.{name}.service: apprise knows no service by this address")

    def send(self, id_: str, body: str) -> None:
        """See Channel."""
        told = msgspec.json.decode(body, type=_Text)
        what = told.type.partition(".")[2]
        kind = "success" if what == "resolved" else _TYPES[told.data.severity]
        title = f"[{told.data.severity}] {told.data.name} {what}"
        try:
            taken = self._service.notify(body=told.data.message, title=title, notify_type=kind)
        except Exception as error:
            raise DeliveryError(f"the service cannot be told: {type(error).__name__}") from None
        if not taken:
            raise DeliveryError("the service has not taken it")


def channel_of(name: str, options: ChannelOptions) -> Channel:
    """A channel of the configuration. Raises UserError where it cannot be used."""
    if options.service is not None:
        return Service(os.environ[options.service[1:]], name)
    assert options.webhook is not None and options.secret is not None
    url = os.environ[options.webhook[1:]] if options.webhook.startswith("$") else options.webhook
    if not url.startswith(("https://", "http://")) or not is_private(url):
        raise UserError(f"channels.{name}.webhook: give an https address (http for this machine alone)")
    return Webhook(url, os.environ[options.secret[1:]], options.seconds)
