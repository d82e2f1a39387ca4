"""Blocks on their way to the partitions of other stages, as the bytes that are sent."""

from dataclasses import dataclass

import pyarrow as pa

from .block import Place


@dataclass(frozen=True, slots=True)
class Sent:
    """A block for one partition of one stage: `bytes` of Arrow IPC, strings as text.

    source: as in Block, or a name of a row that is no block, whose bytes then are something else.
    first, last: its first and last version. rows: how many the bytes hold.
    """

    partition: int
    stage: int
    source: str
    first: Place
    last: Place
    rows: int
    bytes: bytes | pa.Buffer
