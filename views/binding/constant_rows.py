"""Rows of constants in FROM: VALUES, UNNEST of a list, RANGE and GENERATE_SERIES, as a UNION ALL."""

from sqlglot import exp

from orderbook.views.binding.final_clauses import whole_number
from orderbook.views.binding.grouping import Queries
from orderbook.views.binding.parser import START, SqlText, position
from orderbook.views.binding.scope import refuse_other_clauses

# So many rows are written out; each is a query of its own.
MOST_CONSTANT_ROWS = 256


def constant_rows(queries: Queries, node: exp.Expr) -> exp.Values | None:
    """UNNEST([1, 2]), RANGE(n) and GENERATE_SERIES(a, b) of constants as VALUES; None for another item."""
    name = "unnest"
    if isinstance(node, exp.Unnest) and len(node.expressions) == 1 and not node.args.get("offset"):
        listed = node.expressions[0].unnest()
        if not isinstance(listed, exp.Array) or not listed.expressions:
            return None
        rows = list(listed.expressions)
    elif isinstance(node, exp.Table) and isinstance(node.this, exp.GenerateSeries | exp.Anonymous):
        call = node.this
        series = isinstance(call, exp.GenerateSeries)
        name = "generate_series" if series else call.name.lower()
        nodes = [call.args.get(k) for k in ("start", "end", "step")] if series else call.expressions
        given = [n for n in nodes if n is not None]
        numbers = [known for n in given if (known := _whole(queries, n)) is not None]
        known_all = len(numbers) == len(given) and 1 <= len(given) <= 3
        if name not in ("generate_series", "range") or not known_all:
            return None
        first, last, step = (0, *numbers, 1) if len(numbers) == 1 else (*numbers, 1)[:3]
        if not step:
            raise queries.text.error("a step of 0 ends nowhere", node)
        last += (1 if step > 0 else -1) * (name == "generate_series")
        counted = range(first, last, step)
        if not 0 < len(counted) <= MOST_CONSTANT_ROWS:
            message = f"{name.upper()} gives {len(counted)} rows; it may be 1 to {MOST_CONSTANT_ROWS} of them"
            raise queries.text.error(message, node)
        rows = [exp.Neg(this=exp.Literal.number(-n)) if n < 0 else exp.Literal.number(n) for n in counted]
    else:
        return None
    alias = node.args.get("alias")
    alias = alias.copy() if alias else exp.TableAlias(this=exp.to_identifier(name))
    if not alias.args.get("columns"):
        alias.set("columns", [exp.to_identifier(name)])
    values = exp.Values(expressions=[exp.Tuple(expressions=[r.copy()]) for r in rows], alias=alias)
    values.meta[START] = position(node)
    values.parent = node.parent
    return values


def _whole(queries: Queries, node: exp.Expr) -> int | None:
    inner = node.unnest()
    if isinstance(inner, exp.Neg):
        number = whole_number(queries, inner.this)
        return None if number is None else -number
    return whole_number(queries, inner)


def rows_of_values(text: SqlText, node: exp.Values) -> exp.Subquery:
    """VALUES as a UNION ALL of queries without FROM; its columns are col0, col1, ... without other names."""
    refuse_other_clauses(text, node, {"expressions", "alias"})
    rows = [e.expressions if isinstance(e, exp.Tuple) else [e] for e in node.expressions]
    query: exp.Query | None = None
    for row in rows:
        if len(row) != len(rows[0]):
            raise text.error(f"the rows of VALUES have {len(rows[0])} and {len(row)} columns", node)
        named = [exp.alias_(value.copy(), f"col{place}") for place, value in enumerate(row)]
        one = exp.Select(expressions=named)
        query = one if query is None else exp.Union(this=query, expression=one, distinct=False)
    alias = node.args.get("alias")
    found = exp.Subquery(this=query, alias=alias.copy() if alias else None)
    for part in found.walk():
        part.meta.setdefault(START, position(node))
    return found
