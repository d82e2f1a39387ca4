"""The items of FROM: relations, views, common table expressions and derived tables, with their aliases."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from sqlglot import exp

from views.compiler.types import Column, Relation

from . import refuse
from .bound import Source
from .definitions import BoundQuery, Queries, RowLimits
from .row_bounds import row_keys
from .scope import FromItem, Scope, identifier


@dataclass(slots=True)
class SourceBinder:
    """Binds single items of the FROM of one query.

    `limits` are limits on row numbers by the alias of the item; `limited` collects what became of them:
    alias and name of the row numbers that are gone.
    """

    queries: Queries
    limits: Mapping[str | None, RowLimits] = field(default_factory=dict)
    limited: list[tuple[str, str]] = field(default_factory=list)

    def source(self, node: exp.Expr, scope: Scope) -> Source:
        """Binds a table name or a derived table, and adds its item to the scope."""
        if isinstance(node, exp.Subquery):
            return self._derived(node, scope)
        if not isinstance(node, exp.Table):
            raise self.queries.text.error(refuse.construct(node), node)
        refuse.only(self.queries.text, node, {"this", "alias", "joins"})
        if not isinstance(node.this, exp.Identifier):
            message = refuse.sentence("table function", "declare a table with CREATE TABLE")
            raise self.queries.text.error(message, node)
        name = identifier(node.this, self.queries.text)
        alias = self._alias(node, name, scope)
        limits = {} if _column_names(node) else self._limits(alias)
        id = self.queries.unique(alias, node)
        named = self.queries.named(name, node, limits)
        relation = named.relation
        if isinstance(relation, Relation):
            item = FromItem(
                alias, id, relation.columns, frozenset(), relation.max_rows, keys=row_keys(relation)
            )
            self._item(node, item, scope)
            return Source(id, relation)
        return self._inlined(node, alias, id, relation, scope, named.view)

    def _derived(self, node: exp.Subquery, scope: Scope) -> Source:
        """A derived table sees the queries around its own, but not its neighbours in FROM."""
        alias = self._alias(node, "derived", scope)
        id = self.queries.unique(alias, node)
        limits = {} if _column_names(node) else self._limits(alias)
        return self._inlined(node, alias, id, self.queries.query(node, scope.parent, limits), scope, None)

    def _limits(self, alias: str) -> RowLimits:
        return {**self.limits.get(None, {}), **self.limits.get(alias, {})}

    def _inlined(
        self, node: exp.Expr, alias: str, id: str, query: BoundQuery, scope: Scope, view: str | None
    ) -> Source:
        if query.limited:
            self.limited.append((alias, query.limited))
        self._item(node, derived_item(alias, id, query), scope)
        return Source(id, query.select, view)

    def _item(self, node: exp.Expr, item: FromItem, scope: Scope) -> None:
        scope.items.append(self._renamed(item, _column_names(node), node))

    def _renamed(self, item: FromItem, names: list[exp.Expr], node: exp.Expr) -> FromItem:
        """The item with the names of an alias `t(x, y)` for its first columns."""
        if not names:
            return item
        text = self.queries.text
        if len(names) > len(item.columns):
            message = f"{item.alias} has {len(item.columns)} columns, but its alias names {len(names)}"
            raise text.error(message, names[len(item.columns)])
        given = [identifier(n, text) for n in names] + [c.name for c in item.columns[len(names) :]]
        for index, name in enumerate(given):
            if name in given[:index]:
                raise text.error(f"column {name} stands twice in the alias {item.alias}", node)
        stored = {name: c.name for name, c in zip(given, item.columns, strict=True)}
        columns = tuple(Column(n, c.type, c.nullable) for n, c in zip(given, item.columns, strict=True))
        return FromItem(item.alias, item.id, columns, frozenset(), item.rows, stored, item.keys)

    def _alias(self, node: exp.Expr, default: str, scope: Scope) -> str:
        text, given = self.queries.text, node.args.get("alias")
        alias = default
        if given:
            refuse.only(text, given, {"this", "columns"})
            alias = identifier(given.this, text) if given.this else default
        if any(item.alias == alias for item in scope.items):
            if not given and isinstance(node, exp.Subquery):
                raise text.error("the second derived table of a FROM needs an alias", node)
            raise text.error(f"{alias} stands twice in FROM; give each its own alias", node)
        return alias


def derived_item(alias: str, id: str, query: BoundQuery) -> FromItem:
    """A query as an item of FROM."""
    columns = tuple(Column(o.name, o.expression.type, o.expression.nullable) for o in query.select.outputs)
    return FromItem(alias, id, columns, query.ambiguous, query.rows, keys=row_keys(query.select))


def _column_names(node: exp.Expr) -> list[exp.Expr]:
    alias = node.args.get("alias")
    return list(alias.args.get("columns") or ()) if alias else []
