"""The universal market event: one structured dtype for every exchange, file and log; and the clock's ticks.

Prices and volumes are integers, in the `price_unit` and `volume_unit` of the event's instrument ("ticks" and
"lots"), which may be finer than what orders are sent in; times are ns since 1970 UTC. A feed turns each
exchange message into one or more events; the last carries LAST.

The clock ticks before the first event of every step of its resolution, by the events' own times.
"""

from collections.abc import Iterator
from enum import IntEnum, IntFlag
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray


class Action(IntEnum):
    """What an event does to a book."""

    ADD = 1  # a new resting order: order_id, side, price, volume
    REDUCE = 2  # part of an order is cancelled: volume is what goes away
    MODIFY = 3  # an order now has this price and volume (loses or keeps priority, the exchange says)
    DELETE = 4  # an order leaves the book, whatever is left of it
    EXECUTE = 5  # volume of a resting order trades; the order leaves when nothing is left
    LEVEL = 6  # L2: a price level now has this total volume; 0 removes it
    CLEAR = 7  # the side (or both, Side.NONE) of the book empties: gap, resync, halt
    TRADE = 8  # a trade print that changes no book state; side is the aggressor's
    STATE = 9  # the book's state becomes `volume`: a BookState; `order_id` is a StateReason
    INSTRUMENT = 10  # the instrument's tick becomes `price`, its lot `volume`; the book stays as it is
    # What exchanges tell of contracts; no book changes. Units are those of the relation's columns.
    FUNDING = 11  # `price` is the rate in 1e-12, `order_id` when it is paid next (ns, 0: not told)
    MARK = 12  # `price` is the mark price, `volume` the index price (0: not told), both in 1e-8
    OPEN_INTEREST = 13  # `volume` in 1e-8 of what the exchange's volumes count
    LIQUIDATION = 14  # as TRADE: an order of the exchange's closes a position; side is that order's


class Side(IntEnum):
    BID = 0
    ASK = 1
    NONE = 2


class BookState(IntEnum):
    SYNCING = 0
    VALID = 1
    STALE = 2


class StateReason(IntEnum):
    """Why a book has its state."""

    NONE = 0
    SYNCHRONISED = 1  # valid: it equals the exchange's
    CONNECTED = 2  # syncing: a connection has begun
    DISCONNECTED = 3  # stale: the connection ended
    SILENCE = 4  # stale: nothing was heard for too long
    GAP = 5  # syncing: messages are missing
    CHECKSUM = 6  # syncing: the exchange's checksum is another
    MALFORMED = 7  # syncing: a message could not be used
    RESET = 8  # syncing: the exchange began again
    HALTED = 9  # stale: trading is halted or paused
    CLOSED = 10  # stale: the session is over
    AUCTION = 11  # stale: orders are collected, and the book may be crossed
    CROSSED = 12  # stale, or syncing where it is fetched anew: crossed for too long outside an auction


class Flag(IntFlag):
    LAST = 1  # the last event of its exchange message
    SNAPSHOT = 2  # part of a snapshot, not a change that happened now
    REPLACED = 4  # of a DELETE: another order, which the message adds, takes this one's place


EVENT = np.dtype(
    [
        ("exchange_time", "i8"),  # ns, 0 where the exchange gives none
        ("receive_time", "i8"),  # ns by the receiver's clock; for files without one, exchange_time
        ("sequence", "i8"),  # the exchange's own sequence number or update id, 0 where none
        ("order_id", "i8"),  # 0 where none (L2, hidden executions)
        ("price", "i8"),  # ticks
        ("volume", "i8"),  # lots
        ("instrument", "i4"),  # index into the run's instruments
        ("broker_id", "i4"),  # 0 where the exchange does not tell
        ("action", "u1"),
        ("side", "u1"),  # the resting order's side; for TRADE the aggressor's
        ("flags", "u2"),
        ("reserved", "u4"),
    ],
    align=False,
)
assert EVENT.itemsize == 64
# EVENT[n].
Events = NDArray[np.void]


def plain(events: Events) -> Events:
    """EVENT[n] as compiled code takes it: one block of memory, writeable; copied where it is not."""
    return events if events.flags.c_contiguous and events.flags.writeable else events.copy()


_LAST = int(Flag.LAST)
# Times of several sources are in no better order than this, ns.
_LATE = 10**9


class Ticker:
    """Multiples of `resolution` (ns) as times pass them; `last` was the last, None before the first time.

    `late` counts times of another step that is more than a second before `last`, which does not go back;
    `latest` is by how much at most, ns.
    """

    def __init__(self, resolution: int) -> None:
        self._resolution = resolution
        self.last: int | None = None
        self.late = self.latest = 0
        self._message_open = False

    def due(self, time: int) -> int | None:
        """The tick to stamp before what happens at `time` (ns); None where the clock shows it already."""
        step = time - time % self._resolution
        if time <= 0 or (self.last is not None and step <= self.last):
            return None
        self.last = step
        return step

    def note(self, time: int) -> None:
        """Count the time of a source, if it is late."""
        if time > 0 and self.last is not None:
            self._note_late(np.array([self.last - time + time % self._resolution]))

    def parts(self, events: Events, live: bool = False) -> Iterator[tuple[int | None, Events]]:
        """EVENT[n], n > 0, cut before messages that ticks are due before: (tick or None, part) each. Live
        ones are late only because they had to wait."""
        times = np.where(events["receive_time"], events["receive_time"], events["exchange_time"])
        starts = np.flatnonzero(events["flags"][:-1] & _LAST) + 1
        if not self._message_open:
            starts = np.concatenate([[0], starts])
        self._message_open = not events["flags"][-1] & _LAST
        ticking = starts[self.moves(times[starts], live)].tolist()
        if not ticking or ticking[0]:
            yield None, events[: ticking[0] if ticking else len(events)]
        for start, end in pairwise([*ticking, len(events)]):
            yield self.due(int(times[start])), events[start:end]

    def moves(self, times: NDArray[np.int64], live: bool = False) -> NDArray[np.int64]:
        """Which messages of these times, int64[n], ticks are due before; those late are counted, but live."""
        steps = times - times % self._resolution
        last = np.iinfo(np.int64).min if self.last is None else self.last
        highest = np.maximum.accumulate(np.maximum(steps, last))
        if not live:
            self._note_late((highest - steps)[times > 0])
        return np.flatnonzero(highest > np.concatenate([[last], highest[:-1]]))

    def _note_late(self, behind: NDArray[np.int64]) -> None:
        late = behind[behind > max(self._resolution, _LATE)]
        if len(late):
            self.late += len(late)
            self.latest = max(self.latest, int(late.max()))
