"""Events packed one by one into an EVENT array."""

import struct

import numpy as np

from orderbook.events import EVENT

_RECORD = struct.Struct("=6q2i2BHI")
assert _RECORD.size == EVENT.itemsize


class EventWriter:
    """Collects events; `take` hands over all of them as one array and starts afresh."""

    __slots__ = ("_buffer",)

    def __init__(self) -> None:
        self._buffer = bytearray()

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
        """Add one event; the fields are EVENT's (ns, ticks, lots)."""
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

    def take(self) -> np.ndarray:
        """EVENT[n], the events since the last call, in order."""
        events = np.frombuffer(self._buffer, EVENT)
        self._buffer = bytearray()
        return events
