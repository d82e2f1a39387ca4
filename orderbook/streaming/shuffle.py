"""Shuffle rows: what switches, nodes and the sink of a stream send each other, one for a message or output.

It imports little: Spark makes a process for each stateful operator only to ask for the shape of its state,
and that imports it.
"""

import builtins
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

# The receiver of outputs; its partition is that of the node that gave them.
SINK = -2
ROWS, MARKER = "rows", "marker"
TENTATIVE, FINAL, DEAD, REQUEST = "tentative", "final", "dead", "request"

SCHEMA = pa.schema(
    [
        ("stage", pa.int32()),
        ("partition", pa.int32()),
        ("kind", pa.string()),
        ("sender_stage", pa.int32()),
        ("sender_partition", pa.int32()),
        ("number", pa.int64()),
        ("epoch", pa.int64()),
        ("end", pa.int64()),
        ("bytes", pa.binary()),
        ("more", pa.binary()),
    ]
)
NAMES = tuple(SCHEMA.names)
# Rows in one batch of Arrow: they may be megabytes.
_MOST_ROWS = 16


@dataclass(frozen=True, slots=True)
class ShuffleRow:
    """A message for partition `partition` of stage `stage`, or an output, for SINK.

    What the rest holds depends on `kind`: see `encoding`.
    """

    stage: int
    partition: int
    kind: str
    sender_stage: int
    sender_partition: int
    number: int = 0
    epoch: int = 0
    end: int = 0
    bytes: builtins.bytes = b""
    more: builtins.bytes = b""

    @classmethod
    def output(cls, kind: str, node: tuple[int, int], **rest: Any) -> "ShuffleRow":
        """What a node gives out."""
        return cls(SINK, node[1], kind, *node, **rest)

    @property
    def sender(self) -> tuple[int, int]:
        """Who sends it."""
        return self.sender_stage, self.sender_partition

    @property
    def node(self) -> tuple[int, int]:
        """The receiver."""
        return self.stage, self.partition

    @property
    def values(self) -> tuple[object, ...]:
        """By the columns of SCHEMA."""
        return tuple(getattr(self, name) for name in NAMES)


def batches_of(rows: list[ShuffleRow]) -> Iterator[pa.RecordBatch]:
    """Rows as batches of SCHEMA that are not too large."""
    for start in range(0, len(rows), _MOST_ROWS):
        yield batch_of(rows[start : start + _MOST_ROWS])


def batch_of(rows: list[ShuffleRow]) -> pa.RecordBatch:
    """Rows as a batch of SCHEMA."""
    columns = [[getattr(one, name) for one in rows] for name in NAMES]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def shuffle_rows_of(batch: pa.RecordBatch | pa.Table) -> list[ShuffleRow]:
    """The shuffle rows in a batch of SCHEMA's columns, in that order."""
    columns = [batch.column(name).to_pylist() for name in NAMES]
    return [ShuffleRow(*values) for values in zip(*columns, strict=True)]
