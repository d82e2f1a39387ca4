"""Sources: finite files of market data, opened by kind and path."""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

import numpy as np

from feeds.binance_capture import BinanceCaptureSource
from feeds.byte_stream import first_line
from feeds.capture import open_capture
from feeds.change_stream import Change, ChangeStreamSource
from feeds.database import TableSource, table_options
from feeds.databento import DatabentoSource, is_dbn
from feeds.exchanges.registry import EXCHANGES
from feeds.itch import ItchSource
from feeds.itch_directory import is_itch
from feeds.lobster import LobsterSource
from feeds.parquet_record import RecordSource
from feeds.places import Place, files_at, is_glob, is_url, place
from feeds.source_options import joined, parted, split_options
from feeds.tardis import open_tardis
from feeds.view_events import open_view_events
from orderbook.configuration_errors import nearest
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
    files are read as they are. PATH may be the URL of a file, folder or glob in a store (`feeds.places`).

    Raises SourceError for an unknown kind, a missing file, or a file of no known kind; StoreError where a
    store refuses or cannot be reached.
    """
    kind, path = _kind_given(text)
    return _KINDS[kind or _detect(_place(path))](path)


def _kind_given(text: str) -> tuple[str, str]:
    """The kind before the colon, empty where none is, and what is to be opened.

    Raises SourceError where what stands before the colon is no kind.
    """
    kind, colon, path = text.partition(":")
    if not colon or is_url(text):
        return "", text
    if kind in _KINDS:
        return kind, path
    if _LIKE_KIND.fullmatch(kind) and not Path(text).exists():
        if kind in EXCHANGES:
            raise SourceError(f"{text}: {kind} is an exchange; follow it with `orderbook run --feed {text}`")
        near = nearest(kind.lower(), [*_KINDS, *EXCHANGES])
        hint = f"did you mean {near!r}? " if near else ""
        raise SourceError(
            f"{text}: no kind of file source is called {kind!r}; {hint}use {_KNOWN} before the colon"
        )
    return "", text


def unknown_kind(text: str, others: Collection[str]) -> str | None:
    """What is wrong with KIND:REST that is neither a source nor of the `others`; None where nothing is."""
    kind, colon, _ = text.partition(":")
    if not colon or is_url(text) or kind in _KINDS or kind in others:
        return None
    if not _LIKE_KIND.fullmatch(kind) or Path(text).exists():
        return None
    near = nearest(kind.lower(), [*_KINDS, *others])
    hint = f"did you mean {near!r}? " if near else ""
    return (
        f"no exchange and no kind of file is called {kind!r}; {hint}"
        f"exchanges and others are {', '.join(others)}; kinds of files {_KNOWN}"
    )


def _place(text: str) -> Place:
    """The place of a path with or without options behind it."""
    return Path(text) if not is_url(text) and Path(text).exists() else place(parted(text)[0])


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
    if kind and kind not in _BY_FILE:
        return [text]
    where = _place(path)
    files = files_at(where, ()) if is_glob(where) else []
    if not files or (kind or _detect(files[0])) not in _BY_FILE:
        return [text]
    start, options = text.removesuffix(path), parted(path)[1]
    return [start + joined(str(file), options) for file in files if "_orderbook_" not in file.name]


def absolute(text: str) -> str:
    """A source whose path does not depend on the working folder; URLs of stores as they are."""
    kind, path = _kind_given(text)
    if is_url(path) and not path.startswith("file://"):
        return text
    where = Path(str(place(path)))
    return f"{kind}:{where.absolute()}" if kind else str(where.resolve())


def _detect(where: Place) -> str:
    """The kind of the file, the folder or the glob at a place."""
    if is_glob(where) or where.is_dir():
        names = [file.name for file in files_at(where, ["*"])]
        recorded = any(".jsonl" in name for name in names)
        return "capture" if recorded and not any(name.endswith(".parquet") for name in names) else "record"
    line = first_line(where)
    if not line:
        raise SourceError(f"{where}: empty; nothing to read")
    if line.startswith(b"PAR1"):
        return "record"
    if "_message_" in where.name or "_orderbook_" in where.name:
        return "lobster"
    if is_itch(line):
        return "itch"
    if is_dbn(where, line):
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
    raise SourceError(f"{where}: of no kind known by its content; write {_KNOWN} and a colon before the path")


def record_files(text: str) -> list[Place] | None:
    """The files of a source of the kind `record`, by name; None for another kind. Raises as `open_source`."""
    kind, path = _kind_given(text)
    return _record_paths(path) if (kind or _detect(_place(path))) == "record" else None


def _record_paths(text: str) -> list[Place]:
    files = files_at(place(text), ["*.parquet"])
    if not files:
        raise SourceError(f"{text}: no record files there; check the path")
    return files


def _itch(text: str) -> ItchSource:
    path, options = split_options(text, ("date", "symbols"))
    symbols = options.get("symbols")
    return ItchSource(place(path), symbols.split(",") if symbols is not None else None, options.get("date"))


def _dbn(text: str) -> DatabentoSource:
    path, options = split_options(text, ("tick",))
    return DatabentoSource(place(path), options.get("tick"))


_KINDS: dict[str, Callable[[str], EventSource | ChangeSource]] = {
    "lobster": lambda path: LobsterSource(place(path)),
    "binance": lambda path: BinanceCaptureSource(place(path)),
    "record": lambda path: RecordSource(_record_paths(path)),
    "changes": lambda path: ChangeStreamSource(place(path)),
    "itch": _itch,
    "dbn": _dbn,
    "tardis": open_tardis,
    "views": open_view_events,
    "capture": open_capture,
    "table": lambda text: TableSource(table_options(text)),
}
_KNOWN = ", ".join(_KINDS)
# Not the drive of a path.
_LIKE_KIND = re.compile(r"[A-Za-z][A-Za-z0-9_-]+")
# Kinds of which one file is one source.
_BY_FILE = ("lobster", "binance", "changes", "itch", "dbn")
