"""Constants: numbers, strings, parameters and intervals."""

from decimal import Decimal, InvalidOperation
from math import isinf
from typing import Any

from sqlglot import exp

from views.compiler.types import BOOLEAN, DOUBLE, TEXT

from . import typing_rules
from .binder import Binder, Handler, refusal
from .bound import Expression, Literal
from .building import negative
from .scope import Scope, nearest
from .time_text import amounts, interval_of


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
        return typing_rules.number(Decimal(digits) if "." in digits else int(digits))
    except (ValueError, InvalidOperation):
        raise binder.text.error(f"{digits[:40]} is not a number that can be read", node) from None


def _null(binder: Binder, node: exp.Null, scope: Scope) -> Literal:
    return typing_rules.null()


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
        return typing_rules.constant(binder.parameters[name])
    except typing_rules.TypingError as error:
        raise binder.text.error(f"parameter :{name}: {error}", node) from None


def _interval(binder: Binder, node: exp.Interval, scope: Scope) -> Literal:
    """An INTERVAL is its length, an INTEGER of ns."""
    length, months = span(binder, node, scope)
    if months:
        instead = "use days, or DATE_TRUNC and TIME_BUCKET for calendar units"
        raise refusal(binder, "INTERVAL of months or years", instead, node)
    return typing_rules.number(length)


def span(binder: Binder, node: exp.Interval, scope: Scope) -> tuple[int, int]:
    """The ns and the months of an INTERVAL."""
    written = _written(binder, node, scope)
    if isinstance(written, str) and node.args.get("unit") is None:
        parsed = interval_of(written)
    else:
        parsed = amounts([(str(written), node.args["unit"].name if node.args.get("unit") else "SECOND")])
    if parsed is None:
        raise binder.text.error("this INTERVAL cannot be read; write it as in INTERVAL '5 minutes'", node)
    return parsed


def _written(binder: Binder, node: exp.Interval, scope: Scope) -> Any:
    value = binder.value(node.this, scope) if node.this else None
    if not isinstance(value, Literal) or isinstance(value.value, bool | float | None):
        raise refusal(binder, "INTERVAL that is not constant", "multiply: x * INTERVAL '1 second'", node)
    return value.value


def _negated(binder: Binder, node: exp.Neg, scope: Scope) -> Expression:
    return negative(binder.value(node.this, scope))


HANDLERS: dict[type[exp.Expr], Handler] = {
    exp.Literal: _literal,
    exp.Null: _null,
    exp.Boolean: _boolean,
    exp.Placeholder: _parameter,
    exp.Interval: _interval,
    exp.Neg: _negated,
}
