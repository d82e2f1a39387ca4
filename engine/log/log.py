"""A durable log of records: appended at the end, synced by a policy, read back from any position.

One thread of one process writes it. After a crash the log holds a beginning of what was appended, at
least up to `durable`, and nothing else. SyncPolicy says when what was appended is made durable; a
LogReader follows the log from another process while it is written.
"""

import contextlib
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from orderbook.core.errors import ConfigurationError, UserError
from orderbook.core.files import Files, OsFiles, write_all
from orderbook.core.units import DURATION_UNITS, nanoseconds
from orderbook.engine.log.opening import Found, Mark, damaged, inspect, read_mark, remove_unnamed
from orderbook.engine.log.segments import (
    HEADER,
    LARGEST_IDENTITY,
    UNNAMED,
    BadRecord,
    LogError,
    Position,
    Record,
    Segment,
    bases,
    create,
    encode,
    end_checksum,
    frame_bytes,
    read_header,
    refused,
    segment_path,
)


@dataclass(frozen=True, slots=True)
class SyncPolicy:
    """How long an appended record may stay undurable, in ns.

    0: an append returns once it is durable ("batch"). None: until somebody asks, a segment is full, or
    the log is closed ("never").
    """

    interval: int | None

    @classmethod
    def parse(cls, text: str) -> "SyncPolicy":
        """From "batch", "never" or an interval such as "100ms"; else ConfigurationError."""
        if text in ("batch", "never"):
            return cls(0 if text == "batch" else None)
        try:
            return cls(nanoseconds(text))
        except UserError:
            raise ConfigurationError(
                f'sync policy: {text!r} is not one; give "batch", "never", or an interval such as "100ms"'
            ) from None

    def __str__(self) -> str:
        """The text that parses to this policy."""
        if not self.interval:
            return "never" if self.interval is None else "batch"
        unit = next(unit for unit in ("s", "ms", "us", "ns") if self.interval % DURATION_UNITS[unit] == 0)
        return f"{self.interval // DURATION_UNITS[unit]}{unit}"


MEBIBYTE = 1 << 20
# How old the durable mark on the disk may get, in ns; each sync of it costs as much as one of the log.
_MARK_INTERVAL = 1_000_000_000
_REOPEN = "see to the disk, then open the log again"


class Log:
    """A log open for writing; made by `Log.open`.

    A failed append leaves nothing in the log, and the next one may succeed. Where even that cannot be
    had (a sync failed, or a part of a record cannot be cut off), everything after raises LogError until
    the log is opened again.
    """

    def __init__(
        self,
        folder: Path,
        identity: bytes,
        policy: SyncPolicy,
        limits: tuple[int, int],
        files: Files,
        clock: Callable[[], int],
        lock: int,
    ):
        self._folder, self._identity, self._policy = folder, identity, policy
        self._segment_bytes, self._largest = limits
        self._files, self._clock, self._lock = files, clock, lock
        found = inspect(files, folder, identity)
        self._segments = list(found.segments)
        self._end = self._durable = found.end
        # The last segment's handle. None: the next append begins a segment, with a salt of its own, so that
        # bytes which the disk had beyond the end, of records since cut off, never verify.
        self._tail: int | None = None
        self._failure: LogError | None = None
        self._unsynced_since = 0
        self._logger = logging.getLogger("orderbook.log")
        self.warnings: list[str] = []
        for text in found.warnings:
            self._warn(text)
        try:
            self._mark = self._repair(found)
        except OSError as error:
            raise refused(folder, "the log cannot be opened for writing", error, _REOPEN) from error
        self._mark_synced = clock()

    @classmethod
    def open(
        cls,
        folder: Path,
        identity: bytes,
        *,
        policy: SyncPolicy,
        segment_bytes: int = 64 * MEBIBYTE,
        largest_payload: int = 64 * MEBIBYTE,
        files: Files = OsFiles(),
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> "Log":
        """Opens the log of a folder, which is made if need be, and cuts off what a crash tore.

        `identity` (up to 32 bytes) is a hash of what may read the log. A segment is full at `segment_bytes`,
        but an append is never split. `clock` gives ns, for the policy. Raises LogError, and changes nothing,
        where the log is in use, another program's, or damaged.
        """
        if not 0 < len(identity) <= LARGEST_IDENTITY:
            raise ValueError(f"an identity of {len(identity)} bytes; give 1 to {LARGEST_IDENTITY}")
        try:
            files.make_folder(folder)
            lock = files.lock(folder)
        except BlockingIOError as error:
            remedy = "stop the other program, or give this one another folder"
            raise refused(folder, "the log cannot be opened", error, remedy) from error
        except OSError as error:
            raise refused(folder, "the log cannot be opened", error, "check the folder's rights") from error
        try:
            return cls(folder, identity, policy, (segment_bytes, largest_payload), files, clock, lock)
        except BaseException:
            with contextlib.suppress(OSError):
                files.unlock(lock)
            raise

    @property
    def folder(self) -> Path:
        """Where the segments lie."""
        return self._folder

    @property
    def end(self) -> Position:
        """Where the log ends: `read` from here gives what is appended from now on."""
        return self._end

    @property
    def durable(self) -> Position:
        """Up to where the log survives a power failure. Keep no position beyond it outside the log."""
        return self._durable

    @property
    def start(self) -> Position:
        """Where the oldest segment begins."""
        return self._segments[0].base if self._segments else Position(0)

    @property
    def bytes(self) -> int:
        """The length of all segments."""
        return self._end - self.start

    @property
    def segments(self) -> int:
        """How many segments there are."""
        return len(self._segments)

    def append(self, record: Record) -> Position:
        """Appends one record and gives its position; see `append_all`."""
        return self.append_all((record,))[0]

    def append_all(self, records: Sequence[Record], *, durable: bool = True) -> list[Position]:
        """Appends records in order, all or (LogError) none of them, and gives the position of each.

        Durable on return only under the policy "batch", unless `durable` leaves that to the next append.
        After a crash, some of the first ones of a batch that did not return may be there. Raises ValueError
        for a record whose fields do not fit.
        """
        self._check_usable()
        if not records:
            return []
        largest = max(len(record.payload) for record in records)
        if largest > self._largest:
            problem = f"a payload of {largest} bytes is longer than the log's limit of {self._largest}"
            raise LogError(self._folder, problem, "split the record, or raise the limit")
        if self._tail is None or self._is_full(sum(map(frame_bytes, records))):
            # Fields are checked before a segment is begun for nothing.
            encode(records, 0, 0)
            self._begin_segment()
        data, positions = encode(records, self._end, self._segments[-1].salt)
        self._write(memoryview(data))
        if self._durable == self._end and self._policy.interval:
            self._unsynced_since = self._clock()
        self._end = Position(self._end + len(data))
        if self._policy.interval == 0:
            if durable:
                self.sync()
        else:
            self.sync_if_due()
        return positions

    def sync(self) -> None:
        """Makes everything appended durable.

        Where that fails, the log is cut back to `durable`, and LogError tells so.
        """
        self._check_usable()
        if self._tail is None or self._durable == self._end:
            return
        try:
            self._files.sync(self._tail)
        except OSError as error:
            # The system may have dropped the pages and call the next sync a success.
            problem = f"sync failed, and what follows position {self._durable} is not in the log"
            self._cut(self._durable)
            self._failure = refused(self._segments[-1].path, problem, error, _REOPEN)
            raise self._failure from error
        self._durable = self._end
        self._write_mark()

    def sync_if_due(self) -> None:
        """Syncs where the policy's interval has passed since the oldest append that is not durable."""
        interval = self._policy.interval
        if interval and self._durable < self._end and self._clock() - self._unsynced_since >= interval:
            self.sync()

    def read(self, start: Position | None = None) -> Iterator[tuple[Position, Record]]:
        """The records from a position (None: the oldest) to the end as it is now, with their positions.

        Raises LogError for a position that is not a record's, and, while reading, for damage.
        """
        first = self.start if start is None else start
        if not self.start <= first <= self._end:
            problem = f"position {first} is not in the log, which reaches from {self.start} to {self._end}"
            raise LogError(self._folder, problem, "read it from its start, or restore what is missing")
        return self._read(tuple(self._segments), first, self._end)

    def truncate_before(self, position: Position) -> None:
        """Removes the segments that end at or before a position, durably, but for the last."""
        self._check_usable()
        try:
            while len(self._segments) > 1 and self._segments[1].base <= position:
                # Before each removal the one before it is durable: an older segment never stands alone.
                self._files.sync_folder(self._folder)
                with contextlib.suppress(FileNotFoundError):
                    self._files.remove(self._segments[0].path)
                del self._segments[0]
            self._files.sync_folder(self._folder)
        except OSError as error:
            raise refused(
                self._segments[0].path, "segments cannot be removed", error, "see to the disk"
            ) from error

    def close(self) -> None:
        """Makes everything durable and gives the folder back, also where LogError tells that it failed."""
        if self._lock < 0:
            return
        try:
            if self._failure is None:
                self.sync()
                self._mark.seal(self._durable)
        except OSError as error:
            self._warn(f"{self._folder}: the durable mark cannot be written: {error}")
        finally:
            self._close_tail()
            with contextlib.suppress(OSError):
                self._mark.close()
            lock, self._lock = self._lock, -1
            self._failure = LogError(self._folder, "the log is closed", "open it again")
            with contextlib.suppress(OSError):
                self._files.unlock(lock)

    def __enter__(self) -> "Log":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _repair(self, found: Found) -> Mark:
        """Cuts off the torn tail, and makes durable what a killed process had left to the system."""
        if found.segments:
            last = found.segments[-1]
            handle = self._files.open(last.path)
            try:
                if found.torn:
                    self._files.truncate(handle, found.end - last.base)
                self._files.sync(handle)
            finally:
                self._files.close(handle)
        self._files.sync_folder(self._folder)
        remove_unnamed(self._files, self._folder, UNNAMED)
        mark = Mark(self._files, self._folder, self._identity)
        mark.seal(self._durable)
        return mark

    def _check_usable(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _is_full(self, added: int) -> bool:
        size = self._end - self._segments[-1].base
        return size > HEADER and size + added > self._segment_bytes

    def _begin_segment(self) -> None:
        self.sync()
        self._close_tail()
        previous, files = 0, self._files
        try:
            if self._segments:
                previous = end_checksum(files, self._segments[-1], self._end)
            made, handle = create(files, self._folder, self._end, self._identity, previous, self._largest)
            self._tail = handle
            files.sync_folder(self._folder)
        except OSError as error:
            self._close_tail()
            raise refused(
                self._folder, "a new segment cannot be made", error, "free space or see to the disk"
            ) from error
        self._segments.append(made)
        self._end = self._durable = Position(made.base + HEADER)

    def _write(self, data: memoryview) -> None:
        assert self._tail is not None
        last = self._segments[-1]
        try:
            write_all(self._files, self._tail, data, self._end - last.base)
        except BaseException as error:
            cut = self._cut(self._end)
            state = "nothing of it is in the log" if cut else "part of it cannot be cut off"
            remedy = "free space or see to the disk" if cut else _REOPEN
            if not isinstance(error, OSError):
                raise
            failure = refused(last.path, f"an append failed, and {state}", error, remedy)
            if not cut:
                self._failure = failure
            raise failure from error

    def _cut(self, end: Position) -> bool:
        """Makes the last segment end at `end`, durably, and the next append begin a new one."""
        assert self._tail is not None
        try:
            self._files.truncate(self._tail, end - self._segments[-1].base)
            self._files.sync(self._tail)
        except OSError as error:
            self._failure = refused(self._segments[-1].path, "its end is unknown", error, _REOPEN)
            return False
        self._end = self._durable = end
        self._close_tail()
        return True

    def _close_tail(self) -> None:
        tail, self._tail = self._tail, None
        if tail is not None:
            with contextlib.suppress(OSError):
                self._files.close(tail)

    def _write_mark(self) -> None:
        try:
            self._mark.write(self._durable)
            now = self._clock()
            if now - self._mark_synced >= _MARK_INTERVAL:
                self._mark.sync()
                self._mark_synced = now
        except OSError as error:
            self._warn(f"{self._folder}: the durable mark cannot be written: {error}")

    def _warn(self, text: str) -> None:
        self.warnings.append(text)
        self._logger.warning("%s", text)

    def _read(
        self, segments: Sequence[Segment], start: Position, end: Position
    ) -> Iterator[tuple[Position, Record]]:
        for number, segment in enumerate(segments):
            stop = segments[number + 1].base if number + 1 < len(segments) else end
            if stop <= start:
                continue
            try:
                for offset, record in segment.records(self._files, start, stop):
                    yield Position(segment.base + offset), record
            except BadRecord as bad:
                problem = f"{bad.reason}: the file is damaged, or the position is not a record's"
                raise LogError(segment.path, problem, "restore it from a copy", bad.offset) from bad
            except OSError as error:
                raise refused(segment.path, "cannot be read", error, "see to the disk") from error


class LogReader:
    """Reads a log that another process may be writing, locks nothing and changes nothing.

    It sees records as soon as they are appended, durable or not. Where a failed append or a crash makes the
    writer cut off what was read already, reading on raises LogError.
    """

    def __init__(
        self, folder: Path, identity: bytes, *, start: Position | None = None, files: Files = OsFiles()
    ):
        """`start` is the position to begin at; None is the oldest record. The log may not be there yet."""
        self._folder, self._identity, self._files = folder, identity, files
        self._position = start
        self._base: int | None = None
        self._following: int | None = None

    @property
    def position(self) -> Position:
        """Where the next record is looked for."""
        return Position(0) if self._position is None else self._position

    def read(self) -> Iterator[tuple[Position, Record]]:
        """The records from `position` to the last whole one; call it again for what came since.

        Raises LogError for damage, for another program's log, and where the position is gone from the log.
        """
        try:
            while self._base is not None or self._find():
                yield from self._read_segment()
                if self._following is None:
                    return
                self._base = self._following
        except FileNotFoundError as error:
            if self._base is not None:
                raise self._gone("has been removed from it") from error
        except OSError as error:
            raise refused(self._folder, "the log cannot be read", error, "see to the disk") from error

    def _find(self) -> bool:
        """Stands in the segment of `position`; False where there is no segment yet."""
        starts = bases(self._files, self._folder)
        if starts and self._position is None:
            self._position = Position(starts[0])
        self._base = max((base for base in starts if base <= self.position), default=None)
        if starts and self._base is None:
            raise self._gone(f"is before its start at {starts[0]}")
        return self._base is not None

    def _read_segment(self) -> Iterator[tuple[Position, Record]]:
        """The records of one segment from `position` on, and in `_following` where the next one begins."""
        assert self._base is not None
        base, path = self._base, segment_path(self._folder, self._base)
        # In this order: what is marked, and a segment that has another after it, is complete when read later.
        mark = read_mark(self._files, self._folder, self._identity)
        self._following = min((b for b in bases(self._files, self._folder) if b > base), default=None)
        stop = Position(base + self._files.size(path))
        if min(stop, self._following or stop) < self.position:
            raise self._gone("has been cut off from it")
        segment = read_header(self._files, path, self._identity)
        self._position = Position(max(self.position, base + HEADER))
        try:
            for offset, record in segment.records(self._files, self._position, stop):
                self._position = Position(base + offset + frame_bytes(record))
                yield Position(base + offset), record
        except BadRecord as bad:
            promised = self._following or (mark[1] if mark else 0)
            if self._position < promised:
                raise damaged(segment, bad, Position(promised)) from bad
            return
        if self._following is not None and self._following != self._position:
            problem = f"ends at position {self._position}, and the next segment begins at {self._following}"
            raise LogError(path, problem, "restore the segments from a copy")

    def _gone(self, what: str) -> LogError:
        return LogError(self._folder, f"position {self.position} {what}", "start again from a checkpoint")
