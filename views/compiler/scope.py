"""Names in scope while a query is bound: sources of FROM, enclosing queries, unique identifiers."""

import difflib
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from sqlglot import exp

from .bound import ColumnRef, Expression
from .dialect import SqlText
from .types import Column

# Views on views multiply their sources; a query past this is refused rather than expanded further.
MAX_SOURCES = 500
_PLAIN = re.compile(r"[a-z_][a-z0-9_]*")


def identifier(node: exp.Expr, text: SqlText) -> str:
    """The name an identifier stands for: lower case; quoted ones must be that already."""
    name = node.name
    quoted = bool(node.args.get("quoted"))
    folded = name if quoted else name.lower()
    if not _PLAIN.fullmatch(folded):
        rule = "names are letters, digits and _, in lower case if quoted"
        raise text.error(f"{name!r} is not a name; {rule}", node)
    return folded


def nearest(name: str, known: Iterable[str]) -> str:
    """'; did you mean a or b?' for the known names closest to `name`, or nothing."""
    close = difflib.get_close_matches(name, sorted(set(known)), n=3, cutoff=0.6)
    return f"; did you mean {' or '.join(close)}?" if close else ""


@dataclass(slots=True)
class SourceNames:
    """Identifiers of sources, unique in one whole view."""

    taken: set[str] = field(default_factory=set)

    def unique(self, alias: str) -> str:
        name, count = alias, 1
        while name in self.taken:
            count += 1
            name = f"{alias}_{count}"
        self.taken.add(name)
        return name


@dataclass(frozen=True, slots=True)
class FromItem:
    """One item of FROM.

    `ambiguous` holds the names that two of its columns were given, `rows` the most rows it can have.
    """

    alias: str
    id: str
    columns: tuple[Column, ...]
    ambiguous: frozenset[str]
    rows: int

    def column(self, name: str) -> Column | None:
        return next((c for c in self.columns if c.name == name), None)


@dataclass(slots=True)
class Scope:
    """One query while it is bound; `parent` is the query it is a subquery of.

    `clause` is the clause being bound. `loose` holds the columns of this query's own sources that the
    outputs read outside aggregates and grouping expressions.
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
        reference = ColumnRef(item.id, column.name, column.type, column.nullable)
        if not self.in_aggregate and reference not in self.grouped:
            self.loose.append((f"{item.alias}.{column.name}", node))
        return reference

    def resolve(self, qualifier: str | None, name: str, node: exp.Expr) -> ColumnRef:
        """The column `name` or `qualifier.name`, of this query or else of the nearest enclosing one."""
        passed: list[Scope] = []
        for scope in self.chain():
            found = scope._own(qualifier, name, node)
            if found:
                for inner in passed:
                    inner.outer_references += 1
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

    def _own(self, qualifier: str | None, name: str, node: exp.Expr) -> tuple[FromItem, Column] | None:
        candidates = [i for i in self.items if qualifier in (None, i.alias)]
        found = [(i, c) for i in candidates if (c := i.column(name))]
        if len(found) > 1:
            where = " and ".join(i.alias for i, _ in found)
            instead = f"write {found[0][0].alias}.{name}"
            raise self.text.error(f"column {name} is ambiguous: {where} have it; {instead}", node)
        if any(name in i.ambiguous for i in candidates):
            reason = "its query has two of that name; give them aliases"
            raise self.text.error(f"column {name} is ambiguous: {reason}", node)
        if not found and qualifier is not None and candidates:
            close = nearest(name, (c.name for c in candidates[0].columns))
            raise self.text.error(f"unknown column {qualifier}.{name}{close}", node)
        return found[0] if found else None

    def _unknown(self, qualifier: str | None, name: str, node: exp.Expr) -> Exception:
        items = [i for scope in self.chain() for i in scope.items]
        if qualifier is not None:
            close = nearest(qualifier, (i.alias for i in items))
            return self.text.error(f"unknown relation or alias {qualifier}{close}", node)
        close = nearest(name, (c.name for i in items for c in i.columns))
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
