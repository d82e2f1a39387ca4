"""Scalar expressions and conditions, from syntax trees to bound ones."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

from sqlglot import exp

from orderbook.errors import SqlError

from . import refuse, typing_rules
from .bound import (
    Aggregate,
    Arithmetic,
    Coalesce,
    Comparison,
    Expression,
    Literal,
    Logical,
    ScalarSubquery,
    Select,
)
from .dialect import SqlText
from .scope import Scope, identifier, nearest
from .types import BOOLEAN, DOUBLE, TEXT, Kind, Type

_ARITHMETIC: dict[type[exp.Expr], str] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/"}
_COMPARISONS: dict[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
}
_AGGREGATES: dict[type[exp.Expr], str] = {exp.Sum: "sum", exp.Count: "count", exp.Avg: "avg"}


@dataclass(slots=True)
class ExpressionBinder:
    """Binds the expressions of one view; `bind_query` binds a subquery in the scope it stands in."""

    text: SqlText
    parameters: Mapping[str, Any]
    bind_query: Callable[[exp.Expr, Scope], Select]

    def value(self, node: exp.Expr, scope: Scope) -> Expression:
        """A value of any type."""
        before = [(s, len(s.loose)) for s in scope.chain() if s.grouped]
        try:
            result = self._dispatch(node, scope)
        except typing_rules.TypingError as error:
            raise self.text.error(str(error), node) from None
        for owner, count in before:
            if len(owner.loose) > count and result in owner.grouped:
                del owner.loose[count:]
        return result

    def condition(self, node: exp.Expr, scope: Scope) -> Expression:
        """A value of type BOOLEAN."""
        (result,) = typing_rules.adopt([self.value(node, scope)], BOOLEAN)
        if result.type.kind is not Kind.BOOLEAN:
            kind = result.type.kind.value
            raise self.text.error(f"a condition is needed here, not a value of type {kind}", node)
        return result

    def _dispatch(self, node: exp.Expr, scope: Scope) -> Expression:
        match node:
            case exp.Paren():
                return self.value(node.this, scope)
            case exp.Column():
                return self._column(node, scope)
            case exp.Literal() | exp.Null() | exp.Boolean() | exp.Placeholder():
                return self._literal(node)
            case exp.Neg():
                return self._negated(self.value(node.this, scope))
            case exp.Add() | exp.Sub() | exp.Mul() | exp.Div():
                left, right = self._operands(node, scope)
                return _arithmetic(_ARITHMETIC[type(node)], left, right)
            case exp.EQ() | exp.NEQ() | exp.LT() | exp.LTE() | exp.GT() | exp.GTE():
                left, right = self._operands(node, scope)
                return _comparison(_COMPARISONS[type(node)], left, right)
            case exp.And() | exp.Or():
                op = "AND" if isinstance(node, exp.And) else "OR"
                return logical(op, [self.condition(n, scope) for n in node.flatten()])
            case exp.Not():
                return _negation(self.condition(node.this, scope))
            case exp.Between() | exp.In() | exp.Is():
                return self._predicate(node, scope)
            case exp.Coalesce():
                return _coalesce([self.value(n, scope) for n in (node.this, *node.expressions)])
            case exp.Sum() | exp.Count() | exp.Avg():
                return self._aggregate(node, scope)
            case exp.Subquery():
                return self._subquery(node, scope)
        raise self.text.error(refuse.construct(node), node)

    def _operands(self, node: exp.Expr, scope: Scope) -> tuple[Expression, Expression]:
        left, right = typing_rules.adopt([self.value(node.this, scope), self.value(node.expression, scope)])
        return left, right

    def _column(self, node: exp.Expr, scope: Scope) -> Expression:
        if node.args.get("db"):
            raise self.text.error("a name of three parts is not supported; write alias.column", node)
        if isinstance(node.this, exp.Star):
            raise self.text.error("* stands for columns only as an item of SELECT or in COUNT(*)", node)
        qualifier = node.args.get("table")
        return scope.resolve(
            identifier(qualifier, self.text) if qualifier else None, identifier(node.this, self.text), node
        )

    def _literal(self, node: exp.Expr) -> Literal:
        match node:
            case exp.Null():
                return typing_rules.null()
            case exp.Boolean():
                return Literal(bool(node.this), BOOLEAN)
            case exp.Placeholder():
                return self._parameter(node)
        if node.is_string:
            return Literal(node.name, TEXT)
        return self._number(node)

    def _number(self, node: exp.Expr) -> Literal:
        """Digits with or without a point are exact; with an exponent DOUBLE, as in standard SQL."""
        digits = node.name
        try:
            if "e" in digits.lower():
                return Literal(float(digits), DOUBLE)
            return typing_rules.number(Decimal(digits) if "." in digits else int(digits))
        except (ValueError, InvalidOperation):
            raise self.text.error(f"{digits[:40]} is not a number that can be read", node) from None

    def _parameter(self, node: exp.Expr) -> Literal:
        name = node.name
        if not name:
            raise self.text.error("? parameters are not supported; name them, :k", node)
        if name not in self.parameters:
            close = nearest(name, self.parameters)
            where = f'set it under [parameters] in the configuration or with params={{"{name}": ...}}'
            raise self.text.error(f"parameter :{name} has no value; {where}{close}", node)
        try:
            return typing_rules.constant(self.parameters[name])
        except typing_rules.TypingError as error:
            raise self.text.error(f"parameter :{name}: {error}", node) from None

    def _negated(self, operand: Expression) -> Expression:
        if isinstance(operand, Literal) and isinstance(operand.value, int | Decimal) and operand.type.numeric:
            # copy_negate, because unary minus rounds a Decimal to the context's precision.
            value = operand.value.copy_negate() if isinstance(operand.value, Decimal) else -operand.value
            return typing_rules.number(value)
        if isinstance(operand, Literal) and isinstance(operand.value, float):
            return Literal(-operand.value, operand.type)
        return _arithmetic("*", typing_rules.number(-1), operand)

    def _predicate(self, node: exp.Expr, scope: Scope) -> Expression:
        """BETWEEN, IN and IS NULL as the comparisons they stand for.

        The subject is bound once for each comparison, so that the sources of a subquery in it stay unique.
        """
        match node:
            case exp.Between():
                if node.args.get("symmetric"):
                    raise self._refusal("BETWEEN SYMMETRIC", "write the lower bound first", node)
                bounds = ((">=", node.args["low"]), ("<=", node.args["high"]))
                return logical("AND", [self._compare(op, node.this, bound, scope) for op, bound in bounds])
            case exp.In():
                if not node.expressions or any(isinstance(e, exp.Query) for e in node.expressions):
                    raise self._refusal("IN (subquery)", "write (SELECT COUNT(*) ... WHERE ...) > 0", node)
                return logical("OR", [self._compare("=", node.this, e, scope) for e in node.expressions])
            case exp.Is(expression=exp.Null()):
                return _negation(self._not_null(node.this, scope))
        instead = "write the condition itself, or COALESCE(condition, FALSE)"
        raise self._refusal(f"IS {node.expression.sql()}", instead, node)

    def _compare(self, op: str, left: exp.Expr, right: exp.Expr, scope: Scope) -> Expression:
        operands = typing_rules.adopt([self.value(left, scope), self.value(right, scope)])
        return _comparison(op, operands[0], operands[1])

    def _not_null(self, node: exp.Expr, scope: Scope) -> Expression:
        """x = x is NULL exactly where x is, so COALESCE(x = x, FALSE) is x IS NOT NULL."""
        value = self.value(node, scope)
        if not value.nullable:
            return Literal(True, BOOLEAN)
        return _coalesce([_comparison("=", value, self.value(node, scope)), Literal(False, BOOLEAN)])

    def _aggregate(self, node: exp.Expr, scope: Scope) -> Aggregate:
        function = _AGGREGATES[type(node)]
        name = function.upper()
        if scope.in_aggregate:
            raise self._refusal(f"nested aggregate {name}", "aggregate a derived table", node)
        if scope.clause != "SELECT":
            instead = "write a scalar subquery (SELECT ... FROM ...)"
            raise self._refusal(f"aggregate {name} in {scope.clause}", instead, node)
        scope.aggregated = True
        argument = node.this
        if isinstance(argument, exp.Star) and function == "count" and not any(argument.args.values()):
            return Aggregate("count", None, _count_type(scope), False)
        if isinstance(argument, exp.Distinct):
            instead = "GROUP BY the column in a derived table, then aggregate it"
            raise self._refusal(f"{name}(DISTINCT)", instead, node)
        if argument is None or isinstance(argument, exp.Star) or node.expressions:
            raise self.text.error(f"{name} takes one argument", node)
        with scope.aggregate(name, node):
            value = self.value(argument, scope)
        return self._aggregate_of(function, value, scope)

    def _aggregate_of(self, function: str, value: Expression, scope: Scope) -> Aggregate:
        if function == "count":
            return Aggregate(function, value, _count_type(scope), False)
        if function == "sum":
            kind = typing_rules.summed(value.type, scope.rows)
            return Aggregate(function, value, kind, value.nullable or not scope.grouped)
        if not value.type.numeric:
            kind_name = value.type.kind.value
            raise typing_rules.TypingError(f"AVG of {kind_name} is not supported; it takes numbers")
        return Aggregate(function, value, DOUBLE, True)

    def _refusal(self, name: str, instead: str, node: exp.Expr) -> SqlError:
        return self.text.error(refuse.sentence(name, instead), node)

    def _subquery(self, node: exp.Expr, scope: Scope) -> ScalarSubquery:
        if scope.clause == "GROUP BY":
            instead = "compute it as a column of a derived table and group by that"
            raise self._refusal("subquery in GROUP BY", instead, node)
        query = self.bind_query(node, scope)
        problem = _not_scalar(query)
        if problem:
            raise self.text.error(f"a scalar subquery must give exactly one value: {problem}", node)
        expression = query.outputs[0].expression
        return ScalarSubquery(query, expression.type, expression.nullable)


def logical(op: str, conditions: list[Expression]) -> Expression:
    """AND or OR of the conditions, flattened; a single one is itself."""
    args: list[Expression] = []
    for condition in conditions:
        args += condition.args if isinstance(condition, Logical) and condition.op == op else (condition,)
    return args[0] if len(args) == 1 else Logical(op, tuple(args), BOOLEAN, any(a.nullable for a in args))


def _not_scalar(query: Select) -> str | None:
    if len(query.outputs) != 1:
        return f"this one has {len(query.outputs)} columns"
    if query.group_by:
        return "with GROUP BY it may have none or many rows; move the grouping into WHERE"
    if not query.aggregated:
        return "without an aggregate it may have none or many rows; write SUM(...) or AVG(...)"
    return None


def _arithmetic(op: str, left: Expression, right: Expression) -> Arithmetic:
    nullable = op == "/" or left.nullable or right.nullable
    return Arithmetic(op, left, right, typing_rules.arithmetic(op, left.type, right.type), nullable)


def _comparison(op: str, left: Expression, right: Expression) -> Comparison:
    typing_rules.check_comparison(op, left.type, right.type)
    return Comparison(op, left, right, BOOLEAN, left.nullable or right.nullable)


def _negation(condition: Expression) -> Expression:
    if isinstance(condition, Literal) and condition.value is not None:
        return Literal(not condition.value, BOOLEAN)
    if isinstance(condition, Logical) and condition.op == "NOT":
        return condition.args[0]
    return Logical("NOT", (condition,), BOOLEAN, condition.nullable)


def _coalesce(arguments: list[Expression]) -> Expression:
    args = typing_rules.adopt(arguments)
    if len(args) == 1:
        return args[0]
    return Coalesce(tuple(args), typing_rules.union(a.type for a in args), all(a.nullable for a in args))


def _count_type(scope: Scope) -> Type:
    return Type(Kind.INTEGER, 0, 0, scope.rows)
