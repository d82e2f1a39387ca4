"""What a sink is given: a change of a view's row, under the version of the event that made it."""

import math
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any, Literal, Protocol, get_args

import msgspec

from orderbook.core.errors import OrderbookError
from orderbook.core.files import packed, unpacked
from orderbook.engine.log.segments import Record
from orderbook.engine.runtime.subscriptions import Version, ViewEvent
from orderbook.views.encoding.values import Value
from orderbook.views.types import INT64_MAX

Op = Literal["snapshot", "insert", "update", "delete"]
_KINDS: tuple[Op, ...] = get_args(Op)


class SinkError(OrderbookError):
    """A sink cannot take changes now; they wait, and it is tried again."""


class SinkRefused(SinkError):
    """A sink that will not take changes as long as nobody mends its configuration or its target."""


class RowChange(msgspec.Struct, frozen=True):
    """A row of a view as it is under a version; of a delete, the row that is gone.

    op "snapshot": the row was there when the sink began. key: as `engine[view]` has it. multiplicity: how
    many equal rows it stands for.
    """

    version: Version
    op: Op
    key: tuple[Value, ...]
    row: Mapping[str, Value]
    multiplicity: int = 1


def change_of(event: ViewEvent) -> RowChange | None:
    """The change that an event tells; None where the row is as it was."""
    old, new = event.old, event.new
    row = old if new is None else new
    if row is None:
        return None
    op: Op = "delete" if new is None else "insert" if old is None else "update"
    return RowChange(event.version, op, event.key, dict(row), row.multiplicity)


def record_of(change: RowChange) -> Record:
    """A change as an entry of an outbox."""
    payload = packed([list(change.key), dict(change.row), change.multiplicity])
    return Record(1 + _KINDS.index(change.op), *change.version, payload)


def change_from(record: Record) -> RowChange:
    """The change that an entry holds."""
    key, row, multiplicity = unpacked(record.payload, tuple[list[Any], dict[str, Any], int])
    version = record.stamp, record.switch, record.sequence
    return RowChange(version, _KINDS[record.kind - 1], tuple(key), row, multiplicity)


encode_json = msgspec.json.Encoder(decimal_format="number").encode


def json_value(value: Value) -> Any:
    """A value that JSON can write: integers beyond 64 bits as numbers, NaN and infinities as texts."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, int) and abs(value) > INT64_MAX:
        return Decimal(value)
    return value


def key_text(key: Iterable[Value]) -> str:
    """A row's key as a JSON array, by which targets tell rows apart."""
    return encode_json([json_value(part) for part in key]).decode()


class Target(Protocol):
    """Where changes go. One thread calls it at a time. Every method raises SinkError where it fails."""

    def open(self) -> None:
        """Connects, where that is not done; called again after every error."""

    def write(self, changes: list[RowChange]) -> None:
        """Has these written when it returns, in their order; after an error, the same ones come again."""

    def end(self) -> None:
        """From any thread: what is being written is waited for no longer than some seconds."""

    def close(self) -> None:
        """Gives back the connection."""


class RowTarget(Target, Protocol):
    """A target that holds the present rows."""

    def replace(self, rows: list[RowChange], version: Version) -> None:
        """Makes the rows of the target these, all at once, as of a version."""
