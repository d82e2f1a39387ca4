"""What time brings about for a desk: its timers, and rows that it looks at once in a while.

Times are those of messages. A row that has waited for long enough is told as it is then, where it is another
than when it began to wait, and the condition of its watch holds.
"""

import numpy as np

from orderbook.core.jit import called_with, jit
from orderbook.engine.maps.memory import call
from orderbook.market.block_memory import Record, address_of, load, move, record_at, store
from orderbook.strategies.execution.desk import at_hand, desk_at
from orderbook.strategies.execution.exchange_state import LAST

# A method that is called at each multiple of its period, ns, as messages pass it: how many periods have
# passed, and whether that is known, which the first message says.
TIMER = np.dtype([(name, "i8") for name in ("period", "periods", "known", "entry")])
# A row of a watch that is looked at once in `every` ns at most. The row as it was when it began to wait, room
# for the row now, and its key follow, in words.
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
        ("state", "i8"),  # of the engine's runtime, and the functions by which it has a row of a key, and
        ("row", "i8"),  # says whether the watch's condition holds of it (0: always)
        ("condition", "i8"),
    ]
)
COUNT_WORD, FLAG_WORD, VALUE_WORD, DOUBLE_WORD = range(4)

throttle_at = record_at(THROTTLE)
_timer_at = record_at(TIMER)
_THROTTLE_BYTES, _TIMER_BYTES = THROTTLE.itemsize, TIMER.itemsize


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
def offered(desk: Record, throttle: Record, old: int, now: int) -> bool:
    """A watch has fired for a row, which was as it is at an address; whether its method is to be called
    now."""
    if throttle.waits != 0:
        return False
    if throttle.known != 0 and now < throttle.told + throttle.every:
        desk.waited += 1
        throttle.waits = desk.waited
        move(old, address_of(throttle) + _THROTTLE_BYTES, throttle.words)
        desk.due = min(desk.due, throttle.told + throttle.every)
        return False
    throttle.told, throttle.known = now, 1
    return True


@jit()
def _next_waiting(desk: Record, watch: int, waits: int, now: int) -> int:
    """The THROTTLE that has waited for long enough and comes next, by watches, then as they began to; 0:
    none."""
    found = 0
    for number in range(desk.throttles_count):
        address: int = load(desk.throttles + 8 * number)
        one = throttle_at(address)
        if one.waits != 0 and one.told + one.every <= now:
            later = one.watch > watch or (one.watch == watch and one.waits > waits)
            if later and found != 0:
                best = throttle_at(found)
                later = one.watch < best.watch or (one.watch == best.watch and one.waits < best.waits)
            if later:
                found = address
    return found


@jit()
def _read(throttle: Record, row: int) -> int:
    """Writes the row as it is to an address; how often it stands."""
    key = row + 8 * throttle.words
    count: int = call(throttle.row, throttle.state, key, row)
    if count == 0:
        for number in range(throttle.words):
            store(row + 8 * number, 0)
    return count


@jit()
def _look_at_waiting(address: int, now: int) -> None:
    """Tells rows that have waited for long enough."""
    desk = desk_at(address)
    found = _next_waiting(desk, -1, 0, now)
    while found != 0:
        one = throttle_at(found)
        watch, waits = one.watch, one.waits
        one.waits = 0
        old, new = found + _THROTTLE_BYTES, found + _THROTTLE_BYTES + 8 * one.words
        count = _read(one, new)
        tells = not _same(old, new, one.kinds, one.words)
        if tells and one.condition != 0:
            tells = count != 0 and call(one.condition, one.state, new, 0) != 0
        if tells:
            one.told = now
            at_hand(desk, one.instrument, now)
            desk.calls += 1
            call(one.entry, address, new, old)
        found = _next_waiting(desk, watch, waits, now)
    desk.due = LAST
    for number in range(desk.throttles_count):
        one = throttle_at(load(desk.throttles + 8 * number))
        if one.waits != 0:
            desk.due = min(desk.due, one.told + one.every)


@jit()
def _call_timers(address: int, now: int) -> None:
    """Calls methods whose timers have come; none at the first message, which starts them."""
    desk = desk_at(address)
    desk.timer_due = LAST
    for number in range(desk.timers_count):
        one = _timer_at(desk.timers + _TIMER_BYTES * number)
        periods = now // one.period
        comes = one.known != 0 and one.periods < periods
        if comes or one.known == 0:
            one.periods, one.known = periods, 1
        desk.timer_due = min(desk.timer_due, (one.periods + 1) * one.period)
        if comes:
            at_hand(desk, desk.only, now)
            desk.others += 1
            call(one.entry, address, 0, 0)


@jit()
def is_time(desk: Record, now: int) -> bool:
    """Whether `let_time_pass` has anything to do."""
    due: bool = desk.due <= now or desk.timer_due <= now
    return due


@jit()
def let_time_pass(address: int, now: int) -> None:
    """Calls methods of a desk whose timers have come, then tells rows that have waited for long enough."""
    desk = desk_at(address)
    if desk.timer_due <= now:
        _call_timers(address, now)
    if desk.due <= now:
        _look_at_waiting(address, now)


@called_with("iiii")
def offer(desk: int, throttle: int, old: int, now: int) -> int:
    """See `offered`."""
    return 1 if offered(desk_at(desk), throttle_at(throttle), old, now) else 0
