"""How alerts are written: the JSON of their rows and of what is sent, and the line that people read."""

import re
from collections.abc import Mapping

import msgspec

from orderbook.alerts.store import Alert
from orderbook.core.errors import UserError, suggestion, visible
from orderbook.core.units import moment_text, value_text
from orderbook.engine.runtime.live_view import ViewRow, column_types
from orderbook.sinks.outbox import encode_json, json_value
from orderbook.views.encoding.values import Value
from orderbook.views.m3 import Result
from orderbook.views.types import Kind

_COLUMN = re.compile(r"\{(\w+)\}")
# Of a line that people read, so that no service refuses it.
_LONGEST = 500


def row_json(row: Mapping[str, Value]) -> str:
    """A row as a JSON object: decimals exact, times in ns."""
    return encode_json({name: json_value(value) for name, value in row.items()}).decode()


def check_template(template: str, view: Result) -> None:
    """Raises UserError where a message names a column that a view has not."""
    columns = [column.name for column in view.columns]
    for name in _COLUMN.findall(template):
        if name not in columns:
            raise UserError(f"the view has no column {name!r}; {suggestion(name, columns)}")


def message_of(rule: str, template: str | None, row: ViewRow) -> str:
    """The line: the template with the row's values, or the rule and all of them."""
    kinds = {name: kind.kind for (name, _), kind in zip(row.items(), column_types(row), strict=True)}

    def text(name: str) -> str:
        value = row[name]
        if kinds[name] is Kind.TIMESTAMP and isinstance(value, int):
            return moment_text(value)
        return value_text(value)

    if template is None:
        line = f"{rule}: " + " ".join(f"{name}={text(name)}" for name in row)
    else:
        line = _COLUMN.sub(lambda found: text(found[1]) if found[1] in row else found[0], template)
    return visible(line)[:_LONGEST]


def alert_data(alert: Alert) -> dict[str, object]:
    """An alert as receivers and clients have it; times are ns since 1970."""
    stamp, switch, seq = alert.since
    return {
        "alert": alert.id,
        "name": alert.rule,
        "view": alert.view,
        "severity": alert.severity,
        "message": alert.message,
        "key": msgspec.Raw(alert.key.encode()),
        "row": msgspec.Raw(alert.row.encode()),
        "version": (str(stamp), switch, seq),
        "raised": str(alert.raised),
        "over": None if alert.over is None else str(alert.over),
        "acknowledged": None if alert.acknowledged is None else str(alert.acknowledged),
        "acknowledged_by": alert.acknowledged_by,
    }
