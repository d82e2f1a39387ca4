"""One stage in one partition: blocks of its streams in, rows of its outputs and views out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from engine.backends import start_runtime
from engine.changes import NULL_CODE
from engine.map_entries import MapRows
from engine.recorded import Recorder, Recording, Records, one_word, recoded
from engine.row_format import RowFormat
from orderbook.dictionary import Dictionary
from orderbook.errors import DataError
from views.compiler.m3 import Result
from views.compiler.types import Kind

from .block import VERSION, Block, joined, place_of
from .history import LOOK, Granularity, History
from .merging import Changes, StreamMerger, batch_of, differs
from .stage import Output, Stage

_MESSAGE = Granularity("message")


@dataclass(frozen=True, slots=True)
class StageResult:
    """What a stage made of some blocks: by name, the changed rows of outputs and the history of views."""

    outputs: Mapping[str, Block]
    history: Mapping[str, History]


@dataclass(frozen=True, slots=True)
class StageState:
    """A copy of all that a StageRunner holds; codes in it are of the dictionary that it had.

    opened: whether it has been told the rows that are there before any change. latest: VERSION[0 or 1],
    the last change applied. closed: whether its unit is over.
    pending: of a unit that is not over, how the rows of each view differ from the last look.
    """

    maps: tuple[MapRows, ...]
    opened: bool
    latest: np.ndarray
    closed: bool
    pending: tuple[Records, ...]


class StageRunner:
    """Runs a stage's program over the rows of one partition. One thread owns it.

    words: the dictionary whose codes the blocks hold. granularity: when the views are looked at.
    """

    def __init__(
        self, stage: Stage, words: Dictionary, backend: str = "numba", granularity: Granularity = _MESSAGE
    ):
        self.stage, self.granularity = stage, granularity
        self._runtime = start_runtime(stage.program, words, backend)
        self._merger = StreamMerger(stage)
        self._shapes = [_OutputRows(o, stage.program.result(o.view)) for o in stage.outputs]
        looks = [] if granularity.unit == "end" else [Recording(v, True) for v in stage.views]
        outputs = [Recording(o.view, False) for o in stage.outputs]
        self._recordings = list(dict.fromkeys([*outputs, *looks]))
        self._opened = False
        self._latest = np.empty(0, VERSION)
        self._closed = True
        self._recorder: Recorder = self._runtime.record(self._recordings)

    def apply(self, blocks: Sequence[Block], until: int | None = None) -> StageResult:
        """Applies the rows of blocks, in the order of their versions, whatever order the blocks come in.

        The source of a block is a stream of the stage, see `routing.route`. Rows of one version must come in
        one call, later versions in later calls. `until`: what comes in later calls has stamps of at least
        `until` (None: nothing comes any more). A message or interval that is not over by that, nor by a row
        of a later one, is looked at in a later call, so that it may be cut between calls anywhere.

        Raises DataError for rows at or before those applied, ExactnessError as Runtime.apply does.
        """
        heads = [block.versions[:1] for block in blocks if len(block)]
        first = min(heads, key=lambda head: place_of(head[0]), default=_NO_VERSION)
        self._check_later(first)
        opening = self._opening()
        self._opened = True
        # What ends the open unit comes before all else.
        ending = not self._closed and self._over(first, until)
        changes = self._merger.merged(blocks, self._latest if ending else _NO_VERSION)
        if len(changes):
            self._latest = changes.versions[-1:].copy()
            self._closed = self.granularity.over(self._latest[0], until)
        batch = batch_of(changes, self.granularity, self._closed)
        return self._result(opening, changes, self._recorder.apply(batch), until)

    def fill(self, blocks: Sequence[Block]) -> None:
        """Takes in rows that are there before any change: none of outputs and history, now or at `apply`.

        It comes first, at most once. Sources are as in `apply`; versions, which say nothing but which rows
        of several streams are one, come before all others. Raises ExactnessError as `apply` does.
        """
        batch = batch_of(self._merger.merged(blocks, _NO_VERSION), Granularity("end"), ends=True)
        self._recorder.apply(batch)
        self._opened = True

    def _check_later(self, first: np.ndarray) -> None:
        if not len(first) or not len(self._latest):
            return
        came, latest = place_of(first[0]), place_of(self._latest[0])
        if came <= latest:
            raise DataError(
                f"stage {self.stage.number}: a row of version {tuple(came)} came after one of "
                f"{tuple(latest)}; give the rows of one version together, in order"
            )

    def _over(self, first: np.ndarray, until: int | None) -> bool:
        """Whether the open unit has ended before the first change that comes now, VERSION[0 or 1]."""
        if not len(first):
            return self.granularity.over(self._latest[0], until)
        return bool(differs(self.granularity.units(np.concatenate([self._latest, first]))).any())

    def _result(
        self, opening: StageResult, changes: Changes, records: Sequence[Records], until: int | None
    ) -> StageResult:
        found = dict(zip(self._recordings, records, strict=True))
        outputs, history = {}, {}
        for shape in self._shapes:
            block = shape.block(changes.versions, found[Recording(shape.output.view, False)])
            first = opening.outputs.get(block.source)
            outputs[block.source] = block if first is None else joined([first, block])
        if self.granularity.unit == "end":
            return StageResult(outputs, self._rows_now() if until is None else {})
        for view in self.stage.views:
            own = found[Recording(view, True)]
            looks = self.granularity.looks(changes.versions.take(own.changes))
            rows = History(view, looks, own.keys, own.new)
            history[view] = _joined(opening.history[view], rows) if view in opening.history else rows
        return StageResult(outputs, history)

    def _opening(self) -> StageResult:
        """The rows that are there before any change, of version 0, at the first call."""
        if self._opened:
            return StageResult({}, {})
        outputs = {}
        for shape in self._shapes:
            keys, rows = self._recorder.rows(shape.output.view)
            none = np.zeros(len(keys), np.int64)
            records = Records(none, keys, np.zeros_like(rows), rows)
            outputs[shape.output.name] = shape.block(np.zeros(1, VERSION), records)
        return StageResult(outputs, {} if self.granularity.unit == "end" else self._rows_now())

    def _rows_now(self) -> Mapping[str, History]:
        """The rows of all views, with version 0."""
        found = {}
        for view in self.stage.views:
            keys, rows = self._recorder.rows(view)
            found[view] = History(view, np.zeros(len(keys), LOOK), keys, rows)
        return found

    def size(self) -> int:
        """How many entries the maps have."""
        return sum(self._runtime.map_sizes().values())

    def copy(self) -> StageState:
        """A copy of the state between two calls; the runner goes on."""
        maps, pending = self._runtime.copied(), () if self._closed else self._recorder.pending()
        return StageState(maps, self._opened, self._latest.copy(), self._closed, tuple(pending))

    def restore(self, state: StageState, codes: np.ndarray | None = None) -> None:
        """Goes on from a copy that a runner of the same stage and granularity made.

        `codes` gives for each dictionary code in the copy what it is now, None where all are the same.
        """
        self._runtime.restore(state.maps, codes)
        self._recorder = self._runtime.record(self._recordings)
        results = [self.stage.program.result(r.view) for r in self._recordings]
        if state.pending:
            pending = [recoded(r, own, codes) for r, own in zip(results, state.pending, strict=True)]
            self._recorder.restore(pending)
        self._opened, self._latest, self._closed = state.opened, state.latest.copy(), state.closed

    def close(self) -> None:
        """Gives back what the runtime holds."""
        self._runtime.close()


_NO_VERSION = np.empty(0, VERSION)


def _joined(first: History, second: History) -> History:
    if not len(first):
        return second
    return History(
        first.view,
        np.concatenate([first.looks, second.looks]),
        np.concatenate([first.keys, second.keys]),
        np.concatenate([first.rows, second.rows]),
    )


class _OutputRows:
    """How records of an output's view become rows: its keys, then its columns."""

    def __init__(self, output: Output, result: Result):
        self.output = output
        self._keyless = not result.keys
        self._columns = [
            (at, wide, column.type.kind is Kind.DOUBLE)
            for (at, wide), column in zip(RowFormat(result).columns, result.columns, strict=True)
        ]

    def block(self, versions: np.ndarray, records: Records) -> Block:
        """The old rows as deletes and the new ones as inserts, with the versions of their changes."""
        old, was = self._values(records.keys, records.old)
        new, there = self._values(records.keys, records.new)
        same = was & there & (old == new).all(axis=1)
        was, there = was & ~same, there & ~same
        # A row's delete stands right before its insert.
        chosen = np.flatnonzero(np.stack([was, there], axis=1))
        values = np.stack([old, new], axis=1).reshape(2 * len(old), old.shape[1]).take(chosen, 0)
        owners = records.changes.take(chosen >> 1)
        return Block(self.output.name, versions.take(owners), chosen & 1 == 0, values)

    def _values(self, keys: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Rows as they travel, int64[n, keys + columns], and which of them are there, bool[n]."""
        values = np.empty((len(rows), keys.shape[1] + len(self._columns)), np.int64)
        values[:, : keys.shape[1]] = keys
        there = rows[:, 0] != 0
        for place, (at, wide, double) in enumerate(self._columns, keys.shape[1]):
            column = one_word(rows, at + 1, self.output.view) if wide else rows[:, at + 1]
            if double:
                # NULL has the bits of -0.0.
                column = (np.ascontiguousarray(column).view(np.float64) + 0.0).view(np.int64)
            values[:, place] = np.where(rows[:, at] != 0, column, NULL_CODE)
        if self._keyless:
            there &= ((values != 0) & (values != NULL_CODE)).any(axis=1)
        return values, there
