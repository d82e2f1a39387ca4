"""SQL's scalar functions on translated values: functions of the calculus, with scales and NULLs right."""

from collections.abc import Callable, Mapping, Sequence

from views.compiler.calculus import Apply, Const, Scalar
from views.compiler.conditions import FALSE, both, choose, comparison, either
from views.compiler.types import DOUBLE, Kind, Type

from .values import Value, aligned, as_double, cast, divided, times

SECOND = 1_000_000_000
# Units of time of one length in ns, and a moment at which one begins: weeks begin on Monday.
_UNITS = {
    "microsecond": (1_000, 0),
    "millisecond": (1_000_000, 0),
    "second": (SECOND, 0),
    "minute": (60 * SECOND, 0),
    "hour": (3_600 * SECOND, 0),
    "day": (86_400 * SECOND, 0),
    "week": (7 * 86_400 * SECOND, 4 * 86_400 * SECOND),
}
# time_bucket counts its buckets from 2000-01-03, as DuckDB does.
_BUCKETS_BEGIN = 946_857_600 * SECOND


def function(name: str, args: Sequence[Value], kind: Type) -> Value:
    """`name(args)` of type `kind`; raises KeyError for a function that is not one of `FUNCTIONS`."""
    return FUNCTIONS[name](args, kind)


def _absolute(args: Sequence[Value], kind: Type) -> Value:
    (value,) = args
    return cast(Value(Apply("abs", (value.scalar,)), value.type, value.valid), kind)


def _sign(args: Sequence[Value], kind: Type) -> Value:
    (value,) = args
    return Value(Apply("sign", (value.scalar,)), kind, value.valid)


def _rounding(op: str) -> Callable[[Sequence[Value], Type], Value]:
    """floor, ceil, trunc or round, the last two to a constant number of digits."""

    def rounded(args: Sequence[Value], kind: Type) -> Value:
        value, digits = args[0], _constant(args[1]) if len(args) > 1 else 0
        assert isinstance(digits, int)
        if value.type.kind is Kind.DOUBLE:
            scalars = (value.scalar, Const(digits)) if op == "round" else (value.scalar,)
            return Value(Apply(op, scalars), DOUBLE, value.valid)
        scalar = divided(f"{op}_div", value.scalar, 10 ** max(value.type.scale - digits, 0))
        scale = min(value.type.scale, digits)
        if scale < 0:
            scalar, scale = times(scalar, Const(10**-scale)), 0
        return cast(Value(scalar, Type(Kind.DECIMAL, scale), value.valid), kind)

    return rounded


def _of_double(op: str, domain: Callable[[Scalar], Scalar]) -> Callable[[Sequence[Value], Type], Value]:
    """A function of one double that is NULL outside its domain."""

    def apply(args: Sequence[Value], kind: Type) -> Value:
        scalar = as_double(args[0])
        return Value(Apply(op, (scalar,)), DOUBLE, both(args[0].valid, domain(scalar)))

    return apply


def _power(args: Sequence[Value], kind: Type) -> Value:
    base, exponent = as_double(args[0]), as_double(args[1])
    result = Apply("power", (base, exponent))
    whole = comparison("=", Apply("trunc", (exponent,)), exponent)
    defined = either(
        comparison(">", base, Const(0.0)),
        either(
            both(comparison("=", base, Const(0.0)), comparison(">=", exponent, Const(0.0))),
            both(comparison("<", base, Const(0.0)), whole),
        ),
    )
    finite = Apply("is_finite", (result,))
    return Value(result, DOUBLE, both(both(args[0].valid, args[1].valid), both(defined, finite)))


def _extreme(op: str) -> Callable[[Sequence[Value], Type], Value]:
    """least or greatest, which skip NULL."""

    def extreme(args: Sequence[Value], kind: Type) -> Value:
        result, *others = (cast(a, kind) for a in args)
        for other in others:
            either_one = choose(result.valid, result.scalar, other.scalar)
            of_both = Apply(op, (result.scalar, other.scalar))
            scalar = choose(both(result.valid, other.valid), of_both, either_one)
            result = Value(scalar, kind, either(result.valid, other.valid))
        return result

    return extreme


def _division(op: str) -> Callable[[Sequence[Value], Type], Value]:
    """The integer quotient or the remainder, truncated; NULL where the divisor is 0."""

    def divide(args: Sequence[Value], kind: Type) -> Value:
        left, right = aligned(*args)
        valid = both(both(args[0].valid, args[1].valid), comparison("<>", right, Const(0)))
        scale = 0 if op == "trunc_div" else max(a.type.scale for a in args)
        return cast(Value(Apply(op, (left, right)), Type(Kind.DECIMAL, scale), valid), kind)

    return divide


def _matching(op: str) -> Callable[[Sequence[Value], Type], Value]:
    def match(args: Sequence[Value], kind: Type) -> Value:
        text, pattern = args
        if pattern.valid == FALSE:
            return Value(FALSE, kind, FALSE)
        return Value(Apply(op, (text.scalar, pattern.scalar)), kind, both(text.valid, pattern.valid))

    return match


def _date_part(args: Sequence[Value], kind: Type) -> Value:
    part, moment = args
    return Value(Apply("date_part", (part.scalar, moment.scalar)), kind, moment.valid)


def _date_trunc(args: Sequence[Value], kind: Type) -> Value:
    unit, moment = _constant(args[0]), args[1]
    if unit in _UNITS:
        return Value(_bucket(moment.scalar, *_UNITS[str(unit)]), kind, moment.valid)
    return Value(Apply("date_trunc", (args[0].scalar, moment.scalar)), kind, moment.valid)


def _time_bucket(args: Sequence[Value], kind: Type) -> Value:
    width, moment = _constant(args[0]), args[1]
    assert isinstance(width, int)
    return Value(_bucket(moment.scalar, width, _BUCKETS_BEGIN), kind, moment.valid)


def _bucket(moment: Scalar, width: int, origin: int) -> Scalar:
    """The begin of the interval of `width` ns that holds the moment; one begins at `origin`."""
    offset = origin % width
    since = Apply("-", (moment, Const(offset))) if offset else moment
    begin = times(divided("floor_div", since, width), Const(width))
    return Apply("+", (begin, Const(offset))) if offset else begin


def _constant(value: Value) -> int | float | str | None:
    if not isinstance(value.scalar, Const):
        raise TypeError(f"not a constant: {value.scalar}")
    return value.scalar.value


def _not_negative(scalar: Scalar) -> Scalar:
    return comparison(">=", scalar, Const(0.0))


def _positive(scalar: Scalar) -> Scalar:
    return comparison(">", scalar, Const(0.0))


def _finite_exponential(scalar: Scalar) -> Scalar:
    return Apply("is_finite", (Apply("exp", (scalar,)),))


FUNCTIONS: Mapping[str, Callable[[Sequence[Value], Type], Value]] = {
    "abs": _absolute,
    "sign": _sign,
    "floor": _rounding("floor"),
    "ceil": _rounding("ceil"),
    "trunc": _rounding("trunc"),
    "round": _rounding("round"),
    "sqrt": _of_double("sqrt", _not_negative),
    "ln": _of_double("ln", _positive),
    "log10": _of_double("log10", _positive),
    "exp": _of_double("exp", _finite_exponential),
    "power": _power,
    "least": _extreme("least"),
    "greatest": _extreme("greatest"),
    "mod": _division("mod"),
    "div": _division("trunc_div"),
    "like": _matching("like"),
    "ilike": _matching("ilike"),
    "date_part": _date_part,
    "date_trunc": _date_trunc,
    "time_bucket": _time_bucket,
}
