"""Maps that are sums of another map over some of its keys, by statements alone.

Groups that are ranked by an aggregate stand in a map by all that they are ordered by, and in others by the
first keys of that order alone, which count what stands before a group. An event takes a group out of each as
it was, and puts it back as it is. Where the statements of one map are those of another with fewer keys, it
is written wherever that one is: what is taken out and put back is computed once.

That is proved here of statements alone, so it holds of M3 written by hand as well.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from orderbook.engine.plan.steps import Projection
from orderbook.engine.plan.stores import levels
from orderbook.engine.plan.updates import Update
from orderbook.views.calculus import (
    NESTED,
    Exists,
    Factor,
    Lift,
    Poly,
    Scalar,
    Term,
    Val,
    Var,
    maps_read,
    scalar_variables,
    substitute_scalar,
    substitute_term,
    variable_set,
    variables,
    with_body,
)
from orderbook.views.m3 import MapDeclaration, Program, Statement
from orderbook.views.types import Kind

# What is added to an entry, whatever its keys: the event, whether of the state after, and the term.
_Added = tuple[int, bool, Term]


@dataclass(slots=True)
class _Additions:
    """All that is added to one map: each term, and the keys that it is added at."""

    terms: list[_Added] = field(default_factory=list)
    keys: list[tuple[Scalar, ...]] = field(default_factory=list)
    # By event, whether of the state after: places of statements among the event's.
    places: dict[tuple[int, bool], list[int]] = field(default_factory=lambda: defaultdict(list))


def projections(program: Program, updates: Sequence[Update]) -> tuple[Projection, ...]:
    """The maps that are written with another one, each with the one of the most keys."""
    events = [(t.parameters, t.statements) for t in program.triggers]
    events += [((*u.old, *u.new), part) for u in updates for part in u.parts]
    additions = _additions(program, events)
    by_terms: defaultdict[tuple[_Added, ...], list[MapDeclaration]] = defaultdict(list)
    for name, own in additions.items():
        by_terms[tuple(own.terms)].append(program.map(name))
    found = []
    for alike in by_terms.values():
        source = max(alike, key=lambda m: len(m.keys))
        for declaration in alike:
            one, other = additions[source.name], additions[declaration.name]
            positions = None if declaration is source else _positions(source, one, declaration, other)
            if positions is not None and not _read_between(events, declaration.name, one, other):
                found.append(Projection(declaration.name, source.name, positions))
    return tuple(found)


# The variables of an event, and its statements.
_Event = tuple[tuple[Var, ...], tuple[Statement, ...]]


def _additions(program: Program, events: Sequence[_Event]) -> dict[str, _Additions]:
    """What is added to each map whose entries every event takes out as they were and puts back."""
    found: defaultdict[str, _Additions] = defaultdict(_Additions)
    others = {s.target for s in program.initial} | {m.name for m in program.maps if _is_rounded(m)}
    # A count of doubles is written before them, at the place of its own statement.
    others |= {m.count for m in program.maps if m.count}
    for number, (parameters, statements) in enumerate(events):
        for place, statement in enumerate(statements):
            if statement.op != "+=" or statement.target in maps_read(statement.value):
                others.add(statement.target)
                continue
            own = found[statement.target]
            own.places[number, statement.after].append(place)
            for term in statement.value.terms:
                keys, rest = _over_scalars(statement.keys, term, parameters)
                own.terms.append((number, statement.after, rest))
                own.keys.append(keys)
    return {n: a for n, a in found.items() if n not in others and _put_back(a)}


def _is_rounded(declaration: MapDeclaration) -> bool:
    return declaration.type.kind is Kind.DOUBLE or declaration.count is not None


def _put_back(own: _Additions) -> bool:
    return all((number, not after) in own.places for number, after in [*own.places])


def _over_scalars(
    keys: tuple[Scalar, ...], term: Term, parameters: Sequence[Var]
) -> tuple[tuple[Scalar, ...], Term]:
    """Keys and a term without the variables of what is computed, others numbered in their order."""
    while (found := _computed(term)) is not None:
        place, by = found
        term = term[:place] + term[place + 1 :]
        keys = tuple(substitute_scalar(k, by) for k in keys)
    term = tuple(map(_grouped_in_order, term))
    order = dict.fromkeys((*variables(term), *(v for k in keys for v in scalar_variables(k))))
    names: dict[Var, Scalar] = {
        v: Var(f"${i}") for i, v in enumerate(v for v in order if v not in parameters)
    }
    return tuple(substitute_scalar(k, names) for k in keys), substitute_term(term, names)


def _grouped_in_order(factor: Factor) -> Factor:
    """The factor with the variables of groups in the order in which they stand in what is grouped."""
    if not isinstance(factor, NESTED):
        return factor
    body = Poly(tuple(tuple(map(_grouped_in_order, term)) for term in factor.body.terms))
    if not isinstance(factor, Exists):
        return with_body(factor, body)
    return Exists(tuple(v for v in dict.fromkeys(variables(body)) if v in factor.group), body)


def _computed(term: Term) -> tuple[int, dict[Var, Scalar]] | None:
    """The place of a factor that binds what is computed of one scalar, for the keys alone, and to what."""
    for place, factor in enumerate(term):
        match factor:
            case Lift(variable, Poly(((Val(scalar),),))):
                if not any(variable in variable_set(f) for f in term if f is not factor):
                    return place, {variable: scalar}
    return None


def _positions(
    source: MapDeclaration, one: _Additions, declaration: MapDeclaration, other: _Additions
) -> tuple[int, ...] | None:
    """Which keys of the source are those of the other map, wherever both are added to."""
    found: list[int] = []
    for place, kind in enumerate(declaration.key_types):
        fitting = (
            i
            for i, own in enumerate(source.key_types)
            if i not in found
            and own == kind
            and all(a[i] == b[place] for a, b in zip(one.keys, other.keys, strict=True))
        )
        position = next(fitting, None)
        if position is None:
            return None
        found.append(position)
    return tuple(found)


def _read_between(events: Sequence[_Event], name: str, one: _Additions, other: _Additions) -> bool:
    """Whether a statement that comes before the other map's own reads that map once it is written."""
    for number, (_, statements) in enumerate(events):
        late = levels(statements)
        for after in (False, True):
            own = (*one.places.get((number, after), ()), *other.places.get((number, after), ()))
            if len({late[i] for i in own}) > 1:
                return True
            readers = (i for i, s in enumerate(statements) if name in maps_read(s.value))
            for reader in readers:
                if own and late[reader] == late[own[0]] and (after or reader > min(own)):
                    return True
    return False
