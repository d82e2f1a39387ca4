"""SQL values in the calculus: a scalar and the condition under which it is not NULL; their arithmetic.

SQL's scalar functions on translated values become functions of the calculus, with scales and NULLs right.
`Names` gives a translation its variables: fresh names, their types, and lifts that hold values.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from dataclasses import replace as replaced
from decimal import Decimal
from itertools import islice

from orderbook.views.calculus import (
    Apply,
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
    substitute,
    substitute_scalar,
)
from orderbook.views.conditions import (
    FALSE,
    NULL,
    TRUE,
    both,
    choose,
    comparison,
    conjuncts,
    either,
    is_condition,
    not_null,
)
from orderbook.views.intervals import Types, scalar_type, sum_type
from orderbook.views.scalars import reals, texts
from orderbook.views.scalars.user_functions import UserFunction
from orderbook.views.types import DOUBLE, INT64_MAX, Kind, Relation, Type


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
    """`name(args)` of type `kind`; raises KeyError for one that is neither of `FUNCTIONS` nor a user's."""
    return _called(name, args) if isinstance(name, UserFunction) else FUNCTIONS[name](args, kind)


def _called(function: UserFunction, args: Sequence[Value]) -> Value:
    """A call of a user's function: not called where an argument is NULL, NULL where it has no value."""
    valid: Scalar = TRUE
    scalars: list[Scalar] = [Const(function)]
    for kind, value in zip(function.parameters, args, strict=True):
        valid = both(valid, value.valid)
        scalars.append(as_double(value) if kind.kind is Kind.DOUBLE else value.scalar)
    real = function.result.kind is Kind.DOUBLE
    found = choose(valid, Apply("call", tuple(scalars)), Const(0.0 if real else 0))
    return Value(found, function.result, both(valid, Apply("is_finite", (found,))) if real else valid)


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
    finite = Apply("is_finite", (result,))
    defined = _has_power(base, exponent)
    return Value(result, DOUBLE, both(both(args[0].valid, args[1].valid), both(defined, finite)))


def _has_power(base: Scalar, exponent: Scalar) -> Scalar:
    zero = Const(0.0)
    if isinstance(exponent, Const):
        assert isinstance(exponent.value, int | float)
        whole, positive = float(exponent.value).is_integer(), exponent.value >= 0
        if whole:
            return TRUE if positive else comparison("<>", base, zero)
        return comparison(">=" if positive else ">", base, zero)
    of_zero = both(comparison("=", base, zero), comparison(">=", exponent, zero))
    negative = both(comparison("<", base, zero), comparison("=", Apply("trunc", (exponent,)), exponent))
    return either(comparison(">", base, zero), either(of_zero, negative))


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


def _of_texts(op: str) -> Callable[[Sequence[Value], Type], Value]:
    """A function of texts, NULL where an argument is."""

    def apply(args: Sequence[Value], kind: Type) -> Value:
        valid: Scalar = TRUE
        for argument in args:
            valid = both(valid, argument.valid)
        return Value(Apply(op, tuple(a.scalar for a in args)), kind, valid)

    return apply


def _text_of_exact(args: Sequence[Value], kind: Type) -> Value:
    value, scale = args
    places = _constant(scale)
    assert isinstance(places, int)
    scaled_value = cast(value, scaled(places)).scalar
    return Value(Apply("text_of_exact", (scaled_value, scale.scalar)), kind, value.valid)


def _format_double(args: Sequence[Value], kind: Type) -> Value:
    value, form = args
    return Value(Apply("format_double", (as_double(value), form.scalar)), kind, value.valid)


def _said(what: str) -> Callable[[Sequence[Value], Type], Value]:
    """What a text says of a type; NULL where it says nothing, or more than the type holds."""

    def said(args: Sequence[Value], kind: Type) -> Value:
        scalars = tuple(a.scalar for a in args)
        scalar: Scalar = Apply(f"{what}_of_text", scalars)
        valid = both(args[0].valid, Apply("=", (Apply(f"says_{what}", scalars), Const(1))))
        if what == "exact" and (kind.low > -INT64_MAX or kind.high < INT64_MAX):
            valid = both(valid, _within(scalar, kind, None))
            # The bounds prove to sums how large a value may be.
            scalar = Apply("least", (Apply("greatest", (scalar, Const(kind.low))), Const(kind.high)))
        return Value(scalar, kind, valid)

    return said


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


def _finite(op: str) -> Callable[[Scalar], Scalar]:
    return lambda scalar: Apply("is_finite", (Apply(op, (scalar,)),))


def _within_one(op: str) -> Callable[[Scalar], Scalar]:
    return lambda scalar: both(comparison(op, Const(-1.0), scalar), comparison(op, scalar, Const(1.0)))


_DOMAINS: Mapping[str, Callable[[Scalar], Scalar]] = {
    **dict.fromkeys(("asin", "acos"), _within_one("<=")),
    **{name: _finite(name) for name in ("sinh", "cosh")},
    "acosh": lambda scalar: comparison(">=", scalar, Const(1.0)),
    "atanh": _within_one("<"),
}


def _trigonometric(op: str) -> Callable[[Sequence[Value], Type], Value]:
    return _of_double(op, _DOMAINS.get(op, lambda scalar: TRUE))


def _angle(args: Sequence[Value], kind: Type) -> Value:
    y, x = args
    return Value(Apply("atan2", (as_double(y), as_double(x))), DOUBLE, both(y.valid, x.valid))


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
    "exp": _of_double("exp", _finite("exp")),
    "power": _power,
    **{name: _trigonometric(name) for name in reals.TRIGONOMETRY},
    "atan2": _angle,
    "least": _extreme("least"),
    "greatest": _extreme("greatest"),
    "mod": _division("mod"),
    "div": _division("trunc_div"),
    "like": _matching("like"),
    "ilike": _matching("ilike"),
    "date_part": _date_part,
    "date_trunc": _date_trunc,
    "time_bucket": _time_bucket,
    **{name: _of_texts(name) for name in texts.FUNCTIONS},
    "text_of_exact": _text_of_exact,
    "format_double": _format_double,
    **{f"{what}_of_text": _said(what) for what in ("exact", "double", "boolean", "moment", "time")},
}


# The columns in scope: by the identifier of their source, then by name.
Scope = Mapping[str, Mapping[str, Value]]


@dataclass(frozen=True, slots=True)
class NamesMark:
    """What Names had at a moment."""

    types: Mapping[Var, Type]
    shown: Mapping[Var, Type]
    copies: int


@dataclass(frozen=True, slots=True)
class NamesGiven:
    """What Names has given since a moment, and how many fresh names until then."""

    types: Mapping[Var, Type]
    shown: Mapping[Var, Type]
    count: int
    copies: Mapping[tuple[Poly, frozenset[Var]], tuple[Poly, dict[Var, Scalar]]]


@dataclass(slots=True)
class Names:
    """Gives out variables.

    `types` collects the type of every variable, `shown` the SQL types, with their scales, of those that
    stand for columns and grouping expressions.
    """

    relations: Mapping[str, Relation]
    types: Types = field(default_factory=Types)
    shown: Types = field(default_factory=Types)
    _count: int = 0
    _copies: dict[tuple[Poly, frozenset[Var]], tuple[Poly, dict[Var, Scalar]]] = field(default_factory=dict)

    def mark(self) -> NamesMark:
        """What is here now, for `since`."""
        return NamesMark(dict(self.types), dict(self.shown), len(self._copies))

    def since(self, mark: NamesMark) -> NamesGiven:
        """What has come since then."""
        types = {v: kind for v, kind in self.types.items() if mark.types.get(v) is not kind}
        shown = {v: kind for v, kind in self.shown.items() if mark.shown.get(v) is not kind}
        return NamesGiven(types, shown, self._count, dict(islice(self._copies.items(), mark.copies, None)))

    def take(self, given: NamesGiven) -> None:
        """Has what another one has given after the same."""
        self.types |= given.types
        self.shown |= given.shown
        self._count = given.count
        self._copies |= given.copies

    def variable(self, name: str, kind: Type) -> Var:
        variable = Var(name)
        self.types[variable] = kind
        return variable

    def column(self, source: str, name: str, kind: Type) -> Var:
        """The variable of a source's column; another view may have a source of that name and other types."""
        variable, number = Var(f"{source}.{name}"), 1
        while self.types.get(variable, kind) != kind:
            number += 1
            variable = Var(f"{source}#{number}.{name}")
        return self.variable(variable.name, kind)

    def fresh(self, name: str, kind: Type) -> Var:
        """A variable with a name of its own that begins with `name`."""
        self._count += 1
        return self.variable(f"{name}_{self._count}", kind)

    def lift(self, name: str, body: Poly, lifts: list[Factor], kind: Type | None = None) -> Var:
        """The variable that holds the value of `body`; equal bodies share one."""
        for factor in lifts:
            if isinstance(factor, Lift) and factor.body == body:
                return factor.var
        variable = self.fresh(name, kind or sum_type(body, self.types, self.relations))
        lifts.append(Lift(variable, body))
        return variable

    def key(self, name: str, value: Value, lifts: list[Factor], taken: Collection[Var] = ()) -> Var:
        """A variable that holds the value, NULL included: its own where it is one, else a lifted one.

        Variables of `taken` are not given again.
        """
        key = value.scalar
        if not isinstance(key, Var) or value.valid not in (TRUE, not_null(key)) or key in taken:
            body = product(Val(choose(value.valid, value.scalar, NULL)))
            key = self.lift(name, body, lifts, scalar_type(value.scalar, self.types))
        self.show(key, value.type)
        return key

    def show(self, variable: Var, kind: Type) -> None:
        """A variable is shown as a type, but a text as a text where an order compares it by a number."""
        if kind.kind is Kind.TEXT or self.types[variable].kind is not Kind.TEXT:
            self.shown[variable] = kind

    def copy(self, rows: Poly, keep: frozenset[Var]) -> tuple[Poly, dict[Var, Scalar]]:
        """The rows once more, with new names for the variables they bind but those of `keep`.

        Equal rows get equal names, for a copy stands inside a nested polynomial.
        """
        if (rows, keep) not in self._copies:
            number = len(self._copies) + 2
            names: dict[Var, Scalar] = {}
            for variable in sorted(binders(rows) - keep, key=lambda v: v.name):
                source, dot, column = variable.name.rpartition(".")
                names[variable] = Var(f"{source}~{number}.{column}" if dot else f"{column}~{number}")
            self._copies[rows, keep] = substitute(rows, names), names
        return self._copies[rows, keep]

    def identity(self, rows: Poly) -> frozenset[Var] | None:
        """Variables that tell all rows apart: groups and primary keys; None where rows may repeat."""
        if len(rows.terms) != 1:
            return None
        found: set[Scalar] = set()
        for factor in rows.terms[0]:
            match factor:
                case Exists(group, _):
                    found |= set(group)
                case Rel(name, args) if self.relations[name].primary_key:
                    relation = self.relations[name]
                    columns = zip(args, relation.columns, strict=True)
                    found |= {a for a, c in columns if c.name in relation.primary_key}
                case Val(scalar) if is_condition(scalar):
                    continue
                case Cmp() | Lift() | Neighbour():
                    continue
                case _:
                    return None
        return frozenset(v for v in found if isinstance(v, Var))


def binders(rows: Poly) -> frozenset[Var]:
    """The variables that the terms of `rows` bind."""
    return frozenset(v for term in rows.terms for factor in term for v in bound_by(factor))


def own_variable(value: Value, found: Collection[Var]) -> Var | None:
    """The variable of `found` that holds the value, NULL included; None where there is none."""
    variable = value.scalar
    if isinstance(variable, Var) and variable in found and value.valid in (TRUE, not_null(variable)):
        return variable
    return None


def where_valid(value: Value) -> Value:
    """The value as it is in rows where it is not NULL: what CASE or FILTER choose there is decided."""
    known, scalar = {*conjuncts(value.valid)}, value.scalar
    while isinstance(scalar, Apply) and scalar.op == "if" and known.issuperset(conjuncts(scalar.args[0])):
        scalar = scalar.args[1]
    return replace(value, scalar=scalar)


def keyed(key: Var, value: Value) -> Value:
    """The value as it is read from the variable that `Names.key` gave."""
    return Value(key, value.type, TRUE if value.valid == TRUE else not_null(key))


def renamed(value: Value, names: Mapping[Var, Scalar]) -> Value:
    """The value with variables replaced."""
    return replaced(
        value,
        scalar=substitute_scalar(value.scalar, names),
        valid=substitute_scalar(value.valid, names),
    )
