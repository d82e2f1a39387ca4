"""Block logs: all that a switch sends, as Parquet files that appear whole, one row a message.

A log is of no partitioning: its rows are whole relations, and each of its messages concerns every node. So
one log serves any program over the same relations, cut into any number of partitions.

Requests for the end of an epoch go from a stream to who writes its block logs: a file beside each log.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

import msgspec
import pyarrow as pa
from pyarrow import parquet as pq

from orderbook.core.changes import Dictionary
from orderbook.core.errors import OrderbookError, SourceError, UserError
from orderbook.core.files import refuse_url, replace_file
from orderbook.engine.distribution.blocks import Block, decode_blocks, encode_blocks, text_columns
from orderbook.views.types import CLOCK, Relation

FORMAT_VERSION = 1
HEADER = "log.json"
# Rows of messages have epoch 0; markers have no bytes. Numbers count a switch's messages from 1.
SCHEMA = pa.schema(
    [
        ("switch", pa.int32()),
        ("number", pa.int64()),
        ("epoch", pa.int64()),
        ("end", pa.int64()),
        ("rows", pa.int64()),
        ("bytes", pa.binary()),
    ]
)
_FILE_BYTES, _FILE_MESSAGES = 32 * 2**20, 1024
# A number above those of all messages.
_LATEST = 2**63 - 1


class LoggedRelation(msgspec.Struct, frozen=True):
    """A relation as a log holds it; a column is its name and type as SQL says them.

    retain: how long its rows stay, and by which column; the log has their deletes.
    """

    name: str
    columns: tuple[str, ...]
    retain: str | None = None

    @classmethod
    def of(cls, relation: Relation) -> "LoggedRelation":
        """What a declaration says."""
        retain = None if relation.retain is None else f"{relation.retain} ns on {relation.retain_by or 'ts'}"
        return cls(relation.name, tuple(f"{c.name} {c.type}" for c in relation.columns), retain)


class Header(msgspec.Struct, frozen=True):
    """`log.json`: whose log a folder is, among how many switches, and what its rows are.

    resolution: ns between two ticks of the clock, of which it has the rows; 0: it has none.
    """

    format: int
    switch: int
    switches: int
    relations: tuple[LoggedRelation, ...]
    sources: tuple[str, ...] = ()
    resolution: int = 0


class _Format(msgspec.Struct):
    format: int


@dataclass(frozen=True, slots=True)
class Entry:
    """A message: blocks of relations as bytes, or the marker of an epoch, which ends at `end` (ns)."""

    switch: int
    number: int
    epoch: int = 0
    end: int = 0
    rows: int = 0
    bytes: bytes = b""


class BlockLogWriter:
    """Writes the log of one switch to a folder that is empty or not there yet; or goes on with one.

    Files appear whole, each after so many bytes or messages. resumes: what is there stays, up to the message
    of number `last`; messages up to it are not to be written again. Raises UserError for a folder that is not
    empty, or holds another log.
    """

    def __init__(
        self,
        folder: Path,
        header: Header,
        file_bytes: int = _FILE_BYTES,
        file_messages: int = _FILE_MESSAGES,
        resumes: bool = False,
    ) -> None:
        refuse_url(folder)
        self._folder, self._limits = folder, (file_bytes, file_messages)
        self._held: list[Entry] = []
        self._bytes = self.last = 0
        if resumes and (folder / HEADER).is_file():
            if _header(folder) != header:
                raise UserError(f"{folder}: holds another block log; name another folder")
            self.last = max((entry.number for entry in read_entries(folder, _LATEST)), default=0)
            return
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if any(folder.iterdir()) and not resumes:
                raise UserError(f"{folder}: not empty; a block log is written once, name another folder")
        except OSError as error:
            raise SourceError(f"{folder}: cannot write: {error.strerror or error}") from None
        replace_file(folder / HEADER, msgspec.json.format(msgspec.json.encode(header), indent=1))

    def append(self, entry: Entry) -> None:
        """Adds a message. Raises OutputError where it cannot be written."""
        self._held.append(entry)
        self._bytes += len(entry.bytes)
        if self._bytes >= self._limits[0] or len(self._held) >= self._limits[1]:
            self.flush()

    def flush(self) -> None:
        """Lets readers see everything so far."""
        if not self._held:
            return
        columns = [[getattr(one, name) for one in self._held] for name in SCHEMA.names]
        table = pa.table([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, compression="none")  # blocks are compressed already
        replace_file(self._folder / f"{self._held[0].number:012d}.parquet", sink.getvalue().to_pybytes())
        self._held, self._bytes = [], 0


def encoded(blocks: Iterable[Block], relations: Sequence[Relation], dictionary: Dictionary) -> bytes:
    """Blocks of relations as an entry has them."""
    return bytes(encode_blocks(blocks, text_columns(relations), dictionary))


def decoded(entry: Entry, dictionary: Dictionary) -> list[Block]:
    """The blocks of an entry. Raises DataError where it is damaged."""
    return decode_blocks(entry.bytes, dictionary) if entry.bytes else []


def log_folders(texts: Sequence[str]) -> list[Path]:
    """The folders of logs: those given, and those in folders given. Raises UserError where there are none."""
    found: list[Path] = []
    for text in texts:
        folder = Path(text).resolve()
        refuse_url(folder)
        inside = [folder] if (folder / HEADER).is_file() else [p.parent for p in folder.glob(f"*/{HEADER}")]
        if not inside:
            raise UserError(f"{text}: no block log there (no {HEADER}); `orderbook blocks` writes them")
        found += inside
    return sorted(set(found))


def read_headers(folders: Sequence[Path]) -> list[Header]:
    """The headers, of all switches there are, in their order.

    Raises UserError where one is missing, twice, or they are not of one set of relations.
    """
    headers = sorted((_header(folder) for folder in folders), key=lambda header: header.switch)
    switches = headers[0].switches
    if [h.switch for h in headers] != list(range(switches)) or any(h.switches != switches for h in headers):
        numbers = ", ".join(str(h.switch) for h in headers)
        raise UserError(f"block logs of switches {numbers}, of {switches}; give those of all, each once")
    if any(h.relations != headers[0].relations for h in headers):
        raise UserError("the block logs hold different relations; write them again by one command")
    return headers


def _header(folder: Path) -> Header:
    path = folder / HEADER
    try:
        data = path.read_bytes()
        # Of another format, all else may be otherwise.
        found = msgspec.json.decode(data, type=_Format).format
        if found != FORMAT_VERSION:
            raise UserError(
                f"{path}: format {found}, this program reads {FORMAT_VERSION}; read it with the version of "
                "the program that wrote it, or write it again with `orderbook blocks`"
            )
        return msgspec.json.decode(data, type=Header)
    except (OSError, msgspec.MsgspecError) as error:
        raise UserError(f"{path}: not the header of a block log: {error}") from None


def read_entries(folder: Path, first: int = 1) -> Iterator[Entry]:
    """The messages of a log in the order of their numbers, from the file on that has `first` or is the last.

    Raises SourceError.
    """
    paths = sorted(folder.glob("[0-9]*.parquet"))
    for path, following in zip_longest(paths, paths[1:]):
        if following is not None and int(following.stem) <= first:
            continue
        try:
            rows = pq.read_table(path, schema=SCHEMA).to_pylist()
        except (OSError, pa.ArrowException) as error:
            raise SourceError(f"{path}: cannot read: {error}") from None
        for row in rows:
            yield Entry(**row)


def check_relations(header: Header, read: Iterable[Relation]) -> None:
    """Refuse a program that reads other rows than the logs hold. Raises UserError."""
    held = {one.name: one for one in header.relations}
    for relation in read:
        if held.get(relation.name) != LoggedRelation.of(relation):
            why = "does not hold" if relation.name not in held else "declares differently"
            raise UserError(f"a view reads {relation.name}, which the block log {why}; write the log again")
        if not header.resolution and (relation.name == CLOCK or relation.retain is not None):
            raise UserError(f"a view reads {relation.name}, and the block log has no clock; write it again")


_FILE = "end-requested"


def request_end(folders: Iterable[Path], epoch: int) -> None:
    """Asks the switches of logs for the end of an epoch; nobody is asked where a folder cannot be written."""
    for folder in folders:
        with suppress(OrderbookError):
            replace_file(folder / _FILE, str(epoch).encode())


class EndRequests:
    """The requests that a stream makes of the logs in some folders, each followed at one stamp.

    followed: the epochs by those stamps; `note` is told of them before a request is followed, so that who
    writes the same logs again follows it at the same stamp.
    """

    def __init__(
        self,
        folders: Iterable[Path],
        followed: Mapping[int, int] | None = None,
        note: Callable[[Mapping[int, int]], None] = lambda _: None,
    ) -> None:
        self._folders, self._note, self._asked = tuple(folders), note, 0
        self.followed = dict(followed or {})

    def at(self, stamp: int, again: bool) -> int | None:
        """The epoch to be ended at a stamp; None: none is. again: as it was when these logs were written."""
        asked = self.followed.get(stamp, 0) if again else max(map(_requested, self._folders))
        if asked <= self._asked:
            return None
        self._asked = asked
        if not again:
            self.followed[stamp] = asked
            self._note(self.followed)
        return asked


def _requested(folder: Path) -> int:
    """The last epoch whose end a stream asked the switch of a log for, 0 where none did."""
    try:
        return int((folder / _FILE).read_bytes())
    except (OSError, ValueError):
        return 0
