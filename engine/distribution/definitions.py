"""What the definition of a map says about partial sums, and what is left of it over a stage's streams."""

from collections.abc import Mapping, Sequence

from views.compiler.calculus import NESTED, ZERO, Exists, Factor, Poly, Rel, Scalar, Term, bound_by, with_body


def one_value(definition: Poly, columns: Mapping[str, tuple[int, ...]]) -> bool:
    """Whether every product of a definition has one value of an axis, in all relations that have its columns.

    Then a pair of rows is counted in the same partition whichever comes or goes first, so that a partial sum
    is that of its partition's rows: bounded as the whole is, and gone with them. `columns`: by relation.
    """
    return bool(definition.terms) and all(_has_one(t, columns) for t in definition.terms)


def _has_one(term: Term, columns: Mapping[str, tuple[int, ...]]) -> bool:
    """Whether one value is all there is, and the product binds it: within a group there may be several."""
    found = _values(term, columns)
    bound = (bound_by(f) for f in term if isinstance(f, Rel | Exists))
    return len(found) == 1 and found <= frozenset[Scalar]().union(*bound)


def _values(term: Term, columns: Mapping[str, tuple[int, ...]]) -> set[Scalar]:
    found: set[Scalar] = set()
    for factor in term:
        if isinstance(factor, Rel):
            found |= {factor.args[i] for i in columns.get(factor.name, ())}
        elif isinstance(factor, NESTED):
            for inner in factor.body.terms:
                found |= _values(inner, columns)
    return found


def over_streams(definition: Poly, streams: Mapping[str, tuple[str, Sequence[int]]]) -> Poly:
    """The definition over the streams of a stage, by relation: the stream's name, and which columns it has.

    Nothing is known of what a relation gives that no stream carries: 0 then, a definition of nothing.
    """
    try:
        return _poly(definition, streams)
    except KeyError:
        return ZERO


def _poly(poly: Poly, streams: Mapping[str, tuple[str, Sequence[int]]]) -> Poly:
    return Poly(tuple(tuple(_factor(f, streams) for f in t) for t in poly.terms))


def _factor(factor: Factor, streams: Mapping[str, tuple[str, Sequence[int]]]) -> Factor:
    if isinstance(factor, Rel):
        name, columns = streams[factor.name]
        return Rel(name, tuple(factor.args[i] for i in columns))
    return with_body(factor, _poly(factor.body, streams)) if isinstance(factor, NESTED) else factor
