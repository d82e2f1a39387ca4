"""Rules on factors that hold a polynomial of their own."""

from collections import Counter
from dataclasses import replace

from views.compiler.calculus import (
    ZERO,
    Cmp,
    Const,
    Exists,
    Extreme,
    Factor,
    Lift,
    Poly,
    Rel,
    Term,
    Val,
    Var,
    substitute,
    substitute_term,
    variable_set,
    variables,
)
from views.compiler.rewriting.canonical import canonical
from views.compiler.rewriting.scoping import apart_from, bound_in, used_outside


def drop_empty(term: Term, keep: frozenset[Var]) -> list[Term] | None:
    """Groups and extremes of nothing are 0."""
    return [] if any(isinstance(f, Exists | Extreme) and f.body == ZERO for f in term) else None


def unlift(term: Term, keep: frozenset[Var]) -> list[Term] | None:
    """(x ^= Q) * x, with x used nowhere else, becomes Q; an unused lift is 1."""
    uses = Counter(v for f in term if not isinstance(f, Lift) for v in variables(f))
    inner = Counter(v for f in term if isinstance(f, Lift) for v in variables(f.body))
    for i, factor in enumerate(term):
        if not isinstance(factor, Lift) or factor.var in keep or inner[factor.var]:
            continue
        if not uses[factor.var]:
            return [term[:i] + term[i + 1 :]]
        if uses[factor.var] == 1 and Val(factor.var) in term:
            rest = tuple(f for f in term if f not in (factor, Val(factor.var)))
            local = variable_set(factor.body) - used_outside(term, i) - keep
            names = apart_from((v for v in local if not v.name.startswith("@")), variable_set(rest) | keep)
            return [rest + inner_term for inner_term in substitute(factor.body, names).terms]
    return None


def share_extremes(term: Term, keep: frozenset[Var]) -> list[Term] | None:
    """Two extremes of equal bodies are one, and their variables equal."""
    extremes = [(i, f) for i, f in enumerate(term) if isinstance(f, Extreme)]
    for at, (i, first) in enumerate(extremes):
        for j, second in extremes[at + 1 :]:
            if first.greatest != second.greatest or _form(term, i, first) != _form(term, j, second):
                continue
            without = term[:j] + term[j + 1 :]
            if first.var == second.var:
                return [without]
            if second.var not in keep:
                return [substitute_term(without, {second.var: first.var})]
            if first.var not in keep:
                return [substitute_term(term[:i] + term[i + 1 :], {first.var: second.var})]
    return None


def _form(term: Term, index: int, extreme: Extreme) -> object:
    """What is equal for extremes that differ only in the names of their local variables."""
    outer = _outer(term, index, extreme.body)
    keys = (extreme.value, *outer)
    form, places = canonical(keys, extreme.body)
    return form, tuple(keys[i] if i else None for i in places)


def _outer(term: Term, index: int, body: Poly) -> list[Var]:
    return sorted(variable_set(body) & used_outside(term, index), key=lambda v: v.name)


def certain_extremes(term: Term, keep: frozenset[Var]) -> list[Term] | None:
    """The greatest value beside {n > 0}, n the rows it is taken from, is an Extreme of the term itself."""
    held = [(i, e) for i, f in enumerate(term) if (e := _held_extreme(f)) is not None]
    if not held:
        return None
    lifts = {f.var: (i, f.body) for i, f in enumerate(term) if isinstance(f, Lift)}
    for i, factor in enumerate(term):
        if not isinstance(factor, Cmp) or (factor.op, factor.right) != (">", Const(0)):
            continue
        at, body = lifts.get(factor.left, (0, ZERO))  # type: ignore[arg-type]
        for j, certain in held:
            if body.terms and _counted(term, at, body) == _counted(term, j, certain.body):
                return [tuple(certain if k == j else f for k, f in enumerate(term) if k != i)]
    return None


def _held_extreme(factor: Factor) -> Extreme | None:
    """The Extreme whose value, or 0, a lift holds, with the lift's variable."""
    match factor:
        case Lift(held, Poly(((Extreme(var, _, _, _) as extreme, Val(value)),))) if value == var:
            return replace(extreme, var=held)
    return None


def _counted(term: Term, index: int, body: Poly) -> object:
    """What is equal for polynomials of the same rows, whatever their local variables are called."""
    outer = _outer(term, index, body)
    form, places = canonical(outer, body)
    return form, tuple(outer[i] for i in places)


def drop_certain_counts(term: Term, keep: frozenset[Var]) -> list[Term] | None:
    """(n ^= R(x, z)) * {n > 0} is 1 beside R(x, y): the row at hand is one of those counted."""
    lifts = {f.var: f.body for f in term if isinstance(f, Lift)}
    for i, factor in enumerate(term):
        if not isinstance(factor, Cmp) or (factor.op, factor.right) != (">", Const(0)):
            continue
        body = lifts.get(factor.left)  # type: ignore[arg-type]
        if body is not None and _counts_a_row_of(body, term, keep | bound_in(term) | used_outside(term)):
            return [term[:i] + term[i + 1 :]]
    return None


def _counts_a_row_of(body: Poly, term: Term, outer: frozenset[Var]) -> bool:
    if len(body.terms) != 1 or len(body.terms[0]) != 1:
        return False
    counted = body.terms[0][0]
    return isinstance(counted, Rel) and any(
        isinstance(f, Rel)
        and f.name == counted.name
        and all(
            a == b or (isinstance(a, Var) and a not in outer)
            for a, b in zip(counted.args, f.args, strict=True)
        )
        and len(set(counted.args)) == len(counted.args)
        for f in term
    )
