"""Plain Python models of the map library's stores, and wrappers that pass wide values as words."""

from collections.abc import Callable
from fractions import Fraction
from functools import cache
from types import ModuleType
from typing import Any, NamedTuple

from numba import njit
from numba.core import config

from orderbook.engine.maps.shapes import hashed, ordered
from orderbook.engine.maps.wide_numbers import words_to_wide

NO_JIT = bool(config.DISABLE_JIT)
ALL_KINDS = "iwWd"


def halves(value: int) -> tuple[int, int]:
    low = value % 2**64
    return low - 2**64 if low >= 2**63 else low, value >> 64


def words_of(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """(i, w, W, d) as the arguments of the wrappers below."""
    i, w, checked, double = values
    return i, *halves(w), *halves(checked), double


class Wrapped(NamedTuple):
    """A store of all kinds of values, and what changes it, as compiled functions of words."""

    shape: ModuleType
    add: Callable[..., Any]
    assign: Callable[..., Any]


# Made when a test asks: with an empty cache a store takes seconds, and every worker collects this file.
@cache
def hashed_of_all_kinds() -> Wrapped:
    shape = hashed(2, ALL_KINDS)

    @njit
    def add(H: int, k0: int, k1: int, i: int, wl: int, wh: int, cl: int, ch: int, d: float) -> int:
        return shape.add(H, k0, k1, i, words_to_wide(wl, wh), words_to_wide(cl, ch), d)

    @njit
    def assign(H: int, k0: int, k1: int, i: int, wl: int, wh: int, cl: int, ch: int, d: float) -> int:
        return shape.assign(H, k0, k1, i, words_to_wide(wl, wh), words_to_wide(cl, ch), d)

    return Wrapped(shape, add, assign)


@cache
def ordered_of_all_kinds() -> Wrapped:
    shape = ordered(1, ALL_KINDS, 8)

    @njit
    def add(H: int, p0: int, key: int, i: int, wl: int, wh: int, cl: int, ch: int, d: float) -> None:
        shape.add(H, p0, key, i, words_to_wide(wl, wh), words_to_wide(cl, ch), d)

    @njit
    def assign(H: int, p0: int, key: int, i: int, wl: int, wh: int, cl: int, ch: int, d: float) -> None:
        shape.assign(H, p0, key, i, words_to_wide(wl, wh), words_to_wide(cl, ch), d)

    return Wrapped(shape, add, assign)


class Model:
    """key tuple -> exact values; an entry is there while an exact column (all but `d`) is not zero."""

    def __init__(self, layout: str) -> None:
        self.layout = layout
        self.entries: dict[tuple[int, ...], tuple[Any, ...]] = {}

    @property
    def zero(self) -> tuple[Any, ...]:
        return tuple(Fraction(0) if kind == "d" else 0 for kind in self.layout)

    def get(self, key: tuple[int, ...]) -> tuple[Any, ...]:
        return self.entries.get(key, self.zero)

    def assign(self, key: tuple[int, ...], values: tuple[Any, ...]) -> None:
        if any(v for v, kind in zip(values, self.layout, strict=True) if kind != "d"):
            self.entries[key] = tuple(
                Fraction(v) if k == "d" else v for v, k in zip(values, self.layout, strict=True)
            )
        else:
            self.entries.pop(key, None)

    def add(self, key: tuple[int, ...], deltas: tuple[Any, ...]) -> None:
        exact = (Fraction(d) if kind == "d" else d for d, kind in zip(deltas, self.layout, strict=True))
        self.assign(key, tuple(a + b for a, b in zip(self.get(key), exact, strict=True)))

    def total(self, keys: list[tuple[int, ...]]) -> tuple[Any, ...]:
        sums = self.zero
        for key in keys:
            sums = tuple(a + b for a, b in zip(sums, self.entries[key], strict=True))
        return sums
