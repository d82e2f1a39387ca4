"""The names of SQL constructs that are refused, and what to write instead."""

from sqlglot import exp

_CLAUSES: dict[str, tuple[str, str]] = {
    "with_": ("WITH (common table expression)", "write a derived table or CREATE VIEW"),
    "distinct": ("SELECT DISTINCT", "GROUP BY the selected columns"),
    "having": ("HAVING", "filter in WHERE over a derived table with the GROUP BY"),
    "qualify": ("QUALIFY", ""),
    "windows": ("WINDOW", ""),
    "order": ("ORDER BY", "a view is a set of rows; order them where they are read"),
    "limit": ("LIMIT", "take the first rows where they are read"),
    "offset": ("OFFSET", "skip rows where they are read"),
    "laterals": ("LATERAL", "write a correlated scalar subquery"),
    "sample": ("TABLESAMPLE", ""),
    "pivots": ("PIVOT", ""),
    "locks": ("FOR UPDATE", ""),
    "into": ("SELECT INTO", "write CREATE VIEW name AS SELECT ..."),
    "connect": ("CONNECT BY", ""),
    "match": ("MATCH_RECOGNIZE", ""),
    "kind": ("SELECT AS", ""),
    "joins": ("parenthesised join", "write the joins without parentheses"),
    "using": ("USING", "write ON with the equality"),
    "method": ("JOIN", "write JOIN ... ON"),
    "db": ("relation name of several parts", "write its name alone"),
    "columns": ("column list of an alias", "name the columns in the SELECT with AS"),
    "version": ("time travel", ""),
    "grouping_sets": ("GROUPING SETS", "write one view per grouping"),
    "cube": ("CUBE", "write one view per grouping"),
    "rollup": ("ROLLUP", "write one view per grouping"),
    "all": ("GROUP BY ALL", "name the columns"),
    "totals": ("WITH TOTALS", "write a second view without GROUP BY"),
}

_NODES: dict[type[exp.Expr], tuple[str, str]] = {
    exp.Distinct: ("DISTINCT", "GROUP BY the columns in a derived table"),
    exp.Case: ("CASE", "move the condition to the WHERE of a scalar subquery or of a view of its own"),
    exp.If: ("IF", "move the condition to the WHERE of a scalar subquery or of a view of its own"),
    exp.Exists: ("EXISTS", "write (SELECT COUNT(*) ...) > 0"),
    exp.Any: ("ANY", "write (SELECT COUNT(*) ... WHERE ...) > 0"),
    exp.All: ("ALL", "write (SELECT COUNT(*) ... WHERE NOT ...) = 0"),
    exp.Like: ("LIKE", "compare TEXT with ="),
    exp.ILike: ("ILIKE", "compare TEXT with ="),
    exp.SimilarTo: ("SIMILAR TO", "compare TEXT with ="),
    exp.RegexpLike: ("regular expression", "compare TEXT with ="),
    exp.NullSafeEQ: ("IS NOT DISTINCT FROM", "write = and IS NULL"),
    exp.NullSafeNEQ: ("IS DISTINCT FROM", "write <> and IS NULL"),
    exp.Union: ("UNION", "write one view for each part"),
    exp.Except: ("EXCEPT", ""),
    exp.Intersect: ("INTERSECT", ""),
    exp.Window: ("window function", "write a correlated scalar subquery"),
    exp.Filter: ("FILTER", "move the condition to WHERE"),
    exp.Cast: ("CAST or a literal with a type", "declare the column with the type"),
    exp.TryCast: ("TRY_CAST", "declare the column with the type"),
    exp.Rollup: ("ROLLUP", "write one view per grouping"),
    exp.Cube: ("CUBE", "write one view per grouping"),
    exp.GroupingSets: ("GROUPING SETS", "write one view per grouping"),
    exp.Tuple: ("row value", "compare column by column"),
    exp.Values: ("VALUES", "declare a table with CREATE TABLE"),
    exp.Unnest: ("UNNEST", ""),
    exp.Lateral: ("LATERAL", "write a correlated scalar subquery"),
    exp.Interval: ("INTERVAL", ""),
    exp.Mod: ("% (remainder)", ""),
    exp.IntDiv: ("integer division", "/ is real division"),
    exp.BitwiseAnd: ("& operator", ""),
    exp.BitwiseOr: ("| operator", ""),
    exp.BitwiseXor: ("^ operator", "multiply"),
    exp.BitwiseNot: ("~ operator", ""),
    exp.Bracket: ("[ ] (subscript)", ""),
    exp.Array: ("[ ] (array)", ""),
    exp.DPipe: ("|| (concatenation)", ""),
    exp.Min: ("MIN", "select the row for which (SELECT COUNT(*) ... WHERE the value is lower) = 0"),
    exp.Max: ("MAX", "select the row for which (SELECT COUNT(*) ... WHERE the value is higher) = 0"),
    exp.CurrentTimestamp: ("date function NOW()", "compare ts with another row's ts"),
    exp.Parameter: ("@ parameter", "write :name"),
    exp.Nvl2: ("NVL2", "write COALESCE"),
}

_DATE_FUNCTIONS = (
    exp.CurrentDate,
    exp.CurrentTime,
    exp.CurrentTimestamp,
    exp.CurrentDatetime,
    exp.Extract,
    exp.TimestampTrunc,
    exp.DateTrunc,
    exp.DateAdd,
    exp.DateSub,
    exp.DateDiff,
)
_DATE_NAMES = ("NOW", "DATE_PART", "AGE", "STRFTIME")


def clause(key: str, node: object = None) -> str:
    """The refusal of a clause that sqlglot keeps under `key` of a query, table or join."""
    if key == "with_" and isinstance(node, exp.With) and node.recursive:
        return sentence("WITH RECURSIVE", "")
    if key == "method":
        return sentence(f"{str(node).upper()} JOIN", _CLAUSES[key][1])
    name, instead = _CLAUSES.get(key, (key.strip("_").replace("_", " ").upper(), ""))
    return sentence(name, instead)


def construct(node: exp.Expr) -> str:
    """The refusal of a node: its SQL name, and what to write instead where there is such a thing."""
    if isinstance(node, _DATE_FUNCTIONS):
        return sentence(f"date function {node.sql_name()}", "compare ts with another row's ts")
    known = _NODES.get(type(node))
    if known:
        return sentence(*known)
    if isinstance(node, exp.Anonymous):
        name = node.name.upper()
        kind = "date function" if name in _DATE_NAMES else "function"
        return sentence(f"{kind} {name}", "")
    if isinstance(node, exp.AggFunc):
        return sentence(f"aggregate {node.sql_name()}", "SUM, COUNT and AVG are maintained")
    if isinstance(node, exp.Func):
        return sentence(f"function {node.sql_name()}", "")
    return sentence(type(node).__name__.upper(), "")


def sentence(name: str, instead: str) -> str:
    return f"{name} is not supported" + (f"; {instead}" if instead else "")
