"""A copy of the rows of a view that has many, made in pieces while they change.

Triggers note the keys of rows that change, as they do for a watch, at a granularity at which nobody watches
the view. Those rows are computed anew at the end.
"""

import ctypes
from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Protocol

import numpy as np

from .generate.layout import ACTIVE, COUNT, LIST, LOOK_WORDS, row_words
from .generate.support import free
from .hashed_copy import StoreCopy, copy_module
from .kept_rows import apart_from, row_module
from .maps.cache import publish_text
from .maps.shapes import hashed
from .plan.steps import ResultPlan

if TYPE_CHECKING:
    from .numba_runtime import NumbaRuntime

ROWS = '''\
"""Rows of a view by their keys."""

from {program} import row_{view}
from orderbook.jit import jit


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


class MutableWords(Protocol):
    """Words of raw memory."""

    def __getitem__(self, place: int, /) -> int: ...

    def __setitem__(self, place: int, word: int, /) -> None: ...


# A view of fewer rows is copied at once, in a few ms.
FEWEST = 10_000
# Slabs of entries whose rows are computed in one piece: some thousands, in one or two ms.
_SLABS = 2


class ViewCopy:
    """A copy of a view's rows, as of the moment of `finish`; on the engine's thread unless said otherwise."""

    def __init__(
        self,
        runtime: "NumbaRuntime",
        result: ResultPlan,
        view: int,
        handle: int,
        state: MutableWords,
        places: Sequence[int],
    ) -> None:
        """handle: of the store whose entries are the rows. state, places: where the view's looks lie."""
        self._runtime, self._looks, self._name = runtime, runtime.looks, result.result.name
        self._keys = len(result.result.keys)
        self._words = self._keys + row_words(result)
        self._handle, self._state, self._places = handle, state, places
        self._at: int | None = None
        program = runtime.module.__name__
        text = ROWS.format(program=program, view=view, count=self._keys)
        self._module: ModuleType = publish_text("view", text)
        # Modules are made in one thread; others only call them.
        self._shape = hashed(self._keys, "i", ())
        row_module(self._keys)
        copy_module()
        self._store: StoreCopy | None = None
        self._parts: list[np.ndarray] = []
        # Keys that have changed, and their rows at the end.
        self._changed = np.empty((0, self._keys), np.int64)
        self._now = np.empty((0, self._words), np.int64)

    def prepare(self) -> None:
        """Compiles what the copy runs; in any thread, before `begin`."""
        empty = self._shape.create()
        StoreCopy(empty, self._keys, _SLABS).piece()
        self._shape.destroy(empty)
        nothing = np.empty((0, self._keys), np.int64)
        self._rows(nothing)
        apart_from([np.empty((0, self._words), np.int64)], nothing)

    def begin(self) -> bool:
        """From now on changed rows are noted; False where both of the view's looks are taken."""
        for place in self._places:
            if not self._state[place + ACTIVE]:
                self._at = place
                self._state[place + COUNT] = 0
                self._state[place + ACTIVE] = 1
                self._store = StoreCopy(self._handle, self._keys, _SLABS)
                return True
        return False

    @property
    def stale(self) -> bool:
        """Whether what it copies from is there no more, or watched otherwise: only a new copy helps."""
        return self._runtime.looks is not self._looks

    def piece(self) -> bool:
        """Copies a piece, between two changes; whether it was the last."""
        assert self._store is not None
        done = self._store.piece()
        self._parts += [self._rows(keys) for keys in self._store.parts]
        self._store.parts.clear()
        return done

    def finish(self) -> None:
        """Between two changes, after the last piece: the rows are those of now."""
        assert self._at is not None
        count = self._state[self._at + COUNT]
        if count < 0:
            # Any row may have changed.
            self._parts = [self._runtime.row_words(self._name)]
        elif count:
            words = (ctypes.c_int64 * (count * self._keys)).from_address(self._state[self._at + LIST])
            self._changed = np.unique(np.array(words, np.int64).reshape(count, self._keys), axis=0)
            self._now = self._rows(self._changed)
        self.end()

    def end(self) -> None:
        """Notes nothing more."""
        if self._at is not None and not self.stale:
            free(self._state[self._at + LIST])
            for word in range(LOOK_WORDS):
                self._state[self._at + word] = 0
        self._at = None

    def rows(self) -> np.ndarray:
        """After `finish`, in any thread: int64[n, words of the key and of the row]."""
        return np.concatenate([self._now, *apart_from(self._parts, self._changed)])

    def _rows(self, keys: np.ndarray) -> np.ndarray:
        out = np.empty((len(keys), self._words), np.int64)
        keys = np.ascontiguousarray(keys)
        count = self._module.rows_at(self._runtime.address, keys, out, out.ctypes.data)
        return out[:count]
