"""What a limit on a running sum in several places of an order says of the sum in the first of them.

`{n < 5}`, n the rows before the row at hand by price and then by id, leaves no rows that an order by price
finds: n does not rise along it. But the rows before it by price alone are no more, and their number does.
So `{m < 5}` with m that number stands beside it, and a cut in the order by price leaves few rows to look at.
"""

from collections.abc import Iterator, Mapping

from orderbook.views.calculus import (
    CONDITIONS,
    MIRRORED,
    NESTED,
    Apply,
    Cmp,
    Exists,
    Factor,
    Lift,
    Poly,
    Rel,
    Term,
    Val,
    Var,
    bound_by,
    substitute,
    substitute_term,
    variable_set,
    with_body,
)
from orderbook.views.conditions import linear_form
from orderbook.views.intervals import Types, row_types, sum_type
from orderbook.views.names import apart_from, bound_in, rows_form, used_outside
from orderbook.views.running_sums import linear
from orderbook.views.types import Relation, Type


def with_leading_limits(
    poly: Poly, bound: frozenset[Var], types: Mapping[Var, Type], relations: Mapping[str, Relation]
) -> Poly:
    """The polynomial with what its limits on running sums imply, at any depth.

    bound: what is known from outside. types: those of variables that no relation binds.
    """
    found = Types({**types, **row_types(poly, relations)})
    return Poly(tuple(_with_limits(t, bound, found, relations) for t in poly.terms))


def _with_limits(term: Term, around: frozenset[Var], types: Types, relations: Mapping[str, Relation]) -> Term:
    inside = around | used_outside(term)
    inner = tuple(
        with_body(f, Poly(tuple(_with_limits(t, inside, types, relations) for t in f.body.terms)))
        if isinstance(f, NESTED)
        else f
        for f in term
    )
    sums = {f.var: i for i, f in enumerate(inner) if isinstance(f, Lift) and len(f.body.terms) > 1}
    for factor in inner if sums else ():
        for variable, limit in limits_from_above(factor) if isinstance(factor, Cmp) else ():
            if variable in sums:
                inner = _with_limit(inner, around, sums[variable], limit, types, relations)
    return inner


# A linear form with the sum in it once, the constant, and what holds of both together and 0: < or <=.
Limit = tuple[Mapping[Var, int], int, str]


def limits_from_above(condition: Cmp) -> Iterator[tuple[Var, Limit]]:
    """The variables that the comparison sets a limit to from above."""
    form, constant = linear_form(Apply("-", (condition.left, condition.right))) or ({}, 0)
    ops = {"=": ("<=", ">="), "<>": ()}.get(condition.op, (condition.op,))
    for op in ops:
        sign = 1 if op.startswith("<") else -1
        upper = op if sign > 0 else MIRRORED[op]
        for variable, coefficient in form.items():
            if coefficient * sign > 0:
                yield variable, ({v: c * sign for v, c in form.items()}, constant * sign, upper)


def _with_limit(
    term: Term,
    around: frozenset[Var],
    index: int,
    limit: Limit,
    types: Types,
    relations: Mapping[str, Relation],
) -> Term:
    """The term with the limit on the first place of the running sum at `index`, unless it has that."""
    running = term[index]
    assert isinstance(running, Lift)
    form, constant, op = limit
    rest = {v: c for v, c in form.items() if v != running.var}
    first, ties = _by_place(running.body, used_outside(term, index))
    if not first or not ties or not _never_negative(Poly(ties), types, relations):
        return term
    leading = Poly(first)
    alike = rows_form(term, index, leading)
    if any(isinstance(f, Lift) and rows_form(term, i, f.body) == alike for i, f in enumerate(term)):
        return term
    own = next((w for w in rest if rest[w] == -form[running.var] and _counts(ties, term, w)), None)
    rest.pop(own, None)  # type: ignore[arg-type]
    rows = frozenset(v for f in term if isinstance(f, Rel | Exists) for v in bound_by(f))
    if rows & rest.keys():
        return term
    outer = (around | used_outside(term, index)) - {running.var}
    names = apart_from((*(variable_set(leading) - outer), Var("leading")), variable_set(term))
    variable = names.pop(Var("leading"))
    lift = Lift(variable, substitute(leading, names))
    return (*term, lift, linear({variable: form[running.var], **rest}, op, constant))


def _by_place(body: Poly, outer: frozenset[Var]) -> tuple[tuple[Term, ...], tuple[Term, ...]]:
    """The terms of rows that differ in the first place of an order, and of those that agree there."""
    best: tuple[tuple[Term, ...], tuple[Term, ...]] = (), ()
    compared = (f for t in body.terms for f in t if isinstance(f, Cmp) and f.op not in ("=", "<>"))
    for place in dict.fromkeys(s for f in compared for s in (f.left, f.right) if s in outer):
        ties = tuple(t for t in body.terms if place in bound_in(t))
        if len(ties) > len(best[1]):
            best = tuple(t for t in body.terms if t not in ties), ties
    return best


def _never_negative(body: Poly, types: Types, relations: Mapping[str, Relation]) -> bool:
    try:
        kind = sum_type(body, Types({**types, **row_types(body, relations)}), relations)
    except KeyError:  # Of the maintenance's own variables no types are known.
        return False
    return kind.exact and kind.low >= 0


def _counts(ties: tuple[Term, ...], term: Term, weight: Var) -> bool:
    """Whether the row at hand is one of those that agree with it, and counts as much as its `weight`."""
    for tie in ties:
        rows = [f for f in tie if isinstance(f, Rel)]
        for there in (f for f in term if isinstance(f, Rel) and [f.name] == [r.name for r in rows]):
            pairs = zip(rows[0].args, there.args, strict=True)
            names = {own: at for own, at in pairs if isinstance(own, Var) and own != at}
            at_hand = substitute_term(tie, names)
            said = [f for f in at_hand if f not in term and not _holds(f)]
            if there in at_hand and said in ([], [Val(weight)]) and _values(at_hand) == [Val(weight)]:
                return True
    return False


def _values(term: Term) -> list[Val]:
    """What rows are weighed with."""
    return [
        f
        for f in term
        if isinstance(f, Val) and not (isinstance(f.scalar, Apply) and f.scalar.op in CONDITIONS)
    ]


def _holds(factor: Factor) -> bool:
    return isinstance(factor, Cmp) and factor.left == factor.right and factor.op in ("=", "<=", ">=")
