"""What a query may be made of: SELECTs over what the program holds, and functions that compute.

DuckDB has functions and views that tell of its settings, of files and of the process that it runs in. Only
those on a list are let through, as the parsed text names them, in whatever spelling, schema or nesting.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import duckdb

from orderbook.errors import SqlError

# In FROM: those that make rows of their arguments alone.
TABLE_FUNCTIONS = frozenset({"generate_series", "json_each", "json_tree", "range", "repeat_row", "unnest"})
# They give something else each time, but tell nothing that others may not know.
_CHANGING = frozenset(
    (
        "current_date", "current_localtime", "current_localtimestamp", "error", "gen_random_uuid",
        "get_current_time", "get_current_timestamp", "now", "random", "today", "transaction_timestamp",
        "uuid", "uuidv4", "uuidv7",
    )
)  # fmt: skip
# They always give the same, but of the program or of files, or run what others must not be asked to.
_TELLING = frozenset(
    (
        "json_deserialize_sql", "json_serialize_plan", "json_serialize_sql", "parse_duckdb_log_message",
        "version",
    )
)  # fmt: skip
_INTERNAL = ("__internal", "pg_", "duckdb_", "pragma_", "has_", "inet_")
# What reads or writes otherwise than a SELECT, wherever it stands in one.
_REFUSED_NODES = {
    "SHOW_REF": "DESCRIBE, SHOW and SUMMARIZE",
    "INSERT_QUERY_NODE": "INSERT",
    "UPDATE_QUERY_NODE": "UPDATE",
    "DELETE_QUERY_NODE": "DELETE",
    "MERGE_INTO_QUERY_NODE": "MERGE",
}


@dataclass(frozen=True, slots=True)
class QueryNames:
    """The lower-case names in FROM at any depth, in order, and those that a query's WITHs give."""

    tables: tuple[str, ...]
    given: frozenset[str]


def placed(message: str, position: object, sql: str, start: int = 0) -> SqlError:
    """An error at a position that DuckDB tells, in bytes, of SQL that began at `start`; None: nowhere."""
    if position is None or not str(position).isdecimal():
        return SqlError(message)
    before = sql.encode()[: max(int(str(position)) - start, 0)].decode(errors="ignore")
    return SqlError(message, before.count("\n") + 1, len(before) - before.rfind("\n"))


def names_in(tree: Mapping[str, Any], sql: str) -> QueryNames:
    """The names in SQL, of which `json_serialize_sql` gives the tree.

    Raises SqlError with line and column for what is not let through.
    """
    tables: dict[str, None] = {}
    given: set[str] = set()
    waiting: list[Any] = [tree]
    # Not by recursion: texts may be nested deeply.
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            if (wrong := _refusal(node)) is not None:
                raise placed(wrong, node.get("query_location"), sql)
            if node.get("type") == "BASE_TABLE":
                tables[str(node["table_name"]).lower()] = None
            given.update(str(entry["key"]).lower() for entry in _entries(node.get("cte_map")))
            waiting.extend(reversed(node.values()))
        elif isinstance(node, list):
            waiting.extend(reversed(node))
    if hidden := sorted(given & _system_views()):
        raise SqlError(f"{hidden[0]} names a view of DuckDB; call what WITH gives otherwise")
    return QueryNames(tuple(tables), frozenset(given))


def check_tables(names: QueryNames, known: Mapping[str, object]) -> None:
    """Raises SqlError for a view of DuckDB's own, which nobody is told."""
    for name in names.tables:
        if name in _system_views() and name not in known:
            raise SqlError(f"{name} tells of DuckDB, not of the market, and is not let through")


def _entries(given: Any) -> list[Any]:
    return list(given.get("map", ())) if isinstance(given, dict) else []


def _refusal(node: Mapping[str, Any]) -> str | None:
    kind = str(node.get("type"))
    if kind in _REFUSED_NODES or kind.endswith("_QUERY_NODE"):
        return f"{_REFUSED_NODES.get(kind, kind)} cannot stand in a query; it asks and changes nothing"
    if kind == "BASE_TABLE" and (node.get("schema_name") or node.get("catalog_name")):
        return f"no view or relation is named {node['table_name']!r}; leave out its schema"
    if kind == "TABLE_FUNCTION" and (called := _function(node)) not in TABLE_FUNCTIONS:
        return f"table function {called} is not let through; {', '.join(sorted(TABLE_FUNCTIONS))} are"
    called = str(node.get("function_name", "")).lower()
    if kind != "TABLE_FUNCTION" and called in _refused_functions():
        return f"function {called} is not let through; it tells of DuckDB or of this machine"
    return None


def _function(node: Mapping[str, Any]) -> str:
    called = node.get("function")
    return str(called.get("function_name", "")).lower() if isinstance(called, dict) else ""


@cache
def _refused_functions() -> frozenset[str]:
    """Functions of DuckDB that are not let through as values; table functions that are no other kind, too."""
    kinds: dict[str, set[tuple[str, str | None, str | None, str]]] = {}
    with duckdb.connect() as connection:
        found = connection.execute(
            "SELECT lower(function_name), function_type, stability, macro_definition, schema_name "
            "FROM duckdb_functions()"
        ).fetchall()
    for name, kind, stability, macro, schema in found:
        kinds.setdefault(name, set()).add((kind, stability, macro, schema))
    refused = {name for name, own in kinds.items() if not _computes(name, own)}
    # Macros of DuckDB's own that call what is refused.
    for name, own in kinds.items():
        if any(f"{other}(" in (macro or "") for _, _, macro, _ in own for other in refused):
            refused |= set() if name in _CHANGING else {name}
    return frozenset(refused)


def _computes(name: str, own: set[tuple[str, str | None, str | None, str]]) -> bool:
    if name in _CHANGING or name in TABLE_FUNCTIONS:
        return True
    if name in _TELLING or name.startswith(_INTERNAL):
        return False
    return any(
        (kind in ("scalar", "aggregate", "window") and stability == "CONSISTENT")
        or (kind == "macro" and schema == "main" and "select" not in (macro or "").lower())
        for kind, stability, macro, schema in own
    ) and not any(stability not in ("CONSISTENT", None) for _, stability, _, _ in own)


@cache
def _system_views() -> frozenset[str]:
    with duckdb.connect() as connection:
        rows = connection.execute("SELECT lower(view_name) FROM duckdb_views() WHERE internal").fetchall()
    return frozenset(name for (name,) in rows)
