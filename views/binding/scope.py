"""Names in scope while a query is bound, and what is refused there.

A `Scope` has the sources of FROM and the enclosing queries. SQL constructs that are not supported are refused
by their names, with what to write instead. `Binder` is the expression binder as its parts see it, which share
how they refuse.
"""

import difflib
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from sqlglot import exp

from orderbook.core.errors import SqlError
from orderbook.views.binding.bound import ColumnRef, Expression, Literal, OuterJoin, Select, Source
from orderbook.views.binding.parser import SqlText
from orderbook.views.binding.typed_nodes import coalesce
from orderbook.views.types import Column

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
}

_NODES: dict[type[exp.Expr], tuple[str, str]] = {
    exp.Distinct: ("DISTINCT", "GROUP BY the columns in a derived table"),
    exp.Any: ("ANY without a comparison", "write x = ANY (SELECT ...)"),
    exp.All: ("ALL without a comparison", "write x = ALL (SELECT ...)"),
    exp.Collate: ("COLLATE", "compare LOWER(x) with LOWER(y)"),
    exp.Tuple: ("row value", "compare column by column"),
    exp.Values: ("VALUES here", "write FROM (VALUES (1, 'x')) AS t(a, b)"),
    exp.Columns: ("COLUMNS here", "it stands in the outputs of SELECT"),
    exp.Unnest: ("UNNEST", ""),
    exp.Lateral: ("LATERAL", "write a correlated scalar subquery"),
    exp.Star: ("* here", "name the columns"),
    exp.Dot: ("name of several parts", "write alias.column"),
    exp.Bracket: ("[ ] (subscript)", ""),
    exp.Array: ("[ ] (array)", ""),
    exp.Parameter: ("@ parameter", "write :name"),
    exp.Rand: ("volatile function RANDOM", "draw the number where rows are made, as a column"),
    exp.Randn: ("volatile function RANDN", "draw the number where rows are made, as a column"),
    exp.Uuid: ("volatile function UUID", "make it where rows are made, as a column"),
}

_DATE_FUNCTIONS: dict[type[exp.Expr], str] = {
    exp.CurrentTime: "write NOW()",
    exp.CurrentDatetime: "write NOW()",
    exp.AtTimeZone: "timestamps are UTC; add an INTERVAL",
}
_NAMES = {
    "AGE": "subtract the timestamps, which gives ns",
}
_AGGREGATES = (
    "those maintained are SUM, COUNT, AVG, MIN, MAX, VARIANCE, STDDEV, SKEWNESS, KURTOSIS, CORR, COVAR_POP, "
    "COVAR_SAMP, REGR_SLOPE and the like, EWMA, DECAYED_SUM, MEDIAN, QUANTILE_CONT, QUANTILE_DISC, MODE, "
    "ARG_MIN, ARG_MAX, FIRST, LAST, STRING_AGG, LIST, PRODUCT, MAD, ENTROPY, BOOL_AND and BOOL_OR"
)


def refused_clause(key: str, node: object = None) -> str:
    """The refusal of a clause that sqlglot keeps under `key` of a query, table or join."""
    if key == "with_" and isinstance(node, exp.With) and node.recursive:
        return refusal_text("WITH RECURSIVE", "write a view for each step")
    if key == "pivots" and isinstance(node, list) and node[0].args.get("unpivot"):
        key = "unpivot"
    name, instead = _CLAUSES.get(key, (key.strip("_").replace("_", " ").upper(), ""))
    return refusal_text(name, instead)


def refused_construct(node: exp.Expr) -> str:
    """The refusal of a node: its SQL name, and what to write instead where there is such a thing."""
    if type(node) in _DATE_FUNCTIONS:
        name = node.sql_name() if isinstance(node, exp.Func) else "AT TIME ZONE"
        return refusal_text(f"date function {name}", _DATE_FUNCTIONS[type(node)])
    known = _NODES.get(type(node))
    if known:
        return refusal_text(*known)
    if isinstance(node, exp.Anonymous):
        name = node.name.upper()
        kind = "date function" if name in _NAMES else "function"
        return refusal_text(f"{kind} {name}", _NAMES.get(name, ""))
    if isinstance(node, exp.AggFunc):
        return refusal_text(f"aggregate {node.sql_name()}", _AGGREGATES)
    if isinstance(node, exp.Func):
        return refusal_text(f"function {node.sql_name()}", "")
    return refusal_text(type(node).__name__.upper(), "")


def refusal_text(name: str, instead: str) -> str:
    return f"{name} is not supported" + (f"; {instead}" if instead else "")


def refuse_other_clauses(text: SqlText, node: exp.Expr, taken: Collection[str]) -> None:
    """Refuses every clause of a node but those in `taken`."""
    for key, value in node.args.items():
        if value and key not in taken:
            at = value[0] if isinstance(value, list) else value
            raise text.error(refused_clause(key, value), at if isinstance(at, exp.Expr) else node)


# Views on views multiply their sources; a query past this is refused rather than expanded further.
MAX_SOURCES = 500
_PLAIN = re.compile(r"[a-z_][a-z0-9_]*")


def identifier(node: exp.Expr, text: SqlText) -> str:
    """The name an identifier stands for: lower case; quoted ones must be that already."""
    name = node.name
    quoted = bool(node.args.get("quoted"))
    folded = name if quoted else name.lower()
    if not _PLAIN.fullmatch(folded):
        rule = "names are letters, digits and _, in lower case if quoted; a text stands in single quotes"
        raise text.error(f"{name!r} is not a name; {rule}", node)
    return folded


def nearest(name: str, known: Iterable[str]) -> str:
    """'; did you mean a or b?' for the known names closest to `name`, or nothing."""
    close = difflib.get_close_matches(name, sorted(set(known)), n=3, cutoff=0.6)
    return f"; did you mean {' or '.join(close)}?" if close else ""


@dataclass(frozen=True, slots=True)
class FromItem:
    """One item of FROM.

    `ambiguous` holds the names that two of its columns were given, `rows` the most rows it can have,
    `stored` the names that columns have in the source `id` where these are others. `keys` are sets of its
    columns, by the names in the source, that no two rows have equal.
    """

    alias: str
    id: str
    columns: tuple[Column, ...]
    ambiguous: frozenset[str]
    rows: int
    stored: Mapping[str, str] = field(default_factory=dict)
    keys: tuple[frozenset[str], ...] = ()

    def column(self, name: str) -> Column | None:
        return next((c for c in self.columns if c.name == name), None)

    def reference(self, column: Column) -> ColumnRef:
        return ColumnRef(self.id, self.stored.get(column.name, column.name), column.type, column.nullable)

    def without_nulls(self, known: Collection[tuple[str, str]]) -> "FromItem":
        """The item where columns, by (source, name), are known not to be NULL."""
        there = {name for source, name in known if source == self.id}
        columns = (
            replace(c, nullable=c.nullable and self.stored.get(c.name, c.name) not in there)
            for c in self.columns
        )
        return replace(self, columns=tuple(columns))

    def nullable(self) -> "FromItem":
        """The item on a side of an outer join that may be missing."""
        return replace(self, columns=tuple(replace(c, nullable=True) for c in self.columns))


@dataclass(frozen=True, slots=True)
class MergedColumn:
    """A column that USING or NATURAL made of the columns `name` of several items, by their indices.

    Its value is the first of those of the items `taken` that is not NULL.
    """

    name: str
    items: tuple[int, ...]
    taken: tuple[int, ...]


@dataclass(slots=True)
class Scope:
    """One query while it is bound; `parent` is the query it is a subquery of.

    `clause` is the clause being bound. `loose` holds the columns of this query's own sources that the
    outputs read outside aggregates and grouping expressions. In ON, the items before `first_item` are not
    seen. `absent` are grouping expressions that are not in the grouping set at hand: they are NULL.
    `sources` and `where` are FROM and WHERE once they are bound.
    """

    text: SqlText
    parent: "Scope | None"
    items: list[FromItem] = field(default_factory=list)
    clause: str = "FROM"
    grouped: frozenset[Expression] = frozenset()
    aggregated: bool = False
    in_aggregate: bool = False
    loose: list[tuple[str, exp.Expr]] = field(default_factory=list)
    own_references: int = 0
    outer_references: int = 0
    merged: list[MergedColumn] = field(default_factory=list)
    first_item: int = 0
    absent: frozenset[Expression] = frozenset()
    in_window: bool = False
    sources: tuple[Source | OuterJoin, ...] = ()
    where: Expression | None = None

    @property
    def rows(self) -> int:
        rows = 1
        for item in self.items:
            rows *= item.rows
        return rows

    def chain(self) -> Iterator["Scope"]:
        scope: Scope | None = self
        while scope is not None:
            yield scope
            scope = scope.parent

    def reference(self, item: FromItem, column: Column, node: exp.Expr) -> ColumnRef:
        """A column of one of this scope's own items."""
        self.own_references += 1
        reference = item.reference(column)
        if not self.in_aggregate and reference not in self.grouped:
            self.loose.append((f"{item.alias}.{column.name}", node))
        return reference

    def merged_value(self, merged: MergedColumn, node: exp.Expr) -> Expression:
        """The value of a merged column of this scope."""
        found = [(self.items[i], self.items[i].column(merged.name)) for i in merged.taken]
        return coalesce([self.reference(item, column, node) for item, column in found if column])

    def mark(self) -> list[tuple["Scope", int]]:
        """How many loose columns each query has, for `settle`."""
        return [(s, len(s.loose)) for s in self.chain() if s.grouped or s.absent]

    def settle(self, before: list[tuple["Scope", int]], result: Expression) -> Expression:
        """The expression just bound: an absent one is NULL, columns in a grouping one not loose."""
        for owner, count in before:
            absent = result in owner.absent and not owner.in_aggregate
            if absent or (len(owner.loose) > count and result in owner.grouped):
                del owner.loose[count:]
            if absent:
                return Literal(None, result.type, nullable=True)
        return result

    def resolve(self, qualifier: str | None, name: str, node: exp.Expr) -> Expression:
        """The column `name` or `qualifier.name`, of this query or else of the nearest enclosing one."""
        passed: list[Scope] = []
        for scope in self.chain():
            found = scope._own(qualifier, name, node)
            if found:
                for inner in passed:
                    inner.outer_references += 1
                if isinstance(found, MergedColumn):
                    return scope.merged_value(found, node)
                return scope.reference(*found, node)
            passed.append(scope)
        raise self._unknown(qualifier, name, node)

    def has(self, name: str) -> bool:
        """Whether one of this query's own sources has a column of that name."""
        return any(item.column(name) or name in item.ambiguous for item in self.items)

    def item(self, qualifier: str, node: exp.Expr) -> FromItem:
        """This query's own source of that alias; raises SqlError when there is none."""
        for item in self.items:
            if item.alias == qualifier:
                return item
        close = nearest(qualifier, (i.alias for i in self.items))
        raise self.text.error(f"unknown relation or alias {qualifier}{close}", node)

    def visible(self, start: int, end: int) -> Iterator[tuple[int, Column | MergedColumn]]:
        """The columns of the items from `start` up to `end` as * lists them, each with its item's index."""
        merged = [m for m in self.merged if all(start <= i < end for i in m.items)]
        for index in range(start, end):
            for column in self.items[index].columns:
                owner = next((m for m in merged if m.name == column.name and index in m.items), None)
                if owner is None:
                    yield index, column
                elif index == owner.items[0]:
                    yield index, owner

    def named(self, name: str, start: int, end: int, node: exp.Expr) -> MergedColumn | None:
        """The one column of that name that the items from `start` up to `end` have; None without."""
        found = [(i, c) for i, c in self.visible(start, end) if c.name == name]
        if len(found) > 1:
            where = " and ".join(self.items[i].alias for i, _ in found)
            instead = f"write {self.items[found[0][0]].alias}.{name}"
            raise self.text.error(f"column {name} is ambiguous: {where} have it; {instead}", node)
        if any(name in i.ambiguous for i in self.items[start:end]):
            reason = "its query has two of that name; give them aliases"
            raise self.text.error(f"column {name} is ambiguous: {reason}", node)
        if not found:
            return None
        index, column = found[0]
        return column if isinstance(column, MergedColumn) else MergedColumn(name, (index,), (index,))

    def _own(
        self, qualifier: str | None, name: str, node: exp.Expr
    ) -> tuple[FromItem, Column] | MergedColumn | None:
        if qualifier is None:
            return self.named(name, self.first_item, len(self.items), node)
        item = next((i for i in self.items[self.first_item :] if i.alias == qualifier), None)
        if item is None:
            return None
        column = item.column(name)
        if name in item.ambiguous:
            reason = "its query has two of that name; give them aliases"
            raise self.text.error(f"column {name} is ambiguous: {reason}", node)
        if column is None:
            close = nearest(name, (c.name for c in item.columns))
            raise self.text.error(f"unknown column {qualifier}.{name}{close}", node)
        return item, column

    def _unknown(self, qualifier: str | None, name: str, node: exp.Expr) -> Exception:
        items = [i for scope in self.chain() for i in scope.items]
        if qualifier is not None:
            close = nearest(qualifier, (i.alias for i in items))
            return self.text.error(f"unknown relation or alias {qualifier}{close}", node)
        close = nearest(name, (c.name for i in items for c in i.columns))
        if not close and isinstance(node.parent, exp.Predicate):
            close = "; a text stands in single quotes"
        return self.text.error(f"unknown column {name}{close}", node)

    @contextmanager
    def aggregate(self, name: str, node: exp.Expr) -> Iterator[None]:
        """Binds the argument of an aggregate; refuses one that is over an enclosing query's columns only."""
        own, outer = self.own_references, self.outer_references
        self.in_aggregate = True
        try:
            yield
        finally:
            self.in_aggregate = False
        if self.own_references == own and self.outer_references > outer:
            instead = "aggregate a column of this query's FROM"
            message = f"{name} over columns of an enclosing query only is not supported; {instead}"
            raise self.text.error(message, node)


class Binder(Protocol):
    """Binds the expressions of one view.

    `bind_query` binds a subquery in the scope it stands in, `unique` names a source so that no other of the
    view has its name, `lookup` gives the relation of a name or raises SqlError.
    """

    @property
    def text(self) -> SqlText: ...

    @property
    def parameters(self) -> Mapping[str, Any]: ...

    @property
    def bind_query(self) -> Callable[[exp.Expr, Scope], Select]: ...

    @property
    def unique(self) -> Callable[[str, exp.Expr], str]: ...

    @property
    def lookup(self) -> Callable[[str, SqlText, exp.Expr], Any]: ...

    def value(self, node: exp.Expr, scope: Scope) -> Expression: ...

    def condition(self, node: exp.Expr, scope: Scope) -> Expression: ...


Handler = Callable[[Binder, Any, Scope], Expression]


def refusal(binder: Binder, name: str, instead: str, node: exp.Expr) -> SqlError:
    """The error that a construct is not supported, with what to write instead."""
    return binder.text.error(refusal_text(name, instead), node)


def arguments(binder: Binder, name: str, node: exp.Expr, given: int, least: int, most: int | None) -> None:
    """Raises SqlError unless a function was given as many arguments as it takes."""
    if given < least or (most is not None and given > most):
        count = str(least) if least == most else f"at least {least}" if most is None else f"{least} to {most}"
        plural = "" if count.endswith("1") else "s"
        raise binder.text.error(f"{name.upper()} takes {count} argument{plural}", node)
