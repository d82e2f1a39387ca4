"""The checkpoints of a folder: each written whole or not at all, the newest good one found again.

A file appears under its name when its contents are on the disk, so that a crash leaves at most a file
that ends in `.partial`. Names count up; the highest is the newest.
"""

import contextlib
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from engine.log.files import Files, OsFiles

from .errors import CheckpointError
from .file import Content, Position, read_file, write_file
from .stored import Stored

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
