"""Kraken's spot market, protocol version 1: price levels with checksums, trades.

Source: Kraken Websockets API 1.9 (book, trade, systemStatus, subscriptionStatus, heartbeat), "Book checksum
(WebSocket v1)", and REST "Get Tradable Asset Pairs".

    [1920, {"as": [["0.043130", "11802.77325050", "1618678131.920708"]], "bs": […]}, "book-1000", "SC/EUR"]
    [1920, {"a": [["0.042990", "364630.28272081", "1618678145.920470"]]},
     {"b": [["0.042990", "0.00000000", "1618678145.920708"]], "c": "4105471083"}, "book-1000", "SC/EUR"]
    [993, [["354.11000000", "0.89594024", "1618678142.557535", "s", "l", ""]], "trade", "XMR/USD"]
    {"event": "systemStatus", "status": "online", "version": "1.8.3"}
    {"event": "subscriptionStatus", "status": "subscribed", "channelName": "book-1000", "pair": "SC/EUR"}

Synchronised and checked as version 2 (see `kraken.py`), but that a snapshot has no checksum: it
is first checked by the update after it. A message may carry asks and bids in parts, the checksum in the last;
a level may have a fourth field, "r", where it was published before. Trades have no numbers, and no history.

Kraken no longer develops this version; halts of single pairs are not told. Limits as in version 2.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec

from orderbook.core.errors import DataError
from orderbook.feeds.exchanges.kraken import KrakenProtocol, disagreement, kraken_instruments
from orderbook.market.events import Side, StateReason
from orderbook.market.instruments import Instrument

_AGGRESSORS = {"b": Side.BID, "s": Side.ASK}


class _Level(msgspec.Struct, frozen=True, gc=False, array_like=True):
    price: str
    size: str
    time: str


class _Part(msgspec.Struct, frozen=True, gc=False):
    asks: list[_Level] = msgspec.field(name="a", default=[])
    bids: list[_Level] = msgspec.field(name="b", default=[])
    all_asks: list[_Level] | None = msgspec.field(name="as", default=None)
    all_bids: list[_Level] | None = msgspec.field(name="bs", default=None)
    checksum: str | None = msgspec.field(name="c", default=None)


class _Trade(msgspec.Struct, frozen=True, gc=False, array_like=True):
    price: str
    size: str
    time: str
    side: str


class _Subscription(msgspec.Struct, frozen=True, gc=False):
    name: str = ""
    depth: int | None = None


class _Event(msgspec.Struct, frozen=True, gc=False):
    event: str
    status: str = ""
    pair: str | None = None
    error: str = msgspec.field(name="errorMessage", default="")
    subscription: _Subscription = _Subscription()


# The channel's number, what it says (in parts), its name and the pair.
_decode = msgspec.json.Decoder(list[int | str | _Part | list[_Trade]]).decode
_decode_event = msgspec.json.Decoder(_Event).decode
_decode_place = msgspec.json.Decoder(list[msgspec.Raw]).decode
_decode_name = msgspec.json.Decoder(str).decode
_KNOWN_EVENTS = ("heartbeat", "pong")
# The answer to ending a subscription that is not there, after which subscribing can still succeed.
_NOTHING_TO_END = "Subscription Not Found"


def _nanoseconds(text: str) -> int:
    """ns since 1970 UTC of a time in seconds."""
    whole, _, fraction = text.partition(".")
    if not (whole.isdecimal() and (fraction.isdecimal() or not fraction)) or len(whole) > 10:
        raise DataError(f"{text[:40]!r} is not a time in seconds")
    return int(whole) * 1_000_000_000 + int(fraction[:9].ljust(9, "0"))


class KrakenV1(KrakenProtocol):
    """See KrakenProtocol; only the state of the exchange as a whole is told."""

    url = "wss://ws.kraken.com"

    @classmethod
    def instruments(cls, products: Sequence[str], bodies: Sequence[bytes]) -> list[Instrument]:
        """See `kraken_instruments`; this protocol's own names of currencies are XBT and XDG."""
        return kraken_instruments(products, bodies, str)

    def subscribe(self, products: Sequence[str]) -> Sequence[str]:
        return [self._request("subscribe", products, "book"), self._request("subscribe", products, "trade")]

    def resubscribe(self, product: str) -> Sequence[str]:
        return [self._request(event, [product], "book") for event in ("unsubscribe", "subscribe")]

    def _request(self, event: str, products: Sequence[str], channel: str) -> str:
        subscription: dict[str, Any] = {"name": channel}
        if channel == "book":
            subscription["depth"] = self._depth
        return msgspec.json.encode({"event": event, "pair": products, "subscription": subscription}).decode()

    def frame(self, data: bytes) -> None:
        if data.startswith(b"{"):
            self._take_event(_decode_event(data))
            return
        try:
            _, *parts, channel, product = _decode(data)
        except msgspec.ValidationError:
            channel, _ = self._place(data)
            if channel == "trade" or channel.startswith("book-"):
                raise
            self._unknown(f"channel {channel!r}")
            return
        if not isinstance(channel, str) or not isinstance(product, str):
            raise DataError("a message names no channel or pair")
        if channel.startswith("book-"):
            self._take_book(product, channel, [part for part in parts if isinstance(part, _Part)])
        elif channel == "trade":
            self._take_trades(product, [trade for part in parts if isinstance(part, list) for trade in part])
        else:
            self._unknown(f"channel {channel!r}")

    def unreadable(self, data: bytes) -> bool:
        if data.startswith(b"{"):
            return bool(_decode_event(data).event)
        channel, product = self._place(data)
        if channel.startswith("book-") and (book := self.link.book(product)) is not None:
            self.link.lose(book, StateReason.MALFORMED, "a message that cannot be read")
        return True

    def _place(self, data: bytes) -> tuple[str, str]:
        """The channel and pair of a message of which nothing else need be right."""
        *_, channel, product = _decode_place(data)
        return _decode_name(channel), _decode_name(product)

    def _take_book(self, product: str, channel: str, parts: list[_Part]) -> None:
        if self.link.book(product) is None:
            return
        book = self._books[product]
        # Also where the subscription's answer was not seen: a recording may begin after it.
        book.depth = int(channel[len("book-") :])
        snapshot = any(part.all_asks is not None or part.all_bids is not None for part in parts)
        asks = [level for part in parts for level in part.all_asks or part.asks]
        bids = [level for part in parts for level in part.all_bids or part.bids]
        # All are written alike, so that the greatest text is the latest time.
        time = _nanoseconds(max([level.time for level in asks + bids], default="0"))
        checksum = next((part.checksum for part in parts if part.checksum is not None), None)
        check = partial(disagreement, book, int(checksum)) if checksum is not None else None
        take = book.snapshot if snapshot else book.update
        take([(b.price, b.size) for b in bids], [(a.price, a.size) for a in asks], time, check=check)

    def _take_trades(self, product: str, trades: list[_Trade]) -> None:
        book = self.link.book(product)
        if book is None:
            return
        for trade in trades:
            if trade.side not in _AGGRESSORS:
                raise DataError(f"the side of a trade is {trade.side!r}, not b or s")
            book.begin(_nanoseconds(trade.time), self.link.receive_time)
            book.trade(0, _AGGRESSORS[trade.side], trade.price, trade.size)
        book.end()

    def _take_event(self, event: _Event) -> None:
        match event.event, event.status:
            case "systemStatus", status:
                self._states.system(status)
            case "subscriptionStatus", "subscribed":
                if event.subscription.name == "book" and event.pair in self._books:
                    self.link.subscribed(event.pair)
            case "subscriptionStatus", "error" if event.error == _NOTHING_TO_END:
                self.link.statistics.problems.add("refused", event.pair or self.venue, event.error)
            case ("subscriptionStatus", "error") | ("error", _):
                self.link.refused(event.error, event.pair)
            case "subscriptionStatus", _:
                pass
            case kind, _ if kind not in _KNOWN_EVENTS:
                self._unknown(f"event {kind!r}")

    def _unknown(self, what: str) -> None:
        self.link.statistics.problems.add("unknown type", self.venue, what)
