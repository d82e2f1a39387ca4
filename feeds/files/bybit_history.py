"""Bybit's public history: order books as the websocket sent them, and trades as CSV, day by day.

Source: bybit.com, "Derivatives/Spot Data Download": `yyyy-mm-dd_SYMBOL_ob500.data.zip` (spot, and all since
August 2025: ob200) holds a file of NDJSON, a message of the topic `orderbook.DEPTH.SYMBOL` a line; a day
begins with a snapshot.

    {"topic": "orderbook.500.BTCUSDT", "type": "delta", "ts": 1725321601755, "data": {"s": "BTCUSDT",
     "b": [["59116.70", "9.490"]], "a": [], "u": 28259371, "seq": 231805146756}, "cts": 1725321601749}

Trades are CSV, of derivatives or of spot. Source: public.bybit.com,
`trading/SYMBOL/SYMBOLyyyy-mm-dd.csv.gz` (times in seconds, with a fraction; the taker's side) and
`spot/SYMBOL/SYMBOL_yyyy-mm-dd.csv.gz` (times in ms). Columns may follow those named.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from itertools import islice
from typing import NamedTuple
from uuid import UUID

import msgspec

from orderbook.core.errors import DataError, SourceError
from orderbook.feeds.byte_stream import Lines, shown
from orderbook.feeds.exchanges import bybit
from orderbook.feeds.recording.capture_replay import LineReplay, ReplayedLines
from orderbook.feeds.storage import Place
from orderbook.feeds.text_values import decimal_places, scaled
from orderbook.market.contract_terms import SPOT, Terms
from orderbook.market.events import Action, Events, Side
from orderbook.market.instruments import Instrument, Instruments

_DERIVATIVES = ("timestamp", "symbol", "side", "size", "price", "tickDirection", "trdMatchID")
_SPOT = ("id", "timestamp", "price", "volume", "side")
# BitMEX's history has the same header, with times as 2018-12-05D00:00:25.948313000.
_DERIVATIVES_ROW = re.compile(rb'"?\d{9,10}(?:\.\d*)?"?,')
_SPOT_ROW = re.compile(rb'"?\d+"?,"?\d{12,13}(?:\.\d*)?"?,')
_SIDES = {"buy": Side.BID, "sell": Side.ASK}


class TradeRow(NamedTuple):
    """A trade; `time` in ns, `exact` where that is what the file says; numbers are its text."""

    time: int
    exact: bool
    symbol: str
    side: Side
    price: str
    size: str
    trade_id: int


class TradeColumns:
    """Where the columns of a file of trades are, by its header. Raises ValueError for another file's."""

    def __init__(self, header: bytes) -> None:
        names = _fields(header)
        self.spot = names[: len(_SPOT)] == list(_SPOT)
        wanted = _SPOT if self.spot else _DERIVATIVES
        if names[: len(wanted)] != list(wanted):
            raise ValueError("no header of Bybit's trades")

    def row(self, line: bytes) -> TradeRow:
        """A row. Raises ValueError, which names the field, for one that cannot be read."""
        fields = _fields(line)
        wanted = _SPOT if self.spot else _DERIVATIVES
        if len(fields) < len(wanted):
            raise ValueError(f"{len(fields)} columns, not {len(wanted)}")
        named = dict(zip(wanted, fields, strict=False))
        side = _SIDES.get(named["side"].lower())
        if side is None:
            raise ValueError(f"side {named['side'][:40]!r} is neither Buy nor Sell")
        try:
            time, exact = scaled(named["timestamp"], 6 if self.spot else 9)
        except ValueError as error:
            raise ValueError(f"timestamp {error}") from None
        if not 0 < time < 2**63:
            raise ValueError(f"timestamp {named['timestamp'][:40]!r} is out of range")
        size = named["volume" if self.spot else "size"]
        trade_id = _trade_id(named["id" if self.spot else "trdMatchID"])
        return TradeRow(time, exact, named.get("symbol", ""), side, named["price"], size, trade_id)


def is_bybit_trades(line: bytes, rows: Sequence[bytes]) -> bool:
    """Whether a line is the header of Bybit's trades, by the first of the rows behind it."""
    try:
        spot = TradeColumns(line).spot
    except ValueError:
        return False
    pattern = _SPOT_ROW if spot else _DERIVATIVES_ROW
    return all(pattern.match(row) for row in rows[:1])


def _fields(line: bytes) -> list[str]:
    return [field.strip(' "\t') for field in line.decode("utf-8", "replace").split(",")]


def _trade_id(text: str) -> int:
    """A number, or the first 63 bits of a UUID. Raises ValueError."""
    if text.isascii() and text.isdigit() and int(text) < 2**63:
        return int(text)
    return UUID(text).int >> 65


OPTIONS = ("category", "symbol", "tick", "lot")
VENUE = "bybit"
# Lines that are searched for the symbol and the decimal places of prices.
HEAD_LINES = 2_000
# Volumes are held at the finest scale that rows have: a day's book is lost for good with one level.
_LOT = Decimal("0.00000001")
_CATEGORIES = ("spot", "linear", "inverse")
# What spot does not have.
_DERIVATIVE_DEPTH = 500
_NAMED = re.compile(r"(?:\d{4}-\d\d-\d\d_)?(?P<symbol>[A-Z0-9]+?)(?:[-_]?\d{4}-\d\d(?:-\d\d)?)?[._].*")
_TIME = re.compile(rb'"ts"\s*:\s*(\d{1,16})')


class BybitHistorySource(ReplayedLines):
    """The books (L2) and trades of one symbol, of files in any order, as one stream by time.

    Books go through the decoder of the live feed: `exchange_time` is the matching engine's, `receive_time`
    when the exchange sent it, as nobody received it; a trade's times are its own. A file's snapshot begins
    the book anew, and without one it goes on from the file before; update ids show what is missing between
    two. `order_id` of a trade is its id, or the first 63 bits of a UUID.

    options: `category` where neither name, depth nor columns tell spot from linear and inverse contracts
        (spot by default), which are named SYMBOL.P as in the live feed; `symbol` where a file of spot trades
        is not named after it; `tick`, by default the decimal places in the first 2,000 lines, and `lot`,
        by default 1e-8.

    Raises SourceError when a file is missing or is none of these, when files are of different products, and
    when one is truncated, after everything else.
    """

    changes = "deltas applied"

    def __init__(self, paths: Sequence[Place], options: Mapping[str, str] | None = None) -> None:
        super().__init__("bybit", paths, _time)
        files = [lines.path for lines in self._lines.files]
        self._instrument, self.tells_books = _instrument(files, options or {})
        self._symbol = self._instrument.native_symbol.removesuffix(".P")
        self.instruments = Instruments([self._instrument])
        self._columns: dict[Lines, TradeColumns] = {}

    def __iter__(self) -> Iterator[Events]:
        self._columns.clear()
        # The greatest time so far, ns.
        self._now = 0
        return super().__iter__()

    def _take(self, replay: LineReplay, line: bytes) -> None:
        if not line.strip():
            return
        time = _time(line)
        if time is not None:
            replay.begin(time)
            # Files are merged by time, and within one a message may be some ms behind another.
            self._now = max(self._now, time)
        if line.lstrip().startswith(b"{"):
            replay.frame(line, self._now)
            return
        try:
            self._trade(replay, line)
        except (DataError, ValueError) as error:
            replay.malformed("malformed trade", f"{shown(line)}: {error}")

    def _trade(self, replay: LineReplay, line: bytes) -> None:
        columns = self._columns.get(self._lines.current)
        if columns is None:
            self._columns[self._lines.current] = TradeColumns(line)
            return
        row = columns.row(line)
        if row.symbol not in ("", self._symbol):
            raise ValueError(f"a trade of {row.symbol} among those of {self._symbol}")
        book = replay.at(self._now).books[self._instrument.native_symbol]
        price, volume = book.ticks[row.price], book.lots[row.size]
        if not row.exact:
            self.counts["times rounded"] += 1
        book.begin(row.time, self._now, book.sequence, apart=True)
        book.add(Action.TRADE, row.side, order_id=row.trade_id, price=price, volume=volume)
        book.end()


@dataclass(slots=True)
class _Head:
    """What the first lines of a file tell."""

    symbol: str = ""
    category: str = ""
    places: int = 0
    books: bool = False
    columns: TradeColumns | None = field(default=None, repr=False)

    def take(self, line: bytes) -> None:
        if line.lstrip().startswith(b"{"):
            message = bybit.decode_message(line)
            depth = bybit.decode_depth(message.data)
            self.books, self.symbol = True, self.symbol or depth.s
            if message.topic.startswith(f"orderbook.{_DERIVATIVE_DEPTH}."):
                self.category = "linear"
            prices = [price for price, _ in depth.b + depth.a]
        elif self.columns is None:
            self.columns = TradeColumns(line)
            self.category = "spot" if self.columns.spot else "linear"
            return
        else:
            row = self.columns.row(line)
            self.symbol = self.symbol or row.symbol
            prices = [row.price]
        self.places = max([self.places, *map(decimal_places, prices)])


def _instrument(paths: Sequence[Place], options: Mapping[str, str]) -> tuple[Instrument, bool]:
    """The instrument of files, and whether any of them tells its book."""
    wanted = options.get("category", "")
    if wanted and wanted not in _CATEGORIES:
        raise SourceError(f"{paths[0]}: no category {wanted!r}; it is one of {', '.join(_CATEGORIES)}")
    heads = {path: _head(path, options.get("symbol", "")) for path in paths}
    categories = {head.category for head in heads.values() if head.category}
    symbols = {head.symbol for head in heads.values()}
    if len(symbols) > 1 or (len(categories) > 1 and not wanted):
        found = "; ".join(f"{path.name}: {head.category} {head.symbol}" for path, head in heads.items())
        raise SourceError(f"files of different products ({found}); name them as sources of their own")
    symbol, category = symbols.pop(), wanted or next(iter(categories), "spot")
    native = symbol if category == "spot" else f"{symbol}.P"
    places = max(head.places for head in heads.values())
    tick = _step(paths[0], options, "tick", Decimal(1).scaleb(-places))
    lot = _step(paths[0], options, "lot", _LOT)
    try:
        one = Instrument.listed(VENUE, native, tick, lot, terms=SPOT if native == symbol else Terms())
    except DataError as error:
        raise SourceError(f"{paths[0]}: {error}") from error
    return one, any(head.books for head in heads.values())


def _head(path: Place, symbol: str) -> _Head:
    head = _Head(symbol)
    for line in islice(Lines(path), HEAD_LINES):
        try:
            head.take(line)
        except (msgspec.DecodeError, UnicodeDecodeError, ValueError):
            continue
    if not head.books and head.columns is None:
        raise SourceError(
            f"{path}: neither order books of Bybit (a message of orderbook.DEPTH.SYMBOL a line) nor its "
            "trades (CSV with timestamp,symbol,side,… or id,timestamp,price,volume,side)"
        )
    if not head.symbol and (named := _NAMED.fullmatch(path.name)) is not None:
        head.symbol = named["symbol"]
    if not head.symbol:
        raise SourceError(f"{path}: does not tell its symbol; write it as ?symbol=BTCUSDT")
    told = [part for part in str(path).lower().split("/")[:-1] if part in _CATEGORIES]
    if not head.category and told:
        head.category = "spot" if told[-1] == "spot" else "linear"
    return head


def _step(path: Place, options: Mapping[str, str], key: str, default: Decimal) -> Decimal:
    try:
        return Decimal(options[key]) if key in options else default
    except InvalidOperation:
        raise SourceError(f"{path}: {key} is a number above 0, not {options[key]!r}") from None


def _time(line: bytes) -> int | None:
    """When a line is of, ns since 1970 UTC; None where it does not tell."""
    if line.lstrip().startswith(b"{"):
        found = _TIME.search(line)
        time = int(found[1]) * 1_000_000 if found is not None else 0
    else:
        fields = line.split(b",", 2)
        try:
            # Spot's rows begin with an id, and their times are in ms.
            numbers = [(scaled(text.decode("ascii"), 9)[0]) for text in fields[:2]]
        except ValueError:
            try:
                numbers = [scaled(fields[0].decode("ascii"), 9)[0]]
            except ValueError:
                return None
        time = numbers[1] // 1000 if len(numbers) > 1 else numbers[0]
    return time if 0 < time < 2**63 else None
