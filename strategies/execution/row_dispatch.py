"""Rows of views that have fired in the loop, to the compiled methods that are called with them.

A watch has a HANDLER; each row goes to the INSTANCE of the strategy whose it is, at once or, where it is
looked at once in a while, by a THROTTLE.
"""

import numpy as np

from orderbook.core.jit import called_with, jit
from orderbook.engine.generate.state_layout import FIRED, FIRED_WORDS
from orderbook.engine.maps.memory import call
from orderbook.market.block_memory import Record, address_of, load, move, record_at
from orderbook.strategies.execution.desk import at_hand, desk_at
from orderbook.strategies.execution.exchange_state import LAST

# A row of a watch that is looked at once in `every` ns at most. The row as it was when it began to wait, and
# the row now, follow, in words.
THROTTLE = np.dtype(
    [
        ("every", "i8"),
        ("told", "i8"),  # when it was told last, ns, and whether it ever was
        ("known", "i8"),
        ("waits", "i8"),  # 0: no; else a number that grows with each that begins to
        ("watch", "i8"),
        ("instrument", "i8"),
        ("entry", "i8"),
        ("words", "i8"),  # of a row
        ("kinds", "i8"),  # address of int64[words]: COUNT_WORD, FLAG_WORD, VALUE_WORD or DOUBLE_WORD
    ]
)
COUNT_WORD, FLAG_WORD, VALUE_WORD, DOUBLE_WORD = range(4)
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
_throttle_at = record_at(THROTTLE)
_HANDLER_BYTES, _INSTANCE_BYTES, _THROTTLE_BYTES = HANDLER.itemsize, INSTANCE.itemsize, THROTTLE.itemsize


@jit()
def _same(one: int, other: int, kinds: int, words: int) -> bool:
    """Whether two rows at addresses are equal."""
    if load(one) == 0 and load(other) == 0:
        return True
    there = True
    for number in range(words):
        kind, a, b = load(kinds + 8 * number), load(one + 8 * number), load(other + 8 * number)
        if kind == FLAG_WORD:
            there = a != 0
            if there != (b != 0):
                return False
        elif a != b and (kind == COUNT_WORD or there):
            # 0.0 and -0.0 are equal.
            zeros = kind == DOUBLE_WORD and a << 1 == 0 and b << 1 == 0
            if not zeros:
                return False
    return True


@jit()
def _offered(desk: Record, throttle: Record, old: int, new: int, now: int) -> bool:
    """A row has changed; whether its method is to be called now."""
    rows = address_of(throttle) + _THROTTLE_BYTES
    move(new, rows + 8 * throttle.words, throttle.words)
    if throttle.waits != 0:
        return False
    if throttle.known != 0 and now < throttle.told + throttle.every:
        desk.waited += 1
        throttle.waits = desk.waited
        move(old, rows, throttle.words)
        desk.due = min(desk.due, throttle.told + throttle.every)
        return False
    throttle.told, throttle.known = now, 1
    return True


@jit()
def look_at_waiting(address: int, now: int) -> None:
    """Tells rows that have waited for long enough, by watches, then as they began to."""
    desk = desk_at(address)
    watch, waits = -1, 0
    while True:
        found = 0
        for number in range(desk.throttles_count):
            throttle = load(desk.throttles + 8 * number)
            one = _throttle_at(throttle)
            if one.waits != 0 and one.told + one.every <= now:
                later = one.watch > watch or (one.watch == watch and one.waits > waits)
                if later and (
                    found == 0
                    or one.watch < _throttle_at(found).watch
                    or (one.watch == _throttle_at(found).watch and one.waits < _throttle_at(found).waits)
                ):
                    found = throttle
        if found == 0:
            break
        one = _throttle_at(found)
        watch, waits = one.watch, one.waits
        one.waits = 0
        old, new = found + _THROTTLE_BYTES, found + _THROTTLE_BYTES + 8 * one.words
        if not _same(old, new, one.kinds, one.words):
            one.told = now
            at_hand(desk, one.instrument, now)
            desk.calls += 1
            call(one.entry, address, new, old)
    desk.due = LAST
    for number in range(desk.throttles_count):
        one = _throttle_at(load(desk.throttles + 8 * number))
        if one.waits != 0:
            desk.due = min(desk.due, one.told + one.every)


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
            if one.throttle == 0 or _offered(desk, _throttle_at(one.throttle), old, new, now):
                at_hand(desk, one.instrument, now)
                desk.calls += 1
                call(handler.entry, one.desk, new, old)
        firing += 8 * handler.words
    return True


@called_with("iiiii")
def offer(desk: int, throttle: int, old: int, new: int, now: int) -> int:
    """See `_offered`."""
    return 1 if _offered(desk_at(desk), _throttle_at(throttle), old, new, now) else 0
