"""Events packed one by one into an EVENT array, and batches of them that never split a message.

Many price levels at once go from wire text to records of LEVEL events by compiled code.
"""

import struct
from collections.abc import Collection, Iterable
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from orderbook.core.errors import DataError
from orderbook.core.jit import jit
from orderbook.market.events import EVENT, Action, Events, Flag
from orderbook.market.instruments import SCALE

# int64 words of an EVENT, and which of them hold the price and the volume.
WORDS, _PRICE, _VOLUME = 8, 4, 5
_POINT, _ZERO, _NINE, _SEPARATOR = ord("."), ord("0"), ord("9"), ord("\n")
# Digits before the point of DECIMAL(18, 8), with which nothing can overflow.
_WHOLE_DIGITS = 10


@jit()
def write_levels(
    text: NDArray[np.uint8], scales: NDArray[np.int64], template: NDArray[np.int64], out: NDArray[np.int64]
) -> int:
    """Fill `out` (int64[n, WORDS]) with copies of `template` (int64[WORDS]), each with a price and a volume.

    text: uint8[…], price and size by turns, each ended by a line feed. scales: int64[4], 10^8 times the units
    of price and volume, and tick and lot in units. Returns how many numbers are off tick or lot; -1 where one
    is not plain digits with at most one point, is no multiple of its unit, or is one too many. Zeros beyond 8
    decimal places say nothing.
    """
    place, end, off = 0, len(text), 0
    for row in range(len(out)):
        for word in range(WORDS):
            out[row, word] = template[word]
        for field in range(2):
            value, digits, places = np.int64(0), 0, -1
            while place < end and text[place] != _SEPARATOR:
                letter = np.int64(text[place])
                if letter == _POINT and places < 0:
                    places = 0
                elif _ZERO <= letter <= _NINE and places < SCALE and (places >= 0 or digits < _WHOLE_DIGITS):
                    value = 10 * value + (letter - _ZERO)
                    digits += 1
                    places += places >= 0
                elif letter != _ZERO or places != SCALE:
                    return -1
                place += 1
            if place == end or digits == 0:
                return -1
            place += 1
            for _ in range(SCALE - max(places, 0)):
                value *= 10
            if value % scales[field]:
                return -1
            value //= scales[field]
            off += value % scales[2 + field] != 0
            out[row, _PRICE + field] = value
    return off if place == end else -1


_RECORD = struct.Struct("=6q2i2BHI")
_LAST = int(Flag.LAST)
# Where, counted from a record's end, the byte of its flags stands that holds LAST.
_LAST_FROM_END = _RECORD.size - _RECORD.pack(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, _LAST, 0).index(_LAST)
_LEVEL = int(Action.LEVEL)
assert _RECORD.size == EVENT.itemsize


class EventWriter:
    """Collects events; `take` hands over all of them as one array and starts afresh.

    Events since the last `end_unit` are an open unit, which `undo` takes back.
    """

    __slots__ = ("_buffer", "_closed")

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._closed = 0

    def __len__(self) -> int:
        return len(self._buffer) // _RECORD.size

    def append(
        self,
        instrument: int,
        action: int,
        side: int,
        *,
        exchange_time: int = 0,
        receive_time: int = 0,
        sequence: int = 0,
        order_id: int = 0,
        price: int = 0,
        volume: int = 0,
        flags: int = 0,
    ) -> None:
        """Add one event; the fields are EVENT's (ns, ticks, lots). Raises DataError for one out of range."""
        try:
            self._buffer += _RECORD.pack(
                exchange_time,
                receive_time,
                sequence,
                order_id,
                price,
                volume,
                instrument,
                0,
                action,
                side,
                flags,
                0,
            )
        except struct.error:
            raise DataError("a number does not fit 64 bits") from None

    def extend_levels(
        self,
        levels: Iterable[tuple[int, int]],
        instrument: int,
        side: int,
        flags: int,
        exchange_time: int,
        receive_time: int,
        sequence: int,
    ) -> None:
        """Add a LEVEL event for each (price in ticks, volume in lots)."""
        pack, exchange, receive = _RECORD.pack, exchange_time, receive_time
        self._buffer += b"".join(
            [
                pack(exchange, receive, sequence, 0, price, volume, instrument, 0, _LEVEL, side, flags, 0)
                for price, volume in levels
            ]
        )

    def extend_texts(
        self,
        levels: Collection[tuple[str, str]],
        scales: NDArray[np.int64],
        instrument: int,
        side: int,
        flags: int,
        exchange_time: int,
        receive_time: int,
        sequence: int,
    ) -> int:
        """Add a LEVEL event for each (price, size) of wire text; -1, and nothing, where one is unusual.

        scales: as of `write_levels`. Returns how many numbers are off the tick or lot.
        """
        event = _RECORD.pack(
            exchange_time, receive_time, sequence, 0, 0, 0, instrument, 0, _LEVEL, side, flags, 0
        )
        text = "\n".join([*chain.from_iterable(levels), ""]).encode()
        records = np.empty((len(levels), WORDS), np.int64)
        off: int = write_levels(
            np.frombuffer(text, np.uint8), scales, np.frombuffer(event, np.int64), records
        )
        if off >= 0:
            self._buffer += records.data
        return off

    def extend_units(self, records: memoryview) -> None:
        """Add whole units, as the bytes of EVENT records, where none is open."""
        self._buffer += records
        self._closed = len(self._buffer)

    def since(self, first: int) -> bytearray:
        """A copy of the EVENT records from a number on, which stay."""
        return self._buffer[first * _RECORD.size :]

    def undo(self) -> None:
        """Take back the events of the open unit."""
        del self._buffer[self._closed :]

    def end_unit(self) -> None:
        """Flag the last event of the open unit LAST; a unit without events leaves no trace."""
        end = len(self._buffer)
        if end > self._closed:
            self._buffer[end - _LAST_FROM_END] |= _LAST
            self._closed = end

    def take(self) -> Events:
        """EVENT[n], the events since the last call, in order."""
        return np.frombuffer(self.take_records(), EVENT)

    def take_records(self) -> bytearray:
        """The same as EVENT records, which are the caller's."""
        records, self._buffer, self._closed = self._buffer, bytearray(), 0
        return records


# Events a source gives at a time: a few milliseconds of work for whoever takes them.
DEFAULT_BATCH_SIZE = 16_384
