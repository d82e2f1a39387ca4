"""Conditions on running sums along a tree, as cuts of its order."""

from collections.abc import Mapping, Sequence

from views.compiler.calculus import (
    NEGATED,
    Apply,
    Cmp,
    Const,
    Factor,
    Lift,
    MapRef,
    Scalar,
    Var,
    variable_set,
)
from views.compiler.intervals import scalar_type
from views.compiler.rewriting.linear import linear_form
from views.compiler.types import Type

from .ranges import is_exact, solve
from .steps import Cut
from .stores import layout_of


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
