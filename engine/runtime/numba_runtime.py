"""The numba executor: a Runtime whose triggers are generated, compiled code over raw memory.

Its recorder: compiled code writes what it saw of recorded views to lists in memory, which become arrays
here.
"""

import ctypes
import struct
import time
import weakref
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from orderbook.core.changes import ChangeBatch, Dictionary, Word
from orderbook.core.generated_code import publish_text
from orderbook.core.step_times import step_times
from orderbook.engine.generate.driver import Recorded, driver_module, record_module
from orderbook.engine.generate.measured import MeasuredWrites, numbered, read_cycles
from orderbook.engine.generate.numbering import Constant, NumberedPlan, Numbering
from orderbook.engine.generate.program import program_module
from orderbook.engine.generate.state_layout import (
    CALL_RAISED,
    CALLED,
    CALLED_WORDS,
    CHECKED_ROWS,
    CONSTANTS,
    ERROR,
    FAILED,
    FIRED,
    FIRED_CAPACITY,
    FIRED_WORDS,
    MEASURES,
    NO_TEXT,
    NOT_DESCRIBED,
    RUN,
    UNCOUNTED,
    layout_for,
    row_words,
)
from orderbook.engine.generate.support import fired_bytes, free, run_batch, run_counted
from orderbook.engine.generate.view_diff import condition_module
from orderbook.engine.generate.writes import Writes
from orderbook.engine.maps.batch_arrays import ARRAY_TYPES, plain_batch
from orderbook.engine.maps.memory import Block, address_of, callable_at
from orderbook.engine.plan.planner import plan
from orderbook.engine.plan.statistics import Statistics
from orderbook.engine.plan.steps import Directory, Plan, Store
from orderbook.engine.runtime.interface import Direct, Firing, Recording, Records, Row, Runtime, Watch
from orderbook.engine.runtime.map_entries import Entries, MapRows, Match
from orderbook.engine.runtime.numba_memory import (
    Constants,
    NumbaViewDiffs,
    TextValues,
    Watching,
    columns_at,
)
from orderbook.engine.runtime.numba_patterns import NumbaPatterns
from orderbook.engine.runtime.relation_store import RelationStore
from orderbook.engine.runtime.row_format import (
    RecordFormat,
    RowFormat,
    UnpackedFiring,
    UnpackedRow,
    noted_error_of,
    unpacker,
    word_of,
)
from orderbook.engine.runtime.store_entries import (
    add_entries,
    counted,
    entries_of,
    fill_store,
    is_moved,
    keys_of,
    rows_of_store,
    same_directory,
)
from orderbook.engine.runtime.view_copies import FEWEST, NumbaViewCopy
from orderbook.views.calculus import Scalar
from orderbook.views.m3 import Program
from orderbook.views.scalars.user_functions import noted_error

_Words = ctypes.Array[ctypes.c_int64]
_ADDRESS, _USED = 0, 1
_WORD = struct.Struct("<q")


class NumbaRecorder:
    """See Recorder. `lists` are address, words used and capacity of what each recording has noted."""

    def __init__(self, runtime: "NumbaRuntime", recordings: Sequence[Recording], lists: Sequence[_Words]):
        self._runtime = runtime
        results = runtime.plan.program.result
        self._lists = lists
        self._recordings = tuple(recordings)
        self._forms = [RowFormat(results(r.view)) for r in recordings]

    def apply(self, batch: ChangeBatch) -> tuple[Records, ...]:
        """See Recorder."""
        try:
            self._runtime.apply(batch)
        except BaseException:
            self._taken()
            raise
        return self._taken()

    def rows(self, view: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """See Recorder."""
        form = RowFormat(self._runtime.plan.program.result(view))
        words = self._runtime.row_words(view)
        return words[:, : form.key_count], words[:, form.key_count :]

    def pending(self) -> tuple[Records, ...]:
        """See Recorder."""
        self._runtime.look()
        found = self._taken(old=True)
        self.restore(found)
        return found

    def restore(self, pending: Sequence[Records]) -> None:
        """See Recorder."""
        runtime = self._runtime
        for recording, records in zip(self._recordings, pending, strict=True):
            if len(records):
                rows = np.ascontiguousarray(np.hstack([records.keys, records.old]))
                runtime.unlook(recording.view, recording.per_message, rows)

    def _taken(self, old: bool = False) -> tuple[Records, ...]:
        """What was noted since it was last taken; `old`: with old rows also where nobody wants them."""
        parts = zip(self._lists, self._forms, self._recordings, strict=True)
        return tuple(_records(held, form, old or one.old) for held, form, one in parts)


def _records(held: _Words, form: RowFormat, with_old: bool) -> Records:
    keys, words, size = form.key_count, form.words, 1 + form.key_count + 2 * form.words
    address, count = held[_ADDRESS], held[_USED] // size
    held[_USED] = 0
    return Records(
        columns_at(address, size, count, 0, 1)[:, 0],
        columns_at(address, size, count, 1, keys),
        columns_at(address, size, count, 1 + keys, words if with_old else 0),
        columns_at(address, size, count, 1 + keys + words, words),
    )


@dataclass(frozen=True, slots=True)
class _Code:
    """The plan of a program, and the modules that are generated for it, with the constants they read.

    recorders: those that record, by what they do.
    """

    plan: Plan
    numbered: NumberedPlan
    constants: Mapping[Constant, int]
    module: ModuleType
    driver: ModuleType
    recorders: dict[tuple[Recorded, ...], ModuleType] = field(default_factory=dict)


# Of programs started last. One that is replaced is started several times: to rehearse, as it is and will be.
_codes: deque[tuple[Program, Statistics | None, bool, _Code]] = deque(maxlen=4)


def _code_of(program: Program, statistics: Statistics | None, measured: bool) -> _Code:
    for known, by, also, code in list(_codes):
        # Equal ones may differ, as 1 and 1.0 do.
        if known is program and by is statistics and also is measured:
            return code
    with step_times.step("plan"):
        planned = plan(program) if statistics is None else plan(program, statistics)
        if measured:
            planned = replace(planned, updates=())
    constants: dict[Constant, int] = {}
    numbered = Numbering(constants).plan(planned)
    with step_times.step("text of functions"):
        source = program_module(numbered, MeasuredWrites if measured else Writes)
    module = publish_text("program", source)
    with step_times.step("text of functions"):
        source = driver_module(numbered, module.__name__, bool(program.patterns))
    code = _Code(planned, numbered, constants, module, publish_text("driver", source))
    _codes.append((program, statistics, measured, code))
    return code


class NumbaRuntime:
    """Runs a program as compiled code. One thread owns it; the loop releases the GIL.

    `dictionary` encodes text constants; `measured` counts and times every statement, see `measures`.
    Generated modules and machine code are kept in the cache folder (core/code_cache.py), so that a second
    start compiles nothing.
    """

    def __init__(
        self,
        program: Program,
        dictionary: Dictionary,
        statistics: Statistics | None = None,
        measured: bool = False,
    ):
        code = _code_of(program, statistics, measured)
        self.plan, self._numbered, self.module, self._driver = (
            code.plan,
            code.numbered,
            code.module,
            code.driver,
        )
        self._recorders = code.recorders
        self._layout = layout_for(self.plan)
        self._maps = tuple(m.name for m in program.maps)
        self._constants = Constants(dictionary)
        self._constants.places.update(code.constants)
        self._numbering = Numbering(self._constants.places)
        self._shapes: dict[str, ModuleType] = {
            own.name: getattr(self.module, numbered.name)
            for own, numbered in zip(self.plan.stores, self._numbered.stores, strict=True)
        }
        self._state = Block(self._layout.words)
        self.address = self._state.address
        self._texts = TextValues(dictionary, self._constants, self._state)
        self._measures = Block(2 * len(numbered(self.plan)) if measured else 0)
        self._state[MEASURES] = self._measures.address
        self._started = read_cycles(), time.perf_counter_ns()
        self._results = {r.result.name: i for i, r in enumerate(self.plan.results)}
        self._formats = [RowFormat(r.result) for r in self.plan.results]
        self.noted = False
        self._buffer_at = 0
        self._buffer: memoryview[int] = memoryview(b"").cast("q")
        self._buffers = [Block(len(r.result.keys) + row_words(r)) for r in self.plan.results]
        for s in self.plan.stores:
            self._state[self._layout.handles[s.name]] = self._shape(s).create()
        # What is left to destroy, by store; a store that another runtime adopts is taken out.
        self._owned = {s.name: (self._shape(s).destroy, self._handle(s)) for s in self.plan.stores}
        self._finalizer = weakref.finalize(self, _close, self._owned)
        self._rows = [callable_at(address_of(self.module, f"row_{i}")) for i in range(len(self._formats))]
        self._recording: ModuleType | None = None
        views = range(len(self.plan.program.results))
        self._looks = NumbaViewDiffs(self.plan, self._layout, self._state, self.module, views)
        self._patterns = NumbaPatterns(
            *(self.plan, self._numbered, self._numbering, self._layout, self._state, self.module),
            self.row_words,
        )
        # Addresses of conditions, by view.
        self._conditions: dict[tuple[str, Scalar], int] = {}
        # Another object for every set of watches, None once it is closed.
        self.looks: object | None = None
        self.watch(())
        if self.plan.initial:
            self.module.initialise(self._state.address)

    def watch(self, watches: Sequence[Watch]) -> None:
        """Replaces the watches; compiles conditions, and looks at rows of a form, that are new."""
        self._end_looks()
        self._records = [RecordFormat(self._formats[self._results[w.view]]) for w in watches]
        grouped: dict[tuple[int, bool], list[Watching]] = {}
        for number, watch in enumerate(watches):
            own = Watching(number, self._condition(watch), watch.edge)
            grouped.setdefault((self._results[watch.view], watch.per_message), []).append(own)
        self._state[CONSTANTS] = self._constants.store()
        for (view, per_message), own_watches in grouped.items():
            self._looks.watch(view, per_message, own_watches)
        self._looks.begin()
        self._state[RUN] = address_of(self._driver, "run")

    def _condition(self, watch: Watch) -> int:
        """Where the function of a watch's condition is; 0 where it has none."""
        if watch.condition is None:
            return 0
        known = watch.view, watch.condition
        if known not in self._conditions:
            result = self.plan.program.result(watch.view)
            condition = self._numbering.condition(result, watch.condition)
            source = condition_module(self._numbered, self._results[watch.view], condition)
            self._conditions[known] = address_of(publish_text("condition", source), "holds")
        return self._conditions[known]

    def record(self, recordings: Sequence[Recording]) -> NumbaRecorder:
        """See Runtime."""
        self._end_looks()
        recorded = tuple(Recorded(self._results[r.view], r.per_message) for r in recordings)
        if recorded not in self._recorders:
            follows = bool(self.plan.program.patterns)
            source = record_module(self._numbered, self.module.__name__, recorded, follows)
            self._recorders[recorded] = publish_text("record", source)
        self._recording = self._recorders[recorded]
        self._state[CONSTANTS] = self._constants.store()
        lists = [self._looks.record(one.view, one.per_message) for one in recorded]
        self._recording.look(self.address, 1, -1)
        self._state[RUN] = address_of(self._recording, "run")
        return NumbaRecorder(self, recordings, [block.words for block in lists])

    def look(self) -> None:
        """Records what became of rows of views at the end of messages, as if one ended here."""
        assert self._recording is not None
        self._recording.look(self.address, 1, 0)
        if self._state[ERROR]:
            self._overflow()

    def unlook(self, view: str, per_message: bool, rows: NDArray[np.int64]) -> None:
        """Makes int64[n, words of the key and of the row] those that the last look at a recorded view saw."""
        unlook = getattr(self._recording, f"unlook{Recorded(self._results[view], per_message).tag}")
        unlook(self.address, rows.ctypes.data, len(rows))

    def _end_looks(self) -> None:
        self._looks.close()
        self.noted, self.looks = False, object()
        self._state[FIRED_WORDS] = 0

    def admit(self, rows: RelationStore) -> None:
        """See Runtime."""
        self._state[CHECKED_ROWS] = rows.address

    def apply(self, batch: ChangeBatch, start: int = 0) -> int:
        """Applies changes from `start` on; see Runtime."""
        if self._constants.tables:
            self._constants.follow()
        stop: int = run_batch(self.address, ARRAY_TYPES, batch.kinds, batch.flags, batch.values, start)
        if stop >= 0:
            self.noted = False
            return stop
        if stop == NOT_DESCRIBED:
            return self.apply(plain_batch(batch), start)
        return self.stopped(stop - UNCOUNTED if stop != FAILED else stop)

    def fill(self, batches: Iterable[ChangeBatch]) -> None:
        """See Runtime."""
        self._patterns.rest()
        for batch in batches:
            self.apply(batch)
        self._patterns.again(tell=True)
        if self._state[ERROR]:
            self._overflow()

    def functions_of(self, watch: Watch) -> tuple[int, int, int]:
        """See Runtime."""
        row = address_of(self.module, f"row_{self._results[watch.view]}")
        return self.address, row, self._condition(watch)

    def stopped(self, stop: int) -> int:
        """See Runtime."""
        if stop == FAILED:
            self._overflow()
        self.noted = True
        return ~(stop + UNCOUNTED)

    def ready(self) -> int:
        """See Runtime."""
        self._constants.follow()
        return self.address

    def direct(self, progress: int) -> Direct | None:
        """See Runtime."""
        if self._constants.tables:
            return None
        return partial(run_counted, self.address, ARRAY_TYPES, progress)

    def firings(self) -> Sequence[Firing]:
        """The firings at which `apply` stopped."""
        held, records = fired_bytes(self.address), self._records
        if len(records) == 1 and len(held) == records[0].size:
            return (UnpackedFiring(0, held, records[0]),)
        found = []
        at = 0
        while at < len(held):
            (watch,) = _WORD.unpack_from(held, at)
            end = at + records[watch].size
            found.append(UnpackedFiring(watch, held[at:end], records[watch]))
            at = end
        found.sort(key=lambda f: f.watch)
        return found

    def row(self, view: str, key: tuple[Word, ...]) -> Row | None:
        """One row of a view; None where there is none."""
        number = self._results[view]
        form, block = self._formats[number], self._buffers[number]
        for i, (word, own) in enumerate(zip(key, self.plan.results[number].result.keys, strict=True)):
            block[i] = word_of(word, own.type)
        row = block.address + 8 * form.key_count
        there = self._rows[number](self._state.address, block.address, row)
        if self._state[ERROR]:
            self._overflow()
        if not there:
            return None
        return UnpackedRow(unpacker(form.row)(block.words, 8 * form.key_count), form.columns)

    def rows(self, view: str) -> Iterator[tuple[tuple[Word, ...], Row]]:
        """All rows of a view, in any order."""
        form = self._formats[self._results[view]]
        for values in struct.iter_unpack("<" + form.key + form.row, self.row_words(view).tobytes()):
            yield (
                form.decoded_key(values[: form.key_count]),
                UnpackedRow(values[form.key_count :], form.columns),
            )

    def row_words(self, view: str) -> NDArray[np.int64]:
        """All rows of a view, in any order: int64[n, words of the key and of the row]; see RowFormat."""
        number = self._results[view]
        form, multiplicity = self._formats[number], self.plan.results[number].result.multiplicity
        count = 1
        if multiplicity is not None:
            held = self.plan.entries_of(multiplicity)
            count = self._shape(held).size(self._handle(held))
        out = np.empty((count, form.key_count + form.words), np.int64)
        written = getattr(self.module, f"rows_{number}")(self._state.address, out.ctypes.data, count)
        if self._state[ERROR]:
            self._overflow()
        return out[:written]

    def copy_view(self, view: str) -> NumbaViewCopy | None:
        """See Runtime."""
        number = self._results[view]
        name = self.plan.results[number].result.multiplicity
        held = None if name is None else self.plan.entries_of(name)
        if held is None or not held.key_types or self._shape(held).size(self._handle(held)) < FEWEST:
            return None
        looks = tuple(self._layout.look(number, per_message) for per_message in (False, True))
        handle = self._handle(held)
        return NumbaViewCopy(self, self._numbered, view, number, handle, self._state, looks)

    def map_sizes(self) -> dict[str, int]:
        """Entries of every map's store; maps that share one are counted together."""
        sizes: dict[str, int] = {}
        for s in self.plan.stores:
            for name in s.maps:
                sizes[name] = self._shape(s).size(self._handle(s))
        return sizes

    def memory_bytes(self) -> int:
        """Bytes held by all stores."""
        stores: int = sum(self._shape(s).memory_bytes(self._handle(s)) for s in self.plan.stores)
        return stores + self._patterns.memory_bytes()

    def map_bytes(self) -> dict[str, int]:
        """Bytes of every map's stores; maps that share one share its bytes evenly."""
        held = dict.fromkeys((m.name for m in self.plan.program.maps), 0)
        for s in self.plan.stores:
            share, rest = divmod(self._shape(s).memory_bytes(self._handle(s)), len(s.maps))
            for place, name in enumerate(s.maps):
                held[name] += share + (place < rest)
        for directory in self.plan.directories:
            held[directory.source] += held.pop(directory.name)
        return held

    def measures(self) -> list[tuple[int, float]]:
        """How often each statement of the plan's triggers ran, and for how many ns altogether."""
        cycles, elapsed = read_cycles() - self._started[0], time.perf_counter_ns() - self._started[1]
        words = list(self._measures.words)
        return [(n, c * elapsed / max(cycles, 1)) for n, c in zip(words[::2], words[1::2], strict=True)]

    def entries(self, name: str) -> Entries:
        """A copy of the entries of a map."""
        held = self.plan.stores_of(name)[0]
        return entries_of(self._shape(held), self._handle(held), held, name)

    def copied(self) -> tuple[MapRows, ...]:
        """A copy of the entries of all maps of the program; what the plan adds is made of them."""
        stores = {s.name: s for s in (self.plan.stores_of(name)[0] for name in self._maps)}
        return tuple(rows_of_store(self._shape(s), self._handle(s), s) for s in stores.values())

    def restore(self, maps: Sequence[MapRows], codes: NDArray[np.int64] | None) -> None:
        """Replaces the entries of all maps, in every store that holds them."""
        self._constants.follow()
        for s in self.plan.stores:
            self._shape(s).clear(self._handle(s))
        # A store's entry is there while an exact map of it holds something, so those come first.
        for rows in sorted(maps, key=lambda r: all(c.double for c in r.maps)):
            first = rows.maps[0].name
            stores = {s.name: s for c in rows.maps for s in self.plan.stores_of(c.name)}
            for part in rows.parts(codes, self.plan.program.map(first).key_types):
                for s in stores.values():
                    add_entries(self._shape(s), self._handle(s), s, part)
        self._count_keys(self.plan.directories)
        self._patterns.again()

    def adopt(self, other: Runtime, matches: Mapping[str, Match]) -> None:
        """Takes over the stores that are as this plan has them, and the entries of other maps."""
        assert isinstance(other, NumbaRuntime)
        stale = [d for d in self.plan.directories if self._shares(d, matches)]
        alike = {d.name: same_directory(d, other.plan.directories, matches) for d in stale}
        matches = {**matches, **{name: match for name, match in alike.items() if match is not None}}
        moved, filled = [], []
        for s in self.plan.stores:
            own = [o for o in other.plan.stores if is_moved(s, o, matches)]
            if own:
                moved.append((s, own[0]))
            elif not matches.keys().isdisjoint(s.maps):
                filled.append(s)
        named = {n: matches[n] for s in filled for n in s.maps if n in matches}
        entries = {n: other.entries(m.name).with_keys(m.places) for n, m in named.items()}
        self._fill(filled, entries)
        for s, theirs in moved:
            if theirs.name in other._owned:
                destroy, handle = self._owned[s.name]
                destroy(handle)
                self._owned[s.name] = other._owned.pop(theirs.name)
                self._state[self._layout.handles[s.name]] = self._owned[s.name][1]
        self._count_keys([d for d in stale if d.name not in matches])
        self._patterns.again()

    def _shares(self, directory: Directory, maps: Collection[str]) -> bool:
        """Whether one of these maps is among those whose entries the directory counts."""
        return any(name in maps for name in self.plan.stores_of(directory.source)[0].maps)

    def _count_keys(self, directories: Sequence[Directory]) -> None:
        for directory in directories:
            held = self.plan.stores_of(directory.source)[0]
            keys = keys_of(self._shape(held), self._handle(held), held)
            entries = {directory.name: counted(keys, directory.positions)}
            self._fill(self.plan.stores_of(directory.name), entries)

    def close(self) -> None:
        """Destroys the stores that nobody adopted, and what watches hold."""
        self._end_looks()
        self._patterns.close()
        self.looks = None
        free(self._state[FIRED])
        self._state[FIRED] = self._state[FIRED_CAPACITY] = 0
        self._finalizer()

    def _fill(self, stores: Sequence[Store], maps: Mapping[str, Entries]) -> None:
        """Fills stores anew; maps of theirs that are not given keep what they hold."""
        kept = {n for s in stores for n in s.maps if n not in maps}
        whole = {**maps, **{n: self.entries(n) for n in kept}}
        for s in stores:
            fill_store(self._shape(s), self._handle(s), s, whole)

    @property
    def program(self) -> Program:
        """The program that it runs."""
        return self.plan.program

    def constants_apart(self) -> Block:
        """See Constants.apart."""
        return self._constants.apart()

    def _overflow(self) -> None:
        """Raises what the state notes: a value beyond 128 bits, a key beyond 64, or a double beyond all."""
        noted = self._state[ERROR]
        self._state[ERROR] = 0
        if noted == NO_TEXT and self._texts.problem is not None:
            raise self._texts.problem
        if noted == CALL_RAISED:
            raise noted_error([self._state[CALLED + word] for word in range(CALLED_WORDS)])
        raise noted_error_of(noted, self.plan.program)

    def _shape(self, held: Store) -> ModuleType:
        return self._shapes[held.name]

    def _handle(self, held: Store) -> int:
        return self._state[self._layout.handles[held.name]]


def _close(stores: Mapping[str, tuple[Callable[[int], object], int]]) -> None:
    for destroy, handle in stores.values():
        destroy(handle)
