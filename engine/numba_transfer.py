"""The entries of the numba executor's stores, out of one and into another.

What a store holds is written by a small module generated for its shape, through the store's own `add`,
so that every index of it is kept.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import ModuleType

import numpy as np

from views.compiler.types import Kind

from .changes import NULL_CODE
from .generate.typed_code import ZERO
from .hashed_copy import copied
from .map_entries import Entries, MapColumn, MapRows
from .map_matching import Match
from .maps.cache import publish_text
from .maps.columns import WORDS, columns, width
from .plan.steps import Directory, Store

HEAD = '''\
"""Adds entries of one column to a store."""

from engine.maps.int128 import wide, words_to_wide
from orderbook.jit import jit
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


def keys_of(shape: ModuleType, handle: int, store: Store) -> np.ndarray:
    """The keys of all entries of a store, int64[n, k]."""
    held = rows_of_store(shape, handle, store)
    return held.rows[:][:, list(held.keys)]


def _exported(shape: ModuleType, handle: int, store: Store) -> np.ndarray:
    words = len(store.key_types) + width(store.layout)
    if store.ordered is None and store.key_types:
        return copied(shape, handle, words)
    out = np.empty((shape.size(handle), words), np.int64)
    shape.export(handle, out)
    return out


def _tree_words(words: np.ndarray, store: Store) -> np.ndarray:
    """The words of a tree's ordered key from those of the key, or back; see generate/order.py."""
    assert store.ordered is not None
    if store.key_types[store.ordered].kind is not Kind.DOUBLE:
        return words
    return np.where((words >= 0) | (words == NULL_CODE), words, words ^ np.int64(2**63 - 1))


def counted(keys: np.ndarray, positions: Sequence[int]) -> Entries:
    """How many of the keys agree in the columns at `positions`, for each binding of those."""
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
        keys = np.ascontiguousarray(entries.keys[:, order])
        if store.ordered is not None:
            keys[:, -1] = _tree_words(keys[:, -1], store)
        words = np.ascontiguousarray(entries.words)
        values = words.view(np.float64) if column.kind == "d" else words
        getattr(module, f"fill_{column.number}")(handle, keys, values)


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
        return f"add({', '.join(['H', *(f'int(keys[row, {i}])' for i in range(keys)), *own])})"

    for column in columns(layout)[:maps]:
        lines += ["@jit()", f"def fill_{column.number}(H, keys, words):"]
        lines += [f'    """Adds entries of column {column.number}."""', "    for row in range(len(keys)):"]
        if column.kind == "d":
            # One part after the other: their sum stays exact.
            lines.append(f"        {add(column.number, 'words[row, 0]', '1')}")
            lines.append("        for part in range(1, words.shape[1]):")
            lines.append("            if words[row, part] != 0.0:")
            lines.append(f"                {add(column.number, 'words[row, part]', '0')}")
        else:
            low, high = (f"words[row, {part}]" for part in (0, 1))
            value = f"int({low})" if column.kind == "i" else f"words_to_wide({low}, {high})"
            lines.append(f"        {add(column.number, value, '0')}")
        lines += ["", ""]
    return publish_text("fill", "\n".join(lines))
