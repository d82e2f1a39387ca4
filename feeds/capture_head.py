"""What a recording is of: files, exchange and instruments, from first lines or, foreign, from all of it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

import msgspec

from feeds import cryptofeed_text
from feeds.byte_stream import Lines, first_line
from feeds.exchanges.registry import EXCHANGES, exchange
from feeds.places import Place, files_at
from feeds.raw_log import FORMAT, Line
from orderbook.errors import SourceError
from orderbook.instruments import Instrument
from orderbook.problems import Problems

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
        files = [file for file in files if file in texts or not cryptofeed_text.is_recording(file)]
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
        files = [file for file in files_at(path, ["*"]) if cryptofeed_text.is_recording(file)]
    if files != [path]:
        files = [file for file in files if not file.name.endswith((".parquet", ".partial"))]
    if not files:
        raise SourceError(f"{path}: no recordings there ({', '.join(_ENDINGS)}); check the path")
    return files


def _is_text(path: Place) -> bool:
    return ".jsonl" not in path.name and cryptofeed_text.begins_as_recording(first_line(path))


def _texts(files: Sequence[Place], kind: str | None, products: Sequence[str]) -> CaptureHead:
    """The head of a recording of text."""
    names = dict.fromkeys(map(cryptofeed_text.exchange_of, files))
    if len(names) > 1:
        listed = ", ".join(f"{files[0].parent}/{name}.*" for name in names)
        raise SourceError(f"{files[0].parent}: recordings of {len(names)} exchanges; name one: {listed}")
    (name,) = names
    files = cryptofeed_text.with_answers(files)
    lines = (line for file in files for line in cryptofeed_text.read_lines(Lines(file), Problems()))
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
            kind = line.exchange
            if kind not in EXCHANGES:
                raise SourceError(f"{file}: a recording of {kind!r}, which is no exchange that is known")
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
        yield from dict.fromkeys((leaf, leaf.rpartition("_")[2], leaf.rpartition(".")[2]))


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _leaves(inner)
