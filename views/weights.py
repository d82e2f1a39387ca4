"""Which rows a map's sums weigh with less than 0, and a map that counts them.

Where a sum runs along an order its end is found by one descent while no weight is below 0 (engine/plan). Of
a column that is not declared so a map counts the rows that are below 0, so that it is known at each event.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from orderbook.views.calculus import (
    NESTED,
    Apply,
    Cmp,
    Const,
    Factor,
    Lift,
    MapRef,
    Poly,
    Rel,
    Scalar,
    Term,
    Val,
    Var,
    product,
    variable_set,
)
from orderbook.views.conditions import is_condition, known_not_null, not_null
from orderbook.views.types import Relation

# Places of columns in a relation, each with what the rows have there.
Rows = frozenset[tuple[int, Scalar]]


@dataclass(frozen=True, slots=True)
class Weights:
    """A column of rows that are added up, at its place in its relation; what else is known of those rows."""

    relation: str
    column: int
    rows: Rows

    def covers(self, other: "Weights") -> bool:
        """Whether these are all rows that the other names, of the same column."""
        same = (self.relation, self.column) == (other.relation, other.column)
        return same and self.rows <= other.rows


def weights_of(
    definition: Poly, keys: Mapping[Var, Scalar], relations: Mapping[str, Relation]
) -> frozenset[Weights] | None:
    """The columns of which no value may be below 0 so that no sum is; None where that is not enough.

    keys: of the map that is defined so, with what it is read at.
    """
    found: set[Weights] = set()
    for term in definition.terms:
        for factor in term:
            if isinstance(factor, Val) and not is_condition(factor.scalar):
                own = _of_scalar(factor.scalar, term, keys, relations)
                if own is None:
                    return None
                found |= own
    return frozenset(found)


def _of_scalar(
    scalar: Scalar, term: Term, keys: Mapping[Var, Scalar], relations: Mapping[str, Relation]
) -> frozenset[Weights] | None:
    match scalar:
        case Const(value):
            return frozenset() if isinstance(value, int | float) and value >= 0 else None
        case Var():
            return _of_variable(scalar, term, keys, relations)
        case Apply("*" | "+", args):
            parts = [_of_scalar(a, term, keys, relations) for a in args]
        case Apply("if", (_, *chosen)):
            parts = [_of_scalar(a, term, keys, relations) for a in chosen]
        case _:
            return None
    known = [p for p in parts if p is not None]
    return frozenset().union(*known) if len(known) == len(parts) else None


def _of_variable(
    variable: Var, term: Term, keys: Mapping[Var, Scalar], relations: Mapping[str, Relation]
) -> frozenset[Weights] | None:
    for factor in term:
        match factor:
            case Rel(name, arguments) if variable in arguments and name in relations:
                place = arguments.index(variable)
                kind = relations[name].columns[place].type
                if kind.exact and kind.low >= 0:
                    return frozenset()
                rows = ((i, keys[a]) for i, a in enumerate(arguments) if isinstance(a, Var) and a in keys)
                return frozenset({Weights(name, place, frozenset(rows))})
            case Lift(var, body) if var == variable:
                return weights_of(body, keys, relations)
    return None


def rows_below_zero(weights: Weights, relations: Mapping[str, Relation]) -> tuple[tuple[Var, ...], Poly]:
    """How many rows have less than 0 in a column, and the variables of the columns that are known of them."""
    relation = relations[weights.relation]
    row = tuple(Var(c.name) for c in relation.columns)
    asked, value = relation.columns[weights.column], row[weights.column]
    guard = (Val(not_null(value)),) if asked.nullable else ()
    zero = Const(0) if asked.type.exact else Const(0.0)
    body = product(Rel(weights.relation, row), *guard, Cmp("<", value, zero))
    return tuple(row[place] for place, _ in sorted(weights.rows, key=lambda r: r[0])), body


def counted_rows(
    definition: Poly, keys: Mapping[Var, Scalar], relations: Mapping[str, Relation]
) -> Weights | None:
    """The rows of which a map, read at some keys, counts those with less than 0; None for other maps."""
    if len(definition.terms) != 1:
        return None
    (term,) = definition.terms
    rows = [f for f in term if isinstance(f, Rel) and f.name in relations]
    asked = [f for f in term if isinstance(f, Cmp)]
    if (
        len(rows) != 1
        or len(asked) != 1
        or asked[0].op != "<"
        or asked[0].right not in (Const(0), Const(0.0))
    ):
        return None
    value, arguments = asked[0].left, rows[0].args
    others = (f for f in term if f is not rows[0] and f is not asked[0])
    if value not in arguments or any(known_not_null(f) != value for f in others):
        return None
    if len({*arguments}) != len(arguments) or not keys.keys() <= {*arguments}:
        return None
    known = frozenset((i, keys[a]) for i, a in enumerate(arguments) if isinstance(a, Var) and a in keys)
    return Weights(rows[0].name, arguments.index(value), known)


def summed_along(term: Term) -> Iterator[MapRef]:
    """The maps of a term, at any depth, whose sums run along an order and are compared."""
    compared = frozenset(v for f in term if _is_compared(f) for v in variable_set(f))
    for factor in term:
        if isinstance(factor, NESTED):
            for inner in factor.body.terms:
                yield from summed_along(inner)
        if isinstance(factor, Lift) and factor.var in compared:
            for inner in factor.body.terms:
                if any(_is_compared(f) for f in inner):
                    yield from (f for f in inner if isinstance(f, MapRef))


def _is_compared(factor: Factor) -> bool:
    return isinstance(factor, Cmp) and factor.op not in ("=", "<>")


def counters(term: Term, known: frozenset[Var], used: frozenset[Var]) -> dict[Lift, MapRef]:
    """The lifts of a term to variables that nothing uses, of an entry of a map each, with that."""
    found = {}
    for factor in term:
        match factor:
            case Lift(var, Poly(((MapRef(_, keys) as read,),))) if var not in used | known and all(
                isinstance(k, Var) and k in known for k in keys
            ):
                if not any(var in variable_set(f) for f in term if f is not factor):
                    found[factor] = read
    return found
