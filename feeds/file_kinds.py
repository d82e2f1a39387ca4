"""What kind of source a file is, by what it holds."""

import re
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path

import msgspec
import pyarrow as pa

from feeds.bybit_rows import is_bybit_trades
from feeds.byte_stream import Blocks, Lines, refuse_utf16
from feeds.cryptofeed_text import begins_as_recording, is_recording
from feeds.databento import is_dbn
from feeds.decimal_text import scaled
from feeds.itch_directory import is_itch
from feeds.parquet_record import is_record
from feeds.places import Place, files_at, is_glob, open_parquet
from feeds.view_events import VIEWS_METADATA
from orderbook.errors import SourceError

KINDS = (
    "lobster", "binance", "record", "changes", "itch", "dbn", "tardis", "views", "capture", "table", "bybit"
)
KNOWN = ", ".join(KINDS)
# Lines that are looked at, so that a damaged first one does not hide what the file is.
_LINES, _SHOWN = 50, 100
_PACKETS = (
    b"\xd4\xc3\xb2\xa1", b"\xa1\xb2\xc3\xd4", b"\x4d\x3c\xb2\xa1", b"\xa1\xb2\x3c\x4d", b"\x0a\x0d\x0d\x0a"
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
    if any(".jsonl" in file.name or is_recording(file) for file in files):
        return "capture"
    return kind_of(files[0])


def _binary(where: Place, start: bytes) -> str | None:
    """The kind of a file that is no text. Raises SourceError for binary files of no kind."""
    refuse_utf16(where, start)
    if start.startswith(b"PAR1"):
        return _parquet(where)
    if is_itch(start):
        return "itch"
    if is_dbn(where, start):
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
        f"{where}: Parquet, but neither a record of events nor view events: its columns are {columns}"
    )


def _text(where: Place, start: bytes) -> str:
    file = Lines(where)
    lines = [line for line in islice(file, _LINES) if line.strip()]
    if not lines and file.cut is not None:
        raise SourceError(f"{where}: {file.cut} before its first line; get the whole file again")
    named = "_message_" in where.name or "_orderbook_" in where.name
    for place, line in enumerate(lines):
        rows = lines[place + 1 :]
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
        return "binance"
    if begins_as_recording(line):
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
        f"write {KNOWN} and a colon before the path"
    )
