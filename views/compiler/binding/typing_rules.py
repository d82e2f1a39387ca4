"""Types of expressions: exact arithmetic by intervals, the rules of comparisons, literals and sums."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

from orderbook.dictionary import HALF_CHARACTER
from views.compiler.types import BOOLEAN, DOUBLE, TEXT, Kind, Type

from .bound import Expression, Literal

# Far beyond the 128 bits that can be maintained; keeps the arithmetic on intervals itself cheap.
MAX_DIGITS = 1000
_MAX_BITS = 3322
ORDERING = ("<", "<=", ">", ">=")


class TypingError(Exception):
    """Operands that an operator does not take; the caller adds the position."""


def number(value: int | Decimal) -> Literal:
    """An exact literal: an `int` is INTEGER, a Decimal DECIMAL of as many places as it is written with."""
    if isinstance(value, int):
        return Literal(value, interval(Kind.INTEGER, 0, value, value))
    _, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise TypingError(f"{value} is not a number")
    if len(digits) > MAX_DIGITS or abs(exponent) > MAX_DIGITS:
        raise TypingError(f"a number of more than {MAX_DIGITS} digits is not supported")
    scale = max(0, -exponent)
    scaled = scaled_integer(value, scale)
    return Literal(value, interval(Kind.DECIMAL, scale, scaled, scaled))


def scaled_integer(value: Decimal, scale: int) -> int:
    """value * 10**scale, exactly; it must be whole."""
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int) and exponent + scale >= 0
    magnitude = int("".join(map(str, digits)) or "0") * 10 ** (exponent + scale)
    return -magnitude if sign else magnitude


def constant(value: object) -> Literal:
    """The literal of a parameter's value; a float is the decimal that its repr shows."""
    if isinstance(value, bool):
        return Literal(value, BOOLEAN)
    if isinstance(value, int | Decimal):
        return number(value)
    if isinstance(value, float):
        return number(Decimal(repr(value)))
    if isinstance(value, str):
        if HALF_CHARACTER.search(value):
            raise TypingError("its value is not text: it holds half of a character")
        return Literal(value, TEXT)
    raise TypingError(f"a {type(value).__name__} cannot be a parameter; give a number or a string")


def null() -> Literal:
    """NULL before its context gives it a type."""
    return Literal(None, Type(Kind.INTEGER, 0, 0, 0), nullable=True)


def adopt(expressions: Sequence[Expression], wanted: Type | None = None) -> list[Any]:
    """The expressions with untyped NULLs given `wanted`, or the type of the first that has one."""
    typed = (e.type for e in expressions if not is_null(e))
    target = wanted or next(typed, None)
    if target is None:
        return list(expressions)
    return [replace(e, type=target) if isinstance(e, Literal) and is_null(e) else e for e in expressions]


def is_null(expression: Expression) -> bool:
    """Whether it is the literal NULL."""
    return isinstance(expression, Literal) and expression.value is None


def arithmetic(op: str, left: Type, right: Type) -> Type:
    """The type of `left op right`; raises TypingError unless both are numeric.

    The difference of two timestamps is an INTEGER of ns, which a timestamp plus or minus is one again.
    """
    if Kind.TIMESTAMP in (left.kind, right.kind):
        return _time_arithmetic(op, left, right)
    for operand in (left, right):
        if not operand.numeric:
            raise TypingError(f"arithmetic on {operand.kind.value} is not supported; {op} takes numbers")
    if op == "/" or Kind.DOUBLE in (left.kind, right.kind):
        return DOUBLE
    kind = Kind.DECIMAL if Kind.DECIMAL in (left.kind, right.kind) else Kind.INTEGER
    if op == "*":
        corners = [a * b for a in (left.low, left.high) for b in (right.low, right.high)]
        return interval(kind, left.scale + right.scale, min(corners), max(corners))
    scale = max(left.scale, right.scale)
    (low, high), (other_low, other_high) = (at_scale(t, scale) for t in (left, right))
    if op == "-":
        other_low, other_high = -other_high, -other_low
    return interval(kind, scale, low + other_low, high + other_high)


def _time_arithmetic(op: str, left: Type, right: Type) -> Type:
    kinds = (left.kind, op, right.kind)
    taken = {
        (Kind.TIMESTAMP, "-", Kind.TIMESTAMP): Kind.INTEGER,
        (Kind.TIMESTAMP, "-", Kind.INTEGER): Kind.TIMESTAMP,
        (Kind.TIMESTAMP, "+", Kind.INTEGER): Kind.TIMESTAMP,
        (Kind.INTEGER, "+", Kind.TIMESTAMP): Kind.TIMESTAMP,
    }
    if kinds not in taken:
        form = f"{left.kind.value} {op} {right.kind.value}"
        raise TypingError(
            f"arithmetic on TIMESTAMP is not supported as {form}; "
            "add or subtract an INTERVAL (ns), or take the difference of two"
        )
    low, high = (-right.high, -right.low) if op == "-" else (right.low, right.high)
    return interval(taken[kinds], 0, left.low + low, left.high + high)


def check_comparison(op: str, left: Type, right: Type) -> None:
    """Raises TypingError unless the two types can be compared by `op`."""
    if left.numeric and right.numeric:
        return
    if left.kind is not right.kind:
        raise TypingError(f"comparison of {left.kind.value} with {right.kind.value} is not supported")
    if left.kind is Kind.TEXT and op in ORDERING:
        raise TypingError(f"ordering comparison {op} on TEXT is not supported; TEXT takes = and <>")


def union(construct: str, types: Iterable[Type]) -> Type:
    """The type that holds the values of all; raises TypingError when their kinds do not mix."""
    result, *others = types
    for other in others:
        result = _union(construct, result, other)
    return result


def _union(construct: str, left: Type, right: Type) -> Type:
    if not (left.numeric and right.numeric) and left.kind is not right.kind:
        raise TypingError(f"{construct} of {left.kind.value} and {right.kind.value} is not supported")
    if Kind.DOUBLE in (left.kind, right.kind):
        return DOUBLE
    scale = max(left.scale, right.scale)
    kind = Kind.DECIMAL if Kind.DECIMAL in (left.kind, right.kind) else left.kind
    (low, high), (other_low, other_high) = (at_scale(t, scale) for t in (left, right))
    return Type(kind, scale, min(low, other_low), max(high, other_high))


def summed(argument: Type, rows: int) -> Type:
    """The type of a SUM over at most `rows` rows; its interval holds 0, the sum of nothing."""
    if not argument.numeric:
        raise TypingError(f"SUM of {argument.kind.value} is not supported; it takes numbers")
    if argument.kind is Kind.DOUBLE:
        return DOUBLE
    return interval(argument.kind, argument.scale, min(0, argument.low * rows), max(0, argument.high * rows))


def interval(kind: Kind, scale: int, low: int, high: int) -> Type:
    """An exact type; raises TypingError for numbers beyond all reason."""
    if max(low.bit_length(), high.bit_length()) > _MAX_BITS:
        raise TypingError(f"a number that may have more than {MAX_DIGITS} digits is not supported")
    return Type(kind, scale, low, high)


def at_scale(kind: Type, scale: int) -> tuple[int, int]:
    """The interval of an exact type as integers of more decimal places."""
    factor = 10 ** (scale - kind.scale)
    return kind.low * factor, kind.high * factor
