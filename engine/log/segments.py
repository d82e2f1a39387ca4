"""Segments: the files `00000000000000000000.log` of a log, each named by the position it begins at.

A segment is a header and then frames. A header holds the checksum that the segment before it ends with,
so that a segment which is missing, or is another log's, shows. A file gets its name only once its
header is durable: a name that is there has a whole header, or the disk damaged it.
"""

import contextlib
import os
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from struct import Struct

from .errors import LogError
from .files import Files, write_all
from .records import Position, Record, frames

FORMAT = 1
LARGEST_IDENTITY = 32
UNNAMED = ".new"
_MAGIC = b"\x8bORDLOG\n"
# Magic, format, length of the identity, longest payload, base, salt, end of the segment before, identity.
_FIELDS = Struct(f"<8sHHIQII{LARGEST_IDENTITY}s")
_CHECK = Struct("<I")
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
