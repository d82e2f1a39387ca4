"""Databento's DBN: orders, levels, trades and status of its datasets, from files of versions 1 to 3.

One instrument's records of orders, levels and trades become events by its `DatabentoBook`.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

import databento_dbn as dbn

from orderbook.core.errors import DataError, Problems, SourceError
from orderbook.feeds.event_writer import DEFAULT_BATCH_SIZE, EventWriter
from orderbook.feeds.files.databento_records import (
    FINEST_TICK,
    LAST,
    UNDEFINED_PRICE,
    UNDEFINED_TIME,
    Definition,
    InstrumentMessages,
    Mapping,
    RecordFile,
    definitions_of,
    mappings_of,
)
from orderbook.feeds.storage import Place, files_at, place, split_options
from orderbook.market.events import Action, Events, Side, StateReason
from orderbook.market.instruments import FINEST, Instrument, Instruments

_BID, _ASK, _NONE = int(Side.BID), int(Side.ASK), int(Side.NONE)
_SIDES = {dbn.Side.BID: _BID, dbn.Side.ASK: _ASK, dbn.Side.NONE: _NONE}
_ADD, _REDUCE, _MODIFY = int(Action.ADD), int(Action.REDUCE), int(Action.MODIFY)
_CLEAR, _LEVEL, _TRADE = int(Action.CLEAR), int(Action.LEVEL), int(Action.TRADE)
_BAD_BOOK, _TOP = int(dbn.F_MAYBE_BAD_BOOK), int(dbn.F_TOB)
_CODES = {
    dbn.Action.ADD: _ADD,
    dbn.Action.CANCEL: _REDUCE,
    dbn.Action.MODIFY: _MODIFY,
    dbn.Action.TRADE: _TRADE,
    dbn.Action.CLEAR: _CLEAR,
}


class DatabentoBook(InstrumentMessages):
    """The messages of an instrument, by the kind of their records. All of one kind are of one book."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._orders: dict[int, int] = {}
        self._tops: dict[int, int] = {}
        self._levels: tuple[dict[int, int], dict[int, int]] = ({}, {})

    def forget(self) -> None:
        self._orders.clear()
        self._tops.clear()
        self._levels = ({}, {})

    def order(self, record: Any) -> None:
        """A record of MBO. Fills change nothing, nor do trades: cancels follow them."""
        if not self.of_publisher(record):
            return
        flags = record.flags
        self.begin(record, record.sequence, flags)
        code = _CODES.get(record.action)
        if code == _ADD:
            self._add(record, flags)
        elif code == _REDUCE:
            self._cancel(record)
        elif code == _MODIFY:
            self._modify(record, flags)
        elif code == _TRADE:
            self._print(record)
        elif code == _CLEAR:
            self.forget()
            self.synchronised, self.doubt = True, StateReason.NONE
            self.event(_CLEAR, _NONE)
        if flags & _BAD_BOOK:
            self.doubt = StateReason.GAP
        self.end(flags & LAST != 0)

    def depth(self, record: Any) -> None:
        """A record of MBP: what happened, and the best levels after it."""
        if not self.of_publisher(record):
            return
        flags = record.flags
        self.begin(record, record.sequence, flags)
        if record.action == dbn.Action.TRADE:
            self._print(record)
        last = flags & LAST != 0
        if last or self._alone:
            self.synchronised = True
            self.doubt = StateReason.GAP if flags & _BAD_BOOK else StateReason.NONE
            self._difference(record)
        self.end(last)

    def trade(self, record: Any) -> None:
        """A record of trades, which are messages of their own."""
        self.begin(record, record.sequence, record.flags)
        self._print(record)
        self.end(True)

    def _add(self, record: Any, flags: int) -> None:
        side = _SIDES[record.side]
        if side == _NONE:
            self.lose(record, "an order without a side")
            return
        order_id, price = _signed(record.order_id), record.price
        if flags & _TOP:
            # The venue tells its best order of a side alone: the new one stands for all.
            self.event(_CLEAR, side)
            self._orders.pop(self._tops.pop(side, 0), None)
            self.synchronised = True
            if price == UNDEFINED_PRICE:
                return
            self._tops[side] = order_id
        ticks = self.ticks(price)
        if ticks is None:
            self.lose(record, f"price {price}e-9")
            return
        volume = record.size
        self._orders[order_id] = volume
        self.event(_ADD, side, order_id, ticks, volume)

    def _cancel(self, record: Any) -> None:
        order_id, volume = _signed(record.order_id), record.size
        left = self._orders.get(order_id)
        if left is None:
            self._unknown(record)
            return
        self.event(_REDUCE, _SIDES[record.side], order_id, record.price // FINEST_TICK, volume)
        if left > volume:
            self._orders[order_id] = left - volume
        else:
            del self._orders[order_id]

    def _modify(self, record: Any, flags: int) -> None:
        order_id = _signed(record.order_id)
        if order_id not in self._orders:
            self._add(record, flags)
            return
        ticks, side = self.ticks(record.price), _SIDES[record.side]
        if ticks is None or side == _NONE:
            self.lose(record, f"price {record.price}e-9 for order {record.order_id}")
            return
        self._orders[order_id] = record.size
        self.event(_MODIFY, side, order_id, ticks, record.size)

    def _print(self, record: Any) -> None:
        ticks = self.ticks(record.price)
        if ticks is None:
            self.problem("unusable trade", record, f"price {record.price}e-9")
        else:
            self.event(_TRADE, _SIDES[record.side], 0, ticks, record.size)

    def _difference(self, record: Any) -> None:
        """The levels that are not what they were, those first that are no more."""
        levels: tuple[dict[int, int], dict[int, int]] = ({}, {})
        for pair in record.levels:
            sides = ((pair.bid_px, pair.bid_sz), (pair.ask_px, pair.ask_sz))
            for side, (price, size) in zip(levels, sides, strict=True):
                if price == UNDEFINED_PRICE or not size:
                    continue
                ticks = self.ticks(price)
                if ticks is None:
                    self.lose(record, f"price {price}e-9")
                else:
                    side[ticks] = size
        for side_number, (old, new) in enumerate(zip(self._levels, levels, strict=True)):
            for ticks in old.keys() - new.keys():
                self.event(_LEVEL, side_number, 0, ticks, 0)
        for side_number, (old, new) in enumerate(zip(self._levels, levels, strict=True)):
            for ticks, size in new.items():
                if old.get(ticks) != size:
                    self.event(_LEVEL, side_number, 0, ticks, size)
        self._levels = levels

    def _unknown(self, record: Any) -> None:
        if self.synchronised:
            self.problem("unknown order", record, f"order {record.order_id}")
        else:
            self._counts["records of orders from before the file"] += 1


def _signed(order_id: int) -> int:
    """An order's number of 64 bits as EVENT holds it."""
    return order_id - (1 << 64) if order_id >> 63 else order_id


_UNITS = Decimal(10) ** 9
_ALONE: tuple[str | None, ...] = (dbn.Schema.TRADES, dbn.Schema.TBBO)
_WITHOUT_BOOK: tuple[str | None, ...] = (dbn.Schema.TRADES, dbn.Schema.STATUS)
_APPLIERS = {
    dbn.MBOMsg: DatabentoBook.order,
    dbn.MBP1Msg: DatabentoBook.depth,
    dbn.MBP10Msg: DatabentoBook.depth,
    dbn.TradeMsg: DatabentoBook.trade,
    dbn.StatusMsg: DatabentoBook.status,
}


class DatabentoSource:
    """A DBN file as events: MBO as L3, MBP-1, MBP-10 and TBBO as L2, trades, and status as book states.

    Instruments are the metadata's symbols; a symbol's numeric ids are taken by date, and with another id
    its book begins again. The venue is the dataset's first part (`glbx`, `xnas`), the lot 1. The tick is
    `tick`, else the increment of a definition in this file or in another of its folder
    (`*definition*.dbn*`), else 1e-8, which holds every price but those with a ninth decimal place.

    Records up to one with F_LAST are one message. A book of orders is SYNCING until it is cleared, as it is
    where a snapshot or session starts; one of levels has the levels told and no others. A book is STALE
    where Databento doubts it, where one of its records cannot be used (a price with a ninth decimal place),
    and while its instrument does not trade; prices between ticks are counted and kept. Trades and fills leave
    books alone, as cancels follow them. In files
    of trades or status alone nothing is known against the (empty) books, and they are VALID.

    path: a file, or several of one schema, which are read one after the other by their metadata's start, or
        by their first records where they are parts of what was asked for at once: books go on, unless the
        time between two was not asked for, which is counted ("gap between files") and makes books STALE
        (GAP) until they begin again.

    Raises SourceError when a file is missing or is no DBN, or when files are of different schemas; when one
    is truncated or corrupt, after everything before that and the files after it.
    """

    def __init__(
        self, path: Place | Sequence[Place], tick: str | None = None, batch_size: int = DEFAULT_BATCH_SIZE
    ):
        paths = list(path) if isinstance(path, Sequence) else [path]
        self._files = sorted(map(RecordFile, paths), key=lambda file: (file.span, file.begin))
        first = self._files[0]
        self.name = f"dbn:{first.path}" + (f" and {len(paths) - 1} more" if paths[1:] else "")
        self.problems = Problems()
        self.counts: Counter[str] = Counter()
        self._batch_size = batch_size
        mappings = [mappings_of(file) for file in self._files]
        symbols = sorted({mapping.symbol for own in mappings for mapping in own})
        self._unread: list[SourceError] = []
        stated = self._defined(set(symbols))
        defined = [stated.get(symbol, Definition()) for symbol in symbols]
        wanted = None if tick is None else _tick(first.path, tick)
        self._ticks = [wanted or one.tick or FINEST_TICK for one in defined]
        heads = {(file.venue, file.schema) for file in self._files}
        if len(heads) > 1:
            raise SourceError(f"{self.name}: files of different datasets or schemas; name them apart")
        ((venue, self._schema),) = heads
        self.instruments = Instruments(
            Instrument(venue, symbol, symbol, tick / _UNITS, Decimal(1), FINEST, contract=one.contract)
            for symbol, tick, one in zip(symbols, map(Decimal, self._ticks), defined, strict=True)
        )
        self._indexes = {symbol: index for index, symbol in enumerate(symbols)}
        self._mappings = mappings
        self._current = first
        self._intervals: dict[int, list[tuple[int, int, int]]] = {}

    @property
    def feeds(self) -> frozenset[str]:
        """Keys that files of the same schema and instruments share."""
        return frozenset(f"{self._schema} {one}" for one in self.instruments)

    @property
    def span(self) -> tuple[tuple[int, int], int]:
        """What the first file was asked for, and when its first record is of, ns since 1970 UTC."""
        return self._files[0].span, self._files[0].begin

    @property
    def progress(self) -> float:
        """Fraction of the files' bytes read."""
        return sum(file.progress for file in self._files) / len(self._files)

    def __iter__(self) -> Iterator[Events]:
        self.problems.clear()
        self.counts.clear()
        for error in self._unread:
            self.problems.add("unreadable definitions", self._files[0].path.name, str(error))
        writer = EventWriter()
        books = self._books(writer)
        failures: list[SourceError] = []
        for number, (file, mappings) in enumerate(zip(self._files, self._mappings, strict=True)):
            self._enter(file, mappings)
            if number and (failures or self._files[number - 1].span[1] < file.span[0]):
                where = f"{self._files[number - 1].path.name}, {file.path.name}"
                self.problems.add("gap between files", where, "books are stale until they begin again")
                for book in books:
                    book.doubt = StateReason.GAP
            try:
                for record in file:
                    self._apply(record, books)
                    if len(writer) >= self._batch_size:
                        yield writer.take()
            except SourceError as error:
                failures.append(error)
        for book in books:
            book.finish()
        if len(writer):
            yield writer.take()
        for failure in failures:
            raise failure

    def _enter(self, file: RecordFile, mappings: Sequence[Mapping]) -> None:
        """Records are of this file from now on."""
        self._current = file
        self._intervals = {}
        for mapping in mappings:
            interval = (mapping.start, mapping.end, self._indexes[mapping.symbol])
            self._intervals.setdefault(mapping.instrument_id, []).append(interval)

    def _books(self, writer: EventWriter) -> list[DatabentoBook]:
        alone = self._schema in _ALONE
        sound = self._schema in _WITHOUT_BOOK
        return [
            DatabentoBook(index, tick, writer, self.problems, self.counts, alone=alone, sound=sound)
            for index, tick in enumerate(self._ticks)
        ]

    def _apply(self, record: Any, books: list[DatabentoBook]) -> None:
        apply = _APPLIERS.get(type(record))
        if apply is None:
            self._count(record)
            return
        time = record.ts_recv if record.ts_recv != UNDEFINED_TIME else record.ts_event
        instrument_id = record.instrument_id
        intervals = self._intervals.get(instrument_id, ())
        index = next((index for start, end, index in intervals if start <= time < end), None)
        if index is None:
            self.problems.add("unmapped instrument", f"record {self._current.number}", f"id {instrument_id}")
            return
        book = books[index]
        if book.instrument_id != instrument_id:
            book.restart(record)
        apply(book, record)

    def _count(self, record: Any) -> None:
        if isinstance(record, dbn.ErrorMsg):
            self.problems.add("error record", f"record {self._current.number}", record.err)
        else:
            self.counts[f"records of {record.rtype}"] += 1

    def _defined(self, symbols: set[str]) -> dict[str, Definition]:
        paths: dict[Place, None] = {}
        for file in self._files:
            paths |= dict.fromkeys(files_at(file.path.parent, ["*definition*.dbn*"]))
            if file.schema in (None, dbn.Schema.DEFINITION):
                paths[file.path] = None
        return definitions_of(list(paths), symbols, self._unread.append)


def open_dbn(*texts: str) -> DatabentoSource:
    """The source of files, with the first's option `tick`."""
    split = [split_options(text, ("tick",)) for text in texts]
    paths = list(dict.fromkeys(place(path) for path, _ in split))
    return DatabentoSource(paths, split[0][1].get("tick"))


def _tick(path: Place, text: str) -> int:
    """A tick in 1e-9. Raises SourceError where it is none."""
    try:
        units = Decimal(text) * _UNITS
        Instrument("", "", "", Decimal(text), Decimal(1))
    except (InvalidOperation, DataError) as error:
        raise SourceError(f"{path}: the tick {text!r} is none: {error}; write it as tick=0.01") from None
    return int(units)
