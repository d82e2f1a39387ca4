"""Scalar functions of numbers and texts: names, arguments, and the types of their results.

Exact types stay exact. What has no value (the root of a negative number, a remainder by 0, a result
that no double holds) is NULL.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import pi

from orderbook.views.binding.bound import Expression, Function, Literal, ScalarSubquery, has
from orderbook.views.binding.text_functions import condition
from orderbook.views.binding.typed_nodes import (
    TypingError,
    adopt,
    arithmetic,
    at_scale,
    case,
    comparison,
    is_null,
    number,
    union,
)
from orderbook.views.scalars import integers, reals
from orderbook.views.types import BOOLEAN, DOUBLE, TEXT, Kind, Type

# Rounding to more places than this says nothing about a number that can be maintained.
_MAX_PLACES = 100
Rule = Callable[[str, list[Expression]], Expression]


@dataclass(frozen=True, slots=True)
class ScalarFunction:
    """A function: the least and the most arguments it takes (no most: None), and how it is bound."""

    least: int
    most: int | None
    rule: Rule


def call(name: str, arguments: Sequence[Expression]) -> Expression:
    """The function applied to bound arguments, of a number it takes.

    Raises TypingError for arguments of a type that it does not take.
    """
    return FUNCTIONS[name].rule(name, list(arguments))


def _numbers(name: str, args: Sequence[Expression]) -> None:
    for argument in args:
        if not argument.type.numeric:
            raise TypingError(
                f"{name.upper()} of {argument.type.kind.value} is not supported; it takes numbers"
            )


def _apply(name: str, args: Sequence[Expression], kind: Type, nullable: bool = False) -> Function:
    return Function(name, tuple(args), kind, nullable or any(a.nullable for a in args))


def _abs(name: str, args: list[Expression]) -> Expression:
    _numbers(name, args)
    kind = args[0].type
    if not kind.exact:
        return _apply(name, args, DOUBLE)
    if kind.low >= 0:
        return args[0]
    low = max(0, -kind.high)
    return _apply(name, args, Type(kind.kind, kind.scale, low, max(-kind.low, kind.high)))


def _sign(name: str, args: list[Expression]) -> Expression:
    """-1, 0 or 1."""
    _numbers(name, args)
    kind = args[0].type
    low, high = (integers.sign(kind.low), integers.sign(kind.high)) if kind.exact else (-1, 1)
    return _apply(name, args, Type(Kind.INTEGER, 0, low, high))


def _whole(name: str, args: list[Expression]) -> Expression:
    """floor, ceil, trunc: an INTEGER of an exact number."""
    _numbers(name, args)
    kind = args[0].type
    if not kind.exact:
        return _apply(name, args, DOUBLE)
    if kind.kind is Kind.INTEGER:
        return args[0]
    divide = {"floor": integers.floor_div, "ceil": integers.ceil_div, "trunc": integers.trunc_div}[name]
    low, high = (divide(bound, 10**kind.scale) for bound in (kind.low, kind.high))
    return _apply(name, args, Type(Kind.INTEGER, 0, low, high))


def _round(name: str, args: list[Expression]) -> Expression:
    """round(x, places); the result of an exact number has at most so many places."""
    _numbers(name, args[:1])
    places = args[1] if len(args) > 1 else number(0)
    if not isinstance(places, Literal) or type(places.value) is not int or abs(places.value) > _MAX_PLACES:
        raise TypingError(
            f"ROUND to places that are not an integer constant up to {_MAX_PLACES} is not supported"
        )
    kind = args[0].type
    if not kind.exact:
        return _apply(name, (args[0], places), DOUBLE)
    if places.value >= kind.scale:
        return args[0]
    scale = max(0, places.value)
    unit = 10 ** (kind.scale - places.value)
    low, high = (integers.round_div(b, unit) * 10 ** (scale - places.value) for b in (kind.low, kind.high))
    rounded = Type(Kind.DECIMAL if scale else Kind.INTEGER, scale, low, high)
    return _apply(name, (args[0], places), rounded)


def _root_or_log(name: str, args: list[Expression]) -> Expression:
    """sqrt of a negative number and logarithms of what is not positive are NULL."""
    _numbers(name, args)
    kind = args[0].type
    inside = kind.exact and kind.low >= (0 if name == "sqrt" else 1)
    return _apply(name, args, DOUBLE, nullable=not inside)


def _power(name: str, args: list[Expression]) -> Expression:
    """exp and power, NULL where no finite double is the result."""
    _numbers(name, args)
    return _apply(name, args, DOUBLE, nullable=True)


# Where arguments need not be looked at: the value is always a double.
_ALWAYS = ("sin", "cos", "tan", "atan", "tanh", "asinh", "atan2")


def _trigonometric(name: str, args: list[Expression]) -> Expression:
    """NULL outside the domain, and where no finite double is the result."""
    _numbers(name, args)
    return _apply(name, args, DOUBLE, nullable=name not in _ALWAYS)


def _cotangent(name: str, args: list[Expression]) -> Expression:
    return arithmetic("/", number(1), call("tan", args))


def _in_unit(factor: float) -> Rule:
    """An angle in another unit: of half a turn 180 are, or pi."""

    def rule(name: str, args: list[Expression]) -> Expression:
        _numbers(name, args)
        return arithmetic("*", args[0], Literal(factor, DOUBLE))

    return rule


def _log(name: str, args: list[Expression]) -> Expression:
    """log(x) is the logarithm to base 10, log(base, x) that to any; NULL for base 1."""
    if len(args) == 1 or args[0] == number(10):
        return call("log10", args[-1:])
    base, value = (call("log10", [a]) for a in args)
    return arithmetic("/", value, base)


def _extreme(name: str, args: list[Expression]) -> Expression:
    """least and greatest skip NULL: the bound of an argument that is never NULL holds for the result."""
    args = adopt(args)
    kind = union(name.upper(), (a.type for a in args))
    if len(args) == 1:
        return args[0]
    if kind.kind is Kind.TEXT:
        return _extreme_text(">=" if name == "greatest" else "<=", args)
    nullable = all(a.nullable for a in args)
    if not kind.exact:
        return Function(name, tuple(args), kind, nullable)
    bounds = [(*at_scale(a.type, kind.scale), a.nullable) for a in args]
    low, high = kind.low, kind.high
    if name == "least":
        high = min((h for _, h, may_skip in bounds if not may_skip), default=high)
    else:
        low = max((lo for lo, _, may_skip in bounds if not may_skip), default=low)
    return Function(name, tuple(args), Type(kind.kind, kind.scale, low, high), nullable)


def _extreme_text(op: str, args: Sequence[Expression]) -> Expression:
    result, *others = args
    for other in others:
        if has(result, ScalarSubquery) or has(other, ScalarSubquery):
            raise TypingError("GREATEST and LEAST of a subquery of TEXT are not supported; derive it first")
        absent = [(is_null(v), o) for v, o in ((result, other), (other, result)) if v.nullable]
        result = case([*absent, (comparison(op, result, other), result)], other)
    return result


def _mod(name: str, args: list[Expression]) -> Expression:
    """The remainder, with the sign of the first; NULL by 0."""
    args = adopt(args)
    _numbers(name, args)
    if not all(a.type.exact for a in args):
        raise TypingError("% of DOUBLE is not supported; cast to DECIMAL")
    scale = max(a.type.scale for a in args)
    (low, high), divisor = (at_scale(a.type, scale) for a in args)
    most = max(0, max(map(abs, divisor)) - 1)
    kind = Kind.DECIMAL if Kind.DECIMAL in (args[0].type.kind, args[1].type.kind) else Kind.INTEGER
    rest = Type(kind, scale, max(min(low, 0), -most), min(max(high, 0), most))
    return _apply(name, args, rest, nullable=divisor[0] <= 0 <= divisor[1])


def _div(name: str, args: list[Expression]) -> Expression:
    """The quotient of integers without its fraction; NULL by 0."""
    args = adopt(args)
    for argument in args:
        if argument.type.kind is not Kind.INTEGER:
            raise TypingError(
                f"integer division of {argument.type.kind.value} is not supported; write TRUNC(x / y)"
            )
    low, high = args[1].type.low, args[1].type.high
    divisors = [d for d in {low, high, -1, 1} if low <= d <= high and d != 0]
    corners = [integers.trunc_div(n, d) for n in (args[0].type.low, args[0].type.high) for d in divisors] or [
        0
    ]
    kind = Type(Kind.INTEGER, 0, min(corners), max(corners))
    return _apply(name, args, kind, nullable=low <= 0 <= high)


def _matches(name: str, args: list[Expression]) -> Expression:
    """like and ilike of a TEXT and a constant pattern: % is any text, _ any character."""
    text, pattern = adopt(args, TEXT)
    for argument in (text, pattern):
        if argument.type.kind is not Kind.TEXT:
            raise TypingError(f"{name.upper()} of {argument.type.kind.value} is not supported; it takes TEXT")
    if not isinstance(pattern, Literal):
        raise TypingError(f"{name.upper()} with a pattern that is not constant is not supported")
    return _apply(name, (text, pattern), BOOLEAN)


def containing(before: str, after: str, function: str) -> Rule:
    """The rule of a function that finds a TEXT between any texts: as LIKE where it is constant."""

    def rule(name: str, args: list[Expression]) -> Expression:
        part = adopt(args, TEXT)[1]
        if not isinstance(part, Literal) or not isinstance(part.value, str | None):
            return condition(function, args)
        if part.value is None:
            return _matches("like", [args[0], part])
        if "%" in part.value or "_" in part.value:
            return condition(function, args)
        return _matches("like", [args[0], Literal(before + part.value + after, TEXT)])

    return rule


FUNCTIONS: dict[str, ScalarFunction] = {
    "abs": ScalarFunction(1, 1, _abs),
    "sign": ScalarFunction(1, 1, _sign),
    "floor": ScalarFunction(1, 1, _whole),
    "ceil": ScalarFunction(1, 1, _whole),
    "trunc": ScalarFunction(1, 1, _whole),
    "round": ScalarFunction(1, 2, _round),
    "sqrt": ScalarFunction(1, 1, _root_or_log),
    "ln": ScalarFunction(1, 1, _root_or_log),
    "log10": ScalarFunction(1, 1, _root_or_log),
    "log": ScalarFunction(1, 2, _log),
    "exp": ScalarFunction(1, 1, _power),
    "power": ScalarFunction(2, 2, _power),
    **dict.fromkeys(reals.TRIGONOMETRY, ScalarFunction(1, 1, _trigonometric)),
    "atan2": ScalarFunction(2, 2, _trigonometric),
    "cot": ScalarFunction(1, 1, _cotangent),
    "degrees": ScalarFunction(1, 1, _in_unit(180 / pi)),
    "radians": ScalarFunction(1, 1, _in_unit(pi / 180)),
    "least": ScalarFunction(1, None, _extreme),
    "greatest": ScalarFunction(1, None, _extreme),
    "mod": ScalarFunction(2, 2, _mod),
    "div": ScalarFunction(2, 2, _div),
    "like": ScalarFunction(2, 2, _matches),
    "ilike": ScalarFunction(2, 2, _matches),
    "starts_with": ScalarFunction(2, 2, containing("", "%", "has_prefix")),
    "ends_with": ScalarFunction(2, 2, containing("%", "", "has_suffix")),
    "contains": ScalarFunction(2, 2, containing("%", "%", "contains")),
}
