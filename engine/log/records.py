"""Records and their frames: length, kind, version, payload, CRC-32.

The checksum starts from the record's position and the salt of its segment, so that bytes which an
older file left in a reused block of the disk never verify, whatever they once were.
"""

import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from struct import Struct, error
from typing import NamedTuple, NewType, cast

from .files import Files

# A byte of the log, counted over all segments and their headers. str() prints it, int() reads it.
Position = NewType("Position", int)

# Length of the payload, kind, stamp, switch, sequence.
_HEAD = Struct("<IIqiq")
_CHECK = Struct("<I")
OVERHEAD = _HEAD.size + _CHECK.size
_CHUNK = 1 << 20


class Record(NamedTuple):
    """One thing that happened.

    `kind` says what (1 to 2^32 - 1; 0 is what a hole in a file reads as). `stamp` (int64, ns), `switch`
    (int32) and `sequence` (int64) are its version. The payload is the writer's own.
    """

    kind: int
    stamp: int
    switch: int
    sequence: int
    payload: bytes


class BadRecord(Exception):
    """A frame that is incomplete or does not verify: where in its file, and why."""

    def __init__(self, offset: int, reason: str):
        super().__init__(reason)
        self.offset, self.reason = offset, reason


def frame_bytes(record: Record) -> int:
    """The length of a record in the log."""
    return OVERHEAD + len(record.payload)


def encode(records: Sequence[Record], position: int, salt: int) -> tuple[bytes, list[Position]]:
    """The frames of records that follow each other from `position` on, and where each begins.

    Raises ValueError for a field that does not fit.
    """
    parts: list[bytes] = []
    positions: list[int] = []
    pack, check, crc32 = _HEAD.pack, _CHECK.pack, zlib.crc32
    for kind, stamp, switch, sequence, payload in records:
        length = len(payload)
        try:
            # Neither a kind of -1 nor one of 0 packs.
            head = pack(length, kind or -1, stamp, switch, sequence)
        except error as reason:
            fields = f"kind {kind}, stamp {stamp}, switch {switch}, sequence {sequence}"
            raise ValueError(f"a record's field does not fit: {fields}: {reason}") from reason
        checksum = crc32(payload, crc32(head, (position ^ salt) & 0xFFFFFFFF))
        parts += (head, payload, check(checksum))
        positions.append(position)
        position += length + OVERHEAD
    return b"".join(parts), cast("list[Position]", positions)


def frames(
    files: Files, path: Path, base: int, salt: int, largest: int, start: int, stop: int
) -> Iterator[tuple[int, Record]]:
    """Records of a file between two offsets, each with its own; raises BadRecord at the first that is none.

    `base` is the position of the file's first byte, `largest` the longest payload it may hold, so that
    no damaged length makes this read more than that.
    """
    unpack, check, crc32, head_bytes = _HEAD.unpack_from, _CHECK.unpack_from, zlib.crc32, _HEAD.size
    while start < stop:
        data = files.read(path, start, min(_CHUNK, stop - start))
        view, place, need = memoryview(data), 0, OVERHEAD
        while len(data) - place >= need:
            length, kind, stamp, switch, sequence = unpack(data, place)
            if length > largest or kind == 0:
                reason = "no record begins here" if kind == 0 else f"a length of {length} bytes"
                raise BadRecord(start + place, reason)
            end = place + head_bytes + length
            if end + _CHECK.size > len(data):
                need = length + OVERHEAD
                if place == 0 and start + need <= stop:
                    data = files.read(path, start, need)
                    view = memoryview(data)
                    continue
                break
            seed = ((base + start + place) ^ salt) & 0xFFFFFFFF
            if crc32(view[place:end], seed) != check(data, end)[0]:
                raise BadRecord(start + place, "a record whose checksum does not fit")
            payload = data[place + head_bytes : end]
            yield start + place, Record(kind, stamp, switch, sequence, payload)
            place, need = end + _CHECK.size, OVERHEAD
        start += place
        if start < stop and start + need > stop:
            raise BadRecord(start, "an incomplete record")
        if place == 0 and len(data) < need:
            raise BadRecord(start, "an incomplete record")
