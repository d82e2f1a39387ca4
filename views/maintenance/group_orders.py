"""Groups by what may be NULL, in an order: the key is what they are ordered by, which never is.

Windows of so many groups (`ROWS n`), and extremes of those up to one, are by `o = if(not(is_null(g)), g, k)`,
with a value k beyond all of the key's. Groups by g are groups by o, and g is `if(o = k, NULL, o)`: so what
follows from an order of groups whose key is never NULL follows here, too.
"""

from collections.abc import Iterator

from orderbook.views.calculus import (
    NESTED,
    Apply,
    Const,
    Exists,
    Factor,
    Lift,
    Neighbour,
    Poly,
    Scalar,
    Term,
    Val,
    Var,
    bound_by,
    comparisons,
    product,
    variable_set,
    with_body,
    with_scalars,
)
from orderbook.views.conditions import NULL, choose, not_null
from orderbook.views.names import apart_from, bound_in


def with_orders_as_keys(poly: Poly, bound: frozenset[Var]) -> Poly:
    """The polynomial with groups by what windows of them are ordered by; not those of `bound`."""
    return _keyed(poly, bound) if _has_windows(poly) else poly


def _has_windows(poly: Poly) -> bool:
    nested = [f for t in poly.terms for f in t if isinstance(f, NESTED)]
    groups = dict.fromkeys(v for f in nested if isinstance(f, Exists) for v in f.group)
    if any(_compared(t, key) or _is_order(t, key) for key in groups for t in poly.terms):
        return True
    return any((isinstance(f, Neighbour) and f.away) or _has_windows(f.body) for f in nested)


def _keyed(poly: Poly, outer: frozenset[Var]) -> Poly:
    return Poly(tuple(_keyed_term(t, outer) for t in poly.terms))


def _keyed_term(term: Term, outer: frozenset[Var]) -> Term:
    """`outer` is known from outside: an order that is one of these says which group it is."""
    for key in (v for f in term if isinstance(f, Exists) for v in f.group if v not in outer):
        orders = {f.var: k for f in term if isinstance(f, Lift) and (k := _beyond(f, key)) is not None}
        if not orders and len(compared := _compared(term, key)) == 1:
            (beyond,) = compared
            order = apart_from((key,), variable_set(term) | outer)[key]
            term = (*term, Lift(order, product(Val(choose(not_null(key), key, beyond)))))
            orders = {order: beyond}
        # Where a place of its own says whether the key is NULL, its values leave none for that.
        told = any(_says_null(f, key) for f in term)
        if len({*orders.values()}) == 1 and not told and all(_is_plain(f, key) for f in term):
            order = min(orders, key=lambda v: v not in outer)
            term = _coded(term, key, order, orders[order])
    around = outer | bound_in(term)
    return tuple(with_body(f, _keyed(f.body, around)) if isinstance(f, NESTED) else f for f in term)


def _is_order(term: Term, key: Var) -> bool:
    """Whether the term binds what groups by the key are ordered by, and compares it."""
    orders = {f.var for f in term if isinstance(f, Lift) and _beyond(f, key) is not None}
    compared = (c for c in comparisons(Poly((term,))) if c.op not in ("=", "<>")) if orders else ()
    return any(variable_set(c) & orders for c in compared)


def _compared(term: Term, key: Var) -> set[Const]:
    """The values that stand for NULL where what groups by the key are ordered by is compared at any depth."""
    sides = (s for c in comparisons(Poly((term,))) if c.op not in ("=", "<>") for s in (c.left, c.right))
    return {beyond for s in sides if (beyond := _in_place_of_null(s, key)) is not None}


def _beyond(factor: Lift, key: Var) -> Const | None:
    """The value that stands for NULL where a factor binds what groups by the key are ordered by."""
    match factor.body:
        case Poly(((Val(scalar),),)):
            return _in_place_of_null(scalar, key)
    return None


def _in_place_of_null(scalar: Scalar, key: Var) -> Const | None:
    match scalar:
        case Apply("if", (condition, value, Const() as beyond)) if value == key:
            return beyond if condition == not_null(key) and beyond != NULL else None
    return None


def _says_null(factor: Factor, key: Var) -> bool:
    """Whether a factor binds whether the key is NULL."""
    match factor:
        case Lift(_, Poly(((Val(Apply("if", (Apply("is_null", (asked,)), Const(), Const()))),),))):
            return asked == key
    return False


def _is_plain(factor: Factor, key: Var) -> bool:
    """Whether the key is bound by lifts of what may be NULL alone, and groups by it, at any depth."""
    if not isinstance(factor, NESTED):
        return isinstance(factor, Val) or key not in bound_by(factor)
    if isinstance(factor, Lift) and factor.var == key:
        return any(_values(factor))
    around = variable_set(with_body(factor, Poly(())))
    if key in around and not isinstance(factor, Exists):
        return False
    return all(_is_plain(f, key) for t in factor.body.terms for f in t)


def _values(factor: Lift) -> Iterator[tuple[Scalar, Scalar]]:
    """The condition and the value where a factor binds the one or else NULL."""
    match factor.body:
        case Poly(((Val(Apply("if", (condition, value, empty))),),)) if empty == NULL:
            yield condition, value


def _coded(term: Term, key: Var, order: Var, beyond: Const) -> Term:
    """The term with groups by their order in place of the key."""
    value = choose(Apply("=", (order, beyond)), NULL, order)
    there = Apply("<>", (order, beyond))
    by: dict[Scalar, Scalar] = {
        key: value,
        Apply("is_null", (value,)): Apply("=", (order, beyond)),
        Apply("not", (Apply("=", (order, beyond)),)): there,
        Apply("if", (there, value, beyond)): order,
    }
    renamed = tuple(_with_key(f, key, order, beyond) for f in term)
    return tuple(f for f in with_scalars(renamed, by) if f != Lift(order, product(Val(order))))


def _with_key(factor: Factor, key: Var, order: Var, beyond: Const) -> Factor:
    if not isinstance(factor, NESTED):
        return factor
    if isinstance(factor, Lift) and factor.var == key:
        ((condition, value),) = _values(factor)
        return Lift(order, product(Val(Apply("if", (condition, value, beyond)))))
    body = Poly(tuple(tuple(_with_key(f, key, order, beyond) for f in t) for t in factor.body.terms))
    if isinstance(factor, Exists):
        return Exists(tuple(order if v == key else v for v in factor.group), body)
    return with_body(factor, body)
