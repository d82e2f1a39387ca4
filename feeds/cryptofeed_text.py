"""Recordings of cryptofeed up to version 2.5: text, a file for each connection and one for what was asked.

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
from collections.abc import Iterable, Iterator

from feeds.byte_stream import Lines, shown
from feeds.decimal_text import scaled
from feeds.places import Place
from feeds.raw_log import Line
from orderbook.problems import Problems

_FILE = re.compile(r"(?P<conn>(?P<exchange>[A-Z][A-Z0-9_.]*?)(?P<ws>\.(?:ws|http)\.[^.]+)?)\.(?P<part>\d+)")
_PACKED = re.compile(r"\.(?:gz|zst|zip)$")
_LINE = re.compile(
    rb"(?:(?P<url>(?:wss?|https?)://\S+) (?P<way><->|<-|->) )?(?P<time>[0-9.eE+]+)(?:: (?P<data>.*))?",
    re.DOTALL,
)
_KINDS = {b"<->": "connect", b"<-": "send", b"->": "http", None: "recv"}
_HEADERS = b" header: {"


def is_recording(path: Place) -> bool:
    """Whether a file has the name of one."""
    return _FILE.fullmatch(_bare(path)) is not None


def begins_as_recording(line: bytes) -> bool:
    """Whether a line is one of a recording."""
    if line.startswith(b"configuration: {"):
        return True
    found = _LINE.fullmatch(line)
    if found is None or (found["way"] != b"<->" and found["data"] is None):
        return False
    return found["way"] is not None or re.fullmatch(rb"\d{9,10}(\.\d+)?", found["time"]) is not None


def exchange_of(path: Place) -> str:
    """The exchange that a file is named after, in capitals; its whole name where it is named otherwise."""
    found = _FILE.fullmatch(_bare(path))
    return path.name if found is None else found["exchange"]


def with_answers(paths: Iterable[Place]) -> list[Place]:
    """The files of a recording in the order of connections and parts, with the answers beside them."""
    paths = list(paths)
    found = dict.fromkeys(paths)
    for path in paths:
        own = exchange_of(path)
        if path.parent.is_dir():
            for beside in path.parent.glob(f"{own}.*"):
                if is_recording(beside) and exchange_of(beside) == own and ".ws." not in beside.name:
                    found[beside] = None
    return sorted(found, key=_order)


def connection_of(path: Place) -> str:
    """The connection that a file is a part of."""
    found = _FILE.fullmatch(_bare(path))
    return path.name if found is None else found["conn"]


def read_lines(lines: Lines, problems: Problems) -> Iterator[Line]:
    """The lines of a file as those of a recording; malformed ones are counted."""
    conn = connection_of(lines.path)
    for text in lines:
        if not text.strip() or text.startswith(b"configuration: "):
            continue
        try:
            yield _read(text, conn)
        except (ValueError, SyntaxError, UnicodeDecodeError) as error:
            lines.malformed(problems, "malformed line", f"{error}: {shown(text)}")


def _read(text: bytes, conn: str) -> Line:
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
