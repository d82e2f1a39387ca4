"""Following a log from another process while it is written."""

from collections.abc import Iterator
from pathlib import Path

from .errors import LogError, refused
from .files import Files, OsFiles
from .marks import read_mark
from .opening import damaged
from .records import BadRecord, Position, Record, frame_bytes
from .segments import HEADER, bases, read_header, segment_path


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
