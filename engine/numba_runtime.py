"""The numba executor: a Runtime whose triggers are generated, compiled code over raw memory."""

import ctypes
import struct
import time
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import ModuleType

import numpy as np

from orderbook.dictionary import Dictionary
from views.compiler.calculus import Scalar
from views.compiler.m3 import Program

from .blocks import Block
from .changes import ChangeBatch
from .exactness import infinite_error, overflow_error, wide_key_error
from .generate.conditions import condition_module
from .generate.driver import driver_module
from .generate.layout import (
    ERROR,
    FAILED,
    FIRED,
    FIRED_CAPACITY,
    FIRED_WORDS,
    INFINITE,
    MEASURES,
    TEXTS,
    WIDE_KEY,
    layout_for,
    row_words,
)
from .generate.measured import MeasuredWrites, numbered, read_cycles
from .generate.numbering import Numbering
from .generate.recorded import Recorded, record_module
from .generate.support import free
from .generate.triggers import program_module
from .generate.writes import Writes
from .map_entries import Entries, MapRows
from .map_matching import Match
from .maps.cache import publish_text
from .maps.linkage import address_of, callable_at
from .numba_looks import NumbaLooks, Watching
from .numba_recorder import NumbaRecorder
from .numba_transfer import (
    add_entries,
    counted,
    entries_of,
    fill_store,
    is_moved,
    keys_of,
    rows_of_store,
    same_directory,
)
from .plan.planner import plan
from .plan.statistics import Statistics
from .plan.steps import Directory, Store
from .recorded import Recording
from .row_format import RecordFormat, RowFormat, UnpackedFiring, UnpackedRow, unpacker, word_of
from .runtime import Firing, Row, Runtime, Watch, Word
from .text_constants import TextConstants
from .view_copy import FEWEST, ViewCopy


class NumbaRuntime:
    """Runs a program as compiled code. One thread owns it; the loop releases the GIL.

    `dictionary` encodes text constants; `measured` counts and times every statement, see `measures`.
    Generated modules and machine code are kept in the cache folder (see maps/cache.py), so that a second
    start compiles nothing.
    """

    def __init__(
        self,
        program: Program,
        dictionary: Dictionary,
        statistics: Statistics | None = None,
        measured: bool = False,
    ):
        self.plan = plan(program) if statistics is None else plan(program, statistics)
        self._layout = layout_for(self.plan)
        self._maps = tuple(m.name for m in program.maps)
        self._texts = TextConstants(dictionary)
        self._numbering = Numbering(self._texts.places)
        self._numbered = self._numbering.plan(self.plan)
        source = program_module(self._numbered, MeasuredWrites if measured else Writes)
        self.module = publish_text("program", source)
        self._shapes: dict[str, ModuleType] = {
            own.name: getattr(self.module, numbered.name)
            for own, numbered in zip(self.plan.stores, self._numbered.stores, strict=True)
        }
        self._state = Block(self._layout.words)
        self.address = self._state.address
        self._measures = Block(2 * len(numbered(self.plan)) if measured else 0)
        self._state[MEASURES] = self._measures.address
        self._started = read_cycles(), time.perf_counter_ns()
        self._results = {r.result.name: i for i, r in enumerate(self.plan.results)}
        self._formats = [RowFormat(r.result) for r in self.plan.results]
        self._fired = False
        self._buffer_at = 0
        self._buffer: ctypes.Array[ctypes.c_int64] = (ctypes.c_int64 * 0)()
        self._buffers = [Block(len(r.result.keys) + row_words(r)) for r in self.plan.results]
        for s in self.plan.stores:
            self._state[self._layout.handles[s.name]] = self._shape(s).create()
        # What is left to destroy, by store; a store that another runtime adopts is taken out.
        self._owned = {s.name: (self._shape(s).destroy, self._handle(s)) for s in self.plan.stores}
        self._finalizer = weakref.finalize(self, _close, self._owned)
        self._rows = [callable_at(address_of(self.module, f"row_{i}")) for i in range(len(self._formats))]
        self._driver = publish_text("driver", driver_module(self._numbered, self.module.__name__))
        self._recording: ModuleType | None = None
        self._looks = NumbaLooks(self.plan, self._layout, self._state, self.module)
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
        self._state[TEXTS] = self._texts.store()
        for (view, per_message), own_watches in grouped.items():
            self._looks.watch(view, per_message, own_watches)
        self._looks.begin()
        self._run = self._driver.run

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
        recorded = [Recorded(self._results[r.view], r.per_message) for r in recordings]
        source = record_module(self._numbered, self.module.__name__, recorded)
        self._recording = publish_text("record", source)
        self._state[TEXTS] = self._texts.store()
        lists = [self._looks.record(one.view, one.per_message) for one in recorded]
        self._recording.look(self.address, True, -1)
        self._run = self._recording.run
        return NumbaRecorder(self, recordings, [block.words for block in lists])

    def look(self) -> None:
        """Records what became of rows of views at the end of messages, as if one ended here."""
        assert self._recording is not None
        self._recording.look(self.address, True, 0)

    def unlook(self, view: str, per_message: bool, rows: np.ndarray) -> None:
        """Makes int64[n, words of the key and of the row] those that the last look at a recorded view saw."""
        unlook = getattr(self._recording, f"unlook{Recorded(self._results[view], per_message).tag}")
        unlook(self.address, rows.ctypes.data, len(rows))

    def _end_looks(self) -> None:
        self._looks.close()
        self._fired, self.looks = False, object()

    def apply(self, batch: ChangeBatch, start: int = 0) -> int:
        """Applies changes from `start` on; see Runtime."""
        self._texts.follow()
        stop = self._run(self.address, batch.kinds, batch.flags, batch.values, start, len(batch.kinds))
        if stop >= 0:
            self._fired = False
            return stop
        if stop == FAILED:
            self._overflow()
        self._fired = True
        return ~stop

    def firings(self) -> Sequence[Firing]:
        """The firings at which `apply` stopped."""
        if not self._fired:
            return ()
        state = self._state.words
        used, address = state[FIRED_WORDS], state[FIRED]
        if address != self._buffer_at:
            # Wrapped again only when it has moved.
            self._buffer_at = address
            self._buffer = (ctypes.c_int64 * state[FIRED_CAPACITY]).from_address(address)
        buffer, records = self._buffer, self._records
        record = records[0] if len(records) == 1 else records[buffer[0]]
        values = record.unpack(buffer, 0)
        if record.size == used:
            return (UnpackedFiring(values[0], values, record),)
        found = []
        at = 0
        while at < used:
            record = records[buffer[at]]
            values = record.unpack(buffer, 8 * at)
            found.append(UnpackedFiring(values[0], values, record))
            at += record.size
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

    def row_words(self, view: str) -> np.ndarray:
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

    def copy_view(self, view: str) -> ViewCopy | None:
        """See Runtime."""
        number = self._results[view]
        name = self.plan.results[number].result.multiplicity
        held = None if name is None else self.plan.entries_of(name)
        if held is None or not held.key_types or self._shape(held).size(self._handle(held)) < FEWEST:
            return None
        looks = tuple(self._layout.look(number, per_message) for per_message in (False, True))
        return ViewCopy(self, self.plan.results[number], number, self._handle(held), self._state, looks)

    def map_sizes(self) -> dict[str, int]:
        """Entries of every map's store; maps that share one are counted together."""
        sizes: dict[str, int] = {}
        for s in self.plan.stores:
            for name in s.maps:
                sizes[name] = self._shape(s).size(self._handle(s))
        return sizes

    def memory_bytes(self) -> int:
        """Bytes held by all stores."""
        return sum(self._shape(s).memory_bytes(self._handle(s)) for s in self.plan.stores)

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

    def restore(self, maps: Sequence[MapRows], codes: np.ndarray | None) -> None:
        """Replaces the entries of all maps, in every store that holds them."""
        self._texts.follow()
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

    def _overflow(self) -> None:
        """Raises what the state notes: a value beyond 128 bits, a key beyond 64, or a double beyond all."""
        noted = self._state[ERROR]
        self._state[ERROR] = 0
        errors = {INFINITE: infinite_error, WIDE_KEY: wide_key_error}
        raise errors.get(noted, overflow_error)(self.plan.program)

    def _shape(self, held: Store) -> ModuleType:
        return self._shapes[held.name]

    def _handle(self, held: Store) -> int:
        return self._state[self._layout.handles[held.name]]


def _close(stores: Mapping[str, tuple[Callable[[int], object], int]]) -> None:
    for destroy, handle in stores.values():
        destroy(handle)
