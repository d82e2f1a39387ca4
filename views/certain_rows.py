"""Rules for what a row at hand makes certain: that its group is there, and that it is counted."""

from collections.abc import Mapping

from orderbook.views.calculus import (
    CONDITIONS,
    Apply,
    Cmp,
    Const,
    Exists,
    Factor,
    Lift,
    Rel,
    Scalar,
    Term,
    Val,
    Var,
    substitute,
    substitute_term,
    variable_set,
)
from orderbook.views.names import apart_from, bound_in, used_outside


def drop_certain_counts(term: Term, keep: frozenset[Var]) -> list[Term] | None:
    """(n ^= R(x, z) * [c(x)]) * {n > 0} is 1 beside R(x, y) * [c(x)]: the row at hand is one of those."""
    lifts = {f.var: i for i, f in enumerate(term) if isinstance(f, Lift)}
    for i, factor in enumerate(term):
        if not isinstance(factor, Cmp) or (factor.op, factor.right) != (">", Const(0)):
            continue
        at = lifts.get(factor.left, i)  # type: ignore[arg-type]
        counts = term[at]
        if not isinstance(counts, Lift):
            continue
        body, rest = counts.body, tuple(f for j, f in enumerate(term) if j not in (at, i))
        local = variable_set(body) - (keep | bound_in(rest) | used_outside(rest))
        if len(body.terms) == 1 and _is_among(body.terms[0], rest, local):
            return [term[:i] + term[i + 1 :]]
    return None


def drop_certain_groups(term: Term, keep: frozenset[Var]) -> list[Term] | None:
    """EXISTS[y](R(z, y) * [c(y)]) is 1 beside R(x, y) * [c(y)]: the row at hand is one of the group."""
    for i, factor in enumerate(term):
        if not isinstance(factor, Exists) or len(factor.body.terms) != 1:
            continue
        rest = term[:i] + term[i + 1 :]
        outer = keep.union(factor.group) | bound_in(rest) | used_outside(rest)
        local = variable_set(factor.body) - outer
        if _is_among(factor.body.terms[0], rest, local):
            return [rest]
    return None


def _is_among(group: Term, term: Term, local: frozenset[Var]) -> bool:
    """Whether the term has all factors of a group's only term, by some names of what is local to it.

    So the group has a row, unless rows are weighed with values: those of others may make up for it.
    """
    names: dict[Var, Scalar] = {}
    rows = [f for f in group if isinstance(f, Rel)]
    if not all(_is_condition(f) for f in group if not isinstance(f, Rel)):
        return False
    for own in rows:
        found = (_names_of(own, f, local, names) for f in term if isinstance(f, Rel) and f.name == own.name)
        more = next((n for n in found if n is not None), None)
        if more is None:
            return False
        names |= more
    return all(substitute_term((f,), names)[0] in term for f in group if not isinstance(f, Rel))


def _is_condition(factor: Factor) -> bool:
    """Whether a factor is 0 or 1, or names a value."""
    if isinstance(factor, Val):
        return isinstance(factor.scalar, Apply) and factor.scalar.op in CONDITIONS
    return isinstance(factor, Cmp | Lift)


def _names_of(
    row: Rel, other: Rel, local: frozenset[Var], known: Mapping[Var, Scalar]
) -> dict[Var, Scalar] | None:
    """What the local variables of a row are called where it is the other one; None where it is not."""
    names: dict[Var, Scalar] = {}
    for own, there in zip(row.args, other.args, strict=True):
        if own in local and isinstance(own, Var):
            if {**known, **names}.get(own, there) != there:
                return None
            names[own] = there
        elif own != there:
            return None
    return names


def unlift_single(term: Term, keep: frozenset[Var]) -> list[Term] | None:
    """(x ^= EXISTS[y](Q) * [c]) * {x > 0}, y known and x used nowhere else, becomes EXISTS[y](Q) * [c]."""
    for i, factor in enumerate(term):
        if not isinstance(factor, Lift) or factor.var in keep or len(factor.body.terms) != 1:
            continue
        users = [j for j, f in enumerate(term) if j != i and factor.var in variable_set(f)]
        asked = term[users[0]] if len(users) == 1 else None
        if not isinstance(asked, Cmp) or (asked.op, asked.left, asked.right) not in _is_one(factor.var):
            continue
        rest = tuple(f for j, f in enumerate(term) if j not in (i, users[0]))
        outer = keep | bound_in(rest) | used_outside(rest)
        body = factor.body.terms[0]
        if any(isinstance(f, Exists) for f in body) and all(_is_single(f, outer) for f in body):
            names = apart_from(bound_in(body) - outer, variable_set(rest) | keep)
            return [rest + inner for inner in substitute(factor.body, names).terms]
    return None


def _is_one(variable: Var) -> tuple[tuple[str, Scalar, Scalar], ...]:
    return (">", variable, Const(0)), (">=", variable, Const(1)), ("=", variable, Const(1))


def _is_single(factor: Factor, outer: frozenset[Var]) -> bool:
    """Whether a factor is 0 or 1 for what is known outside."""
    return outer.issuperset(factor.group) if isinstance(factor, Exists) else _is_condition(factor)
