"""Databento's DBN: orders, levels, trades and status of its datasets, from files of versions 1 to 3."""

from collections import Counter
from collections.abc import Iterator, Sequence
from decimal import Decimal, InvalidOperation

import databento_dbn as dbn

from orderbook.core.errors import DataError, Problems, SourceError
from orderbook.feeds.event_writer import DEFAULT_BATCH_SIZE
from orderbook.feeds.files.databento_blocks import RecordDecoder
from orderbook.feeds.files.databento_records import (
    FINEST_TICK,
    Definition,
    RecordFile,
    definitions_of,
    mappings_of,
)
from orderbook.feeds.storage import Place, files_at, place, split_options
from orderbook.market.events import Events, StateReason
from orderbook.market.instruments import FINEST, Instrument, Instruments

_UNITS = Decimal(10) ** 9
_ALONE: tuple[str | None, ...] = (dbn.Schema.TRADES, dbn.Schema.TBBO)
_WITHOUT_BOOK: tuple[str | None, ...] = (dbn.Schema.TRADES, dbn.Schema.STATUS)


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
            Instrument(
                venue,
                symbol,
                symbol,
                tick / _UNITS,
                Decimal(1),
                FINEST,
                contract=one.contract,
                terms=one.terms,
            )
            for symbol, tick, one in zip(symbols, map(Decimal, self._ticks), defined, strict=True)
        )
        self._indexes = {symbol: index for index, symbol in enumerate(symbols)}
        self._mappings = mappings

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
        alone, sound = self._schema in _ALONE, self._schema in _WITHOUT_BOOK
        decoder = RecordDecoder(
            self._ticks, self.problems, self.counts, self._batch_size, alone=alone, sound=sound
        )
        failures: list[SourceError] = []
        for number, (file, mappings) in enumerate(zip(self._files, self._mappings, strict=True)):
            decoder.enter(
                [(one.instrument_id, one.start, one.end, self._indexes[one.symbol]) for one in mappings]
            )
            if number and (failures or self._files[number - 1].span[1] < file.span[0]):
                where = f"{self._files[number - 1].path.name}, {file.path.name}"
                self.problems.add("gap between files", where, "books are stale until they begin again")
                decoder.doubt(StateReason.GAP)
            try:
                for block in file.body():
                    yield from decoder.block(block)
                    if decoder.damage:
                        break
                if reason := decoder.damage or file.cut or decoder.incomplete:
                    file.end(reason, decoder.records)
            except SourceError as error:
                failures.append(error)
        yield from decoder.rest()
        for failure in failures:
            raise failure

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
