"""The files of a recording: what it is of, and its lines in the order of time, over all its files.

Files, exchange and instruments are known from first lines or, of a foreign recording, from all of it.
Beside our own (see `raw_log.py`) and those of cryptofeed 3, recordings of cryptofeed up to version 2.5 are
read: text, a file for each connection and one for what was asked.

Source: cryptofeed, `raw_data_collection.AsyncFileCallback`. Times are in seconds since 1970 UTC:

    URL <-> time                   a connection begins
    URL <- time: text              a message was sent
    URL -> time: text              the answer to a GET; `text header: {…}` where its headers were kept
    time: text                     a message was received; b'…' where it was of bytes
    configuration: {…}             what the program had subscribed to

EXCHANGE.ws.ID.N is part N of a connection, EXCHANGE.http.ID.N and EXCHANGE.N have answers.
"""

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import merge
from itertools import takewhile
from typing import Any

import msgspec

from orderbook.core.errors import Problems, SourceError
from orderbook.feeds.byte_stream import Lines, first_line, shown
from orderbook.feeds.exchanges.exchange import CONNECTIONS, EXCHANGES, exchange
from orderbook.feeds.raw_log import FORMAT, Line
from orderbook.feeds.storage import Place, files_at
from orderbook.feeds.text_values import scaled
from orderbook.market.instruments import Instrument

_FILE = re.compile(r"(?P<conn>(?P<exchange>[A-Z][A-Z0-9_.]*?)(?P<ws>\.(?:ws|http)\.[^.]+)?)\.(?P<part>\d+)")
_PACKED = re.compile(r"\.(?:gz|zst|zip)$")
_LINE = re.compile(
    rb"(?:(?P<url>(?:wss?|https?)://\S+) (?P<way><->|<-|->) )?(?P<time>[0-9.eE+]+)(?:: (?P<data>.*))?",
    re.DOTALL,
)
_KINDS = {b"<->": "connect", b"<-": "send", b"->": "http", None: "recv"}
_HEADERS = b" header: {"


def is_cryptofeed_file(path: Place) -> bool:
    """Whether a file has the name of one."""
    return _FILE.fullmatch(_bare(path)) is not None


def begins_as_cryptofeed(line: bytes) -> bool:
    """Whether a line is one of a recording."""
    if line.startswith(b"configuration: {"):
        return True
    found = _LINE.fullmatch(line)
    if found is None or (found["way"] != b"<->" and found["data"] is None):
        return False
    return found["way"] is not None or re.fullmatch(rb"\d{9,10}(\.\d+)?", found["time"]) is not None


def cryptofeed_exchange(path: Place) -> str:
    """The exchange that a file is named after, in capitals; its whole name where it is named otherwise."""
    found = _FILE.fullmatch(_bare(path))
    return path.name if found is None else found["exchange"]


def with_cryptofeed_answers(paths: Iterable[Place]) -> list[Place]:
    """The files of a recording in the order of connections and parts, with the answers beside them."""
    paths = list(paths)
    found = dict.fromkeys(paths)
    for path in paths:
        own = cryptofeed_exchange(path)
        if path.parent.is_dir():
            for beside in path.parent.glob(f"{own}.*"):
                if (
                    is_cryptofeed_file(beside)
                    and cryptofeed_exchange(beside) == own
                    and ".ws." not in beside.name
                ):
                    found[beside] = None
    return sorted(found, key=_order)


def cryptofeed_connection(path: Place) -> str:
    """The connection that a file is a part of."""
    found = _FILE.fullmatch(_bare(path))
    return path.name if found is None else found["conn"]


def cryptofeed_lines(lines: Lines, problems: Problems) -> Iterator[Line]:
    """The lines of a file as those of a recording; malformed ones are counted."""
    conn = cryptofeed_connection(lines.path)
    for text in lines:
        if not text.strip() or text.startswith(b"configuration: "):
            continue
        try:
            yield _cryptofeed_line(text, conn)
        except (ValueError, SyntaxError, UnicodeDecodeError) as error:
            lines.malformed(problems, "malformed line", f"{error}: {shown(text)}")


def _cryptofeed_line(text: bytes, conn: str) -> Line:
    found = _LINE.fullmatch(text)
    if found is None or (found["way"] != b"<->" and found["data"] is None):
        raise ValueError("neither `time: text` nor `URL <-> time`, `URL <- time: text`, `URL -> time: text`")
    time, _ = scaled(found["time"].decode(), 9)
    kind, url = _KINDS[found["way"]], (found["url"] or b"").decode()
    if kind == "connect":
        return Line(kind, conn, time, addr=url)
    data = found["data"]
    if kind == "http":
        data = data.partition(_HEADERS)[0] if data.endswith(b"}") else data
        return Line(kind, conn, time, data.decode(), url=url)
    if data.startswith((b"b'", b'b"')):
        return Line(kind, conn, time, raw=ast.literal_eval(data.decode()))
    return Line(kind, conn, time, data.decode())


def _bare(path: Place) -> str:
    return _PACKED.sub("", path.name)


def _order(path: Place) -> tuple[bool, str, int]:
    found = _FILE.fullmatch(_bare(path))
    if found is None:
        return False, path.name, 0
    return found["ws"] is not None, found["conn"], int(found["part"])


_decode = msgspec.json.Decoder(Line).decode
_ENDINGS = ("*.jsonl.zst", "*.jsonl.gz", "*.jsonl")


@dataclass(frozen=True, slots=True)
class CaptureHead:
    """`files` are in the order of time, and `kind` names the exchange.

    `connections` are those of a foreign recording, whose `answers` are read beforehand; empty for ours. One
    of `text` is cryptofeed's before version 3. `markets` are those of connections, `feeds` keys that all
    recordings of one feed share.
    """

    files: tuple[Place, ...]
    kind: str
    instruments: tuple[Instrument, ...]
    connections: tuple[str, ...] = ()
    answers: tuple[Line, ...] = ()
    text: bool = False
    markets: Mapping[str, str] = field(default_factory=dict)
    feeds: frozenset[str] = frozenset()


def read_head(path: Place | Sequence[Place], kind: str | None, products: Sequence[str]) -> CaptureHead:
    """Read what a recording is of: a file, a folder of files, or a glob; or several of these.

    Raises SourceError where it does not tell, is not known, or where its files do not belong together.
    """
    paths = list(path) if isinstance(path, Sequence) else [path]
    files = list(dict.fromkeys(file for one in paths for file in _files(one)))
    texts = [file for file in files if _is_text(file)]
    if texts:
        files = [file for file in files if file in texts or not is_cryptofeed_file(file)]
        if len(texts) < len(files):
            other = next(file for file in files if file not in texts)
            raise SourceError(f"{texts[0]} and {other} are recordings of different programs; name them apart")
        return _texts(texts, kind, products)
    firsts = [_first(file) for file in files]
    if len(files) == 1 and firsts[0].t == "header":
        lines = [line for line in _lines(files[0]) if line.t not in ("header", "recv")]
        return _foreign(files, firsts[0].exchange, lines, kind, products)
    for file, first in zip(files, firsts, strict=True):
        if first.t == "header":
            raise SourceError(f"{file}: a recording of another program is read alone; name this file")
        if (first.exchange, first.conn) != (firsts[0].exchange, firsts[0].conn):
            raise SourceError(
                f"{files[0]} and {file} are recordings of different feeds; name them as sources of their own"
            )
    places = {file: (first.run, first.part) for file, first in zip(files, firsts, strict=True)}
    return _own(sorted(files, key=lambda file: (places[file], file)), firsts[0].conn)


def _files(path: Place) -> list[Place]:
    files = files_at(path, _ENDINGS)
    if not files:
        files = [file for file in files_at(path, ["*"]) if is_cryptofeed_file(file)]
    if files != [path]:
        files = [file for file in files if not file.name.endswith((".parquet", ".partial"))]
    if not files:
        raise SourceError(f"{path}: no recordings there ({', '.join(_ENDINGS)}); check the path")
    return files


def _is_text(path: Place) -> bool:
    return ".jsonl" not in path.name and begins_as_cryptofeed(first_line(path))


def _texts(files: Sequence[Place], kind: str | None, products: Sequence[str]) -> CaptureHead:
    """The head of a recording of text."""
    names = dict.fromkeys(map(cryptofeed_exchange, files))
    if len(names) > 1:
        listed = ", ".join(f"{files[0].parent}/{name}.*" for name in names)
        raise SourceError(f"{files[0].parent}: recordings of {len(names)} exchanges; name one: {listed}")
    (name,) = names
    files = with_cryptofeed_answers(files)
    lines = (line for file in files for line in cryptofeed_lines(Lines(file), Problems()))
    asked = [line for line in lines if line.t != "recv"]
    return _foreign(files, name, asked, kind, products, text=True)


def _first(path: Place) -> Line:
    first = next(_lines(path), None)
    if first is None:
        raise SourceError(f"{path}: no recording of an exchange's frames: empty, or no JSON lines")
    if first.t not in ("session", "header"):
        raise SourceError(f"{path}: no recording: its first line is {first.t!r}, not session or header")
    if first.t == "session" and first.format > FORMAT:
        raise SourceError(
            f"{path}: a recording of format {first.format}, this program reads {FORMAT}; read it "
            "with the version of the program that wrote it"
        )
    return first


def _lines(path: Place) -> Iterator[Line]:
    for text in Lines(path):
        try:
            yield _decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue


def _own(files: Sequence[Place], conn: str) -> CaptureHead:
    instruments: dict[Instrument, None] = {}
    kind = ""
    for file in files:
        for line in takewhile(lambda line: line.t == "session", _lines(file)):
            if line.exchange not in CONNECTIONS:
                raise SourceError(
                    f"{file}: a recording of {line.exchange!r}, which is no exchange that is known"
                )
            kind = kind or line.exchange
            instruments |= dict.fromkeys(one.decoded for one in line.instruments)
    feeds = frozenset(f"{kind} {conn} {one}" for one in instruments)
    return CaptureHead(tuple(files), kind, tuple(instruments), feeds=feeds)


def _foreign(
    files: Sequence[Place],
    name: str,
    lines: list[Line],
    kind: str | None,
    products: Sequence[str],
    *,
    text: bool = False,
) -> CaptureHead:
    path = files[0]
    addresses = [line.addr for line in lines if line.t == "connect"]
    kind = kind or _kind(path, name.lower(), addresses)
    if kind not in EXCHANGES:
        raise SourceError(f"{path}: no exchange is called {kind!r}; known: {', '.join(EXCHANGES)}")
    own = exchange(kind)
    answers = tuple(line for line in lines if line.t == "http")
    bodies = [line.payload for line in answers]
    markets = {line.conn: own.market(line.addr) for line in lines if line.t == "connect"}
    if not markets:
        raise SourceError(f"{path}: has no connection to an exchange; name the files of those, too")
    said = {"connect": "addr", "send": "data"}
    texts = [(line.conn, getattr(line, said[line.t])) for line in lines if line.t in said]
    asked = [(conn, name) for conn, text in texts for name in _names(text)]
    names = dict.fromkeys(own.product(markets.get(conn, ""), name) for conn, name in asked)
    instruments = []
    for name in products or names:
        try:
            instruments += own.instruments([name], bodies)
        except SourceError:
            if products:
                raise
    if not instruments:
        raise SourceError(f"{path}: no product of {kind} is subscribed to in it; name them: ?products=A,B")
    found = tuple(dict.fromkeys(instruments))
    feeds = frozenset(map(str, files))
    return CaptureHead(tuple(files), kind, found, tuple(markets), answers, text, markets, feeds)


def _kind(path: Place, venue: str, addresses: Sequence[str]) -> str:
    """The exchange whose address was connected to, else the one named so."""
    own = [name for name in EXCHANGES if name.startswith(venue)]
    for name in own:
        if any(address.rstrip("/") == exchange(name).url.rstrip("/") for address in addresses):
            return name
    if venue in own:
        return venue
    raise SourceError(
        f"{path}: a recording of {venue!r}, which is no exchange that is known; name one: ?exchange=NAME, of "
        + ", ".join(EXCHANGES)
    )


def _names(text: str) -> Iterator[str]:
    """What may be products among the texts of a subscription, or of an address with streams."""
    if "streams=" in text:
        for stream in text.partition("streams=")[2].split("/"):
            yield stream.partition("@")[0].upper()
        return
    try:
        leaves = _leaves(msgspec.json.decode(text))
    except msgspec.DecodeError:
        return
    for leaf in leaves:
        between = leaf.partition(".")[2].rpartition(".")[0]
        yield from dict.fromkeys((leaf, leaf.rpartition("_")[2], leaf.rpartition(".")[2], between))


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _leaves(inner)


class RecordedLines:
    """Iterates over a recording's lines; every iteration starts at the beginning.

    Malformed lines are counted in `problems`. A file that is cut does not keep the next from being read:
    `raise_if_cut` tells afterwards. Raises SourceError where a file cannot be opened.
    """

    def __init__(self, head: CaptureHead) -> None:
        self.problems = Problems()
        self._head = head
        self._files = [Lines(path) for path in head.files]

    @property
    def progress(self) -> float:
        """Fraction of the files' bytes read, 0 to 1, each file counted alike."""
        return sum(lines.progress for lines in self._files) / len(self._files)

    def raise_if_cut(self) -> None:
        """Raise SourceError where a file ended early."""
        cut = [lines for lines in self._files if lines.cut is not None]
        if len(cut) > 1:
            names = ", ".join(str(lines.path) for lines in cut)
            raise SourceError(f"{names}: each is cut at its end; everything before that was read")
        for lines in cut:
            lines.raise_if_cut()

    def __iter__(self) -> Iterator[Line]:
        self.problems.clear()
        head = self._head
        if not head.connections:
            for lines in self._files:
                yield from self._read(lines)
            return
        if head.text:
            yield from merge(sorted(head.answers, key=_time), *map(self._text, head.connections), key=_time)
            return
        # A foreign recording may hold one connection after another, and answers first.
        first, path = self._files[0], head.files[0]
        parts = [first, *(Lines(path) for _ in head.connections[1:])]
        streams = (self._of(name, lines) for name, lines in zip(head.connections, parts, strict=True))
        yield from merge(sorted(head.answers, key=_time), *streams, key=_time)

    def _text(self, connection: str) -> Iterator[Line]:
        """What was sent and received on a connection, part after part."""
        for lines in self._files:
            if cryptofeed_connection(lines.path) == connection:
                found = cryptofeed_lines(lines, self.problems)
                yield from (line for line in found if line.t != "http")

    def _of(self, connection: str, lines: Lines) -> Iterator[Line]:
        return (line for line in self._read(lines) if line.t != "http" and line.conn == connection)

    def _read(self, lines: Lines) -> Iterator[Line]:
        for text in lines:
            try:
                yield _decode(text)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                lines.malformed(self.problems, "malformed line", f"{error}: {shown(text)}")


def _time(line: Line) -> int:
    return line.time
