"""The universal market event: one structured dtype for every exchange, file and log.

Prices and volumes are integers, in the `price_unit` and `volume_unit` of the event's instrument ("ticks" and
"lots"), which may be finer than what orders are sent in; times are ns since 1970 UTC. A feed turns each
exchange message into one or more events; the last carries LAST.
"""

from enum import IntEnum, IntFlag

import numpy as np


class Action(IntEnum):
    """What an event does to a book."""

    ADD = 1       # a new resting order: order_id, side, price, volume
    REDUCE = 2    # part of an order is cancelled: volume is what goes away
    MODIFY = 3    # an order now has this price and volume (loses or keeps priority, the exchange says)
    DELETE = 4    # an order leaves the book, whatever is left of it
    EXECUTE = 5   # volume of a resting order trades; the order leaves when nothing is left
    LEVEL = 6     # L2: a price level now has this total volume; 0 removes it
    CLEAR = 7     # the side (or both, Side.NONE) of the book empties: gap, resync, halt
    TRADE = 8     # a trade print that changes no book state; side is the aggressor's
    STATE = 9     # the book's state becomes `volume`: a BookState; `order_id` is a StateReason
    INSTRUMENT = 10  # the instrument's tick becomes `price`, its lot `volume`; the book stays as it is


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
    SYNCHRONISED = 1   # valid: it equals the exchange's
    CONNECTED = 2      # syncing: a connection has begun
    DISCONNECTED = 3   # stale: the connection ended
    SILENCE = 4        # stale: nothing was heard for too long
    GAP = 5            # syncing: messages are missing
    CHECKSUM = 6       # syncing: the exchange's checksum is another
    MALFORMED = 7      # syncing: a message could not be used
    RESET = 8          # syncing: the exchange began again
    HALTED = 9         # stale: trading is halted or paused
    CLOSED = 10        # stale: the session is over
    AUCTION = 11       # stale: orders are collected, and the book may be crossed
    CROSSED = 12       # stale, or syncing where it is fetched anew: crossed for too long outside an auction


class Flag(IntFlag):
    LAST = 1       # the last event of its exchange message
    SNAPSHOT = 2   # part of a snapshot, not a change that happened now


EVENT = np.dtype(
    [
        ("exchange_time", "i8"),  # ns, 0 where the exchange gives none
        ("receive_time", "i8"),   # ns by the receiver's clock; for files without one, exchange_time
        ("sequence", "i8"),       # the exchange's own sequence number or update id, 0 where none
        ("order_id", "i8"),       # 0 where none (L2, hidden executions)
        ("price", "i8"),          # ticks
        ("volume", "i8"),         # lots
        ("instrument", "i4"),     # index into the run's instruments
        ("broker_id", "i4"),      # 0 where the exchange does not tell
        ("action", "u1"),
        ("side", "u1"),           # the resting order's side; for TRADE the aggressor's
        ("flags", "u2"),
        ("reserved", "u4"),
    ],
    align=False,
)
assert EVENT.itemsize == 64


def plain(events: np.ndarray) -> np.ndarray:
    """EVENT[n] as compiled code takes it: one block of memory, writeable; copied where it is not."""
    return events if events.flags.c_contiguous and events.flags.writeable else events.copy()
