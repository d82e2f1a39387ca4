"""What the compiled ITCH decoder knows and counts, and how it writes events."""

from enum import IntEnum

import numpy as np

from feeds import itch_messages as wire
from orderbook.events import EVENT
from orderbook.jit import jit
from orderbook.memory import Record, load, record_at, store


class Count(IntEnum):
    """What the decoder counts."""

    UNKNOWN_TYPE = 0       # problems from here on …
    NO_DIRECTORY = 1
    UNKNOWN_ORDER = 2
    MALFORMED = 3          # … to here
    BROKEN_TRADE = 4
    NOT_PRINTABLE = 5
    EMPTY_CROSS = 6


COUNTS = len(Count)
PROBLEMS = Count.MALFORMED + 1
EXAMPLES = 5


# What an instrument's messages have said: `status`, bits of the decoder, and the StateReason given last.
INSTRUMENT = np.dtype([("status", "i8"), ("reason", "i8")])
CONTEXT = np.dtype(
    [
        ("directory", "i8"),    # of the order table
        ("depth", "i8"),
        ("pool", "i8"),         # see memory
        ("midnight", "i8"),     # ns since 1970 UTC
        ("indexes", "i8"),      # int32[65536] by locate: instrument, NO_DIRECTORY or NOT_CHOSEN
        ("instruments", "i8"),  # INSTRUMENT[n]
        ("counts", "i8"),       # int64[COUNTS]
        ("examples", "i8"),     # int64[PROBLEMS, EXAMPLES], numbers of the first messages
        ("out", "i8"),          # EVENT[n]
        ("written", "i8"),
        ("message", "i8"),      # messages read
        ("stop", "i8"),         # Stop
    ]
)
NO_DIRECTORY, NOT_CHOSEN = -1, -2

_EVENT_BYTES = EVENT.itemsize
_event_at = record_at(EVENT)


@jit()
def count(context: Record, what: int) -> None:
    """Counts something about the message at hand."""
    address = context.counts + 8 * what
    number = load(address)
    store(address, number + 1)
    if what < PROBLEMS and number < EXAMPLES:
        store(context.examples + 8 * (EXAMPLES * what + number), context.message + 1)


@jit()
def emit(
    context: Record,
    at: int,
    instrument: int,
    action: int,
    side: int,
    order_id: int,
    price: int,
    volume: int,
    flags: int,
    broker_id: int = 0,
) -> None:
    """Writes an event of the message at `at`."""
    event = _event_at(context.out + _EVENT_BYTES * context.written)
    context.written += 1
    time = context.midnight + wire.time_of(at)
    event.exchange_time = time
    event.receive_time = time
    event.sequence = context.message + 1
    event.order_id = order_id
    event.price = price
    event.volume = volume
    event.instrument = instrument
    event.broker_id = broker_id
    event.action = action
    event.side = side
    event.flags = flags
    event.reserved = 0
