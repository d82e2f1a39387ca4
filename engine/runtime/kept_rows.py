"""The rows of all relations, kept so that a view added later can be filled from them."""

import weakref
from collections.abc import Sequence
from functools import cache
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from orderbook.core.changes import ChangeBatch
from orderbook.core.generated_code import publish_text
from orderbook.engine.maps.shapes import hashed
from orderbook.engine.runtime.map_entries import RowCounts
from orderbook.engine.runtime.store_entries import StoreCopy, copied
from orderbook.views.types import Relation

RECORD = '''\
"""Keeps the rows of a relation of {width} columns in a store that counts them."""

from orderbook.core.jit import jit
from {shape} import add, get


@jit(nogil=True)
def record(H, kinds, values, relation):
    """Applies the changes of one relation."""
    for i in range(len(kinds)):
        if kinds[i] >> 1 == relation:
            add(H, {columns}, 1 - 2 * (kinds[i] & 1))


@jit(nogil=True)
def add_rows(H, values, counts):
    """Adds rows with how often each stands."""
    for i in range(len(counts)):
        add(H, {columns}, counts[i])


@jit(nogil=True)
def counted(H, values, counts):
    """How often each row stands."""
    for i in range(len(counts)):
        counts[i] = get(H, {columns})[0]
'''


class KeptRows:
    """The multiset of rows of every relation that has changed, in raw memory of its own."""

    def __init__(self, relations: Sequence[Relation]):
        self._relations = list(relations)
        self._stores: dict[int, tuple[ModuleType, int]] = {}
        self._copies: weakref.WeakSet[RowsCopy] = weakref.WeakSet()
        weakref.finalize(self, _close, self._stores)

    def extend(self, relations: Sequence[Relation]) -> None:
        """Takes the relations of a program that begins with those known."""
        self._relations = list(relations)

    def record(self, batch: ChangeBatch) -> None:
        """Applies changes that the runtime has applied."""
        if len(batch) == 1:
            kind = batch.kinds.item(0)
            changed = [kind >> 1] if kind >= 0 else []
        else:
            changed = np.flatnonzero(np.bincount((batch.kinds >> 1) + 1)[1:]).tolist()
        for index in changed:
            width = len(self._relations[index].columns)
            row_module(width).record(self._handle(index), batch.kinds, batch.values, index)
        for copy in self._copies:
            if copy.relation in changed:
                copy.note(batch)

    def rows(self, index: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """A copy of a relation's rows, int64[n, width], and how often each stands, int64[n]."""
        width = len(self._relations[index].columns)
        if index not in self._stores:
            return np.empty((0, width), np.int64), np.empty(0, np.int64)
        shape, handle = self._stores[index]
        out = copied(shape, handle, width + 1)
        return np.ascontiguousarray(out[:, :width]), out[:, width].copy()

    def copy(self, index: int) -> "RowsCopy":
        """A copy of a relation's rows that is to be made in pieces."""
        copy = RowsCopy(index, len(self._relations[index].columns), self._handle(index))
        self._copies.add(copy)
        return copy

    def copied(self) -> tuple[RowCounts, ...]:
        """A copy of the rows of every relation that has changed."""
        return tuple(RowCounts(index, *self.rows(index)) for index in sorted(self._stores))

    def restore(self, relations: Sequence[RowCounts], codes: NDArray[np.int64] | None) -> None:
        """Replaces all rows by a copy; `codes` as in Runtime.restore."""
        for shape, handle in self._stores.values():
            shape.clear(handle)
        for saved in relations:
            relation = self._relations[saved.relation]
            for rows, counts in saved.parts(relation, codes):
                row_module(len(relation.columns)).add_rows(self._handle(saved.relation), rows, counts)
        for copy in self._copies:
            copy.begin()

    def _handle(self, index: int) -> int:
        """The store of a relation, a new one at its first change."""
        if index not in self._stores:
            shape = hashed(len(self._relations[index].columns), "i", ())
            self._stores[index] = (shape, shape.create())
            # A copy in the midst of a run is to find its code compiled.
            copy = self.copy(index)
            copy.piece()
            copy.finish()
            copy.rows()
        return self._stores[index][1]

    def memory_bytes(self) -> int:
        """Bytes held."""
        return sum(shape.memory_bytes(handle) for shape, handle in self._stores.values())


class RowsCopy:
    """A copy of one relation's rows, made in pieces while they change: as of the moment of `finish`.

    Rows that changed while pieces were made are counted anew then.
    """

    def __init__(self, relation: int, width: int, handle: int) -> None:
        self.relation = relation
        self._width, self._handle = width, handle
        self.begin()

    def begin(self) -> None:
        """Begins, or begins again where all rows have been replaced."""
        self._store = StoreCopy(self._handle, self._width + 1)
        self._notes: list[np.ndarray] | None = []
        self._changed = np.empty((0, self._width), np.int64)
        self._counts = np.empty(0, np.int64)

    def note(self, batch: ChangeBatch) -> None:
        """Changes that have been applied."""
        if self._notes is not None:
            self._notes.append(batch.values[batch.kinds >> 1 == self.relation, : self._width])

    def piece(self) -> bool:
        """Copies a piece, between two changes; whether it was the last."""
        return self._store.piece()

    def finish(self) -> None:
        """Between two changes, after the last piece: the rows are those of now."""
        if self._notes:
            self._changed = np.concatenate(self._notes)
            self._counts = np.empty(len(self._changed), np.int64)
        row_module(self._width).counted(self._handle, self._changed, self._counts)
        self._notes = None

    def rows(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """After `finish`, in any thread: rows int64[n, width], and how often each stands, int64[n]."""
        changed, places = np.unique(self._changed, axis=0, return_index=True)
        there = self._counts[places] != 0
        others = apart_from(self._store.parts, changed)
        rows = np.concatenate([changed[there], *(part[:, :-1] for part in others)])
        return rows, np.concatenate([self._counts[places][there], *(part[:, -1] for part in others)])


def apart_from(parts: Sequence[NDArray[np.int64]], keys: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """The rows of int64[n, width] parts that do not begin as one of int64[m, k] keys, m distinct ones."""
    width = keys.shape[1]
    shape, recorder = hashed(width, "i", ()), row_module(width)
    marks, found = shape.create(), []
    recorder.add_rows(marks, np.ascontiguousarray(keys), np.ones(len(keys), np.int64))
    for part in parts:
        marked = np.empty(len(part), np.int64)
        recorder.counted(marks, np.ascontiguousarray(part[:, :width]), marked)
        found.append(part[marked == 0])
    shape.destroy(marks)
    return found


@cache
def row_module(width: int) -> ModuleType:
    """The compiled functions that keep rows of so many columns."""
    columns = ", ".join(f"values[i, {column}]" for column in range(width))
    shape = hashed(width, "i", ())
    return publish_text("rows", RECORD.format(width=width, shape=shape.__name__, columns=columns))


def _close(stores: dict[int, tuple[ModuleType, int]]) -> None:
    for shape, handle in stores.values():
        shape.destroy(handle)
