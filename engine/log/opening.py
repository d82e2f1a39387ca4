"""What a folder holds of a log, judged without changing it.

A crash can leave one thing: the end of the last segment missing, or with holes. A segment is synced before
the next one is made, and the durable mark never leads. So whatever does not verify elsewhere, or below
the mark, is damage, which only a person can decide about.
"""

import contextlib
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from .errors import LogError, refused
from .files import Files
from .marks import MARK_NAME, read_mark
from .records import BadRecord, Position, frame_bytes
from .segments import HEADER, Segment, bases, end_checksum, read_header, segment_path


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
