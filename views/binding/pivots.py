"""PIVOT as the query that it stands for: an aggregate with FILTER for each of the values that it names.

`FROM t PIVOT (SUM(v) FOR side IN ('bid', 'ask') GROUP BY s)` is
`SELECT s, SUM(v) FILTER (WHERE side = 'bid') AS bid, … AS ask FROM t GROUP BY s`.
Without GROUP BY its groups are of all columns that it does not name.
"""

from collections.abc import Sequence
from itertools import product

from sqlglot import exp

from orderbook.views.binding.aggregates import call_of
from orderbook.views.binding.parser import START, SqlText, position
from orderbook.views.binding.scope import identifier, refusal_text

_NAMED_VALUES = "PIVOT needs the values of each column, as in ON side IN ('bid', 'ask')"


def pivoted(text: SqlText, source: exp.Expr, pivot: exp.Pivot, columns: Sequence[str]) -> exp.Select:
    """The query of a PIVOT over a source that has these columns."""
    fields, aggregates = pivot.args.get("fields") or [], pivot.expressions
    if pivot.args.get("default_on_null"):
        raise text.error(
            refusal_text("PIVOT with DEFAULT ON NULL", "write COALESCE around the columns"), pivot
        )
    for field in fields:
        if (
            not isinstance(field, exp.In)
            or not field.expressions
            or isinstance(field.expressions[0], exp.Query)
        ):
            raise text.error(_NAMED_VALUES, field)
    group = pivot.args.get("group")
    if group:
        kept = [e.copy() for e in group.expressions]
    else:
        named = {c.name.lower() for part in (*aggregates, *fields) for c in part.find_all(exp.Column)}
        kept = [exp.column(name) for name in columns if name not in named]
    outputs = [e.copy() for e in kept]
    for values in product(*(field.expressions for field in fields)):
        conditions = [_condition(field.this, value) for field, value in zip(fields, values, strict=True)]
        names = [_name(text, value) for value in values]
        for aggregate in aggregates:
            own = [*names, aggregate.alias] if aggregate.alias else names
            if len(aggregates) > 1 and not aggregate.alias:
                raise text.error(
                    "of several aggregates of PIVOT each needs an alias, as in SUM(x) AS total", aggregate
                )
            value = _filtered(text, aggregate.unalias().copy(), exp.and_(*conditions))
            outputs.append(exp.alias_(value, exp.to_identifier("_".join(own), quoted=False)))
    query = exp.Select(expressions=outputs, from_=exp.From(this=source))
    if kept:
        query.set("group", exp.Group(expressions=kept))
    for node in query.walk():
        node.meta.setdefault(START, position(pivot))
    return query


def _condition(column: exp.Expr, value: exp.Expr) -> exp.Expr:
    own = value.this if isinstance(value, exp.PivotAlias) else value
    if isinstance(own, exp.Null):
        return exp.Is(this=column.copy(), expression=own.copy())
    return exp.EQ(this=column.copy(), expression=own.copy())


def _name(text: SqlText, value: exp.Expr) -> str:
    if isinstance(value, exp.PivotAlias | exp.Alias):
        return identifier(value.args["alias"], text)
    shown = value.name if isinstance(value, exp.Literal | exp.Column) else value.sql()
    if not exp.to_identifier(shown, quoted=False).name.isidentifier():
        raise text.error(
            f"{shown[:40]!r} is no name of a column; write IN ({value.sql()[:40]} AS name)", value
        )
    return shown.lower()


def _filtered(text: SqlText, expression: exp.Expr, condition: exp.Expr) -> exp.Expr:
    """The expression with its aggregates over the rows of a condition alone."""
    found = []
    for node in expression.walk(prune=lambda n: call_of(n) is not None or isinstance(n, exp.Query)):
        if call_of(node) is not None:
            found.append(node)
    if not found:
        raise text.error("PIVOT takes an aggregate, as in USING SUM(volume)", expression)
    for node in found:
        if isinstance(node, exp.Filter):
            # DuckDB takes no notice of it there.
            raise text.error(
                refusal_text("FILTER in PIVOT", "put WHERE into the query that is pivoted"), node
            )
        filtered = exp.Filter(this=node.copy(), expression=exp.Where(this=condition.copy()))
        if node is expression:
            return filtered
        node.replace(filtered)
    return expression
