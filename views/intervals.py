"""Types of scalars and polynomials: exact or double, and the interval of an exact value.

The interval of a value function is the least and greatest result, given those of its arguments.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import reduce

from orderbook.views.calculus import (
    CONDITIONS,
    Apply,
    Cmp,
    Const,
    Exists,
    Extreme,
    Factor,
    Lift,
    MapRef,
    Neighbour,
    Poly,
    Rel,
    Scalar,
    Term,
    Val,
    Var,
    variables,
)
from orderbook.views.scalars import calendar, integers, reals, texts
from orderbook.views.scalars.user_functions import UserFunction
from orderbook.views.types import BOOLEAN, DOUBLE, INT128_MAX, TEXT, Kind, Relation, Type, unscaled

Interval = tuple[int, int]


def function_interval(op: str, args: list[Interval]) -> Interval:
    """The smallest interval known to hold `op` of exact arguments; raises KeyError for another function."""
    return _INTERVALS[op](*args)


def calendar_interval(op: str, name: str, moment: Interval) -> Interval:
    """The interval of `date_part` or `date_trunc` of a moment within an interval."""
    if op == "date_trunc":
        start = calendar.UNITS[name]
        return start(moment[0]), start(moment[1])
    part, bounds = calendar.PARTS[name]
    return bounds or (part(moment[0]), part(moment[1]))


def _negative(a: Interval) -> Interval:
    return -a[1], -a[0]


def _sum(a: Interval, b: Interval) -> Interval:
    return a[0] + b[0], a[1] + b[1]


def _difference(a: Interval, b: Interval) -> Interval:
    return a[0] - b[1], a[1] - b[0]


def product(a: Interval, b: Interval) -> Interval:
    corners = [x * y for x in a for y in b]
    return min(corners), max(corners)


def _absolute(a: Interval) -> Interval:
    return max(0, a[0], -a[1]), max(a[1], -a[0])


def _sign(a: Interval) -> Interval:
    return integers.sign(a[0]), integers.sign(a[1])


def _least(*args: Interval) -> Interval:
    return min(a[0] for a in args), min(a[1] for a in args)


def _greatest(*args: Interval) -> Interval:
    return max(a[0] for a in args), max(a[1] for a in args)


def _quotient(divide: Callable[[int, int], int]) -> Callable[[Interval, Interval], Interval]:
    """Of a rounded quotient, which is monotone in each argument while the divisor keeps its sign."""

    def interval(a: Interval, b: Interval) -> Interval:
        divisors = {d for d in (*b, -1, 1) if d and b[0] <= d <= b[1]}
        corners = [divide(x, d) for x in a for d in divisors]
        if b[0] <= 0 <= b[1]:
            corners.append(0)
        return min(corners), max(corners)

    return interval


def _remainder(a: Interval, b: Interval) -> Interval:
    most = max(abs(b[0]), abs(b[1]), 1) - 1
    return max(min(a[0], 0), -most), min(max(a[1], 0), most)


def _any(*args: Interval) -> Interval:
    return -INT128_MAX, INT128_MAX


# What a double leaves of values up to this one fits 64 bits, for a double has 53 bits.
LARGEST_WITH_REST = 2**116


def _rest(a: Interval) -> Interval:
    largest = min(max(-a[0], a[1]), INT128_MAX)
    most = 0 if largest <= 2**53 else 1 << largest.bit_length() - 54
    return -most, most


_INTERVALS: dict[str, Callable[..., Interval]] = {
    "neg": _negative,
    "+": _sum,
    "-": _difference,
    "*": product,
    "abs": _absolute,
    "sign": _sign,
    "least": _least,
    "greatest": _greatest,
    "floor_div": _quotient(integers.floor_div),
    "ceil_div": _quotient(integers.ceil_div),
    "trunc_div": _quotient(integers.trunc_div),
    "round_div": _quotient(integers.round_div),
    "mod": _remainder,
    "exact": _any,
    "rest": _rest,
}


Environment = Mapping[Var, Type]

# Functions whose value is a double whatever their arguments are.
OF_DOUBLES = frozenset(
    (
        *("/", "double", "spread", "third", "fourth"),
        *("sqrt", "ln", "log10", "exp", "power", "floor", "ceil", "trunc", "round"),
        *("atan2", *reals.TRIGONOMETRY),
    )
)


class Types(dict[Var, Type]):
    """Types of variables; a renamed one (`source~3.column`) has the type of the original."""

    def __missing__(self, variable: Var) -> Type:
        original = Var(re.sub(r"~[^.]*", "", variable.name))
        if original == variable:
            raise KeyError(variable)
        return self[original]


def exact(low: int, high: int) -> Type:
    """An exact type without scale, as the calculus knows them."""
    return Type(Kind.INTEGER, 0, low, high)


def scalar_type(scalar: Scalar, types: Environment) -> Type:
    """The type of a scalar; raises KeyError on a variable without one."""
    match scalar:
        case Var():
            return types[scalar]
        case Const(value):
            if isinstance(value, str):
                return TEXT
            return DOUBLE if isinstance(value, float) else exact(value or 0, value or 0)
        case Apply("if", (_, then, Const(None))):
            return scalar_type(then, types)
        case Apply("date_part" | "date_trunc" as op, (Const(str() as name), moment)):
            return _calendar_type(op, name, scalar_type(moment, types))
        case Apply("call", (Const(UserFunction() as function), *_)):
            return function.result
        case Apply(op, args):
            return _apply_type(op, [scalar_type(a, types) for a in args])
    raise TypeError(scalar)


def _apply_type(op: str, args: list[Type]) -> Type:
    if op in OF_DOUBLES:
        return DOUBLE
    if op in texts.FUNCTIONS:
        return text_function_type(op)
    if op in CONDITIONS:
        return BOOLEAN
    if op == "if":
        return join(args[1], args[2])
    if op == "sign" and args[0].kind is Kind.DOUBLE:
        return exact(-1, 1)
    if op != "exact" and any(a.kind is Kind.DOUBLE for a in args):
        return DOUBLE
    try:
        return exact(*function_interval(op, [(a.low, a.high) for a in args]))
    except KeyError:
        raise ValueError(f"unknown function {op}") from None


def text_function_type(op: str) -> Type:
    """The type of what a function of texts gives, or of one that gives a text."""
    own = texts.FUNCTIONS[op]
    return {"t": TEXT, "d": DOUBLE, "i": exact(own.low, own.high)}[own.result]


def _calendar_type(op: str, name: str, moment: Type) -> Type:
    if name == "epoch":
        return DOUBLE
    low, high = calendar_interval(op, name, (moment.low, moment.high))
    return replace(moment, low=low, high=high) if op == "date_trunc" else exact(low, high)


def join(left: Type, right: Type) -> Type:
    """The smallest type that holds the values of both."""
    if left.kind is Kind.DOUBLE or right.kind is Kind.DOUBLE:
        return DOUBLE
    kind = left.kind if left.kind is right.kind else Kind.INTEGER
    return Type(kind, 0, min(left.low, right.low), max(left.high, right.high))


def multiply(left: Type, right: Type) -> Type:
    if left.kind is Kind.DOUBLE or right.kind is Kind.DOUBLE:
        return DOUBLE
    return exact(*product((left.low, left.high), (right.low, right.high)))


# Groups are counted one by one, which takes a machine two years for so many.
MOST_GROUPS = 2**56


def factor_value_type(
    factor: Factor, types: Environment, relations: Mapping[str, Relation], maps: Mapping[str, Type]
) -> Type:
    """The type of a factor's multiplicity, summed over the variables it binds."""
    match factor:
        case Rel(name, _):
            return exact(0, relations[name].max_rows)
        case MapRef(name, _):
            return maps[name]
        case Val(scalar):
            return scalar_type(scalar, types)
        case Cmp() | Lift() | Extreme() | Neighbour():
            return exact(0, 1)
        case Exists(_, body):
            rows = sum(_rows(t, relations) for t in body.terms)
            return exact(0, min(max(rows, 1), MOST_GROUPS))
    raise TypeError(factor)


def _rows(term: Term, relations: Mapping[str, Relation]) -> int:
    rows = 1
    for factor in term:
        if isinstance(factor, Rel):
            rows *= relations[factor.name].max_rows
        elif isinstance(factor, Exists):
            rows *= sum(_rows(t, relations) for t in factor.body.terms)
    return rows


def row_types(poly: Poly, relations: Mapping[str, Relation]) -> dict[Var, Type]:
    """Types of the variables that every term binds to columns or scalars of them.

    They may have been unified with others of narrower types.
    """
    terms = [_bound_types(term, relations) for term in poly.terms]
    found: dict[Var, Type] = {}
    for variable in terms[0] if terms else ():
        kinds = [bound[variable] for bound in terms if variable in bound]
        known = [kind for kind in kinds if kind is not None]
        if known and len(kinds) == len(terms):
            found[variable] = reduce(join, known)
    return found


def _bound_types(term: Term, relations: Mapping[str, Relation]) -> dict[Var, Type | None]:
    """Types of the variables that a term binds; None for one that is always NULL."""
    bound: dict[Var, Type | None] = {}
    for factor in term:
        if isinstance(factor, Exists):
            inner = row_types(factor.body, relations)
            bound |= {v: inner[v] for v in factor.group if v in inner}
        elif isinstance(factor, Extreme):
            inner = row_types(factor.body, relations)
            bound |= {factor.var: inner[factor.value]} if factor.value in inner else {}
    for factor in term:
        if isinstance(factor, Rel):
            columns = zip(factor.args, relations[factor.name].columns, strict=True)
            bound |= {a: unscaled(c.type) for a, c in columns if isinstance(a, Var)}
    for factor in term:
        match factor:
            case Lift(variable, Poly(())) if variable not in bound:
                bound[variable] = exact(0, 0)
            case Lift(variable, Poly((values,))) if variable not in bound:
                known = {v: kind for v, kind in bound.items() if kind is not None}
                scalars = [f.scalar for f in values if isinstance(f, Val)]
                if scalars == [Const(None)]:
                    bound[variable] = None
                elif len(scalars) == len(values) and all(v in known for v in variables(values)):
                    # A constant 1 is a term without factors.
                    kinds = [scalar_type(s, known) for s in scalars] or [exact(1, 1)]
                    bound[variable] = reduce(multiply, kinds)
    return bound


def sum_type(poly: Poly, types: Environment, relations: Mapping[str, Relation]) -> Type:
    """The type of a polynomial over relations, summed over all its rows."""
    total = exact(0, 0)
    for term in poly.terms:
        value = exact(1, 1)
        for factor in term:
            value = multiply(value, factor_value_type(factor, types, relations, {}))
        total = _apply_type("+", [total, value])
    return total
