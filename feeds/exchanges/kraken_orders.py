"""Kraken's `level3` channel: every order of the best price levels, with checksums, for who has a key.

Source: Kraken API documentation, "Spot WebSocket v2" (Orders (Level 3), Trade), "L3 checksum (WebSocket v2)",
"Get WebSockets Token". Snapshots and updates, after a subscription that carries a token (`credentials`):

    {"channel": "level3", "type": "snapshot", "data": [{"symbol": "MATIC/USD", "checksum": 281817320,
     "bids": [{"order_id": "O6ZQNQ-BXL4E-5WGINO", "limit_price": 0.5629, "order_qty": 111.56125344,
      "timestamp": "2023-10-06T17:35:00.279389650Z"}], "asks": […]}]}
    {"channel": "level3", "type": "update", "data": [{"symbol": "MATIC/USD", "checksum": 2841398499,
     "bids": [], "asks": [{"event": "delete", "order_id": "OOIATY-6EIWY-ACVIUN", "limit_price": 0.5636,
      "order_qty": 302.89736033, "timestamp": "2023-10-06T18:21:00.097010033Z"}, {"event": "add", …}]}]}

Orders of one price stand in the order of their queue: new ones at its end, modified ones where they were.
Every message has a CRC32 over the orders of the 10 best levels of both sides, in that order. What leaves the
depth subscribed to is not told: levels beyond it are dropped after every message, and orders of the level
that comes into it are sent again. So deletions of unknown orders mean nothing.

Trades come from the public address, on a connection of their own. Halts of pairs are not told here.

Limits: 200 pairs a connection; a standard client's counter of 200 a second, of which a subscription takes 5,
25 or 100 by its depth (10, 100, 1,000 levels).
"""

from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from itertools import chain, islice
from typing import Any, ClassVar, Literal, NamedTuple

import msgspec
from sortedcontainers import SortedDict

from orderbook.core.errors import ConfigurationError, DataError
from orderbook.feeds.exchanges.books import KRAKEN_LEVELS, digits_checksum
from orderbook.feeds.exchanges.credentials import KrakenLogin
from orderbook.feeds.exchanges.exchange import Exchange, ExchangeOptions, FeedBook, Link
from orderbook.feeds.exchanges.kraken import (
    PAIRS_PATH,
    Kraken,
    decode_answer,
    decode_place,
    decode_products,
    kraken_instruments,
    kraken_name,
    kraken_request,
)
from orderbook.feeds.text_values import IsoClock
from orderbook.feeds.wire.frame_decoder import FrameDecoder
from orderbook.market.events import Action, BookState, Side, StateReason
from orderbook.market.instruments import Instrument

DEPTHS = (10, 100, 1000)


class _Order(msgspec.Struct, frozen=True, gc=False):
    # The wire's text, because of `float_hook`; an int where it has neither point nor exponent.
    order_id: str
    limit_price: Any
    order_qty: Any
    timestamp: str
    event: Literal["add", "modify", "delete"] = "add"


class _Orders(msgspec.Struct, frozen=True, gc=False):
    symbol: str
    checksum: int
    bids: list[_Order] = []
    asks: list[_Order] = []


class _Message(msgspec.Struct, frozen=True, gc=False):
    channel: str = ""
    type: str = ""
    data: msgspec.Raw = msgspec.Raw(b"[]")


_decode = msgspec.json.Decoder(_Message).decode
_decode_orders = msgspec.json.Decoder(list[_Orders], float_hook=str).decode


class Resting(NamedTuple):
    """An order; price and volume in units, texts of the wire."""

    number: int
    price: int
    volume: int
    price_text: str
    size_text: str


def order_number(order_id: str) -> int:
    """An order's id as events carry it: 63 bits of a hash."""
    return int.from_bytes(blake2b(order_id.encode(), digest_size=8).digest()) >> 1


class OrderLevels:
    """The orders of one side: by price, best first, in the order of each queue."""

    def __init__(self, side: Side) -> None:
        self._sign = -1 if side is Side.BID else 1
        self._levels: SortedDict[int, dict[str, Resting]] = SortedDict()
        self._prices: dict[str, int] = {}

    def __len__(self) -> int:
        """How many levels there are."""
        return len(self._levels)

    def get(self, order_id: str) -> Resting | None:
        """An order; None where it is not known."""
        key = self._prices.get(order_id)
        return None if key is None else self._levels[key][order_id]

    def put(self, order_id: str, order: Resting) -> None:
        """Add an order at the end of its queue; one of the same price stays where it is."""
        key = self._sign * order.price
        if self._prices.get(order_id, key) != key:
            self.remove(order_id)
        self._prices[order_id] = key
        self._levels.setdefault(key, {})[order_id] = order

    def remove(self, order_id: str) -> None:
        """Remove an order that is known."""
        key = self._prices.pop(order_id)
        level = self._levels[key]
        del level[order_id]
        if not level:
            del self._levels[key]

    def cut(self, depth: int) -> Iterator[Resting]:
        """Remove the levels beyond a depth; their orders."""
        while len(self._levels) > depth:
            _, level = self._levels.popitem()
            for order_id, order in level.items():
                del self._prices[order_id]
                yield order

    def best(self, depth: int) -> Iterator[tuple[str, str]]:
        """(price, size) of the orders of the best levels, as the wire had them."""
        for level in islice(self._levels.values(), depth):
            for order in level.values():
                yield order.price_text, order.size_text


class KrakenOrderBook:
    """One product: a message is one unit; times are the latest of its orders'."""

    def __init__(self, book: FeedBook, link: Link, depth: int) -> None:
        self.book, self.depth = book, depth
        self._link = link
        self._clock = IsoClock()
        self._time = 0
        self._forget()

    def take(self, told: _Orders, *, snapshot: bool) -> None:
        """Take a snapshot, or an update, which is ignored before one."""
        book, link = self.book, self._link
        if not snapshot and book.state is BookState.SYNCING:
            return
        try:
            times = [self._clock.nanoseconds(one.timestamp) for one in chain(told.bids, told.asks)]
            self._time = max([self._time, *times])
            book.begin(self._time, link.receive_time, snapshot=snapshot)
            if snapshot:
                book.clear()
                self._forget()
            for side, orders in ((Side.BID, told.bids), (Side.ASK, told.asks)):
                self._change(side, orders)
        except (DataError, ValueError) as error:
            book.undo()
            link.statistics.malformed += 1
            link.lose(book, StateReason.MALFORMED, str(error))
            return
        found = digits_checksum(
            chain(self._sides[Side.ASK].best(KRAKEN_LEVELS), self._sides[Side.BID].best(KRAKEN_LEVELS))
        )
        if found != told.checksum:
            book.undo()
            link.lose(book, StateReason.CHECKSUM, f"{found} is not the exchange's {told.checksum}")
            return
        link.statistics.checksums += 1
        book.end()
        if snapshot:
            link.synchronised(book)

    def _forget(self) -> None:
        self._sides = {side: OrderLevels(side) for side in (Side.BID, Side.ASK)}

    def _change(self, side: Side, orders: Iterable[_Order]) -> None:
        book, levels = self.book, self._sides[side]
        for one in orders:
            old = levels.get(one.order_id)
            if one.event == "delete":
                if old is not None:
                    levels.remove(one.order_id)
                    self._leave(side, old)
                continue
            price, size = str(one.limit_price), str(one.order_qty)
            new = Resting(order_number(one.order_id), book.ticks[price], book.lots[size], price, size)
            if new.volume <= 0 or new.price <= 0:
                raise DataError(f"order {one.order_id} of {size} at {price}")
            levels.put(one.order_id, new)
            self._become(side, old, new)
        for order in levels.cut(self.depth):
            self._leave(side, order)

    def _become(self, side: Side, old: Resting | None, new: Resting) -> None:
        """An order was added, or is another one now."""
        number, price, volume = new[:3]
        if old is None:
            self.book.add(Action.ADD, side, order_id=number, price=price, volume=volume)
        elif old.price == price and volume < old.volume:
            self.book.add(Action.REDUCE, side, order_id=number, price=price, volume=old.volume - volume)
        elif old[:3] != new[:3]:
            self.book.add(Action.MODIFY, side, order_id=number, price=price, volume=volume)

    def _leave(self, side: Side, order: Resting) -> None:
        self.book.add(Action.DELETE, side, order_id=order.number, price=order.price, volume=order.volume)


class KrakenLevel3(Exchange):
    """Orders of the best 10 price levels, or as many as the depth option says, of 10, 100 and 1,000."""

    venue: ClassVar[str] = "kraken"
    url = "wss://ws-l3.kraken.com/v2"
    rest_url = "https://api.kraken.com"
    beside = "kraken_trades"
    loss_shows = False
    silence = 10.0
    send_interval = 0.1

    def __init__(self, link: Link, options: ExchangeOptions) -> None:
        super().__init__(link, options)
        self._depth = options.depth or DEPTHS[0]
        if self._depth not in DEPTHS:
            offered = ", ".join(map(str, DEPTHS))
            raise ConfigurationError(
                f"kraken_l3: depth {self._depth} is not offered; choose one of {offered}"
            )
        # So that the subscriptions of a second stay within half of a standard client's limit.
        self.send_interval = {10: 0.1, 100: 0.25, 1000: 1.0}[self._depth]  # type: ignore[misc]
        self._books = {name: KrakenOrderBook(book, link, self._depth) for name, book in link.books.items()}

    @classmethod
    def instrument_urls(cls, products: Sequence[str], rest_url: str) -> Sequence[str]:
        return [rest_url + PAIRS_PATH]

    @classmethod
    def instruments(cls, products: Sequence[str], bodies: Sequence[bytes]) -> list[Instrument]:
        return kraken_instruments(products, bodies, kraken_name)

    @classmethod
    def login(cls, options: ExchangeOptions) -> KrakenLogin:
        return KrakenLogin.from_environment("kraken_l3", options.rest_url or cls.rest_url)

    def subscribe(self, products: Sequence[str]) -> Sequence[str]:
        # A request each, since what a subscription takes of the limit is by pair.
        return [kraken_request("subscribe", self._orders_of(product)) for product in products]

    def resubscribe(self, product: str) -> Sequence[str]:
        orders = self._orders_of(product)
        return [kraken_request(method, orders) for method in ("unsubscribe", "subscribe")]

    def _orders_of(self, product: str) -> dict[str, Any]:
        return {"channel": "level3", "symbol": [product], "depth": self._depth, "snapshot": True}

    def frame(self, data: bytes) -> None:
        if b'"method"' in data:
            self._take_answer(data)
            return
        message = _decode(data)
        if message.channel == "level3":
            if message.type not in ("snapshot", "update"):
                raise ValueError(f"orders of type {message.type!r}")
            for one in _decode_orders(message.data):
                if self.link.book(one.symbol) is not None:
                    self._books[one.symbol].take(one, snapshot=message.type == "snapshot")
        elif message.channel not in ("heartbeat", "status"):
            self.link.statistics.problems.add("unknown type", self.venue, f"channel {message.channel!r}")

    def unreadable(self, data: bytes) -> bool:
        place = decode_place(data)
        if place.channel != "level3":
            return bool(place.channel or place.method)
        products = [one.symbol for one in decode_products(place.data)]
        for product in products:
            if (book := self.link.book(product)) is not None:
                self.link.lose(book, StateReason.MALFORMED, "a message that cannot be read")
        return bool(products)

    def _take_answer(self, data: bytes) -> None:
        answer = decode_answer(data)
        result = answer.result
        if not answer.success:
            self.link.refused(answer.error, answer.symbol)
        elif answer.method == "subscribe" and result.channel == "level3" and result.symbol in self._books:
            self.link.subscribed(result.symbol)


class KrakenTrades(Kraken):
    """Trades of the public address, beside orders."""

    tells_books = False

    def subscribe(self, products: Sequence[str]) -> Sequence[str]:
        return [kraken_request("subscribe", {"channel": "trade", "symbol": products, "snapshot": False})]

    def decoder(self) -> FrameDecoder | None:
        return None

    def frame(self, data: bytes) -> None:
        if b'"method"' in data or _decode(data).channel == "trade":
            super().frame(data)
