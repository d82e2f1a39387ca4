"""Columns of a record file as EVENT records, compiled: one pass over all of them."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from orderbook.core.jit import called_with
from orderbook.market.block_memory import load, record_at, store
from orderbook.market.events import EVENT, Action, Events, Flag

# Fields that events can do without.
MAY_LACK = frozenset(("exchange_time", "sequence", "reserved"))
_BYTES = EVENT.itemsize
_LAST, _INSTRUMENT = int(Flag.LAST), int(Action.INSTRUMENT)
# What a pass tells: the events up to the end of the last message, and whether an instrument changes.
_WHOLE, _CHANGES = range(2)

_event_at = record_at(EVENT)
_int_at = record_at(np.dtype([("value", "i4")]))
_word_at = record_at(np.dtype([("value", "u4")]))
_short_at = record_at(np.dtype([("value", "u2")]))
_byte_at = record_at(np.dtype([("value", "u1")]))


@called_with("iiiiii", nogil=True)
def _fill(columns: int, count: int, indexes: int, instruments: int, out: int, told: int) -> int:
    """Writes EVENT[count] at `out` of the columns whose addresses, in the order of its fields, are at one. An
    exchange time, sequence or reserved word without a column is 0.

    indexes: int64[instruments] at an address, by which instruments are translated. Returns `count`, or the
    place of the first event of an instrument that is not there.
    """
    exchange_times, receive_times, sequences = load(columns), load(columns + 8), load(columns + 16)
    orders, prices, volumes = load(columns + 24), load(columns + 32), load(columns + 40)
    numbers, brokers, actions = load(columns + 48), load(columns + 56), load(columns + 64)
    sides, flags, reserved = load(columns + 72), load(columns + 80), load(columns + 88)
    whole, changes = 0, 0
    for place in range(count):
        event = _event_at(out + _BYTES * place)
        event.exchange_time = load(exchange_times + 8 * place) if exchange_times else 0
        event.receive_time = load(receive_times + 8 * place)
        event.sequence = load(sequences + 8 * place) if sequences else 0
        event.order_id = load(orders + 8 * place)
        event.price = load(prices + 8 * place)
        event.volume = load(volumes + 8 * place)
        instrument = np.int64(_int_at(numbers + 4 * place).value)
        if instrument < 0 or instrument >= instruments:
            return place
        event.instrument = load(indexes + 8 * instrument)
        event.broker_id = _int_at(brokers + 4 * place).value
        action, flag = _byte_at(actions + place).value, _short_at(flags + 2 * place).value
        event.action, event.side, event.flags = action, _byte_at(sides + place).value, flag
        event.reserved = _word_at(reserved + 4 * place).value if reserved else 0
        if flag & _LAST != 0:
            whole = place + 1
        if action == _INSTRUMENT:
            changes = 1
    store(told + 8 * _WHOLE, whole)
    store(told + 8 * _CHANGES, changes)
    return count


def fill_events(
    columns: Sequence[NDArray[np.generic] | None], indexes: NDArray[np.int64], out: Events
) -> tuple[int, bool]:
    """Writes EVENT[n] of the columns, each [n] and contiguous, in the order and the types of its fields.

    Fields of MAY_LACK may have none, and are 0 then. indexes: int64[…], by which their instruments are
    translated. Gives how many events there are up to the end of the last message, and whether one of them is
    an INSTRUMENT. Raises IndexError for an instrument that has no index.
    """
    addresses = np.array([0 if one is None else one.ctypes.data for one in columns], np.int64)
    told = np.zeros(2, np.int64)
    count = len(out)
    done = _fill(
        addresses.ctypes.data, count, indexes.ctypes.data, len(indexes), out.ctypes.data, told.ctypes.data
    )
    if done < count:
        raise IndexError(f"event {done} is of an instrument that the file does not name")
    return int(told[_WHOLE]), bool(told[_CHANGES])
