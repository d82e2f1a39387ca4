"""Small functions that generated modules call, and those of views/scalars made callable for them.

Here are, too, the order of doubles as words of trees, and where it lies among exact keys. Generated modules
import the modules of views/scalars from here: importing this one makes their functions callable from compiled
code.
"""

import math
from typing import Any

from numba.extending import overload, register_jitable

from orderbook.core.changes import END_OF_EVENT, END_OF_MESSAGE, NULL_CODE
from orderbook.core.jit import called_with, jit
from orderbook.core.native_types import SUBSTITUTES
from orderbook.engine.generate.state_layout import (
    ALWAYS,
    BATCH,
    CALL_RAISED,
    CHECKED_ROWS,
    CONDITION,
    COUNT,
    COUNTED,
    DIRTY,
    EDGES,
    ERROR,
    EVENTS,
    FAILED,
    FIRED,
    FIRED_BYTES,
    FIRED_CAPACITY,
    FIRED_WORDS,
    FOLLOWING,
    GROUP_WORDS,
    INFINITE,
    LOOK_COUNT,
    LOOKING,
    LOOKS,
    NOT_DESCRIBED,
    NUMBER,
    OPEN,
    PATTERN_COUNT,
    PATTERNS,
    RUN,
    SCRATCH,
    TEXT_PLACES,
    TEXT_VALUE,
    TEXT_WORDS,
    TEXTS,
    UNCOUNTED,
    WATCH_WORDS,
    WIDE_KEY,
)
from orderbook.engine.maps import wide_moments
from orderbook.engine.maps.batch_arrays import describe_batch
from orderbook.engine.maps.memory import (
    call,
    calloc,
    load,
    load_byte,
    load_double,
    release,
    restore_thread,
    save_thread,
    store,
    store_double,
)
from orderbook.engine.maps.row_store import tells
from orderbook.engine.maps.wide_numbers import low_word, wide, words_to_wide
from orderbook.views.scalars import calendar, integers, reals
from orderbook.views.scalars.texts import FIRST_NOTED
from orderbook.views.scalars.user_functions import by_number
from orderbook.views.types import INT64_MAX


@jit()
def double_bits(S, value):  # type: ignore[no-untyped-def]
    """The 64 bits of a double, as the word of a key."""
    store_double(S, SCRATCH, value)
    return load(S, SCRATCH)


@jit()
def bits_to_double(S, word):  # type: ignore[no-untyped-def]
    """The double whose 64 bits are `word`."""
    store(S, SCRATCH, word)
    return load_double(S, SCRATCH)


@jit()
def clamp(value):  # type: ignore[no-untyped-def]
    """The int64 nearest to an Int128."""
    if value > wide(INT64_MAX):
        return INT64_MAX
    if value < wide(-INT64_MAX):
        return -INT64_MAX
    return low_word(value)


@jit()
def wide_null():  # type: ignore[no-untyped-def]
    """NULL among 128-bit integers, none of which is NULL_CODE."""
    return words_to_wide(0, NULL_CODE)


@jit()
def key_word(value):  # type: ignore[no-untyped-def]
    """An Int128 that 64 bits hold, or NULL, as the word of a key."""
    if value == wide_null():
        return NULL_CODE
    return low_word(value)


@jit()
def checked_word(value, S):  # type: ignore[no-untyped-def]
    """An Int128 as the word of a key; what 64 bits do not hold is noted in the state."""
    if (value < wide(-INT64_MAX) or value > wide(INT64_MAX)) and value != wide_null():
        store(S, ERROR, WIDE_KEY)
    return key_word(value)


@jit()
def widened(word):  # type: ignore[no-untyped-def]
    """An int64 as an Int128, NULL included."""
    if word == NULL_CODE:
        return wide_null()
    return wide(word)


@jit()
def same_integer(value, word):  # type: ignore[no-untyped-def]
    """Whether an Int128 equals an int64, NULL being equal to NULL."""
    if word == NULL_CODE:
        return value == wide_null()
    return value == wide(word)


@jit()
def checked_finite(value, S):  # type: ignore[no-untyped-def]
    """A double as it is; what no double holds is noted in the state."""
    if math.isfinite(value):
        return value
    store(S, ERROR, INFINITE)
    return 0.0


def user_function(number: int) -> Any:
    """The function of a user by its number, for generated modules: (address of CALLED, arguments …)."""
    return by_number(number).compiled.external


@jit()
def returned_double(S, value):  # type: ignore[no-untyped-def]
    """What a user's function gives; that it has raised is noted in the state."""
    if value != value:
        store(S, ERROR, CALL_RAISED)
        return 0.0
    return value


@jit()
def returned_word(S, value):  # type: ignore[no-untyped-def]
    """As `returned_double`, of integers and conditions."""
    if value == NULL_CODE:
        store(S, ERROR, CALL_RAISED)
        return 0
    return value


@jit()
def matches(code, table):  # type: ignore[no-untyped-def]
    """Whether the string of a dictionary code is as a pattern says.

    table: address of a word that counts the codes it knows, then a bit for each of them. To be read after
        the code, which moves it where that is of a new text.
    """
    return 0 <= code < load(table, 0) and load(table, 1 + (code >> 6)) >> (code & 63) & 1 != 0


@jit()
def folded(word):  # type: ignore[no-untyped-def]
    """24 bits of a word."""
    return (word ^ word >> 20 ^ word >> 44) & 0xFFFFFF


@jit()
def text_value(S, function, first, second, third):  # type: ignore[no-untyped-def]
    """The word that a function of texts gives, by its number; arguments that it has not are 0.

    What was computed last is found in the state; else Python computes it, and notes in ERROR that it cannot.
    """
    mixed = 31 * function + folded(first) + 7919 * folded(second) + 104729 * folded(third)
    own = load(S, TEXTS) + 8 * TEXT_WORDS * (mixed & (TEXT_PLACES - 1))
    if (
        load(own, 0) == function
        and load(own, 1) == first
        and load(own, 2) == second
        and load(own, 3) == third
    ):
        return load(own, 4)
    store(own, 0, 0)
    store(own, 1, first)
    store(own, 2, second)
    store(own, 3, third)
    value = call(load(S, TEXT_VALUE), function, own, 0)
    store(own, 4, value)
    if load(S, ERROR) == 0 and function < FIRST_NOTED:
        store(own, 0, function)
    return value


@jit()
def push_key(S, at, words):  # type: ignore[no-untyped-def]
    """The address of one more key of `words` words in the growing list at state word `at`.

    Words at, at + 1 and at + 2 hold the list's address, count and capacity in keys.
    """
    count = load(S, at + 1)
    if count == load(S, at + 2):
        capacity = max(16, 2 * count)
        grown = calloc(max(1, capacity * words), 8)
        old = load(S, at)
        for word in range(count * words):
            store(grown, word, load(old, word))
        release(old)
        store(S, at, grown)
        store(S, at + 2, capacity)
    store(S, at + 1, count + 1)
    return load(S, at) + 8 * words * count


@jit()
def last_key(S, at, words):  # type: ignore[no-untyped-def]
    """The address of the last key of the growing list at state word `at`; 0 where there is none."""
    count = load(S, at + 1)
    return load(S, at) + 8 * words * (count - 1) if count > 0 else 0


@jit()
def fire(S, watch, count, keys, words, old, new):  # type: ignore[no-untyped-def]
    """Appends a firing to the state's list: watch, `count` keys, then `words` of the old and the new row."""
    used, size = load(S, FIRED_WORDS), 1 + count + 2 * words
    if used + size > load(S, FIRED_CAPACITY):
        capacity = max(256, 2 * (used + size))
        grown = calloc(capacity, 8)
        block = load(S, FIRED)
        for word in range(used):
            store(grown, word, load(block, word))
        release(block)
        store(S, FIRED, grown)
        store(S, FIRED_CAPACITY, capacity)
    place = load(S, FIRED) + 8 * used
    store(place, 0, watch)
    for word in range(count):
        store(place, 1 + word, load(keys, word))
    for word in range(words):
        store(place, 1 + count + word, load(old, word))
        store(place, 1 + count + words + word, load(new, word))
    store(S, FIRED_WORDS, used + size)


@jit()
def condition_bits(S, group, row):  # type: ignore[no-untyped-def]
    """Which conditions of a group of watches hold of a row, a bit for each."""
    watch, bits = group + 8 * GROUP_WORDS, 0
    for number in range(load(group, COUNTED)):
        condition = load(watch, CONDITION)
        if condition != 0:
            bits |= call(condition, S, row, 0) << number
        watch += 8 * WATCH_WORDS
    return bits


@jit()
def fire_group(S, group, before, now, count, keys, words, old, new):  # type: ignore[no-untyped-def]
    """Fires the watches of a group whose time has come; `old` is not `new`.

    before, now: the bits of the conditions that held and hold.
    """
    firing = (now & ~(before & load(group, EDGES))) | load(group, ALWAYS)
    watch = group + 8 * GROUP_WORDS
    while firing != 0:
        if firing & 1 != 0:
            fire(S, load(watch, NUMBER), count, keys, words, old, new)
        firing >>= 1
        watch += 8 * WATCH_WORDS


@jit()
def look(S, message_ends):  # type: ignore[no-untyped-def]
    """Looks at the rows that were touched; whether any watch fired."""
    store(S, DIRTY, 0)
    own = load(S, LOOKS)
    for _ in range(load(S, LOOK_COUNT)):
        at = load(own, 0)
        if message_ends or load(own, 1) == 0:
            call(load(own, 2), S, at, 0)
        elif load(S, at + COUNT) != 0:
            store(S, DIRTY, 1)
        own += 8 * LOOKING
    return load(S, FIRED_WORDS) != 0


@jit()
def follow(S):  # type: ignore[no-untyped-def]
    """Brings the matches of patterns to what the rows are at the end of an event."""
    own = load(S, PATTERNS)
    for _ in range(load(S, PATTERN_COUNT)):
        at = load(own, 0)
        if load(S, at + COUNT) != 0:
            call(load(own, 1), S, at, 0)
        own += 8 * FOLLOWING


# Fewer changes are done before another thread could have begun.
_LONG_BATCH = 64


@jit()
def run_described(S, start, stop):  # type: ignore[no-untyped-def]
    """Lets the program's `run` apply changes of the batch described, many of them beside other threads."""
    if stop - start < _LONG_BATCH:
        return call(load(S, RUN), S, start, stop)
    thread = save_thread()
    done = call(load(S, RUN), S, start, stop)
    restore_thread(thread)
    return done


@called_with("iioooi")
def run_batch(S, types, kinds, flags, values, start):  # type: ignore[no-untyped-def]
    """Applies the changes of a batch from `start` on; what `run` returns.

    NOT_DESCRIBED, and nothing applied, where the arrays are not as ChangeBatch says.
    """
    stop = describe_batch(S + 8 * BATCH, types, kinds, flags, values)
    return NOT_DESCRIBED if stop < 0 else run_described(S, start, stop)


@jit()
def counted(S, progress, start, done):  # type: ignore[no-untyped-def]
    """Counts the events that `run`, which has returned `done`, has applied of the batch described, in
    `progress`, if nothing but firings is left to do.

    Else nothing is counted, and it is less by UNCOUNTED than what `run` returned.
    """
    if done == FAILED:
        return FAILED
    if done < 0 and (load(S, FIRED_WORDS) == 0 or tells(load(S, CHECKED_ROWS))):
        return done - UNCOUNTED
    batch = S + 8 * BATCH
    end = done if done >= 0 else ~done
    at, events, flag = load(batch, 2) + start * load(batch, 3), 0, 0
    for _ in range(start, end):
        flag = load_byte(at)
        events += 1 if flag & (END_OF_EVENT | END_OF_MESSAGE) != 0 else 0
        at += load(batch, 3)
    if end != start:
        store(progress, EVENTS, load(progress, EVENTS) + events)
        store(progress, OPEN, 1 if flag & END_OF_MESSAGE == 0 else 0)
    return done


@called_with("iiioooi")
def run_counted(S, types, progress, kinds, flags, values, start):  # type: ignore[no-untyped-def]
    """As `run_batch`; see `counted`."""
    stop = describe_batch(S + 8 * BATCH, types, kinds, flags, values)
    if stop < 0:
        return NOT_DESCRIBED
    return counted(S, progress, start, run_described(S, start, stop))


@jit()
def run_columns(S, progress, kinds, flags, values, stride, start, stop):  # type: ignore[no-untyped-def]
    """As `run_counted`, with columns at addresses; rows are `stride` bytes apart."""
    batch = S + 8 * BATCH
    store(batch, 0, kinds)
    store(batch, 1, 2)
    store(batch, 2, flags)
    store(batch, 3, 1)
    store(batch, 4, values)
    store(batch, 5, stride)
    return counted(S, progress, start, call(load(S, RUN), S, start, stop))


@called_with("i", "y")
def fired_bytes(S):  # type: ignore[no-untyped-def]
    """The words of the firings at which `run` stopped."""
    store(S, FIRED_BYTES, load(S, FIRED))
    store(S, FIRED_BYTES + 1, 8 * load(S, FIRED_WORDS))
    return S + 8 * FIRED_BYTES


@jit()
def free(address):  # type: ignore[no-untyped-def]
    """Gives a block back, from plain Python."""
    release(address)


# How far, relative to a bound, rounding can carry the key that meets it.
NEAR = 2.0**-48


@jit()
def ordered_word(word):  # type: ignore[no-untyped-def]
    """The 64 bits of a double as an integer in the order of doubles, or back; NULL stays below all."""
    if word >= 0 or word == NULL_CODE:
        return word
    return word ^ INT64_MAX


@jit()
def last_below(bound, divisor):  # type: ignore[no-untyped-def]
    """The greatest int64 n with n / divisor < bound, in doubles; -2^63 where there is none."""
    if bound - bound != 0.0:
        return INT64_MAX if bound > 0.0 else NULL_CODE
    low, high = _bracket(bound, divisor)
    if not float(low) / divisor < bound:
        low = NULL_CODE
    if float(high) / divisor < bound:
        high = INT64_MAX
    while low < high:
        middle = (low | high) - ((low ^ high) >> 1)
        if float(middle) / divisor < bound:
            low = middle
        else:
            high = middle - 1
    return low


@jit()
def last_at_most(bound, divisor):  # type: ignore[no-untyped-def]
    """The greatest int64 n with n / divisor <= bound, in doubles; -2^63 where there is none."""
    if bound - bound != 0.0:
        return INT64_MAX if bound > 0.0 else NULL_CODE
    low, high = _bracket(bound, divisor)
    if not float(low) / divisor <= bound:
        low = NULL_CODE
    if float(high) / divisor <= bound:
        high = INT64_MAX
    while low < high:
        middle = (low | high) - ((low ^ high) >> 1)
        if float(middle) / divisor <= bound:
            low = middle
        else:
            high = middle - 1
    return low


@jit()
def _bracket(bound, divisor):  # type: ignore[no-untyped-def]
    """Two integers that a bound is very likely between."""
    middle = bound * divisor
    width = abs(middle) * NEAR + 2.0
    low, high = middle - width, middle + width
    if not (low > -9.2e18 and high < 9.2e18):
        return NULL_CODE, INT64_MAX
    return int(low), int(high)


# The words, in the order of doubles, of infinity, and of what is less than any double.
MOST_WORD = 0x7FF0000000000000
LEAST_WORD = -MOST_WORD - 2
# How many doubles lie between an inverse that is rounded and the one that is sought, as a rule.
CLOSE = 4


@jit()
def last_addend(S, bound, addend, strict):  # type: ignore[no-untyped-def]
    """The greatest double y with y + addend <= bound, `strict` < bound; infinite where all or none are."""
    return _last_operand(S, 0, bound, addend, strict, bound - addend)


@jit()
def last_factor(S, bound, factor, strict):  # type: ignore[no-untyped-def]
    """The greatest double y with y * factor <= bound, as `last_addend`; infinity for a factor below 0."""
    if factor > 0.0:
        return _last_operand(S, 1, bound, factor, strict, bound / factor)
    none = factor == 0.0 and (bound <= 0.0 if strict else bound < 0.0)
    return -math.inf if none else math.inf


@jit()
def last_dividend(S, bound, divisor, strict):  # type: ignore[no-untyped-def]
    """The greatest double y with y / divisor <= bound, as `last_addend`; infinity for one not above 0."""
    if divisor > 0.0:
        return _last_operand(S, 2, bound, divisor, strict, bound * divisor)
    return math.inf


@jit()
def _last_operand(S, operation, bound, operand, strict, close):  # type: ignore[no-untyped-def]
    """The last double that lies below the bound, sought among the words of doubles around `close`."""
    low, high = LEAST_WORD, MOST_WORD
    if close - close == 0.0:
        bits = double_bits(S, close + 0.0)
        middle = bits if bits >= 0 else bits ^ INT64_MAX
        if _is_within(S, operation, middle - CLOSE, bound, operand, strict):
            low = middle - CLOSE
        if not _is_within(S, operation, middle + CLOSE, bound, operand, strict):
            high = middle + CLOSE - 1
    while low < high:
        middle = (low | high) - ((low ^ high) >> 1)
        if _is_within(S, operation, middle, bound, operand, strict):
            low = middle
        else:
            high = middle - 1
    return -math.inf if low == LEAST_WORD else _double_at(S, low) + 0.0


@jit()
def _is_within(S, operation, word, bound, operand, strict):  # type: ignore[no-untyped-def]
    if word <= LEAST_WORD or word > MOST_WORD:
        return word <= LEAST_WORD
    value = _double_at(S, word)
    if operation == 0:
        value += operand
    elif operation == 1:
        value *= operand
    else:
        value /= operand
    return value < bound if strict else value <= bound


@jit()
def _double_at(S, word):  # type: ignore[no-untyped-def]
    return bits_to_double(S, word if word >= 0 else word ^ INT64_MAX)


for _function in (*integers.FUNCTIONS, *reals.FUNCTIONS, *calendar.FUNCTIONS, integers.exact):
    register_jitable(_function)


def _raised(base, exponent):  # type: ignore[no-untyped-def]
    return math.pow(base, exponent)


SUBSTITUTES[reals.raised] = _raised
overload(reals.raised)(lambda base, exponent: _raised)


__all__ = ["calendar", "integers", "reals", "wide_moments"]
