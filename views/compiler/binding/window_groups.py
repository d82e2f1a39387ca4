"""Windows over groups: the aggregation becomes a derived table, and the windows read its rows."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from .bound import Aggregate, ColumnRef, Expression, Output, ScalarSubquery, Select, Source
from .walk import rewritten


def over_groups(
    select: Select, hidden: Iterable[Expression], unique: Callable[[], str]
) -> tuple[Select, tuple[Expression, ...]]:
    """An aggregated query with windows as a query over its groups, and the hidden expressions over them.

    Its columns are the grouping expressions, aggregates and subqueries that the outputs are built from.
    `unique` names the source.
    """
    id = unique()
    columns: dict[Expression, Output] = {g: Output(f"group_{n}", g) for n, g in enumerate(select.group_by, 1)}

    def read(node: Any) -> Any:
        if isinstance(node, Output) or not (node in columns or isinstance(node, Aggregate | ScalarSubquery)):
            return None
        column = columns.setdefault(node, Output(f"column_{len(columns) + 1}", node))
        return ColumnRef(id, column.name, node.type, node.nullable)

    outputs, others = rewritten(select.outputs, read), rewritten(tuple(hidden), read)
    inner = replace(select, outputs=tuple(columns.values()))
    return Select((Source(id, inner),), None, (), outputs, False), others
