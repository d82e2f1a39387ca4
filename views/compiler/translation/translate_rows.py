"""Queries to polynomials that count rows: FROM, WHERE, groups, HAVING and the first rows of an order."""

from collections.abc import Sequence
from dataclasses import dataclass

from views.compiler.binding import bound
from views.compiler.calculus import ONE, Exists, Factor, Poly, Rel, Var, product
from views.compiler.conditions import TRUE, both, condition_poly, not_null
from views.compiler.names import Scope, keyed
from views.compiler.types import Relation, unscaled

from .outer_joins import Rows, outer_join, union
from .top_rows import first_rows
from .translate_values import Group, GroupedScope
from .translate_windows import WindowTranslator
from .values import Value


@dataclass(frozen=True, slots=True)
class Table:
    """A query's result: what counts its rows, the lifts its columns read, the columns by name."""

    rows: Poly
    lifts: tuple[Factor, ...]
    columns: dict[str, Value]


@dataclass(slots=True)
class RowTranslator(WindowTranslator):
    """Translates queries."""

    def table(self, query: bound.Select, outer: Scope) -> Table:
        """The rows of a query; where HAVING or a limit reads lifts, these are among its rows."""
        rows, scope = self.rows(query, outer)
        group = Group(rows, True)
        if query.aggregated:
            group, scope = self.group(query.group_by, rows, scope)
            rows = product(Exists(group.keys, group.rows)) if query.group_by else ONE
        lifts: list[Factor] = []
        columns = {o.name: self.value(o.expression, scope, lifts, group) for o in query.outputs}
        if query.having is not None:
            condition = self.condition(query.having, scope, lifts, group)[0]
            rows, lifts = rows * product(*lifts) * condition_poly(condition), []
        if query.top is None:
            return Table(rows, tuple(lifts), columns)
        rows, columns = self._first(query.top, Table(rows, tuple(lifts), columns), scope, group)
        return Table(rows, (), columns)

    def _first(
        self, top: bound.Top, table: Table, scope: Scope, group: Group
    ) -> tuple[Poly, dict[str, Value]]:
        """The rows of the table that `top` takes."""
        lifts = list(table.lifts)
        partition = [self.value(p, scope, lifts, group) for p in top.partition_by]
        order = [
            (self.value(i.expression, scope, lifts, group), i.descending, i.nulls_first) for i in top.order_by
        ]
        rows = table.rows * product(*lifts)
        return first_rows(self, rows, table.columns, partition, order, (top.limit, top.offset))

    def rows(self, query: bound.Select, outer: Scope) -> tuple[Poly, Scope]:
        """FROM and WHERE: a polynomial that counts rows, and the columns in scope."""
        joined = self._joined(query.sources, outer)
        scope = {**outer, **joined.columns}
        rows = joined.counted
        if query.where is not None:
            lifts: list[Factor] = []
            condition = self.condition(query.where, scope, lifts)[0]
            rows = rows * product(*lifts) * condition_poly(condition)
        return rows, scope

    def group(
        self, group_by: Sequence[bound.Expression], rows: Poly, scope: Scope
    ) -> tuple[Group, GroupedScope]:
        """Names each grouping expression by a variable; NULLs form one group, as a key of their own."""
        keys: list[Var] = []
        lifts: list[Factor] = []
        grouped: dict[bound.Expression, Value] = {}
        for expression in group_by:
            value = self.value(expression, scope, lifts)
            name = expression.name if isinstance(expression, bound.ColumnRef) else "group"
            key = self.key(name, value, lifts, taken=keys)
            keys.append(key)
            grouped[expression] = keyed(key, value)
        group = Group(rows * product(*lifts), bool(group_by), tuple(keys))
        return group, GroupedScope(scope, grouped)

    def subquery(self, query: bound.Select, scope: Scope, lifts: list[Factor]) -> Value:
        rows, inner = self.rows(query, scope)
        group = Group(rows, False)
        value = self.value(query.outputs[0].expression, inner, lifts, group)
        if query.having is None:
            return value
        condition = self.condition(query.having, inner, lifts, group)[0]
        return Value(value.scalar, value.type, both(value.valid, condition))

    def _joined(self, sources: Sequence[bound.Source | bound.OuterJoin], outer: Scope) -> Rows:
        """The cross product of sources."""
        result = Rows(ONE, {})
        for source in sources:
            part = self._source(source, outer)
            result = Rows(result.counted * part.counted, {**result.columns, **part.columns})
        return result

    def _source(self, source: bound.Source | bound.OuterJoin, outer: Scope) -> Rows:
        if isinstance(source, bound.OuterJoin):
            return self._outer_join(source, outer)
        if isinstance(source.relation, Relation):
            return self._relation(source.id, source.relation)
        if isinstance(source.relation, bound.Select):
            return self._derived(source.id, source.relation, outer)
        outputs = [(o.name, o.expression.type) for o in source.relation.outputs]
        branches = [self._derived(source.id, b, outer) for b in source.relation.branches]
        return union(self, source.id, outputs, branches)

    def _derived(self, source: str, query: bound.Select, outer: Scope) -> Rows:
        table = self.table(query, outer)
        return Rows(table.rows * product(*table.lifts), {source: table.columns})

    def _outer_join(self, join: bound.OuterJoin, outer: Scope) -> Rows:
        left, right = self._joined(join.left, outer), self._joined(join.right, outer)
        lifts: list[Factor] = []
        condition = self.condition(join.on, {**outer, **left.columns, **right.columns}, lifts)[0]
        return outer_join(self, left, right, product(*lifts) * condition_poly(condition), join.full)

    def _relation(self, source: str, relation: Relation) -> Rows:
        columns = {}
        for column in relation.columns:
            variable = self.column(source, column.name, unscaled(column.type))
            self.shown[variable] = column.type
            columns[column.name] = Value(
                variable, column.type, not_null(variable) if column.nullable else TRUE
            )
        counted = product(Rel(relation.name, tuple(v.scalar for v in columns.values())))
        return Rows(counted, {source: columns})
