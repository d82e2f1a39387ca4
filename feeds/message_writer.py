"""One instrument's exchange messages as EVENT batches that never split a message."""

import numpy as np

from feeds.event_writer import EventWriter
from orderbook.events import Action, Side

# Events a source gives at a time: a few milliseconds of work for whoever takes them.
DEFAULT_BATCH_SIZE = 16_384


class MessageWriter:
    """Packs events; `begin` gives a message's times (ns) and sequence, `end` flags its last event LAST.

    A message without events leaves no trace.
    """

    def __init__(self, instrument: int = 0):
        self._instrument = instrument
        self._events = EventWriter()
        self._exchange_time = self._receive_time = self._sequence = 0

    def __len__(self) -> int:
        return len(self._events)

    def begin(self, exchange_time: int, receive_time: int, sequence: int) -> None:
        self._exchange_time, self._receive_time, self._sequence = exchange_time, receive_time, sequence

    def append(
        self, action: Action, side: Side, order_id: int = 0, price: int = 0, volume: int = 0, flags: int = 0
    ) -> None:
        """Add one event of the message; price in ticks, volume in lots."""
        self._events.append(
            self._instrument,
            action,
            side,
            exchange_time=self._exchange_time,
            receive_time=self._receive_time,
            sequence=self._sequence,
            order_id=order_id,
            price=price,
            volume=volume,
            flags=flags,
        )

    def end(self) -> None:
        """End the message."""
        self._events.end_unit()

    def take(self) -> np.ndarray:
        """EVENT[n], everything since the last call; call it between messages."""
        return self._events.take()
