"""The entries of the numba executor's stores: copied out of one, and put into another.

What a store holds is written by a small module generated for its shape, through the store's own `add`, so
that every index of it is kept. Hashed stores are copied out block by block as they lie in memory, which
is many times quicker than a scan. A scan is in the order of hashes: entries put into another store in
that order fill one corner of its directory after the other, whose segments then grow instead of
splitting; in the order of memory they do not.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from orderbook.core.changes import NULL_CODE
from orderbook.core.generated_code import publish_text
from orderbook.engine.generate.expressions import ZERO
from orderbook.engine.maps.store_layout import WORDS, columns, width
from orderbook.engine.plan.steps import Directory, Store
from orderbook.engine.runtime.map_entries import Entries, MapColumn, MapRows, Match
from orderbook.views.types import Kind

COPY = '''\
"""Copies slabs of a hashed store as they lie, and takes the entries out of such copies."""

import numpy as np
from orderbook.engine.maps import hash_index
from orderbook.engine.maps.store_layout import (
    BLOCK_BYTES, CAPACITY, ENTRY_POOL, FREE, FRESH, GIVEN_BACK, LIVE, NEXT, SLAB, SLAB_COUNT,
    SLAB_HEADER_BYTES,
)
from orderbook.engine.maps.memory import load, memory_move
from orderbook.core.jit import jit


@jit(nogil=True)
def slab_count(H):
    """How many slabs hold the store's entries."""
    return hash_index.slab_count(H + 8 * ENTRY_POOL)


@jit(nogil=True)
def given_back(H):
    """How often slabs were given back."""
    return load(H + 8 * ENTRY_POOL, SLAB_COUNT) // GIVEN_BACK


@jit(nogil=True)
def form(H):
    """Bytes of an entry, and how many a slab has room for."""
    pool = H + 8 * ENTRY_POOL
    return load(pool, BLOCK_BYTES), load(pool, CAPACITY)


@jit(nogil=True)
def slabs(H, out):
    """The address of each slab to int64 out[n]."""
    slab = load(H + 8 * ENTRY_POOL, SLAB)
    for row in range(len(out)):
        out[row] = slab
        slab = load(slab, NEXT)


@jit(nogil=True)
def describe(addresses, out):
    """The address of each slab, how many entries it holds, and its bytes in use, to int64 out[n, 3]."""
    for row in range(len(out)):
        slab = int(addresses[row])
        out[row, 0] = slab
        out[row, 1] = load(slab, LIVE)
        out[row, 2] = load(slab, FRESH) - slab


@jit(nogil=True)
def take(places, copies):
    """Copies slabs, as `describe` tells of them, to these addresses."""
    for row in range(len(places)):
        memory_move(int(copies[row]), int(places[row, 0]), int(places[row, 2]))


@jit(nogil=True)
def standing(slab, copy, size, free):
    """Notes which blocks of a copied slab hold no entry; how many there are of both."""
    first = slab + SLAB_HEADER_BYTES
    count = (load(copy, FRESH) - first) // size
    free[:] = False
    block = load(copy, FREE)
    while block != 0:
        free[(block - first) // size] = True
        block = load(copy + (block - slab), 0)
    return count


@jit(nogil=True)
def entries(places, copies, size, capacity, out):
    """The entries of copied slabs to int64 out[n, words], the first `words` of each."""
    free = np.zeros(capacity, np.bool_)
    row = 0
    for slab in range(len(places)):
        copy = int(copies[slab])
        for number in range(standing(int(places[slab, 0]), copy, size, free)):
            if not free[number]:
                entry = copy + SLAB_HEADER_BYTES + size * number
                for word in range(out.shape[1]):
                    out[row, word] = load(entry, word)
                row += 1
'''
# Slabs copied in one piece: 64 KB each, together some tenths of a millisecond.
_PIECE = 12


@dataclass(frozen=True, slots=True)
class Slabs:
    """Slabs of a hashed store, copied as they lay.

    places: int64[n, 3], the address of each, its entries and its bytes. copies: int64[n], where its copy
    lies, in `memory`. size, capacity: bytes of an entry, and how many a slab has room for.
    """

    places: NDArray[np.int64]
    copies: NDArray[np.int64]
    memory: NDArray[np.uint8]
    size: int
    capacity: int

    def __len__(self) -> int:
        """How many entries there are."""
        return int(self.places[:, 1].sum())

    def entries(self, words: int) -> NDArray[np.int64]:
        """The first words of every entry: int64[n, words]; in any thread."""
        out = np.empty((len(self), words), np.int64)
        copy_module().entries(self.places, self.copies, self.size, self.capacity, out)
        return out


def copied(handle: int, words: int) -> NDArray[np.int64]:
    """The first words of every entry of a hashed store that has keys: int64[n, words]."""
    here = _slabs(handle)
    return Slabs(_described(here), here, _NO_ROOM, *copy_module().form(handle)).entries(words)


_NO_ROOM = np.empty(0, np.uint8)
NO_SLABS = Slabs(np.empty((0, 3), np.int64), np.empty(0, np.int64), _NO_ROOM, 1, 1)


class StoreCopy:
    """A copy of a hashed store that has keys, made in pieces while the store changes.

    taken: what was copied so far. Entries that are in the store from the beginning to the end are in it once;
    entries that came or went meanwhile may be there as they were at any time.
    """

    def __init__(self, handle: int, slabs: int | None = None, room: NDArray[np.uint8] = _NO_ROOM) -> None:
        """slabs: how many are copied in a piece, where not so many as take some tenths of a millisecond.

        room: memory for copies, where there is some.
        """
        self.taken: list[Slabs] = []
        self._handle, self._slabs, self._room = handle, slabs or _PIECE, room
        self._left, self._given_back = _slabs(handle), copy_module().given_back(handle)

    def piece(self) -> bool:
        """Copies a piece; whether it was the last."""
        if self._given_back != (given_back := copy_module().given_back(self._handle)):
            # Slabs may have gone since, with all that was in them.
            self._left = self._left[np.isin(self._left, _slabs(self._handle))]
            self._given_back = given_back
        now, self._left = self._left[: self._slabs], self._left[self._slabs :]
        self.taken.append(self._copied(_described(now)))
        return not len(self._left)

    def _copied(self, places: NDArray[np.int64]) -> Slabs:
        ends, size = np.cumsum(places[:, 2]), int(places[:, 2].sum())
        memory, self._room = self._room[:size], self._room[size:]
        if len(memory) < size:
            memory = np.empty(size, np.uint8)
        copies = memory.ctypes.data + ends - places[:, 2]
        copy_module().take(places, copies)
        return Slabs(places, copies, memory, *copy_module().form(self._handle))


def used(handle: int) -> tuple[int, int]:
    """Entries of a hashed store that has keys, and bytes of its slabs that are in use."""
    places = _described(_slabs(handle))
    return int(places[:, 1].sum()), int(places[:, 2].sum())


def _slabs(handle: int) -> NDArray[np.int64]:
    """The address of each slab: int64[slabs]."""
    out = np.empty(copy_module().slab_count(handle), np.int64)
    copy_module().slabs(handle, out)
    return out


def _described(slabs: NDArray[np.int64]) -> NDArray[np.int64]:
    """Address, entries and used bytes of each slab: int64[slabs, 3]."""
    out = np.empty((len(slabs), 3), np.int64)
    copy_module().describe(slabs, out)
    return out


@cache
def copy_module() -> ModuleType:
    """The compiled functions that copy."""
    return publish_text("copy", COPY)


HEAD = '''\
"""Adds entries of one column to a store."""

from orderbook.engine.maps.memory import load, load_double
from orderbook.engine.maps.wide_numbers import wide, words_to_wide
from orderbook.core.jit import jit
from {shape} import add


'''


def key_order(store: Store) -> tuple[int, ...]:
    """The places of a map's keys in the order that the store's functions take them."""
    return tuple(range(len(store.key_types))) if store.ordered is None else (*store.prefix, store.ordered)


def entries_of(shape: ModuleType, handle: int, store: Store, name: str) -> Entries:
    """The entries of one of the maps of a store."""
    held = rows_of_store(shape, handle, store)
    assert isinstance(held.rows, np.ndarray)
    return held.entries(held.maps[store.maps.index(name)], held.rows)


def rows_of_store(shape: ModuleType, handle: int, store: Store) -> MapRows:
    """The entries of all maps of a store, as it holds them."""
    rows, keys = _exported(shape, handle, store), key_order(store)
    if store.ordered is not None:
        rows[:, len(keys) - 1] = _tree_words(rows[:, len(keys) - 1], store)
    maps = [
        MapColumn(name, len(keys) + column.offset, WORDS[column.kind], column.kind == "d")
        for name, column in zip(store.maps, columns(store.layout), strict=False)
    ]
    return MapRows(rows, tuple(keys.index(i) for i in range(len(keys))), tuple(maps))


def keys_of(shape: ModuleType, handle: int, store: Store) -> NDArray[np.int64]:
    """The keys of all entries of a store, int64[n, k]."""
    held = rows_of_store(shape, handle, store)
    return held.rows[:][:, list(held.keys)]


def _exported(shape: ModuleType, handle: int, store: Store) -> NDArray[np.int64]:
    words = len(store.key_types) + width(store.layout)
    if store.ordered is None and store.key_types:
        return copied(handle, words)
    out = np.empty((shape.size(handle), words), np.int64)
    shape.export(handle, out.ctypes.data, len(out))
    return out


def _tree_words(words: NDArray[np.int64], store: Store) -> NDArray[np.int64]:
    """The words of a tree's ordered key from those of the key, or back; see engine/generate/support.py."""
    assert store.ordered is not None
    if store.key_types[store.ordered].kind is not Kind.DOUBLE:
        return words
    return np.where((words >= 0) | (words == NULL_CODE), words, words ^ np.int64(2**63 - 1))


def counted(keys: NDArray[np.int64], positions: Sequence[int]) -> Entries:
    """How many of the keys, int64[n, k], agree in the columns at `positions`, for each binding of those."""
    parts = np.ascontiguousarray(keys[:, list(positions)])
    if not positions:
        found, counts = parts[:1], np.array([len(parts)][: len(parts)])
    else:
        found, counts = np.unique(parts, axis=0, return_counts=True)
    words = np.zeros((len(found), 2), np.int64)
    words[:, 0] = counts
    return Entries(found, words)


def fill_store(shape: ModuleType, handle: int, store: Store, maps: Mapping[str, Entries]) -> None:
    """Replaces what a store holds by the entries of its maps; those not given are empty."""
    shape.clear(handle)
    add_entries(shape, handle, store, maps)


def add_entries(shape: ModuleType, handle: int, store: Store, maps: Mapping[str, Entries]) -> None:
    """Adds entries to those of a store's maps, which have none at these keys."""
    module = _fill_module(shape.__name__, len(store.key_types), store.layout, len(store.maps))
    order = list(key_order(store))
    # An entry is there while an exact column holds something, so those come first.
    for column in sorted(columns(store.layout)[: len(store.maps)], key=lambda c: c.kind == "d"):
        entries = maps.get(store.maps[column.number])
        if entries is None or not len(entries):
            continue
        keys = np.ascontiguousarray(entries.keys[:, order], np.int64)
        if store.ordered is not None:
            keys[:, -1] = _tree_words(keys[:, -1], store)
        words = np.ascontiguousarray(entries.words, np.int64)
        fill = getattr(module, f"fill_{column.number}")
        fill(handle, len(words), keys.ctypes.data, words.ctypes.data, words.shape[1])


def is_moved(own: Store, other: Store, matches: Mapping[str, Match]) -> bool:
    """Whether another program's store holds just what this one is to hold, in the same form."""
    if len(own.maps) != len(other.maps):
        return False
    same = tuple(range(len(own.key_types)))
    alike = all(
        (match := matches.get(name)) is not None and match.name == theirs and match.places == same
        for name, theirs in zip(own.maps, other.maps, strict=True)
    )
    return alike and replace(own, name="", maps=(), key_types=()) == replace(
        other, name="", maps=(), key_types=()
    )


def same_directory(own: Directory, others: Sequence[Directory], matches: Mapping[str, Match]) -> Match | None:
    """The directory of another plan that counts the same entries by the same keys in the same order."""
    source = matches.get(own.source)
    if source is None:
        return None
    positions = tuple(source.places[p] for p in own.positions)
    alike = [o.name for o in others if (o.source, o.positions) == (source.name, positions)]
    return Match(alike[0], tuple(range(len(positions)))) if alike else None


def _fill_module(shape: str, keys: int, layout: str, maps: int) -> ModuleType:
    """The module that fills stores of a shape, one function for the column of each of the maps."""
    lines = [HEAD.format(shape=shape)]
    deltas = [ZERO[kind] for kind in layout]

    def add(column: int, value: str, presence: str) -> str:
        """The call that adds to one column; doubles alone have one more, which says that they are there."""
        own = [*deltas[:maps], *([presence] if len(deltas) > maps else [])]
        own[column] = value
        return f"add({', '.join(['H', *(f'load(keys, {i})' for i in range(keys)), *own])})"

    for column in columns(layout)[:maps]:
        lines += ["@jit()", f"def fill_{column.number}(H, rows, keys, words, parts):"]
        lines += [f'    """Adds rows of keys, and of so many words of column {column.number} each."""']
        lines += ["    for _ in range(rows):"]
        if column.kind == "d":
            # One part after the other: their sum stays exact.
            lines.append(f"        {add(column.number, 'load_double(words, 0)', '1')}")
            lines.append("        for part in range(1, parts):")
            lines.append("            if load_double(words, part) != 0.0:")
            lines.append(f"                {add(column.number, 'load_double(words, part)', '0')}")
        else:
            low, high = (f"load(words, {part})" for part in (0, 1))
            value = low if column.kind == "i" else f"words_to_wide({low}, {high})"
            lines.append(f"        {add(column.number, value, '0')}")
        lines += [f"        keys += {8 * keys}", "        words += 8 * parts", "", ""]
    return publish_text("fill", "\n".join(lines))
