"""NULL apart from the other values of a key, so that it hides no range or cut of them.

What SQL compares is guarded: `(sum ^= m[q] * {q > p} * [not(is_null(p))])` is 0 where p is NULL, which is no
running sum along the order of p. Where a map that binds p has no entries of NULL the guard goes; elsewhere
the term becomes two, for p that is not NULL and for NULL alone, where cuts are gained by it.
"""

from collections.abc import Iterable, Iterator, Mapping

from orderbook.views.calculus import (
    NESTED,
    Apply,
    Cmp,
    Exists,
    Extreme,
    Factor,
    Lift,
    MapRef,
    Poly,
    Rel,
    Scalar,
    Term,
    Val,
    Var,
    map_scalar,
    scalars_of,
    with_body,
)
from orderbook.views.conditions import FALSE, TRUE, is_null, not_null
from orderbook.views.m3 import MapDeclaration
from orderbook.views.simplify import folded
from orderbook.views.types import Relation


def excludes_null(declaration: MapDeclaration, position: int, relations: Mapping[str, Relation]) -> bool:
    """Whether no entry of a map has NULL as its key at `position`, by the map's definition."""
    terms = declaration.definition.terms
    return bool(terms) and all(_binds_no_null(t, declaration.keys[position], relations) for t in terms)


def _binds_no_null(term: Term, key: Var, relations: Mapping[str, Relation]) -> bool:
    for factor in term:
        match factor:
            case Val(scalar) if scalar == not_null(key):
                return True
            case Rel(name, arguments) if name in relations:
                columns = zip(relations[name].columns, arguments, strict=True)
                if any(argument == key and not column.nullable for column, argument in columns):
                    return True
            case Exists(group, Poly(terms)) if key in group and terms:
                if all(_binds_no_null(t, key, relations) for t in terms):
                    return True
    return False


def asked(term: Term, known: frozenset[Var]) -> list[Var]:
    """The variables that the bodies of a term's lifts ask whether they are NULL, if it binds them."""
    found = (v for f in term if isinstance(f, Lift) for t in f.body.terms for v in _asked(t))
    return [v for v in dict.fromkeys(found) if v in known or any(reads_of(term, v))]


def _asked(term: Term) -> Iterator[Var]:
    for factor in term:
        for scalar in scalars_of(factor):
            yield from _asked_by(scalar)
        if isinstance(factor, NESTED):
            for inner in factor.body.terms:
                yield from _asked(inner)


def _asked_by(scalar: Scalar) -> Iterator[Var]:
    match scalar:
        case Apply("is_null", (Var() as variable,)):
            yield variable
        case Apply(_, arguments):
            for argument in arguments:
                yield from _asked_by(argument)


def decided(term: Term, variable: Var, null: bool) -> Term | None:
    """The term where the variable is NULL, or is not; None where the term is 0 then."""
    result: list[Factor] = []
    for factor in term:
        match factor:
            case Val(scalar):
                value = _decided(scalar, variable, null)
                if value == FALSE:
                    return None
                if value != TRUE:
                    result.append(Val(value))
            case Cmp(_, left, right) if null and variable in (left, right):
                return None
            case Lift(_, body) | Exists(_, body):
                result.append(with_body(factor, _decided_body(body, variable, null)))
            case Extreme(_, _, value, body) if value != variable:
                told = _decided_body(body, variable, null)
                # One of nothing stays as it was, for nothing else says of what type its 0 is.
                result.append(with_body(factor, told) if told.terms else factor)
            case _:
                result.append(factor)
    return tuple(result)


def all_present(term: Term, variables: Iterable[Var]) -> Term:
    """The term where none of the variables is NULL, as far as it is not 0 then."""
    for variable in variables:
        term = decided(term, variable, null=False) or term
    return term


def _decided_body(body: Poly, variable: Var, null: bool) -> Poly:
    terms = [decided(t, variable, null) for t in body.terms]
    return Poly(tuple(t for t in terms if t is not None))


def _decided(scalar: Scalar, variable: Var, null: bool) -> Scalar:
    asks = is_null(variable)
    answer = TRUE if null else FALSE
    told = map_scalar(scalar, lambda s: answer if s == asks else s)
    return scalar if told == scalar else folded(told)


def reads_of(term: Term, variable: Var) -> Iterator[MapRef | Exists]:
    """The factors of a term that bind a variable to keys of one map."""
    for factor in term:
        match factor:
            case MapRef(_, keys) if variable in keys:
                yield factor
            case Exists(group, Poly(((MapRef(_, keys),),))) if variable in group and variable in keys:
                yield factor


def map_of(read: MapRef | Exists) -> MapRef:
    """The map that a factor reads whose keys it binds."""
    if isinstance(read, MapRef):
        return read
    found = read.body.terms[0][0]
    assert isinstance(found, MapRef)
    return found
