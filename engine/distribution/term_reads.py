"""Which map entries a product reads, with its variables named alike where they are equal.

A nested polynomial sees what its product binds, so one variable is the same value at any depth.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Union

from views.compiler.calculus import (
    Apply,
    Cmp,
    Const,
    Exists,
    Extreme,
    Lift,
    MapRef,
    Poly,
    Scalar,
    Term,
    Val,
    Var,
    map_scalar,
    scalar_variables,
    scalars_of,
    substitute,
)


@dataclass(frozen=True, slots=True)
class Read:
    """A read of a map; equal keys of one product are equal scalars here."""

    map: str
    keys: tuple[Scalar, ...]


# Without an entry that a guard reads the product is 0. A nested one is as many lists of guards as the nested
# polynomial has terms: one of each list must be read.
Guard = Union[Read, tuple[tuple["Guard", ...], ...]]


@dataclass(frozen=True, slots=True)
class TermReads:
    """The reads of one product at any depth, its guards, and the target's keys in the same names."""

    term: Term
    reads: tuple[Read, ...]
    guards: tuple[Guard, ...]
    keys: tuple[Scalar, ...]


def term_reads(term: Term, keys: Iterable[Scalar], parameters: Iterable[Var]) -> TermReads:
    """The reads of a product of a statement with these keys; a parameter names what equals it."""
    names = _Names(frozenset(parameters))
    reads: list[Read] = []
    guards = _gathered(term, names, reads)
    return TermReads(term, tuple(reads), guards, tuple(names.of(k) for k in keys))


def satisfied(guard: Guard, value: Scalar, held: Mapping[str, int | None]) -> bool:
    """Whether the guard's entries are only in the partition of `value`; `held`: by which key maps are."""
    if isinstance(guard, Read):
        place = held.get(guard.map)
        return place is not None and guard.keys[place] == value
    return all(any(satisfied(g, value, held) for g in guards) for guards in guard)


class _Names:
    """Equal scalars, each with one that stands for it: a parameter, else a constant, else the outermost."""

    def __init__(self, parameters: frozenset[Var], outer: "_Names | None" = None):
        self._parameters = parameters
        self._standing: dict[Scalar, Scalar] = dict(outer._standing) if outer else {}
        self._depths: dict[Var, int] = dict(outer._depths) if outer else {}
        self._depth: int = outer._depth + 1 if outer else 0
        self._numbers: count[int] = outer._numbers if outer else count()

    def inner(self) -> "_Names":
        return _Names(self._parameters, self)

    def fresh(self, variable: Var) -> Var:
        return Var(f"{variable.name} within {next(self._numbers)}")

    def of(self, scalar: Scalar) -> Scalar:
        return map_scalar(scalar, self._one)

    def _one(self, scalar: Scalar) -> Scalar:
        while scalar in self._standing:
            scalar = self._standing[scalar]
        return scalar

    def see(self, scalar: Scalar) -> None:
        for variable in scalar_variables(scalar):
            self._depths.setdefault(variable, self._depth)

    def equal(self, left: Scalar, right: Scalar) -> None:
        left, right = self.of(left), self.of(right)
        if left != right:
            first, second = sorted((left, right), key=self._rank)
            self._standing[second] = first

    def _rank(self, scalar: Scalar) -> tuple[int, int]:
        if isinstance(scalar, Var):
            return (0 if scalar in self._parameters else 2), self._depths.get(scalar, self._depth)
        return (1 if isinstance(scalar, Const) else 3), 0


def _gathered(term: Term, names: _Names, reads: list[Read]) -> tuple[Guard, ...]:
    """Adds the reads of a product; its guards."""
    for factor in term:
        for scalar in scalars_of(factor):
            names.see(scalar)
    for factor in term:
        match factor:
            case Lift(variable, Poly(((Val(scalar),),))):
                names.equal(variable, scalar)
            case Cmp("=", left, right) if not isinstance(left, Apply) and not isinstance(right, Apply):
                names.equal(left, right)
    guards: list[Guard] = []
    for factor in term:
        match factor:
            case MapRef(name, keys):
                read = Read(name, tuple(names.of(k) for k in keys))
                reads.append(read)
                guards.append(read)
            case Lift(_, body):
                _nested(body, names, reads)
            case Exists(_, body):
                guards.append(_nested(body, names, reads))
            case Extreme(_, _, value, body):
                guards.append(_nested(substitute(body, {value: names.fresh(value)}), names, reads))
    return tuple(guards)


def _nested(body: Poly, names: _Names, reads: list[Read]) -> Guard:
    return tuple(_gathered(t, names.inner(), reads) for t in body.terms)
