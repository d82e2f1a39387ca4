"""Tardis.dev's downloadable CSV files as events, several files as one source in order of time.

Source: Tardis.dev documentation, "Downloadable CSV files" and "Order books": rows with one
local_timestamp are one message of the exchange; amounts are absolute, 0 removes a level; where a row is of
a snapshot and the one before was not, the book begins anew; updates before a file's first snapshot belong
to no book. Times are µs since 1970 UTC.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal, InvalidOperation

import numpy as np

from orderbook.core.errors import DataError, Problems, SourceError, StoreError
from orderbook.feeds.files.tardis_file import (
    FileHead,
    Name,
    Steps,
    TardisFile,
    decimal_step,
    read_head,
    symbol_of,
    venue_of,
)
from orderbook.feeds.storage import Place, files_at, place, split_options
from orderbook.market.events import EVENT
from orderbook.market.instruments import FINEST, Instrument, Instruments

_OPTIONS = ("tick", "lot", "scan")


class TardisSource:
    """L2 books and trades of Tardis files: incremental_book_L2, trades, book_snapshot_5 and _25, quotes.

    Rows of one local_timestamp and symbol are a message. `receive_time` is local_timestamp, `exchange_time`
    timestamp. A book is VALID from the end of its first snapshot's message. Of snapshots and quotes what
    changed since the row before is given. A trade's `order_id` is its id: the number, else a hash of the
    text. The venue is the exchange with `_` for `-`. Files are merged by local_timestamp, each read
    from its first row on when its time comes.

    Files do not state tick and lot. They are `tick` and `lot` where given, else the coarsest powers of ten,
    at most 1, that fit the first 20,000 rows of every file, or all rows with `scan_all` (and in a file of
    several symbols, which is read twice). A later row that is off them is counted and kept: books are held to
    the eighth decimal place. A row that is wrong is counted with its place and reason and left out; its book
    is STALE (MALFORMED) until its next snapshot, or of snapshots and quotes the next row.

    A file is a day, which begins with a snapshot: what is in one before that is left out, and the book that
    a file before it told is STALE (GAP) until then.

    Raises SourceError when a file is missing or of no type that is read, and where two files give one book;
    while iterating, when a file is cut: after everything before the cut, of the other files too.
    """

    def __init__(
        self,
        paths: Sequence[Place],
        tick: Decimal | None = None,
        lot: Decimal | None = None,
        scan_all: bool = False,
    ):
        self.name = "tardis:" + ",".join(map(str, paths))
        self.problems = Problems()
        self.counts: Counter[str] = Counter()
        heads = [read_head(path, scan_all) for path in paths]
        order = sorted(range(len(heads)), key=lambda i: heads[i].begin)
        self._heads = [heads[i] for i in order]
        self._size = sum(head.size for head in heads)
        _check_books(self.name, heads)
        self._indexes, self.instruments = _instruments(self.name, heads, tick, lot)
        steps = [(i.tick_units, i.lot_units) for i in self.instruments]
        self._steps = np.array(steps, np.int64).reshape(-1, 2)
        self._files: list[TardisFile] = []

    @property
    def progress(self) -> float:
        """Fraction of the files' bytes read."""
        return sum(file.progress * file.head.size for file in self._files) / max(1, self._size)

    def __iter__(self) -> Iterator[np.ndarray]:
        self.problems.clear()
        self.counts.clear()
        self._files, told = [], set[int]()
        for head in self._heads:
            file = TardisFile(head, self._indexes, self._steps, self.problems, self.counts, frozenset(told))
            self._files.append(file)
            if not head.layout.trades:
                told |= {self._indexes[name] for name in head.names}
        errors: list[SourceError] = []
        cursors = [
            _Cursor(file, head.begin * 1000, errors)
            for file, head in zip(self._files, self._heads, strict=True)
        ]
        yield from _merged(cursors)
        if errors:
            raise SourceError("; ".join(map(str, errors)))


def open_tardis(*texts: str) -> TardisSource:
    """The source of files, globs, or the .csv files of folders, with the first's `tick`, `lot` and `scan`."""
    paths: list[Place] = []
    split = [split_options(text, _OPTIONS) for text in texts]
    for path, _ in split:
        files = files_at(place(path), ("*.csv", "*.csv.gz", "*.csv.zst"))
        if not files:
            raise SourceError(f"{path}: no .csv, .csv.gz or .csv.zst files there; check the path")
        paths += [file for file in files if file not in paths]
    text, options = texts[0], split[0][1]
    if options.get("scan", "head") not in ("head", "all"):
        raise SourceError(f"{text}: scan is 'head' or 'all', not {options['scan']!r}")
    tick, lot = (_positive(text, key, options.get(key)) for key in ("tick", "lot"))
    return TardisSource(paths, tick, lot, options.get("scan") == "all")


def _positive(text: str, key: str, value: str | None) -> Decimal | None:
    try:
        number = None if value is None else Decimal(value)
    except InvalidOperation:
        number = Decimal(0)
    if number is not None and not (number.is_finite() and number > 0):
        raise SourceError(f"{text}: {key} is a number above 0, not {value!r}")
    return number


def _check_books(name: str, heads: Iterable[FileHead]) -> None:
    """Refuse two data types that both tell one book."""
    told: dict[Name, FileHead] = {}
    for head in heads:
        if head.layout.trades:
            continue
        for instrument in head.names:
            other = told.setdefault(instrument, head)
            if other.layout.data_type != head.layout.data_type:
                raise SourceError(
                    f"{name}: {other.path.name} ({other.layout.data_type}) and {head.path.name} "
                    f"({head.layout.data_type}) both tell the book of {':'.join(instrument)}; keep one"
                )


def _instruments(
    name: str, heads: Iterable[FileHead], tick: Decimal | None, lot: Decimal | None
) -> tuple[dict[Name, int], Instruments]:
    steps: dict[Name, Steps] = {}
    for head in heads:
        for instrument, own in head.names.items():
            known = steps.setdefault(instrument, Steps())
            known.tick, known.lot = min(known.tick, own.tick), min(known.lot, own.lot)
    try:
        instruments = Instruments(
            Instrument(
                venue_of(exchange),
                symbol_of(exchange, symbol),
                symbol,
                decimal_step(own.tick) if tick is None else tick,
                decimal_step(own.lot) if lot is None else lot,
                FINEST,
                FINEST,
            )
            for (exchange, symbol), own in steps.items()
        )
    except DataError as error:
        raise SourceError(f"{name}: {error}") from error
    return {instrument: i for i, instrument in enumerate(steps)}, instruments


class _Cursor:
    """A file's place in the merge: events that were read and not yet taken, and their keys.

    A key is the message's receive time, never before an earlier one of the file.
    """

    def __init__(self, file: TardisFile, begin: int, errors: list[SourceError]):
        self.begin = begin
        self.keys = np.empty(0, np.int64)
        self._events = np.empty(0, EVENT)
        self._latest = -(2**63)
        self._batches = _until_error(file, errors)

    def fill(self) -> bool:
        """Whether there are events, after reading more where there were none."""
        while not len(self.keys):
            events = next(self._batches, None)
            if events is None:
                return False
            self._events = events
            self.keys = np.maximum.accumulate(np.maximum(events["receive_time"], self._latest))
            self._latest = int(self.keys[-1])
        return True

    def take(self, key: int) -> tuple[np.ndarray, np.ndarray]:
        """The events up to `key`, and their keys; they leave the cursor."""
        count = int(np.searchsorted(self.keys, key, side="right"))
        events, keys = self._events[:count], self.keys[:count]
        self._events, self.keys = self._events[count:], self.keys[count:]
        return events, keys


def _until_error(file: TardisFile, errors: list[SourceError]) -> Iterator[np.ndarray]:
    try:
        yield from file
    except StoreError:
        raise
    except SourceError as error:
        errors.append(error)


def _merged(cursors: Sequence[_Cursor]) -> Iterator[np.ndarray]:
    """The events of files in order of their begin; one that has not begun is not read."""
    waiting = list(cursors)
    active: list[_Cursor] = []
    while True:
        active = [cursor for cursor in active if cursor.fill()]
        horizon = min((int(cursor.keys[-1]) for cursor in active), default=None)
        if waiting and (horizon is None or waiting[0].begin <= horizon):
            active.append(waiting.pop(0))
            continue
        if horizon is None:
            return
        parts = [part for cursor in active if len((part := cursor.take(horizon))[1])]
        if len(parts) == 1:
            yield parts[0][0]
        else:
            order = np.argsort(np.concatenate([keys for _, keys in parts]), kind="stable")
            yield np.concatenate([events for events, _ in parts])[order]
