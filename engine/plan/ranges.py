"""What conditions say of a key that is looped over: bounds of a range of keys, cuts of a tree's order.

Comparisons are solved for the loop variable. Conditions on running sums along a tree are cuts of its order.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import gcd

from orderbook.engine.plan.steps import Cut
from orderbook.engine.plan.stores import layout_of
from orderbook.views.calculus import (
    MIRRORED,
    NEGATED,
    Apply,
    Cmp,
    Const,
    Factor,
    Lift,
    MapRef,
    Scalar,
    Val,
    Var,
    scalar_variables,
    substitute_scalar,
    variable_set,
)
from orderbook.views.conditions import NULL, linear_form
from orderbook.views.intervals import scalar_type
from orderbook.views.types import INT64_MAX, Type


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
    if form is None:
        return _solve_for_side(comparison, variable)
    if variable not in form[0]:
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


def _solve_for_side(comparison: Cmp, variable: Var) -> Bounds | None:
    """The bounds where one side is not linear, but does not depend on the variable."""
    op, own, other = comparison.op, comparison.left, comparison.right
    if variable in scalar_variables(other):
        op, own, other = MIRRORED[op], other, own
    if not isinstance(other, Apply) or variable in scalar_variables(other):
        return None
    side = Var("$side")
    bounds = _solve_exact(Cmp(op, own, side), variable)
    if bounds is None:
        return None
    low, high = (
        tuple(substitute_scalar(s, {side: other}) for s in ends) for ends in (bounds.low, bounds.high)
    )
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


def null_or_not(factor: Factor, variable: Var) -> Bounds | None:
    """The bounds of NULL, whose word is below all others, or of all other keys, where the factor says so."""
    match factor:
        case Val(Apply("not", (Apply("is_null", (inner,)),))) if inner == variable:
            return Bounds((Const(-INT64_MAX),))
        case Val(Apply("is_null", (inner,))) if inner == variable:
            return Bounds((NULL,), (NULL,))
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


def cut(
    comparison: Cmp,
    variable: Var,
    lifts: Mapping[Var, Lift],
    known: frozenset[Var],
    binders: frozenset[Var],
    types: Mapping[Var, Type],
    maps: Mapping[str, Type],
    keys: Mapping[str, tuple[Type, ...]],
) -> Cut | None:
    """The comparison as a cut of `variable`, where it compares running sums over it; else None.

    binders: what the term binds outside the sums, known yet or not; a sum runs over none of it.
    Sums of weights that are proved not to be negative rise along the order, so a linear comparison
    with one direction in all of them holds on one end of it.
    """
    if comparison.op in ("=", "<>") or not is_exact(comparison, types):
        return None
    form = linear_form(Apply("-", (comparison.left, comparison.right)))
    if form is None or variable in form[0]:
        return None
    running = [v for v in form[0] if v in lifts and variable in variable_set(lifts[v])]
    if not running or not all(v in known or v in running for v in form[0]):
        return None
    sums = [_running_sum(lifts[v], variable, known, binders, types, maps, keys) for v in running]
    first = sums[0]
    if first is None or any(s is None or s[1:] != first[1:] for s in sums):
        return None
    signs = {form[0][v] > 0 for v in running}
    if len(signs) != 1:
        return None
    holds_when_small = (comparison.op in ("<", "<=")) == signs.pop()
    _, prefix, position, descending, inclusive = first
    if any(layout_of(scalar_type(p, types)) not in "id" for p in prefix):
        return None
    named = tuple((v, s[0]) for v, s in zip(running, sums, strict=True) if s is not None)
    limit = _limit(comparison, named, holds_when_small, types, maps)
    return Cut(prefix, position, named, comparison, descending, inclusive, holds_when_small, limit)


def _limit(
    comparison: Cmp,
    sums: Sequence[tuple[Var, str]],
    leading: bool,
    types: Mapping[Var, Type],
    maps: Mapping[str, Type],
) -> Scalar | None:
    """The greatest value of the only sum for which a condition (not `leading`: its opposite) holds."""
    if len(sums) != 1:
        return None
    condition = comparison if leading else Cmp(NEGATED[comparison.op], comparison.left, comparison.right)
    ((variable, name),) = sums
    bounds = solve(condition, variable, {**types, variable: maps[name]})
    return None if bounds is None or bounds.low or len(bounds.high) != 1 else bounds.high[0]


RunningSum = tuple[str, tuple[Scalar, ...], int, bool, bool]


def _running_sum(
    lift: Lift,
    variable: Var,
    known: frozenset[Var],
    binders: frozenset[Var],
    types: Mapping[Var, Type],
    maps: Mapping[str, Type],
    keys: Mapping[str, tuple[Type, ...]],
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
    if len(local) != 1 or local[0] in binders:
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
    kind = keys[read.name][position]
    bounds = solve(condition, key, {**types, key: kind}) if kind.exact == types[variable].exact else None
    if bounds is None or len(bounds.low) + len(bounds.high) != 1:
        return None
    descending = bool(bounds.low)
    bound = (bounds.low or bounds.high)[0]
    word = variable if kind.exact else Apply("ordered_word", (variable,))
    strict = Apply("+", (word, Const(1 if descending else -1)))
    if bound == word:
        return read.name, prefix, position, descending, True
    return (read.name, prefix, position, descending, False) if bound == strict else None
