"""Sources: finite files of market data, opened by kind and path."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from glob import glob, has_magic
from pathlib import Path
from typing import Protocol, TypeVar

import numpy as np

from feeds.binance_capture import BinanceCaptureSource
from feeds.byte_stream import first_line
from feeds.capture import open_capture
from feeds.change_stream import Change, ChangeStreamSource
from feeds.database import TableSource, table_options
from feeds.databento import DatabentoSource, is_dbn
from feeds.itch import ItchSource
from feeds.itch_directory import is_itch
from feeds.lobster import LobsterSource
from feeds.parquet_record import RecordSource
from feeds.source_options import path_of, split_options
from feeds.tardis import open_tardis
from feeds.view_events import open_view_events
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

    KIND is `lobster` (a message file), `binance` (a capture of hftbacktest), `capture` (recorded raw frames
    of any exchange; a folder or glob is one feed's files by time), `record` (Parquet; a glob or a folder
    is all its files by name), `changes` (NDJSON), `itch` (NASDAQ), `dbn` (Databento), `tardis` (CSV; a
    glob or a folder is one source by time), `views` (view events) or `table` (URL#TABLE). `.gz` and `.zst`
    files are read as they are.

    Raises SourceError for an unknown kind, a missing file, or a file of no known kind.
    """
    kind, path = _kind_given(text)
    if kind:
        return _KINDS[kind](path)
    unknown, colon, _ = text.partition(":")
    if colon and re.fullmatch(r"[a-z][a-z0-9_-]+", unknown) and not Path(text).exists():
        raise SourceError(
            f"{text}: no kind of file source is called {unknown!r}; use {_KNOWN} before the colon"
        )
    return _KINDS[_detect(text)](text)


def _kind_given(text: str) -> tuple[str, str]:
    """The kind before the colon, empty where none is, and what is to be opened."""
    kind, colon, path = text.partition(":")
    return (kind, path) if colon and kind in _KINDS else ("", text)


def open_sources(texts: Sequence[str]) -> list[EventSource | ChangeSource]:
    """Open every source, and of a glob every file that is one; see `each_file`. Raises as `open_source`."""
    return [open_source(one) for text in texts for one in each_file(text)]


def each_file(text: str) -> list[str]:
    """The sources, by name, that a glob of files stands for; what stands for one alone.

    A file of LOBSTER, hftbacktest, ITCH, Databento or changes is a source, with the kind and the options that
    the glob has; LOBSTER's book files, which go with message files, are passed over. Captures, records and
    Tardis' files that a glob names are one source. Raises SourceError for a file of no known kind.
    """
    kind, path = _kind_given(text)
    place = path_of(path)
    if Path(path).exists() or Path(place).exists() or not has_magic(place):
        return [text]
    names = sorted(glob(place, recursive=True))
    if not names or (kind or _detect(names[0])) not in _BY_FILE:
        return [text]
    start, options = text.removesuffix(path), path[len(place) :]
    return [f"{start}{name}{options}" for name in names if "_orderbook_" not in Path(name).name]


def _detect(text: str) -> str:
    """The kind of the file at `text`, a path with or without options."""
    text = text if Path(text).exists() else path_of(text)
    path = Path(text)
    if path.is_dir() or (has_magic(text) and not path.exists()):
        places = path.iterdir() if path.is_dir() else map(Path, glob(text, recursive=True))
        names = [place.name for place in places]
        recorded = any(".jsonl" in name for name in names)
        return "capture" if recorded and not any(name.endswith(".parquet") for name in names) else "record"
    line = first_line(path)
    if not line:
        raise SourceError(f"{path}: empty; nothing to read")
    if line.startswith(b"PAR1"):
        return "record"
    if "_message_" in path.name or "_orderbook_" in path.name:
        return "lobster"
    if is_itch(line):
        return "itch"
    if is_dbn(path, line):
        return "dbn"
    if re.match(rb"\d+ \{", line):
        return "binance"
    if line.startswith(b"exchange,symbol,timestamp,local_timestamp,"):
        return "tardis"
    if re.match(rb'\s*\{\s*"t":', line):
        return "capture"
    if re.match(rb'\s*\{"view":', line):
        return "views"
    if re.match(rb"\s*\{", line):
        return "changes"
    raise SourceError(f"{path}: of no kind known by its content; write {_KNOWN} and a colon before the path")


def record_files(text: str) -> list[Path] | None:
    """The files of a source of the kind `record`, by name; None for another kind. Raises as `open_source`."""
    kind, path = _kind_given(text)
    if kind:
        return _record_paths(path) if kind == "record" else None
    if ":" in text and not Path(text).exists():
        return None
    return _record_paths(text) if _detect(text) == "record" else None


def _record_paths(text: str) -> list[Path]:
    path = Path(text)
    if path.is_dir():
        paths = sorted(path.glob("*.parquet"))
    elif path.exists() or not has_magic(text):
        paths = [path]
    else:
        paths = [Path(name) for name in sorted(glob(text, recursive=True))]
    if not paths:
        raise SourceError(f"{text}: no record files there; check the path")
    return paths


def _itch(text: str) -> ItchSource:
    path, options = split_options(text, ("date", "symbols"))
    symbols = options.get("symbols")
    return ItchSource(Path(path), symbols.split(",") if symbols is not None else None, options.get("date"))


def _dbn(text: str) -> DatabentoSource:
    path, options = split_options(text, ("tick",))
    return DatabentoSource(Path(path), options.get("tick"))


_KINDS: dict[str, Callable[[str], EventSource | ChangeSource]] = {
    "lobster": lambda path: LobsterSource(Path(path)),
    "binance": lambda path: BinanceCaptureSource(Path(path)),
    "record": lambda path: RecordSource(_record_paths(path)),
    "changes": lambda path: ChangeStreamSource(Path(path)),
    "itch": _itch,
    "dbn": _dbn,
    "tardis": open_tardis,
    "views": open_view_events,
    "capture": open_capture,
    "table": lambda text: TableSource(table_options(text)),
}
_KNOWN = ", ".join(_KINDS)
# Kinds of which one file is one source.
_BY_FILE = ("lobster", "binance", "changes", "itch", "dbn")
