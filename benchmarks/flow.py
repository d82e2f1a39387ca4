"""A bid book's order flow, in every form that the loops under comparison read."""

from typing import NamedTuple

import numpy as np
from numba import njit

from orderbook.core.changes import CHECKED, END_OF_EVENT, END_OF_MESSAGE, ChangeBatch
from orderbook.market.events import EVENT, Action, Flag, Side

_ADD, _REDUCE, _DELETE = int(Action.ADD), int(Action.REDUCE), int(Action.DELETE)
_START = 1_767_623_400_000_000_000
_END = CHECKED | END_OF_EVENT | END_OF_MESSAGE
# Odd, so that its products with distinct numbers are distinct: ids look random, as on many venues.
_SCRAMBLE = 0x5851F42D4C957F2D


class Flow(NamedTuple):
    """Adds, reductions and deletes of bids by order id, each a message of its own.

    A bid at level i is priced `levels - i` ticks; level 0 is the best there can be. `symbols`, `slots`
    (a dense number of the order, below `slot_count`) and `at_level` are int64[n], one for each event.
    """

    events: np.ndarray
    symbols: np.ndarray
    slots: np.ndarray
    at_level: np.ndarray
    levels: int
    slot_count: int


def bid_flow(count: int, symbols: int, levels: int, resting: int, seed: int) -> Flow:
    """A flow of `count` events with about `resting` orders a symbol, around a touch that drifts.

    Activity over symbols follows Zipf's law.
    """
    weights = 1.0 / np.arange(1, symbols + 1)
    activity = np.cumsum(weights) / weights.sum()
    events = np.zeros(count, EVENT)
    columns = [np.empty(count, np.int64) for _ in range(6)]
    _fill(activity, levels, resting, seed, *columns)
    symbol, action, slot, level, volume, number = columns
    events["exchange_time"] = events["receive_time"] = _START + 1_000 * np.arange(count)
    events["sequence"] = np.arange(1, count + 1)
    events["order_id"] = (number * _SCRAMBLE) & (2**62 - 1)
    events["price"], events["volume"] = levels - level, volume
    events["instrument"], events["action"] = symbol, action
    events["side"], events["flags"] = Side.BID, Flag.LAST
    return Flow(events, symbol, slot, level, levels, symbols * (2 * resting + 16))


@njit(cache=True)
def _fill(
    activity: np.ndarray,
    levels: int,
    resting: int,
    seed: int,
    symbols: np.ndarray,
    actions: np.ndarray,
    slots: np.ndarray,
    at_level: np.ndarray,
    volumes: np.ndarray,
    numbers: np.ndarray,
) -> None:
    np.random.seed(seed)
    books = len(activity)
    room = 2 * resting + 16
    level_of = np.zeros((books, room), np.int64)
    volume_of = np.zeros((books, room), np.int64)
    number_of = np.zeros((books, room), np.int64)
    # Places below `alive` hold the slots in use, the others the free ones.
    places = np.empty((books, room), np.int64)
    places[:] = np.arange(room)
    alive = np.zeros(books, np.int64)
    touch = np.full(books, levels / 4.0)
    for e in range(len(symbols)):
        s = min(int(np.searchsorted(activity, np.random.random())), books - 1)
        touch[s] = min(max(touch[s] + 0.3 * np.random.normal(), 1.0), levels / 2.0)
        chance = np.random.random()
        symbols[e] = s
        arrival = 0.45 if alive[s] > resting else 0.6
        if alive[s] < min(16, resting) or (chance < arrival and alive[s] < room):
            slot = places[s, alive[s]]
            alive[s] += 1
            level_of[s, slot] = min(int(touch[s] + np.random.exponential(levels / 20.0)), levels - 1)
            volume_of[s, slot] = volumes[e] = 1 + int(np.random.exponential(100.0))
            number_of[s, slot] = e + 1
            actions[e] = _ADD
        else:
            place = np.random.randint(alive[s])
            slot = places[s, place]
            if chance > 0.9 and volume_of[s, slot] > 1:
                volumes[e] = 1 + np.random.randint(volume_of[s, slot] - 1)
                volume_of[s, slot] -= volumes[e]
                actions[e] = _REDUCE
            else:
                volumes[e] = volume_of[s, slot]
                actions[e] = _DELETE
                alive[s] -= 1
                places[s, place], places[s, alive[s]] = places[s, alive[s]], slot
        slots[e] = s * room + slot
        at_level[e] = level_of[s, slot]
        numbers[e] = number_of[s, slot]


def signed_tuples(flow: Flow, insert_kind: int, with_symbol: bool) -> tuple[ChangeBatch, np.ndarray]:
    """The changes of the flow as rows (symbol,) volume, price, and where each event's changes end.

    Kinds are `insert_kind` and the one after it; a reduction deletes the old row and inserts the new.
    """
    count = len(flow.events) + int(np.count_nonzero(flow.events["action"] == _REDUCE))
    kinds, flags = np.empty(count, np.int16), np.empty(count, np.uint8)
    values = np.empty((count, 2 + with_symbol), np.int64)
    ends = np.empty(len(flow.events), np.int64)
    _tuples(flow.events, flow.symbols, flow.slots, flow.slot_count, insert_kind, kinds, flags, values, ends)
    return ChangeBatch(kinds, flags, values), ends


@njit(cache=True)
def _tuples(
    events: np.ndarray,
    symbols: np.ndarray,
    slots: np.ndarray,
    slot_count: int,
    insert_kind: int,
    kinds: np.ndarray,
    flags: np.ndarray,
    values: np.ndarray,
    ends: np.ndarray,
) -> None:
    resting = np.zeros(slot_count, np.int64)
    width = values.shape[1]
    at = 0
    for e in range(len(events)):
        event = events[e]
        slot = slots[e]
        for delete in (True, False):
            if delete == (event.action == _ADD) and event.action != _REDUCE:
                continue
            if not delete:
                resting[slot] = event.volume if event.action == _ADD else resting[slot] - event.volume
            kinds[at] = insert_kind + delete
            flags[at] = CHECKED
            values[at, 0] = symbols[e]
            values[at, width - 2] = resting[slot]
            values[at, width - 1] = event.price
            at += 1
        flags[at - 1] = _END
        ends[e] = at
