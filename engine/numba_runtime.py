"""The numba executor: a Runtime whose triggers are generated, compiled code over raw memory."""

import ctypes
import hashlib
import struct
import weakref
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType

import numpy as np

from orderbook.dictionary import Dictionary
from orderbook.errors import ExactnessError
from views.compiler.m3 import Program

from .changes import ChangeBatch
from .generate.layout import (
    ACTIVE,
    CACHE,
    COUNT,
    DIRTY,
    ERROR,
    FAILED,
    FIRED,
    FIRED_CAPACITY,
    FIRED_WORDS,
    LIST,
    LOOK_WORDS,
    ROW,
    TEXTS,
    layout_for,
    row_words,
)
from .generate.support import free
from .generate.triggers import program_module
from .generate.watches import Look, looks_of, watch_module
from .maps.cache import publish
from .plan.planner import layout_of, maps_read, plan
from .plan.steps import Store
from .row_format import RecordFormat, RowFormat, UnpackedFiring, UnpackedRow, unpacker, word_of
from .runtime import Firing, Row, Watch, Word


class NumbaRuntime:
    """Runs a program as compiled code. One thread owns it; the loop releases the GIL.

    `dictionary` encodes text constants. Generated modules and machine code are kept in the cache
    folder (see maps/cache.py), so that a second start compiles nothing.
    """

    def __init__(self, program: Program, dictionary: Dictionary):
        self.plan = plan(program)
        self._layout = layout_for(self.plan)
        self._dictionary = dictionary
        self._texts: dict[str, int] = {}
        source = program_module(self.plan, self._texts)
        self.module = _published("program", source)
        self._state = _Block(self._layout.words)
        self._address = self._state.address
        self._results = {r.result.name: i for i, r in enumerate(self.plan.results)}
        self._formats = [RowFormat(r.result) for r in self.plan.results]
        self._fired = False
        self._buffer_at = 0
        self._buffer: ctypes.Array[ctypes.c_int64] = (ctypes.c_int64 * 0)()
        self._buffers = [_Block(len(r.result.keys) + row_words(r)) for r in self.plan.results]
        self._texts_block = _Block(1)
        for s in self.plan.stores:
            self._state[self._layout.handles[s.name]] = self._shape(s).create()
        weakref.finalize(self, _close, [(self._shape(s).destroy, self._handle(s)) for s in self.plan.stores])
        self._looks: tuple[Look, ...] = ()
        self._blocks: list[_Block] = []
        self.watch(())
        if self.plan.initial:
            self.module.initialise(self._state.address)

    def watch(self, watches: Sequence[Watch]) -> None:
        """Replaces the watches; the driver for a new set of conditions is generated and compiled."""
        state, layout = self._state, self._layout
        self._close_looks()
        self._watches = tuple(watches)
        self._records = [RecordFormat(self._formats[self._results[w.view]]) for w in watches]
        self._fired = False
        source = watch_module(self.plan, self.module.__name__, watches, self._texts)
        self.driver = _published("watch", source)
        self._store_texts()
        self._looks = looks_of(self.plan, watches)
        for look in self._looks:
            at = layout.look(look.view, look.per_message)
            result = self.plan.results[look.view]
            if result.result.keys:
                state[at + CACHE] = self._cache_shape(look).create()
            else:
                self._blocks.append(_Block(row_words(result) + 1))
                state[at + CACHE] = self._blocks[-1].address
            self._blocks.append(_Block(row_words(result) + 1))
            state[at + ROW] = self._blocks[-1].address
            state[at + COUNT] = -1
            state[at + ACTIVE] = 1
        self._run = self.driver.run
        if self._looks:
            self.driver.look(state.address, True, True)

    def apply(self, batch: ChangeBatch, start: int = 0) -> int:
        """Applies changes from `start` on; see Runtime."""
        stop = self._run(self._address, batch.kinds, batch.flags, batch.values, start, len(batch.kinds))
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
        words = [word_of(w, k.type) for w, k in zip(key, self.plan.results[number].result.keys, strict=True)]
        if not getattr(self.module, f"row_{number}")(self._state.address, *words, block.address):
            return None
        return UnpackedRow(unpacker(form.row)(block.words), form.columns)

    def rows(self, view: str) -> Iterator[tuple[tuple[Word, ...], Row]]:
        """All rows of a view, in any order."""
        number = self._results[view]
        form, multiplicity = self._formats[number], self.plan.results[number].result.multiplicity
        count = 1
        if multiplicity is not None:
            held = next(s for s in self.plan.stores_of(multiplicity) if s.ordered is None)
            count = self._shape(held).size(self._handle(held))
        out = np.empty((count, form.key_count + form.words), np.int64)
        written = getattr(self.module, f"rows_{number}")(self._state.address, out.ctypes.data, count)
        for values in struct.iter_unpack("<" + form.key + form.row, out[:written].tobytes()):
            yield (
                form.decoded_key(values[: form.key_count]),
                UnpackedRow(values[form.key_count :], form.columns),
            )

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

    def _overflow(self) -> None:
        """Raises for the views whose sums are not proved to fit 128 bits, or for all."""
        self._state[ERROR] = 0
        program = self.plan.program
        unproved = {m.name for m in program.maps if layout_of(m.type) == "W"}
        read = {r.result.name: maps_read(p for _, ps in r.lets for p in ps) for r in self.plan.results}
        views = sorted(v for v, maps in read.items() if not unproved.isdisjoint(maps)) or sorted(read)
        named = ", ".join(views)
        raise ExactnessError(f"a value of {named} does not fit 128 bits; declare narrower columns (CHECK)")

    def _shape(self, held: Store) -> ModuleType:
        return getattr(self.module, held.name)

    def _handle(self, held: Store) -> int:
        return self._state[self._layout.handles[held.name]]

    def _cache_shape(self, look: Look) -> ModuleType:
        return getattr(self.driver, f"cache_{look.view}_{int(look.per_message)}")

    def _close_looks(self) -> None:
        for look in self._looks:
            at = self._layout.look(look.view, look.per_message)
            if self.plan.results[look.view].result.keys:
                self._cache_shape(look).destroy(self._state[at + CACHE])
            free(self._state[at + LIST])
            for word in range(LOOK_WORDS):
                self._state[at + word] = 0
        self._blocks.clear()
        self._state[DIRTY] = 0
        self._state[FIRED_WORDS] = 0

    def _store_texts(self) -> None:
        if len(self._texts):
            self._texts_block = _Block(len(self._texts))
            for text, place in self._texts.items():
                self._texts_block[place] = self._dictionary.encode(text)
            self._state[TEXTS] = self._texts_block.address


class _Block:
    """Zeroed words of raw memory, given back with the object."""

    __slots__ = ("__weakref__", "address", "words")

    def __init__(self, words: int):
        self.words = (ctypes.c_int64 * words)()
        self.address = ctypes.addressof(self.words)

    def __getitem__(self, place: int) -> int:
        return self.words[place]

    def __setitem__(self, place: int, word: int) -> None:
        self.words[place] = word


def _published(kind: str, source: str) -> ModuleType:
    return publish(f"{kind}_{hashlib.sha256(source.encode()).hexdigest()[:16]}", source)


def _close(stores: Sequence[tuple[Callable[[int], object], int]]) -> None:
    for destroy, handle in stores:
        destroy(handle)
