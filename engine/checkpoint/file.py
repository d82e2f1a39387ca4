"""One checkpoint as a file: a header, then sections of bytes and arrays, everything under a CRC-32.

    magic (8) | format u32 | length of the header u32 | header | CRC u32
    for each section: contents | CRC u32

Numbers are little-endian. The header is MessagePack; it names the program, the place in the log and, for each
section, its name, dtype and shape, so that the length of the whole file follows from it.
"""

import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from struct import Struct

import msgspec
import numpy as np

from engine.log.files import Files, write_all

from .errors import CheckpointError
from .stored import Stored

FORMAT = 2
_MAGIC = b"OBCHECK\n"
_HEAD = Struct("<8sII")
_CHECK = Struct("<I")
_CHUNK = 1 << 20
# A header names tens of sections; a longer one is not believed before its checksum is known.
_LONGEST_HEADER = 1 << 26

# What a section is made of; several arrays of equal rows stand one behind the other.
Content = bytes | np.ndarray | Sequence[np.ndarray]
Position = int | str


class Section(msgspec.Struct, frozen=True, array_like=True):
    """What a section holds: `dtype` as numpy describes it, with or without fields; bytes are u1."""

    name: str
    dtype: str | list[tuple[str, str]]
    shape: tuple[int, ...]


class Header(msgspec.Struct, frozen=True):
    """What a checkpoint is of.

    program: the hash of the program. position: where the log goes on, as the writer says it. stamp: of
    the last event in it, ns.
    """

    program: bytes
    position: Position
    stamp: int
    sections: tuple[Section, ...]


def write_file(
    files: Files, path: Path, program: bytes, position: Position, stamp: int, contents: Mapping[str, Content]
) -> None:
    """Writes a file and syncs it. Raises OSError."""
    described = tuple(_section(name, content) for name, content in contents.items())
    header = msgspec.msgpack.encode(Header(program, position, stamp, described))
    head = _HEAD.pack(_MAGIC, FORMAT, len(header)) + header
    handle = files.open(path)
    try:
        files.truncate(handle, 0)
        at = _written(files, handle, [head], 0)
        for content in contents.values():
            at = _written(files, handle, _chunks(content), at)
        files.sync(handle)
    finally:
        files.close(handle)


def _written(files: Files, handle: int, parts: "Sequence[bytes] | Iterator[bytes]", at: int) -> int:
    """Writes parts and their CRC; returns where they end."""
    check = 0
    for part in parts:
        check = zlib.crc32(part, check)
        write_all(files, handle, part, at)
        at += len(part)
    write_all(files, handle, _CHECK.pack(check), at)
    return at + _CHECK.size


def _chunks(content: Content) -> Iterator[bytes]:
    for view in _parts(content):
        for start in range(0, len(view), _CHUNK):
            yield bytes(view[start : start + _CHUNK])


def _parts(content: Content) -> Iterator[memoryview]:
    if isinstance(content, bytes):
        yield memoryview(content)
        return
    for array in [content] if isinstance(content, np.ndarray) else content:
        yield memoryview(np.ascontiguousarray(array).reshape(-1).view(np.uint8))  # type: ignore[arg-type]


def _section(name: str, content: Content) -> Section:
    if isinstance(content, bytes):
        return Section(name, "|u1", (len(content),))
    arrays = [content] if isinstance(content, np.ndarray) else content
    first, count = arrays[0], sum(map(len, arrays))
    assert all((a.dtype, a.shape[1:]) == (first.dtype, first.shape[1:]) for a in arrays), name
    form = first.dtype.descr if first.dtype.names else first.dtype.str
    return Section(name, form, (count, *first.shape[1:]))  # type: ignore[arg-type]


def read_file(files: Files, path: Path) -> tuple[Header, dict[str, Stored]]:
    """The header and the sections of a file, all of which has been read and verified.

    Raises CheckpointError for anything but a whole and undamaged file of this format, OSError.
    """
    size = files.size(path)
    start = files.read(path, 0, _HEAD.size)
    if len(start) < _HEAD.size:
        raise CheckpointError(path, f"it ends within its header, after {size} bytes")
    magic, version, length = _HEAD.unpack(start)
    if magic != _MAGIC:
        raise CheckpointError(path, "it is no checkpoint")
    if version != FORMAT:
        how = "an earlier" if version < FORMAT else "a later"
        raise CheckpointError(
            path,
            f"it is of format {version}, which {how} version of this program wrote, and this one reads "
            f"{FORMAT}; go on with that version, or let the log be applied from its beginning",
        )
    at = _HEAD.size + length
    if length > min(size, _LONGEST_HEADER):
        raise CheckpointError(path, "its header is damaged or cut off")
    data = files.read(path, _HEAD.size, length)
    _check(files, path, zlib.crc32(data, zlib.crc32(start)), at, "header")
    try:
        header = msgspec.msgpack.decode(data, type=Header)
    except msgspec.DecodeError as error:
        raise CheckpointError(path, f"its header cannot be read: {error}") from error
    found = {}
    for section in header.sections:
        stored = Stored(files, path, at + _CHECK.size, _dtype(section), section.shape)
        found[section.name] = stored
        at = stored.offset + len(stored) * stored.row_bytes
        _check(files, path, _checksum(stored, at), at, f"section {section.name}")
    if at + _CHECK.size != size:
        raise CheckpointError(path, f"it is {size} bytes long, not {at + _CHECK.size}")
    return header, found


def _dtype(section: Section) -> np.dtype:
    return np.dtype(section.dtype)


def _checksum(stored: Stored, end: int) -> int:
    check = 0
    for at in range(stored.offset, end, _CHUNK):
        check = zlib.crc32(stored.files.read(stored.path, at, min(_CHUNK, end - at)), check)
    return check


def _check(files: Files, path: Path, found: int, at: int, what: str) -> None:
    """Compares a checksum with the one at a place of the file."""
    data = files.read(path, at, _CHECK.size)
    if len(data) < _CHECK.size:
        raise CheckpointError(path, f"it ends within its {what}")
    if data != _CHECK.pack(found):
        raise CheckpointError(path, f"the checksum of its {what} is wrong")
