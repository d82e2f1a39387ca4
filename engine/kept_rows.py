"""The rows of all relations, kept so that a view added later can be filled from them."""

import weakref
from collections.abc import Sequence
from functools import cache
from types import ModuleType

import numpy as np

from views.compiler.types import Relation

from .changes import ChangeBatch
from .hashed_copy import copied
from .maps.cache import publish
from .maps.shapes import hashed
from .row_counts import RowCounts

RECORD = '''\
"""Keeps the rows of a relation of {width} columns in a store that counts them."""

from orderbook.jit import jit
from {shape} import add


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
'''


class KeptRows:
    """The multiset of rows of every relation that has changed, in raw memory of its own."""

    def __init__(self, relations: Sequence[Relation]):
        self._relations = list(relations)
        self._stores: dict[int, tuple[ModuleType, int]] = {}
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
            _recorder(width).record(self._handle(index), batch.kinds, batch.values, index)

    def rows(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        """A copy of a relation's rows, int64[n, width], and how often each stands, int64[n]."""
        width = len(self._relations[index].columns)
        if index not in self._stores:
            return np.empty((0, width), np.int64), np.empty(0, np.int64)
        shape, handle = self._stores[index]
        out = copied(shape, handle, width + 1)
        return np.ascontiguousarray(out[:, :width]), out[:, width].copy()

    def copied(self) -> tuple[RowCounts, ...]:
        """A copy of the rows of every relation that has changed."""
        return tuple(RowCounts(index, *self.rows(index)) for index in sorted(self._stores))

    def restore(self, relations: Sequence[RowCounts], codes: np.ndarray | None) -> None:
        """Replaces all rows by a copy; `codes` as in Runtime.restore."""
        for shape, handle in self._stores.values():
            shape.clear(handle)
        for saved in relations:
            relation = self._relations[saved.relation]
            for rows, counts in saved.parts(relation, codes):
                _recorder(len(relation.columns)).add_rows(self._handle(saved.relation), rows, counts)

    def _handle(self, index: int) -> int:
        """The store of a relation, a new one at its first change."""
        if index not in self._stores:
            shape = hashed(len(self._relations[index].columns), "i", ())
            self._stores[index] = (shape, shape.create())
        return self._stores[index][1]

    def memory_bytes(self) -> int:
        """Bytes held."""
        return sum(shape.memory_bytes(handle) for shape, handle in self._stores.values())


@cache
def _recorder(width: int) -> ModuleType:
    columns = ", ".join(f"values[i, {column}]" for column in range(width))
    shape = hashed(width, "i", ())
    return publish(f"rows_{width}", RECORD.format(width=width, shape=shape.__name__, columns=columns))


def _close(stores: dict[int, tuple[ModuleType, int]]) -> None:
    for shape, handle in stores.values():
        shape.destroy(handle)
