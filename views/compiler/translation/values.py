"""SQL values in the calculus: a scalar and the condition under which it is not NULL; their arithmetic."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

from views.compiler.calculus import Apply, Const, Scalar
from views.compiler.conditions import FALSE, TRUE, both, choose, comparison, either
from views.compiler.types import DOUBLE, Kind, Type


@dataclass(frozen=True, slots=True)
class Value:
    """A translated SQL value: `scalar` where `valid` holds, NULL elsewhere.

    `zero_if_null` says that the scalar is 0 wherever the value is NULL (the sum of nothing).
    """

    scalar: Scalar
    type: Type
    valid: Scalar = TRUE
    zero_if_null: bool = False


def literal(value: object, kind: Type) -> Value:
    if value is None:
        return Value(Const(0), kind, FALSE, zero_if_null=True)
    if isinstance(value, bool):
        return Value(Const(int(value)), kind)
    if isinstance(value, Decimal):
        return Value(Const(int(value.scaleb(kind.scale))), kind)
    if isinstance(value, int | float | str):
        return Value(Const(value), kind)
    raise TypeError(value)


def rescaled(value: Value, scale: int) -> Scalar:
    """The scaled integer at a scale that is not below the value's own."""
    factor = 10 ** (scale - value.type.scale)
    return value.scalar if factor == 1 else times(value.scalar, Const(factor))


def times(left: Scalar, right: Scalar) -> Scalar:
    if isinstance(left, Const) and isinstance(right, Const):
        return Const(left.value * right.value)  # type: ignore[operator]
    for one, other in ((left, right), (right, left)):
        if one == Const(1):
            return other
    if isinstance(right, Const):
        left, right = right, left
    if (
        isinstance(left, Const)
        and isinstance(right, Apply)
        and right.op == "*"
        and isinstance(right.args[0], Const)
    ):
        return times(Const(left.value * right.args[0].value), right.args[1])  # type: ignore[operator]
    return Apply("*", (left, right))


def as_double(value: Value) -> Scalar:
    if value.type.kind is Kind.DOUBLE:
        return value.scalar
    if isinstance(value.scalar, Const) and isinstance(value.scalar.value, int):
        return Const(value.scalar.value / 10**value.type.scale)
    return Apply("double", (value.scalar, Const(value.type.scale)))


def aligned(left: Value, right: Value) -> tuple[Scalar, Scalar]:
    """Both scalars at one scale, or both double."""
    if Kind.DOUBLE in (left.type.kind, right.type.kind):
        return as_double(left), as_double(right)
    scale = max(left.type.scale, right.type.scale)
    return rescaled(left, scale), rescaled(right, scale)


def arithmetic(op: str, left: Value, right: Value) -> Value:
    valid = both(left.valid, right.valid)
    if op == "/":
        divisor = as_double(right)
        if right.zero_if_null:
            # A divisor that is 0 where it is NULL is there wherever it is not 0.
            valid = TRUE if left.valid == right.valid else left.valid
        valid = both(valid, comparison("<>", divisor, Const(0.0)))
        return Value(Apply("/", (as_double(left), divisor)), DOUBLE, valid)
    if Kind.DOUBLE in (left.type.kind, right.type.kind):
        return Value(Apply(op, (as_double(left), as_double(right))), DOUBLE, valid)
    if op == "*":
        scale = left.type.scale + right.type.scale
        zero = all(v.zero_if_null or v.valid == TRUE for v in (left, right))
        return Value(times(left.scalar, right.scalar), scaled(scale), valid, zero_if_null=zero)
    scale = max(left.type.scale, right.type.scale)
    a, b = aligned(left, right)
    if isinstance(a, Const) and isinstance(b, Const):
        folded = a.value + b.value if op == "+" else a.value - b.value  # type: ignore[operator]
        return Value(Const(folded), scaled(scale), valid)
    return Value(Apply(op, (a, b)), scaled(scale), valid)


def scaled(scale: int) -> Type:
    return Type(Kind.DECIMAL if scale else Kind.INTEGER, scale)


def coalesce(values: Sequence[Value], kind: Type) -> Value:
    """COALESCE; `COALESCE(SUM(x), 0)` is the plain sum, whose value is 0 for nothing."""
    result = cast(values[-1], kind)
    for value in reversed(values[:-1]):
        value = cast(value, kind)
        if value.zero_if_null and result.scalar == Const(0 if kind.exact else 0.0) and result.valid == TRUE:
            result = replace(value, valid=TRUE, zero_if_null=False)
            continue
        result = Value(
            choose(value.valid, value.scalar, result.scalar), kind, either(value.valid, result.valid)
        )
    return result


def cast(value: Value, kind: Type) -> Value:
    """The value with the type and scale of `kind`; digits that the scale has no place for are rounded."""
    if kind.kind is Kind.DOUBLE:
        return replace(value, scalar=as_double(value), type=kind)
    if not kind.numeric or not value.type.numeric:
        return replace(value, type=kind)
    if value.type.scale > kind.scale:
        scalar = divided("round_div", value.scalar, 10 ** (value.type.scale - kind.scale))
        return replace(value, scalar=scalar, type=kind)
    return replace(value, scalar=rescaled(value, kind.scale), type=kind)


def divided(op: str, scalar: Scalar, divisor: int) -> Scalar:
    """The quotient by a positive constant, rounded as `op` says."""
    return scalar if divisor == 1 else Apply(op, (scalar, Const(divisor)))


def converted(value: Value, kind: Type, interval: Type) -> Value:
    """CAST to `kind` of a value that lies in `interval`; NULL where it does not fit."""
    if kind.kind is Kind.BOOLEAN and value.type.numeric:
        zero = Const(0 if value.type.exact else 0.0)
        return Value(comparison("<>", value.scalar, zero), kind, value.valid)
    if value.type.kind is Kind.DOUBLE and kind.exact:
        # Without a scale DuckDB rounds halves to even for integers, and away from zero for decimals.
        away = kind.kind is Kind.DECIMAL and not kind.scale
        nearest = Apply("round", (value.scalar, Const(0))) if away else value.scalar
        scalar: Scalar = Apply("exact", (nearest, Const(kind.scale)))
        # Compared as a double: what 128 bits do not hold has no scaled integer.
        size = Apply("abs", (value.scalar,))
        fits = comparison("<", size, Const((kind.high + 1) / 10**kind.scale))
        valid = both(value.valid, both(fits, _within(scalar, kind, None)))
        # What the type does not hold is NULL; the bounds prove to sums how large a value may be.
        bounded = Apply("least", (Apply("greatest", (scalar, Const(kind.low))), Const(kind.high)))
        return Value(bounded, kind, valid)
    result = cast(value, kind)
    if not (kind.numeric and kind.exact and value.type.exact):
        return result
    up, down = 10 ** max(kind.scale - value.type.scale, 0), 10 ** max(value.type.scale - kind.scale, 0)
    known = interval.low * up // down, -(-interval.high * up // down)
    return replace(result, valid=both(result.valid, _within(result.scalar, kind, known)))


def _within(scalar: Scalar, kind: Type, known: tuple[int, int] | None) -> Scalar:
    """That the scalar lies in the interval of `kind`; decided where what is known of it says so."""
    low = TRUE if known and known[0] >= kind.low else comparison(">=", scalar, Const(kind.low))
    high = TRUE if known and known[1] <= kind.high else comparison("<=", scalar, Const(kind.high))
    return both(low, high)
