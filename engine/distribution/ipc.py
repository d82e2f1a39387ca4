"""Blocks as Arrow IPC bytes, whose texts any process can read with a dictionary of its own.

A block is one IPC stream of one record batch; several follow each other. The metadata of its schema name the
source. Its columns are `stamp`, `switch`, `part`, `sequence`, `last` and `delete`, then those of the rows,
`0`, `1`, …: int64 as in the Block, or dictionary arrays of UTF-8 bytes for TEXT.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import numpy as np
import pyarrow as pa

from engine.changes import NULL_CODE
from orderbook.dictionary import Dictionary
from orderbook.errors import DataError
from views.compiler.types import Kind, Relation

from .block import VERSION, Block

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
    words: Dictionary,
    compression: Compression | None = "lz4",
) -> pa.Buffer:
    """Blocks as bytes; `texts` are the places of TEXT columns by source, `words` has their codes."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    for block in blocks:
        batch = _batch(block, texts[block.source], words)
        with pa.ipc.new_stream(sink, batch.schema, options=options) as stream:
            stream.write_batch(batch)
    return sink.getvalue()


def decode_blocks(data: bytes | memoryview | pa.Buffer, words: Dictionary) -> list[Block]:
    """The blocks of `encode_blocks`, with the codes of `words`, which learns their texts.

    Raises DataError for bytes that are none.
    """
    reader = pa.BufferReader(data)
    blocks = []
    try:
        while reader.tell() < reader.size():
            with pa.ipc.open_stream(reader) as stream:
                name = stream.schema.metadata[_SOURCE].decode()
                blocks += [_block(name, batch, words) for batch in stream]
    except (pa.ArrowException, OSError, KeyError, TypeError) as error:
        raise DataError(f"a damaged block: {error}; let it be sent again") from error
    return blocks


def _batch(block: Block, texts: Sequence[int], words: Dictionary) -> pa.RecordBatch:
    versions = block.versions
    arrays = [pa.array(np.ascontiguousarray(versions[part])) for part in _PARTS]
    arrays.append(pa.array(block.deletes, pa.bool_()))
    columns = np.ascontiguousarray(block.values.T)
    arrays += [
        _texts(column, words) if place in texts else pa.array(column) for place, column in enumerate(columns)
    ]
    names = [*_PARTS, "delete", *(str(i) for i in range(len(columns)))]
    schema = pa.schema([pa.field(n, a.type) for n, a in zip(names, arrays, strict=True)])
    metadata = {_SOURCE: block.source.encode()}
    return pa.RecordBatch.from_arrays(arrays, schema=schema.with_metadata(metadata))


def _texts(codes: np.ndarray, words: Dictionary) -> pa.DictionaryArray:
    """A column of dictionary codes as texts, each different one once."""
    missing = codes == NULL_CODE
    there = codes[~missing] if missing.any() else codes
    if len(words) <= 4 * len(codes) + 64:
        used = np.zeros(len(words), bool)
        used[there] = True
        found = np.flatnonzero(used)
        places = np.zeros(len(words) + 1, np.int32)
        places[found] = np.arange(len(found))
        indices = places[np.maximum(codes, -1)]
    else:
        found = np.unique(there)
        indices = np.searchsorted(found, codes).astype(np.int32)
    strings = [text.encode("utf-8", "surrogatepass") for text in words.decode_all(found)]
    own = pa.array(indices, mask=missing if missing.any() else None)
    return pa.DictionaryArray.from_arrays(own, pa.array(strings, pa.binary()))


def _block(source: str, batch: pa.RecordBatch, words: Dictionary) -> Block:
    versions = np.empty(len(batch), VERSION)
    for place, part in enumerate(_PARTS):
        versions[part] = batch.column(place).to_numpy()
    deletes = batch.column(_OWN - 1).to_numpy(zero_copy_only=False)
    values = np.empty((len(batch), batch.num_columns - _OWN), np.int64)
    for place, column in enumerate(batch.columns[_OWN:]):
        values[:, place] = _codes(column, words) if pa.types.is_dictionary(column.type) else column.to_numpy()
    return Block(source, versions, deletes, values)


def _codes(column: pa.DictionaryArray, words: Dictionary) -> np.ndarray:
    """The codes of texts, int64[n]."""
    strings = [text.decode("utf-8", "surrogatepass") for text in column.dictionary.to_pylist()]
    # One more for NULL, which is shown as -1 and so finds the last.
    codes = np.append(words.encode_all(strings), NULL_CODE)
    return codes[column.indices.fill_null(-1).to_numpy()]
