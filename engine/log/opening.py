"""What a folder holds of a log, judged without changing it, and the durable mark that it is judged by.

The durable mark is the position up to which a log was known to be on the disk: a record that does not
verify is a torn tail above the mark, and damage below it. The mark is written after each sync, but synced
itself about once a second only: it may lag, and never leads. The file `durable` has two slots, and the
one that was synced last is never the one that is written.

A crash can leave one thing: the end of the last segment missing, or with holes. A segment is synced
before the next one is made, and the durable mark never leads. So whatever does not verify elsewhere, or
below the mark, is damage, which only a person can decide about.
"""

import contextlib
import zlib
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from struct import Struct

from orderbook.core.files import Files, write_all
from orderbook.engine.log.segments import (
    HEADER,
    BadRecord,
    LogError,
    Position,
    Segment,
    bases,
    end_checksum,
    frame_bytes,
    read_header,
    refused,
    segment_path,
)

MARK_NAME = "durable"
_MAGIC = b"\x8bORDMRK\n"
# Magic, number of the mark, position; then the checksum, which starts from the log's identity.
_FIELDS = Struct("<8sQQ")
_CHECK = Struct("<I")
# Slots do not share a sector of a disk.
_SLOT = 512


def read_mark(files: Files, folder: Path, identity: bytes) -> tuple[int, Position] | None:
    """The newest mark and its number; None where no slot verifies or the file is absent."""
    try:
        data = files.read(folder / MARK_NAME, 0, 2 * _SLOT)
    except FileNotFoundError:
        return None
    found = []
    for start in (0, _SLOT):
        fields = data[start : start + _FIELDS.size]
        check = data[start + _FIELDS.size : start + _FIELDS.size + _CHECK.size]
        if fields.startswith(_MAGIC) and check == _CHECK.pack(zlib.crc32(fields, zlib.crc32(identity))):
            _, number, position = _FIELDS.unpack(fields)
            found.append((number, Position(position)))
    return max(found, default=None)


class Mark:
    """Writes the mark of one log."""

    def __init__(self, files: Files, folder: Path, identity: bytes):
        self._files, self._identity = files, identity
        found = read_mark(files, folder, identity)
        # A slot's parity is its number's.
        self._number = 0 if found is None else found[0]
        path = folder / MARK_NAME
        if MARK_NAME in files.names(folder):
            self._handle = files.open(path)
            return
        unnamed = path.with_name(path.name + ".new")
        self._handle = files.open(unnamed)
        files.truncate(self._handle, 0)
        write_all(files, self._handle, bytes(2 * _SLOT), 0)
        files.sync(self._handle)
        files.rename(unnamed, path)
        files.sync_folder(folder)

    def write(self, position: Position) -> None:
        """Writes the mark, into the slot that is not the last synced one."""
        fields = _FIELDS.pack(_MAGIC, self._number + 1, position)
        data = fields + _CHECK.pack(zlib.crc32(fields, zlib.crc32(self._identity)))
        write_all(self._files, self._handle, data, (self._number + 1) % 2 * _SLOT)

    def sync(self) -> None:
        """Makes the mark that was written last durable."""
        self._files.sync(self._handle)
        self._number += 1

    def seal(self, position: Position) -> None:
        """Writes the mark durably into both slots, so that one damaged slot loses nothing."""
        self._files.sync(self._handle)
        for _ in range(2):
            self.write(position)
            self.sync()

    def close(self) -> None:
        """Gives the file back."""
        self._files.close(self._handle)


@dataclass(frozen=True, slots=True)
class Found:
    """The segments of a log in order, where it ends, and how many bytes after that are a torn tail."""

    segments: tuple[Segment, ...]
    end: Position
    torn: int
    warnings: tuple[str, ...]


def inspect(files: Files, folder: Path, identity: bytes) -> Found:
    """Reads all headers and the last segment; LogError for what no crash can leave."""
    try:
        return _inspect(files, folder, identity)
    except OSError as error:
        raise refused(folder, "the log cannot be read", error, "see to the disk, then start again") from error


def _inspect(files: Files, folder: Path, identity: bytes) -> Found:
    starts = bases(files, folder)
    segments = tuple(read_header(files, segment_path(folder, base), identity) for base in starts)
    for before, after in pairwise(segments):
        _check_neighbours(files, before, after)
    mark = read_mark(files, folder, identity)
    warnings = []
    if mark is None and segments:
        warnings.append(
            f"{folder / MARK_NAME}: has no valid mark, so that a damaged record of the last segment "
            "would be taken for one that a crash tore"
        )
    promised = Position(0) if mark is None else mark[1]
    if not segments:
        if promised:
            raise _missing(folder, promised, 0)
        return Found((), Position(0), 0, ())
    last = segments[-1]
    size = files.size(last.path)
    end = _end(files, last, Position(last.base + size), promised)
    torn = last.base + size - end
    if torn:
        warnings.append(
            f"{last.path}: {torn} bytes from byte {end - last.base} on, which no sync had promised, "
            "are not whole, as a crash leaves them; they are cut off"
        )
    return Found(segments, end, torn, tuple(warnings))


def _check_neighbours(files: Files, before: Segment, after: Segment) -> None:
    stop = before.base + files.size(before.path)
    if stop != after.base:
        problem = (
            f"ends at position {stop}, and the next segment is {after.path.name}: "
            "a segment is missing, or this one was cut"
        )
        raise LogError(before.path, problem, "restore the segments from a copy")
    if end_checksum(files, before, stop) != after.previous:
        raise LogError(
            after.path,
            f"does not continue {before.path.name}: one of them is another log's, or damaged",
            "restore both from a copy",
        )


def _end(files: Files, last: Segment, stop: Position, promised: Position) -> Position:
    """Where the whole records of the last segment end."""
    end = last.base + HEADER
    try:
        for offset, record in last.records(files, last.base, stop):
            end = last.base + offset + frame_bytes(record)
    except BadRecord as bad:
        if end < promised:
            raise damaged(last, bad, promised) from bad
    if end < promised:
        raise _missing(last.path, promised, end)
    return Position(end)


def _missing(path: Path, promised: Position, end: int) -> LogError:
    problem = f"the log ends at position {end}, but was on the disk up to {promised}"
    return LogError(path, problem, _or_without_mark("restore the missing part from a copy"))


def damaged(segment: Segment, bad: BadRecord, promised: Position) -> LogError:
    """The error for a record that had been on the disk and does not verify any more."""
    problem = f"{bad.reason}, though the log was on the disk up to position {promised}: the file is damaged"
    return LogError(segment.path, problem, _or_without_mark("restore it from a copy"), bad.offset)


def _or_without_mark(remedy: str) -> str:
    return f"{remedy}, or remove the file {MARK_NAME} beside it to give up what follows"


def remove_unnamed(files: Files, folder: Path, suffix: str) -> None:
    """Removes what an interrupted creation left; what cannot be removed does no harm."""
    for name in files.names(folder):
        if name.endswith(suffix):
            with contextlib.suppress(OSError):
                files.remove(folder / name)
