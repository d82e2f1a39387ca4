"""The outbox of a sink: its view's changes in a log of their own until the target has them.

A sink is given changes of a view's rows, each under the version of the event that made it.

A run fills it as it goes, and again from its own log after a crash: what the outbox has already is passed
over by its version, and by its number among the changes of that version. Before a run writes a checkpoint the
outbox is durable, so that whatever it lacks after a crash is in the log after the checkpoint. How far the
target has everything is noted in a file beside the entries.
"""

import math
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import Any, Literal, Protocol, get_args

import msgspec

from orderbook.core.errors import OrderbookError, SourceError
from orderbook.core.files import packed, replace_file, unpacked
from orderbook.engine.log.log import Log, SyncPolicy
from orderbook.engine.log.segments import Position, Record, frame_bytes
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


IDENTITY = b"orderbook sink 1"
SEGMENT_BYTES = 16 << 20
# Changes that wait in memory before they are put to the others, and at most.
_TOGETHER, _MOST = 512, 32_768
_ALL = 1 << 40


class _Noted(msgspec.Struct, frozen=True):
    """Up to where the target has everything, and of which program the entries are.

    last, count: the version of the last change before the position, and how many of that version are.
    """

    position: int
    program: str
    last: Version
    count: int


@dataclass(slots=True)
class _Counted:
    """The latest version, and how many changes of it there are."""

    version: Version = (-1, 0, 0)
    count: int = 0

    def add(self, version: Version, op: Op) -> None:
        if version > self.version:
            self.version, self.count = version, 0
        # Rows of a snapshot stand for all that their version has changed.
        self.count += _ALL if op == "snapshot" else version == self.version


class Outbox:
    """Changes that wait, in a folder; any thread may call it. Raises LogError where the disk refuses.

    program: a hash of what computes the view. With changes of another one, or none, the outbox has not
    `begun`, and is to be given the present rows first.
    """

    def __init__(self, folder: Path, program: str, segment_bytes: int = SEGMENT_BYTES) -> None:
        self._lock = threading.RLock()
        self._file, self._program = folder / "delivered", program
        self._log = Log.open(folder, IDENTITY, policy=SyncPolicy(None), segment_bytes=segment_bytes)
        self._new: list[RowChange] = []
        self._closed = False
        noted = self._read()
        self.begun = noted is not None and noted.program == program
        # Without a note it ended while it was given its first rows, which are given again.
        self._delivered = self._log.end if noted is None else Position(noted.position)
        # The version of the last change that the target has, and of the last that was put, with their counts.
        self._sent = _Counted() if noted is None else _Counted(noted.last, noted.count)
        self._last = _Counted(self._sent.version, self._sent.count)
        # Each is written by one thread, so that what is moved from memory to the log counts all the while.
        self._came = self._gone = 0
        for _, record in self._log.read(self._delivered):
            self._came += 1
            change = change_from(record)
            self._last.add(change.version, change.op)
        self.resume()

    @property
    def waiting(self) -> int:
        """Changes that the target has not confirmed."""
        return self._came - self._gone

    @property
    def bytes(self) -> int:
        """What they take on the disk."""
        return self._log.end - self._delivered

    def resume(self) -> None:
        """From now on changes come again that may be there already."""
        with self._lock:
            self.flush()
            self._known, self._again = _Counted(self._last.version, self._last.count), 0

    def put(self, change: RowChange) -> bool:
        """Append a change, unless it is there from before a crash; whether it was appended.

        It does not wait while another thread uses the disk, as long as few changes wait in memory.
        """
        if change.version < self._known.version:
            return False
        if change.version == self._known.version:
            self._again += 1
            if self._again <= self._known.count:
                return False
        self._came += 1
        self._new.append(change)
        if len(self._new) >= _TOGETHER and self._lock.acquire(blocking=len(self._new) >= _MOST):
            try:
                self.flush()
            finally:
                self._lock.release()
        return True

    def begin(self, rows: Sequence[RowChange]) -> None:
        """Append the present rows, after what waits; the changes from then on are put."""
        with self._lock:
            self.flush()
            self._came += len(rows)
            self._append(rows)
            self._log.sync()
            self._known = _Counted()
            self.begun = True
            self._note()

    def flush(self) -> None:
        """Have what was put in the log."""
        with self._lock:
            new = self._new[:]
            del self._new[: len(new)]
            self._append(new)

    def sync(self) -> None:
        """Have what was put survive a power failure."""
        with self._lock:
            self.flush()
            self._log.sync()

    def next(self, most: int) -> tuple[list[RowChange], Position]:
        """The oldest changes that wait, at most `most`, and the position after them."""
        with self._lock:
            self.flush()
            end, found = self._delivered, []
            for position, record in islice(self._log.read(end), most):
                found.append(change_from(record))
                end = Position(position + frame_bytes(record))
            return found, end

    def delivered(self, changes: Sequence[RowChange], end: Position) -> None:
        """The target has these, which `next` gave with the position after them."""
        with self._lock:
            # What is noted must be in the log after a power failure, else other entries would stand there.
            self._log.sync()
            self._delivered = end
            self._gone += len(changes)
            for change in changes:
                self._sent.add(change.version, change.op)
            self._note()
            self._log.truncate_before(end)

    def close(self) -> None:
        """Have everything durable, and let go of the folder."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            try:
                self.flush()
            finally:
                self._log.close()

    def _append(self, changes: Sequence[RowChange]) -> None:
        self._log.append_all([record_of(change) for change in changes])
        for change in changes:
            self._last.add(change.version, change.op)

    def _note(self) -> None:
        noted = _Noted(self._delivered, self._program, self._sent.version, self._sent.count)
        replace_file(self._file, msgspec.json.encode(noted))

    def _read(self) -> _Noted | None:
        try:
            return msgspec.json.decode(self._file.read_bytes(), type=_Noted)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.DecodeError) as error:
            raise SourceError(f"{self._file}: cannot be read: {error}; restore it from a copy") from error
