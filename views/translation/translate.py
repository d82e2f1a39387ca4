"""From the bound query to the calculus.

A value of SQL becomes a pair: a scalar, and the condition under which it is not NULL. Nested
aggregates become lifts, groups of derived tables become Exists, so that what follows knows neither
NULL nor decimals: exact values are scaled integers (the scale stays here and in the view's columns).

Queries become polynomials that count rows: FROM, WHERE, groups, HAVING and the first rows of an order. Outer
joins and unions of rows are sums of polynomials whose terms bind the same variables.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from orderbook.views.binding import bound
from orderbook.views.calculus import (
    ONE,
    Cmp,
    Const,
    Exists,
    Factor,
    Lift,
    Neighbour,
    Poly,
    Rel,
    Scalar,
    Val,
    Var,
    bound_by,
    product,
    scalar_variables,
    substitute,
    substitute_scalar,
    substitute_term,
    variable_set,
)
from orderbook.views.conditions import FALSE, NULL, TRUE, both, choose, condition_poly, is_null, not_null
from orderbook.views.intervals import join, scalar_type
from orderbook.views.names import rename_apart
from orderbook.views.program import CalculusView, ViewColumn, ViewKey
from orderbook.views.simplify import without_unused
from orderbook.views.translation.only_partners import with_only_partner
from orderbook.views.translation.row_order import first_rows, supporting, with_same_columns
from orderbook.views.translation.translate_values import Group, GroupedScope
from orderbook.views.translation.values import (
    Names,
    Scope,
    Value,
    binders,
    cast,
    keyed,
    own_variable,
    renamed,
)
from orderbook.views.translation.window_values import WindowTranslator
from orderbook.views.types import Kind, Relation, Type, unscaled


@dataclass(frozen=True, slots=True)
class CountedRows:
    """A polynomial that counts rows, and the columns of the sources they come from."""

    counted: Poly
    columns: Mapping[str, Mapping[str, Value]]


def outer_join(names: Names, left: CountedRows, right: CountedRows, on: Poly, full: bool) -> CountedRows:
    """The pairs of rows that join, the left rows that have no partner, and with `full` the right ones.

    A column of a side that may be missing is a variable that is NULL where it is missing.
    """
    optional_right, right_variables = _optional(names, right)
    optional_left, left_variables = _optional(names, left) if full else (left, ())
    joined = optional_left.counted * optional_right.counted * on
    joined += optional_left.counted * _without_partner(
        names, right.counted * on, left.counted, right_variables
    )
    if full:
        joined += optional_right.counted * _without_partner(
            names, left.counted * on, right.counted, left_variables
        )
    return CountedRows(joined, {**optional_left.columns, **optional_right.columns})


def _optional(names: Names, rows: CountedRows) -> tuple[CountedRows, tuple[Var, ...]]:
    """The rows with every column in a variable of its own that may be NULL, and those variables."""
    bound = binders(rows.counted)
    lifts: list[Factor] = []
    variables: dict[Var, None] = {}

    def optional(name: str, value: Value) -> Value:
        variable = own_variable(value, bound)
        if variable is None:
            body = product(Val(choose(value.valid, value.scalar, NULL)))
            variable = names.lift(name, body, lifts, scalar_type(value.scalar, names.types))
        names.show(variable, value.type)
        variables[variable] = None
        return Value(variable, value.type, not_null(variable))

    columns = {
        source: {name: optional(name, value) for name, value in values.items()}
        for source, values in rows.columns.items()
    }
    return CountedRows(rows.counted * product(*lifts), columns), tuple(variables)


def _without_partner(names: Names, partners: Poly, kept: Poly, missing: Sequence[Var]) -> Poly:
    """1 where no partner of a row of `kept` exists; then the missing columns are NULL."""
    others, _ = names.copy(partners, binders(kept))
    lifts: list[Factor] = []
    count = names.lift("partners", others, lifts)
    nulls = (Lift(v, product(Val(NULL))) for v in missing)
    return product(*lifts, Cmp("<=", count, Const(0)), *nulls)


def union(
    names: Names, source: str, outputs: Sequence[tuple[str, Type]], branches: Sequence[CountedRows]
) -> CountedRows:
    """The rows of all branches; `branches` have one source each, `source`, with the outputs' names.

    A branch's own variable takes the union's name where it can, so that conditions on it reach the
    branch's relation.
    """
    columns = {}
    for name, kind in outputs:
        values = [cast(b.columns[source][name], kind) for b in branches]
        variable = names.column(source, name, _type_of_all(names, values, kind))
        names.shown[variable] = kind
        never_null = all(v.valid == TRUE for v in values)
        columns[name] = Value(variable, kind, TRUE if never_null else not_null(variable))
    counted = Poly(())
    for branch in branches:
        counted += _as_outputs(branch.counted, branch.columns[source], columns)
    return CountedRows(counted, {source: columns})


def _as_outputs(rows: Poly, found: Mapping[str, Value], columns: Mapping[str, Value]) -> Poly:
    """The rows of a branch, binding the union's variables."""
    bound = binders(rows)
    names: dict[Var, Scalar] = {}
    lifts: list[tuple[Var, Value]] = []
    for name, column in columns.items():
        value = cast(found[name], column.type)
        plain = own_variable(value, bound)
        assert isinstance(column.scalar, Var)
        if plain is None or plain in names:
            lifts.append((column.scalar, value))
        else:
            names[plain] = column.scalar
    values = ((v, renamed(value, names)) for v, value in lifts)
    factors = (Lift(v, product(Val(choose(value.valid, value.scalar, NULL)))) for v, value in values)
    return substitute(rows, names) * product(*factors)


def _type_of_all(names: Names, values: Sequence[Value], kind: Type) -> Type:
    types = [scalar_type(v.scalar, names.types) for v in values]
    result = types[0]
    for other in types[1:]:
        result = join(result, other)
    return replace(unscaled(kind), low=result.low, high=result.high)


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
            rows = product(Exists(group.keys, supporting(group.rows))) if query.group_by else ONE
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
            rows = rows * product(*lifts)
            if _counts_once(query):
                rows, condition = with_same_columns(rows, condition)
            rows = self._with_known_columns(rows * condition_poly(condition))
        return rows, scope

    def _with_known_columns(self, rows: Poly) -> Poly:
        """The rows without what conditions ask of columns that are never NULL, as those of joins are."""
        terms = []
        for term in rows.terms:
            known = {
                argument
                for f in term
                if isinstance(f, Rel)
                for argument, column in zip(f.args, self.relations[f.name].columns, strict=True)
                if not column.nullable
            }
            if any(Val(is_null(v)) in term for v in known):
                continue
            sure = {Val(not_null(v)) for v in known}
            terms.append(tuple(f for f in term if f not in sure))
        return Poly(tuple(terms))

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

    def _joined(self, sources: Sequence[bound.Source | bound.OuterJoin], outer: Scope) -> CountedRows:
        """The cross product of sources."""
        result = CountedRows(ONE, {})
        for source in sources:
            part = self._source(source, outer)
            result = CountedRows(result.counted * part.counted, {**result.columns, **part.columns})
        return result

    def _source(self, source: bound.Source | bound.OuterJoin, outer: Scope) -> CountedRows:
        if isinstance(source, bound.OuterJoin):
            return self._outer_join(source, outer)
        if isinstance(source.relation, Relation):
            return self._relation(source.id, source.relation)
        if isinstance(source.relation, bound.Select):
            return self._derived(source.id, source.relation, outer)
        outputs = [(o.name, o.expression.type) for o in source.relation.outputs]
        branches = [self._derived(source.id, b, outer) for b in source.relation.branches]
        return union(self, source.id, outputs, branches)

    def _derived(self, source: str, query: bound.Select, outer: Scope) -> CountedRows:
        table = self.table(query, outer)
        return CountedRows(table.rows * product(*table.lifts), {source: table.columns})

    def _outer_join(self, join: bound.OuterJoin, outer: Scope) -> CountedRows:
        left, right = self._joined(join.left, outer), self._joined(join.right, outer)
        lifts: list[Factor] = []
        condition = self.condition(join.on, {**outer, **left.columns, **right.columns}, lifts)[0]
        on = product(*lifts) * condition_poly(condition)
        if not join.full:
            found = with_only_partner(self, left.counted, right.counted, right.columns, on)
            if found is not None:
                return CountedRows(found[0], {**left.columns, **found[1]})
        return outer_join(self, left, right, on, join.full)

    def _relation(self, source: str, relation: Relation) -> CountedRows:
        columns = {}
        for column in relation.columns:
            variable = self.column(source, column.name, unscaled(column.type))
            self.shown[variable] = column.type
            columns[column.name] = Value(
                variable, column.type, not_null(variable) if column.nullable else TRUE
            )
        counted = product(Rel(relation.name, tuple(v.scalar for v in columns.values())))
        return CountedRows(counted, {source: columns})


# Aggregates that read the rows of their query once; others compare them with each other.
_ONCE = frozenset({"count", "sum", "avg", "min", "max", "arg_min", "arg_max"})


def _counts_once(query: bound.Select) -> bool:
    """Whether the answer of a query is one aggregate that reads its rows once."""
    outputs = [output.expression for output in query.outputs]
    return query.top is None and all(
        isinstance(own, bound.Aggregate) and own.function in _ONCE and not own.distinct for own in outputs
    )


@dataclass(slots=True)
class Translator(RowTranslator):
    """Translates the views of a catalog."""

    def view(self, view: bound.View) -> CalculusView:
        """The calculus of one view; no two scopes of one polynomial use a variable for different things."""
        result = _without_unused_lets(self._view(view))
        outer = frozenset(k.variable for k in result.keys)
        multiplicity = result.multiplicity and rename_apart(without_unused(result.multiplicity, outer), outer)
        lets = []
        for variable, body in result.lets:
            lets.append((variable, rename_apart(without_unused(body, outer), outer)))
            outer |= {variable}
        return replace(result, multiplicity=multiplicity, lets=tuple(lets))

    def _view(self, view: bound.View) -> CalculusView:
        query = view.query
        if query.aggregated and query.having is None and query.top is None:
            return self._aggregated_view(view.name, query)
        table = self.table(query, {})
        return self._plain_view(view.name, table.rows, list(table.lifts), list(table.columns.items()))

    def _aggregated_view(self, name: str, query: bound.Select) -> CalculusView:
        group, scope = self.group(query.group_by, *self.rows(query, {}))
        lifts: list[Factor] = []
        columns = [(o.name, self.value(o.expression, scope, lifts, group)) for o in query.outputs]
        return CalculusView(
            name,
            self._keys(group.keys),
            supporting(group.rows) if query.group_by else None,
            True,
            _lets(lifts),
            tuple(self._column(n, v) for n, v in columns),
        )

    def _plain_view(
        self, name: str, rows: Poly, lifts: list[Factor], values: Sequence[tuple[str, Value]]
    ) -> CalculusView:
        if not rows.terms:
            return CalculusView(
                name, (), rows, False, (), tuple(ViewColumn(n, v.type, NULL, FALSE) for n, v in values)
            )
        same = _same_columns(rows)
        rows, lifts = substitute(rows, same), list(substitute_term(tuple(lifts), same))
        values = [(n, renamed(v, same)) for n, v in values]
        needed = [v for _, value in values for s in (value.scalar, value.valid) for v in scalar_variables(s)]
        needed += [v for lift in lifts for v in sorted(variable_set(product(lift)), key=lambda v: v.name)]
        keys, lets = _roots(rows, needed)
        return CalculusView(
            name,
            self._keys(keys),
            None if rows == ONE else rows,
            rows == ONE,
            lets + _lets(lifts),
            tuple(self._column(n, v) for n, v in values),
        )

    def _column(self, name: str, value: Value) -> ViewColumn:
        """A column whose type holds what its scalar may be."""
        kind = value.type
        if kind.kind in (Kind.INTEGER, Kind.DECIMAL):
            own = scalar_type(value.scalar, self.types)
            kind = replace(kind, low=min(kind.low, own.low), high=max(kind.high, own.high))
        return ViewColumn(name, kind, value.scalar, value.valid)

    def _keys(self, variables: Sequence[Var]) -> tuple[ViewKey, ...]:
        return tuple(ViewKey(v, v.name.rpartition(".")[2], self.shown[v]) for v in variables)


def _without_unused_lets(view: CalculusView) -> CalculusView:
    used = {v for c in view.columns for s in (c.scalar, c.valid) for v in scalar_variables(s)}
    lets = []
    for variable, body in reversed(view.lets):
        if variable in used:
            lets.append((variable, body))
            used |= variable_set(body)
    return replace(view, lets=tuple(reversed(lets)))


def _lets(lifts: Sequence[Factor]) -> tuple[tuple[Var, Poly], ...]:
    return tuple(let for f in lifts for let in _bindings(f))


def _bindings(factor: Factor) -> Iterator[tuple[Var, Poly]]:
    """Each variable that a lift or neighbour binds, and its value."""
    if isinstance(factor, Lift):
        yield factor.var, factor.body
    elif isinstance(factor, Neighbour):
        for variable in (factor.found, *factor.vars):
            own = {v: Var(f"{v.name}~own") for v in (factor.found, *factor.vars)}
            yield variable, substitute(product(factor), own) * product(Val(own[variable]))


def _same_columns(rows: Poly) -> dict[Var, Scalar]:
    """One variable for columns that every row has equal, so that a joined key is a key once."""
    same: dict[Var, Scalar] = {}
    lifted = {v for t in rows.terms for f in t if isinstance(f, Lift | Neighbour) for v in bound_by(f)}
    columns = {v for t in rows.terms for f in t for v in bound_by(f)} - lifted
    for factor in rows.terms[0] if rows.terms else ():
        if not isinstance(factor, Cmp) or factor.op != "=" or not all(factor in t for t in rows.terms):
            continue
        left, right = substitute_scalar(factor.left, same), substitute_scalar(factor.right, same)
        if isinstance(left, Var) and isinstance(right, Var) and left != right and {left, right} <= columns:
            same = {v: substitute_scalar(s, {left: right}) for v, s in same.items()} | {left: right}
    return same


def _roots(rows: Poly, needed: Sequence[Var]) -> tuple[tuple[Var, ...], tuple[tuple[Var, Poly], ...]]:
    """The variables that identify a row, and the lifts that follow from them.

    A needed variable that a lift of every term binds is recomputed from that lift's own variables.
    """
    lifted: dict[Var, Poly] = {}
    for factor in rows.terms[0] if rows.terms else ():
        if all(factor in term for term in rows.terms):
            lifted |= dict(_bindings(factor))
    keys: dict[Var, None] = {}
    lets: dict[Var, Poly] = {}
    bound_variables = {v for t in rows.terms for f in t for v in bound_by(f)}

    def need(variable: Var) -> None:
        if variable in lets or variable in keys or variable not in bound_variables:
            return
        if variable in lifted:
            for inner in sorted(variable_set(lifted[variable]), key=lambda v: v.name):
                need(inner)
            lets[variable] = lifted[variable]
        else:
            keys[variable] = None

    for variable in needed:
        need(variable)
    return tuple(keys), tuple(lets.items())
