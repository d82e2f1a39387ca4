"""One stage in one partition: blocks of its streams in, rows of its outputs and the history of its views out.

Blocks of several streams are merged into one list of changes, in the order in which a stage applies them.
The history of a view is what its rows became, and when, as arrays that are decoded when they are looked at.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from orderbook.core.changes import CHECKED, END_OF_EVENT, END_OF_MESSAGE, NULL_CODE, ChangeBatch, Dictionary
from orderbook.core.errors import DataError
from orderbook.engine.distribution.blocks import VERSION, Block, RowVersion, Versions, joined, row_version
from orderbook.engine.distribution.message_versions import LOOK, MessageVersions
from orderbook.engine.distribution.stages import Output, Phase, Stage
from orderbook.engine.runtime.interface import Recorder, Recording, Records
from orderbook.engine.runtime.live_view import Key, ViewLayout, ViewRow
from orderbook.engine.runtime.map_entries import MapRows
from orderbook.engine.runtime.program_start import start_runtime
from orderbook.engine.runtime.row_format import RowFormat, UnpackedRow, one_word, recoded, unpacker
from orderbook.views.m3 import Result
from orderbook.views.types import Kind, Relation


@dataclass(frozen=True, slots=True)
class Granularity:
    """When views are looked at; a row that changed since the look before has a history row then.

    event, message: at the end of each; the version is that of the event, or of the message's last event.
    interval: at the end of every `length` ns of stamps, counted from 1970; the version is (that end, 0, 0).
    end: when nothing comes any more; the version is (0, 0, 0), and every row that is there has one.
    """

    unit: Literal["event", "message", "interval", "end"]
    length: int = 0

    def units(self, versions: Versions) -> list[NDArray[np.int64]]:
        """Columns, each [n], that together tell the unit that every version, VERSION[n], belongs to."""
        match self.unit:
            case "event":
                return [versions["stamp"], versions["switch"], versions["sequence"]]
            case "message":
                return [versions["stamp"], versions["switch"], versions["last"]]
            case "interval":
                return [versions["stamp"] // self.length]
            case _:
                return []

    def looks(self, versions: Versions) -> NDArray[np.void]:
        """The versions of the looks, LOOK[n], that end the units of VERSION[n]."""
        looks = np.zeros(len(versions), LOOK)
        match self.unit:
            case "interval":
                looks["stamp"] = (versions["stamp"] // self.length + 1) * self.length
            case "event" | "message" as unit:
                looks["stamp"], looks["switch"] = versions["stamp"], versions["switch"]
                looks["sequence"] = versions["sequence" if unit == "event" else "last"]
        return looks

    def flags(self, batch: ChangeBatch, versions: MessageVersions) -> NDArray[np.uint8]:
        """The flags of whole messages' changes, with END_OF_MESSAGE where a unit ends; of `interval`, where
        the next change is of another."""
        match self.unit:
            case "event":
                ends = batch.flags & END_OF_EVENT != 0
                return np.where(ends, batch.flags | END_OF_MESSAGE, batch.flags)
            case "interval":
                units = np.repeat(versions.stamps // self.length, versions.counts)
                flags = batch.flags & np.uint8(~END_OF_MESSAGE & 0xFF)
                flags[:-1][units[1:] != units[:-1]] |= END_OF_MESSAGE
                return flags
            case _:
                return batch.flags

    def over(self, version: np.void, until: int | None) -> bool:
        """Whether the unit of a version is over where all that comes has a stamp of `until` or more."""
        if until is None:
            return True
        if self.unit == "interval":
            return (int(version["stamp"]) // self.length + 1) * self.length <= until
        return self.unit != "end" and int(version["stamp"]) < until


EVENT, MESSAGE, END = Granularity("event"), Granularity("message"), Granularity("end")


@dataclass(frozen=True, slots=True)
class History:
    """n history rows of one view, in the order of their looks.

    looks: LOOK[n]. keys: int64[n, k] and rows: int64[n, w], laid out as in `Records`: a row that is gone has 0 in rows[:, 0], else that is its multiplicity.
    """  # noqa: E501

    view: str
    looks: NDArray[np.void]
    keys: NDArray[np.int64]
    rows: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.looks)

    def entries(self, layout: ViewLayout) -> Iterator[tuple[tuple[int, int, int], Key, ViewRow | None]]:
        """Version, key and row (None: gone) as users see them; a column is decoded when it is asked for."""
        form = RowFormat(layout.result)
        unpack_key, unpack_row = unpacker(form.key), unpacker(form.row)
        keys, rows = np.ascontiguousarray(self.keys), np.ascontiguousarray(self.rows)
        key_bytes, row_bytes = keys.tobytes(), rows.tobytes()
        key_size, row_size = 8 * keys.shape[1], 8 * rows.shape[1]
        for place, version in enumerate(self.looks.tolist()):
            key = layout.key(form.decoded_key(unpack_key(key_bytes, place * key_size)))
            row = UnpackedRow(unpack_row(row_bytes, place * row_size), form.columns)
            yield version, key, layout.row(row) if row.count else None


_NO_VERSION = np.empty(0, VERSION)
_FIELDS = RowVersion._fields
_WORD_BITS = 63


@dataclass(frozen=True, slots=True)
class Changes:
    """n changes of a stage's streams, in the order they apply; kinds and values as in ChangeBatch."""

    versions: Versions
    kinds: NDArray[np.int16]
    values: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.versions)


class StreamMerger:
    """Merges blocks whose sources are `relations`, such as the streams of a stage, see `Router.route`.

    phases: see Input; CHANGES where there is none.
    """

    def __init__(self, relations: Sequence[Relation], phases: Mapping[str, Phase]):
        self._streams = {r.name: (i, len(r.columns)) for i, r in enumerate(relations)}
        self._phases = phases
        self._width = max((len(r.columns) for r in relations), default=0)
        # What decides the order within a part: phase, then deletes before inserts, then the stream.
        self._delete_bit = 1 << len(self._streams).bit_length()

    def merged(self, blocks: Sequence[Block], ahead: Versions | None = None) -> Changes:
        """The rows of all blocks by version, phase, and deletes before inserts; blocks come in any order.

        ahead: VERSION[k], before all of these, of changes that are skipped (None: of none).
        Raises DataError for a block that is of no stream, or of another width.
        """
        blocks = [block for block in blocks if len(block)]
        ahead = _NO_VERSION if ahead is None else ahead
        start = len(ahead)
        count = start + sum(map(len, blocks))
        versions, kinds = np.empty(count, VERSION), np.empty(count, np.int16)
        order, values = np.zeros(count, np.int64), np.zeros((count, self._width), np.int64)
        versions[:start], kinds[:start] = ahead, -1
        for block in blocks:
            index, width = self._stream(block)
            end = start + len(block)
            deletes = np.asarray(block.deletes, np.int64)
            versions[start:end], kinds[start:end] = block.versions, 2 * index + deletes
            phase = 2 * self._phases.get(block.source, Phase.CHANGES)
            order[start:end] = (phase + 1 - deletes) * self._delete_bit + index
            values[start:end, :width] = block.values
            start = end
        places = in_order(versions, order)
        if places is None:
            return Changes(versions, kinds, values)
        return Changes(versions.take(places), kinds.take(places), values.take(places, 0))

    def _stream(self, block: Block) -> tuple[int, int]:
        """The place of a block's stream, and how many columns it has."""
        if block.source not in self._streams:
            known = ", ".join(self._streams)
            raise DataError(f"a block of {block.source!r}, which is no stream of the stage; it has {known}")
        index, width = self._streams[block.source]
        if block.values.shape[1] != width:
            raise DataError(
                f"a block of {block.source!r} has {block.values.shape[1]} columns, the stream has {width}"
            )
        return index, width


def _contiguous(column: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.ascontiguousarray(column)


def in_order(versions: Versions, order: NDArray[np.int64]) -> NDArray[np.int64] | None:
    """The places of rows by (stamp, switch, sequence, part, order), int64[n]; None: they are in order."""
    if len(order) < 2:
        return None
    columns: list[NDArray[np.int64]] = [versions[name] for name in _FIELDS]
    keys = [*map(_contiguous, columns), order]
    packed = _packed(keys)
    if packed is None:
        return np.lexsort(keys[::-1])
    if (packed[:-1] <= packed[1:]).all():
        return None
    return np.argsort(packed, kind="stable")


def _packed(keys: Sequence[NDArray[np.int64]]) -> NDArray[np.int64] | None:
    """Keys, the first of which weighs most, as one of the same order; None where 63 bits do not hold them."""
    lows = [int(key.min()) for key in keys]
    bits = [(int(key.max()) - low).bit_length() for key, low in zip(keys, lows, strict=True)]
    if sum(bits) > _WORD_BITS:
        return None
    packed = np.zeros(len(keys[0]), np.int64)
    for key, low, size in zip(keys, lows, bits, strict=True):
        if size:
            packed <<= size
            packed |= key - low
    return packed


def differs(columns: Sequence[NDArray[np.int64]]) -> NDArray[np.bool_]:
    """Whether a row is the last with equal values in all columns, bool[n - 1]; the last row is left out."""
    count = len(columns[0]) if columns else 0
    found = np.zeros(max(0, count - 1), bool)
    for column in columns:
        found |= column[1:] != column[:-1]
    return found


def batch_of(changes: Changes, granularity: Granularity, ends: bool) -> ChangeBatch:
    """The changes with END_OF_EVENT after each part, END_OF_MESSAGE after each unit of the granularity.

    ends: whether the unit of the last change ends with it.
    """
    versions = changes.versions
    flags = np.full(len(changes), CHECKED, np.uint8)
    parts = [versions[name] for name in _FIELDS]
    flags[:-1][differs(parts)] |= END_OF_EVENT
    units = granularity.units(versions)
    if units:
        flags[:-1][differs(units)] |= END_OF_MESSAGE
    if len(flags):
        flags[-1] |= END_OF_EVENT | (END_OF_MESSAGE if ends else 0)
    return ChangeBatch(changes.kinds, flags, changes.values)


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
    latest: Versions
    closed: bool
    pending: tuple[Records, ...]


class StageRunner:
    """Runs a stage's program over the rows of one partition. One thread owns it.

    dictionary: whose codes the blocks hold. granularity: when the views are looked at.
    """

    def __init__(
        self, stage: Stage, dictionary: Dictionary, backend: str = "numba", granularity: Granularity = MESSAGE
    ):
        self.stage, self.granularity = stage, granularity
        self._runtime = start_runtime(stage.program, dictionary, backend)
        self._merger = StreamMerger(stage.program.relations, {i.stream: i.phase for i in stage.inputs})
        self._shapes = [_OutputRows(o, stage.program.result(o.view)) for o in stage.outputs]
        looks = [] if granularity.unit == "end" else [Recording(v, True, old=False) for v in stage.views]
        outputs = [Recording(o.view, False) for o in stage.outputs]
        self._recordings = list(dict.fromkeys([*outputs, *looks]))
        self._opened = False
        self._latest = _NO_VERSION
        self._closed = True
        self._recorder: Recorder = self._runtime.record(self._recordings)

    def apply(self, blocks: Sequence[Block], until: int | None = None) -> StageResult:
        """Applies the rows of blocks, in the order of their versions, whatever order the blocks come in.

        The source of a block is a stream of the stage, see `Router.route`. Rows of one version must come in
        one call, later versions in later calls. `until`: what comes in later calls has stamps of at least
        `until` (None: nothing comes any more). A message or interval that is not over by that, nor by a row
        of a later one, is looked at in a later call, so that it may be cut between calls anywhere.

        Raises DataError for rows at or before those applied, ExactnessError as Runtime.apply does.
        """
        heads = [block.versions[:1] for block in blocks if len(block)]
        first = min(heads, key=lambda head: row_version(head[0]), default=_NO_VERSION)
        self._check_later(first)
        opening = self._opening()
        self._opened = True
        # What ends the open unit comes before all else.
        ending = not self._closed and self._over(first, until)
        changes = self._merger.merged(blocks, self._latest if ending else None)
        if len(changes):
            self._latest = changes.versions[-1:].copy()
            self._closed = self.granularity.over(self._latest[0], until)
        batch = batch_of(changes, self.granularity, self._closed)
        return self._result(opening, changes, self._recorder.apply(batch), until)

    def apply_messages(self, batch: ChangeBatch, versions: MessageVersions) -> Mapping[str, History]:
        """Applies changes of the stage's streams as one source makes them; the history of its views.

        They are of whole messages, in the order of their versions, and what comes later is later. The stage
        has no outputs. `apply` without blocks ends the last unit. Raises ExactnessError as Runtime.apply
        does.
        """
        if self.granularity.unit == "end":
            self._opened = True
            self._recorder.apply(batch)
            return {}
        if self._closed or not len(batch):
            before = self._opening().history
        else:
            # What ends the open unit comes before all else.
            before = self.apply((), int(versions.stamps[versions.counts.nonzero()[0][0]])).history
        self._opened = True
        flags = self.granularity.flags(batch, versions)
        records = self._recorder.apply(ChangeBatch(batch.kinds, flags, batch.values))
        if len(batch) and self.granularity.unit == "interval":
            last = int(versions.counts.nonzero()[0][-1])
            self._latest, self._closed = np.zeros(1, VERSION), False
            self._latest["stamp"] = versions.stamps[last]
        history = {}
        for recording, own in zip(self._recordings, records, strict=True):
            looks = versions.looks(own.changes, self.granularity.unit, self.granularity.length)
            rows = History(recording.view, looks, own.keys, own.new)
            history[recording.view] = _joined(before[recording.view], rows) if before else rows
        return history

    def fill(self, blocks: Sequence[Block]) -> None:
        """Takes in rows that are there before any change: none of outputs and history, now or at `apply`.

        It comes first, at most once. Sources are as in `apply`; versions, which say nothing but which rows
        of several streams are one, come before all others. Raises ExactnessError as `apply` does.
        """
        batch = batch_of(self._merger.merged(blocks), END, ends=True)
        self._recorder.apply(batch)
        self._opened = True

    def _check_later(self, first: Versions) -> None:
        if not len(first) or not len(self._latest):
            return
        came, latest = row_version(first[0]), row_version(self._latest[0])
        if came <= latest:
            raise DataError(
                f"stage {self.stage.number}: a row of version {tuple(came)} came after one of "
                f"{tuple(latest)}; give the rows of one version together, in order"
            )

    def _over(self, first: Versions, until: int | None) -> bool:
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
            own = found[Recording(view, True, old=False)]
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

    def restore(self, state: StageState, codes: NDArray[np.int64] | None = None) -> None:
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

    def block(self, versions: Versions, records: Records) -> Block:
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

    def _values(
        self, keys: NDArray[np.int64], rows: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
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
