"""Queries, from syntax trees to bound ones: FROM, WHERE, GROUP BY, the outputs, then the final clauses."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from sqlglot import exp

from views.compiler.types import Relation
from views.compiler.unique_names import UniqueNames

from . import refuse, set_operations
from .aggregates import aggregates_rows
from .aliases import define, with_aliases
from .bound import Expression, Output, Select, ShownBy, Source, Window
from .building import logical
from .definitions import BoundQuery, Lookup, Named, RowLimits
from .dialect import SqlText
from .expressions import ExpressionBinder
from .final_clauses import CLAUSES, Final, FinalBinder, whole_number
from .finish import Finisher
from .grouping import Groups, bind_groups, grouping_sets, resolve_grouping
from .implied_ranks import with_implied_in_sources
from .joins import JoinBinder
from .outputs import NamedOutput, default_name, distinct_names, outputs_of, with_hidden
from .row_limits import Limited, by_source, conjuncts, hidden_limits, is_row_number, limited
from .scope import MAX_SOURCES, MergedColumn, Scope, identifier
from .sources import SourceBinder, derived_item
from .typing_rules import TypingError
from .walk import has
from .window_groups import over_groups

_SELECT_ARGS = {"expressions", "from_", "joins", "where", "group", "having", "windows", "with_", *CLAUSES}
_NO_LIMITS: RowLimits = {}
_DERIVE = "put the aggregation in a derived table"


@dataclass(frozen=True, slots=True)
class CommonTable:
    """A query of WITH; it is bound anew for every use, in the scope and with the names of where it stands."""

    tree: exp.Expr
    columns: tuple[exp.Expr, ...]
    binder: "QueryBinder"
    parent: Scope | None


@dataclass(frozen=True, slots=True)
class _Branch:
    """A SELECT for one grouping set, before its final clauses."""

    select: Select
    hidden: tuple[Expression, ...]
    final: Final
    ambiguous: frozenset[str]
    rows: int


@dataclass(slots=True)
class QueryBinder:
    """Binds the queries of one text for one view; `names` is shared by all that the view inlines.

    `lookup` gives the relation or view of a name, or raises SqlError at the node that names it. `tables`
    are the common table expressions in scope.
    """

    text: SqlText
    parameters: Mapping[str, Any]
    lookup: Lookup
    names: UniqueNames = field(default_factory=UniqueNames)
    tables: Mapping[str, CommonTable] = field(default_factory=dict)

    @property
    def expressions(self) -> ExpressionBinder:
        """The binder of the expressions of queries that see what this one sees."""
        return ExpressionBinder(
            self.text, self.parameters, lambda n, s: self.query(n, s).select, self.unique, self.lookup
        )

    def query(self, tree: exp.Expr, parent: Scope | None, limits: RowLimits = _NO_LIMITS) -> BoundQuery:
        """Binds a query, in parentheses or not, in the scope of the query it stands in.

        limits: limits on row numbers among the outputs, which the query may apply (`BoundQuery.limited`).
        """
        if with_ := tree.args.get("with_"):
            return self._with(with_, parent)._query(tree, parent, limits)
        return self._query(tree, parent, limits)

    def named(self, name: str, node: exp.Expr, limits: RowLimits) -> Named:
        """What a name in FROM stands for: a common table expression, a relation or a view."""
        if table := self.tables.get(name):
            applied = _NO_LIMITS if table.columns else limits
            return Named(_renamed(table, table.binder.query(table.tree, table.parent, applied)))
        found = self.lookup(name, self.text, node)
        if isinstance(found, Relation):
            return Named(found)
        inner = QueryBinder(found.text, self.parameters, self.lookup, self.names)
        return Named(inner.query(found.tree, None, limits), found.name)

    def unique(self, alias: str, node: exp.Expr) -> str:
        """An identifier for a source that no other of the view has."""
        if len(self.names.taken) >= MAX_SOURCES:
            message = f"the view reads more than {MAX_SOURCES} relations with the views it reads"
            raise self.text.error(message, node)
        return self.names.new(alias)

    def _with(self, clause: exp.With, parent: Scope | None) -> "QueryBinder":
        """The binder that sees the common table expressions too; each sees those before it."""
        if clause.recursive:
            raise self.text.error(refuse.clause("with_", clause), clause)
        binder = self
        names: set[str] = set()
        for table in clause.expressions:
            refuse.only(self.text, table, {"this", "alias", "materialized"})
            alias = table.args["alias"]
            name = identifier(alias.this, self.text)
            if name in names:
                raise self.text.error(f"WITH defines {name} twice", alias)
            names.add(name)
            defined = CommonTable(table.this, tuple(alias.args.get("columns") or ()), binder, parent)
            binder = replace(binder, tables={**binder.tables, name: defined})
        return binder

    def _query(self, tree: exp.Expr, parent: Scope | None, limits: RowLimits) -> BoundQuery:
        match tree:
            case exp.Select():
                return self._select(tree, parent, limits)
            case exp.Subquery(this=exp.Query()):
                refuse.only(self.text, tree, {"this", "alias", "with_", *CLAUSES})
                alone = not any(tree.args.get(k) for k in CLAUSES)
                inner = self.query(tree.this, parent, limits if alone else _NO_LIMITS)
                return self._finish_whole(tree, inner, parent)
            case exp.SetOperation():
                parts = [self.query(t, parent) for t in set_operations.operands(tree)]
                return self._finish_whole(tree, set_operations.combined(self, tree, parts), parent)
        raise self.text.error(refuse.construct(tree), tree)

    def _finish_whole(self, tree: exp.Expr, query: BoundQuery, parent: Scope | None) -> BoundQuery:
        """ORDER BY and LIMIT of a set operation or of a query in parentheses: over its outputs."""
        if not any(tree.args.get(k) for k in CLAUSES - {"distinct"}):
            return query
        id = self.unique("derived", tree)
        scope = Scope(self.text, parent, [derived_item("derived", id, query)])
        outputs = outputs_of(id, query.select.outputs)
        select = Select((Source(id, query.select),), None, (), outputs, False)
        binder = FinalBinder(self, tree, scope, outputs)
        final = binder.final(None, query.rows <= 1)
        branch = _Branch(select, tuple(binder.hidden), final, query.ambiguous, query.rows)
        return self._finished(branch, tree)

    def _select(self, tree: exp.Select, parent: Scope | None, limits: RowLimits) -> BoundQuery:
        refuse.only(self.text, tree, _SELECT_ARGS)
        if not tree.expressions:
            raise self.text.error("SELECT needs at least one column", tree)
        count = len(grouping_sets(tree, self.text))
        if count > 1:
            branch = self._grouped(tree, parent, limits, count)
        else:
            branch = self._branch(tree, parent, limits)
        row_number = self._limited_output(tree, limits)
        name = identifier(row_number.conjunct.args["alias"], self.text) if row_number else None
        return replace(self._finished(branch, tree), limited=name)

    def _limited_output(self, tree: exp.Select, limits: RowLimits) -> Limited | None:
        """The output that is a row number and limited by the query around; its alias is the conjunct."""
        if not limits or any(tree.args.get(k) for k in ("distinct", "qualify", "limit")):
            return None
        for output in tree.expressions:
            if isinstance(output, exp.Alias) and is_row_number(output.this) and len(tree.expressions) > 1:
                limit = limits.get(output.alias.lower())
                if limit:
                    return Limited(output, output.this, limit)
        return None

    def _limited_qualify(self, tree: exp.Select) -> Limited | None:
        qualify = tree.args.get("qualify")
        found = limited(qualify.this, lambda n: whole_number(self, n)) if qualify else None
        return found if found and is_row_number(found.subject) else None

    def _grouped(self, tree: exp.Select, parent: Scope | None, limits: RowLimits, count: int) -> _Branch:
        """All grouping sets of a query: one branch of a UNION ALL each."""
        branches = [self._branch(tree.copy(), parent, limits, chosen) for chosen in range(count)]
        first = branches[0]
        extended = [with_hidden(b.select, b.hidden) for b in branches]
        try:
            select = set_operations.union_all(self, extended, tree)
        except TypingError as error:
            raise self.text.error(str(error), tree) from None
        shown = len(first.select.outputs)
        hidden = tuple(o.expression for o in select.outputs[shown:])
        select = replace(select, outputs=select.outputs[:shown])
        return replace(first, select=select, hidden=hidden, rows=sum(b.rows for b in branches))

    def _branch(self, tree: exp.Select, parent: Scope | None, limits: RowLimits, chosen: int = 0) -> _Branch:
        """The query for one of its grouping sets."""
        row_number = self._limited_output(tree, limits) or self._limited_qualify(tree)
        sets = grouping_sets(tree, self.text)
        scope = Scope(self.text, parent)
        sources, conditions = self._rows(tree, scope)
        groups = bind_groups(self, tree, scope, sets, chosen) if sets else Groups((), frozenset())
        if next(tree.find_all(exp.Grouping), None):
            resolve_grouping(self, tree, scope, groups)
        scope.grouped, scope.absent = frozenset(groups.present), groups.absent
        scope.aggregated = bool(sets) or bool(tree.args.get("having")) or aggregates_rows(tree)
        scope.sources, scope.where = sources, logical("AND", conditions) if conditions else None
        scope.loose.clear()
        scope.clause = "SELECT"
        left_out = row_number.conjunct if row_number else None
        items = [e for e in tree.expressions if e is not left_out]
        known: dict[str, exp.Expr] = {}
        named = []
        for item in items:
            named += self._outputs(item, known, scope)
            define(known, item, scope)
        outputs, ambiguous = distinct_names(named, self.text)
        having = self._having(tree, known, scope)
        binder = FinalBinder(self, tree, scope, outputs, known)
        final = binder.final(row_number, scope.aggregated and not groups.present)
        if scope.aggregated and scope.loose:
            name, node = scope.loose[0]
            message = f"{name} is neither in GROUP BY nor in an aggregate; add it to GROUP BY or aggregate it"
            raise self.text.error(message, node)
        select = Select(sources, scope.where, groups.present, outputs, scope.aggregated, having)
        hidden = tuple(binder.hidden)
        if scope.aggregated and any(has(e, Window) for e in (*(o.expression for o in outputs), *hidden)):
            if len(sets) > 1:
                message = refuse.sentence("window function over GROUPING SETS", _DERIVE)
                raise self.text.error(message, tree.args["group"])
            select, hidden = over_groups(select, hidden, lambda: self.unique("derived", tree))
        rows = 1 if scope.aggregated and not groups.present else scope.rows
        return _Branch(select, hidden, final, ambiguous, rows)

    def _rows(self, tree: exp.Select, scope: Scope) -> tuple[tuple[Any, ...], list[Expression]]:
        """FROM and WHERE. A limit on a row number that a source applied is gone from WHERE."""
        found = hidden_limits(tree, lambda n: whole_number(self, n))
        binder = SourceBinder(self, by_source(found))
        sources, conditions = JoinBinder(self, scope, binder).from_clause(tree)
        where = tree.args.get("where")
        if where:
            scope.clause = "WHERE"
            applied = {name for _, name in binder.limited}
            done = [f.conjunct for f in found if f.subject.name.lower() in applied]
            remaining = [c for c in conjuncts(where.this) if all(c is not d for d in done)]
            parts = remaining if done else [where.this]
            conditions += [self.expressions.condition(c, scope) for c in parts]
        return with_implied_in_sources(sources, conditions)

    def _having(self, tree: exp.Select, known: Mapping[str, exp.Expr], scope: Scope) -> Expression | None:
        having = tree.args.get("having")
        if not having:
            return None
        scope.clause = "HAVING"
        return self.expressions.condition(with_aliases(having.this, known, scope), scope)

    def _finished(self, branch: _Branch, tree: exp.Expr) -> BoundQuery:
        final, outputs = branch.final, branch.select.outputs
        finisher = Finisher(branch.select, branch.hidden, lambda: self.unique("derived", tree))
        select = finisher.finish(final)
        rows = min(branch.rows, final.limit.limit) if final.limit else branch.rows
        order = []
        for key in final.order:
            if key.slot is None or key.slot >= len(outputs):
                break
            order.append(ShownBy(outputs[key.slot].name, key.descending, key.nulls_first))
        return BoundQuery(select, branch.ambiguous, max(rows, 1), tuple(order))

    def _outputs(self, node: exp.Expr, known: Mapping[str, exp.Expr], scope: Scope) -> list[NamedOutput]:
        """The outputs that an item of SELECT stands for; `known` are those before it."""
        star = node.this if isinstance(node, exp.Column) else node
        if isinstance(star, exp.Star):
            return self._star(node, star, scope)
        if isinstance(node, exp.Alias):
            name = identifier(node.args["alias"], self.text)
            value = self.expressions.value(with_aliases(node.this, known, scope), scope)
            return [NamedOutput(Output(name, value), True, node.args["alias"])]
        value = self.expressions.value(with_aliases(node, known, scope), scope)
        return [NamedOutput(Output(_name(node, value), value), False, node)]

    def _star(self, node: exp.Expr, star: exp.Star, scope: Scope) -> list[NamedOutput]:
        if any(star.args.values()):
            message = refuse.sentence("* with EXCEPT, REPLACE or RENAME", "name the columns")
            raise self.text.error(message, node)
        values: list[tuple[str, Expression]] = []
        if isinstance(node, exp.Column):
            qualifier = node.args["table"]
            item = scope.item(identifier(qualifier, self.text), qualifier)
            values = [(c.name, scope.reference(item, c, node)) for c in item.columns]
        elif not scope.items:
            raise self.text.error("SELECT * needs a FROM", node)
        else:
            for index, column in scope.visible(0, len(scope.items)):
                if isinstance(column, MergedColumn):
                    values.append((column.name, scope.merged_value(column, node)))
                else:
                    values.append((column.name, scope.reference(scope.items[index], column, node)))
        return [NamedOutput(Output(n, scope.settle(scope.mark(), v)), False, node) for n, v in values]


def _name(node: exp.Expr, value: Expression) -> str:
    """The name of an output without AS; a column's own where it was merged or renamed."""
    if isinstance(node, exp.Column) and node.name.isidentifier():
        return node.name.lower()
    return default_name(value)


def _renamed(table: CommonTable, query: BoundQuery) -> BoundQuery:
    """The query with the column names of `WITH name(x, y)`."""
    outputs, names = query.select.outputs, table.columns
    if not names:
        return query
    text = table.binder.text
    if len(names) > len(outputs):
        message = f"the query has {len(outputs)} columns, but WITH names {len(names)}"
        raise text.error(message, names[len(outputs)])
    given = [identifier(n, text) for n in names] + [o.name for o in outputs[len(names) :]]
    for index, name in enumerate(given):
        if name in given[:index]:
            raise text.error(f"column {name} stands twice in WITH", names[min(index, len(names) - 1)])
    named = tuple(replace(o, name=n) for o, n in zip(outputs, given, strict=True))
    return replace(query, select=replace(query.select, outputs=named), ambiguous=frozenset())
