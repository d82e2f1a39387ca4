"""Solves comparisons for a loop variable: bounds of a range, and cuts of running sums."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import gcd

from views.compiler.calculus import (
    MIRRORED,
    Apply,
    Cmp,
    Const,
    Factor,
    Lift,
    MapRef,
    Scalar,
    Var,
    scalar_variables,
    variable_set,
)
from views.compiler.simplify import linear_form
from views.compiler.types import Kind, Type

from .steps import Cut


@dataclass(frozen=True, slots=True)
class Bounds:
    low: tuple[Scalar, ...] = ()
    high: tuple[Scalar, ...] = ()

    def __add__(self, other: "Bounds") -> "Bounds":
        return Bounds(self.low + other.low, self.high + other.high)


def solve(comparison: Cmp, variable: Var, types: Mapping[Var, Type]) -> Bounds | None:
    """The bounds, inclusive, that an exact linear comparison sets on `variable`; None if it sets none."""
    if comparison.op == "<>" or not _exact(comparison, types):
        return None
    form = linear_form(Apply("-", (comparison.left, comparison.right)))
    if form is None or variable not in form[0]:
        return None
    coefficients, constant = form
    coefficient = coefficients[variable]
    op = comparison.op if coefficient > 0 else MIRRORED[comparison.op]
    # variable * divisor  op  rest + constant; strict ends move before common factors are divided out.
    sign = -1 if coefficient > 0 else 1
    rest = {v: sign * c for v, c in coefficients.items() if v != variable}
    common = gcd(coefficient, *rest.values())
    divisor = abs(coefficient) // common
    rest, constant = {v: c // common for v, c in rest.items()}, sign * constant
    low: tuple[Scalar, ...] = ()
    high: tuple[Scalar, ...] = ()
    if op in ("=", ">=", ">"):
        least = -(-(constant + (op == ">")) // common)
        low = (_floor(_linear(rest, least + divisor - 1), divisor),)
    if op in ("=", "<=", "<"):
        high = (_floor(_linear(rest, (constant - (op == "<")) // common), divisor),)
    return Bounds(low, high)


def _exact(comparison: Cmp, types: Mapping[Var, Type]) -> bool:
    return all(types[v].exact for s in (comparison.left, comparison.right) for v in scalar_variables(s))


def _linear(coefficients: Mapping[Var, int], constant: int) -> Scalar:
    result: Scalar | None = None
    for variable, coefficient in coefficients.items():
        part: Scalar = variable if abs(coefficient) == 1 else Apply("*", (Const(abs(coefficient)), variable))
        if result is None:
            result = part if coefficient > 0 else Apply("neg", (part,))
        else:
            result = Apply("+" if coefficient > 0 else "-", (result, part))
    return Const(constant) if result is None else _plus(result, constant)


def _plus(scalar: Scalar, constant: int) -> Scalar:
    if isinstance(scalar, Const) and isinstance(scalar.value, int):
        return Const(scalar.value + constant)
    match scalar:
        case Apply("+", (inner, Const(int() as value))):
            return _plus(inner, value + constant)
    return scalar if constant == 0 else Apply("+", (scalar, Const(constant)))


def _floor(scalar: Scalar, divisor: int) -> Scalar:
    return scalar if divisor == 1 else Apply("floor_divide", (scalar, Const(divisor)))


def cut(
    comparison: Cmp,
    variable: Var,
    lifts: Mapping[Var, Lift],
    known: frozenset[Var],
    types: Mapping[Var, Type],
    maps: Mapping[str, Type],
) -> Cut | None:
    """The comparison as a cut of `variable`, where it compares running sums over it; else None.

    Sums of weights that are proved not to be negative rise along the order, so a linear comparison
    with one direction in all of them holds on one end of it.
    """
    if comparison.op in ("=", "<>") or not _exact(comparison, types):
        return None
    form = linear_form(Apply("-", (comparison.left, comparison.right)))
    if form is None or variable in form[0]:
        return None
    running = [v for v in form[0] if v in lifts and variable in variable_set(lifts[v])]
    if not running or not all(v in known or v in running for v in form[0]):
        return None
    sums = [_running_sum(lifts[v], variable, known, types, maps) for v in running]
    first = sums[0]
    if first is None or any(s is None or s[1:] != first[1:] for s in sums):
        return None
    signs = {form[0][v] > 0 for v in running}
    if len(signs) != 1:
        return None
    holds_when_small = (comparison.op in ("<", "<=")) == signs.pop()
    _, prefix, position, descending, inclusive = first
    named = tuple((v, s[0]) for v, s in zip(running, sums, strict=True) if s is not None)
    return Cut(prefix, position, named, comparison, descending, inclusive, holds_when_small)


RunningSum = tuple[str, tuple[Scalar, ...], int, bool, bool]


def _running_sum(
    lift: Lift, variable: Var, known: frozenset[Var], types: Mapping[Var, Type], maps: Mapping[str, Type]
) -> RunningSum | None:
    """(map, prefix, position, descending, inclusive) of `m[prefix, q] * {q op variable}`, or None."""
    if len(lift.body.terms) != 1:
        return None
    reads = [f for f in lift.body.terms[0] if isinstance(f, MapRef)]
    conditions: list[Factor] = [f for f in lift.body.terms[0] if not isinstance(f, MapRef)]
    if len(reads) != 1 or len(conditions) != 1 or not isinstance(conditions[0], Cmp):
        return None
    read, condition = reads[0], conditions[0]
    local = [k for k in read.keys if isinstance(k, Var) and k not in known and k != variable]
    if len(local) != 1:
        return None
    key = local[0]
    if (
        read.keys.count(key) != 1
        or variable in read.keys
        or maps[read.name].low < 0
        or not maps[read.name].exact
    ):
        return None
    prefix, position = tuple(k for k in read.keys if k != key), read.keys.index(key)
    bounds = solve(condition, key, {**types, key: types[variable]})
    if bounds is None or len(bounds.low) + len(bounds.high) != 1:
        return None
    descending = bool(bounds.low)
    bound = (bounds.low or bounds.high)[0]
    strict = Apply("+", (variable, Const(1 if descending else -1)))
    if bound == variable:
        return read.name, prefix, position, descending, True
    return (read.name, prefix, position, descending, False) if bound == strict else None


def unbound(keys: Sequence[Scalar], known: frozenset[Var]) -> list[Var]:
    """The variables among keys that are not known, each once."""
    return list(dict.fromkeys(k for k in keys if isinstance(k, Var) and k not in known))


def is_ordered(kind: Type) -> bool:
    """Whether a key of this type can order a tree: its integers are in the order of its values."""
    return kind.kind in (Kind.INTEGER, Kind.DECIMAL, Kind.TIMESTAMP, Kind.BOOLEAN)
