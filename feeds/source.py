"""Sources: finite files of market data, opened by kind and path."""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Protocol, TypeVar

import numpy as np

from feeds.binance_capture import BinanceCaptureSource, NoDepthError
from feeds.bybit_history import OPTIONS as BYBIT_OPTIONS
from feeds.bybit_history import BybitHistorySource
from feeds.capture import open_captures
from feeds.change_stream import Change, ChangeStreamSource
from feeds.database import TableSource, table_options
from feeds.databento import DatabentoSource, open_dbn
from feeds.exchanges.registry import EXCHANGES
from feeds.file_kinds import KNOWN, data_files, kind_of
from feeds.itch import ItchSource
from feeds.lobster import LobsterSource
from feeds.parquet_record import RecordSource, read_footer, times_of
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


Opened = EventSource | ChangeSource


def open_source(text: str, *more: str) -> Opened:
    """Open `KIND:PATH` or PATH, whose kind is then found by content and name.

    KIND is `lobster` (a message file), `binance` (a capture of hftbacktest), `capture` (recorded raw frames
    of any exchange; a folder or glob is one feed's files by time), `record` (Parquet; a glob or a folder
    is all its files by time), `changes` (NDJSON), `itch` (NASDAQ), `dbn` (Databento), `tardis` (CSV; a
    glob or a folder is one source by time), `views` (view events), `bybit` (public history of books and
    trades) or `table` (URL#TABLE). `.gz`, `.zst` and `.zip` files are read as they are. PATH may be the URL
    of a file, folder or glob in a store (`feeds.places`).

    more: further files of the same feed, as `open_streams` puts them together; all are one source by time.

    Raises SourceError for an unknown kind, a missing file, or a file of no known kind; StoreError where a
    store refuses or cannot be reached.
    """
    kind, path = _kind_given(text)
    kind = kind or kind_of(_place(path))
    if not more:
        return _KINDS[kind](path)
    return _SEVERAL[kind](path, *(_kind_given(one)[1] for one in more))


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
        hint = f"; did you mean {near!r}?" if near else ""
        raise SourceError(
            f"{text}: no kind of file source is called {kind!r}; use {KNOWN} before the colon{hint}"
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
        f"exchanges and others are {', '.join(others)}; kinds of files {KNOWN}"
    )


def _place(text: str) -> Place:
    """The place of a path with or without options behind it."""
    return Path(text) if not is_url(text) and Path(text).exists() else place(parted(text)[0])


@dataclass(frozen=True, slots=True)
class Stream:
    """An opened source, and the texts of the files that it was made of, as `open_source` takes them.

    anew: its books begin empty, though another source has told of them before.
    """

    texts: tuple[str, ...]
    source: Opened
    anew: bool = False


def open_sources(texts: Sequence[str]) -> list[Opened]:
    """Open every source, and of a glob every file that is one, as `open_streams` puts them together."""
    return [stream.source for stream in open_streams(one for text in texts for one in each_file(text))]


def open_streams(
    texts: Iterable[str], opened: Callable[[Sequence[str]], Iterable[Opened | SourceError]] | None = None
) -> list[Stream]:
    """Open sources, of which those that are files of one feed are one source by time, whatever their order.

    A capture of hftbacktest, a recording, Tardis' files, DBN and Bybit's history go on from one file to the
    next. A file of LOBSTER is a day of its own, with books that begin anew. Raises as `open_source`.

    opened: opens the sources of texts; NoDepthError stands for a part that does not tell its market alone.
    """
    texts = list(texts)
    feeds: list[_Feed] = []
    parts: list[tuple[str, NoDepthError]] = []
    for text, source in zip(texts, (opened or _all_opened)(texts), strict=True):
        if isinstance(source, NoDepthError):
            parts.append((text, source))
        elif isinstance(source, SourceError):
            raise source
        else:
            _join(feeds, text, source)
    for text, error in parts:
        own = [feed for feed in feeds if feed.kind == "binance"]
        if len(own) != 1:
            raise error
        own[0].texts[text] = None
    begins: dict[str, int] = {}
    for feed in feeds:
        if isinstance(feed.source, LobsterSource):
            name = str(feed.source.instruments[0])
            begins[name] = min(begins.get(name, feed.source.begin), feed.source.begin)
    return [feed.stream(begins) for feed in feeds]


def _all_opened(texts: Sequence[str]) -> Iterator[Opened | SourceError]:
    """Each opened; a part that needs others stands for itself where there are any."""
    for text in texts:
        try:
            yield open_source(text)
        except NoDepthError as error:
            if len(texts) == 1:
                raise
            yield error


@dataclass(slots=True)
class _Feed:
    """Files of one kind and options that share what they tell of (`keys`)."""

    kind: str
    options: tuple[str, ...]
    keys: set[str]
    source: Opened
    texts: dict[str, None] = field(default_factory=dict)
    # Of DBN: times that were asked for, and first records; they do not overlap, or are parts of one time.
    spans: list[tuple[tuple[int, int], int]] = field(default_factory=list)

    def goes_with(self, other: "_Feed") -> bool:
        if (self.kind, self.options) != (other.kind, other.options) or self.keys.isdisjoint(other.keys):
            return False
        pairs = ((a, b) for a in self.spans for b in other.spans)
        return all(
            one[0] >= two[1] or two[0] >= one[1] or (one == two and first != second)
            for (one, first), (two, second) in pairs
        )

    def stream(self, begins: dict[str, int]) -> Stream:
        texts = tuple(self.texts)
        source = self.source if len(texts) == 1 else open_source(*texts)
        anew = isinstance(source, LobsterSource) and source.begin > begins[str(source.instruments[0])]
        if isinstance(source, LobsterSource):
            source.anew = anew
        return Stream(texts, source, anew)


def _join(feeds: list[_Feed], text: str, source: Opened) -> None:
    """Put a source with those that it belongs to, which may be several that had nothing in common before."""
    kind = source.name.partition(":")[0]
    own = _Feed(kind, tuple(parted(_kind_given(text)[1])[1]), set(), source, {text: None})
    if kind in _SEVERAL:
        stated = getattr(source, "feeds", None)
        own.keys = set(map(str, getattr(source, "instruments", ())) if stated is None else stated)
        if isinstance(source, DatabentoSource):
            own.spans = [source.span]
    same = [feed for feed in feeds if feed.goes_with(own)]
    if not same:
        feeds.append(own)
        return
    first, *others = same
    for other in (*others, own):
        first.keys |= other.keys
        first.texts |= other.texts
        first.spans += other.spans
    for other in others:
        feeds.remove(other)


def each_file(text: str) -> list[str]:
    """The sources, by name, that a glob of files, or a folder of them, stands for; what stands for one alone.

    A file of LOBSTER, hftbacktest, ITCH, Databento, Bybit, of changes or view events is a source, with the
    kind and the options that the glob has; LOBSTER's book files, which go with message files, are passed
    over. Captures, records and Tardis' files that a glob names are one source. Raises SourceError for a file
    of no known kind.
    """
    kind, path = _kind_given(text)
    if kind and kind not in _BY_FILE:
        return [text]
    where = _place(path)
    files = data_files(where) if is_glob(where) or where.is_dir() else []
    if not files or (kind or kind_of(where)) not in _BY_FILE:
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


def record_files(text: str) -> list[Place] | None:
    """The files of a source of the kind `record`, by name; None for another kind. Raises as `open_source`."""
    kind, path = _kind_given(text)
    return _record_paths(path) if (kind or kind_of(_place(path))) == "record" else None


def _record_paths(text: str) -> list[Place]:
    files = files_at(place(text), ["*.parquet"])
    if not files:
        raise SourceError(f"{text}: no record files there; check the path")
    return files


def _record(text: str) -> RecordSource:
    """Files by time; those whose times overlap by name."""
    files = _record_paths(text)
    if len(files) > 1:
        found = sorted((times_of(read_footer(file)[1]), str(file), file) for file in files)
        if all(before[1] <= begin for (before, *_), ((begin, _), *_) in pairwise(found)):
            files = [file for *_, file in found]
    return RecordSource(files)


def _itch(text: str) -> ItchSource:
    path, options = split_options(text, ("date", "symbols"))
    symbols = options.get("symbols")
    return ItchSource(place(path), symbols.split(",") if symbols is not None else None, options.get("date"))


def _binance(*texts: str) -> BinanceCaptureSource:
    return BinanceCaptureSource([place(text) for text in texts])


def _bybit(*texts: str) -> BybitHistorySource:
    split = [split_options(text, BYBIT_OPTIONS) for text in texts]
    return BybitHistorySource([place(path) for path, _ in split], split[0][1])


_KINDS: dict[str, Callable[[str], Opened]] = {
    "lobster": lambda path: LobsterSource(place(path)),
    "binance": _binance,
    "record": _record,
    "changes": lambda path: ChangeStreamSource(place(path)),
    "itch": _itch,
    "dbn": open_dbn,
    "tardis": open_tardis,
    "views": open_view_events,
    "capture": open_captures,
    "table": lambda text: TableSource(table_options(text)),
    "bybit": _bybit,
}
# Kinds of which one file is one source …
_BY_FILE = ("lobster", "binance", "changes", "itch", "dbn", "views", "bybit")
# … and those whose sources of one feed are one.
_SEVERAL: dict[str, Callable[..., Opened]] = {
    "binance": _binance,
    "bybit": _bybit,
    "capture": open_captures,
    "dbn": open_dbn,
    "tardis": open_tardis,
}
# Not the drive of a path.
_LIKE_KIND = re.compile(r"[A-Za-z][A-Za-z0-9_-]+")
