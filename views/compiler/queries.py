"""Queries, from syntax trees to bound ones: FROM, WHERE, GROUP BY, then the outputs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlglot import exp

from . import refuse
from .bound import Expression, Output, Select, Source
from .dialect import SqlText, position
from .expressions import ExpressionBinder, logical
from .outputs import NamedOutput, default_name, distinct_names
from .scope import MAX_SOURCES, FromItem, Scope, SourceNames, identifier
from .types import Column, Relation

_SELECT_ARGS = {"expressions", "from_", "joins", "where", "group"}


@dataclass(frozen=True, slots=True)
class ViewDefinition:
    """A view before it is bound; `named_at` is the node that an error about its name points at."""

    name: str
    tree: exp.Expr
    text: SqlText
    sql: str
    named_at: exp.Expr


@dataclass(frozen=True, slots=True)
class BoundQuery:
    """A bound query, the output names it had twice, and the most rows it can have."""

    select: Select
    ambiguous: frozenset[str]
    rows: int


Lookup = Callable[[str, SqlText, exp.Expr], "Relation | ViewDefinition"]


@dataclass(slots=True)
class QueryBinder:
    """Binds the queries of one text for one view; `names` is shared by all that the view inlines.

    `lookup` gives the relation or view of a name, or raises SqlError at the node that names it.
    """

    text: SqlText
    parameters: Mapping[str, Any]
    lookup: Lookup
    names: SourceNames = field(default_factory=SourceNames)

    def query(self, tree: exp.Expr, parent: Scope | None) -> BoundQuery:
        """Binds a SELECT, in parentheses or not, in the scope of the query it stands in."""
        while isinstance(tree, exp.Subquery):
            self._only(tree, {"this", "alias"})
            tree = tree.this
        if not isinstance(tree, exp.Select):
            raise self.text.error(refuse.construct(tree), tree)
        self._only(tree, _SELECT_ARGS)
        if not tree.expressions:
            raise self.text.error("SELECT needs at least one column", tree)
        return self._select(tree, Scope(self.text, parent))

    def _select(self, tree: exp.Select, scope: Scope) -> BoundQuery:
        expressions = ExpressionBinder(self.text, self.parameters, lambda n, s: self.query(n, s).select)
        sources, conditions = self._from(tree, scope, expressions)
        if where := tree.args.get("where"):
            scope.clause = "WHERE"
            conditions.append(expressions.condition(where.this, scope))
        group_by = self._group_by(tree, scope, expressions)
        scope.clause, scope.grouped = "SELECT", frozenset(group_by)
        scope.aggregated = bool(group_by)
        scope.loose.clear()
        named = [o for e in tree.expressions for o in self._outputs(e, scope, expressions)]
        if scope.aggregated and scope.loose:
            name, node = scope.loose[0]
            message = f"{name} is neither in GROUP BY nor in an aggregate; add it to GROUP BY or aggregate it"
            raise self.text.error(message, node)
        outputs, ambiguous = distinct_names(named, self.text)
        condition = logical("AND", conditions) if conditions else None
        select = Select(tuple(sources), condition, group_by, outputs, scope.aggregated)
        return BoundQuery(select, ambiguous, 1 if scope.aggregated and not group_by else scope.rows)

    def _from(
        self, tree: exp.Select, scope: Scope, expressions: ExpressionBinder
    ) -> tuple[list[Source], list[Expression]]:
        sources: list[Source] = []
        conditions: list[Expression] = []
        first = tree.args.get("from_")
        if first:
            sources.append(self._source(first.this, scope))
        for join in tree.args.get("joins") or ():
            self._check_join(join)
            sources.append(self._source(join.this, scope))
            if on := join.args.get("on"):
                scope.clause = "ON"
                conditions.append(expressions.condition(on, scope))
        return sources, conditions

    def _check_join(self, join: exp.Join) -> None:
        side, kind = (join.args.get(k, "") or "" for k in ("side", "kind"))
        if side or kind not in ("", "INNER", "CROSS"):
            name = " ".join(w for w in (side, kind, "JOIN") if w)
            raise self.text.error(refuse.sentence(name, "only inner and cross joins are maintained"), join)
        self._only(join, {"this", "on", "side", "kind"})
        is_comma = self.text.sql[position(join)] == ","
        if kind == "CROSS" and join.args.get("on"):
            raise self.text.error("CROSS JOIN takes no ON; write JOIN ... ON", join)
        if not is_comma and kind != "CROSS" and not join.args.get("on"):
            raise self.text.error("JOIN needs ON; write CROSS JOIN to pair every row with every row", join)

    def _source(self, node: exp.Expr, scope: Scope) -> Source:
        if isinstance(node, exp.Subquery) and not isinstance(_unwrapped(node), exp.Table):
            return self._derived(node, scope)
        if not isinstance(node, exp.Table):
            joined = isinstance(node, exp.Subquery)
            raise self.text.error(refuse.clause("joins") if joined else refuse.construct(node), node)
        self._only(node, {"this", "alias"})
        if not isinstance(node.this, exp.Identifier):
            message = refuse.sentence("table function", "declare a table with CREATE TABLE")
            raise self.text.error(message, node)
        name = identifier(node.this, self.text)
        found = self.lookup(name, self.text, node)
        alias = self._alias(node, name, scope)
        id = self._unique(alias, node)
        if isinstance(found, Relation):
            scope.items.append(FromItem(alias, id, found.columns, frozenset(), found.max_rows))
            return Source(id, found)
        inlined = QueryBinder(found.text, self.parameters, self.lookup, self.names).query(found.tree, None)
        return self._inlined(alias, id, inlined, scope, found.name)

    def _derived(self, node: exp.Subquery, scope: Scope) -> Source:
        """A derived table sees the queries around its own, but not its neighbours in FROM."""
        alias = self._alias(node, "derived", scope)
        id = self._unique(alias, node)
        return self._inlined(alias, id, self.query(node, scope.parent), scope, None)

    def _inlined(self, alias: str, id: str, query: BoundQuery, scope: Scope, view: str | None) -> Source:
        columns = tuple(
            Column(o.name, o.expression.type, o.expression.nullable) for o in query.select.outputs
        )
        scope.items.append(FromItem(alias, id, columns, query.ambiguous, query.rows))
        return Source(id, query.select, view)

    def _alias(self, node: exp.Expr, default: str, scope: Scope) -> str:
        given = node.args.get("alias")
        alias = default
        if given:
            self._only(given, {"this"})
            alias = identifier(given.this, self.text)
        if any(item.alias == alias for item in scope.items):
            if not given and isinstance(node, exp.Subquery):
                raise self.text.error("the second derived table of a FROM needs an alias", node)
            raise self.text.error(f"{alias} stands twice in FROM; give each its own alias", node)
        return alias

    def _unique(self, alias: str, node: exp.Expr) -> str:
        if len(self.names.taken) >= MAX_SOURCES:
            message = f"the view reads more than {MAX_SOURCES} relations with the views it reads"
            raise self.text.error(message, node)
        return self.names.unique(alias)

    def _group_by(
        self, tree: exp.Select, scope: Scope, expressions: ExpressionBinder
    ) -> tuple[Expression, ...]:
        group = tree.args.get("group")
        if not group:
            return ()
        self._only(group, {"expressions"})
        scope.clause = "GROUP BY"
        bound = (expressions.value(self._grouping(e, tree, scope), scope) for e in group.expressions)
        return tuple(dict.fromkeys(bound))

    def _grouping(self, node: exp.Expr, tree: exp.Select, scope: Scope) -> exp.Expr:
        """The expression that an item of GROUP BY means: a column before an alias, an ordinal its output."""
        if isinstance(node, exp.Literal) and not node.is_string:
            ordinal = int(node.name) if node.name.isdigit() else 0
            if not 1 <= ordinal <= len(tree.expressions):
                message = f"GROUP BY {node.name} names no output; there are {len(tree.expressions)}"
                raise self.text.error(message, node)
            if any(e.is_star for e in tree.expressions[:ordinal]):
                raise self.text.error("an ordinal in GROUP BY does not count past *; name the column", node)
            return _unaliased(tree.expressions[ordinal - 1])
        if isinstance(node, exp.Column) and len(node.parts) == 1 and isinstance(node.this, exp.Identifier):
            name = identifier(node.this, self.text)
            aliases = [e for e in tree.expressions if isinstance(e, exp.Alias) and e.alias.lower() == name]
            if aliases and not scope.has(name):
                return _unaliased(aliases[0])
        return node

    def _outputs(self, node: exp.Expr, scope: Scope, expressions: ExpressionBinder) -> list[NamedOutput]:
        star = node.this if isinstance(node, exp.Column) else node
        if isinstance(star, exp.Star):
            return self._star(node, star, scope)
        if isinstance(node, exp.Alias):
            name = identifier(node.args["alias"], self.text)
            return [NamedOutput(Output(name, expressions.value(node.this, scope)), True, node.args["alias"])]
        expression = expressions.value(node, scope)
        return [NamedOutput(Output(default_name(expression), expression), False, node)]

    def _star(self, node: exp.Expr, star: exp.Star, scope: Scope) -> list[NamedOutput]:
        if any(star.args.values()):
            message = refuse.sentence("* with EXCEPT, REPLACE or RENAME", "name the columns")
            raise self.text.error(message, node)
        items = scope.items
        if isinstance(node, exp.Column):
            qualifier = node.args["table"]
            items = [scope.item(identifier(qualifier, self.text), qualifier)]
        if not items:
            raise self.text.error("SELECT * needs a FROM", node)
        return [
            NamedOutput(Output(c.name, scope.reference(i, c, node)), False, node)
            for i in items
            for c in i.columns
        ]

    def _only(self, node: exp.Expr, taken: set[str]) -> None:
        """Refuses every clause of a node but those in `taken`."""
        for key, value in node.args.items():
            if value and key not in taken:
                at = value[0] if isinstance(value, list) else value
                placed = at if isinstance(at, exp.Expr) else node
                raise self.text.error(refuse.clause(key, value), placed)


def _unwrapped(node: exp.Expr) -> exp.Expr:
    while isinstance(node, exp.Subquery):
        node = node.this
    return node


def _unaliased(node: exp.Expr) -> exp.Expr:
    return node.this if isinstance(node, exp.Alias) else node
