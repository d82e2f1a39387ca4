"""Blocks: rows of one stream with their versions, the unit that is shuffled, logged and stored.

As bytes a block is one Arrow IPC stream of one record batch; several follow each other. The metadata of its
schema name the source. Its columns are `stamp`, `switch`, `part`, `sequence`, `last` and `delete`, then
those of the rows, `0`, `1`, …: int64 as in the Block, or dictionary arrays of UTF-8 bytes for TEXT. So any
process can read the texts with a dictionary of its own. On their way to the partitions of other stages
blocks are these bytes (see Sent).

Net effects are what a piece of history leaves of rows inserted and deleted. What maps hold, and so what
views show, is a function of the rows that are there. Net effects of pieces that follow each other add up to
the rows that are there after them, so that a stage can begin at any of them (see StageRunner.fill),
wherever its state does not depend on the way: `orderbook.backtesting.time_cuts.depends_on_order` says where
it does.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from orderbook.core.changes import END_OF_EVENT, NULL_CODE, ChangeBatch, Dictionary
from orderbook.core.errors import DataError
from orderbook.engine.runtime.relation_store import RelationStore
from orderbook.views.types import Kind, Relation

# A version: stamp (ns), switch (or place of the source), sequence (of the event in its switch, from 1), and
# part (of the change in its event, from 0). `last` is the sequence of the last event of its message.
VERSION = np.dtype(
    [("stamp", "<i8"), ("switch", "<i4"), ("part", "<i4"), ("sequence", "<i8"), ("last", "<i8")]
)
# VERSION[n].
Versions = NDArray[np.void]


class RowVersion(NamedTuple):
    """A version: stamp (ns), switch, sequence of the event, part of the change, in the order they compare."""

    stamp: int
    switch: int
    sequence: int
    part: int


def row_version(version: np.void) -> RowVersion:
    """A VERSION as its place in the order of versions."""
    return RowVersion(*(int(version[name]) for name in RowVersion._fields))


@dataclass(frozen=True, slots=True)
class Block:
    """n signed rows of one stream or output, in the order of their versions.

    source: a relation of the whole program, or the name of an Output. versions: VERSION[n]. deletes: bool[n],
    a deleted row comes before the inserted one of the same version and key. values: int64[n, width], encoded
    as in a ChangeBatch; strings are codes of `words`, the dictionary of the process that holds the block.
    """

    source: str
    versions: Versions
    deletes: NDArray[np.bool_]
    values: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.versions)


def taken(block: Block, rows: NDArray[np.int64]) -> Block:
    """The rows at places int64[k] of a block."""
    # `take` is many times as fast as indexing.
    return Block(
        block.source, block.versions.take(rows), block.deletes.take(rows), block.values.take(rows, 0)
    )


def rows_between(block: Block, start: int, end: int) -> Block:
    """The rows from `start` up to `end` of a block, which are not copied."""
    rows = slice(start, end)
    return Block(block.source, block.versions[rows], block.deletes[rows], block.values[rows])


def parted(blocks: Iterable[Block], stamp: int) -> tuple[list[Block], list[Block]]:
    """The rows of ordered blocks before a stamp, and the others; nothing is copied, and no block is empty."""
    before, others = [], []
    for block in blocks:
        count = int(np.searchsorted(block.versions["stamp"], stamp))
        if count:
            before.append(rows_between(block, 0, count))
        if count < len(block):
            others.append(rows_between(block, count, len(block)))
    return before, others


def joined(blocks: Sequence[Block]) -> Block:
    """The rows of one or more blocks of one source, one block after the other."""
    filled = [block for block in blocks if len(block)] or list(blocks[:1])
    if len(filled) == 1:
        return filled[0]
    return Block(
        filled[0].source,
        np.concatenate([b.versions for b in filled]),
        np.concatenate([b.deletes for b in filled]),
        np.concatenate([b.values for b in filled]),
    )


@dataclass(frozen=True, slots=True)
class Sent:
    """A block for one partition of one stage: `bytes` of Arrow IPC, strings as text.

    source: as in Block, or a name of a row that is no block, whose bytes then are something else.
    first, last: its first and last version. rows: how many the bytes hold.
    """

    partition: int
    stage: int
    source: str
    first: RowVersion
    last: RowVersion
    rows: int
    bytes: bytes | pa.Buffer


Compression = Literal["lz4", "zstd"]
_SOURCE = b"source"
_PARTS = tuple(VERSION.names or ())
_OWN = len(_PARTS) + 1


def text_columns(streams: Iterable[Relation]) -> dict[str, tuple[int, ...]]:
    """The places of TEXT columns, by name of the stream."""
    return {
        stream.name: tuple(i for i, c in enumerate(stream.columns) if c.type.kind is Kind.TEXT)
        for stream in streams
    }


def encode_blocks(
    blocks: Iterable[Block],
    texts: Mapping[str, Sequence[int]],
    dictionary: Dictionary,
    compression: Compression | None = "lz4",
) -> pa.Buffer:
    """Blocks as bytes; `texts` are the places of TEXT columns by source, `words` has their codes."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    for block in blocks:
        batch = _batch(block, texts[block.source], dictionary)
        with pa.ipc.new_stream(sink, batch.schema, options=options) as stream:
            stream.write_batch(batch)
    return sink.getvalue()


def decode_blocks(data: bytes | memoryview | pa.Buffer, dictionary: Dictionary) -> list[Block]:
    """The blocks of `encode_blocks`, with the codes of `words`, which learns their texts.

    Raises DataError for bytes that are none.
    """
    reader = pa.BufferReader(data)
    blocks = []
    try:
        while reader.tell() < reader.size():
            with pa.ipc.open_stream(reader) as stream:
                name = stream.schema.metadata[_SOURCE].decode()
                blocks += [_block(name, batch, dictionary) for batch in stream]
    except (pa.ArrowException, OSError, KeyError, TypeError) as error:
        raise DataError(f"a damaged block: {error}; let it be sent again") from error
    return blocks


def _batch(block: Block, texts: Sequence[int], dictionary: Dictionary) -> pa.RecordBatch:
    versions = block.versions
    arrays = [pa.array(np.ascontiguousarray(versions[part])) for part in _PARTS]
    arrays.append(pa.array(block.deletes, pa.bool_()))
    columns = np.ascontiguousarray(block.values.T)
    arrays += [
        _texts(column, dictionary) if place in texts else pa.array(column)
        for place, column in enumerate(columns)
    ]
    names = [*_PARTS, "delete", *(str(i) for i in range(len(columns)))]
    schema = pa.schema([pa.field(n, a.type) for n, a in zip(names, arrays, strict=True)])
    metadata = {_SOURCE: block.source.encode()}
    return pa.RecordBatch.from_arrays(arrays, schema=schema.with_metadata(metadata))


def _texts(codes: NDArray[np.int64], dictionary: Dictionary) -> pa.DictionaryArray:
    """A column of dictionary codes as texts, each different one once."""
    missing = codes == NULL_CODE
    there = codes[~missing] if missing.any() else codes
    if len(dictionary) <= 4 * len(codes) + 64:
        used = np.zeros(len(dictionary), bool)
        used[there] = True
        found = np.flatnonzero(used)
        places = np.zeros(len(dictionary) + 1, np.int32)
        places[found] = np.arange(len(found))
        indices = places[np.maximum(codes, -1)]
    else:
        found = np.unique(there)
        indices = np.searchsorted(found, codes).astype(np.int32)
    strings = [text.encode("utf-8", "surrogatepass") for text in dictionary.decode_all(found)]
    own = pa.array(indices, mask=missing if missing.any() else None)
    return pa.DictionaryArray.from_arrays(own, pa.array(strings, pa.binary()))


def _block(source: str, batch: pa.RecordBatch, dictionary: Dictionary) -> Block:
    versions = np.empty(len(batch), VERSION)
    for place, part in enumerate(_PARTS):
        versions[part] = np.from_dlpack(batch.column(place))
    deletes = np.from_dlpack(batch.column(_OWN - 1).cast(pa.uint8())).astype(np.bool_)
    values = np.empty((len(batch), batch.num_columns - _OWN), np.int64)
    for place, column in enumerate(batch.columns[_OWN:]):
        values[:, place] = (
            _codes(column, dictionary) if pa.types.is_dictionary(column.type) else np.from_dlpack(column)
        )
    return Block(source, versions, deletes, values)


def _codes(column: pa.DictionaryArray, dictionary: Dictionary) -> NDArray[np.int64]:
    """The codes of texts, int64[n]."""
    strings = [text.decode("utf-8", "surrogatepass") for text in column.dictionary.to_pylist()]
    # One more for NULL, which is shown as -1 and so finds the last.
    codes = np.append(dictionary.encode_all(strings), NULL_CODE)
    found: NDArray[np.int64] = codes[np.from_dlpack(column.indices.fill_null(-1))]
    return found


# The stamp of rows that are there before any change, below that of any message.
BEFORE_ALL = -(2**63)


def in_pieces(block: Block, stamps: Sequence[int]) -> Iterator[tuple[int, Block]]:
    """The rows of a block, in the order of versions, by piece: each but the first begins at its stamp."""
    ends = np.searchsorted(block.versions["stamp"], np.array(stamps, np.int64)).tolist()
    for piece, (start, end) in enumerate(pairwise([0, *ends, len(block)])):
        if end > start:
            yield piece, rows_between(block, start, end)


class NetEffect:
    """Rows of relations with how often each is left, by adding up what changes do; counts may be negative."""

    def __init__(self, relations: Sequence[Relation]) -> None:
        self._relations = tuple(relations)
        self._places = {relation.name: place for place, relation in enumerate(relations)}
        self._rows = RelationStore(self._relations, Dictionary(), check=False, keep=True, ticks=False)

    def add(self, block: Block) -> None:
        """Adds the changes of a block; those of a relation that is none of these are left out."""
        place = self._places.get(block.source)
        if place is None or not len(block):
            return
        kinds = (2 * place + block.deletes).astype(np.int16)
        flags = np.full(len(block), END_OF_EVENT, np.uint8)
        self._rows.record(ChangeBatch(kinds, flags, np.ascontiguousarray(block.values)))

    def blocks(self, switch: int, before: int) -> list[Block]:
        """A block for each relation of which rows are left: as inserts, or deletes of negative counts.

        Their versions are below all others: (BEFORE_ALL, `switch`, `before` + 1, `before` + 2, …).
        """
        found = []
        for place, relation in enumerate(self._relations):
            rows, counts = self._rows.rows(place)
            if not len(rows):
                continue
            owners = np.repeat(np.arange(len(rows)), np.abs(counts))
            versions = np.zeros(len(owners), VERSION)
            versions["stamp"], versions["switch"] = BEFORE_ALL, switch
            versions["sequence"] = versions["last"] = before + 1 + np.arange(len(owners))
            found.append(Block(relation.name, versions, counts.take(owners) < 0, rows.take(owners, 0)))
            before += len(owners)
        return found
