"""Bound nodes from bound operands: their types, their nullability, and what folds at once."""

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal

from views.compiler.types import BOOLEAN, Kind, Type

from . import typing_rules
from .bound import (
    Arithmetic,
    Case,
    Coalesce,
    Comparison,
    Expression,
    IsNull,
    Literal,
    Logical,
)
from .time_text import moment

TRUE = Literal(True, BOOLEAN)
FALSE = Literal(False, BOOLEAN)
UNKNOWN = Literal(None, BOOLEAN, nullable=True)


def arithmetic(op: str, left: Expression, right: Expression) -> Arithmetic:
    by_zero = op == "/" and not (right.type.exact and (right.type.low > 0 or right.type.high < 0))
    nullable = by_zero or left.nullable or right.nullable
    return Arithmetic(op, left, right, typing_rules.arithmetic(op, left.type, right.type), nullable)


def negative(operand: Expression) -> Expression:
    """-operand; a literal stays one."""
    if isinstance(operand, Literal) and operand.type.numeric:
        if isinstance(operand.value, int):
            return typing_rules.number(-operand.value)
        if isinstance(operand.value, Decimal):
            # copy_negate, because unary minus rounds a Decimal to the context's precision.
            return typing_rules.number(operand.value.copy_negate())
        if isinstance(operand.value, float):
            return replace(operand, value=-operand.value)
    return arithmetic("*", typing_rules.number(-1), operand)


def timestamp(text: str) -> Literal | None:
    """The TIMESTAMP that a text says, or None."""
    ns = moment(text)
    return None if ns is None else timestamp_literal(ns)


def timestamp_literal(ns: int) -> Literal:
    return Literal(ns, Type(Kind.TIMESTAMP, 0, ns, ns))


def comparison(op: str, left: Expression, right: Expression) -> Comparison:
    """`left op right`; a string that is compared with a TIMESTAMP is one."""
    left, right = typing_rules.adopt([left, right])
    left, right = _as_moment(left, right), _as_moment(right, left)
    typing_rules.check_comparison(op, left.type, right.type)
    return Comparison(op, left, right, BOOLEAN, left.nullable or right.nullable)


def _as_moment(value: Expression, other: Expression) -> Expression:
    if other.type.kind is Kind.TIMESTAMP and isinstance(value, Literal) and isinstance(value.value, str):
        return timestamp(value.value) or value
    return value


def logical(op: str, conditions: Sequence[Expression]) -> Expression:
    """AND or OR of the conditions, flattened; a single one is itself."""
    args: list[Expression] = []
    for condition in conditions:
        args += condition.args if isinstance(condition, Logical) and condition.op == op else (condition,)
    return args[0] if len(args) == 1 else Logical(op, tuple(args), BOOLEAN, any(a.nullable for a in args))


def negation(condition: Expression) -> Expression:
    if isinstance(condition, Literal) and condition.value is not None:
        return Literal(not condition.value, BOOLEAN)
    if isinstance(condition, Logical) and condition.op == "NOT":
        return condition.args[0]
    return Logical("NOT", (condition,), BOOLEAN, condition.nullable)


def is_null(value: Expression) -> Expression:
    """FALSE where the value is never NULL."""
    return IsNull(value, BOOLEAN) if value.nullable else FALSE


def is_true(condition: Expression) -> Expression:
    """The condition with FALSE for NULL."""
    if not condition.nullable:
        return condition
    return Case(((condition, TRUE),), FALSE, BOOLEAN, nullable=False)


def coalesce(arguments: Sequence[Expression]) -> Expression:
    args = typing_rules.adopt(arguments)
    if len(args) == 1:
        return args[0]
    kind = typing_rules.union("COALESCE", (a.type for a in args))
    return Coalesce(tuple(args), kind, all(a.nullable for a in args))


def case(branches: Sequence[tuple[Expression, Expression]], otherwise: Expression | None) -> Case:
    """CASE WHEN condition THEN value ... ELSE otherwise END; NULL where there is no ELSE."""
    values = [v for _, v in branches] + [otherwise or typing_rules.null()]
    values = typing_rules.adopt(values)
    known = [v.type for v in values if not typing_rules.is_null(v)] or [values[0].type]
    return Case(
        tuple((condition, value) for (condition, _), value in zip(branches, values[:-1], strict=True)),
        values[-1],
        typing_rules.union("CASE", known),
        any(v.nullable for v in values),
    )
