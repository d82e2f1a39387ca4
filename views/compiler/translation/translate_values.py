"""Expressions to scalars with conditions of validity; the factors they need are collected as lifts."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from views.compiler.binding import bound
from views.compiler.calculus import Factor, Poly, Scalar, Var
from views.compiler.conditions import both, choose, choose_condition, comparison, either, negation, truth
from views.compiler.intervals import scalar_type
from views.compiler.names import Names, Scope
from views.compiler.types import BOOLEAN, Kind

from .function_values import function
from .values import Value, aligned, arithmetic, cast, coalesce, converted, literal


@dataclass(frozen=True, slots=True)
class Group:
    """The rows that aggregates and windows read, of all groups of `keys`; `has_rows` says none is empty."""

    rows: Poly
    has_rows: bool
    keys: tuple[Var, ...] = ()


@dataclass(frozen=True)
class GroupedScope(Mapping[str, Mapping[str, Value]]):
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


@dataclass(slots=True)
class ValueTranslator(Names):
    """Translates expressions; what reads rows of its own is left to the layers above."""

    def value(
        self, expression: bound.Expression, scope: Scope, lifts: list[Factor], group: Group | None = None
    ) -> Value:
        """Translates an expression; factors it needs are appended to `lifts`."""
        if isinstance(scope, GroupedScope) and expression in scope.grouped:
            return scope.grouped[expression]
        match expression:
            case bound.ColumnRef(source, name):
                return scope[source][name]
            case bound.Literal(value, kind):
                return literal(value, kind)
            case bound.Arithmetic(op, left, right):
                a = self.value(left, scope, lifts, group)
                b = self.value(right, scope, lifts, group)
                result = arithmetic(op, a, b)
                return result if expression.type.numeric else replace(result, type=expression.type)
            case bound.Coalesce(args):
                return coalesce([self.value(a, scope, lifts, group) for a in args], expression.type)
            case bound.Function(name, args):
                return function(name, [self.value(a, scope, lifts, group) for a in args], expression.type)
            case bound.Cast(argument):
                given = self.value(argument, scope, lifts, group)
                return converted(given, expression.type, scalar_type(given.scalar, self.types))
            case bound.Case():
                return self._case(expression, scope, lifts, group)
            case bound.ScalarSubquery(query):
                return self.subquery(query, scope, lifts)
            case bound.Aggregate() | bound.Window():
                if group is None:
                    raise ValueError(f"{expression.function} outside of rows")
                if isinstance(expression, bound.Window):
                    return self.window(expression, scope, lifts, group)
                return self.aggregate(expression, scope, lifts, group)
            case bound.Comparison() | bound.Logical() | bound.IsNull():
                true, false = self.condition(expression, scope, lifts, group)
                return (
                    Value(true, BOOLEAN, either(true, false)) if expression.nullable else Value(true, BOOLEAN)
                )
        raise TypeError(expression)

    def condition(
        self, expression: bound.Expression, scope: Scope, lifts: list[Factor], group: Group | None = None
    ) -> tuple[Scalar, Scalar]:
        """When the expression is true, and when it is false; NULL is neither."""
        match expression:
            case bound.Comparison(op, left, right):
                a = self.value(left, scope, lifts, group)
                b = self.value(right, scope, lifts, group)
                valid = both(a.valid, b.valid)
                compared = comparison(op, *aligned(a, b))
                return both(valid, compared), both(valid, negation(compared))
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
            case bound.IsNull(argument):
                valid = self.value(argument, scope, lifts, group).valid
                return negation(valid), valid
        value = self.value(expression, scope, lifts, group)
        holds = truth(value.scalar)
        return both(value.valid, holds), both(value.valid, negation(holds))

    def _case(self, case: bound.Case, scope: Scope, lifts: list[Factor], group: Group | None) -> Value:
        result = cast(self.value(case.otherwise, scope, lifts, group), case.type)
        for when, then in reversed(case.branches):
            taken = self.condition(when, scope, lifts, group)[0]
            value = cast(self.value(then, scope, lifts, group), case.type)
            pick = choose_condition if case.type.kind is Kind.BOOLEAN else choose
            result = Value(
                pick(taken, value.scalar, result.scalar),
                case.type,
                choose_condition(taken, value.valid, result.valid),
            )
        return result

    def subquery(self, query: bound.Select, scope: Scope, lifts: list[Factor]) -> Value:
        """The value of a query of one row."""
        raise NotImplementedError

    def aggregate(self, aggregate: bound.Aggregate, scope: Scope, lifts: list[Factor], group: Group) -> Value:
        """The value of an aggregate over the rows of the group at hand."""
        raise NotImplementedError

    def window(self, window: bound.Window, scope: Scope, lifts: list[Factor], group: Group) -> Value:
        """The value of a window function for the row at hand."""
        raise NotImplementedError
