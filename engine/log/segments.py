"""Records, their frames, and the segment files that a log is made of; what can go wrong with them.

A record's frame is length, kind, version, payload, CRC-32. The checksum starts from the record's position
and the salt of its segment, so that bytes which an older file left in a reused block of the disk never
verify, whatever they once were.

Segments are the files `00000000000000000000.log` of a log, each named by the position it begins at. A
segment is a header and then frames. A header holds the checksum that the segment before it ends with, so
that a segment which is missing, or is another log's, shows. A file gets its name only once its header is
durable: a name that is there has a whole header, or the disk damaged it.

What can go wrong: damage, another owner, a disk that refuses (LogError).
"""

import contextlib
import os
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from struct import Struct, error
from typing import NamedTuple, NewType, cast

from orderbook.core.errors import OrderbookError
from orderbook.core.files import Files, write_all


class LogError(OrderbookError):
    """A log that cannot be trusted or written; one line with the file, the place and what to do.

    `file` is the file or folder; `offset` the byte in it, None where it is all of it.
    """

    def __init__(self, file: Path, problem: str, remedy: str, offset: int | None = None):
        where = f"{file}: " if offset is None else f"{file}: at byte {offset}: "
        super().__init__(f"{where}{problem}; {remedy}")
        self.file, self.offset = file, offset


def refused(file: Path, action: str, error: OSError, remedy: str) -> LogError:
    """What the operating system said, as a LogError."""
    return LogError(file, f"{action}: {error.strerror or error}", remedy)


# A byte of the log, counted over all segments and their headers. str() prints it, int() reads it.
Position = NewType("Position", int)

# Length of the payload, kind, stamp, switch, sequence.
_HEAD = Struct("<IIqiq")
_CHECK = Struct("<I")
OVERHEAD = _HEAD.size + _CHECK.size
_CHUNK = 1 << 20


class Record(NamedTuple):
    """One thing that happened.

    `kind` says what (1 to 2^32 - 1; 0 is what a hole in a file reads as). `stamp` (int64, ns), `switch`
    (int32) and `sequence` (int64) are its version. The payload is the writer's own.
    """

    kind: int
    stamp: int
    switch: int
    sequence: int
    payload: bytes


class BadRecord(Exception):
    """A frame that is incomplete or does not verify: where in its file, and why."""

    def __init__(self, offset: int, reason: str):
        super().__init__(reason)
        self.offset, self.reason = offset, reason


def frame_bytes(record: Record) -> int:
    """The length of a record in the log."""
    return OVERHEAD + len(record.payload)


def encode(records: Sequence[Record], position: int, salt: int) -> tuple[bytes, list[Position]]:
    """The frames of records that follow each other from `position` on, and where each begins.

    Raises ValueError for a field that does not fit.
    """
    parts: list[bytes] = []
    positions: list[int] = []
    pack, check, crc32 = _HEAD.pack, _CHECK.pack, zlib.crc32
    for kind, stamp, switch, sequence, payload in records:
        length = len(payload)
        try:
            # Neither a kind of -1 nor one of 0 packs.
            head = pack(length, kind or -1, stamp, switch, sequence)
        except error as reason:
            fields = f"kind {kind}, stamp {stamp}, switch {switch}, sequence {sequence}"
            raise ValueError(f"a record's field does not fit: {fields}: {reason}") from reason
        checksum = crc32(payload, crc32(head, (position ^ salt) & 0xFFFFFFFF))
        parts += (head, payload, check(checksum))
        positions.append(position)
        position += length + OVERHEAD
    return b"".join(parts), cast("list[Position]", positions)


def frames(
    files: Files, path: Path, base: int, salt: int, largest: int, start: int, stop: int
) -> Iterator[tuple[int, Record]]:
    """Records of a file between two offsets, each with its own; raises BadRecord at the first that is none.

    `base` is the position of the file's first byte, `largest` the longest payload it may hold, so that
    no damaged length makes this read more than that.
    """
    unpack, check, crc32, head_bytes = _HEAD.unpack_from, _CHECK.unpack_from, zlib.crc32, _HEAD.size
    while start < stop:
        data = files.read(path, start, min(_CHUNK, stop - start))
        view, place, need = memoryview(data), 0, OVERHEAD
        while len(data) - place >= need:
            length, kind, stamp, switch, sequence = unpack(data, place)
            if length > largest or kind == 0:
                reason = "no record begins here" if kind == 0 else f"a length of {length} bytes"
                raise BadRecord(start + place, reason)
            end = place + head_bytes + length
            if end + _CHECK.size > len(data):
                need = length + OVERHEAD
                if place == 0 and start + need <= stop:
                    data = files.read(path, start, need)
                    view = memoryview(data)
                    continue
                break
            seed = ((base + start + place) ^ salt) & 0xFFFFFFFF
            if crc32(view[place:end], seed) != check(data, end)[0]:
                raise BadRecord(start + place, "a record whose checksum does not fit")
            payload = data[place + head_bytes : end]
            yield start + place, Record(kind, stamp, switch, sequence, payload)
            place, need = end + _CHECK.size, OVERHEAD
        start += place
        if start < stop and start + need > stop:
            raise BadRecord(start, "an incomplete record")
        if place == 0 and len(data) < need:
            raise BadRecord(start, "an incomplete record")


FORMAT = 1
LARGEST_IDENTITY = 32
UNNAMED = ".new"
_MAGIC = b"\x8bORDLOG\n"
# Magic, format, length of the identity, longest payload, base, salt, end of the segment before, identity.
_FIELDS = Struct(f"<8sHHIQII{LARGEST_IDENTITY}s")
HEADER = _FIELDS.size + _CHECK.size
_NAME = re.compile(r"[0-9]{20}\.log")


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment's file, the position of its first byte, and what its header says.

    `previous` is the last four bytes of the segment before, 0 in the first of a log.
    """

    path: Path
    base: Position
    salt: int
    largest: int
    previous: int

    def records(self, files: Files, start: Position, stop: Position) -> Iterator[tuple[int, Record]]:
        """Records between two positions, with their offset in the file; raises BadRecord."""
        offset = max(HEADER, start - self.base)
        return frames(files, self.path, self.base, self.salt, self.largest, offset, stop - self.base)


def segment_path(folder: Path, base: int) -> Path:
    """The file of the segment that begins at a position."""
    return folder / f"{base:020}.log"


def bases(files: Files, folder: Path) -> list[int]:
    """Where the segments of a folder begin, in order."""
    return sorted(int(name[:20]) for name in files.names(folder) if _NAME.fullmatch(name))


def create(
    files: Files, folder: Path, base: Position, identity: bytes, previous: int, largest: int
) -> tuple[Segment, int]:
    """Makes a segment that holds nothing, durably, and gives it with its handle.

    Raises OSError; what has been made by then has no name of a segment, unless the last step failed.
    """
    path = segment_path(folder, base)
    salt = int.from_bytes(os.urandom(4), "little")
    fields = _FIELDS.pack(_MAGIC, FORMAT, len(identity), largest, base, salt, previous, identity)
    unnamed = path.with_name(path.name + UNNAMED)
    handle = files.open(unnamed)
    try:
        files.truncate(handle, 0)
        write_all(files, handle, fields + _CHECK.pack(zlib.crc32(fields)), 0)
        files.sync(handle)
        files.rename(unnamed, path)
    except BaseException:
        with contextlib.suppress(OSError):
            files.close(handle)
        with contextlib.suppress(OSError):
            files.remove(unnamed)
        raise
    return Segment(path, base, salt, largest, previous), handle


def read_header(files: Files, path: Path, identity: bytes) -> Segment:
    """A segment as its header describes it; LogError for a damaged one, or another program's."""
    data = files.read(path, 0, HEADER)
    restore = "restore the file from a copy, or move the log away and start without it"
    if len(data) < HEADER or not data.startswith(_MAGIC):
        raise LogError(path, "does not begin as a segment of a log", restore, 0)
    _, version, length, largest, base, salt, previous, owner = _FIELDS.unpack_from(data)
    if version != FORMAT:
        text = f"is of format {version}, and this program reads format {FORMAT}"
        raise LogError(path, text, "use the version of the program that wrote the log, or move it away", 8)
    if zlib.crc32(data[: _FIELDS.size]) != _CHECK.unpack_from(data, _FIELDS.size)[0]:
        raise LogError(path, "the segment's header is damaged", restore, 0)
    if owner[:length] != identity:
        theirs, own = _named(owner[:length]), _named(identity)
        if theirs.rstrip("0123456789") == own.rstrip("0123456789"):
            text = f"has entries of another version of this program, {theirs!r}, and this reads {own!r}"
            remedy = "go on with the version of the program that wrote it, or move the log away to begin anew"
            raise LogError(path, text, remedy)
        raise LogError(
            path,
            f"the log is another program's ({theirs}, not {own})",
            "start the program that wrote it, or move the log away",
        )
    if path.name != f"{base:020}.log":
        raise LogError(path, f"the header is that of segment {base:020}.log", "give the file its name back")
    return Segment(path, Position(base), salt, largest, previous)


def _named(identity: bytes) -> str:
    """An identity as a person reads it: text, or the beginning of a hash."""
    text = identity.decode("ascii", "replace")
    return text if text.isascii() and text.isprintable() else identity.hex()[:16]


def end_checksum(files: Files, segment: Segment, stop: int) -> int:
    """The last four bytes before position `stop`: the checksum of a record or of the header."""
    data = files.read(segment.path, stop - segment.base - _CHECK.size, _CHECK.size)
    if len(data) < _CHECK.size:
        raise LogError(segment.path, "is shorter than it was", "restore the file from a copy")
    checksum: int = _CHECK.unpack(data)[0]
    return checksum
