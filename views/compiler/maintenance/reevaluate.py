"""What an event changes where the changed relation stands inside a nested aggregate.

Such a change has no simpler form, so what it can reach is evaluated again from maps: before the event
with a minus, and after it. A `Piece` is one term of that, over relations still.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from views.compiler.calculus import (
    MINUS_ONE,
    NESTED,
    Exists,
    Lift,
    Poly,
    Rel,
    Scalar,
    Term,
    Var,
    nested_relations,
    relations,
    substitute,
    substitute_scalar,
)
from views.compiler.m3 import MapDeclaration
from views.compiler.rewriting.simplify import simplify
from views.compiler.types import Relation

from .delta import delta, parameters
from .extreme_reach import extreme_limits
from .reach import Domain, common, nested_domains, outside_of, row_domains

# A pseudo-relation that carries a statement's target keys through simplification.
TARGET = "$target"


@dataclass(frozen=True, slots=True)
class Piece:
    """Terms to add to a map's entries, or to assign to them.

    `given` are variables that stand for scalars of the event's parameters.
    """

    keys: tuple[Scalar, ...]
    terms: tuple[Term, ...]
    op: str
    after: bool
    given: Domain


def pieces(
    declaration: MapDeclaration, relation: Relation, insert: bool, known: Mapping[str, Relation]
) -> list[Piece]:
    """What brings a map up to date after one row of `relation` was inserted or deleted."""
    if relation.name in nested_relations(declaration.definition):
        return _reevaluated(declaration, relation, insert, known)
    return _direct(declaration, declaration.definition, relation, insert, [], frozenset())


def whole(declaration: MapDeclaration) -> Piece:
    """The map evaluated again, whatever has changed."""
    return Piece(declaration.keys, declaration.definition.terms, ":=", True, {})


def _reevaluated(
    declaration: MapDeclaration, relation: Relation, insert: bool, known: Mapping[str, Relation]
) -> list[Piece]:
    """Keys that the event binds are assigned; a domain wider than the keys is taken out and put back.

    Where nothing limits the reach the whole map is evaluated again; a term that has no rows of its own
    is one binding, which nothing need limit.
    """
    keys = frozenset(declaration.keys)
    reading = [t for t in declaration.definition.terms if relation.name in relations(t)]
    nested = [nested_domains(t, relation, keys) for t in reading]
    every = [d for t, found in zip(reading, nested, strict=True) for d in (*row_domains(t, relation), *found)]
    shared = common(every)
    beyond_keys = all(any(v not in keys for v in d) for d in every)
    limited = all(
        all(found) or not _has_rows(t) or extreme_limits(t, relation)
        for t, found in zip(reading, nested, strict=True)
    )
    if not limited or (not beyond_keys and keys <= set(shared)):
        return [_assignment(declaration, relation, shared if keys <= set(shared) else {})]
    result = []
    for term, domains in zip(reading, nested, strict=True):
        sure = _never_null(term, known) | _sure_parameters(relation)
        result += _again(declaration, term, relation, domains, sure)
        result += _direct(declaration, Poly((term,)), relation, insert, domains, sure)
    return result


def _has_rows(term: Term) -> bool:
    return any(isinstance(f, Rel | Exists) for f in term)


def _assignment(declaration: MapDeclaration, relation: Relation, shared: Domain) -> Piece:
    plain, given = _split(shared, declaration.definition.terms)
    body = substitute(_marked(declaration.definition, declaration.keys), plain)
    keep = frozenset(parameters(relation)) | frozenset(declaration.keys) | frozenset(given)
    terms = tuple(_unmarked(t)[1] for t in simplify(body, keep).terms)
    keys = tuple(substitute_scalar(k, shared) for k in declaration.keys)
    return Piece(keys, terms, ":=", True, given)


def _again(
    declaration: MapDeclaration,
    term: Term,
    relation: Relation,
    domains: list[Domain],
    sure: frozenset[Var],
) -> list[Piece]:
    """The term over each domain, those before it left out: as it was taken away, as it is added."""
    pieces = []
    limits = Poly((extreme_limits(term, relation),))
    for i, domain in enumerate(domains):
        body = _marked(Poly((term,)), declaration.keys) * limits
        for earlier in domains[:i]:
            body *= outside_of(earlier, sure)
        plain, given = _split(domain, (term,))
        keep = frozenset(parameters(relation)) | frozenset(given)
        for simple in simplify(substitute(body, plain), keep).terms:
            keys, rest = _unmarked(simple)
            pieces.append(Piece(keys, ((MINUS_ONE, *rest),), "+=", False, given))
            pieces.append(Piece(keys, (rest,), "+=", True, given))
    return pieces


def _direct(
    declaration: MapDeclaration,
    poly: Poly,
    relation: Relation,
    insert: bool,
    domains: list[Domain],
    sure: frozenset[Var],
) -> list[Piece]:
    """The change by the row itself, for bindings that no domain reaches; nested polynomials stay."""
    body = _marked(delta(poly, relation, insert), declaration.keys)
    for domain in domains:
        body *= outside_of(domain, sure)
    simple = [_unmarked(t) for t in simplify(body, frozenset(parameters(relation))).terms]
    return [Piece(keys, (rest,), "+=", False, {}) for keys, rest in simple]


def _split(domain: Domain, terms: tuple[Term, ...]) -> tuple[dict[Var, Scalar], Domain]:
    """What may be substituted, and what must stay a variable that is given its value."""
    lifted = {v for t in terms for v in _lifted(t)}
    plain: dict[Var, Scalar] = {v: s for v, s in domain.items() if isinstance(s, Var) and v not in lifted}
    return plain, {v: s for v, s in domain.items() if v not in plain}


def _lifted(term: Term) -> Iterator[Var]:
    """The variables that lifts bind, at any depth."""
    for factor in term:
        if isinstance(factor, Lift):
            yield factor.var
        if isinstance(factor, NESTED):
            for inner in factor.body.terms:
                yield from _lifted(inner)


def _never_null(term: Term, known: Mapping[str, Relation]) -> frozenset[Var]:
    """The variables that a column which cannot be NULL binds."""
    found: frozenset[Var] = frozenset()
    for factor in term:
        if isinstance(factor, Rel):
            columns = zip(factor.args, known[factor.name].columns, strict=True)
            found |= {a for a, c in columns if isinstance(a, Var) and not c.nullable}
        elif isinstance(factor, Exists) and factor.body.terms:
            inner = [_never_null(t, known) for t in factor.body.terms]
            found |= frozenset(factor.group).intersection(*inner)
    return found


def _sure_parameters(relation: Relation) -> frozenset[Var]:
    columns = zip(parameters(relation), relation.columns, strict=True)
    return frozenset(p for p, c in columns if not c.nullable)


def _marked(poly: Poly, keys: tuple[Scalar, ...]) -> Poly:
    return poly * Poly(((Rel(TARGET, keys),),))


def _unmarked(term: Term) -> tuple[tuple[Scalar, ...], Term]:
    """The target's keys and the rest of a marked term."""
    marker = next(f for f in term if isinstance(f, Rel) and f.name == TARGET)
    return marker.args, tuple(f for f in term if f is not marker)
