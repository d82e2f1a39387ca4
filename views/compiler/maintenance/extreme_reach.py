"""Where a changed row is, or was, the extreme: the only bindings whose extreme it can change.

A row at value v is the greatest of a binding where its comparisons admit v and no row beyond v satisfies
them. Rows beyond v are other rows, so that this says the same before the event as after it.
"""

from collections.abc import Iterator

from views.compiler.calculus import (
    MIRRORED,
    NESTED,
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
    relations,
    scalar_variables,
    substitute,
    substitute_factor,
    variable_set,
)
from views.compiler.rewriting.scoping import apart_from, used_outside
from views.compiler.types import Relation

from .reach import Domain, nested_domains, row_domains


def extreme_limits(term: Term, relation: Relation) -> Term:
    """Factors that hold for every binding that a changed row can reach; none where they are not known.

    Known are they where all that reads the relation is one Extreme, and rows and groups whose value is
    that extreme.
    """
    extremes = [f for f in term if isinstance(f, Extreme) and relation.name in relations(f)]
    if len(extremes) != 1 or len(extremes[0].body.terms) != 1:
        return ()
    (extreme,) = extremes
    (inner,) = extreme.body.terms
    domains = [*row_domains(inner, relation), *nested_domains(inner, relation, frozenset({extreme.value}))]
    if len(domains) != 1 or extreme.value not in domains[0]:
        return ()
    at = domains[0][extreme.value]
    others = [d for f in term if f is not extreme for d in _own_domains(f, relation)]
    same = {extreme.var, *_equal_to(extreme.var, term)}
    if not all(any(d.get(v) == at for v in same) for d in others):
        return ()
    return _limits(term, extreme, inner, at)


def _equal_to(variable: Var, term: Term) -> Iterator[Var]:
    for factor in term:
        match factor:
            case Cmp("=", Var() as left, Var() as right) if variable in (left, right):
                yield right if left == variable else left


def _own_domains(factor: Factor, relation: Relation) -> Iterator[Domain]:
    """What the changed row binds in a factor that reads its relation; nothing is known of sums."""
    if isinstance(factor, Rel):
        yield from row_domains((factor,), relation)
    elif isinstance(factor, Exists):
        for inner in factor.body.terms:
            for domain in (*row_domains(inner, relation), *nested_domains(inner, relation)):
                yield {v: s for v, s in domain.items() if v in factor.group}
    elif isinstance(factor, NESTED) and relation.name in relations(factor):
        yield {}


def _limits(term: Term, extreme: Extreme, inner: Term, at: Scalar) -> Term:
    """The row's value is admitted, and as many rows lie within the bounds as lie up to it."""
    towards = "<" if extreme.greatest else ">"
    outer = used_outside(term) | frozenset(scalar_variables(at))
    around = [f for f in inner if isinstance(f, Cmp | Val) and variable_set(f) <= outer]
    bounds = [f for f in inner if _bounds(f, extreme.value, towards)]
    rest = tuple(f for f in inner if f not in around)
    counted, taken = [], variable_set(term) | frozenset(scalar_variables(at))
    up_to_it = Cmp(f"{towards}=", extreme.value, at)
    for rows in (rest, (*(f for f in rest if f not in bounds), up_to_it)):
        local = variable_set(rows) - outer
        names = apart_from((*local, Var("rows")), taken)
        taken |= frozenset(names.values())
        body = substitute(Poly((rows,)), {v: n for v, n in names.items() if v in local})
        counted.append(Lift(names[Var("rows")], body))
    admitted = tuple(substitute_factor(f, {extreme.value: at}) for f in bounds)
    within, up_to = counted
    return (*around, *admitted, *counted, Cmp("<", Apply("-", (within.var, up_to.var)), Const(1)))


def _bounds(factor: Factor, value: Var, towards: str) -> bool:
    """Whether a factor sets a bound on the value on the side where the extreme is."""
    match factor:
        case Cmp(op, left, right) if left == value and value not in scalar_variables(right):
            return op.startswith(towards)
        case Cmp(op, left, right) if right == value and value not in scalar_variables(left):
            return MIRRORED[op].startswith(towards)
    return False
