"""Limits on the first place of an order, implied by limits on ranks in all of it.

`ROW_NUMBER() OVER (ORDER BY price, id) <= 10` implies `RANK() OVER (ORDER BY price) <= 10`, which an index
by price can cut, so that the rows beyond it are not looked at.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from .bound import (
    ColumnRef,
    Comparison,
    Expression,
    Literal,
    Logical,
    OuterJoin,
    ScalarSubquery,
    Select,
    Source,
    Window,
)
from .building import comparison, logical
from .outputs import with_hidden
from .walk import has

_MIRRORED = {">": "<", ">=": "<=", "=": "="}


def with_implied(condition: Expression) -> Expression:
    """The condition and what its limits on ranks imply."""
    implied = [
        _limit(found[0], op, limit)
        for op, subject, limit in _limits(_conjuncts([condition]))
        if (found := _first_places([subject]))
    ]
    return logical("AND", [condition, *implied]) if implied else condition


def with_implied_in_sources(
    sources: Sequence[Source | OuterJoin], conditions: Sequence[Expression]
) -> tuple[tuple[Source | OuterJoin, ...], list[Expression]]:
    """The same for limits on columns of derived tables, which get the rank of the first place as a column."""
    result, implied = list(sources), list(conditions)
    for op, subject, limit in _limits(_conjuncts(conditions)):
        for place, source in enumerate(result):
            if not (isinstance(subject, ColumnRef) and isinstance(source, Source)):
                continue
            if source.id != subject.source or not isinstance(source.relation, Select):
                continue
            outputs = source.relation.outputs
            ranks = _first_places([o.expression for o in outputs if o.name == subject.name])
            if ranks and not source.relation.top:
                result[place] = replace(source, relation=with_hidden(source.relation, ranks))
                name = result[place].relation.outputs[-1].name  # type: ignore[union-attr]
                implied.append(_limit(ColumnRef(source.id, name, ranks[0].type, False), op, limit))
    return tuple(result), implied


def _conjuncts(conditions: Iterable[Expression]) -> Iterable[Expression]:
    for condition in conditions:
        if isinstance(condition, Logical) and condition.op == "AND":
            yield from _conjuncts(condition.args)
        else:
            yield condition


def _limits(conditions: Iterable[Expression]) -> list[tuple[str, Expression, Literal]]:
    """The conditions that are `subject op limit`, op one of < <= =."""
    found = []
    for condition in conditions:
        if isinstance(condition, Comparison):
            if isinstance(condition.right, Literal) and condition.op in ("<", "<=", "="):
                found.append((condition.op, condition.left, condition.right))
            elif isinstance(condition.left, Literal) and condition.op in _MIRRORED:
                found.append((_MIRRORED[condition.op], condition.right, condition.left))
    return found


def _first_places(expressions: Iterable[Expression]) -> list[Window]:
    """The ranks in the first place of the order of ranks in several."""
    return [
        replace(e, function="rank", order_by=e.order_by[:1])
        for e in expressions
        if isinstance(e, Window)
        and e.function in ("rank", "row_number")
        and len(e.order_by) > 1
        and not has(e, ScalarSubquery)
    ]


def _limit(rank: Expression, op: str, limit: Literal) -> Expression:
    return comparison("<=" if op == "=" else op, rank, limit)
