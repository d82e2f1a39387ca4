"""Messages of the protocol and outputs of nodes as shuffle rows, and back.

`rows`: `bytes` are the blocks asserted, `more` those retracted. `marker`: `epoch` and `end`. Outputs:
`tentative`: `bytes` are the tables of the views, `more` the versions that they replace. `final`: `epoch`,
`end`, and in `bytes` the files that the node has written. `dead`: a table. `request`: `epoch`. Tables have
rows as users see them.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from orderbook.core.changes import NULL_CODE
from orderbook.engine.distribution.blocks import VERSION, Block, decode_blocks, encode_blocks, row_version
from orderbook.engine.distribution.message_versions import LOOK
from orderbook.engine.distribution.stage_runner import History
from orderbook.engine.protocol.messages import (
    SWITCHES,
    Address,
    DeadLetter,
    EndRequest,
    Final,
    Life,
    Marker,
    Message,
    Output,
    RowsMessage,
    Tentative,
)
from orderbook.jobs.datasets import DataFile
from orderbook.jobs.writers import DatasetWriter
from orderbook.streaming.block_log import Entry, decoded
from orderbook.streaming.plan import StreamPlan
from orderbook.streaming.shuffle import DEAD, FINAL, MARKER, REQUEST, ROWS, TENTATIVE, ShuffleRow
from orderbook.views.encoding.values import decoder, unpack

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


def encoded_tables(plan: StreamPlan, blocks: Iterable[Block]) -> bytes:
    """The rows of views, a table of each after the other."""
    sink = pa.BufferOutputStream()
    for block in blocks:
        table = _table(plan, block).replace_schema_metadata({_VIEW: block.source.encode()})
        with pa.ipc.new_stream(sink, table.schema) as stream:
            stream.write_table(table)
    return bytes(sink.getvalue())


def read_tables(data: bytes) -> dict[str, pa.Table]:
    """The tables of `tables`, by view."""
    reader, found = pa.BufferReader(data), {}
    while reader.tell() < reader.size():
        with pa.ipc.open_stream(reader) as stream:
            table = stream.read_all()
        found[table.schema.metadata[_VIEW].decode()] = table.replace_schema_metadata(None)
    return found


def written_files(plan: StreamPlan, blocks: Iterable[Block]) -> bytes:
    """Writes rows of views to files of their own in the job's folder; which they are."""
    found: dict[str, Sequence[DataFile]] = {}
    for block in blocks:
        view = block.source
        writer = DatasetWriter(Path(plan.settings.job.folder), plan.tables[view][0].dataset)
        writer.write(_table(plan, block))
        found[view] = writer.close()
    return msgspec.msgpack.encode(found)


def read_files(data: bytes) -> Mapping[str, tuple[DataFile, ...]]:
    """The files of `files`, by view."""
    return msgspec.msgpack.decode(data, type=dict[str, tuple[DataFile, ...]])


def read_versions(data: bytes) -> NDArray[np.void]:
    """The versions that a tentative output replaces, LOOK[n]."""
    versions = np.frombuffer(data, VERSION)
    looks = np.empty(len(versions), LOOK)
    for name in LOOK.names or ():
        looks[name] = versions[name]
    return looks


def _table(plan: StreamPlan, block: Block) -> pa.Table:
    """The rows of a view's history, see orderbook.engine.protocol.topology.block_of."""
    made, keys = plan.tables[block.source]
    looks = np.empty(len(block), LOOK)
    for name in LOOK.names or ():
        looks[name] = block.versions[name]
    return made.table(History(block.source, looks, block.values[:, :keys], block.values[:, keys:]))


def encoded_dead_letter(plan: StreamPlan, letter: DeadLetter) -> bytes:
    """Rows that came too late, with those of their columns that the node was sent, as JSON."""
    stage = plan.stages[letter.sender.stage]
    origin = {entry.stream: entry.source for entry in stage.inputs}
    rows = []
    for block in letter.blocks:
        relation = stage.program.relation(block.source)
        decoders = [decoder(column.type, plan.dictionary) for column in relation.columns]
        values = block.values.tolist()
        for version, deleted, codes in zip(block.versions, block.deletes.tolist(), values, strict=True):
            words = unpack(relation, codes)
            named = {
                column.name: None if code == NULL_CODE else decode(word)
                for column, decode, word, code in zip(relation.columns, decoders, words, codes, strict=True)
            }
            row = [str(letter.sender), str(letter.origin), origin[block.source], "-" if deleted else "+"]
            rows.append([*row_version(version), *row, json.dumps(named, default=str)])
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(DEAD_SCHEMA)
    arrays = [pa.array(c, f.type) for c, f in zip(columns, DEAD_SCHEMA, strict=True)]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, DEAD_SCHEMA) as stream:
        stream.write_table(pa.table(arrays, schema=DEAD_SCHEMA))
    return bytes(sink.getvalue())


def read_dead(data: bytes) -> pa.Table:
    """The table of `dead`."""
    return pa.ipc.open_stream(data).read_all()


# What carries messages loses none and needs no node to start again: each has one life.
_LIFE = Life(0, 0)


def routed(plan: StreamPlan, entry: Entry) -> Iterator[ShuffleRow]:
    """A switch's message to every node that hears switches, each with the number that it has in the log."""
    if entry.epoch:
        for node in plan.first:
            yield ShuffleRow(*node, MARKER, SWITCHES, entry.switch, entry.number, entry.epoch, entry.end)
        return
    parts: dict[Address, list[Block]] = {}
    for block in decoded(entry, plan.dictionary):
        for receiver, part in plan.wiring.route(block):
            parts.setdefault(receiver, []).append(part)
    for node in plan.first:
        found = parts.get(node)
        data = b"" if not found else bytes(encode_blocks(found, plan.streams(node.stage), plan.dictionary))
        yield ShuffleRow(*node, ROWS, SWITCHES, entry.switch, entry.number, bytes=data)


def message_of(plan: StreamPlan, one: ShuffleRow) -> RowsMessage | Marker:
    """Raises DataError where the bytes are damaged."""
    sender, receiver = Address(*one.sender), Address(*one.node)
    if one.kind == MARKER:
        return Marker(sender, receiver, _LIFE, one.number, one.epoch, one.end)
    asserted, retracted = (
        tuple(decode_blocks(data, plan.dictionary)) if data else () for data in (one.bytes, one.more)
    )
    return RowsMessage(sender, receiver, _LIFE, one.number, asserted, retracted)


def rows_of_messages(plan: StreamPlan, messages: Iterable[Message | Output]) -> Iterator[ShuffleRow]:
    """What a node sends and gives out; files that it writes stand before what names them leaves."""
    for message in messages:
        match message:
            case RowsMessage():
                yield row_of_message(plan, message)
            case Marker():
                place = (*message.receiver, MARKER, *message.sender)
                yield ShuffleRow(*place, message.number, message.epoch, message.end)
            case Tentative():
                tables, versions = encoded_tables(plan, message.blocks), message.versions.tobytes()
                yield ShuffleRow.output(TENTATIVE, message.sender, bytes=tables, more=versions)
            case Final():
                files, epoch, end = written_files(plan, message.blocks), message.epoch, message.end
                yield ShuffleRow.output(FINAL, message.sender, epoch=epoch, end=end, bytes=files)
            case DeadLetter():
                yield ShuffleRow.output(DEAD, message.sender, bytes=encoded_dead_letter(plan, message))
            case EndRequest():
                yield ShuffleRow.output(REQUEST, message.sender, epoch=message.epoch)
            case _:
                raise ValueError(f"nothing carries {message}")


def row_of_message(plan: StreamPlan, message: RowsMessage) -> ShuffleRow:
    """A message of rows."""
    texts = plan.streams(message.receiver.stage)
    asserted, retracted = (
        bytes(encode_blocks(blocks, texts, plan.dictionary)) if blocks else b""
        for blocks in (message.asserted, message.retracted)
    )
    place = (*message.receiver, ROWS, *message.sender)
    return ShuffleRow(*place, message.number, bytes=asserted, more=retracted)
