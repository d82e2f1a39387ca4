"""The order of rows: the rows that stand before another one, NULL where ORDER BY says."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from views.compiler.calculus import ZERO, Exists, Poly, Rel, Scalar, Var, bound_by, substitute
from views.compiler.conditions import TRUE, both, comparison, condition_poly, negation, not_null
from views.compiler.names import own_variable, renamed

from .values import Value


@dataclass(frozen=True, slots=True)
class Ordered:
    """What rows are ordered by at one place: its value in the rows counted and in the row at hand."""

    one: Value
    other: Value
    descending: bool = False
    nulls_first: bool = False


def before(rows: Poly, order: Sequence[Ordered]) -> Poly:
    """Those of `rows` that stand before the row at hand; rows equal in everything do not."""
    result = ZERO
    for item, equal in _places(rows, order):
        result += equal * _before(item, peers=False)
    return result


def up_to(rows: Poly, order: Sequence[Ordered]) -> Poly:
    """Those of `rows` that stand before the row at hand or are its peers."""
    if not order:
        return rows
    result = ZERO
    for place, (item, equal) in enumerate(_places(rows, order), 1):
        result += equal * _before(item, peers=place == len(order))
    return result


def _places(rows: Poly, order: Sequence[Ordered]) -> list[tuple[Ordered, Poly]]:
    """For each place of the order, those of `rows` that are equal in all places before it."""
    result = []
    names: dict[Var, Scalar] = {}
    for item in order:
        item = Ordered(renamed(item.one, names), item.other, item.descending, item.nulls_first)
        result.append((item, rows))
        same = _shared(rows, item)
        rows = substitute(rows, same) if same else rows * _same(item)
        names |= same
    return result


def _before(item: Ordered, peers: bool) -> Poly:
    """Whether the one stands before the other in this item alone, or is equal where `peers`.

    NULLs stand together at one end; the two cases exclude each other.
    """
    one, other = item.one, item.other
    op = (">" if item.descending else "<") + ("=" if peers else "")
    present = both(both(one.valid, other.valid), comparison(op, one.scalar, other.scalar))
    first, last = (one, other) if item.nulls_first else (other, one)
    absent = both(negation(first.valid), TRUE if peers else last.valid)
    return condition_poly(present) + condition_poly(absent)


def _same(item: Ordered) -> Poly:
    one, other = item.one, item.other
    equal = both(both(one.valid, other.valid), comparison("=", one.scalar, other.scalar))
    return condition_poly(equal) + condition_poly(both(negation(one.valid), negation(other.valid)))


def _shared(rows: Poly, item: Ordered) -> Mapping[Var, Scalar]:
    """The one's variable as the other's, where it is a column of the rows: so NULL equals NULL."""
    columns = [{v for f in term if isinstance(f, Rel | Exists) for v in bound_by(f)} for term in rows.terms]
    variable = own_variable(item.one, set.intersection(*columns) if columns else set())
    other = item.other.scalar
    if variable is None or not isinstance(other, Var) or item.other.valid not in (TRUE, not_null(other)):
        return {}
    return {variable: other}
