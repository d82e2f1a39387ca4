"""The checkpoints of a folder: each written whole or not at all, the newest good one found again.

A file appears under its name when its contents are on the disk, so that a crash leaves at most a file
that ends in `.partial`. Names count up; the highest is the newest.

One checkpoint as a file: a header, then sections of bytes and arrays, everything under a CRC-32.

    magic (8) | format u32 | length of the header u32 | header | CRC u32
    for each section: contents | CRC u32

Numbers are little-endian. The header is MessagePack; it names the program, the place in the log and, for
each section, its name, dtype and shape, so that the length of the whole file follows from it. What cannot
be written, read or trusted is a CheckpointError.
"""

import contextlib
import logging
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from struct import Struct

import msgspec
import numpy as np

from orderbook.core.errors import OrderbookError
from orderbook.core.files import Content, Files, OsFiles, Stored, write_all


class CheckpointError(OrderbookError):
    """A checkpoint that cannot be written, read or trusted: one line that names the file and why."""

    def __init__(self, path: Path, problem: str):
        super().__init__(f"{path}: {problem}")
        self.path, self.problem = path, problem


FORMAT = 2
_MAGIC = b"OBCHECK\n"
_HEAD = Struct("<8sII")
_CHECK = Struct("<I")
_CHUNK = 1 << 20
# A header names tens of sections; a longer one is not believed before its checksum is known.
_LONGEST_HEADER = 1 << 26

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


_PREFIX, _SUFFIX, _PARTIAL = "checkpoint-", ".state", ".partial"
_LOG = logging.getLogger("orderbook.checkpoint")

# What one owner saves: arrays and bytes by name.
Sections = Mapping[str, Content]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint that has been verified; its file must stay while it is read.

    program: the hash of its program. position: where the log goes on after it. stamp: of the last event
    in it, ns.
    """

    path: Path
    program: bytes
    position: Position
    stamp: int
    sections: Mapping[str, Stored]

    def part(self, owner: str) -> dict[str, Stored]:
        """The sections that `write_checkpoint` was given for an owner; empty where it was not among them."""
        start = f"{owner}/"
        return {n.removeprefix(start): s for n, s in self.sections.items() if n.startswith(start)}


def write_checkpoint(
    folder: Path,
    parts: Mapping[str, Sections],
    *,
    program: bytes,
    position: Position,
    stamp: int,
    keep: int = 2,
    files: Files | None = None,
) -> Path:
    """Writes what each owner saved as the newest checkpoint of a folder; returns its path.

    Once it returns the checkpoint survives a power failure. Of others the last `keep` - 1 stay. It reads
    `parts` alone, so it may run in a thread, one at a time for a folder. Raises CheckpointError where the
    disk refuses; what was there before is there still.
    """
    files = OsFiles() if files is None else files
    contents = {f"{owner}/{name}": c for owner, own in parts.items() for name, c in own.items()}
    try:
        files.make_folder(folder)
        numbers = _numbers(files, folder)
        path = _path(folder, max(numbers, default=0) + 1)
        _publish(files, path, program, position, stamp, contents)
    except OSError as error:
        problem = f"no checkpoint can be written: {error.strerror or error}; see to the disk"
        raise CheckpointError(folder, problem) from error
    for number in sorted(numbers, reverse=True)[max(keep - 1, 0) :]:
        # One that stays is removed after the next.
        with contextlib.suppress(OSError):
            files.remove(_path(folder, number))
    return path


def _publish(
    files: Files, path: Path, program: bytes, position: Position, stamp: int, contents: Sections
) -> None:
    partial = path.with_suffix(_PARTIAL)
    for name in files.names(path.parent):
        if name.startswith(_PREFIX) and name.endswith(_PARTIAL):
            files.remove(path.parent / name)
    try:
        write_file(files, partial, program, position, stamp, contents)
        files.rename(partial, path)
    except OSError:
        with contextlib.suppress(OSError):
            files.remove(partial)
        raise
    files.sync_folder(path.parent)


def newest_checkpoint(
    folder: Path, program: bytes, files: Files | None = None, *, before: int | None = None
) -> Checkpoint | None:
    """The newest checkpoint of a program whose whole file verifies; None where there is none.

    before: only of those whose last event has an earlier stamp, ns.

    One of another program is passed over with a warning that names it, as `checkpoints` does with others.
    """
    for found in checkpoints(folder, files):
        if found.program != program:
            other = "%s: it is of another program; an older checkpoint or the log is used instead"
            _LOG.warning(other, found.path)
        elif before is None or found.stamp < before:
            return found
    return None


def checkpoints(folder: Path, files: Files | None = None) -> Iterator[Checkpoint]:
    """The checkpoints of a folder whose whole file verifies, the newest first, of whatever program.

    A file that is torn, damaged or of another format is passed over with a warning that says why.
    """
    files = OsFiles() if files is None else files
    try:
        numbers = _numbers(files, folder)
    except FileNotFoundError:
        return
    except OSError as error:
        _LOG.warning("%s: cannot be read: %s; the log is used instead", folder, error.strerror or error)
        return
    for number in sorted(numbers, reverse=True):
        path = _path(folder, number)
        try:
            header, sections = read_file(files, path)
        except CheckpointError as error:
            _LOG.warning("%s; an older checkpoint or the log is used instead", error)
        except OSError as error:
            _LOG.warning("%s: it cannot be read: %s; it is passed over", path, error.strerror or error)
        else:
            yield Checkpoint(path, header.program, header.position, header.stamp, sections)


def _numbers(files: Files, folder: Path) -> list[int]:
    names = [n for n in files.names(folder) if n.startswith(_PREFIX) and n.endswith(_SUFFIX)]
    digits = [n.removeprefix(_PREFIX).removesuffix(_SUFFIX) for n in names]
    return [int(d) for d in digits if d.isascii() and d.isdecimal() and _path(folder, int(d)).name in names]


def _path(folder: Path, number: int) -> Path:
    return folder / f"{_PREFIX}{number:012d}{_SUFFIX}"
