"""SQLite's SELECT in the language of views.

What differs is written out: `/` between integers truncates, outputs need names of their own, and a
condition is not a number. ORDER BY without LIMIT is left to who reads the rows.
"""

from collections.abc import Callable, Mapping
from typing import TypeVar

import sqlglot
from sqlglot import exp

from orderbook.core.errors import SqlError

_Node = TypeVar("_Node", bound=exp.Expr)

# Columns with their SQLite types, by table.
Schema = Mapping[str, Mapping[str, str]]

_STREAM_TYPES = {"INTEGER": "INTEGER", "FLOAT": "DOUBLE", "REAL": "DOUBLE", "TEXT": "TEXT"}
_REALS = (exp.Avg, exp.Stddev, exp.Variance)


def declared(schema: Schema) -> str:
    """CREATE STREAM statements for the tables."""
    return "".join(
        f"CREATE STREAM {table} ({', '.join(f'{c} {_STREAM_TYPES[t]}' for c, t in columns.items())});\n"
        for table, columns in schema.items()
    )


def converted(sql: str, schema: Schema) -> tuple[str, tuple[int, ...]]:
    """The query in the language of views, and the positions of the columns that its ORDER BY names.

    Raises SqlError for what it cannot write.
    """
    tree = sqlglot.parse_one(sql, dialect="sqlite")
    order = _ordinals(tree)
    for division in list(tree.find_all(exp.Div)):
        _replace_division(division, schema)
    if isinstance(tree, exp.Select):
        _name_outputs(tree, schema)
    return tree.sql(dialect="duckdb"), order


def _ordinals(tree: exp.Expr) -> tuple[int, ...]:
    order = tree.args.get("order")
    if order is None:
        return ()
    ordinals = []
    for item in order.expressions:
        if not (isinstance(item.this, exp.Literal) and item.this.is_int) or item.args.get("desc"):
            raise SqlError(f"ORDER BY {item.sql()}", 1, 1)
        ordinals.append(int(item.this.this) - 1)
    if not tree.args.get("limit"):
        order.pop()
    return tuple(ordinals)


def _replace_division(division: exp.Div, schema: Schema) -> None:
    integers = not (_is_real(division.this, schema) or _is_real(division.expression, schema))
    written = exp.IntDiv if integers else exp.Div
    division.replace(written(this=division.this, expression=division.expression))


def _is_real(node: exp.Expr, schema: Schema) -> bool:
    """Whether SQLite computes a real number: what its operands are, not its conditions."""
    match node:
        case exp.Column():
            kinds = {columns[node.name] for columns in schema.values() if node.name in columns}
            return kinds == {"FLOAT"} or kinds == {"REAL"}
        case exp.Literal():
            return not node.is_string and not node.is_int
        case exp.Cast():
            return bool(node.to.is_type("real", "double", "float", "decimal"))
        case exp.Count() | exp.IntDiv() | exp.Predicate():
            return False
        case exp.Case():
            values = [branch.args["true"] for branch in node.args["ifs"]]
            return any(_is_real(v, schema) for v in (*values, node.args.get("default")) if v is not None)
        case exp.Subquery() | exp.Select():
            return any(_is_real(e, schema) for e in node.selects)
    return isinstance(node, _REALS) or any(_is_real(n, schema) for n in node.iter_expressions())


def _name_outputs(query: exp.Select, schema: Schema) -> None:
    """Gives every output a name of its own, `*` written out."""
    outputs = [column for output in query.expressions for column in _columns(output, query, schema)]
    named = [
        exp.alias_(output.unalias(), f"c{number}", copy=False) for number, output in enumerate(outputs, 1)
    ]
    query.set("expressions", named)


def _columns(output: exp.Expr, query: exp.Select, schema: Schema) -> list[exp.Expr]:
    if not output.is_star or isinstance(output.unalias(), exp.AggFunc):
        return [output]
    wanted = output.table if isinstance(output, exp.Column) else ""
    tables = [t for t in query.find_all(exp.Table) if t.parent_select is query]
    return [
        exp.column(column, table=table.alias_or_name)
        for table in sorted(tables, key=_position(query))
        if wanted in ("", table.alias_or_name)
        for column in schema[table.name]
    ]


def _position(query: exp.Select) -> Callable[[exp.Table], int]:
    """The order in which tables stand in the text of a query."""
    places = {id(table): number for number, table in enumerate(query.dfs()) if isinstance(table, exp.Table)}
    return lambda table: places[id(table)]
