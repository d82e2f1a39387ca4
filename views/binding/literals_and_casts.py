"""Literals and conversions: numbers, strings, parameters, intervals, and CAST to a type.

CAST, `::`, TRY_CAST, and literals with a type: a value that the type does not hold is NULL, in CAST as in
TRY_CAST. A DECIMAL is rounded to fewer places half away from zero, as is a DOUBLE to a DECIMAL; to an INTEGER
its halves go to even. A DATE is the TIMESTAMP of its midnight, and a TIMESTAMP as an INTEGER is its ns
since 1970 UTC.
"""

from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from math import isinf
from typing import Any

from sqlglot import exp

from orderbook.views import types
from orderbook.views.binding import typed_nodes
from orderbook.views.binding.bound import Cast, Expression, Function, Literal
from orderbook.views.binding.scope import Binder, Handler, Scope, nearest, refusal
from orderbook.views.binding.text_functions import from_text, to_text
from orderbook.views.binding.typed_nodes import (
    TypingError,
    amounts,
    arithmetic,
    comparison,
    constant,
    interval_of,
    is_null_literal,
    negative,
    null,
    time_of_day,
    timestamp,
    timestamp_literal,
)
from orderbook.views.scalars import integers
from orderbook.views.types import BOOLEAN, DOUBLE, INT128_MAX, TEXT, TIMESTAMP, Kind, Type


def _literal(binder: Binder, node: exp.Literal, scope: Scope) -> Literal:
    return Literal(node.name, TEXT) if node.is_string else _number(binder, node)


def _number(binder: Binder, node: exp.Literal) -> Literal:
    """Digits with or without a point are exact; with an exponent DOUBLE, as in standard SQL."""
    digits = node.name
    try:
        if "e" in digits.lower():
            value = float(digits)
            if isinf(value):
                raise binder.text.error(f"{digits[:40]} is beyond the range of DOUBLE", node)
            return Literal(value, DOUBLE)
        return typed_nodes.number(Decimal(digits) if "." in digits else int(digits))
    except (ValueError, InvalidOperation):
        raise binder.text.error(f"{digits[:40]} is not a number that can be read", node) from None


def _null(binder: Binder, node: exp.Null, scope: Scope) -> Literal:
    return null()


def _boolean(binder: Binder, node: exp.Boolean, scope: Scope) -> Literal:
    return Literal(bool(node.this), BOOLEAN)


def _parameter(binder: Binder, node: exp.Placeholder, scope: Scope) -> Literal:
    name = node.name
    if not name:
        raise binder.text.error("? parameters are not supported; name them, :k", node)
    if name not in binder.parameters:
        close = nearest(name, binder.parameters)
        where = f'set it under [parameters] in the configuration or with params={{"{name}": ...}}'
        raise binder.text.error(f"parameter :{name} has no value; {where}{close}", node)
    try:
        return constant(binder.parameters[name])
    except TypingError as error:
        raise binder.text.error(f"parameter :{name}: {error}", node) from None


def _interval(binder: Binder, node: exp.Interval, scope: Scope) -> Expression:
    """An INTERVAL is its length, an INTEGER of ns; INTERVAL (x) MINUTE so many of a unit."""
    unit = amounts([("1", node.args["unit"].name)]) if isinstance(node.args.get("unit"), exp.Var) else None
    if unit and not unit[1] and not isinstance(node.this, exp.Literal | exp.Placeholder):
        count = binder.value(node.this, scope)
        if not isinstance(count, Literal):
            return arithmetic("*", count, typed_nodes.number(unit[0]))
    length, months = span(binder, node, scope)
    if months:
        instead = "use days, or DATE_TRUNC and TIME_BUCKET for calendar units"
        raise refusal(binder, f"{_of_parameter(node)}INTERVAL of months or years", instead, node)
    return typed_nodes.number(length)


def span(binder: Binder, node: exp.Interval, scope: Scope) -> tuple[int, int]:
    """The ns and the months of an INTERVAL."""
    written = _written(binder, node, scope)
    if isinstance(written, str) and node.args.get("unit") is None:
        parsed = interval_of(written)
    else:
        parsed = amounts([(str(written), node.args["unit"].name if node.args.get("unit") else "SECOND")])
    if parsed is None:
        why = f"{_of_parameter(node)}this INTERVAL cannot be read; write it as in INTERVAL '5 minutes'"
        raise binder.text.error(why, node)
    return parsed


def _of_parameter(node: exp.Interval) -> str:
    return f"parameter :{node.this.name}: " if isinstance(node.this, exp.Placeholder) else ""


def _written(binder: Binder, node: exp.Interval, scope: Scope) -> Any:
    value = binder.value(node.this, scope) if node.this else None
    if not isinstance(value, Literal) or isinstance(value.value, bool | float | None):
        raise refusal(binder, "INTERVAL that is not constant", "multiply: x * INTERVAL '1 second'", node)
    return value.value


def _negated(binder: Binder, node: exp.Neg, scope: Scope) -> Expression:
    return negative(binder.value(node.this, scope))


LITERAL_HANDLERS: dict[type[exp.Expr], Handler] = {
    exp.Literal: _literal,
    exp.Null: _null,
    exp.Boolean: _boolean,
    exp.Placeholder: _parameter,
    exp.Interval: _interval,
    exp.Neg: _negated,
}


_MAX_PRECISION = 38
_DAY = 86_400 * 10**9
_TYPES: Mapping[exp.DType, Type] = {
    exp.DType.TINYINT: Type(Kind.INTEGER, 0, -(2**7), 2**7 - 1),
    exp.DType.SMALLINT: Type(Kind.INTEGER, 0, -(2**15), 2**15 - 1),
    exp.DType.INT: types.INTEGER,
    exp.DType.BIGINT: types.BIGINT,
    exp.DType.INT128: Type(Kind.INTEGER, 0, -INT128_MAX, INT128_MAX),
    exp.DType.DOUBLE: DOUBLE,
    exp.DType.FLOAT: DOUBLE,
    exp.DType.BOOLEAN: BOOLEAN,
    exp.DType.TEXT: TEXT,
    exp.DType.VARCHAR: TEXT,
    exp.DType.TIMESTAMP: TIMESTAMP,
    exp.DType.TIMESTAMPTZ: TIMESTAMP,
    exp.DType.TIMESTAMP_NS: TIMESTAMP,
    exp.DType.DATE: TIMESTAMP,
}
_TRUTH = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}


def _cast(binder: Binder, node: exp.Cast, scope: Scope) -> Expression:
    if node.args.get("format"):
        raise refusal(
            binder, "CAST with FORMAT", "write the literal as in TIMESTAMP '2024-01-31 12:00:00'", node
        )
    value = binder.value(node.this, scope)
    if node.to.this is exp.DType.INTERVAL:
        return _cast_interval(binder, value, node)
    if node.to.this is exp.DType.TIME:
        return _time_of_day(binder, value, node)
    kind = _target(binder, node)
    if is_null_literal(value):
        return Literal(None, kind, nullable=True)
    if kind.kind is Kind.TEXT and isinstance(node.this, exp.Cast) and node.this.to.this is exp.DType.TIME:
        raise refusal(binder, "CAST of a TIME to a text", "write STRFTIME(ts, '%H:%M:%S')", node)
    if isinstance(value, Literal) and isinstance(value.value, str):
        return _from_text(binder, value.value, kind, node)
    date = node.to.this is exp.DType.DATE
    if kind.kind is Kind.TEXT:
        return to_text(value, isinstance(node.this, exp.Cast) and node.this.to.this is exp.DType.DATE)
    if value.type.kind is Kind.TEXT:
        result: Expression | None = from_text(value, kind)
    else:
        result = None if date and value.type.kind is not Kind.TIMESTAMP else converted(value, kind)
    if result is None:
        name = f"CAST of {value.type.kind.value} to {node.to.sql()}"
        raise refusal(binder, name, "keep the value and convert it where it is read", node)
    return midnight(result) if date else result


def _time_of_day(binder: Binder, value: Expression, node: exp.Cast) -> Expression:
    """A TIME is the ns since midnight, of a TIMESTAMP or as in '09:30:00'."""
    if isinstance(value, Literal) and isinstance(value.value, str):
        parsed = time_of_day(value.value)
        if parsed is None:
            raise binder.text.error(f"{value.value[:40]!r} is no TIME; write it as in '09:30:00'", node)
        return parsed
    if value.type.kind is not Kind.TIMESTAMP:
        instead = "it takes a TIMESTAMP, or a text such as '09:30:00'"
        raise refusal(binder, f"CAST of {value.type.kind.value} to TIME", instead, node)
    since = arithmetic("-", value, midnight(value))
    return replace(since, type=Type(Kind.INTEGER, 0, 0, _DAY - 1))


def _target(binder: Binder, node: exp.Cast) -> Type:
    to = node.to
    if to.this is exp.DType.DECIMAL:
        sizes = [e.name for e in to.expressions] or ["18", "3"]
        precision, scale = (int(s) if s.isdigit() else -1 for s in (*sizes, "0")[:2])
        if len(sizes) > 2 or not 1 <= precision <= _MAX_PRECISION or not 0 <= scale <= precision:
            instead = f"DECIMAL(p, s) has 1 <= p <= {_MAX_PRECISION}, 0 <= s <= p"
            raise refusal(binder, f"CAST to {to.sql()}", instead, node)
        return types.decimal(precision, scale)
    kind = _TYPES.get(to.this)
    if kind is None or to.args.get("nested"):
        instead = "the types are SMALLINT, INTEGER, BIGINT, HUGEINT, DECIMAL, DOUBLE, BOOLEAN and TIMESTAMP"
        raise refusal(binder, f"CAST to {to.sql()}", instead, node)
    return kind


def converted(value: Expression, kind: Type) -> Expression | None:
    """The value as another type; None where there is no such conversion."""
    source = value.type
    if source.kind is kind.kind and not source.numeric:
        return value
    if kind.kind is Kind.BOOLEAN and source.numeric:
        return comparison("<>", value, typed_nodes.number(0))
    if {source.kind, kind.kind} == {Kind.TIMESTAMP, Kind.INTEGER}:
        return Cast(value, replace(source, kind=kind.kind), value.nullable)
    if not kind.numeric or not (source.numeric or source.kind is Kind.BOOLEAN):
        return None
    if not kind.exact:
        return value if not source.exact else Cast(value, kind, value.nullable)
    if not source.exact:
        return Cast(value, kind, nullable=True)
    return _exact(value, kind)


def _exact(value: Expression, kind: Type) -> Expression:
    """Exact to exact: the interval is what the value's own leaves of the type's."""
    source = value.type
    down, up = 10 ** max(source.scale - kind.scale, 0), 10 ** max(kind.scale - source.scale, 0)
    low, high = (integers.round_div(bound, down) * up for bound in (source.low, source.high))
    fits = kind.low <= low and high <= kind.high
    kept = replace(kind, low=max(low, kind.low), high=min(high, kind.high))
    if kept.low > kept.high:
        return Literal(None, kind, nullable=True)
    if fits and (source.kind, source.scale) == (kind.kind, kind.scale):
        return value
    return Cast(value, kept, value.nullable or not fits)


def midnight(value: Expression) -> Expression:
    """The day that a TIMESTAMP lies in."""
    if isinstance(value, Literal) and isinstance(value.value, int):
        ns = value.value - value.value % _DAY
        return timestamp_literal(ns)
    low = value.type.low - _DAY + 1
    unit = Literal("day", TEXT)
    return Function("date_trunc", (unit, value), replace(value.type, low=low), value.nullable)


def _from_text(binder: Binder, text: str, kind: Type, node: exp.Cast) -> Expression:
    """The constant that a string literal says; NULL by TRY_CAST where it says none."""
    value = _read(text, kind)
    if value is None and not isinstance(node, exp.TryCast):
        raise binder.text.error(f"{text[:40]!r} is no {node.to.sql()}", node)
    if value is None:
        return Literal(None, kind, nullable=True)
    return midnight(value) if node.to.this is exp.DType.DATE else value


def _read(text: str, kind: Type) -> Expression | None:
    match kind.kind:
        case Kind.TEXT:
            return Literal(text, TEXT)
        case Kind.TIMESTAMP:
            return timestamp(text)
        case Kind.BOOLEAN:
            truth = _TRUTH.get(text.strip().lower())
            return None if truth is None else Literal(truth, BOOLEAN)
    try:
        number = Decimal(text.strip())
        literal = typed_nodes.number(number if number % 1 or "." in text else int(number))
    except (InvalidOperation, OverflowError, ValueError, TypingError):
        return None
    return Literal(float(number), DOUBLE) if kind.kind is Kind.DOUBLE else converted(literal, kind)


def _cast_interval(binder: Binder, value: Expression, node: exp.Cast) -> Expression:
    parsed = interval_of(value.value) if isinstance(value, Literal) and isinstance(value.value, str) else None
    if parsed is None or parsed[1]:
        raise refusal(binder, "CAST to INTERVAL", "write it as in INTERVAL '5 minutes'", node)
    return typed_nodes.number(parsed[0])


CAST_HANDLERS: dict[type[exp.Expr], Handler] = {exp.Cast: _cast, exp.TryCast: _cast}
