"""Values of more than 64 bits as several words of 62 bits, the lowest first, the last of which has the sign.

Rows have a word for each column, so that what is wider travels so: their sum, each with its weight, is the
value again.
"""

from collections.abc import Sequence
from dataclasses import replace

from orderbook.views.calculus import Apply, Const, Scalar
from orderbook.views.types import INT64_MAX, INT128_MAX, Kind, Type

BITS = 62


def words_of(kind: Type) -> int:
    """In how many words a value of a type travels."""
    return 1 if kind.kind is Kind.DOUBLE else len(_bounds(kind))


def _bounds(kind: Type) -> list[int]:
    """The largest magnitude of the value, and of what is left of it above each word but the last."""
    found = [min(max(abs(kind.low), abs(kind.high)), INT128_MAX)]
    while found[-1] > INT64_MAX:
        found.append((found[-1] >> BITS) + 1)
    return found


def word_types(kind: Type) -> list[Type]:
    """The types of the words, of the value's kind and scale; of one word its own."""
    bounds = [] if kind.kind is Kind.DOUBLE else _bounds(kind)
    if len(bounds) < 2:
        return [kind]
    low, most = replace(kind, low=0, high=(1 << BITS) - 1), bounds[-1]
    return [*(low for _ in bounds[1:]), replace(kind, low=-most if kind.low < 0 else 0, high=most)]


def word_scalars(value: Scalar, kind: Type) -> list[Scalar]:
    """The words of a value of a type."""
    rest, weight = value, Const(1 << BITS)
    found: list[Scalar] = []
    for _ in range(words_of(kind) - 1):
        above = Apply("floor_div", (rest, weight))
        found.append(Apply("-", (rest, Apply("*", (above, weight)))))
        rest = above
    return [*found, rest]


def value_of_words(words: Sequence[Scalar]) -> Scalar:
    """The value that words are."""
    found = words[-1]
    for word in reversed(words[:-1]):
        found = Apply("+", (Apply("*", (found, Const(1 << BITS))), word))
    return found
