"""From the bound query to the calculus.

A value of SQL becomes a pair: a scalar, and the condition under which it is not NULL. Nested
aggregates become lifts, groups of derived tables become Exists, so that what follows knows neither
NULL nor decimals: exact values are scaled integers (the scale stays here and in the view's columns).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from . import bound
from .calculus import (
    ONE,
    Apply,
    Cmp,
    Const,
    Exists,
    Factor,
    Lift,
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
from .conditions import (
    FALSE,
    NULL,
    TRUE,
    both,
    choose,
    comparison,
    condition_poly,
    either,
    negation,
    not_null,
)
from .intervals import Types, exact, scalar_type, sum_type
from .scoping import rename_apart
from .types import BOOLEAN, DOUBLE, Relation, Type, unscaled
from .values import Value, aligned, arithmetic, as_double, coalesce, literal


@dataclass(frozen=True, slots=True)
class ViewKey:
    """A key of a view's rows, with its SQL type; a nullable one holds NULL as `conditions.NULL`."""

    variable: Var
    name: str
    type: Type


@dataclass(frozen=True, slots=True)
class ViewColumn:
    """A column of a view: a formula over the keys and lets, NULL where `valid` does not hold."""

    name: str
    type: Type
    scalar: Scalar
    valid: Scalar


@dataclass(frozen=True, slots=True)
class CalculusView:
    """A view in the calculus.

    `multiplicity` counts the rows of each key (a group exists while it has rows); an aggregated view
    has every key once (`grouped`), or exactly one row when `multiplicity` is None. `lets` bind what
    the columns read, each summed for the row's keys.
    """

    name: str
    keys: tuple[ViewKey, ...]
    multiplicity: Poly | None
    grouped: bool
    lets: tuple[tuple[Var, Poly], ...]
    columns: tuple[ViewColumn, ...]


Scope = Mapping[str, Mapping[str, Value]]


@dataclass(slots=True)
class Translator:
    """Translates the views of a catalog.

    `types` collects the type of every variable, `shown` the SQL types, with their scales, of those that
    stand for columns and grouping expressions.
    """

    relations: Mapping[str, Relation]
    types: Types = field(default_factory=Types)
    shown: Types = field(default_factory=Types)
    _lifts: int = 0

    def view(self, view: bound.View) -> CalculusView:
        """The calculus of one view; no two scopes of one polynomial use a variable for different things."""
        result = _without_unused_lets(self._view(view))
        keys = frozenset(k.variable for k in result.keys)
        return replace(
            result,
            multiplicity=result.multiplicity and rename_apart(result.multiplicity, keys),
            lets=tuple((v, rename_apart(body, keys)) for v, body in result.lets),
        )

    def _view(self, view: bound.View) -> CalculusView:
        query = view.query
        rows, scope = self._rows(query, {})
        if query.aggregated:
            return self._aggregated_view(view.name, query, rows, scope)
        lifts: list[Factor] = []
        values = [(o.name, self._value(o.expression, scope, lifts)) for o in query.outputs]
        return self._plain_view(view.name, rows, lifts, values)

    def _aggregated_view(self, name: str, query: bound.Select, rows: Poly, scope: Scope) -> CalculusView:
        rows, keys, scope = self._group(query.group_by, rows, scope)
        lifts: list[Factor] = []
        columns = [
            (o.name, self._value(o.expression, scope, lifts, _Group(rows, bool(query.group_by))))
            for o in query.outputs
        ]
        return CalculusView(
            name,
            tuple(ViewKey(k, k.name.rpartition(".")[2], self.shown[k]) for k in keys),
            rows if query.group_by else None,
            True,
            _lets(lifts),
            tuple(ViewColumn(n, v.type, v.scalar, v.valid) for n, v in columns),
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
        values = [
            (n, replace(v, scalar=substitute_scalar(v.scalar, same), valid=substitute_scalar(v.valid, same)))
            for n, v in values
        ]
        needed = [v for _, value in values for s in (value.scalar, value.valid) for v in scalar_variables(s)]
        needed += [v for lift in lifts for v in variable_set(product(lift))]
        keys, lets = _roots(rows, needed)
        return CalculusView(
            name,
            tuple(ViewKey(k, k.name.rpartition(".")[2], self.shown[k]) for k in keys),
            None if rows == ONE else rows,
            rows == ONE,
            lets + _lets(lifts),
            tuple(ViewColumn(n, v.type, v.scalar, v.valid) for n, v in values),
        )

    def _rows(self, query: bound.Select, outer: Scope) -> tuple[Poly, Scope]:
        """FROM and WHERE: a polynomial that counts rows, and the columns in scope."""
        rows = ONE
        scope: dict[str, Mapping[str, Value]] = dict(outer)
        for source in query.sources:
            factors, columns = self._source(source, outer)
            rows = rows * factors
            scope[source.id] = columns
        if query.where is not None:
            lifts: list[Factor] = []
            condition = self.condition(query.where, scope, lifts)[0]
            rows = rows * product(*lifts) * condition_poly(condition)
        return rows, scope

    def _source(self, source: bound.Source, outer: Scope) -> tuple[Poly, Mapping[str, Value]]:
        if isinstance(source.relation, Relation):
            columns = {}
            for column in source.relation.columns:
                variable = self._variable(f"{source.id}.{column.name}", unscaled(column.type))
                self.shown[variable] = column.type
                valid = not_null(variable) if column.nullable else TRUE
                columns[column.name] = Value(variable, column.type, valid)
            return product(Rel(source.relation.name, tuple(v.scalar for v in columns.values()))), columns
        query = source.relation
        rows, scope = self._rows(query, outer)
        lifts: list[Factor] = []
        if not query.aggregated:
            columns = {o.name: self._value(o.expression, scope, lifts) for o in query.outputs}
            return rows * product(*lifts), columns
        rows, keys, scope = self._group(query.group_by, rows, scope)
        group = _Group(rows, bool(query.group_by))
        columns = {o.name: self._value(o.expression, scope, lifts, group) for o in query.outputs}
        exists = product(Exists(keys, rows)) if query.group_by else ONE
        return exists * product(*lifts), columns

    def _group(
        self, group_by: Sequence[bound.Expression], rows: Poly, scope: Scope
    ) -> tuple[Poly, tuple[Var, ...], Scope]:
        """Names each grouping expression by a variable; NULLs form one group, as a key of their own."""
        keys: list[Var] = []
        lifts: list[Factor] = []
        grouped: dict[bound.Expression, Value] = {}
        for expression in group_by:
            value = self._value(expression, scope, lifts)
            key = value.scalar
            if not isinstance(key, Var) or (value.valid not in (TRUE, not_null(key))) or key in keys:
                name = expression.name if isinstance(expression, bound.ColumnRef) else "group"
                key = self._fresh(name, scalar_type(value.scalar, self.types))
                lifts.append(Lift(key, product(Val(choose(value.valid, value.scalar, NULL)))))
            keys.append(key)
            self.shown[key] = value.type
            valid = TRUE if value.valid == TRUE else not_null(key)
            grouped[expression] = Value(key, value.type, valid)
        return rows * product(*lifts), tuple(keys), _GroupedScope(scope, grouped)

    def _value(
        self, expression: bound.Expression, scope: Scope, lifts: list[Factor], group: "_Group | None" = None
    ) -> Value:
        """Translates an expression; factors it needs are appended to `lifts`."""
        if isinstance(scope, _GroupedScope) and expression in scope.grouped:
            return scope.grouped[expression]
        match expression:
            case bound.ColumnRef(source, name):
                return scope[source][name]
            case bound.Literal(value, kind):
                return literal(value, kind)
            case bound.Arithmetic(op, left, right):
                a = self._value(left, scope, lifts, group)
                b = self._value(right, scope, lifts, group)
                return arithmetic(op, a, b)
            case bound.Coalesce(args):
                return coalesce([self._value(a, scope, lifts, group) for a in args], expression.type)
            case bound.ScalarSubquery(query):
                return self._subquery(query, scope, lifts)
            case bound.Aggregate():
                if group is None:
                    raise ValueError("aggregate outside an aggregated query")
                return self._aggregate(expression, scope, lifts, group)
            case bound.Comparison() | bound.Logical():
                true, false = self.condition(expression, scope, lifts, group)
                return Value(true, BOOLEAN, either(true, false) if expression.nullable else TRUE)
        raise TypeError(expression)

    def condition(
        self, expression: bound.Expression, scope: Scope, lifts: list[Factor], group: "_Group | None" = None
    ) -> tuple[Scalar, Scalar]:
        """When the expression is true, and when it is false; NULL is neither."""
        match expression:
            case bound.Comparison(op, left, right):
                a = self._value(left, scope, lifts, group)
                b = self._value(right, scope, lifts, group)
                valid = both(a.valid, b.valid)
                left_scalar, right_scalar = aligned(a, b)
                truth = comparison(op, left_scalar, right_scalar)
                return both(valid, truth), both(valid, negation(truth))
            case bound.Logical("NOT", (argument,)):
                true, false = self.condition(argument, scope, lifts, group)
                return false, true
            case bound.Logical(op, args):
                joined = [self.condition(a, scope, lifts, group) for a in args]
                true, false = joined[0]
                for next_true, next_false in joined[1:]:
                    if op == "AND":
                        true, false = both(true, next_true), either(false, next_false)
                    else:
                        true, false = either(true, next_true), both(false, next_false)
                return true, false
        value = self._value(expression, scope, lifts, group)
        truth = value.scalar if isinstance(value.scalar, Const) else comparison("<>", value.scalar, Const(0))
        return both(value.valid, truth), both(value.valid, negation(truth))

    def _subquery(self, query: bound.Select, scope: Scope, lifts: list[Factor]) -> Value:
        rows, inner = self._rows(query, scope)
        group = _Group(rows, False)
        return self._value(query.outputs[0].expression, inner, lifts, group)

    def _aggregate(
        self, aggregate: bound.Aggregate, scope: Scope, lifts: list[Factor], group: "_Group"
    ) -> Value:
        rows = group.rows
        if isinstance(scope, _GroupedScope):
            scope = scope.scope
        counted = rows
        argument = None
        if aggregate.argument is not None:
            inner: list[Factor] = []
            argument = self._value(aggregate.argument, scope, inner)
            counted = rows * product(*inner) * condition_poly(argument.valid)
        if aggregate.function == "count":
            return Value(self._lift("count", counted, lifts), aggregate.type)
        if argument is None:
            raise ValueError(f"{aggregate.function} needs an argument")
        total = self._lift("sum", counted * product(Val(argument.scalar)), lifts)
        never_null = group.has_rows and argument.valid == TRUE
        if never_null and aggregate.function == "sum":
            return Value(total, aggregate.type)
        count = self._lift("count", counted, lifts)
        valid = TRUE if never_null else comparison(">", count, Const(0))
        if aggregate.function == "sum":
            return Value(total, aggregate.type, valid, zero_if_null=True)
        ratio = Apply("/", (as_double(Value(total, argument.type)), as_double(Value(count, exact(0, 0)))))
        return Value(ratio, DOUBLE, valid)

    def _lift(self, name: str, body: Poly, lifts: list[Factor]) -> Var:
        """The variable that holds the value of `body`; equal bodies share one."""
        for factor in lifts:
            if isinstance(factor, Lift) and factor.body == body:
                return factor.var
        variable = self._fresh(name, sum_type(body, self.types, self.relations))
        lifts.append(Lift(variable, body))
        return variable

    def _fresh(self, name: str, kind: Type) -> Var:
        self._lifts += 1
        return self._variable(f"{name}_{self._lifts}", kind)

    def _variable(self, name: str, kind: Type) -> Var:
        variable = Var(name)
        self.types[variable] = kind
        return variable


@dataclass(frozen=True, slots=True)
class _Group:
    """The rows that aggregates of a query sum over; with GROUP BY every group has some."""

    rows: Poly
    has_rows: bool


@dataclass(frozen=True)
class _GroupedScope(Mapping[str, Mapping[str, Value]]):
    """The scope of an aggregated query's outputs: grouping expressions are named by their keys."""

    scope: Scope
    grouped: Mapping[bound.Expression, Value]

    def __getitem__(self, source: str) -> Mapping[str, Value]:
        columns = dict(self.scope[source])
        for expression, value in self.grouped.items():
            if isinstance(expression, bound.ColumnRef) and expression.source == source:
                columns[expression.name] = value
        return columns

    def __iter__(self):  # type: ignore[no-untyped-def]
        return iter(self.scope)

    def __len__(self) -> int:
        return len(self.scope)


def _without_unused_lets(view: CalculusView) -> CalculusView:
    used = {v for c in view.columns for s in (c.scalar, c.valid) for v in scalar_variables(s)}
    lets = []
    for variable, body in reversed(view.lets):
        if variable in used:
            lets.append((variable, body))
            used |= variable_set(body)
    return replace(view, lets=tuple(reversed(lets)))


def _lets(lifts: Sequence[Factor]) -> tuple[tuple[Var, Poly], ...]:
    return tuple((f.var, f.body) for f in lifts if isinstance(f, Lift))


def _same_columns(rows: Poly) -> dict[Var, Scalar]:
    """One variable for columns that every row has equal, so that a joined key is a key once."""
    same: dict[Var, Scalar] = {}
    columns = {v for t in rows.terms for f in t if not isinstance(f, Lift) for v in bound_by(f)}
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
        if isinstance(factor, Lift) and all(factor in term for term in rows.terms):
            lifted[factor.var] = factor.body
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
