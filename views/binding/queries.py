"""Queries, from syntax trees to bound ones: FROM, WHERE, GROUP BY, the outputs, then the final clauses.

With windows over groups the aggregation becomes a derived table, and the windows read its rows.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sqlglot import exp

from orderbook.views.binding.aggregates import aggregates_rows
from orderbook.views.binding.bound import (
    Aggregate,
    ColumnRef,
    Expression,
    Output,
    ScalarSubquery,
    Select,
    Source,
    Window,
    has,
    rewritten,
)
from orderbook.views.binding.column_patterns import with_columns
from orderbook.views.binding.expressions import ExpressionBinder
from orderbook.views.binding.final_clauses import (
    CLAUSES,
    Final,
    FinalBinder,
    Finisher,
    Limited,
    by_source,
    conjuncts,
    hidden_limits,
    is_row_number,
    limited,
    whole_number,
    with_implied_in_sources,
    with_ties,
)
from orderbook.views.binding.from_clause import JoinBinder, SourceBinder, derived_item
from orderbook.views.binding.grouping import (
    BoundQuery,
    Groups,
    Lookup,
    Named,
    NamedOutput,
    RowLimits,
    bind_groups,
    default_name,
    define,
    distinct_names,
    grouping_sets,
    outputs_of,
    resolve_grouping,
    with_aliases,
    with_hidden,
)
from orderbook.views.binding.orders import OwnRows
from orderbook.views.binding.parser import SqlText
from orderbook.views.binding.scope import (
    MAX_SOURCES,
    MergedColumn,
    Scope,
    identifier,
    nearest,
    refusal_text,
    refuse_other_clauses,
    refused_clause,
    refused_construct,
)
from orderbook.views.binding.set_operations import combined, set_operands, union_all
from orderbook.views.binding.typed_nodes import (
    TypingError,
    kept_from_null,
    logical,
)
from orderbook.views.names import UniqueNames
from orderbook.views.types import Relation, ShownBy


def over_groups(
    select: Select, hidden: Iterable[Expression], unique: Callable[[], str]
) -> tuple[Select, tuple[Expression, ...]]:
    """An aggregated query with windows as a query over its groups, and the hidden expressions over them.

    Its columns are the grouping expressions, aggregates and subqueries that the outputs are built from.
    `unique` names the source.
    """
    id = unique()
    columns: dict[Expression, Output] = {g: Output(f"group_{n}", g) for n, g in enumerate(select.group_by, 1)}

    def read(node: Any) -> Any:
        if isinstance(node, Output) or not (node in columns or isinstance(node, Aggregate | ScalarSubquery)):
            return None
        column = columns.setdefault(node, Output(f"column_{len(columns) + 1}", node))
        return ColumnRef(id, column.name, node.type, node.nullable)

    outputs, others = rewritten(select.outputs, read), rewritten(tuple(hidden), read)
    inner = replace(select, outputs=tuple(columns.values()))
    return Select((Source(id, inner),), None, (), outputs, False), others


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
    are the common table expressions in scope. `keyed`: queries in FROM have what tells their rows apart,
    hidden where they do not show it, and what WHERE keeps from being NULL counts as NOT NULL. `numberable`
    are relations whose rows could be numbered, and are not.
    """

    text: SqlText
    parameters: Mapping[str, Any]
    lookup: Lookup
    names: UniqueNames = field(default_factory=UniqueNames)
    tables: Mapping[str, CommonTable] = field(default_factory=dict)
    keyed: bool = False
    numberable: frozenset[str] = frozenset()

    @property
    def expressions(self) -> ExpressionBinder:
        """The binder of the expressions of queries that see what this one sees."""
        return ExpressionBinder(
            self.text, self.parameters, lambda n, s: self.query(n, s).select, self.unique, self.lookup
        )

    def alone(self, names: UniqueNames | None = None) -> "QueryBinder":
        """One that sees the same, for a query by itself: sources are named anew, rows can be told apart."""
        names = names or UniqueNames()
        tables: dict[str, CommonTable] = {}
        for name, table in self.tables.items():
            # A table sees those before it.
            binder = replace(table.binder, names=names, keyed=True, tables=dict(tables))
            tables[name] = replace(table, binder=binder, parent=None)
        return replace(self, names=names, keyed=True, tables=tables)

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
        lookup = self.lookup if found.orders is None else OwnRows(found.name, self.lookup)
        inner = QueryBinder(
            found.text, self.parameters, lookup, self.names, keyed=self.keyed, numberable=self.numberable
        )
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
            raise self.text.error(refused_clause("with_", clause), clause)
        binder = self
        names: set[str] = set()
        for table in clause.expressions:
            refuse_other_clauses(self.text, table, {"this", "alias", "materialized"})
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
                refuse_other_clauses(self.text, tree, {"this", "alias", "with_", *CLAUSES})
                alone = not any(tree.args.get(k) for k in CLAUSES)
                inner = self.query(tree.this, parent, limits if alone else _NO_LIMITS)
                return self._finish_whole(tree, inner, parent)
            case exp.SetOperation():
                parts = [self.query(t, parent) for t in set_operands(tree)]
                return self._finish_whole(tree, combined(self, tree, parts), parent)
        raise self.text.error(refused_construct(tree), tree)

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
        refuse_other_clauses(self.text, tree, _SELECT_ARGS)
        if not tree.expressions:
            raise self.text.error("SELECT needs at least one column", tree)
        tree = with_ties(tree)
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
            select = union_all(self, extended, tree)
        except TypingError as error:
            raise self.text.error(str(error), tree) from None
        shown = len(first.select.outputs)
        hidden = tuple(o.expression for o in select.outputs[shown:])
        select = replace(select, outputs=select.outputs[:shown])
        return replace(first, select=select, hidden=hidden, rows=sum(b.rows for b in branches))

    def _branch(self, tree: exp.Select, parent: Scope | None, limits: RowLimits, chosen: int = 0) -> _Branch:
        """The query for one of its grouping sets."""
        scope = Scope(self.text, parent)
        sources, conditions = self._rows(tree, scope)
        tree = with_columns(self.text, tree, scope)
        row_number = self._limited_output(tree, limits) or self._limited_qualify(tree)
        sets = grouping_sets(tree, self.text)
        if self.keyed and conditions:
            not_null = kept_from_null(logical("AND", conditions))
            alone = {source.id for source in sources if isinstance(source, Source)}
            scope.items = [item.without_nulls(not_null) if item.id in alone else item for item in scope.items]
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
                message = refusal_text("window function over GROUPING SETS", _DERIVE)
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
            known = _outputs_in_where(tree, scope)
            conditions += [self.expressions.condition(with_aliases(c, known, scope), scope) for c in parts]
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
        """The columns that * stands for: without those of EXCLUDE, others for those of REPLACE and RENAME."""
        found: list[tuple[str, str, Expression]] = []
        if isinstance(node, exp.Column):
            qualifier = node.args["table"]
            item = scope.item(identifier(qualifier, self.text), qualifier)
            columns = (column for column in item.columns if not column.hidden)
            found = [(item.alias, c.name, scope.reference(item, c, node)) for c in columns]
        elif not scope.items:
            raise self.text.error("SELECT * needs a FROM", node)
        else:
            for index, column in scope.visible(0, len(scope.items)):
                item = scope.items[index]
                if isinstance(column, MergedColumn):
                    found.append((item.alias, column.name, scope.merged_value(column, node)))
                elif not column.hidden:
                    found.append((item.alias, column.name, scope.reference(item, column, node)))
        known = [(alias, name) for alias, name, _ in found]
        left_out = {place for n in _listed(star, "except_") for place in self._starred(n, known)}
        others = {p: n for n in _listed(star, "replace") for p in self._starred(n.args["alias"], known)}
        names = {p: n.args["alias"] for n in _listed(star, "rename") for p in self._starred(n.this, known)}
        outputs = []
        for place, (_, name, value) in enumerate(found):
            if place in left_out:
                continue
            if place in others:
                value = self.expressions.value(others[place].this, scope)
            shown = identifier(names[place], self.text) if place in names else name
            output = Output(shown, scope.settle(scope.mark(), value))
            outputs.append(NamedOutput(output, place in names, node))
        if not outputs:
            raise self.text.error("EXCLUDE leaves no column", node)
        return outputs

    def _starred(self, node: exp.Expr, known: Sequence[tuple[str, str]]) -> list[int]:
        """The places among the columns of * that a name, or one with its relation, stands for."""
        qualifier = node.args.get("table")
        alias = identifier(qualifier, self.text) if qualifier else None
        name = identifier(node.this if isinstance(node, exp.Column) else node, self.text)
        places = [i for i, (own, n) in enumerate(known) if n == name and alias in (None, own)]
        if not places:
            close = nearest(name, (n for _, n in known))
            raise self.text.error(f"* has no column {f'{alias}.' if alias else ''}{name}{close}", node)
        return places


def _outputs_in_where(tree: exp.Select, scope: Scope) -> dict[str, exp.Expr]:
    """The outputs that WHERE may name, as in DuckDB: those whose names no query around has a column of."""
    known: dict[str, exp.Expr] = {}
    for item in tree.expressions:
        define(known, item, scope)
    outer = [s for s in scope.chain() if s is not scope]
    return {name: node for name, node in known.items() if not any(s.has(name) for s in outer)}


def _listed(star: exp.Star, key: str) -> list[exp.Expr]:
    given = star.args.get(key) or []
    return given if isinstance(given, list) else [given]


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
