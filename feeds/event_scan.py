"""What a batch of events has, found in one pass over it: messages, books, states."""

import numpy as np
from numpy.typing import NDArray

from orderbook.core.jit import called_with
from orderbook.market.block_memory import record_at
from orderbook.market.events import EVENT, Action, Events, Flag

_BYTES = EVENT.itemsize
_LAST, _STATE = int(Flag.LAST), int(Action.STATE)
_event_at = record_at(EVENT)
_byte_at = record_at(np.dtype([("value", "u1")]))


@called_with("iiii", nogil=True)
def _scan(events: int, count: int, instruments: int, heard: int) -> int:
    """See `scan`; twice the number of messages, and one more where there is a STATE."""
    messages, states = 0, 0
    for place in range(count):
        event = _event_at(events + _BYTES * place)
        if event.flags & _LAST != 0:
            messages += 1
        if event.action == _STATE:
            states = 1
        own = event.instrument
        _byte_at(heard + (own if 0 <= own < instruments else instruments)).value = 1
    return 2 * messages + states


def scan(events: Events, heard: NDArray[np.bool_]) -> tuple[int, bool]:
    """How many messages of EVENT[n] end, and whether one is a STATE.

    heard: bool[instruments + 1], in which those are marked that have events, and by the last one others.
    """
    events = np.ascontiguousarray(events)
    found: int = _scan(events.ctypes.data, len(events), len(heard) - 1, heard.ctypes.data)
    return found >> 1, bool(found & 1)
