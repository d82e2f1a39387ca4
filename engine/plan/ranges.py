"""Solves comparisons for a loop variable: bounds of a range of its keys."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import gcd

from views.compiler.calculus import MIRRORED, Apply, Cmp, Const, Factor, Scalar, Val, Var, scalar_variables
from views.compiler.intervals import scalar_type
from views.compiler.rewriting.linear import linear_form
from views.compiler.types import INT64_MAX, Kind, Type


@dataclass(frozen=True, slots=True)
class Bounds:
    low: tuple[Scalar, ...] = ()
    high: tuple[Scalar, ...] = ()

    def __add__(self, other: "Bounds") -> "Bounds":
        return Bounds(self.low + other.low, self.high + other.high)


def solve(comparison: Cmp, variable: Var, types: Mapping[Var, Type]) -> Bounds | None:
    """The bounds, inclusive, that a comparison sets on the key words of `variable`; None if it sets none."""
    if comparison.op == "<>":
        return None
    return (
        _solve_exact(comparison, variable)
        if is_exact(comparison, types)
        else _solve_double(comparison, variable, types)
    )


def is_exact(comparison: Cmp, types: Mapping[Var, Type]) -> bool:
    return all(scalar_type(s, types).exact for s in (comparison.left, comparison.right))


def _solve_exact(comparison: Cmp, variable: Var) -> Bounds | None:
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


def _solve_double(comparison: Cmp, variable: Var, types: Mapping[Var, Type]) -> Bounds | None:
    """A key compared, as it is or as a double, with a double that does not depend on it.

    Doubles are ordered as the words that trees keep for them. The conversion of exact keys never
    falls as the key rises, so that one key is the last whose double is below, or not above, a bound.
    """
    op, own, other = comparison.op, comparison.left, comparison.right
    if variable in scalar_variables(other):
        op, own, other = MIRRORED[op], other, own
    if variable in scalar_variables(other):
        return None
    scale: Scalar = Const(0)
    match own:
        case Apply("double", (inner, scale)):
            own = inner
    if own != variable:
        return None
    if types[variable].exact:
        below: Scalar = Apply("last_below", (other, scale))
        at_most: Scalar = Apply("last_at_most", (other, scale))
    else:
        at_most = Apply("ordered_word", (other,))
        below = _plus(at_most, -1)
    low = (_plus(at_most if op == ">" else below, 1),) if op in ("=", ">", ">=") else ()
    high = (below if op == "<" else at_most,) if op in ("=", "<", "<=") else ()
    return Bounds(low, high)


def not_null(factor: Factor, variable: Var) -> Bounds | None:
    """The bounds of all keys but NULL, whose word is below all others, where the factor says so."""
    match factor:
        case Val(Apply("not", (Apply("is_null", (inner,)),))) if inner == variable:
            return Bounds((Const(-INT64_MAX),))
    return None


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
    return scalar if divisor == 1 else Apply("floor_div", (scalar, Const(divisor)))


def unbound(keys: Sequence[Scalar], known: frozenset[Var]) -> list[Var]:
    """The variables among keys that are not known, each once."""
    return list(dict.fromkeys(k for k in keys if isinstance(k, Var) and k not in known))


def is_ordered(kind: Type) -> bool:
    """Whether a key of this type can order a tree: its words are in the order of its values."""
    return kind.kind is not Kind.TEXT
