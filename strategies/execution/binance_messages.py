"""What Binance USD-M futures says of an account, typed, and its limits of requests.

Sources: Binance documentation of USD-M Futures, "General Info" (limits, headers), "Exchange Information",
"Query Order", "Account Trade List", "Position Information V3", "Event: Order Update", "Event: Balance and
Position Update". Numbers stay the text of the wire.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from orderbook.core.errors import DataError
from orderbook.market.instruments import fixed_point
from orderbook.strategies.execution.venue_reports import VenueStatus, VenueTrade

STATUSES: dict[str, VenueStatus] = {
    "NEW": "open",
    "PARTIALLY_FILLED": "open",
    "FILLED": "filled",
    "CANCELED": "cancelled",
    "EXPIRED": "expired",
    "EXPIRED_IN_MATCH": "expired",
    "REJECTED": "rejected",
}


class WireProblem(msgspec.Struct, frozen=True):
    code: int = 0
    msg: str = ""


class WireOrder(msgspec.Struct, frozen=True):
    """An order in an answer."""

    symbol: str
    orderId: int
    clientOrderId: str
    status: str
    origQty: str
    price: str
    executedQty: str
    updateTime: int
    side: str = ""


class WireTrade(msgspec.Struct, frozen=True):
    """An execution in an answer."""

    symbol: str
    id: int
    orderId: int
    side: str
    price: str
    qty: str
    commission: str
    commissionAsset: str
    maker: bool
    time: int


class WirePosition(msgspec.Struct, frozen=True):
    symbol: str
    positionAmt: str
    positionSide: str = "BOTH"
    updateTime: int = 0


class WireStreamOrder(msgspec.Struct, frozen=True, rename={"last": "l"}):
    """`o` of ORDER_TRADE_UPDATE."""

    s: str
    c: str
    S: str
    X: str
    x: str
    i: int
    q: str
    p: str
    z: str
    last: str = "0"
    L: str = "0"
    t: int = 0
    m: bool = False
    n: str = "0"
    N: str = ""
    T: int = 0


class WireStreamPosition(msgspec.Struct, frozen=True):
    s: str
    pa: str
    ps: str = "BOTH"


class WireStreamAccount(msgspec.Struct, frozen=True):
    P: list[WireStreamPosition] = []


class WireEvent(msgspec.Struct, frozen=True):
    e: str = ""
    E: int = 0
    T: int = 0
    o: WireStreamOrder | None = None
    a: WireStreamAccount | None = None


class WireEnvelope(msgspec.Struct, frozen=True):
    stream: str = ""
    data: msgspec.Raw = msgspec.Raw(b"")


class WireLimit(msgspec.Struct, frozen=True):
    rateLimitType: str
    interval: str
    intervalNum: int
    limit: int


class WireListed(msgspec.Struct, frozen=True):
    symbol: str
    filters: list[dict[str, Any]] = []


class WireListing(msgspec.Struct, frozen=True):
    rateLimits: list[WireLimit] = []
    symbols: list[WireListed] = []


class WireTime(msgspec.Struct, frozen=True):
    serverTime: int


class WireListenKey(msgspec.Struct, frozen=True):
    listenKey: str


class WireMode(msgspec.Struct, frozen=True):
    dualSidePosition: bool


# What a message that cannot be used raises.
UNUSABLE = (msgspec.DecodeError, ValueError, ArithmeticError)


def trade_report(trade: WireTrade) -> VenueTrade:
    check_numbers(trade.qty, trade.price, trade.commission)
    return VenueTrade(
        trade.symbol, trade.id, trade.orderId, "", "buy" if trade.side == "BUY" else "sell", trade.qty,
        trade.price, trade.commission, trade.commissionAsset, trade.maker, trade.time,
    )  # fmt: skip


def check_numbers(*texts: str) -> None:
    """Raises ValueError for a text that is no number that rows can hold."""
    for text in texts:
        try:
            fixed_point(text)
        except DataError as error:
            raise ValueError(str(error)) from None


_SECONDS = {"SECOND": 1, "MINUTE": 60, "HOUR": 3600, "DAY": 86400}
_LETTERS = {"SECOND": "s", "MINUTE": "m", "HOUR": "h", "DAY": "d"}


class RequestLimits:
    """The venue's limits of request weight and of orders, and what is used of them in the windows at hand."""

    def __init__(self) -> None:
        # By the header's suffix: seconds, the limit, the window at hand, and what is used in it.
        self._weights: dict[str, list[int]] = {"1m": [60, 2400, 0, 0]}
        self._orders: dict[str, list[int]] = {"10s": [10, 300, 0, 0], "1m": [60, 1200, 0, 0]}

    def listed(self, limits: Iterable[WireLimit]) -> None:
        """The venue lists its limits."""
        for one in limits:
            if one.interval not in _SECONDS or one.intervalNum <= 0 or one.limit <= 0:
                continue
            name = f"{one.intervalNum}{_LETTERS[one.interval]}"
            table = {"REQUEST_WEIGHT": self._weights, "ORDERS": self._orders}.get(one.rateLimitType)
            if table is not None:
                old = table.get(name, [0, 0, 0, 0])
                table[name] = [one.intervalNum * _SECONDS[one.interval], one.limit, *old[2:]]

    def note(self, headers: Mapping[str, str], now_ms: int) -> None:
        """An answer says how much is used."""
        for name, value in headers.items():
            lower = name.lower()
            for prefix, table in (
                ("x-mbx-used-weight-", self._weights),
                ("x-mbx-order-count-", self._orders),
            ):
                one = table.get(lower.removeprefix(prefix)) if lower.startswith(prefix) else None
                if one is not None and value.isascii() and value.isdigit():
                    self._turn(one, now_ms)
                    one[3] = max(one[3], int(value))

    def refusal(self, weight: int, orders: int, share: float, now_ms: int) -> str | None:
        """Why a request has to wait; None: it may be sent."""
        for what, cost, table in (
            ("request weight", weight, self._weights),
            ("orders", orders, self._orders),
        ):
            for name, one in table.items():
                self._turn(one, now_ms)
                if cost and one[3] + cost > share * one[1]:
                    return f"{what}: {one[3]} of {one[1]} used in {name}"
        return None

    def count(self, weight: int, orders: int, now_ms: int) -> None:
        """A request is sent."""
        for cost, table in ((weight, self._weights), (orders, self._orders)):
            for one in table.values():
                self._turn(one, now_ms)
                one[3] += cost

    def used(self) -> dict[str, tuple[int, int]]:
        """What is used, and the limit, by "weight 1m", "orders 10s", …"""
        found = {f"weight {name}": (one[3], one[1]) for name, one in self._weights.items()}
        return found | {f"orders {name}": (one[3], one[1]) for name, one in self._orders.items()}

    @staticmethod
    def _turn(one: list[int], now_ms: int) -> None:
        window = now_ms // (1000 * one[0])
        if window != one[2]:
            one[2:] = [window, 0]
