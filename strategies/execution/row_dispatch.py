"""Rows of views that have fired in the loop, to the compiled methods that are called with them.

A watch has a HANDLER; each row goes to the INSTANCE of the strategy whose it is, at once or, where it is
looked at once in a while, by a THROTTLE (see `desk_clock`).
"""

import numpy as np

from orderbook.core.jit import jit
from orderbook.engine.generate.state_layout import FIRED, FIRED_WORDS
from orderbook.engine.maps.memory import call
from orderbook.market.block_memory import Record, load, record_at
from orderbook.strategies.execution.desk import at_hand, desk_at
from orderbook.strategies.execution.desk_clock import offered, throttle_at

# Of each watch: what it calls (0: Python does), and how its firings lie.
HANDLER = np.dtype(
    [
        ("entry", "i8"),
        ("words", "i8"),  # of a firing
        ("old", "i8"),  # where its rows begin, in words
        ("new", "i8"),
        ("venue", "i8"),  # which of the keys they are, from 0; -1: none is
        ("symbol", "i8"),
        ("instances", "i8"),  # address of INSTANCE[count]
        ("count", "i8"),
        ("apart", "i8"),  # whether it does not matter in which order rows are told, and all are of instances
    ]
)
# A strategy's instance for the rows of one instrument: codes of its venue and symbol; the address of a
# THROTTLE, 0 where each row is told.
INSTANCE = np.dtype([(name, "i8") for name in ("venue", "symbol", "instrument", "desk", "throttle")])

_handler_at = record_at(HANDLER)
_instance_at = record_at(INSTANCE)
_HANDLER_BYTES, _INSTANCE_BYTES = HANDLER.itemsize, INSTANCE.itemsize


@jit()
def _instance_of(handler: Record, firing: int) -> int:
    """The address of the INSTANCE of a firing's row, 0 where there is none."""
    for number in range(handler.count):
        place: int = handler.instances + _INSTANCE_BYTES * number
        one = _instance_at(place)
        venue = handler.venue < 0 or load(firing + 8 + 8 * handler.venue) == one.venue
        if venue and (handler.symbol < 0 or load(firing + 8 + 8 * handler.symbol) == one.symbol):
            return place
    return 0


@jit()
def dispatch(handlers: int, state: int, now: int) -> bool:
    """Calls compiled methods for the rows of views that have fired; False where Python is to do it, which
    knows the order of several rows of a watch.

    handlers: address of HANDLER, by watch. state: of the engine's runtime.
    """
    firing = load(state + 8 * FIRED)
    end, watch = firing + 8 * load(state + 8 * FIRED_WORDS), -1
    while firing < end:
        handler = _handler_at(handlers + _HANDLER_BYTES * load(firing))
        again = load(firing) <= watch and handler.apart == 0
        known = handler.apart != 0 or _instance_of(handler, firing) != 0
        if handler.entry == 0 or again or not known:
            return False
        watch = load(firing)
        firing += 8 * handler.words
    firing = load(state + 8 * FIRED)
    while firing < end:
        handler = _handler_at(handlers + _HANDLER_BYTES * load(firing))
        place = _instance_of(handler, firing)
        # Rows of no instance are nobody's.
        if place != 0:
            one = _instance_at(place)
            desk = desk_at(one.desk)
            old, new = firing + 8 * handler.old, firing + 8 * handler.new
            if one.throttle == 0 or offered(desk, throttle_at(one.throttle), old, now):
                at_hand(desk, one.instrument, now)
                desk.calls += 1
                call(handler.entry, one.desk, new, old)
        firing += 8 * handler.words
    return True
