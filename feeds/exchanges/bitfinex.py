"""Bitfinex: price levels or orders, and trades; of derivatives mark price, funding and open interest, too.

Source: Bitfinex documentation, "WebSocket General" (configuration flags, info codes, limits), "Public
Channels" (Books, Raw Books, Trades), "WebSocket Checksum", "WebSocket Public: Status" (Derivatives Status).

    {"event": "subscribed", "channel": "book", "chanId": 232957, "symbol": "tBTCUSD", "prec": "P0"}
    [232957, [[60400, 1, 0.68826974], [60406, 2, -1.5]], 17]   a snapshot of (price, count, amount)
    [232957, [60400, 0, 1], 18]                                an update: no orders are left at 60400
    [232957, "cs", -1432341132, 19]                            the checksum after it
    [232960, "te", [670002570, 1618677535660, -76.7682617, 0.00002516], 20]   a trade (id, ms, amount, price)
    [232960, "hb", 21]
    {"event": "subscribe", "channel": "status", "key": "deriv:tBTCF0:USTF0"}
    {"event": "subscribed", "channel": "status", "chanId": 335856, "key": "deriv:tBTCF0:USTF0"}
    [335856, [1596124822000, null, 0.896, 0.771995, null, 1396531.67460709, null, 1596153600000, 0.0001056, 6,
     null, -0.01381344, null, null, 0.7664, null, null, 246.94, null, null, null, 0.0005, 0.0025], 4]
    {"event": "info", "code": 20051, "msg": "…"}
    {"event": "error", "code": 10300, "symbol": "tFOO", "msg": "…"}

Raw books have rows of (order id, price, amount). Synchronised by the snapshot that a subscription begins
with. The last element of a frame counts the frames of a connection, over all channels (flag SEQ_ALL): after a
gap every book is subscribed anew. Checksums (flag OB_CHECKSUM) are signed CRC32s of the 25 best levels of
both sides, from the numbers' own text. A channel's frame may come before its `subscribed`: it waits.

Limits: 25 channels a connection, so 8 products; pings each 10 s. The exchange states no tick (prices have
five significant digits) and no lot (8 decimals), so both are 1e-8, the finest that rows can hold: a product
with a price below 0.0001 may have finer ones, and its book is then lost as malformed. Books have no times.

A status by place: 0 time (ms), 7 when funding is paid next (ms), 11 the rate that is applied then, 14 mark
price, 17 open interest; more may be appended. What accrues for the period after (8) and the mid of the spot
book (3), which is no index price, are left out. Liquidations come in one feed of all derivatives, which is
not read.

The books take rows of messages in the text of the wire, and make events of them.
"""

from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from functools import partial
from itertools import islice
from typing import ClassVar, Protocol

import msgspec
from sortedcontainers import SortedDict

from orderbook.core.errors import DataError, SourceError
from orderbook.feeds.exchanges.books import (
    BITFINEX_LEVELS,
    CheckedBook,
    ConnectionSequence,
    Ladder,
    PythonLadder,
    bitfinex_checksum,
)
from orderbook.feeds.exchanges.contract_values import ContractValues
from orderbook.feeds.exchanges.exchange import Exchange, ExchangeOptions, FeedBook, Link
from orderbook.feeds.wire import bitfinex as compiled
from orderbook.feeds.wire.decoder_state import NONE, WORDS
from orderbook.feeds.wire.frame_decoder import FrameDecoder
from orderbook.feeds.wire.text_ladder import TextLadder
from orderbook.market.contract_terms import PERPETUAL, SPOT, Terms
from orderbook.market.events import Action, BookState, Side, StateReason
from orderbook.market.instruments import Instrument

# Three JSON numbers.
Row = tuple[str, str, str]
_LARGEST = 2**63 - 1
_LAST_TRADE = WORDS["last_trade"]


class BitfinexBook(Protocol):
    """A book of either precision."""

    book: FeedBook

    def snapshot(self, rows: Sequence[Row], sequence: int) -> None:
        """The whole book."""

    def update(self, row: Row, sequence: int) -> None:
        """What one row changes; ignored before a snapshot."""

    def checksum(self) -> int:
        """What the exchange's checksum should be now."""

    @property
    def synchronised(self) -> bool:
        """Whether a snapshot has come since the book was lost."""


class LevelBook(CheckedBook):
    """Price levels: rows of (price, count of orders, amount), amounts of asks negative.

    A count of 0 removes the level; the amount, 1 or -1, tells its side.
    """

    def __init__(self, book: FeedBook, link: Link) -> None:
        ladder: Callable[[], Ladder] = PythonLadder
        if link.compiled:
            ladder = partial(TextLadder, BITFINEX_LEVELS)
        super().__init__(book, link, ladder=ladder)

    def checksum(self) -> int:
        bids, asks = (self.best(side, BITFINEX_LEVELS) for side in (Side.BID, Side.ASK))
        return bitfinex_checksum([(price, f"-{size}") for price, size in asks], list(bids))

    def snapshot(self, rows: Sequence[Row], sequence: int) -> None:  # type: ignore[override]
        super().snapshot(*_by_side(rows), sequence=sequence)

    def update(self, row: Row, sequence: int) -> None:  # type: ignore[override]
        super().update(*_by_side([row]), sequence=sequence)


class OrderBook:
    """Orders: rows of (order id, price, amount), amounts of asks negative; a price of 0 removes one.

    At one price, orders are sorted by their ids.
    """

    def __init__(self, book: FeedBook, link: Link) -> None:
        self.book = book
        self._link = link
        self._forget()

    @property
    def synchronised(self) -> bool:
        return self.book.state is not BookState.SYNCING

    def snapshot(self, rows: Sequence[Row], sequence: int) -> None:
        self.book.begin(0, self._link.receive_time, sequence, snapshot=True)
        self.book.clear()
        self._forget()
        if self._written(rows):
            self._link.synchronised(self.book)

    def update(self, row: Row, sequence: int) -> None:
        if self.synchronised:
            self.book.begin(0, self._link.receive_time, sequence)
            self._written([row])

    def checksum(self) -> int:
        asks, bids = (self._texts[side].values() for side in (Side.ASK, Side.BID))
        return bitfinex_checksum(list(islice(asks, BITFINEX_LEVELS)), list(islice(bids, BITFINEX_LEVELS)))

    def _forget(self) -> None:
        self._orders: dict[int, tuple[Side, int, int]] = {}
        # By price and id, best first; a bid's price is negative.
        self._texts: dict[Side, SortedDict[tuple[int, int], tuple[str, str]]] = {
            Side.BID: SortedDict(),
            Side.ASK: SortedDict(),
        }

    def _written(self, rows: Iterable[Row]) -> bool:
        """Write rows and end the unit; False where one cannot be used, and the book is lost."""
        try:
            for row in rows:
                self._write(row)
        except (DataError, ValueError) as error:
            self.book.undo()
            self._link.statistics.malformed += 1
            self._link.lose(self.book, StateReason.MALFORMED, str(error))
            return False
        self.book.end()
        return True

    def _write(self, row: Row) -> None:
        id_text, price_text, amount = row
        book, number = self.book, int(id_text)
        if not 0 < number <= _LARGEST:
            raise DataError(f"{id_text} is no order id")
        price = book.ticks[price_text]
        old = self._orders.get(number)
        if price == 0:
            self._remove(number)
            return
        side, size = _side(amount)
        volume = book.lots[size]
        if volume == 0:
            raise DataError(f"order {id_text} has no amount")
        if old is None or old[0] is not side:
            self._remove(number)
            book.add(Action.ADD, side, order_id=number, price=price, volume=volume)
        else:
            del self._texts[side][_key(*old, number)]
            if old[1] == price and volume < old[2]:
                book.add(Action.REDUCE, side, order_id=number, price=price, volume=old[2] - volume)
            elif old != (side, price, volume):
                book.add(Action.MODIFY, side, order_id=number, price=price, volume=volume)
        self._orders[number] = (side, price, volume)
        self._texts[side][_key(side, price, volume, number)] = (id_text, amount)

    def _remove(self, number: int) -> None:
        """Delete an order; one that is not known has left the best orders before."""
        order = self._orders.pop(number, None)
        if order is not None:
            side, price, volume = order
            del self._texts[side][_key(side, price, volume, number)]
            self.book.add(Action.DELETE, side, order_id=number, price=price, volume=volume)


def _key(side: Side, price: int, volume: int, number: int) -> tuple[int, int]:
    return (-price if side is Side.BID else price), number


def _side(amount: str) -> tuple[Side, str]:
    """The side that an amount's sign tells, and its size."""
    return (Side.ASK, amount[1:]) if amount.startswith("-") else (Side.BID, amount)


def _by_side(rows: Iterable[Row]) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Bids and asks of rows of levels, as (price, size)."""
    bids: list[tuple[str, str]] = []
    asks: list[tuple[str, str]] = []
    for price, count, amount in rows:
        side, size = _side(amount)
        (bids if side is Side.BID else asks).append((price, "0" if count == "0" else size))
    return bids, asks


SEQ_ALL, OB_CHECKSUM = 65536, 131072
_STEP = Decimal("0.00000001")
_LENGTHS = (25, 100, 250)
_LARGEST_EARLY = _MOST_CHANNELS = 1000
_RESTART, _MAINTENANCE_BEGINS, _MAINTENANCE_ENDS = 20051, 20060, 20061


class _Frame(msgspec.Struct, array_like=True, gc=False, frozen=True):
    """Data and a number, or a kind, its data and a number; a heartbeat has no data."""

    channel: int
    first: msgspec.Raw
    second: msgspec.Raw = msgspec.Raw(b"")
    third: msgspec.Raw = msgspec.Raw(b"")


class _Platform(msgspec.Struct, frozen=True):
    """`status` is 1 while the platform operates, 0 in maintenance."""

    status: int = 1


class _Event(msgspec.Struct, frozen=True):
    event: str
    channel: str = ""
    chanId: int = 0
    symbol: str = ""
    key: str = ""
    status: str = ""
    code: int | None = None
    msg: str = ""
    platform: _Platform = _Platform()


_RawRow = tuple[msgspec.Raw, msgspec.Raw, msgspec.Raw]
_decode_frame = msgspec.json.Decoder(_Frame).decode
_decode_event = msgspec.json.Decoder(_Event).decode
_decode_items = msgspec.json.Decoder(list[msgspec.Raw]).decode
_decode_row = msgspec.json.Decoder(_RawRow).decode
_decode_rows = msgspec.json.Decoder(list[_RawRow]).decode
_decode_trade = msgspec.json.Decoder(tuple[int, int, msgspec.Raw, msgspec.Raw]).decode
_decode_trades = msgspec.json.Decoder(list[tuple[int, int, msgspec.Raw, msgspec.Raw]]).decode
_decode_names = msgspec.json.Decoder(list[list[str]]).decode
_decode_number = msgspec.json.Decoder(int).decode
_STATUS_KEY = "deriv:"
# Where a status has what.
_TIME, _PAID, _RATE, _MARK, _INTEREST = 0, 7, 11, 14, 17
_LATEST_TIME = _LARGEST // 1_000_000


def _is_derivative(product: str) -> bool:
    """Whether a product is a perpetual, as tBTCF0:USTF0."""
    return product.endswith("F0")


def _write_status(body: msgspec.Raw, book: FeedBook, receive_time: int, number: int) -> None:
    """Write a status as a unit. Raises what msgspec raises, DataError and ValueError."""
    texts = [bytes(value).decode() for value in _decode_items(body)]
    if len(texts) <= _INTEREST:
        raise ValueError(f"a status of {len(texts)} values")
    time, paid = (0 if texts[at] == "null" else _decode_number(texts[at]) for at in (_TIME, _PAID))
    if not (0 <= time <= _LATEST_TIME and 0 <= paid <= _LATEST_TIME):
        raise ValueError(f"a time that is none: {time}, {paid}")
    rate, mark, interest = ("" if texts[at] == "null" else texts[at] for at in (_RATE, _MARK, _INTEREST))
    values = ContractValues(book)
    book.begin(time * 1_000_000, receive_time, number, apart=True)
    if mark:
        values.mark(mark)
    if rate:
        values.funding(rate, paid * 1_000_000)
    if interest:
        values.open_interest(interest)
    values.end()


_BAD = (msgspec.DecodeError, UnicodeDecodeError, DataError, ValueError)


class Bitfinex(Exchange):
    """Books of the best 100 price levels, or as many as the depth option says, of 25, 100 and 250."""

    venue: ClassVar[str] = "bitfinex"
    url = "wss://api-pub.bitfinex.com/ws/2"
    rest_url = "https://api-pub.bitfinex.com"
    ping_interval = 10.0
    # 25 channels, of which a derivative has three.
    products_per_connection = 8
    precision: ClassVar[str] = "P0"
    book_kind: ClassVar[type[LevelBook | OrderBook]] = LevelBook

    def __init__(self, link: Link, options: ExchangeOptions) -> None:
        super().__init__(link, options)
        wanted = options.depth or 100
        if wanted > max(_LENGTHS):
            raise SourceError(f"{self.venue}: no book has {wanted} levels; at most {max(_LENGTHS)}")
        self._length = min(length for length in _LENGTHS if length >= wanted)
        self._books: dict[str, BitfinexBook] = {n: self.book_kind(b, link) for n, b in link.books.items()}
        for book in link.books.values():
            book.memory.set("last_trade", 0)
        self._sequence = ConnectionSequence(link, self.venue)
        self._forget()

    def _forget(self) -> None:
        # Channel numbers that were acknowledged, those that are not read, and frames of others.
        self._channels: dict[int, tuple[str, str]] = {}
        self._ignored: set[int] = set()
        self._early: dict[int, list[tuple[bytes, msgspec.Raw, int]]] = {}
        self._tell_channels()

    def _tell_channels(self) -> None:
        """Let compiled code know the channels; of several of one kind and product the last."""
        for book in self.link.books.values():
            book.memory.set("book_channel", NONE)
            book.memory.set("trade_channel", NONE)
        kinds = {"book": "book_channel", "trades": "trade_channel"}
        for number, (name, product) in self._channels.items():
            kind = kinds.get(name)
            # Larger ones stay with this decoder.
            if kind is not None and 0 <= number <= _LARGEST:
                self.link.books[product].memory.set(kind, number)

    @classmethod
    def instrument_urls(cls, products: Sequence[str], rest_url: str) -> Sequence[str]:
        return [f"{rest_url}/v2/conf/pub:list:pair:{kind}" for kind in ("exchange", "futures")]

    @classmethod
    def instruments(cls, products: Sequence[str], bodies: Sequence[bytes]) -> list[Instrument]:
        try:
            known = {f"t{name}" for body in bodies for names in _decode_names(body) for name in names}
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise SourceError(f"{cls.venue}: no list of pairs: {error}") from None
        for product in products:
            if product not in known:
                raise SourceError(f"{cls.venue}: no product {product!r}; names are as in tBTCUSD")
        return [Instrument.listed(cls.venue, p, _STEP, _STEP, terms=_terms(p)) for p in products]

    def connected(self) -> None:
        self._sequence.reset()
        self._forget()

    def opening(self) -> Sequence[str]:
        return [_text(event="conf", flags=SEQ_ALL + OB_CHECKSUM)]

    def subscribe(self, products: Sequence[str]) -> Sequence[str]:
        trades = [_text(event="subscribe", channel="trades", symbol=product) for product in products]
        keys = [f"{_STATUS_KEY}{product}" for product in products if _is_derivative(product)]
        status = [_text(event="subscribe", channel="status", key=key) for key in keys]
        return [*map(self._book_request, products), *trades, *status]

    def resubscribe(self, product: str) -> Sequence[str]:
        requests = []
        for number in [n for n, place in self._channels.items() if place == ("book", product)]:
            del self._channels[number]
            self._ignored.add(number)
            requests.append(_text(event="unsubscribe", chanId=number))
        self._tell_channels()
        return [*requests, self._book_request(product)]

    def _book_request(self, product: str) -> str:
        book = {"prec": self.precision, "freq": "F0", "len": str(self._length)}
        return _text(event="subscribe", channel="book", symbol=product, **book)

    def ping(self) -> str:
        return '{"event":"ping"}'

    def decoder(self) -> FrameDecoder | None:
        books = [book.memory for book in self.link.books.values()]
        return FrameDecoder(compiled.take, books, self._sequence.memory)

    def frame(self, data: bytes) -> None:
        if data.startswith(b"{"):
            self._event(_decode_event(data))
            return
        frame = _decode_frame(data)
        kind, body, last = bytes(frame.first), frame.second, frame.third
        if not kind.startswith(b'"'):
            kind, body, last = b"", frame.first, frame.second
        elif kind == b'"hb"':
            last = frame.second
        number, gaps = _decode_number(last), self._sequence.gaps
        if not self._sequence.follows(number):
            return
        if self._sequence.gaps != gaps:
            self._early.clear()
        if frame.channel in self._channels:
            self._take(frame.channel, kind, body, number)
        elif frame.channel not in self._ignored and kind != b'"hb"':
            self._early.setdefault(frame.channel, []).append((kind, body, number))
            if sum(map(len, self._early.values())) > _LARGEST_EARLY:
                self.link.reconnect("unknown channel", f"channel {frame.channel} is not acknowledged")

    def _take(self, channel: int, kind: bytes, body: msgspec.Raw, number: int) -> None:
        """Take a channel's frame; one that cannot be used loses its book."""
        name, product = self._channels[channel]
        if kind == b'"hb"':
            return
        if name == "trades":
            self._trade(product, kind, body, number)
            return
        if name == "status":
            _write_status(body, self.link.books[product], self.link.receive_time, number)
            return
        book = self._books[product]
        try:
            if kind == b'"cs"':
                self._check(book, _decode_number(body))
            elif kind:
                self.link.statistics.problems.add("unknown message", self.venue, f"a book's {kind!r}")
            elif _is_list_of_lists(body):
                book.snapshot([_texts(row) for row in _decode_rows(body)], number)
            else:
                book.update(_texts(_decode_row(body)), number)
        except _BAD as error:
            self.link.statistics.malformed += 1
            self.link.lose(book.book, StateReason.MALFORMED, f"sequence {number}: {error}")

    def _check(self, book: BitfinexBook, expected: int) -> None:
        if not book.synchronised:
            return
        if (found := book.checksum()) != expected:
            self.link.lose(book.book, StateReason.CHECKSUM, f"{found} instead of {expected}")
        else:
            self.link.statistics.checksums += 1

    def _trade(self, product: str, kind: bytes, body: msgspec.Raw, number: int) -> None:
        """Write a trade when it executes ("te"); "tu" repeats it, and the first message is of the past."""
        book = self.link.books[product]
        words = book.memory.words
        if kind == b"":
            found = [trade[0] for trade in _decode_trades(body)]
            words[_LAST_TRADE] = max(found, default=words[_LAST_TRADE])
            return
        if kind != b'"te"':
            return
        trade_id, milliseconds, amount, price = _decode_trade(body)
        if trade_id <= words[_LAST_TRADE]:
            return
        size = bytes(amount).decode()
        aggressor = Side.ASK if size.startswith("-") else Side.BID
        book.begin(milliseconds * 1_000_000, self.link.receive_time, number, apart=True)
        book.trade(trade_id, aggressor, bytes(price).decode(), size.removeprefix("-"))
        book.end()
        words[_LAST_TRADE] = trade_id

    def _event(self, event: _Event) -> None:
        link = self.link
        match event.event:
            case "subscribed":
                self._subscribed(event)
            case "unsubscribed":
                self._ignored.discard(event.chanId)
            case "info":
                self._informed(event)
            case "conf" if event.status == "OK":
                pass
            case "conf":
                link.refused(f"sequence numbers and checksums: {event.status}")
            case "error":
                link.refused(
                    f"{event.msg} (code {event.code})",
                    (event.symbol or event.key.removeprefix(_STATUS_KEY)) or None,
                )
            case "pong":
                pass
            case other:
                link.statistics.problems.add("unknown message", self.venue, f"event {other!r}")

    def _subscribed(self, event: _Event) -> None:
        symbol = event.key.removeprefix(_STATUS_KEY) if event.channel == "status" else event.symbol
        number, place = event.chanId, (event.channel, symbol)
        early = self._early.pop(number, [])
        if len(self._ignored) + len(self._channels) > _MOST_CHANNELS:
            self.link.reconnect("unknown channel", "channels that were not asked for")
            return
        if event.channel not in ("book", "trades", "status") or self.link.book(symbol) is None:
            self._ignored.add(number)
            return
        self._ignored.discard(number)
        self._channels[number] = place
        self._tell_channels()
        if event.channel == "book":
            self.link.subscribed(event.symbol)
        for kind, body, sequence in early:
            self._take(number, kind, body, sequence)

    def _informed(self, event: _Event) -> None:
        link = self.link
        if event.code == _RESTART:
            link.reconnect("reconnect requested", event.msg)
        elif event.code == _MAINTENANCE_ENDS:
            link.reconnect("maintenance ended", event.msg)
        elif event.code == _MAINTENANCE_BEGINS or event.platform.status == 0:
            for book in link.books.values():
                link.hold(book, BookState.STALE, StateReason.HALTED)


class BitfinexRaw(Bitfinex):
    """Books of the best 100 orders of a side, or as many as the depth option says, by order ids."""

    precision = "R0"
    book_kind = OrderBook

    def decoder(self) -> FrameDecoder | None:
        return None


def _is_list_of_lists(body: msgspec.Raw) -> bool:
    items = _decode_items(body)
    return not items or bytes(items[0]).startswith(b"[")


def _texts(row: _RawRow) -> tuple[str, str, str]:
    first, second, third = row
    return bytes(first).decode(), bytes(second).decode(), bytes(third).decode()


def _text(**request: str | int) -> str:
    return msgspec.json.encode(request).decode()


def _terms(product: str) -> Terms:
    """Derivatives are perpetuals, as tBTCF0:USTF0, margined and settled in what they are quoted in."""
    return msgspec.structs.replace(PERPETUAL, settlement="USDT") if product.endswith(":USTF0") else SPOT
