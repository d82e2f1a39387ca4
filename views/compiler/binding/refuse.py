"""The names of SQL constructs that are refused, and what to write instead."""

from collections.abc import Collection

from sqlglot import exp

from .dialect import SqlText

_CLAUSES: dict[str, tuple[str, str]] = {
    "order": ("ORDER BY", "order the query around it"),
    "limit": ("LIMIT", "limit the query around it"),
    "offset": ("OFFSET", "skip rows of the query around it"),
    "laterals": ("LATERAL", "write a correlated scalar subquery"),
    "sample": ("TABLESAMPLE", "choose rows by a column, as in WHERE id % 10 = 0"),
    "pivots": ("PIVOT", "write SUM(CASE WHEN ... THEN ... END) for each value"),
    "unpivot": ("UNPIVOT", "write a UNION ALL of a SELECT for each column"),
    "locks": ("FOR UPDATE", ""),
    "into": ("SELECT INTO", "write CREATE VIEW name AS SELECT ..."),
    "connect": ("CONNECT BY", ""),
    "kind": ("SELECT AS", ""),
    "joins": ("joins here", "write them in a derived table"),
    "using": ("USING here", "write ON with the equality"),
    "db": ("relation name of several parts", "write its name alone"),
    "version": ("time travel", ""),
    "grouping_sets": ("GROUPING SETS after the items", "write GROUP BY GROUPING SETS (...)"),
    "cube": ("WITH CUBE", "write GROUP BY CUBE (...)"),
    "rollup": ("WITH ROLLUP", "write GROUP BY ROLLUP (...)"),
    "totals": ("WITH TOTALS", "write GROUP BY GROUPING SETS ((...), ())"),
    "by_name": ("UNION BY NAME", "select the columns in one order"),
}

_NODES: dict[type[exp.Expr], tuple[str, str]] = {
    exp.Distinct: ("DISTINCT", "GROUP BY the columns in a derived table"),
    exp.Any: ("ANY without a comparison", "write x = ANY (SELECT ...)"),
    exp.All: ("ALL without a comparison", "write x = ALL (SELECT ...)"),
    exp.SimilarTo: ("SIMILAR TO", "write LIKE"),
    exp.RegexpLike: ("regular expression", "write LIKE"),
    exp.Tuple: ("row value", "compare column by column"),
    exp.Values: ("VALUES", "declare a table with CREATE TABLE"),
    exp.Unnest: ("UNNEST", ""),
    exp.Lateral: ("LATERAL", "write a correlated scalar subquery"),
    exp.BitwiseAnd: ("& operator", ""),
    exp.BitwiseOr: ("| operator", ""),
    exp.BitwiseXor: ("^ operator", "write POWER(x, y)"),
    exp.BitwiseNot: ("~ operator", ""),
    exp.Star: ("* here", "name the columns"),
    exp.Dot: ("name of several parts", "write alias.column"),
    exp.Bracket: ("[ ] (subscript)", ""),
    exp.Array: ("[ ] (array)", ""),
    exp.DPipe: ("|| (concatenation)", ""),
    exp.Parameter: ("@ parameter", "write :name"),
    exp.Rand: ("volatile function RANDOM", "draw the number where rows are made, as a column"),
    exp.Randn: ("volatile function RANDN", "draw the number where rows are made, as a column"),
    exp.Uuid: ("volatile function UUID", "make it where rows are made, as a column"),
}

_DATE_FUNCTIONS: dict[type[exp.Expr], str] = {
    exp.CurrentDate: "write DATE_TRUNC('day', NOW())",
    exp.CurrentTime: "write NOW()",
    exp.CurrentDatetime: "write NOW()",
    exp.DateAdd: "write ts + INTERVAL '1 day'",
    exp.DateSub: "write ts - INTERVAL '1 day'",
    exp.DateDiff: "subtract the timestamps, which gives ns",
    exp.AtTimeZone: "timestamps are UTC; add an INTERVAL",
}
_NAMES = {
    "AGE": "subtract the timestamps, which gives ns",
    "STRFTIME": "format the time where it is read",
    "TO_TIMESTAMP": "write MAKE_TIMESTAMP_NS(ns)",
    "MAKE_TIMESTAMP": "write MAKE_TIMESTAMP_NS(ns)",
}
_AGGREGATES = (
    "those maintained are SUM, COUNT, AVG, MIN, MAX, VARIANCE, STDDEV, ARG_MIN, ARG_MAX, FIRST, LAST, "
    "BOOL_AND and BOOL_OR"
)


def clause(key: str, node: object = None) -> str:
    """The refusal of a clause that sqlglot keeps under `key` of a query, table or join."""
    if key == "with_" and isinstance(node, exp.With) and node.recursive:
        return sentence("WITH RECURSIVE", "write a view for each step")
    if key == "pivots" and isinstance(node, list) and node[0].args.get("unpivot"):
        key = "unpivot"
    name, instead = _CLAUSES.get(key, (key.strip("_").replace("_", " ").upper(), ""))
    return sentence(name, instead)


def construct(node: exp.Expr) -> str:
    """The refusal of a node: its SQL name, and what to write instead where there is such a thing."""
    if type(node) in _DATE_FUNCTIONS:
        name = node.sql_name() if isinstance(node, exp.Func) else "AT TIME ZONE"
        return sentence(f"date function {name}", _DATE_FUNCTIONS[type(node)])
    known = _NODES.get(type(node))
    if known:
        return sentence(*known)
    if isinstance(node, exp.Anonymous):
        name = node.name.upper()
        kind = "date function" if name in _NAMES else "function"
        return sentence(f"{kind} {name}", _NAMES.get(name, ""))
    if isinstance(node, exp.AggFunc):
        return sentence(f"aggregate {node.sql_name()}", _AGGREGATES)
    if isinstance(node, exp.Func):
        return sentence(f"function {node.sql_name()}", "")
    return sentence(type(node).__name__.upper(), "")


def sentence(name: str, instead: str) -> str:
    return f"{name} is not supported" + (f"; {instead}" if instead else "")


def only(text: SqlText, node: exp.Expr, taken: Collection[str]) -> None:
    """Refuses every clause of a node but those in `taken`."""
    for key, value in node.args.items():
        if value and key not in taken:
            at = value[0] if isinstance(value, list) else value
            raise text.error(clause(key, value), at if isinstance(at, exp.Expr) else node)
