"""Values of views as messages have them."""

from collections.abc import Callable
from decimal import Decimal
from typing import Any

from engine.live_view import LiveView, ViewRow
from views.compiler.types import Kind

# The largest integer that JavaScript's numbers hold exactly.
_EXACT = 2**53 - 1
_NAMES = {
    Kind.INTEGER: "integer",
    Kind.DECIMAL: "decimal",
    Kind.DOUBLE: "double",
    Kind.BOOLEAN: "boolean",
    Kind.TEXT: "text",
    Kind.TIMESTAMP: "timestamp",
}


def wire_value(value: Any) -> Any:
    """A value as JSON has it: decimals as text, integers that JavaScript would round likewise."""
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > _EXACT:
        return str(value)
    return value


def converters(view: LiveView) -> list[tuple[str, Callable[[Any], Any]]]:
    """The columns of a view, and what makes JSON values of theirs."""
    found: list[tuple[str, Callable[[Any], Any]]] = []
    for column in view.layout.result.columns:
        kind = column.type.kind
        found.append((column.name, _timestamp if kind is Kind.TIMESTAMP else wire_value))
    return found


def columns_of(view: LiveView) -> list[tuple[str, str]]:
    """Names and types of a view's columns."""
    return [(c.name, _NAMES[c.type.kind]) for c in view.layout.result.columns]


def row_values(row: ViewRow, columns: list[tuple[str, Callable[[Any], Any]]]) -> list[Any]:
    """The values of a row."""
    return [convert(row[name]) for name, convert in columns]


def _timestamp(value: Any) -> Any:
    return None if value is None else str(value)
