"""Sources: finite files of market data, opened by kind and path."""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from glob import glob, has_magic
from pathlib import Path
from typing import Protocol, TypeVar

import numpy as np

from feeds.binance_capture import BinanceCaptureSource
from feeds.byte_stream import first_line
from feeds.change_stream import Change, ChangeStreamSource
from feeds.lobster import LobsterSource
from feeds.parquet_record import RecordSource
from orderbook.errors import SourceError
from orderbook.instruments import Instruments
from orderbook.problems import Problems

Batch = TypeVar("Batch", covariant=True)


class Source(Protocol[Batch]):
    """A finite source, iterated in bounded memory; every iteration starts at the beginning.

    `problems` counts what was wrong and did not stop it, `counts` what else is worth reporting; both
    are complete after the iteration. Iteration raises SourceError where the input is truncated, after
    everything before the cut was given.
    """

    @property
    def name(self) -> str:
        """The source as KIND:PATH."""

    @property
    def problems(self) -> Problems: ...

    @property
    def counts(self) -> Counter[str]: ...

    @property
    def progress(self) -> float:
        """Fraction of the input read so far, 0 to 1."""

    def __iter__(self) -> Iterator[Batch]: ...


class EventSource(Source[np.ndarray], Protocol):
    """A source of EVENT batches that do not split messages; `instruments` is known from the start."""

    @property
    def instruments(self) -> Instruments: ...


class ChangeSource(Source[list[Change]], Protocol):
    """A source of changes of a program's relations."""


def open_source(text: str) -> EventSource | ChangeSource:
    """Open `KIND:PATH` or PATH, whose kind is then found by content and name.

    KIND is `lobster` (a message file), `binance` (a raw capture), `record` (Parquet; a glob or a folder
    is all its files by name) or `changes` (NDJSON). `.gz` and `.zst` files are read as they are.

    Raises SourceError for an unknown kind, a missing file, or a file of no known kind.
    """
    kind, colon, path = text.partition(":")
    if colon and kind in _KINDS:
        return _KINDS[kind](path)
    if colon and re.fullmatch(r"[a-z][a-z0-9_-]+", kind) and not Path(text).exists():
        raise SourceError(f"{text}: no kind of file source is called {kind!r}; use {_KNOWN} before the colon")
    return _KINDS[_detect(text)](text)


def _detect(text: str) -> str:
    """The kind of the file at `text`."""
    path = Path(text)
    if path.is_dir() or (has_magic(text) and not path.exists()):
        return "record"
    line = first_line(path)
    if not line:
        raise SourceError(f"{path}: empty; nothing to read")
    if line.startswith(b"PAR1"):
        return "record"
    if "_message_" in path.name or "_orderbook_" in path.name:
        return "lobster"
    if re.match(rb"\d+ \{", line):
        return "binance"
    if re.match(rb"\s*\{", line):
        return "changes"
    raise SourceError(f"{path}: of no kind known by its content; write {_KNOWN} and a colon before the path")


def _record(text: str) -> RecordSource:
    path = Path(text)
    if path.is_dir():
        paths = sorted(path.glob("*.parquet"))
    elif path.exists() or not has_magic(text):
        paths = [path]
    else:
        paths = [Path(name) for name in sorted(glob(text, recursive=True))]
    if not paths:
        raise SourceError(f"{text}: no record files there; check the path")
    return RecordSource(paths)


_KINDS: dict[str, Callable[[str], EventSource | ChangeSource]] = {
    "lobster": lambda path: LobsterSource(Path(path)),
    "binance": lambda path: BinanceCaptureSource(Path(path)),
    "record": _record,
    "changes": lambda path: ChangeStreamSource(Path(path)),
}
_KNOWN = ", ".join(_KINDS)
