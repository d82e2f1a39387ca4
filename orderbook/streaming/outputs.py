"""What nodes give out as bytes: tables of rows as users see them, and the files of what is final."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa

from engine.changes import NULL_CODE
from engine.distribution.block import VERSION, Block, place_of
from engine.distribution.history import LOOK, History
from engine.encoding import decoder, unpack
from engine.protocol.messages import DeadLetter
from orderbook.jobs.folder import DatasetWriter
from orderbook.jobs.manifest import DataFile
from orderbook.streaming.plan import StreamPlan

_VIEW = b"view"
DEAD_SCHEMA = pa.schema(
    [
        ("stamp", pa.int64()),
        ("switch", pa.int64()),
        ("sequence", pa.int64()),
        ("part", pa.int64()),
        ("node", pa.string()),
        ("sender", pa.string()),
        ("relation", pa.string()),
        ("op", pa.string()),
        ("row", pa.string()),
    ]
)


def tables(plan: StreamPlan, blocks: Iterable[Block]) -> bytes:
    """The rows of views, a table of each after the other."""
    sink = pa.BufferOutputStream()
    for block in blocks:
        table = _table(plan, block).replace_schema_metadata({_VIEW: block.source.encode()})
        with pa.ipc.new_stream(sink, table.schema) as stream:
            stream.write_table(table)
    return sink.getvalue().to_pybytes()


def read_tables(data: bytes) -> dict[str, pa.Table]:
    """The tables of `tables`, by view."""
    reader, found = pa.BufferReader(data), {}
    while reader.tell() < reader.size():
        with pa.ipc.open_stream(reader) as stream:
            table = stream.read_all()
        found[table.schema.metadata[_VIEW].decode()] = table.replace_schema_metadata(None)
    return found


def files(plan: StreamPlan, blocks: Iterable[Block]) -> bytes:
    """Writes rows of views to files of their own in the job's folder; which they are."""
    found: dict[str, Sequence[DataFile]] = {}
    for block in blocks:
        view = block.source
        writer = DatasetWriter(Path(plan.settings.job.folder), view, plan.tables[view][0].dataset)
        writer.write(_table(plan, block))
        found[view] = writer.close()
    return msgspec.msgpack.encode(found)


def read_files(data: bytes) -> Mapping[str, tuple[DataFile, ...]]:
    """The files of `files`, by view."""
    return msgspec.msgpack.decode(data, type=dict[str, tuple[DataFile, ...]])


def read_versions(data: bytes) -> np.ndarray:
    """The versions that a tentative output replaces, LOOK[n]."""
    versions = np.frombuffer(data, VERSION)
    looks = np.empty(len(versions), LOOK)
    for name in LOOK.names or ():
        looks[name] = versions[name]
    return looks


def _table(plan: StreamPlan, block: Block) -> pa.Table:
    """The rows of a view's history, see engine.protocol.stages.block_of."""
    made, keys = plan.tables[block.source]
    looks = np.empty(len(block), LOOK)
    for name in LOOK.names or ():
        looks[name] = block.versions[name]
    return made.table(History(block.source, looks, block.values[:, :keys], block.values[:, keys:]))


def dead(plan: StreamPlan, letter: DeadLetter) -> bytes:
    """Rows that came too late, with those of their columns that the node was sent, as JSON."""
    stage = plan.stages[letter.sender.stage]
    origin = {entry.stream: entry.source for entry in stage.inputs}
    rows = []
    for block in letter.blocks:
        relation = stage.program.relation(block.source)
        decoders = [decoder(column.type, plan.words) for column in relation.columns]
        values = block.values.tolist()
        for version, deleted, codes in zip(block.versions, block.deletes.tolist(), values, strict=True):
            words = unpack(relation, codes)
            named = {
                column.name: None if code == NULL_CODE else decode(word)
                for column, decode, word, code in zip(relation.columns, decoders, words, codes, strict=True)
            }
            row = [str(letter.sender), str(letter.origin), origin[block.source], "-" if deleted else "+"]
            rows.append([*place_of(version), *row, json.dumps(named, default=str)])
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(DEAD_SCHEMA)
    arrays = [pa.array(c, f.type) for c, f in zip(columns, DEAD_SCHEMA, strict=True)]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, DEAD_SCHEMA) as stream:
        stream.write_table(pa.table(arrays, schema=DEAD_SCHEMA))
    return sink.getvalue().to_pybytes()


def read_dead(data: bytes) -> pa.Table:
    """The table of `dead`."""
    return pa.ipc.open_stream(data).read_all()
