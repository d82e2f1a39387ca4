"""Conditions on how many rows there are."""

from collections.abc import Sequence

from views.compiler.types import Kind, Type

from .bound import Aggregate, Comparison, Expression, OuterJoin, Output, ScalarSubquery, Select, Source
from .building import comparison, logical
from .typing_rules import number


def count_of(
    rows: tuple[Source | OuterJoin, ...], conditions: Sequence[Expression], most: int, op: str
) -> Comparison:
    """`(SELECT COUNT(*) FROM rows WHERE conditions) op 0`; there are at most `most` rows."""
    counted = Type(Kind.INTEGER, 0, 0, most)
    output = Output("count", Aggregate("count", None, counted, nullable=False))
    where = logical("AND", conditions) if conditions else None
    query = Select(rows, where, (), (output,), True)
    return comparison(op, ScalarSubquery(query, counted, nullable=False), number(0))
