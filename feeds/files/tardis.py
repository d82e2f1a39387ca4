"""Tardis.dev's downloadable CSV files as events, several files as one source in order of time.

Source: Tardis.dev documentation, "Downloadable CSV files" and "Order books": rows with one
local_timestamp are one message of the exchange; amounts are absolute, 0 removes a level; where a row is of
a snapshot and the one before was not, the book begins anew; updates before a file's first snapshot belong
to no book. Times are µs since 1970 UTC. What a file holds is known by its header and first rows; its events
are made block by block.
"""

from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation

import numpy as np
from numpy.typing import NDArray

from orderbook.core.errors import KEPT_EXAMPLES, DataError, Problems, SourceError
from orderbook.feeds.byte_stream import MAXIMUM_LINE_BYTES, Blocks, shown
from orderbook.feeds.files import tardis_decoder
from orderbook.feeds.files.tardis_decoder import (
    close_message,
    new_message,
    room,
    snapshot_events,
    told_events,
    update_events,
)
from orderbook.feeds.files.tardis_layout import Layout, layout_of, symbol_of, venue_of
from orderbook.feeds.files.tardis_text import NOTHING, ROW_REASONS, name_hash, read_rows
from orderbook.feeds.merge import Cursor, merged
from orderbook.feeds.storage import Place, files_at, place, split_options
from orderbook.market.contract_terms import Terms
from orderbook.market.events import EVENT, Events
from orderbook.market.instruments import FINEST, FIXED_POINT, SCALE, Instrument, Instruments

# Rows that are searched for symbols and decimal places; a file of several symbols is searched whole.
HEAD_ROWS = 20_000
BLOCK_BYTES = 1 << 20
_REASONS = {int(status): reason for status, reason in ROW_REASONS.items()} | tardis_decoder.BOOK_REASONS

Name = tuple[str, str]
_NOT_TOLD = Terms()


@dataclass(slots=True)
class Steps:
    """The coarsest tick and lot, times 10^8, that every number seen is a multiple of; at most 1."""

    tick: int = FIXED_POINT
    lot: int = FIXED_POINT

    def take(self, prices: NDArray[np.int64], amounts: NDArray[np.int64]) -> None:
        """See more numbers, int64[n], times 10^8."""
        self.tick = _step(prices, self.tick)
        self.lot = _step(amounts, self.lot)


def _step(numbers: NDArray[np.int64], step: int) -> int:
    while step > 1 and np.any(numbers % step):
        step //= 10
    return step


@dataclass(frozen=True, slots=True)
class FileHead:
    """What a file holds: exchange and symbol of its instruments, their terms where rows state them, when it
    begins (µs), and how many bytes."""

    path: Place
    layout: Layout
    names: Mapping[Name, Steps]
    terms: Mapping[Name, Terms]
    begin: int
    size: int


@dataclass(slots=True, eq=False)
class _Rows:
    """Rows of a block, as `read_rows` leaves them: values int64[n, columns], all others [n]."""

    values: NDArray[np.int64]
    hashes: NDArray[np.uint64]
    status: NDArray[np.uint8]
    starts: NDArray[np.int64]
    lines: NDArray[np.int64]


def read_head(path: Place, whole: bool) -> FileHead:
    """Look at the first HEAD_ROWS rows, or at all of them.

    Raises SourceError when the file is missing or empty, or its header is of no kind known.
    """
    blocks = LineBlocks(path)
    layout: Layout | None = None
    known: dict[int, Name] = {}
    names: dict[Name, Steps] = {}
    terms: dict[Name, Terms] = {}
    begin, count = NOTHING, 0
    for block in blocks:
        if layout is None:
            layout, block = _header(path, block)
        rows, _ = _read(block, layout)
        good = rows.status == 0
        if begin == NOTHING and good.any():
            begin = int(rows.values[np.argmax(good), layout.times[1]])
        _, firsts = np.unique(rows.hashes[good], return_index=True)
        for value in rows.hashes[good][np.sort(firsts)].tolist():
            chosen = good & (rows.hashes == value)
            if value not in known:
                line = _line(block, int(rows.starts[np.argmax(chosen)])).decode("utf-8", "replace")
                known[value] = layout.name(line)
                terms[known[value]] = layout.terms(line)
            steps = names.setdefault(known[value], Steps())
            prices, amounts = (rows.values[chosen][:, list(places)] for places in layout.numbers)
            steps.take(*(n[n != NOTHING] for n in (prices, amounts)))
        count += len(rows.status)
        if count >= HEAD_ROWS and not whole and len(names) == 1:
            break
    if layout is None:
        raise SourceError(f"{path}: empty or cut before its first line ends; get the file again")
    return FileHead(path, layout, names, terms, begin, blocks.size)


class LineBlocks:
    """A file's whole lines in blocks of about 1 MB; `cut` says after the last why the file ended early.

    A last line without its end is not given: nothing tells whether its last number is whole.
    """

    def __init__(self, path: Place):
        self.cut: str | None = None
        self._blocks = Blocks(path)
        self.size = self._blocks.size

    @property
    def progress(self) -> float:
        """Fraction of the file's bytes read."""
        return self._blocks.progress

    def __iter__(self) -> Iterator[bytes]:
        self.cut = None
        pieces: list[bytes] = []
        size = 0
        for piece in self._blocks:
            pieces.append(piece)
            size += len(piece)
            if size < BLOCK_BYTES:
                continue
            data = b"".join(pieces)
            end = data.rfind(b"\n") + 1
            if end:
                yield data[:end]
            elif size > MAXIMUM_LINE_BYTES:
                self.cut = f"a line is longer than {MAXIMUM_LINE_BYTES} bytes"
                return
            pieces, size = [data[end:]], len(data) - end
        data = b"".join(pieces)
        end = data.rfind(b"\n") + 1
        if end:
            yield data[:end]
        self.cut = self._blocks.cut
        if data[end:].strip() and self.cut is None:
            self.cut = "the last line has no end"


@dataclass(slots=True, eq=False)
class TardisFile:
    """The events of a file whose instruments have `indexes` and `steps`, int64[n, 2]: tick, lot in 1e-8.

    told: instruments whose books a file before this one told.

    Iteration gives EVENT arrays of whole messages and counts what it leaves out; where the file is cut it
    gives the rows before the cut, the last message as far as it goes, and then raises SourceError.
    """

    head: FileHead
    indexes: Mapping[Name, int]
    steps: NDArray[np.int64]
    problems: Problems
    counts: Counter[str]
    told: Collection[int] = ()
    _blocks: LineBlocks = field(init=False)

    def __post_init__(self) -> None:
        self._blocks = LineBlocks(self.head.path)

    @property
    def progress(self) -> float:
        """Fraction of the file's bytes read."""
        return self._blocks.progress

    def __iter__(self) -> Iterator[Events]:
        layout = self.head.layout
        hashes, places = self._table()
        message = new_message()
        books = np.zeros((len(self.steps), tardis_decoder.WORDS), np.uint8)
        books[list(self.told), tardis_decoder.TOLD] = 1
        levels = np.zeros((len(self.steps), 2, 2, max(layout.depth, 1)), np.int64)
        known = np.full((len(self.steps), tardis_decoder.VALUES), NOTHING)
        waiting = np.empty(0, EVENT)
        line = 0
        for block in self._blocks:
            if not line:
                _, block = _header(self.head.path, block)
                line = 1
            rows, lines = _read(block, layout)
            found = np.minimum(np.searchsorted(hashes, rows.hashes), len(hashes) - 1)
            unknown = hashes[found] != rows.hashes
            rows.status[unknown & (rows.status == 0)] = tardis_decoder.UNKNOWN
            events = room(len(rows.status), len(waiting), layout.depth, len(books))
            events[: len(waiting)] = waiting
            message[tardis_decoder.CLOSED] = 0
            own = np.where(unknown, np.int32(-1), places[found])
            count = self._events(rows, own, levels, known, books, message, events, len(waiting))
            self._count(rows, block, line)
            line += lines
            closed = int(message[tardis_decoder.CLOSED])
            waiting = events[closed:count].copy()
            if closed:
                yield events[:closed]
        if len(waiting):
            if self._blocks.cut is not None:
                # Half a snapshot makes no book.
                books[:, tardis_decoder.PENDING] = 0
            events = room(0, len(waiting), 0, 0)
            events[: len(waiting)] = waiting
            message[tardis_decoder.CLOSED] = 0
            yield events[: close_message(events, len(waiting), message, books)]
        if self._blocks.cut is not None:
            raise SourceError(
                f"{self.head.path}: truncated after line {line}: {self._blocks.cut}; "
                "everything before it was read; get the whole file again"
            )

    def _table(self) -> tuple[NDArray[np.uint64], NDArray[np.int32]]:
        """Sorted hashes of names, uint64[n], and their instruments, int32[n]."""
        table = {name_hash([part.encode() for part in name]): self.indexes[name] for name in self.head.names}
        # Without any instrument no row is good either.
        ordered = sorted(table.items()) or [(0, 0)]
        return (
            np.array([key for key, _ in ordered], np.uint64),
            np.array([index for _, index in ordered], np.int32),
        )

    def _events(
        self,
        rows: _Rows,
        instruments: NDArray[np.int32],
        levels: NDArray[np.int64],
        known: NDArray[np.int64],
        books: NDArray[np.uint8],
        message: NDArray[np.int64],
        events: Events,
        count: int,
    ) -> int:
        layout = self.head.layout
        common = (rows.values, rows.status, instruments, self.steps)
        out = (books, message, events, count)
        if layout.depth:
            times, places = np.array(layout.times), np.array(layout.levels)
            count = snapshot_events(*common, times, places, np.array(layout.told), levels, known, *out)
        elif layout.updates:
            count = update_events(*common, np.array(layout.updates), layout.prints, *out)
        else:
            count = told_events(*common[:3], np.array(layout.times), np.array(layout.told), known, *out)
        return count

    def _count(self, rows: _Rows, block: bytes, line: int) -> None:
        """Count what was left out of a block that `line` lines came before."""
        codes = np.bincount(rows.status, minlength=256)
        self.counts["rows"] += len(rows.status)
        if codes[tardis_decoder.EARLY]:
            self.counts["rows before the first snapshot"] += int(codes[tardis_decoder.EARLY])
        for code in np.flatnonzero(codes[1 : tardis_decoder.EARLY]) + 1:
            places = np.flatnonzero(rows.status == code)
            kind = _REASONS[int(code)]
            for row in places[:KEPT_EXAMPLES].tolist():
                where = f"{self.head.path.name}:{line + int(rows.lines[row]) + 1}"
                self.problems.add(kind, where, shown(_line(block, int(rows.starts[row]))))
            self.problems.counts[kind] += len(places[KEPT_EXAMPLES:])


def _header(path: Place, block: bytes) -> tuple[Layout, bytes]:
    """The layout that the first line says, and the other lines."""
    line, _, rest = block.partition(b"\n")
    return layout_of(path, line.decode("utf-8", "replace").rstrip("\r").split(",")), rest


def _read(block: bytes, layout: Layout) -> tuple[_Rows, int]:
    """Rows of whole lines, and how many lines there were."""
    most = block.count(b"\n")
    rows = _Rows(
        np.empty((most, len(layout.kinds)), np.int64),
        np.empty(most, np.uint64),
        np.empty(most, np.uint8),
        np.empty(most, np.int64),
        np.empty(most, np.int64),
    )
    count, lines = read_rows(
        np.frombuffer(block, np.uint8),
        np.array(layout.kinds, np.int8),
        rows.values,
        rows.hashes,
        rows.status,
        rows.starts,
        rows.lines,
    )
    return _Rows(
        rows.values[:count], rows.hashes[:count], rows.status[:count], rows.starts[:count], rows.lines[:count]
    ), lines


def _line(block: bytes, start: int) -> bytes:
    return block[start : block.index(b"\n", start)]


def decimal_step(step: int) -> Decimal:
    """A tick or lot that is given times 10^8."""
    return Decimal(step).scaleb(-SCALE).normalize() + 0


_OPTIONS = ("tick", "lot", "scan")


class TardisSource:
    """Books, trades and what is told of contracts, of Tardis files of the types in `tardis_layout`.

    Rows of one local_timestamp and symbol are a message. `receive_time` is local_timestamp, `exchange_time`
    timestamp. A book is VALID from the end of its first snapshot's message. Of snapshots and quotes what
    changed since the row before is given. A trade's `order_id` is its id: the number, else a hash of the
    text. Of tickers and chains what changed since the row before is given, too. The venue is the exchange
    with `_` for `-`. Files are merged by local_timestamp, each read from its first row on when its time
    comes.

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

    def __iter__(self) -> Iterator[Events]:
        self.problems.clear()
        self.counts.clear()
        self._files, told = [], set[int]()
        for head in self._heads:
            file = TardisFile(head, self._indexes, self._steps, self.problems, self.counts, frozenset(told))
            self._files.append(file)
            if head.layout.tells_books:
                told |= {self._indexes[name] for name in head.names}
        errors: list[SourceError] = []
        own = np.arange(len(self.instruments), dtype=np.int32)
        waiting = deque(Cursor(place, file, own, errors) for place, file in enumerate(self._files))
        active: list[Cursor] = []
        while True:
            active = [cursor for cursor in active if cursor.ready()]
            horizon = min((cursor.stamp for cursor in active), default=None)
            # A file that has not begun is not read.
            if waiting and (horizon is None or self._heads[waiting[0].place].begin * 1000 <= horizon):
                active.append(waiting.popleft())
            elif horizon is None:
                break
            else:
                yield merged([cursor.take(horizon + 1) for cursor in active]).events
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
        if not head.layout.tells_books:
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
    terms: dict[Name, Terms] = {}
    for head in heads:
        terms |= head.terms if head.layout.states_terms else {}
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
                terms=terms.get((exchange, symbol), _NOT_TOLD),
            )
            for (exchange, symbol), own in steps.items()
        )
    except DataError as error:
        raise SourceError(f"{name}: {error}") from error
    return {instrument: i for i, instrument in enumerate(steps)}, instruments
