"""Databento's DBN: orders, levels, trades and status of its datasets, from files of versions 1 to 3."""

from collections import Counter
from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from typing import Any

import databento_dbn as dbn
import numpy as np

from feeds.databento_book import DatabentoBook
from feeds.databento_file import (
    FINEST_TICK,
    UNDEFINED_TIME,
    Definition,
    RecordFile,
    definitions_of,
    mappings_of,
)
from feeds.event_writer import EventWriter
from feeds.message_writer import DEFAULT_BATCH_SIZE
from feeds.places import Place, files_at
from orderbook.errors import DataError, SourceError
from orderbook.instruments import FINEST, Instrument, Instruments
from orderbook.problems import Problems

_UNITS = Decimal(10) ** 9
_ALONE = (dbn.Schema.TRADES, dbn.Schema.TBBO)
_WITHOUT_BOOK = (dbn.Schema.TRADES, dbn.Schema.STATUS)
_APPLIERS = {
    dbn.MBOMsg: DatabentoBook.order,
    dbn.MBP1Msg: DatabentoBook.depth,
    dbn.MBP10Msg: DatabentoBook.depth,
    dbn.TradeMsg: DatabentoBook.trade,
    dbn.StatusMsg: DatabentoBook.status,
}


def is_dbn(path: Place, start: bytes) -> bool:
    """Whether a file of this name that starts so is DBN; fragments have only their name."""
    return start.startswith(b"DBN") or ".dbn." in f"{path.name}."


class DatabentoSource:
    """A DBN file as events: MBO as L3, MBP-1, MBP-10 and TBBO as L2, trades, and status as book states.

    Instruments are the metadata's symbols; a symbol's numeric ids are taken by date, and with another id
    its book begins again. The venue is the dataset's first part (`glbx`, `xnas`), the lot 1. The tick is
    `tick`, else the increment of a definition in this file or in another of its folder
    (`*definition*.dbn*`), else 1e-8, which holds every price but those with a ninth decimal place.

    Records up to one with F_LAST are one message. A book of orders is SYNCING until it is cleared, as it is
    where a snapshot or session starts; one of levels has the levels told and no others. A book is STALE
    where Databento doubts it, where one of its records cannot be used (a price with a ninth decimal place; one
    between ticks is counted and kept), and while
    its instrument does not trade. Trades and fills leave books alone, as cancels follow them. In files
    of trades or status alone nothing is known against the (empty) books, and they are VALID.

    Raises SourceError when the file is missing or is no DBN; when it is truncated or corrupt, after
    everything before that.
    """

    def __init__(self, path: Place, tick: str | None = None, batch_size: int = DEFAULT_BATCH_SIZE):
        self.name = f"dbn:{path}"
        self.problems = Problems()
        self.counts: Counter[str] = Counter()
        self._file = RecordFile(path)
        self._batch_size = batch_size
        mappings = mappings_of(self._file)
        symbols = sorted({mapping.symbol for mapping in mappings})
        self._unread: list[SourceError] = []
        stated = self._defined(set(symbols))
        defined = [stated.get(symbol, Definition()) for symbol in symbols]
        wanted = None if tick is None else _tick(path, tick)
        self._ticks = [wanted or one.tick or FINEST_TICK for one in defined]
        metadata = self._file.metadata
        venue = metadata.dataset.partition(".")[0].lower() if metadata is not None else "databento"
        self._schema = metadata.schema if metadata is not None else None
        self.instruments = Instruments(
            Instrument(venue, symbol, symbol, tick / _UNITS, Decimal(1), FINEST, contract=one.contract)
            for symbol, tick, one in zip(symbols, map(Decimal, self._ticks), defined, strict=True)
        )
        indexes = {symbol: index for index, symbol in enumerate(symbols)}
        self._intervals: dict[int, list[tuple[int, int, int]]] = {}
        for mapping in mappings:
            interval = (mapping.start, mapping.end, indexes[mapping.symbol])
            self._intervals.setdefault(mapping.instrument_id, []).append(interval)

    @property
    def progress(self) -> float:
        """Fraction of the file's bytes read."""
        return self._file.progress

    def __iter__(self) -> Iterator[np.ndarray]:
        self.problems.clear()
        self.counts.clear()
        for error in self._unread:
            self.problems.add("unreadable definitions", self._file.path.name, str(error))
        writer = EventWriter()
        books = self._books(writer)
        failure: SourceError | None = None
        try:
            for record in self._file:
                self._apply(record, books)
                if len(writer) >= self._batch_size:
                    yield writer.take()
        except SourceError as error:
            failure = error
        for book in books:
            book.finish()
        if len(writer):
            yield writer.take()
        if failure is not None:
            raise failure

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
            self.problems.add("unmapped instrument", f"record {self._file.number}", f"id {instrument_id}")
            return
        book = books[index]
        if book.instrument_id != instrument_id:
            book.restart(record)
        apply(book, record)

    def _count(self, record: Any) -> None:
        if isinstance(record, dbn.ErrorMsg):
            self.problems.add("error record", f"record {self._file.number}", record.err)
        else:
            self.counts[f"records of {record.rtype}"] += 1

    def _defined(self, symbols: set[str]) -> dict[str, Definition]:
        path = self._file.path
        paths = files_at(path.parent, ["*definition*.dbn*"])
        if self._schema_may_define() and path not in paths:
            paths.append(path)
        return definitions_of(paths, symbols, self._unread.append)

    def _schema_may_define(self) -> bool:
        metadata = self._file.metadata
        return metadata is None or metadata.schema in (None, dbn.Schema.DEFINITION)


def _tick(path: Place, text: str) -> int:
    """A tick in 1e-9. Raises SourceError where it is none."""
    try:
        units = Decimal(text) * _UNITS
        Instrument("", "", "", Decimal(text), Decimal(1))
    except (InvalidOperation, DataError) as error:
        raise SourceError(f"{path}: the tick {text!r} is none: {error}; write it as tick=0.01") from None
    return int(units)
