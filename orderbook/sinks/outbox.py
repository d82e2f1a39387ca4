"""The outbox of a sink: its view's changes in a log of their own until the target has them.

A run fills it as it goes, and again from its own log after a crash: what the outbox has already is passed
over by its version, and by its number among the changes of that version. Before a run writes a checkpoint the
outbox is durable, so that whatever it lacks after a crash is in the log after the checkpoint. How far the
target has everything is noted in a file beside the entries.
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import msgspec

from orderbook.core.errors import SourceError
from orderbook.core.files import replace_file
from orderbook.engine.log.log import Log, SyncPolicy
from orderbook.engine.log.segments import Position, frame_bytes
from orderbook.engine.runtime.subscriptions import Version
from orderbook.sinks.changes import Op, RowChange, change_from, record_of

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
        self._waiting = 0
        for _, record in self._log.read(self._delivered):
            self._waiting += 1
            change = change_from(record)
            self._last.add(change.version, change.op)
        self.resume()

    @property
    def waiting(self) -> int:
        """Changes that the target has not confirmed."""
        return self._waiting + len(self._new)

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
            self._waiting -= len(changes)
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
        self._waiting += len(changes)
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
