"""Components: which factors of a term share variables, and so become one map.

What stays outside of maps are factors that are told to, those that use what only these bind, those that
mention a value known at run time alone, and values that put rows of several maps together.
"""

from functools import lru_cache

from orderbook.views.calculus import (
    NESTED,
    Apply,
    Cmp,
    Const,
    Exists,
    Extreme,
    Factor,
    Lift,
    MapRef,
    Neighbour,
    Poly,
    Rel,
    Scalar,
    Term,
    Val,
    Var,
    bound_by,
    relations,
    variable_set,
)
from orderbook.views.maintenance.cycles import without_cycles
from orderbook.views.simplify import simplify

Bound = frozenset[Var]


@lru_cache(maxsize=10_000)
def components_of(
    term: Term, bound: Bound, needed: Bound, apart: str | None, joined: bool
) -> tuple[tuple[Term, ...], Term]:
    """Splits a term into components that become maps and the factors that stay outside."""
    outside = _forced_outside(term, needed, apart)
    separate = _separators(term, bound, joined)
    while True:
        groups = _connected([f for i, f in enumerate(term) if i not in outside], term, separate)
        wrong = _unanchored(groups, term, bound) or _held_apart(groups, term, outside, bound)
        if not wrong:
            break
        outside |= wrong
        outside |= _dependents(term, outside, needed)
    components = tuple(tuple(g) for g in groups if any(_binds_rows(f) for f in g))
    if not joined:
        components = tuple(p for c in components for p in without_cycles(c, bound))
    return components, tuple(f for f in term if not any(f in c for c in components))


def _binds_rows(factor: Factor) -> bool:
    return isinstance(factor, Rel | Exists)


def _separators(term: Term, bound: Bound, joined: bool) -> Bound:
    """The bound variables that do not connect the factors that share them."""
    columns = frozenset(v for f in term for v in bound_by(f)) if joined else frozenset()
    return bound - columns


def _forced_outside(term: Term, needed: Bound, apart: str | None) -> set[int]:
    """Maps, lifts to keep apart, lifts whose value the result needs, and all that uses such a value."""
    outside: set[int] = set()
    for i, factor in enumerate(term):
        if isinstance(factor, NESTED) and apart is not None and apart in relations(factor):
            outside.add(i)
        if isinstance(factor, MapRef):
            outside.add(i)
        if isinstance(factor, Lift | Extreme) and factor.var in needed and relations(factor):
            outside.add(i)
        if isinstance(factor, Neighbour) and bound_by(factor) & needed:
            outside.add(i)
    return outside | _dependents(term, outside, needed)


def _dependents(term: Term, outside: set[int], needed: Bound) -> set[int]:
    """Closes a set of outside factors: users of what only they bind, and lifts used outside."""
    result = set(outside)
    while True:
        inside = {v for i, f in enumerate(term) if i not in result and _binds_rows(f) for v in bound_by(f)}
        lifted = {v for i in result if isinstance(term[i], NESTED) for v in bound_by(term[i])} - inside
        used = {v for i, f in enumerate(term) if i in result for v in variable_set(f)}
        more = {
            i
            for i, f in enumerate(term)
            if i not in result
            and not isinstance(f, Rel)
            and (
                (variable_set(f) & lifted)
                or (isinstance(f, Neighbour) and bound_by(f) & (used | needed))
                or (isinstance(f, Lift | Extreme) and _wanted(f, used, needed))
            )
        }
        if not more:
            return result
        result |= more


def _wanted(factor: Lift | Extreme, used: set[Var], needed: Bound) -> bool:
    """Whether a factor's variable is wanted outside; one computed from a row's columns may be a key there."""
    return factor.var in (used | needed if relations(factor) else used - needed)


def _connected(factors: list[Factor], term: Term, separate: Bound) -> list[list[Factor]]:
    """Groups factors that share a variable which is not one of `separate`."""
    binders = frozenset(v for f in term for v in bound_by(f)) - separate
    groups: list[tuple[set[Var], list[Factor]]] = []
    for factor in factors:
        joined: set[Var] = set((bound_by(factor) | variable_set(factor)) & binders)
        members: list[Factor] = []
        apart = []
        for names, group in groups:
            if names & joined:
                joined |= names
                members += group
            else:
                apart.append((names, group))
        groups = [*apart, (joined, [*members, factor])]
    order = {id(f): i for i, f in enumerate(term)}
    return [sorted(g, key=lambda f: order[id(f)]) for _, g in groups]


def _unanchored(groups: list[list[Factor]], term: Term, bound: Bound) -> set[int]:
    """Factors that mention an outside value which no relation of their component binds."""
    wrong: set[int] = set()
    for group in groups:
        anchored = frozenset(v for f in group if isinstance(f, Rel | NESTED) for v in bound_by(f)) & bound
        for factor in group:
            free = variable_set(factor) & bound
            if not isinstance(factor, Rel) and not free <= anchored:
                wrong |= {i for i, f in enumerate(term) if f is factor}
        if not any(_binds_rows(f) for f in group):
            wrong |= {i for i, f in enumerate(term) if any(f is g for g in group)}
    return wrong


def _held_apart(groups: list[list[Factor]], term: Term, outside: set[int], bound: Bound) -> set[int]:
    """What puts relations together as what stays outside does, for a map of both would hold all pairs."""
    nested = [f for i, f in enumerate(term) if i in outside and isinstance(f, NESTED)]
    found: set[int] = set()
    for group in groups:
        rows: list[Factor] = [f for f in group if isinstance(f, Rel | NESTED)]
        parts = [
            frozenset(v for f in part for v in bound_by(f)) - bound for part in _connected(rows, term, bound)
        ]
        if sum(any(part & (variable_set(f) - bound) for f in nested) for part in parts) < 2:
            continue
        mixed = [
            f for f in group if isinstance(f, Val | Cmp) and sum(bool(p & variable_set(f)) for p in parts) > 1
        ]
        found |= {i for i, f in enumerate(term) if any(f is m for m in mixed)}
    return found


def split_mixed(poly: Poly, bound: Bound, needed: Bound = frozenset(), joined: bool = False) -> Poly:
    """Distributes a sum over its term where it mixes values from outside with a row's columns.

    `[a.price - @price] * rest` becomes two terms, so that neither needs a map keyed by price, and a CASE one
    for each branch, so that no map is keyed by all that it uses. Not beside a neighbour: that is looked for
    from one row, so that no term would be a map without its columns.
    """
    done: list[Term] = []
    pending = list(reversed(poly.terms))
    while pending:
        term = pending.pop()
        separate = _separators(term, bound, joined)
        beside = any(isinstance(f, Neighbour) for f in term)
        for i, factor in enumerate(term):
            if not beside and isinstance(factor, Val) and _mixed(factor, term, separate):
                products = _branches(factor.scalar) or sum_of_products(factor.scalar)
                if products != [(factor.scalar,)]:
                    pending += [(*term[:i], *map(Val, p), *term[i + 1 :]) for p in reversed(products)]
                    break
        else:
            done.append(term)
    return simplify(Poly(tuple(done)), bound | needed)


def _branches(scalar: Scalar) -> list[tuple[Scalar, ...]]:
    """The branches of a condition as products with what it says, but those of 0; none of other scalars."""
    match scalar:
        case Apply("if", (condition, yes, no)):
            products = [(condition, yes), (Apply("not", (condition,)), no)]
            return [p for p in products if p[1] != Const(0)]
    return []


def sum_of_products(scalar: Scalar) -> list[tuple[Scalar, ...]]:
    """The products whose sum is the scalar, sums multiplied out."""
    match scalar:
        case Apply("+", (left, right)):
            return sum_of_products(left) + sum_of_products(right)
        case Apply("-", (left, right)):
            return sum_of_products(left) + sum_of_products(Apply("neg", (right,)))
        case Apply("neg", (inner,)):
            return [(Const(-1), *p) for p in sum_of_products(inner)]
        case Apply("*", (left, right)):
            return [(*a, *b) for a in sum_of_products(left) for b in sum_of_products(right)]
    return [(scalar,)]


def _mixed(factor: Val, term: Term, separate: Bound) -> bool:
    """Whether a sum's variables come from outside and from rows, or from unconnected relations."""
    used = variable_set(factor)
    if len(used) < 2:
        return False
    if used & separate and used - separate:
        return True
    others: list[Factor] = [f for f in term if isinstance(f, Rel | NESTED)]
    groups = _connected(others, term, separate)
    return sum(1 for g in groups if used & frozenset(v for f in g for v in bound_by(f))) > 1
