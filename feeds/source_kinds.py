"""Sources: finite files of market data, opened by kind and path.

Where no kind is given, it is found by what the file holds.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, pairwise
from pathlib import Path

import msgspec
import pyarrow as pa

from orderbook.core.errors import SourceError, extra, nearest
from orderbook.feeds.byte_stream import Blocks, Lines, refuse_utf16
from orderbook.feeds.change_stream import ChangeSource, ChangeStreamSource
from orderbook.feeds.database_table import TableSource, table_options
from orderbook.feeds.exchanges.exchange import EXCHANGES
from orderbook.feeds.files.binance_capture import BinanceCaptureSource, NoDepthError
from orderbook.feeds.files.bybit_history import OPTIONS as BYBIT_OPTIONS
from orderbook.feeds.files.bybit_history import BybitHistorySource, is_bybit_trades
from orderbook.feeds.files.hyperliquid_capture import HyperliquidCaptureSource
from orderbook.feeds.files.itch import ItchSource
from orderbook.feeds.files.itch_format import is_itch
from orderbook.feeds.files.lobster import LobsterSource
from orderbook.feeds.files.row_file import open_rows
from orderbook.feeds.files.tardis import open_tardis
from orderbook.feeds.files.view_events import VIEWS_METADATA, open_view_events
from orderbook.feeds.recording.capture_files import begins_as_cryptofeed, is_cryptofeed_file
from orderbook.feeds.recording.capture_replay import open_captures
from orderbook.feeds.recording.parquet_record import LABELS, RecordSource, is_record, read_footer, times_of
from orderbook.feeds.source import EventSource
from orderbook.feeds.storage import (
    Place,
    files_at,
    is_glob,
    is_url,
    joined,
    open_parquet,
    parted,
    place,
    split_options,
)
from orderbook.feeds.text_values import scaled

KINDS = (
    "lobster",
    "binance",
    "record",
    "changes",
    "rows",
    "itch",
    "dbn",
    "tardis",
    "views",
    "capture",
    "table",
    "bybit",
    "hyperliquid",
)
KNOWN = ", ".join(KINDS)
# Lines that are looked at, so that a damaged first one does not hide what the file is.
_LINES, _SHOWN = 50, 100
_PACKETS = (
    b"\xd4\xc3\xb2\xa1",
    b"\xa1\xb2\xc3\xd4",
    b"\x4d\x3c\xb2\xa1",
    b"\xa1\xb2\x3c\x4d",
    b"\x0a\x0d\x0d\x0a",
)
_CAPTURE_LINES = ("session", "header", "connect", "disconnect", "send", "recv", "http")
_HFTBACKTEST = re.compile(rb"\s*\d[\d.eE+]*\s+\{")
_TARDIS = b"exchange,symbol,timestamp,local_timestamp,"
# What lies beside data and is none.
_BESIDE = re.compile(r"\..*|(?:license|readme|notice|checksums?)\b.*|.*\.(?:md|sha256|checksum)", re.I)


def kind_of(where: Place) -> str:
    """The kind of source that a file, folder or glob is, as `open_source` names it.

    Raises SourceError where it is none, which says how the file begins.
    """
    if is_glob(where) or where.is_dir():
        return _kind_of_several(where)
    blocks = Blocks(where)
    start = next((block for block in blocks if block.strip()), b"")
    if not start:
        if blocks.cut is not None:
            raise SourceError(f"{where}: {blocks.cut} before its first line; get the whole file again")
        raise SourceError(f"{where}: empty; nothing to read")
    return _binary(where, start) or _text(where, start)


def data_files(where: Place) -> list[Place]:
    """The files that a glob names, or of a folder those that may hold data, by name."""
    if is_glob(where):
        return files_at(where, ())
    files = [file for file in files_at(where, ["*"]) if not _BESIDE.fullmatch(file.name)]
    # A store would be asked about each.
    return [file for file in files if not (isinstance(file, Path) and file.is_dir())]


def _kind_of_several(where: Place) -> str:
    files = data_files(where)
    if not files or any(file.name.endswith(".parquet") for file in files):
        return "record"
    if any(".jsonl" in file.name or is_cryptofeed_file(file) for file in files):
        return "capture"
    return kind_of(files[0])


def _binary(where: Place, start: bytes) -> str | None:
    """The kind of a file that is no text. Raises SourceError for binary files of no kind."""
    refuse_utf16(where, start)
    if start.startswith(b"PAR1"):
        return _parquet(where)
    if is_itch(start):
        return "itch"
    # Fragments of DBN have only their name.
    if start.startswith(b"DBN") or ".dbn." in f"{where.name}.":
        return "dbn"
    if start.startswith(_PACKETS):
        raise SourceError(
            f"{where}: packets of a network (pcap): what exchanges send is encrypted in them; record frames "
            "instead, with `orderbook record` or the raw data collection of cryptofeed"
        )
    if start.startswith(b"SQLite format 3\0") or start[8:12] == b"DUCK":
        raise SourceError(f"{where}: a database; name its table: table:{where}#TABLE")
    if b"\0" in start:
        raise _unknown(where, start)
    return None


def _parquet(where: Place) -> str:
    try:
        with open_parquet(where) as file:
            schema = file.schema_arrow
    except (OSError, pa.ArrowException):
        # Whoever opens it as a record says what is wrong.
        return "record"
    if VIEWS_METADATA in (schema.metadata or {}):
        return "views"
    if is_record(schema):
        return "record"
    columns = ", ".join(schema.names[:8]) + (", …" if schema.names[8:] else "")
    raise SourceError(
        f"{where}: Parquet, but neither a record of events nor view events: its columns are {columns}; "
        f"if they are a stream's, write rows:{where}?relation=STREAM"
    )


def _text(where: Place, start: bytes) -> str:
    file = Lines(where)
    lines = [line for line in islice(file, _LINES) if line.strip()]
    if not lines and file.cut is not None:
        raise SourceError(f"{where}: {file.cut} before its first line; get the whole file again")
    named = "_message_" in where.name or "_orderbook_" in where.name
    for number, line in enumerate(lines, 1):
        rows = lines[number:]
        found = _json(line) if line.lstrip().startswith(b"{") else _plain(line, rows, named)
        if found is not None:
            return found
    raise _unknown(where, lines[0] if lines else start)


def _json(line: bytes) -> str | None:
    try:
        found = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if not isinstance(found, Mapping):
        return None
    if found.get("t") in _CAPTURE_LINES:
        return "capture"
    if "view" in found and "key" in found:
        return "views"
    if "stream" in found and ("op" in found or "row" in found):
        return "changes"
    topic = found.get("topic")
    return "bybit" if isinstance(topic, str) and topic.startswith(("orderbook.", "publicTrade.")) else None


def _plain(line: bytes, rows: Sequence[bytes], named: bool) -> str | None:
    if _HFTBACKTEST.match(line):
        return "hyperliquid" if b'{"channel":' in line else "binance"
    if begins_as_cryptofeed(line):
        return "capture"
    bare = line.replace(b'"', b"").replace(b" ", b"").lower()
    if bare.startswith(_TARDIS):
        return "tardis"
    if is_bybit_trades(line, rows[:1]):
        return "bybit"
    return "lobster" if _is_lobster(line, named) else None


def _is_lobster(line: bytes, named: bool) -> bool:
    """Whether a line is one of LOBSTER, or, where the file is named so, numbers."""
    try:
        numbers = [scaled(field.decode("ascii"), 9)[0] for field in line.split(b",")]
    except ValueError:
        return False
    if named:
        return len(numbers) >= 4
    time, kind, direction = (numbers[0], numbers[1], numbers[-1]) if len(numbers) == 6 else (-1, 0, 0)
    return 0 <= time < 86_400 * 10**9 and kind in range(10**9, 8 * 10**9, 10**9) and abs(direction) == 10**9


def _unknown(where: Place, start: bytes) -> SourceError:
    shown = ascii(start[:_SHOWN].decode("utf-8", "replace")) + ("…" if len(start) > _SHOWN else "")
    return SourceError(
        f"{where}: of no kind known by its content; it begins {shown}; "
        f"write {KNOWN} and a colon before the path; rows of a stream are rows:{where}?relation=STREAM"
    )


Opened = EventSource | ChangeSource


def open_source(text: str, *more: str) -> Opened:
    """Open `KIND:PATH` or PATH, whose kind is then found by content and name.

    KIND is `lobster` (a message file), `binance` and `hyperliquid` (captures of hftbacktest), `capture`
    (recorded raw frames of any exchange; a folder or glob is one feed's files by time), `record`
    (Parquet; a glob or a folder is all its files by time), `changes` (NDJSON), `rows` (CSV, JSON lines or
    Parquet of a relation's rows), `itch` (NASDAQ), `dbn`
    (Databento), `tardis` (CSV; a glob or a folder is one source by time), `views` (view events), `bybit`
    (public history of books and trades) or `table` (URL#TABLE). `.gz`, `.zst` and `.zip` files are read
    as they are. PATH may be the URL of a file, folder or glob in a store (`orderbook.feeds.storage`).

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
        if (span := getattr(source, "span", None)) is not None:
            own.spans = [span]
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


def has_files(text: str) -> bool:
    """Whether a glob or folder has files yet; True for what stands for itself. Raises SourceError."""
    kind, path = _kind_given(text)
    where = _place(path)
    if kind and kind not in {*_BY_FILE, "record"}:
        return True
    return bool(data_files(where)) if is_glob(where) or where.is_dir() else where.exists()


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
    # Labels of injected abuse lie beside their record.
    files = [file for file in files if len(files) == 1 or not file.name.endswith(LABELS)]
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


def _hyperliquid(*texts: str) -> HyperliquidCaptureSource:
    return HyperliquidCaptureSource([place(text) for text in texts])


def _bybit(*texts: str) -> BybitHistorySource:
    split = [split_options(text, BYBIT_OPTIONS) for text in texts]
    return BybitHistorySource([place(path) for path, _ in split], split[0][1])


def _dbn(*texts: str) -> Opened:
    with extra("databento", "databento_dbn"):
        from orderbook.feeds.files.databento import open_dbn
    return open_dbn(*texts)


_KINDS: dict[str, Callable[[str], Opened]] = {
    "lobster": lambda path: LobsterSource(place(path)),
    "binance": _binance,
    "record": _record,
    "changes": lambda path: ChangeStreamSource(place(path)),
    "rows": open_rows,
    "itch": _itch,
    "dbn": _dbn,
    "tardis": open_tardis,
    "views": open_view_events,
    "capture": open_captures,
    "table": lambda text: TableSource(table_options(text)),
    "bybit": _bybit,
    "hyperliquid": _hyperliquid,
}
# Kinds of which one file is one source …
_BY_FILE = ("lobster", "binance", "changes", "rows", "itch", "dbn", "views", "bybit", "hyperliquid")
# … and those whose sources of one feed are one.
_SEVERAL: dict[str, Callable[..., Opened]] = {
    "binance": _binance,
    "bybit": _bybit,
    "capture": open_captures,
    "dbn": _dbn,
    "hyperliquid": _hyperliquid,
    "tardis": open_tardis,
}
# Not the drive of a path.
_LIKE_KIND = re.compile(r"[A-Za-z][A-Za-z0-9_-]+")
