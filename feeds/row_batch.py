"""Changes by column: rows that were read together from a file, of which each is inserted as a message.

A `RowBatch` is a sequence of `RelationChange`s to whoever takes it as one, and columns to who can take those:
rows of one file, or of several in order of time. What is asked of any changes is answered here for both.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import overload

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from orderbook.core.changes import Dictionary
from orderbook.core.files import packed, unpacked
from orderbook.feeds.change_stream import RelationChange
from orderbook.views.encoding.frames import encode_rows
from orderbook.views.types import Relation

Changes = Sequence[RelationChange]


class RowFrame:
    """Rows of relation `stream` as `source` has them.

    columns: those of the relation that the source has, of n rows. lines: int64[n], ascending. times:
    int64[n], ns since 1970 UTC, when rows happened; None where they do not say.
    """

    __slots__ = ("_encoded", "columns", "lines", "source", "stream", "times")

    def __init__(
        self,
        source: str,
        stream: str,
        columns: pl.DataFrame,
        lines: NDArray[np.int64],
        times: NDArray[np.int64] | None,
    ) -> None:
        self.source, self.stream, self.columns = source, stream, columns
        self.lines, self.times = lines, times
        self._encoded: tuple[Relation, Dictionary, NDArray[np.int64], Mapping[int, str]] | None = None

    def change(self, row: int) -> RelationChange:
        """A row as a change."""
        time = None if self.times is None else int(self.times[row])
        own = self.columns.row(row, named=True)
        return RelationChange(int(self.lines[row]), self.stream, "+", own, True, time)

    def encoded(
        self, relation: Relation, dictionary: Dictionary
    ) -> tuple[NDArray[np.int64], Mapping[int, str]]:
        """See `encode_rows`; all rows are encoded at once, and that is kept."""
        known = self._encoded
        if known is None or known[0] is not relation or known[1] is not dictionary:
            self._encoded = known = (relation, dictionary, *encode_rows(self.columns, relation, dictionary))
        return known[2], known[3]

    def part(self, rows: NDArray[np.int64]) -> "RowFrame":
        """Some rows, copied."""
        times = None if self.times is None else self.times[rows]
        return RowFrame(self.source, self.stream, self.columns[rows], self.lines[rows], times)


class RowBatch(Changes):
    """Rows of frames, in order.

    rows: int64[n], of which row of its frame each is, ascending for each frame. owners: int64[n], which frame
    that is; None where all are of the one.
    """

    __slots__ = ("frames", "owners", "rows")

    def __init__(
        self, frames: Sequence[RowFrame], rows: NDArray[np.int64], owners: NDArray[np.int64] | None = None
    ) -> None:
        self.frames, self.rows, self.owners = tuple(frames), rows, owners

    @classmethod
    def of(cls, frame: RowFrame) -> "RowBatch":
        """All rows of a frame."""
        return cls((frame,), np.arange(len(frame.lines)))

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, index: int) -> RelationChange: ...
    @overload
    def __getitem__(self, index: slice) -> "RowBatch": ...
    def __getitem__(self, index: int | slice) -> "RelationChange | RowBatch":
        if isinstance(index, slice):
            owners = None if self.owners is None else self.owners[index]
            return RowBatch(self.frames, self.rows[index], owners)
        return self.frames[self._owner(index)].change(int(self.rows[index]))

    def __iter__(self) -> Iterator[RelationChange]:
        return (self[place] for place in range(len(self)))

    def parts(self) -> Iterator[tuple[RowFrame, NDArray[np.int64], NDArray[np.int64] | slice]]:
        """Each frame that has rows here, which, and their places in this."""
        if self.owners is None:
            yield self.frames[0], self.rows, slice(None)
            return
        for number in np.unique(self.owners).tolist():
            places = np.flatnonzero(self.owners == number)
            yield self.frames[number], self.rows.take(places), places

    def line(self, place: int) -> int:
        """The line of a row."""
        return int(self.frames[self._owner(place)].lines[self.rows[place]])

    def time(self, place: int) -> int | None:
        """When a row happened."""
        times = self.frames[self._owner(place)].times
        return None if times is None else int(times[self.rows[place]])

    def times(self) -> NDArray[np.int64] | None:
        """When all rows happened, int64[n]; None where a frame's do not say."""
        found = np.empty(len(self), np.int64)
        for frame, rows, places in self.parts():
            if frame.times is None:
                return None
            found[places] = frame.times.take(rows)
        return found

    def take(self, places: NDArray[np.int64]) -> "RowBatch":
        """The rows in the places int64[m], in that order."""
        owners = None if self.owners is None else self.owners.take(places)
        return RowBatch(self.frames, self.rows.take(places), owners)

    @property
    def messages(self) -> int:
        """How many messages it is."""
        return len(self)

    @property
    def source(self) -> str:
        """The names of the sources that have rows here."""
        return ", ".join(dict.fromkeys(frame.source for frame, _, _ in self.parts()))

    def _owner(self, place: int) -> int:
        return 0 if self.owners is None else int(self.owners[place])


def batch_bytes(batch: RowBatch) -> bytes:
    """A batch as a log keeps it: for each frame its rows as a stream of Arrow, and whose each row is."""
    frames, owners = [], np.zeros(len(batch), np.int32)
    for number, (frame, rows, places) in enumerate(batch.parts()):
        owners[places] = number
        times = [] if frame.times is None else [pl.Series(_TIMES, frame.times.take(rows))]
        own = frame.columns[rows].with_columns(pl.Series(_LINES, frame.lines.take(rows)), *times)
        frames.append((frame.source, frame.stream, _arrow_bytes(own)))
    return packed((owners.tobytes() if len(frames) > 1 else b"", frames))


def batch_of(data: bytes) -> RowBatch:
    """The batch of `batch_bytes`. Raises ValueError for what is none."""
    owned, given = unpacked(data, tuple[bytes, list[tuple[str, str, bytes]]])
    frames = [_frame_of(*one) for one in given]
    if not owned:
        return RowBatch.of(frames[0])
    owners, rows = np.frombuffer(owned, np.int32).astype(np.int64), np.empty(len(owned) // 4, np.int64)
    for number, frame in enumerate(frames):
        rows[owners == number] = np.arange(len(frame.lines))
    return RowBatch(frames, rows, owners)


# Columns that no relation has, since a name begins with a letter.
_LINES, _TIMES = " lines", " times"


def _arrow_bytes(frame: pl.DataFrame) -> bytes:
    table = frame.to_arrow(compat_level=pl.CompatLevel.oldest())
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return bytes(sink.getvalue())


def _frame_of(source: str, stream: str, data: bytes) -> RowFrame:
    frame = pl.DataFrame(pl.from_arrow(pa.ipc.open_stream(data).read_all()))
    times = frame[_TIMES].to_numpy() if _TIMES in frame.columns else None
    columns = frame.drop(_LINES, _TIMES, strict=False)
    return RowFrame(source, stream, columns, frame[_LINES].to_numpy(), times)


def joined(parts: Sequence[Changes]) -> Changes:
    """Changes one after the other."""
    batches = [part for part in parts if isinstance(part, RowBatch)]
    if len(batches) < len(parts) or not parts:
        return [one for part in parts for one in part]
    return batches[0] if len(batches) == 1 else _joined(batches)


def _joined(batches: Sequence[RowBatch]) -> RowBatch:
    owners, base = [], 0
    for batch in batches:
        own = np.zeros(len(batch), np.int64) if batch.owners is None else batch.owners
        owners.append(own + base)
        base += len(batch.frames)
    frames = [frame for batch in batches for frame in batch.frames]
    return RowBatch(frames, np.concatenate([batch.rows for batch in batches]), np.concatenate(owners))


def message_ends(changes: Changes) -> NDArray[np.int64]:
    """Before which changes messages end, int64[m]; the last ends one, even where it does not say so."""
    if isinstance(changes, RowBatch):
        return np.arange(1, len(changes) + 1)
    final = len(changes) - 1
    ends = [i + 1 for i, change in enumerate(changes) if change.last or i == final]
    return np.array(ends, np.int64)


def messages_of(changes: Changes) -> Iterator[Changes]:
    """The changes of each message."""
    for start, end in pairwise([0, *message_ends(changes).tolist()]):
        yield changes[start:end]


def stated_time(changes: Changes) -> int | None:
    """The time that the first of some changes states."""
    return changes.time(0) if isinstance(changes, RowBatch) else changes[0].stated_time


def positions_after(source: str, changes: Changes) -> dict[str, int]:
    """How far sources have come with some changes, by their names: the line of the last of each."""
    if isinstance(changes, RowBatch):
        return {frame.source: int(frame.lines[rows[-1]]) for frame, rows, _ in changes.parts()}
    return {source: changes[-1].line} if changes[-1].line else {}


def changes_after(source: str, changes: Changes, positions: Mapping[str, int]) -> Changes:
    """Those of some changes that come after the lines up to which sources have come."""
    if not isinstance(changes, RowBatch):
        last = positions.get(source, 0)
        return [change for change in changes if change.line > last] if last else changes
    kept = np.ones(len(changes), bool)
    for frame, rows, places in changes.parts():
        if last := positions.get(frame.source, 0):
            kept[places] = frame.lines.take(rows) > last
    return changes if kept.all() else changes.take(np.flatnonzero(kept))
