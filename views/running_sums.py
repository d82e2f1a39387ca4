"""Rules for sums that run along an order: with and without what lies at their end."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import permutations

from orderbook.views.calculus import (
    Apply,
    Cmp,
    Const,
    Factor,
    Lift,
    Poly,
    Scalar,
    Term,
    Val,
    Var,
    scalars_of,
    substitute_term,
    variable_set,
    with_scalars,
)
from orderbook.views.conditions import linear_form, not_null
from orderbook.views.names import bound_in, rows_form


def cancel(term: Term, keep: frozenset[Var]) -> list[Term] | None:
    """A linear comparison without the variables that its sides have alike: {x < y + x} is {-y < 0}."""
    for i, factor in enumerate(term):
        if not isinstance(factor, Cmp):
            continue
        form, constant = linear_form(Apply("-", (factor.left, factor.right))) or (None, 0)
        if form is None or len(form) == len(variable_set(factor)):
            continue
        return [(*term[:i], linear(form, factor.op, constant), *term[i + 1 :])]
    return None


def linear(form: Mapping[Var, int], op: str, constant: int) -> Cmp:
    """The comparison of a linear form and a constant with 0."""
    products = [v if c == 1 else Apply("*", (Const(c), v)) for v, c in form.items()]
    left: Scalar = products.pop(0) if products else Const(0)
    for other in products:
        left = Apply("+", (left, other))
    return Cmp(op, left, Const(-constant))


def less_own(term: Term, keep: frozenset[Var]) -> list[Term] | None:
    """[a - b], (a ^= Q(y) * {y <= x}) and (b ^= Q(x)), is [c] with (c ^= Q(y) * {y < x})."""
    lifts = {f.var: i for i, f in enumerate(term) if isinstance(f, Lift)}
    for factor in term:
        for part in _differences(factor):
            left, right = part.args
            if not (left in lifts and right in lifts) or not isinstance(left, Var):
                continue
            running, own = term[lifts[left]], term[lifts[right]]  # type: ignore[index]
            assert isinstance(running, Lift) and isinstance(own, Lift)
            strict = _with_end(term, lifts[left], running, own, {"<=": "<", ">=": ">"})
            if strict is None:
                continue
            less = Lift(Var(f"{left.name}~less"), strict)
            return [(*with_scalars(term, {part: less.var}), *(() if less in term else (less,)))]
    return None


def _differences(factor: Factor) -> Iterator[Apply]:
    """The differences of two variables in the scalars of a condition or value."""
    pending = [*scalars_of(factor)] if isinstance(factor, Cmp | Val) else []
    while pending:
        scalar = pending.pop()
        if isinstance(scalar, Apply):
            if scalar.op == "-" and all(isinstance(a, Var) for a in scalar.args):
                yield scalar
            pending += scalar.args


def _with_end(term: Term, index: int, running: Lift, own: Lift, ends: Mapping[str, str]) -> Poly | None:
    """The running sum with another end in place of one of `ends`, if `own` is the sum of what lies there."""
    if len(running.body.terms) != 1:
        return None
    body = running.body.terms[0]
    for i, factor in enumerate(body):
        if not isinstance(factor, Cmp) or factor.op not in ends:
            continue
        rest = body[:i] + body[i + 1 :]
        for inner, outer in ((factor.left, factor.right), (factor.right, factor.left)):
            if not isinstance(inner, Var) or not isinstance(outer, Var) or inner not in bound_in(rest):
                continue
            # What the term says of the end need not stand in the sum as well.
            there = Val(not_null(outer))
            said = there in term
            at_end = Poly(
                (tuple(f for f in substitute_term(rest, {inner: outer}) if f != there or not said),)
            )
            if rows_form(term, index, at_end) == rows_form(term, index, own.body):
                return Poly(((*body[:i], replace(factor, op=ends[factor.op]), *body[i + 1 :]),))
    return None


def add_own(term: Term, keep: frozenset[Var]) -> list[Term] | None:
    """{a + b <= s}, (a ^= Q(y) * {y < x}) and (b ^= Q(x)), is {c <= s} with (c ^= Q(y) * {y <= x})."""
    lifts = {f.var: (i, f) for i, f in enumerate(term) if isinstance(f, Lift)}
    for i, factor in enumerate(term):
        if not isinstance(factor, Cmp) or len(variable_set(factor) & lifts.keys()) < 2:
            continue
        form, constant = linear_form(Apply("-", (factor.left, factor.right))) or ({}, 0)
        for left, right in permutations((v for v in form if v in lifts), 2):
            (place, running), (_, own) = lifts[left], lifts[right]
            wide = _with_end(term, place, running, own, {"<": "<=", ">": ">="})
            if wide is None or form[left] != form[right]:
                continue
            more = Lift(Var(f"{left.name}~more"), wide)
            rest = {v: c for v, c in form.items() if v not in (left, right)} | {more.var: form[left]}
            changed = (*term[:i], linear(rest, factor.op, constant), *term[i + 1 :])
            return [(*changed, *(() if more in term else (more,)))]
    return None
