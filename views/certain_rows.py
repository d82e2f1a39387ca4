"""Rules for what a row at hand makes certain: that its group is there, and counted, and has an end."""

from collections.abc import Mapping

from orderbook.views.calculus import (
    CONDITIONS,
    Apply,
    Cmp,
    Const,
    Exists,
    Extreme,
    Factor,
    Lift,
    Poly,
    Rel,
    Scalar,
    Term,
    Val,
    Var,
    bound_by,
    relations,
    substitute,
    substitute_term,
    variable_set,
    with_body,
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
        if len(body.terms) == 1 and is_among(body.terms[0], rest, local):
            return [term[:i] + term[i + 1 :]]
    return None


def drop_certain_groups(term: Term, keep: frozenset[Var]) -> list[Term] | None:
    """EXISTS[y](R(z, y) * [c(y)]) is 1 beside R(x, y) * [c(y)]: the row at hand is one of the group.

    So it is beside other groups of such rows, for one of these is.
    """
    for i, factor in enumerate(term):
        if not isinstance(factor, Exists) or len(factor.body.terms) != 1:
            continue
        rest = term[:i] + term[i + 1 :]
        outer = keep.union(factor.group) | bound_in(rest) | used_outside(rest)
        local = variable_set(factor.body) - outer
        groups = (f.body.terms[0] for f in rest if isinstance(f, Exists) and len(f.body.terms) == 1)
        if any(is_among(factor.body.terms[0], (*rest, *rows), local) for rows in ((), *groups)):
            return [rest]
    return None


def is_among(group: Term, term: Term, local: frozenset[Var]) -> bool:
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
    """(x ^= EXISTS[y](Q) * [c]) * {x > 0}, y known and x used nowhere else, becomes EXISTS[y](Q) * [c].

    So does what has the end of an order, or a lift, in place of the group.
    """
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
        if any(relations(f) for f in body) and all(_is_single(f, outer) for f in body):
            names = apart_from(bound_in(body) - outer, variable_set(rest) | keep)
            return [rest + inner for inner in substitute(factor.body, names).terms]
    return None


def _is_one(variable: Var) -> tuple[tuple[str, Scalar, Scalar], ...]:
    return (">", variable, Const(0)), (">=", variable, Const(1)), ("=", variable, Const(1))


def _is_single(factor: Factor, outer: frozenset[Var]) -> bool:
    """Whether a factor is 0 or 1 for what is known outside."""
    if isinstance(factor, Exists):
        return outer.issuperset(factor.group)
    return isinstance(factor, Extreme) or _is_condition(factor)


def drop_certain_ends(term: Term, keep: frozenset[Var]) -> list[Term] | None:
    """(x ^= R(y) * (y ^= MAX[z](R(z) * [c(z)]))) * {x = 0} is (x ^= R(y) * [c(y)]) * {x = 0}.

    Rows have an end where there are rows. So it is for {x > 0}, and for groups of which the end is no key.
    """
    for i, factor in enumerate(term):
        if isinstance(factor, Lift):
            users = [f for j, f in enumerate(term) if j != i and factor.var in variable_set(f)]
            if factor.var in keep or len(users) != 1 or not _asks_for_rows(users[0], factor.var):
                continue
        elif not isinstance(factor, Exists):
            continue
        outer = keep | bound_by(factor) | used_outside(term, i) | bound_in(term[:i] + term[i + 1 :])
        for j, inner in enumerate(factor.body.terms):
            changed = _without_end(inner, outer)
            if changed is not None:
                body = Poly((*factor.body.terms[:j], changed, *factor.body.terms[j + 1 :]))
                return [(*term[:i], with_body(factor, body), *term[i + 1 :])]
    return None


def _are_apart(names: Mapping[Var, Scalar]) -> bool:
    """Whether all are names of variables, each of another one, so that they ask for nothing."""
    return all(isinstance(n, Var) for n in names.values()) and len({*names.values()}) == len(names)


def _asks_for_rows(condition: Factor, count: Var) -> bool:
    """Whether a condition asks only if a count is 0."""
    return condition in (
        Cmp("=", count, Const(0)),
        Cmp("<=", count, Const(0)),
        Cmp("<", count, Const(1)),
    ) or (
        isinstance(condition, Cmp)
        and (condition.op, condition.left, condition.right) in (*_is_one(count)[:2], ("<>", count, Const(0)))
    )


def _without_end(term: Term, outer: frozenset[Var]) -> Term | None:
    """A term without the end that rows of one relation have to be at: there are rows of both, or of none."""
    if not all(isinstance(f, Rel | Exists | Extreme) or _is_condition(f) for f in term):
        return None
    for i, end in enumerate(term):
        if not isinstance(end, Extreme) or end.var in outer or len(end.body.terms) != 1:
            continue
        rest = term[:i] + term[i + 1 :]
        (rows,) = end.body.terms
        own = [f for f in rows if isinstance(f, Rel)]
        if len(own) != 1 or not all(isinstance(f, Rel | Cmp | Val) for f in rows):
            continue
        for j, at in enumerate(rest):
            if not isinstance(at, Rel) or at.name != own[0].name or end.var not in at.args:
                continue
            names = _names_of(own[0], at, variable_set(end.body) - outer - variable_set(rest), {})
            if names is None or names.get(end.value) != end.var or not _are_apart(names):
                continue
            said = substitute_term(tuple(f for f in rows if f is not own[0]), names)
            asked = [f for k, f in enumerate(rest) if k != j and variable_set(f) & {*names.values()}]
            if all(f in said for f in asked) and not outer & {*names.values()}:
                return (*rest, *(f for f in said if f not in rest))
    return None
