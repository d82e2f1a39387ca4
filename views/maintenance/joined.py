"""The bindings that a changed row reaches through the rows that it joins.

A nested sum over a join changes for those values of its outer variables that the changed row finds in the
rows of the other relations, as a line of an order finds the order's customer. These are the groups of the
join with the row in place of its relation, whatever is summed, or more, as a condition is left out that uses
what only the rest of the term binds. They are the same before the event as after it: where the relation
stands in several places of a join, the row is taken to be in any of them.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import combinations
from itertools import product as pairs

from orderbook.views.calculus import (
    CONDITIONS,
    NESTED,
    ZERO,
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
    counting,
    product,
    relations,
    spend,
    substitute_term,
    variable_set,
)
from orderbook.views.names import apart_from, bound_in, canonical, used_outside
from orderbook.views.simplify import simplify

# A term that reads a relation more often than this is not looked into.
MOST_READS = 3


def joined_groups(
    term: Term, relation: str, row: tuple[Var, ...], known: frozenset[Var], outer: frozenset[Var]
) -> Term | None:
    """What limits the term's variables to what a changed `row` of the relation joins, None if nothing does.

    These are conditions on the row, and at last the groups of the join. Only a term that reads the relation
    in sums, extremes and groups alone is limited so.
    known: variables whose values all that the row reaches agrees in; outer: those used outside of the term.
    """
    found, steps = _joined_groups(term, relation, row, known, outer)
    spend(steps)
    return found


# A view asks for the same few dozens a hundred times.
@lru_cache(maxsize=1024)
def _joined_groups(
    term: Term, relation: str, row: tuple[Var, ...], known: frozenset[Var], outer: frozenset[Var]
) -> tuple[Term | None, int]:
    """What `joined_groups` gives, and the steps that it takes."""
    with counting() as budget:
        before = budget.left
        found = _found_groups(term, relation, row, known, outer)
        return found, before - budget.left


def _found_groups(
    term: Term, relation: str, row: tuple[Var, ...], known: frozenset[Var], outer: frozenset[Var]
) -> Term | None:
    reading = [f for f in term if relation in relations(f)]
    if not reading or not all(isinstance(f, Lift | Exists | Extreme) for f in reading):
        return None
    around = (outer | used_outside(term)) - known
    around -= frozenset(f.var for f in term if isinstance(f, Lift | Extreme) and relations(f))
    ways: list[Term] = []
    for factor in reading:
        found = _ways(factor, relation, row)
        if found is None:
            return None
        ways += found
    event = frozenset(row)
    shared = frozenset(around).intersection(*(bound_in(w) for w in ways)) - event if ways else frozenset()
    if not shared:
        return None
    group = tuple(sorted(shared, key=lambda v: v.name))
    terms: dict[object, Term] = {}
    for way in _widest(ways):
        local = variable_set(way) - shared - event
        apart = substitute_term(way, apart_from(local, variable_set(term) | outer | event))
        for simple in simplify(Poly((apart,)), event | shared).terms:
            keys = tuple(sorted(shared | (event & variable_set(simple)), key=lambda v: v.name))
            form, places = canonical(keys, Poly((simple,)))
            terms.setdefault((form, tuple(keys[i] for i in places)), simple)
    if not all(shared <= bound_in(t) for t in terms.values()):
        return None
    if not terms:
        return (Exists(group, ZERO),)
    first, *others = terms.values()
    always = tuple(f for f in first if variable_set(f) <= event and all(f in t for t in others))
    rows = (tuple(f for f in t if f not in always) for t in terms.values())
    return (*always, Exists(group, Poly(tuple(rows))))


def _ways(factor: Factor, relation: str, row: tuple[Var, ...]) -> list[Term] | None:
    """The joins by which a nested factor reads the row, with the row in place of its relation.

    Where that stands in several places of a join, the row may be in any of them. What is nested beside it
    only leaves fewer, and is left out.
    """
    assert isinstance(factor, NESTED)
    found: list[Term] = []
    for inner in factor.body.terms:
        places = [i for i, f in enumerate(inner) if relation in relations(f)]
        plain = [i for i in places if isinstance(inner[i], Rel)]
        if len(plain) > MOST_READS:
            return None
        chosen = [set(c) for size in range(1, len(plain) + 1) for c in combinations(plain, size)]
        for taken in (*chosen, *({i} for i in places if i not in plain)):
            more = _with_row(inner, taken, relation, row)
            if more is None:
                return None
            found += more
    return _widest(found)


def _widest(ways: Sequence[Term]) -> list[Term]:
    """The joins that ask for more than no other one."""
    asked = {way: frozenset(way) for way in ways}
    different = set(asked.values())
    return [way for way, own in asked.items() if not any(a < own for a in different)]


def _with_row(term: Term, taken: set[int], relation: str, row: tuple[Var, ...]) -> list[Term] | None:
    """The term with the row in the places taken; other nested reads of its relation are left out."""
    alternatives: list[list[Term]] = []
    for i, factor in enumerate(term):
        if i not in taken:
            dropped = isinstance(factor, NESTED) and relation in relations(factor)
            alternatives.append([()] if dropped else [(factor,)])
        elif isinstance(factor, Rel):
            alternatives.append([tuple(_equal(factor, row))])
        elif isinstance(factor, Lift | Exists | Extreme):
            inner = _ways(factor, relation, row)
            if inner is None:
                return None
            seen = used_outside(term) | bound_by(factor)
            local = frozenset(v for t in inner for v in variable_set(t)) - seen - frozenset(row)
            names = apart_from(local, local | variable_set(term) | frozenset(row))
            alternatives.append([substitute_term(t, names) for t in inner])
        else:
            return None
    return [_rows_of(tuple(f for part in parts for f in part), row) for parts in pairs(*alternatives)]


def _equal(read: Rel, row: tuple[Var, ...]) -> Iterator[Factor]:
    """What says that a read finds the row: variables that are its columns, and equal constants."""
    for argument, column in zip(read.args, row, strict=True):
        if isinstance(argument, Var):
            yield Lift(argument, product(Val(column)))
        elif isinstance(argument, Const):
            yield Cmp("=", argument, column)


def _rows_of(term: Term, row: tuple[Var, ...]) -> Term:
    """The rows of a term and the conditions on them: no sums, and nothing of what only these say."""
    names: dict[Var, Scalar] = {}
    rest: list[Factor] = []
    for factor in term:
        match factor:
            case Lift(var, Poly(((Val(Var() as column),),))) if column in row:
                names.setdefault(var, column)
            case _:
                rest.append(factor)
    kept = list(substitute_term(tuple(f for f in rest if _is_row_or_condition(f)), names))
    known = frozenset(row)
    while True:
        found = known.union(*(bound_by(f) for f in kept))
        left = [f for f in kept if _needed(f) <= found]
        if len(left) == len(kept):
            break
        kept = left
    columns = [Lift(v, product(Val(s))) for v, s in names.items()]
    return (*columns, *kept)


def _is_row_or_condition(factor: Factor) -> bool:
    match factor:
        case Rel() | Cmp():
            return True
        case Val(Apply(op, _)):
            return op in CONDITIONS
        case Lift(_, Poly(((*values,),))):
            return all(isinstance(v, Val) for v in values)
    return False


def _needed(factor: Factor) -> frozenset[Var]:
    if isinstance(factor, Rel):
        return frozenset()
    return variable_set(factor) - bound_by(factor)
