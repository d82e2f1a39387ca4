"""FROM: its items and joins of all kinds, from syntax trees to sources, outer joins and conjuncts of WHERE.

Items are relations, views, common table expressions and derived tables, with their aliases.

ASOF JOIN joins each row of the left with the latest row of the right that its ON lets through:
`t ASOF JOIN q ON t.s = q.s AND t.ts >= q.ts` is `t JOIN q ON t.s = q.s AND q.ts = (SELECT MAX(q2.ts) FROM q
q2 WHERE t.s = q2.s AND t.ts >= q2.ts)`. Of several rows of the right with the same latest ts their key
decides: the greatest, column by column, or the least where ON takes the earliest row.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sqlglot import exp

from orderbook.views.binding.aggregates import aggregates_rows
from orderbook.views.binding.bound import (
    Aggregate,
    ColumnRef,
    Comparison,
    Expression,
    Logical,
    OuterJoin,
    Output,
    ScalarSubquery,
    Select,
    Source,
    parts,
)
from orderbook.views.binding.constant_rows import constant_rows, rows_of_values
from orderbook.views.binding.grouping import BoundQuery, Queries, RowLimits
from orderbook.views.binding.nodes import MatchRecognize
from orderbook.views.binding.parser import SqlText, position
from orderbook.views.binding.pivots import pivoted
from orderbook.views.binding.row_keys import row_keys, with_keys
from orderbook.views.binding.row_patterns import bound_pattern, matches_of
from orderbook.views.binding.scope import (
    FromItem,
    MergedColumn,
    Scope,
    identifier,
    nearest,
    refusal_text,
    refuse_other_clauses,
    refused_construct,
)
from orderbook.views.binding.typed_nodes import (
    TypingError,
    case,
    coalesce,
    comparison,
    count_of,
    is_null,
    logical,
    number,
    with_order,
    zero_of,
)
from orderbook.views.calculus import MIRRORED
from orderbook.views.types import TRADES, Column, Relation


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
        pivots = node.args.get("pivots") or []
        if len(pivots) == 1 and not pivots[0].args.get("unpivot"):
            return self._pivoted(node, pivots[0], scope)
        values = node if isinstance(node, exp.Values) else constant_rows(self.queries, node)
        if values is not None:
            node = rows_of_values(self.queries.text, values)
        if isinstance(node, exp.Subquery):
            return self._derived(node, scope)
        if isinstance(node, MatchRecognize):
            return self._matches(node, scope)
        if not isinstance(node, exp.Table):
            raise self.queries.text.error(refused_construct(node), node)
        refuse_other_clauses(self.queries.text, node, {"this", "alias", "joins"})
        if not isinstance(node.this, exp.Identifier):
            message = refusal_text("table function", "declare a table with CREATE TABLE")
            raise self.queries.text.error(message, node)
        name = identifier(node.this, self.queries.text)
        alias = self.alias(node, name, scope)
        limits = {} if _column_names(node) else self._limits(alias)
        id = self.queries.unique(alias, node)
        named = self.queries.named(name, node, limits)
        relation = named.relation
        if isinstance(relation, Relation):
            columns, stored = _nameable(relation)
            keys = row_keys(relation)
            item = FromItem(alias, id, columns, frozenset(), relation.max_rows, stored, keys)
            self._item(node, item, scope)
            return Source(id, relation)
        return self._inlined(node, alias, id, relation, scope, named.view)

    def _derived(self, node: exp.Subquery, scope: Scope) -> Source:
        """A derived table sees the queries around its own, but not its neighbours in FROM."""
        alias = self.alias(node, "derived", scope)
        id = self.queries.unique(alias, node)
        limits = {} if _column_names(node) else self._limits(alias)
        return self._inlined(node, alias, id, self.queries.query(node, scope.parent, limits), scope, None)

    def _matches(self, node: MatchRecognize, scope: Scope) -> Source:
        """The matches of a pattern: a relation, which the rows of a query by itself make."""
        queries = self.queries.alone()
        alone = Scope(queries.text, None)
        rows = SourceBinder(queries).source(node.this, alone)
        pattern = bound_pattern(queries, node, rows, alone.items[0])
        alias = self.alias(node, "matches", scope)
        id = self.queries.unique(alias, node)
        most = alone.items[0].rows
        found = matches_of(pattern, most, self.queries.unique(alias, node))
        return self._inlined(node, alias, id, BoundQuery(found, frozenset(), most), scope, None)

    def _pivoted(self, node: exp.Expr, pivot: exp.Pivot, scope: Scope) -> Source:
        """The derived table that a PIVOT of a source is."""
        source = node.copy()
        source.set("pivots", None)
        alone = Scope(self.queries.text, scope.parent)
        SourceBinder(self.queries).source(source.copy(), alone)
        (item,) = alone.items
        shown = [c.name for c in item.columns if not c.hidden]
        query = pivoted(self.queries.text, source, pivot, shown)
        alias = pivot.args.get("alias") or exp.TableAlias(this=exp.to_identifier(item.alias))
        return self._derived(exp.Subquery(this=query, alias=alias.copy()), scope)

    def _limits(self, alias: str) -> RowLimits:
        return {**self.limits.get(None, {}), **self.limits.get(alias, {})}

    def _inlined(
        self, node: exp.Expr, alias: str, id: str, query: BoundQuery, scope: Scope, view: str | None
    ) -> Source:
        if query.limited:
            self.limited.append((alias, query.limited))
        shown = len(query.select.outputs)
        if self.queries.keyed:
            query = replace(query, select=with_keys(query.select))
        self._item(node, derived_item(alias, id, query, shown), scope)
        return Source(id, query.select, view)

    def _item(self, node: exp.Expr, item: FromItem, scope: Scope) -> None:
        scope.items.append(self._renamed(item, _column_names(node), node))

    def _renamed(self, item: FromItem, names: list[exp.Expr], node: exp.Expr) -> FromItem:
        """The item with the names of an alias `t(x, y)` for its first columns."""
        if not names:
            return item
        text = self.queries.text
        shown = sum(not column.hidden for column in item.columns)
        if len(names) > shown:
            message = f"{item.alias} has {shown} columns, but its alias names {len(names)}"
            raise text.error(message, names[shown])
        given = [identifier(n, text) for n in names] + [c.name for c in item.columns[len(names) :]]
        for index, name in enumerate(given):
            if name in given[:index]:
                raise text.error(f"column {name} stands twice in the alias {item.alias}", node)
        stored = {name: c.name for name, c in zip(given, item.columns, strict=True)}
        columns = tuple(replace(c, name=n) for n, c in zip(given, item.columns, strict=True))
        return FromItem(item.alias, item.id, columns, frozenset(), item.rows, stored, item.keys)

    def alias(self, node: exp.Expr, default: str, scope: Scope) -> str:
        """The alias of an item of FROM; raises SqlError where another one has it."""
        text, given = self.queries.text, node.args.get("alias")
        alias = default
        if given:
            refuse_other_clauses(text, given, {"this", "columns"})
            alias = identifier(given.this, text) if given.this else default
        if any(item.alias == alias for item in scope.items):
            if not given and isinstance(node, exp.Subquery):
                raise text.error("the second derived table of a FROM needs an alias", node)
            raise text.error(f"{alias} stands twice in FROM; give each its own alias", node)
        return alias


def derived_item(alias: str, id: str, query: BoundQuery, shown: int | None = None) -> FromItem:
    """A query as an item of FROM; outputs after the first `shown` are hidden."""
    columns = tuple(
        Column(o.name, o.expression.type, o.expression.nullable, shown is not None and place >= shown)
        for place, o in enumerate(query.select.outputs)
    )
    return FromItem(alias, id, columns, query.ambiguous, query.rows, keys=row_keys(query.select))


def _column_names(node: exp.Expr) -> list[exp.Expr]:
    alias = node.args.get("alias")
    return list(alias.args.get("columns") or ()) if alias else []


_FORM = "ASOF JOIN takes equalities and one inequality, as in ON t.symbol = q.symbol AND t.ts >= q.ts"


@dataclass(frozen=True, slots=True)
class _Match:
    """The conditions of ON: `value op theirs`, op one of the four inequalities, and the others."""

    value: Expression
    op: str
    theirs: Expression
    others: tuple[Expression, ...]


def asof_conditions(
    text: SqlText,
    join: exp.Join,
    scope: Scope,
    bind: Callable[[], list[Expression]],
    again: Callable[[], Source],
) -> list[Expression]:
    """What rows of an ASOF JOIN satisfy; the right side is the last item of the scope.

    `bind` binds ON anew, `again` puts the right side bound anew in the place of the last item.
    """
    item = scope.items[-1]
    match = _match(text, join, item.id, bind())
    source = again()
    candidate = _match(text, join, source.id, bind())
    scope.items[-1] = item
    function = "max" if match.op in (">", ">=") else "min"

    def end_of(
        function: str, rows: Source, value: Expression, conditions: Sequence[Expression]
    ) -> Expression:
        found = Aggregate(function, value, value.type, nullable=True)
        query = Select((rows,), logical("AND", conditions), (), (Output(function, found),), True)
        return ScalarSubquery(query, value.type, nullable=True)

    reached = comparison(candidate.op, candidate.value, candidate.theirs)
    latest = end_of(function, source, candidate.theirs, [*candidate.others, reached])
    result = [*match.others, comparison("=", match.theirs, latest)]
    places: list[_Place] = []
    for place in _deciding(item, match):
        rows = again()
        tied = _match(text, join, rows.id, bind())
        there = scope.items[-1]
        scope.items[-1] = item
        equal = [*tied.others, comparison("=", tied.theirs, match.theirs)]
        equal += [_same(p.value(there), p.value(item)) for p in places]
        end = end_of("max" if place.presence else function, rows, place.value(there), equal)
        result.append(_same(place.value(item), end))
        places.append(place)
    return result


@dataclass(frozen=True, slots=True)
class _Place:
    """A column, by where it stands, as rows are ordered by it; `presence`: whether it is there, None: both at
    once.
    """

    column: int
    presence: bool | None

    def value(self, item: FromItem) -> Expression:
        """Its value in the rows of an item."""
        found = item.reference(item.columns[self.column])
        if self.presence:
            return case([(is_null(found), number(0))], number(1))
        ordered = with_order(found)
        return ordered if self.presence is None else coalesce([ordered, zero_of(ordered.type)])


def _deciding(item: FromItem, match: _Match) -> list[_Place]:
    """What of the right side tells apart rows which ON finds at the same place."""
    sides = (side for c in match.others if isinstance(c, Comparison) for side in (c.left, c.right))
    fixed = {*sides, match.theirs}
    references = [item.reference(c) for c in item.columns]
    left = [[r for r in references if r.name in key and r not in fixed] for key in item.keys]
    # Rows that are equal in all columns are one and the same, as often as they stand.
    left = left or [[r for r in references if r not in fixed]]
    places = min(left, key=len)
    # Each comparison of what may be NULL doubles the terms, so that several are made of what is not.
    apart = sum(r.nullable for r in places) > 1
    return [
        _Place(references.index(r), presence)
        for r in places
        for presence in ((True, False) if apart and r.nullable else (None,))
    ]


def _same(one: Expression, other: Expression) -> Expression:
    equal = comparison("=", one, other)
    if not (one.nullable and other.nullable):
        return equal
    return logical("OR", [equal, logical("AND", [is_null(one), is_null(other)])])


def _match(text: SqlText, join: exp.Join, right: str, on: list[Expression]) -> _Match:
    conjuncts = [c for e in on for c in (e.args if isinstance(e, Logical) and e.op == "AND" else (e,))]
    inequalities = [c for c in conjuncts if isinstance(c, Comparison) and c.op not in ("=", "<>")]
    others = tuple(c for c in conjuncts if c not in inequalities)
    if len(inequalities) != 1 or not all(isinstance(c, Comparison) and c.op == "=" for c in others):
        raise text.error(_FORM, join)
    (inequality,) = inequalities
    value, op, theirs = inequality.left, inequality.op, inequality.right
    if _reads(value, right):
        value, op, theirs = theirs, MIRRORED[op], value
    if _reads(value, right) or not _reads(theirs, right, alone=True):
        raise text.error(_FORM, join)
    return _Match(value, op, theirs, others)


def _reads(expression: Expression, source: str, alone: bool = False) -> bool:
    """Whether an expression has columns of the source, `alone`: and of no other."""
    sources = {p.source for p in parts(expression) if isinstance(p, ColumnRef)}
    return source in sources and (not alone or sources == {source})


Rows = Source | OuterJoin
_KINDS = ("", "INNER", "CROSS", "OUTER", "SEMI", "ANTI")


@dataclass(frozen=True, slots=True)
class Joined:
    """A part of FROM: what it joins, what its rows must satisfy, and its items in the scope."""

    rows: tuple[Rows, ...]
    conditions: tuple[Expression, ...]
    start: int
    end: int


@dataclass(slots=True)
class JoinBinder:
    """Binds the FROM of one query."""

    queries: Queries
    scope: Scope
    sources: SourceBinder

    def from_clause(self, tree: exp.Select) -> tuple[tuple[Rows, ...], list[Expression]]:
        """The sources of a query, and the conditions that its joins put on their rows."""
        first, joins = tree.args.get("from_"), tree.args.get("joins") or ()
        if not first:
            return (), []
        joined = self._chain(first.this, joins)
        return joined.rows, list(joined.conditions)

    def _chain(self, first: exp.Expr, joins: Sequence[exp.Join]) -> Joined:
        """Joins from left to right; a comma binds less tightly than JOIN."""
        outside, self.scope.first_item = self.scope.first_item, len(self.scope.items)
        groups = [self._part(first)]
        for join in joins:
            self._join(groups, join)
        self.scope.first_item = outside
        return _product(groups)

    def _part(self, node: exp.Expr) -> Joined:
        """One operand of a join: a source, or joins in parentheses or before their ON."""
        joins = node.args.get("joins") or ()
        if joins:
            alone = node.copy()
            alone.set("joins", None)
            return self._chain(alone, joins)
        if isinstance(node, exp.Subquery) and not isinstance(node.unnest(), exp.Query):
            if alias := node.args.get("alias"):
                message = refusal_text("alias of joins in parentheses", "give each relation its own")
                raise self.queries.text.error(message, alias)
            refuse_other_clauses(self.queries.text, node, {"this"})
            return self._part(node.this)
        start = len(self.scope.items)
        source = self.sources.source(node, self.scope)
        return Joined((source,), (), start, len(self.scope.items))

    def _join(self, groups: list[Joined], join: exp.Join) -> None:
        side, kind, method = (str(join.args.get(k) or "").upper() for k in ("side", "kind", "method"))
        comma = self.queries.text.sql[position(join)] == ","
        self._check(join, side, kind, method, comma)
        if isinstance(join.this, exp.Lateral):
            self._lateral(groups, join, join.this, side)
            return
        right = self._part(join.this)
        left = groups[-1]
        if comma:
            groups.append(right)
        elif method == "ASOF":
            on = self._asof(join, left, right)
            groups[-1] = self._outer(left, right, on) if side else _product([left, right], on)
        elif kind in ("SEMI", "ANTI"):
            groups[-1] = self._semi(join, left, right, ">" if kind == "SEMI" else "=")
        elif side:
            self._outer_join(groups, join, side, right)
        else:
            groups[-1] = _product([left, right], self._condition(join, left, right))

    def _check(self, join: exp.Join, side: str, kind: str, method: str, comma: bool) -> None:
        name = " ".join(w for w in (method, side, kind, "JOIN") if w)
        known = method in ("", "NATURAL") or (method == "ASOF" and side in ("", "LEFT"))
        if kind not in _KINDS or not known:
            instead = "there are inner, cross, outer, semi, anti and ASOF joins"
            raise self.queries.text.error(refusal_text(name, instead), join)
        if kind in ("SEMI", "ANTI") and side not in ("", "LEFT"):
            raise self.queries.text.error(refusal_text(name, "exchange its sides"), join)
        refuse_other_clauses(self.queries.text, join, {"this", "on", "using", "side", "kind", "method"})
        conditioned = bool(join.args.get("on") or join.args.get("using"))
        free = comma or kind == "CROSS" or method == "NATURAL"
        if conditioned and free and not comma:
            raise self.queries.text.error(f"{name} takes no ON; write JOIN ... ON", join)
        if not conditioned and not free:
            message = f"{name} needs ON; write CROSS JOIN to pair every row with every row"
            raise self.queries.text.error(message, join)

    def _lateral(self, groups: list[Joined], join: exp.Join, lateral: exp.Lateral, side: str) -> None:
        """LATERAL of one row: its columns are scalar subqueries beside those of what stands before it."""
        text, query = self.queries.text, _one_row(self.queries.text, lateral)
        on = join.args.get("on")
        apart = (
            join.args.get("method")
            or join.args.get("using")
            or str(join.args.get("kind")) in ("SEMI", "ANTI")
        )
        if apart or side not in ("", "LEFT") or (side and not (isinstance(on, exp.Boolean) and on.this)):
            instead = "write a comma, CROSS JOIN, JOIN ... ON or LEFT JOIN ... ON TRUE before it"
            raise text.error(refusal_text("LATERAL in such a join", instead), join)
        left = _product(groups)
        id = self.queries.unique("lateral", join)
        outputs = self._moved(left, id)
        alias = self.sources.alias(lateral, "lateral", self.scope)
        names = _column_names(lateral)
        columns, stored = [], {}
        self.scope.clause = "FROM"
        for place, projection in enumerate(query.expressions):
            given = projection.args.get("alias") or (
                projection.this if isinstance(projection, exp.Column) else None
            )
            if place < len(names):
                given = names[place]
            if given is None:
                raise text.error("the columns of LATERAL need names, as in SUM(volume) AS volume", projection)
            name = identifier(given, text)
            if name in stored:
                raise text.error(f"column {name} stands twice in LATERAL", projection)
            alone = _decided(query)
            alone.set("expressions", [projection.copy()])
            value = self.queries.expressions.value(exp.Subquery(this=alone), self.scope)
            stored[name] = f"{id}_{name}"
            outputs[stored[name]] = Output(stored[name], value)
            columns.append(Column(name, value.type, value.nullable))
        conditions = list(left.conditions)
        if not side and query.args.get("limit"):
            conditions.append(self.queries.expressions.condition(_is_there(query), self.scope))
        rows = Select(left.rows, logical("AND", conditions) if conditions else None, (),
                      tuple(outputs.values()), False)  # fmt: skip
        for index, item in self._seen_in(left, id):
            self.scope.items[index] = item
        self.scope.items.append(FromItem(alias, id, tuple(columns), frozenset(), 1, stored))
        found = Joined((Source(id, rows),), (), left.start, len(self.scope.items))
        groups[:] = [found]
        if not side and on is not None:
            groups[:] = [replace(found, conditions=tuple(self._on(join)))]

    def _moved(self, part: Joined, id: str) -> dict[str, Output]:
        """The columns of a part as outputs of a derived table."""
        return {
            _moved_name(item, column): Output(_moved_name(item, column), item.reference(column))
            for item in self.scope.items[part.start : part.end]
            for column in item.columns
        }

    def _seen_in(self, part: Joined, id: str) -> list[tuple[int, FromItem]]:
        """The items of a part as columns of that derived table."""
        found = []
        for index in range(part.start, part.end):
            item = self.scope.items[index]
            stored = {column.name: _moved_name(item, column) for column in item.columns}
            places = {item.stored.get(c.name, c.name): stored[c.name] for c in item.columns}
            keys = tuple(frozenset(places[k] for k in key) for key in item.keys if key <= places.keys())
            found.append((index, replace(item, id=id, stored=stored, keys=keys)))
        return found

    def _outer_join(self, groups: list[Joined], join: exp.Join, side: str, right: Joined) -> None:
        if side == "LEFT":
            on = self._condition(join, groups[-1], right)
            groups[:] = [self._outer(_product(groups), right, on)]
            return
        left = groups[-1]
        if side == "FULL":
            left, right = self._filtered(left, join), self._filtered(right, join)
        # What stands before a comma takes no part in the join, so its ON does not see it.
        outside, self.scope.first_item = self.scope.first_item, left.start
        on = self._condition(join, left, right, side)
        self.scope.first_item = outside
        groups[-1] = self._outer(left, right, on, side)

    def _outer(self, left: Joined, right: Joined, on: Sequence[Expression], side: str = "LEFT") -> Joined:
        """A join that keeps the rows without a partner of the left, the right, or of both."""
        kept, other = (right, left) if side == "RIGHT" else (left, right)
        for part in (kept, other) if side == "FULL" else (other,):
            items = [i.nullable() for i in self.scope.items[part.start : part.end]]
            if side == "FULL":
                items[0] = replace(items[0], rows=items[0].rows + 1)
            self.scope.items[part.start : part.end] = items
        join = OuterJoin(kept.rows, other.rows, logical("AND", [*other.conditions, *on]), side == "FULL")
        return Joined((join,), kept.conditions, left.start, right.end)

    def _semi(self, join: exp.Join, left: Joined, right: Joined, op: str) -> Joined:
        """The rows of the left that have a partner, or none; the right is not seen outside of ON."""
        merged = list(self.scope.merged)
        on = self._condition(join, left, right)
        most = 1
        for item in self.scope.items[right.start :]:
            most *= item.rows
        self.scope.merged[:] = merged
        del self.scope.items[right.start :]
        matches = count_of(right.rows, [*right.conditions, *on], most, op)
        return replace(left, conditions=(*left.conditions, matches))

    def _asof(self, join: exp.Join, left: Joined, right: Joined) -> list[Expression]:
        if right.end - right.start > 1 or right.conditions:
            instead = "join a derived table"
            raise self.queries.text.error(refusal_text("ASOF JOIN of joins in parentheses", instead), join)
        made = join.this.find(exp.SetOperation, exp.Group, exp.Distinct)
        read = {table.name.lower() for table in join.this.find_all(exp.Table) if made is None}
        (rows,) = right.rows
        if not self.scope.items[right.start].keys and (
            self._could_have_keys(rows) or read & self.queries.numberable
        ):
            # With keys or numbers they are: which of those of one time is the latest is known then.
            raise self.queries.text.error("ASOF JOIN of rows that are not proved unique", join)
        using = self._using(join, left, right)

        def bind() -> list[Expression]:
            return self._equalities(using, left, right, last=">=") if using else self._on(join)

        def again() -> Source:
            del self.scope.items[right.start :]
            return self.sources.source(join.this, self.scope)

        on = asof_conditions(self.queries.text, join, self.scope, bind, again)
        self._merge(using, left, right)
        return on

    def _could_have_keys(self, rows: Source | OuterJoin) -> bool:
        """Whether a derived table, bound without what tells its rows apart, can have it."""
        query = rows.relation if isinstance(rows, Source) and not self.queries.keyed else None
        return isinstance(query, Select) and bool(row_keys(with_keys(query)))

    def _filtered(self, part: Joined, node: exp.Expr) -> Joined:
        """The part as one derived table, so that its conditions hold before the rows meet others."""
        if not part.conditions:
            return part
        id = self.queries.unique("joined", node)
        outputs: dict[str, Output] = {}
        for index in range(part.start, part.end):
            item, stored = self.scope.items[index], {}
            for column in item.columns:
                name = f"{item.id}_{column.name}"
                while name in outputs:
                    name += "_"
                outputs[name] = Output(name, item.reference(column))
                stored[column.name] = name
            self.scope.items[index] = replace(item, id=id, stored=stored)
        query = Select(part.rows, logical("AND", part.conditions), (), tuple(outputs.values()), False)
        return replace(part, rows=(Source(id, query),), conditions=())

    def _condition(self, join: exp.Join, left: Joined, right: Joined, side: str = "LEFT") -> list[Expression]:
        using = self._using(join, left, right)
        on = self._equalities(using, left, right) if using else self._on(join)
        self._merge(using, left, right, side)
        return on

    def _on(self, join: exp.Join) -> list[Expression]:
        on = join.args.get("on")
        self.scope.clause = "ON"
        return [self.queries.expressions.condition(on, self.scope)] if on else []

    def _using(self, join: exp.Join, left: Joined, right: Joined) -> list[tuple[str, exp.Expr]]:
        """The names of USING, or of all columns that both sides of a NATURAL join have."""
        text, scope = self.queries.text, self.scope
        if str(join.args.get("method") or "").upper() == "NATURAL":
            there = {c.name for _, c in scope.visible(right.start, right.end) if not _hidden(c)}
            shown = [c.name for _, c in scope.visible(left.start, left.end) if not _hidden(c)]
            names = [name for name in shown if name in there]
            if not names:
                raise text.error("NATURAL JOIN finds no column that both sides have; write JOIN ... ON", join)
            return [(name, join) for name in dict.fromkeys(names)]
        return [(identifier(n, text), n) for n in join.args.get("using") or ()]

    def _equalities(
        self, using: list[tuple[str, exp.Expr]], left: Joined, right: Joined, last: str = "="
    ) -> list[Expression]:
        conditions: list[Expression] = []
        for count, (name, node) in enumerate(using, 1):
            sides = [self._merged(name, node, part) for part in (left, right)]
            values = [self.scope.merged_value(side, node) for side in sides]
            try:
                conditions.append(comparison(last if count == len(using) else "=", values[0], values[1]))
            except TypingError as error:
                raise self.queries.text.error(str(error), node) from None
        return conditions

    def _merged(self, name: str, node: exp.Expr, part: Joined) -> MergedColumn:
        merged = self.scope.named(name, part.start, part.end, node)
        if merged is None:
            known = (c.name for _, c in self.scope.visible(part.start, part.end))
            where = " and ".join(i.alias for i in self.scope.items[part.start : part.end])
            raise self.queries.text.error(f"{where} has no column {name}{nearest(name, known)}", node)
        return merged

    def _merge(
        self, using: list[tuple[str, exp.Expr]], left: Joined, right: Joined, side: str = "LEFT"
    ) -> None:
        """Makes one column of those of each name: the left's, the right's, or the first that is not NULL."""
        for name, node in using:
            a, b = (self._merged(name, node, part) for part in (left, right))
            taken = {"RIGHT": b.taken, "FULL": a.taken + b.taken}.get(side, a.taken)
            self.scope.merged = [m for m in self.scope.merged if m not in (a, b)]
            self.scope.merged.append(MergedColumn(name, a.items + b.items, taken))


def _hidden(column: Column | MergedColumn) -> bool:
    return isinstance(column, Column) and column.hidden


def _nameable(relation: Relation) -> tuple[tuple[Column, ...], dict[str, str]]:
    """A relation's columns by names that a query can write, and what those are called that it cannot."""
    if relation.number is None or relation.name == TRADES:
        return relation.columns, {}
    hidden = relation.columns[relation.number]
    return tuple(replace(c, name="") if c is hidden else c for c in relation.columns), {"": hidden.name}


def _moved_name(item: FromItem, column: Column) -> str:
    return f"{item.id}_{item.stored.get(column.name, column.name)}"


def _one_row(text: SqlText, lateral: exp.Lateral) -> exp.Select:
    """The query of a LATERAL that is an aggregate without groups, or the first row of an order; raises
    SqlError for another one.
    """
    query = lateral.this.unnest() if isinstance(lateral.this, exp.Subquery) else lateral.this
    more = ("group", "having", "qualify", "distinct", "offset", "with_", "windows")
    if isinstance(query, exp.Select) and not any(query.args.get(k) for k in more):
        limit, order = query.args.get("limit"), query.args.get("order")
        first = limit is not None and order is not None and limit.expression == exp.Literal.number(1)
        if aggregates_rows(query) != first and first == bool(limit or order):
            return query
    instead = (
        "join a derived table on its columns, of first rows by QUALIFY ROW_NUMBER() OVER (PARTITION BY ... "
        "ORDER BY ...) <= n, or with ASOF JOIN for the latest row"
    )
    name = "LATERAL of a query that is no aggregate of one row and no first row"
    raise text.error(refusal_text(name, instead), lateral)


def _decided(query: exp.Select) -> exp.Select:
    """The query with an order in which rows that are equal in it are equal in all outputs, too.

    So that the outputs of the first row are those of one row, each by itself. What the order says of outputs
    by their names or places is said of what these are.
    """
    decided = query.copy()
    if (order := decided.args.get("order")) is None:
        return decided
    shown = [projection.unalias() for projection in query.expressions]
    named = {p.alias.lower(): s for p, s in zip(query.expressions, shown, strict=True) if p.alias}
    named |= {str(place): s for place, s in enumerate(shown, 1)}
    for item in order.expressions:
        by = item.this
        is_named = by.is_int if isinstance(by, exp.Literal) else isinstance(by, exp.Column) and not by.table
        if is_named and by.name.lower() in named:
            item.set("this", named[by.name.lower()].copy())
    order.set("expressions", [*order.expressions, *(exp.Ordered(this=s.copy()) for s in shown)])
    return decided


def _is_there(query: exp.Select) -> exp.Exists:
    """Whether the query has a row."""
    rows = query.copy()
    rows.set("order", None)
    rows.set("limit", None)
    return exp.Exists(this=rows)


def _product(parts: Sequence[Joined], conditions: Sequence[Expression] = ()) -> Joined:
    """Every row of each part with every row of the others, where the conditions hold."""
    return Joined(
        tuple(r for p in parts for r in p.rows),
        (*(c for p in parts for c in p.conditions), *conditions),
        parts[0].start,
        parts[-1].end,
    )
