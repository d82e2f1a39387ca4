"""Bound nodes from bound operands: their types, their nullability, and what folds at once.

Types follow exact arithmetic by intervals, the rules of comparisons, literals and sums. Texts of moments and
of intervals are read here, to ns. `count_of` makes conditions on how many rows there are.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from decimal import Decimal

from orderbook.core.changes import HALF_CHARACTER
from orderbook.views.binding.bound import (
    Aggregate,
    Arithmetic,
    Case,
    Cast,
    Coalesce,
    ColumnRef,
    Comparison,
    Expression,
    Function,
    IsNull,
    Literal,
    Logical,
    OuterJoin,
    Output,
    ScalarSubquery,
    Select,
    Source,
)
from orderbook.views.scalars.texts import SECOND, fraction_ns, moment
from orderbook.views.types import BOOLEAN, DOUBLE, INT64_MAX, TEXT, Kind, Type

_DAY = 86_400 * SECOND
# The units of INTERVAL in ns, by every name they go by.
_UNITS = {
    name: length
    for names, length in (
        ("NANOSECOND NANOSECONDS NS", 1),
        ("MICROSECOND MICROSECONDS US", 1_000),
        ("MILLISECOND MILLISECONDS MS", 1_000_000),
        ("SECOND SECONDS SEC SECS S", SECOND),
        ("MINUTE MINUTES MIN MINS M", 60 * SECOND),
        ("HOUR HOURS H", 3_600 * SECOND),
        ("DAY DAYS D", _DAY),
        ("WEEK WEEKS W", 7 * _DAY),
    )
    for name in names.split()
}
# Units without a fixed length, in months.
MONTHS = {"MONTH": 1, "MONTHS": 1, "MON": 1, "MONS": 1, "QUARTER": 3, "QUARTERS": 3, "YEAR": 12,
           "YEARS": 12, "Y": 12}  # fmt: skip
_AMOUNT = re.compile(r"\s*([+-]?\d+(?:\.\d*)?)\s*([A-Za-z]+)\s*,?")
_NUMBER = re.compile(r"[+-]?\d{1,9}(?:\.\d{0,9})?")
_WHOLE = re.compile(r"[+-]?\d{1,18}")
_CLOCK = re.compile(r"\s*([+-]?)(\d{1,9}):(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?\s*")


def interval_of(text: str) -> tuple[int, int] | None:
    """The ns and the months that a text such as '1 hour 30 minutes' or '00:05:00' says, else None."""
    clock = _CLOCK.fullmatch(text)
    if clock:
        sign, hours, minutes, seconds, fraction = clock.groups()
        whole = (int(hours) * 60 + int(minutes)) * 60 + int(seconds or 0)
        length = whole * SECOND + fraction_ns(fraction)
        return (-length if sign == "-" else length), 0
    pairs = _AMOUNT.findall(text)
    if not pairs or _AMOUNT.sub("", text).strip():
        return None
    return amounts(pairs)


def amounts(pairs: Iterable[tuple[str, str]]) -> tuple[int, int] | None:
    """The ns and the months that pairs of a number and a unit add up to, else None."""
    length, months = Decimal(0), Decimal(0)
    for number, name in pairs:
        unit = name.upper()
        if not _NUMBER.fullmatch(number):
            return None
        amount = Decimal(number)
        if unit in MONTHS:
            months += amount * MONTHS[unit]
        elif unit in _UNITS:
            length += amount * _UNITS[unit]
        else:
            return None
    if length != int(length) or months != int(months):
        return None
    return int(length), int(months)


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
    magnitude: int = int("".join(map(str, digits)) or "0") * 10 ** (exponent + scale)
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


def adopt(expressions: Sequence[Expression], wanted: Type | None = None) -> list[Expression]:
    """The expressions with untyped NULLs given `wanted`, or the type of the first that has one."""
    typed = (e.type for e in expressions if not is_null_literal(e))
    target = wanted or next(typed, None)
    if target is None:
        return list(expressions)
    return [
        replace(e, type=target) if isinstance(e, Literal) and is_null_literal(e) else e for e in expressions
    ]


def is_null_literal(expression: Expression) -> bool:
    """Whether it is the literal NULL."""
    return isinstance(expression, Literal) and expression.value is None


def arithmetic_type(op: str, left: Type, right: Type) -> Type:
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


TRUE = Literal(True, BOOLEAN)
FALSE = Literal(False, BOOLEAN)
UNKNOWN = Literal(None, BOOLEAN, nullable=True)


def arithmetic(op: str, left: Expression, right: Expression) -> Arithmetic:
    by_zero = op == "/" and not (right.type.exact and (right.type.low > 0 or right.type.high < 0))
    nullable = by_zero or left.nullable or right.nullable
    return Arithmetic(op, left, right, arithmetic_type(op, left.type, right.type), nullable)


def negative(operand: Expression) -> Expression:
    """-operand; a literal stays one."""
    if isinstance(operand, Literal) and operand.type.numeric:
        if isinstance(operand.value, int):
            return number(-operand.value)
        if isinstance(operand.value, Decimal):
            # copy_negate, because unary minus rounds a Decimal to the context's precision.
            return number(operand.value.copy_negate())
        if isinstance(operand.value, float):
            return replace(operand, value=-operand.value)
    return arithmetic("*", number(-1), operand)


def timestamp(text: str) -> Literal | None:
    """The TIMESTAMP that a text says, or None."""
    ns = moment(text)
    return None if ns is None else timestamp_literal(ns)


def timestamp_literal(ns: int) -> Literal:
    return Literal(ns, Type(Kind.TIMESTAMP, 0, ns, ns))


def comparison(op: str, left: Expression, right: Expression) -> Comparison:
    """`left op right`; a string that is compared with a TIMESTAMP, a TIME or a number is one."""
    left, right = adopt([left, right])
    left, right = _read_as(right.type.kind, left), _read_as(left.type.kind, right)
    check_comparison(op, left.type, right.type)
    if left.type.kind is Kind.TEXT and op in ORDERING:
        kind = Type(Kind.INTEGER, 0, -1, 1)
        left, right = (
            Function("compare_texts", (left, right), kind, left.nullable or right.nullable),
            number(0),
        )
    return Comparison(op, left, right, BOOLEAN, left.nullable or right.nullable)


def _read_as(kind: Kind, value: Expression) -> Expression:
    """A string as what it says of a kind, another value as it is."""
    if not isinstance(value, Literal) or not isinstance(value.value, str):
        return value
    text = value.value.strip()
    if kind is Kind.TIMESTAMP:
        return timestamp(value.value) or value
    if kind is Kind.INTEGER and (found := time_of_day(text)):
        return found
    if kind is Kind.INTEGER and _WHOLE.fullmatch(text):
        return number(int(text))
    if kind in (Kind.DECIMAL, Kind.DOUBLE) and _NUMBER.fullmatch(text):
        return number(Decimal(text))
    return value


def time_of_day(text: str) -> Literal | None:
    """The ns since midnight that a text such as '09:30' or '09:30:00.5' says, or None."""
    parsed = interval_of(text) if ":" in text else None
    return number(parsed[0]) if parsed and 0 <= parsed[0] <= _DAY else None


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


def kept_from_null(condition: Expression) -> frozenset[tuple[str, str]]:
    """(source, name) of the columns that are not NULL in any row of which the condition is true."""
    match condition:
        case Logical(op="AND"):
            return frozenset().union(*map(kept_from_null, condition.args))
        case Logical(op="OR"):
            first, *others = map(kept_from_null, condition.args)
            return first.intersection(*others)
        case Logical(op="NOT", args=(IsNull(argument=ColumnRef() as column),)):
            return frozenset({(column.source, column.name)})
        case Comparison():
            sides = (side for side in (condition.left, condition.right) if isinstance(side, ColumnRef))
            return frozenset((side.source, side.name) for side in sides)
    return frozenset()


def with_order(value: Expression) -> Expression:
    """The value, a TEXT as the code that it is held as: for where SQL leaves open which row comes first."""
    if value.type.kind is not Kind.TEXT:
        return value
    return Cast(value, replace(value.type, kind=Kind.INTEGER), value.nullable)


def is_true(condition: Expression) -> Expression:
    """The condition with FALSE for NULL."""
    if not condition.nullable:
        return condition
    return Case(((condition, TRUE),), FALSE, BOOLEAN, nullable=False)


def coalesce(arguments: Sequence[Expression]) -> Expression:
    args = adopt(arguments)
    if len(args) == 1:
        return args[0]
    kind = union("COALESCE", (a.type for a in args))
    return Coalesce(tuple(args), kind, all(a.nullable for a in args))


def case(branches: Sequence[tuple[Expression, Expression]], otherwise: Expression | None) -> Case:
    """CASE WHEN condition THEN value ... ELSE otherwise END; NULL where there is no ELSE."""
    values = [v for _, v in branches] + [otherwise or null()]
    values = adopt(values)
    known = [v.type for v in values if not is_null_literal(v)] or [values[0].type]
    return Case(
        tuple((condition, value) for (condition, _), value in zip(branches, values[:-1], strict=True)),
        values[-1],
        union("CASE", known),
        any(v.nullable for v in values),
    )


def count_of(
    rows: tuple[Source | OuterJoin, ...], conditions: Sequence[Expression], most: int, op: str
) -> Comparison:
    """`(SELECT COUNT(*) FROM rows WHERE conditions) op 0`; there are at most `most` rows."""
    counted = Type(Kind.INTEGER, 0, 0, most)
    output = Output("count", Aggregate("count", None, counted, nullable=False))
    where = logical("AND", conditions) if conditions else None
    query = Select(rows, where, (), (output,), True)
    return comparison(op, ScalarSubquery(query, counted, nullable=False), number(0))


_ZEROS = {
    Kind.DOUBLE: Literal(0.0, DOUBLE),
    Kind.BOOLEAN: Literal(False, BOOLEAN),
    Kind.TIMESTAMP: timestamp_literal(0),
    Kind.TEXT: Literal("", TEXT),
}


def zero_of(kind: Type) -> Literal:
    """A value of the type, to stand where there is none."""
    return _ZEROS.get(kind.kind) or number(0)


def value_beyond(kind: Type, above: bool) -> Literal | None:
    """The number or time next to all values of the type, above or below; None where a key cannot hold it."""
    scaled = kind.high + 1 if above else kind.low - 1
    if kind.kind not in (Kind.INTEGER, Kind.DECIMAL, Kind.TIMESTAMP) or abs(scaled) > INT64_MAX:
        return None
    value = Decimal(scaled).scaleb(-kind.scale) if kind.kind is Kind.DECIMAL else scaled
    return Literal(value, replace(kind, low=scaled, high=scaled))
