"""Types of scalars and polynomials: exact or double, and the interval of an exact value."""

import re
from collections.abc import Mapping

from .calculus import Apply, Cmp, Const, Exists, Factor, Lift, MapRef, Poly, Rel, Scalar, Term, Val, Var
from .types import BOOLEAN, DOUBLE, TEXT, Kind, Relation, Type, unscaled

Environment = Mapping[Var, Type]


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
        case Apply(op, args):
            return _apply_type(op, [scalar_type(a, types) for a in args])
    raise TypeError(scalar)


def _apply_type(op: str, args: list[Type]) -> Type:
    if op in ("/", "double"):
        return DOUBLE
    if op in ("=", "<>", "<", "<=", ">", ">=", "and", "or", "not", "is_null"):
        return BOOLEAN
    if op == "if":
        return join(args[1], args[2])
    if any(a.kind is Kind.DOUBLE for a in args):
        return DOUBLE
    if op == "neg":
        return exact(-args[0].high, -args[0].low)
    left, right = args
    if op == "+":
        return exact(left.low + right.low, left.high + right.high)
    if op == "-":
        return exact(left.low - right.high, left.high - right.low)
    if op == "*":
        return multiply(left, right)
    raise ValueError(f"unknown function {op}")


def join(left: Type, right: Type) -> Type:
    """The smallest type that holds the values of both."""
    if left.kind is Kind.DOUBLE or right.kind is Kind.DOUBLE:
        return DOUBLE
    kind = left.kind if left.kind is right.kind else Kind.INTEGER
    return Type(kind, 0, min(left.low, right.low), max(left.high, right.high))


def multiply(left: Type, right: Type) -> Type:
    if left.kind is Kind.DOUBLE or right.kind is Kind.DOUBLE:
        return DOUBLE
    corners = [a * b for a in (left.low, left.high) for b in (right.low, right.high)]
    return exact(min(corners), max(corners))


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
        case Cmp() | Lift():
            return exact(0, 1)
        case Exists(_, body):
            rows = max((_rows(t, relations) for t in body.terms), default=0)
            return exact(0, max(rows, 1))
    raise TypeError(factor)


def _rows(term: Term, relations: Mapping[str, Relation]) -> int:
    rows = 1
    for factor in term:
        if isinstance(factor, Rel):
            rows *= relations[factor.name].max_rows
        elif isinstance(factor, Exists):
            rows *= max((_rows(t, relations) for t in factor.body.terms), default=0)
    return rows


def row_types(poly: Poly, relations: Mapping[str, Relation]) -> dict[Var, Type]:
    """Types of the variables that rows bind, which may have been unified with others of narrower types."""
    found: dict[Var, Type] = {}
    for term in poly.terms:
        for variable, kind in _bound_types(term, relations).items():
            found[variable] = join(found[variable], kind) if variable in found else kind
    return found


def _bound_types(term: Term, relations: Mapping[str, Relation]) -> dict[Var, Type]:
    bound: dict[Var, Type] = {}
    for factor in term:
        if isinstance(factor, Exists):
            inner = row_types(factor.body, relations)
            bound |= {v: inner[v] for v in factor.group if v in inner}
    for factor in term:
        if isinstance(factor, Rel):
            columns = zip(factor.args, relations[factor.name].columns, strict=True)
            bound |= {a: unscaled(c.type) for a, c in columns if isinstance(a, Var)}
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
