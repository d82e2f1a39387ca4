"""A copy of the rows of a view that has many, made in pieces while they change.

Triggers note the keys of rows that change, as they do for a watch, at a granularity at which nobody watches
the view. Those rows are computed anew at the end.

Most views have a row for each entry of a store, made of that entry alone. Of them a piece is the memory in
which entries lie, copied as it is; rows are made of it afterwards, in another thread. The rows of other views
are computed in pieces.
"""

import ctypes
from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from orderbook.core.generated_code import publish_text
from orderbook.engine.generate.program import entry_rows_module
from orderbook.engine.generate.state_layout import ACTIVE, COUNT, ERROR, LIST, LOOK_WORDS, row_words
from orderbook.engine.generate.support import free
from orderbook.engine.maps.memory import Block
from orderbook.engine.maps.shapes import hashed
from orderbook.engine.runtime.relation_store import apart_from
from orderbook.engine.runtime.row_format import noted_error_of
from orderbook.engine.runtime.store_entries import NO_SLABS, Slabs, StoreCopy, copy_module, used

if TYPE_CHECKING:
    from orderbook.engine.generate.numbering import NumberedPlan
    from orderbook.views.m3 import Program

ROWS = '''\
"""Rows of a view by their keys."""

from {program} import row_{view}
from orderbook.core.jit import jit


@jit(error_model='numpy', nogil=True)
def rows_at(S, keys, out, address):
    """Writes keys and rows to int64 out[n, words], which begins at `address`; how many there are."""
    row = 0
    for i in range(len(keys)):
        for j in range({count}):
            out[row, j] = keys[i, j]
        own = address + 8 * row * out.shape[1]
        if row_{view}(S, own, own + 8 * {count}) != 0:
            row += 1
    return row
'''

ENTRIES = '''\
"""Rows of a view from copies of entries."""

import numpy as np
from {copy} import standing
from {rows} import row_at
from orderbook.engine.maps.memory import load
from orderbook.engine.maps.store_layout import SLAB_HEADER_BYTES
from orderbook.core.jit import jit


@jit(error_model='numpy', nogil=True)
def rows_of(S, places, copies, size, capacity, keys, out, address):
    """Writes rows of copied slabs, each after so many of its keys, to int64 out[n, words], which begins at
    `address`; how many there are."""
    free = np.zeros(capacity, np.bool_)
    row = 0
    for slab in range(len(places)):
        copy = int(copies[slab])
        for number in range(standing(int(places[slab, 0]), copy, size, free)):
            if not free[number]:
                entry = copy + SLAB_HEADER_BYTES + size * number
                for j in range(keys):
                    out[row, j] = load(entry, j)
                if row_at(S, entry, address + 8 * (row * out.shape[1] + keys)) != 0:
                    row += 1
    return row
'''


class _Owner(Protocol):
    """The runtime that has the view."""

    module: ModuleType
    address: int
    looks: object | None

    @property
    def program(self) -> "Program":
        """The program that it runs."""

    def row_words(self, view: str, /) -> NDArray[np.int64]:
        """See Runtime."""

    def constants_apart(self) -> Block:
        """See Constants.apart."""


class MutableMemory(Protocol):
    """Words of raw memory."""

    def __getitem__(self, place: int, /) -> int: ...

    def __setitem__(self, place: int, word: int, /) -> None: ...


# A view of fewer rows is copied at once, in a few ms.
FEWEST = 10_000
# Slabs of entries whose rows are computed in one piece: some thousands, in one or two ms.
_SLABS = 2


class NumbaViewCopy:
    """A ViewCopy of the rows that a store's entries are."""

    def __init__(
        self,
        runtime: _Owner,
        plan: "NumberedPlan",
        name: str,
        view: int,
        handle: int,
        state: MutableMemory,
        places: Sequence[int],
    ) -> None:
        """view: the number of the view of this name. handle: of the store whose entries are the rows.

        state, places: where the view's looks lie.
        """
        result = plan.results[view]
        self._runtime, self._looks, self._name = runtime, runtime.looks, name
        self._keys = len(result.result.keys)
        self._words = row_words(result)
        self._handle, self._state, self._places = handle, state, places
        self._at: int | None = None
        text = ROWS.format(program=runtime.module.__name__, view=view, count=self._keys)
        self._module: ModuleType = publish_text("view", text)
        # Modules are made in one thread; others only call them.
        self._shape = hashed(self._keys, "i", ())
        rows = entry_rows_module(plan, view)
        self._entry_rows = None if rows is None else _entries_module(rows)
        self._apart = runtime.constants_apart()
        entries, nbytes = used(handle)
        self.nbytes = 8 * entries * self._words
        self._room = np.empty(0 if self._entry_rows is None else nbytes, np.uint8)
        self._store: StoreCopy | None = None
        # Slabs whose rows are not yet made, and rows that are.
        self._taken: list[Slabs] = []
        self._parts: list[NDArray[np.int64]] = []
        # Keys that have changed, and their rows at the end.
        self._changed = np.empty((0, self._keys), np.int64)
        self._now = np.empty((0, self._keys + self._words), np.int64)

    @property
    def makes_rows_apart(self) -> bool:
        """Whether pieces are memory, of which rows are made in another thread."""
        return self._entry_rows is not None

    def prepare(self) -> None:
        empty = self._shape.create()
        store = StoreCopy(empty, _SLABS)
        store.piece()
        self._shape.destroy(empty)
        nothing = np.empty((0, self._keys), np.int64)
        self._rows(nothing)
        # The system gives memory when it is first written, which takes longer than copying.
        self._room.fill(0)
        if self._entry_rows is not None:
            self._made(NO_SLABS, False)
        apart_from([self._now], nothing)

    def begin(self) -> bool:
        for place in self._places:
            if not self._state[place + ACTIVE]:
                self._at = place
                self._state[place + COUNT] = 0
                self._state[place + ACTIVE] = 1
                slabs = _SLABS if self._entry_rows is None else None
                self._store = StoreCopy(self._handle, slabs, self._room)
                return True
        return False

    @property
    def stale(self) -> bool:
        return self._runtime.looks is not self._looks

    def piece(self) -> bool:
        assert self._store is not None
        done = self._store.piece()
        if self._entry_rows is None:
            self._parts += [self._rows(own.entries(self._keys)) for own in self._store.taken]
        else:
            self._taken += self._store.taken
        self._store.taken.clear()
        return done

    def finish(self) -> None:
        assert self._at is not None
        count = self._state[self._at + COUNT]
        if count < 0:
            # Any row may have changed.
            self._taken, self._parts = [], [self._runtime.row_words(self._name)]
        elif count:
            words = (ctypes.c_int64 * (count * self._keys)).from_address(self._state[self._at + LIST])
            self._changed = np.unique(np.array(words, np.int64).reshape(count, self._keys), axis=0)
            self._now = self._rows(self._changed)
        self.end()

    def end(self) -> None:
        if self._at is not None and not self.stale:
            free(self._state[self._at + LIST])
            for word in range(LOOK_WORDS):
                self._state[self._at + word] = 0
        self._at = None

    def rows(self) -> list[NDArray[np.int64]]:
        changed = len(self._changed) > 0
        made = [*self._parts, *(self._made(slabs, changed) for slabs in self._taken)]
        if changed:
            made = [self._now, *apart_from(made, self._changed)]
        # Keys have served where rows were told apart by them.
        return [np.ascontiguousarray(part[:, part.shape[1] - self._words :]) for part in made or [self._now]]

    def _rows(self, keys: NDArray[np.int64]) -> NDArray[np.int64]:
        out = np.empty((len(keys), self._keys + self._words), np.int64)
        keys = np.ascontiguousarray(keys)
        count = self._module.rows_at(self._runtime.address, keys, out, out.ctypes.data)
        return out[:count]

    def _made(self, slabs: Slabs, with_keys: bool) -> NDArray[np.int64]:
        """Rows of copied entries; in any thread."""
        assert self._entry_rows is not None
        keys = self._keys * with_keys
        out = np.empty((len(slabs), keys + self._words), np.int64)
        own = slabs.places, slabs.copies, slabs.size, slabs.capacity
        count = self._entry_rows.rows_of(self._apart.address, *own, keys, out, out.ctypes.data)
        if self._apart[ERROR]:
            raise noted_error_of(self._apart[ERROR], self._runtime.program)
        return out[:count]


def _entries_module(rows: str) -> ModuleType:
    made = publish_text("entry", rows)
    text = ENTRIES.format(copy=copy_module().__name__, rows=made.__name__)
    return publish_text("entries", text)
