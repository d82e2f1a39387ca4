"""Views over files that come one after the other: what each new file changes, as rows of their history.

What was read is kept, so that a record file that goes on where others end costs what is in it. Where a
file has events before those that were given, or belongs to a source that cannot be gone on with, everything
is read again, and what differs is told: rows that are not there any more are retracted, others asserted. So
at every moment the rows asserted and not retracted are the history that a backtest of the same files has.
"""

import hashlib
import pickle
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa

from orderbook.backtesting.plan import layout_of
from orderbook.backtesting.relation_rows import RelationRows, SavedRows
from orderbook.backtesting.sources import RECORD, SourceSpec
from orderbook.backtesting.task_runner import StageRun
from orderbook.backtesting.tasks import JobSettings, ReadTask
from orderbook.core.errors import DataError, Problems, SourceError
from orderbook.core.files import replace_file
from orderbook.engine.distribution.blocks import RowVersion, row_version
from orderbook.engine.distribution.stage_runner import History, StageState
from orderbook.feeds.merge import (
    FIRST_STAMP,
    Cursor,
    Slice,
    SourceWithCrossedStates,
    indexes_of,
    slices_of,
)
from orderbook.feeds.recording.parquet_record import RecordSource
from orderbook.feeds.source import WatchedSource, watched
from orderbook.feeds.storage import place as place_of
from orderbook.jobs.writers import HistoryTables
from orderbook.market.books import BooksState
from orderbook.market.instruments import Instrument, Instruments
from orderbook.run.findings import IncompleteError, engine_findings

ASSERTED, RETRACTED = "asserted", "retracted"
STATUS = "status"
_BATCH = 1 << 16
_BEFORE_ALL = RowVersion(FIRST_STAMP, -(2**31), 0, 0)


def files_of(spec: SourceSpec) -> tuple[str, ...]:
    """The files that a source is read from, in its order, as `GrowingSources` names them."""
    return tuple(f"{RECORD}{path}" for path in spec.paths) or (spec.text, *spec.more)


@dataclass(frozen=True, slots=True)
class _Read:
    """How far a source was read: its files, events, stamp, and what record files that follow go on from.

    books: those that may be crossed. goes_on: False where what follows cannot be read apart.
    """

    files: tuple[str, ...]
    count: int
    stamp: int
    goes_on: bool
    known: tuple[Instrument, ...] = ()
    books: BooksState | None = None


class _LateError(Exception):
    """Files have events before those that were applied, or cannot be read apart from those before them."""


class FollowedViews:
    """The views of a task's symbols, as of the files that were read so far.

    number: of the task, see ReadTask.
    """

    def __init__(self, settings: JobSettings, number: int) -> None:
        self._settings, self._number = settings, number
        self._layout = layout_of(settings)
        self._program = self._layout.program
        self._instruments: dict[Instrument, None] = {}
        self._read: dict[int, _Read] = {}
        self._rows: RelationRows | None = None
        self._latest = _BEFORE_ALL
        self._histories = _Histories(self._layout.program, settings.views)
        self._runs = [StageRun(self._layout, stage, number, self._histories) for stage in self._layout.local]
        # Events and changes applied since the state was written or read last.
        self.unsaved = 0
        self._changes = 0

    @property
    def files(self) -> Mapping[int, tuple[str, ...]]:
        """The files that were read, by the place of their source."""
        return {place: read.files for place, read in self._read.items()}

    def goes_on(self, task: ReadTask | None) -> bool:
        """Whether what was read is the beginning of a task's sources, and the rest can be read apart."""
        target = {} if task is None else dict(task.sources)
        for place, read in self._read.items():
            own = files_of(target[place]) if place in target else ()
            if own[: len(read.files)] != read.files:
                return False
            if len(own) > len(read.files) and not (read.goes_on and target[place].paths):
                return False
        return True

    def take(self, task: ReadTask | None, allow_incomplete: bool = False) -> Iterator[pa.Table]:
        """The history of what comes with the files of a task that were not read yet.

        Raises _LateError before anything is applied, SourceError for a damaged file, IncompleteError for what
        is wrong with their rows.
        """
        if task is None:
            return
        if not self.goes_on(task):
            raise _LateError
        new = [(p, s) for p, s in task.sources if p not in self._read or self._read[p].files != files_of(s)]
        if not new:
            return
        rows = self._know(task)
        errors: list[SourceError] = []
        opened = [self._opened(place, spec) for place, spec in new]
        cursors = [
            self._cursor(place, source, errors) for (place, _), source in zip(new, opened, strict=True)
        ]
        for part in slices_of(cursors):
            yield from self._apply(rows, part)
        for (place, spec), source, cursor in zip(new, opened, cursors, strict=True):
            self._read[place] = _read(spec, source, cursor)
        if not allow_incomplete:
            _refuse(errors, opened, rows.problems, self._changes)
        rows.problems.clear()

    def _know(self, task: ReadTask) -> RelationRows:
        """Rows of the books of a task's instruments too."""
        count = len(self._instruments)
        self._instruments |= dict.fromkeys(task.instruments)
        before = self._rows
        if before is not None and len(self._instruments) == count:
            return before
        resolution = self._settings.resolution if task.clock else 0
        rows = RelationRows(self._program, Instruments(self._instruments), resolution=resolution)
        if before is not None:
            rows.load(before.save())
        self._rows = rows
        return rows

    def _opened(self, place: int, spec: SourceSpec) -> WatchedSource:
        before = self._read.get(place)
        if before is None:
            return watched(spec.open(_BATCH))
        paths = [place_of(path) for path in spec.paths[len(before.files) :]]
        source = RecordSource(paths, _BATCH, before.known)
        if not spec.crossed_limit:
            return watched(source)
        return watched(SourceWithCrossedStates(source, spec.crossed_limit, before.books))

    def _cursor(self, place: int, source: WatchedSource, errors: list[SourceError]) -> Cursor:
        before = self._read.get(place)
        stamp, count = (FIRST_STAMP, 0) if before is None else (before.stamp, before.count)
        indexes = indexes_of(source, Instruments(self._instruments))
        return Cursor(place, source, indexes, errors, stamp=stamp, count=count)

    def _apply(self, rows: RelationRows, part: Slice) -> Iterator[pa.Table]:
        versions = [part.events.versions, *(changes.versions for changes in part.changes)]
        versions = [own for own in versions if len(own)]
        if versions:
            if min(row_version(own[0]) for own in versions) <= self._latest:
                raise _LateError
            self._latest = max(row_version(own[-1]) for own in versions)
            self.unsaved += sum(map(len, versions))
            self._changes += sum(map(len, part.changes))
        if part.until is None:
            # More may come, though not before this; an interval may go on.
            whole = self._settings.granularity.unit in ("event", "message")
            part = replace(part, until=self._latest.stamp + whole)
        blocks = rows.blocks(part)
        for run in self._runs:
            run.apply_relations(blocks, part.until)
        yield from self._histories.taken()

    def save(self) -> bytes:
        """All that is known, for `load` in any process of this program."""
        rows = None if self._rows is None else self._rows.save()
        stages = tuple(run.copy() for run in self._runs)
        words = self._program.dictionary.strings()
        state = _State(tuple(self._instruments), dict(self._read), rows, stages, self._latest, words)
        self.unsaved = 0
        return pickle.dumps(state, pickle.HIGHEST_PROTOCOL)

    def load(self, saved: bytes, task: ReadTask) -> None:
        """Goes on from what `save` gave; task: one of the same number."""
        state: _State = pickle.loads(saved)
        codes = self._program.dictionary.encode_all(state.words)
        self._read, self._latest = dict(state.read), state.latest
        for run, own in zip(self._runs, state.stages, strict=True):
            run.restore(own, codes)
        if state.rows is not None:
            self._know(replace(task, instruments=state.instruments)).load(state.rows, codes)

    def size(self) -> int:
        """How many entries the maps have."""
        return sum(run.size() for run in self._runs)

    def close(self) -> None:
        """Gives back what the stages hold."""
        for run in self._runs:
            run.close()


@dataclass(frozen=True, slots=True)
class _State:
    instruments: tuple[Instrument, ...]
    read: Mapping[int, _Read]
    rows: SavedRows | None
    stages: tuple[StageState, ...]
    latest: RowVersion
    words: Sequence[str]


def _read(spec: SourceSpec, source: WatchedSource, cursor: Cursor) -> _Read:
    """How far a source was read, at its end."""
    crossed = source.source
    record = crossed.source if isinstance(crossed, SourceWithCrossedStates) else crossed
    books = crossed.books if isinstance(crossed, SourceWithCrossedStates) else None
    goes_on = isinstance(record, RecordSource) and not cursor.cut
    goes_on = goes_on and (books is not None or not spec.crossed_limit)
    known = tuple(record.known) if isinstance(record, RecordSource) else ()
    return _Read(files_of(spec), cursor.count, cursor.stamp, goes_on, known, books)


def _refuse(
    errors: Sequence[SourceError], opened: Sequence[WatchedSource], problems: Problems, changes: int
) -> None:
    if errors:
        raise SourceError(f"{'; '.join(map(str, errors))} (allow_incomplete: what came before counts)")
    found = [finding for source in opened for finding in source.findings()]
    found += engine_findings(problems, Problems(), changes)
    if found:
        raise IncompleteError(
            f"incomplete: {'; '.join(map(str, found))} (allow_incomplete: it counts as it is)"
        )


class _Histories:
    """Takes the history of views as `HistoryWriters` does, and gives it as tables."""

    def __init__(self, program: Any, views: Sequence[str]) -> None:
        keys = {view.name: [key.name for key in view.keys] for view in program.views}
        self._tables = {
            name: HistoryTables(program.program.result(name), keys[name], program.dictionary)
            for name in views
        }
        self._held: list[pa.Table] = []

    def write(self, history: Mapping[str, History]) -> None:
        """The rows of views."""
        self._held += [self._tables[name].table(rows) for name, rows in history.items() if len(rows)]

    def taken(self) -> list[pa.Table]:
        """What has come since the last time."""
        held, self._held = self._held, []
        return held


class States:
    """States of followed views in a folder, from which a process that has none goes on; None: there are none.

    Which of them are there decides what a batch costs, and not what comes of it.
    """

    def __init__(self, folder: Path | None, settings: JobSettings, number: int) -> None:
        self._folder, self._settings, self._number = folder, settings, number
        said = repr((settings.program.hash, settings.granularity, settings.partitions, settings.resolution))
        self._prefix = f"{hashlib.sha256(said.encode()).hexdigest()[:16]}-{number}-"

    def newest(self, task: ReadTask | None) -> FollowedViews:
        """The views as of the latest state that goes on to the files of a task."""
        if task is None:
            return FollowedViews(self._settings, self._number)
        for path in self._paths():
            views = FollowedViews(self._settings, self._number)
            try:
                views.load(path.read_bytes(), task)
            except (OSError, pickle.UnpicklingError, EOFError, DataError):
                continue
            if views.goes_on(task):
                return views
        return FollowedViews(self._settings, self._number)

    def write(self, views: FollowedViews) -> None:
        """Adds a state where as much has come since the last one as it holds, and deletes all but two."""
        if self._folder is None or views.unsaved < views.size():
            return
        there = self._paths()
        number = int(there[0].stem.rpartition("-")[2]) + 1 if there else 0
        self._folder.mkdir(parents=True, exist_ok=True)
        replace_file(self._folder / f"{self._prefix}{number:012d}.state", views.save())
        for path in there[1:]:
            path.unlink(missing_ok=True)

    def _paths(self) -> list[Path]:
        return (
            [] if self._folder is None else sorted(self._folder.glob(f"{self._prefix}*.state"), reverse=True)
        )


# Views that a process keeps between two batches.
_kept: dict[Any, FollowedViews] = {}
_MOST_KEPT = 64


def changed_rows(
    settings: JobSettings,
    before: ReadTask | None,
    task: ReadTask,
    stream: str,
    folder: Path | None = None,
    allow_incomplete: bool = False,
) -> Iterator[tuple[str, pa.Table]]:
    """What a task's files change of the history that those of `before`, its earlier self, have: status, rows.

    stream: a name by which the process keeps what it has read. Raises as `FollowedViews.take`.
    """
    states = States(folder, settings, task.number)
    views = _kept.pop((stream, task.number), None)
    if views is not None and not views.goes_on(before):
        views.close()
        views = None
    if views is None:
        views = states.newest(before)
    try:
        for _ in views.take(before, True):
            pass
        try:
            for table in views.take(task, allow_incomplete):
                yield ASSERTED, table
        except _LateError:
            views.close()
            views = FollowedViews(settings, task.number)
            yield from _differing(settings, before, views, task, allow_incomplete)
        states.write(views)
    except BaseException:
        views.close()
        raise
    _kept[stream, task.number] = views
    while len(_kept) > _MOST_KEPT:
        _kept.pop(next(iter(_kept))).close()


def _differing(
    settings: JobSettings, before: ReadTask | None, new: FollowedViews, task: ReadTask, allow_incomplete: bool
) -> Iterator[tuple[str, pa.Table]]:
    """The rows of each of the two histories that the other has not."""
    old = FollowedViews(settings, task.number)
    try:
        were, are = _frame(old.take(before, True)), _frame(new.take(task, allow_incomplete))
    finally:
        old.close()
    for status, own, other in ((RETRACTED, were, are), (ASSERTED, are, were)):
        if own is not None:
            left = own if other is None else own.join(other, on=own.columns, how="anti", nulls_equal=True)
            yield status, left.to_arrow()


def _frame(tables: Iterator[pa.Table]) -> pl.DataFrame | None:
    found = list(tables)
    return pl.DataFrame(pl.from_arrow(pa.concat_tables(found))) if found else None
