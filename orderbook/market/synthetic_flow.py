"""A synthetic L3 order flow: seeded, as realistic as tests and demonstrations need, never invalid.

Each symbol has a fair price that walks at random; limit orders arrive around it at exponential
depth, orders are reduced, modified, cancelled and replaced, and market orders trade at the touch.
Activity over symbols follows Zipf's law, arrivals in time a Poisson process with bursts.

The flow itself is compiled: one message at a time into an array of events. Prices are levels of a grid of
3 * levels + 2 ticks; the fair price stays in its middle third, so every order within `levels` of it has its
place. Each level is a queue of orders in time priority.
"""

from collections.abc import Iterator
from decimal import Decimal
from itertools import count, islice, product
from string import ascii_uppercase
from typing import NamedTuple

import numpy as np
from numba.core import config
from numpy.typing import NDArray

from orderbook.core.errors import UserError
from orderbook.core.jit import jit
from orderbook.market.block_memory import Record, records
from orderbook.market.events import EVENT, Action, BookState, Events, Flag, Side
from orderbook.market.instruments import Instrument, Instruments

_ADD = int(Action.ADD)
_REDUCE = int(Action.REDUCE)
_MODIFY = int(Action.MODIFY)
_DELETE = int(Action.DELETE)
_EXECUTE = int(Action.EXECUTE)
_TRADE = int(Action.TRADE)
_STATE = int(Action.STATE)
_VALID = int(BookState.VALID)
_LAST, _SNAPSHOT = int(Flag.LAST), int(Flag.SNAPSHOT)
_BID, _ASK, _NO_SIDE = int(Side.BID), int(Side.ASK), int(Side.NONE)

ROUND_LOT = 100
LONGEST_MESSAGE = 64
_LONGEST_SWEEP = 6
_LONGEST_BURST = 8
# A side never trades or cancels below this many orders.
_FEWEST_ORDERS = 3

# Shares of messages by kind; the rest are single orders added or deleted.
_MARKET_SHARE, _MODIFY_SHARE, _REDUCE_SHARE, _BURST_SHARE = 0.06, 0.06, 0.08, 0.02
# Market orders are this likely while orders rest on the wrong side of the fair price.
_STALE_SHARE = 0.3
# An order to delete is the more extreme of this many in an episode.
_CANDIDATES = 3

ORDER = np.dtype(
    [
        ("id", "i8"),
        ("volume", "i8"),  # lots
        ("level", "i4"),
        ("broker_id", "i4"),
        ("next", "i4"),  # slot + 1 of the neighbours in the level's queue, 0 for none
        ("previous", "i4"),
        ("place", "i4"),  # where `slots` lists this order
        ("side", "i4"),
    ]
)

MARKET = np.dtype(
    [
        ("fair", "f8"),  # fair price, in levels
        ("base", "i8"),  # ticks of level 0
        ("best_bid", "i8"),  # levels; -1 and the grid's size when empty
        ("best_ask", "i8"),
        ("live", "i8"),
        ("bids", "i8"),
        ("pressure", "i8"),  # 1: bids crowd to the touch, -1: asks do, 0: neither
        ("left", "i8"),  # messages until the episode ends
        ("started", "i8"),
    ]
)


class Flow(NamedTuple):
    """State of the generator.

    markets: MARKET[symbols]. orders: ORDER[symbols, capacity]. slots: int32[symbols, capacity], the
    slots of live orders, then the free ones. queues: int32[symbols, grid, 2], slot + 1 of the first
    and last order. activity: float64[symbols], cumulative. clock: exchange_time and receive_time of
    the last message, ns. counters: see below. scale: mean distance of new orders from the fair price,
    levels. drift: its standard deviation a message, levels. gap: mean time between messages, ns.
    """

    markets: NDArray[np.void]
    orders: NDArray[np.void]
    slots: NDArray[np.int32]
    queues: NDArray[np.int32]
    activity: NDArray[np.float64]
    clock: NDArray[np.int64]
    counters: NDArray[np.int64]
    levels: int
    resting: int
    brokers: int
    scale: float
    drift: float
    gap: float
    imbalance: float


# Counters: messages left of a burst in time, then the next order id, trade id and sequence number.
BURST, ORDER_ID, TRADE_ID, SEQUENCE = range(4)
FIRST_NUMBER = ORDER_ID
COUNTERS = 4


@jit()
def _write(
    flow: Flow,
    out: Events,
    n: int,
    s: int,
    action: int,
    order_id: int,
    level: int,
    volume: int,
    side: int,
    broker_id: int,
) -> int:
    event = out[n]
    event.order_id = order_id
    event.price = flow.markets[s].base + level if action != _STATE else 0
    event.volume = volume
    event.instrument = s
    event.broker_id = broker_id
    event.action = action
    event.side = side
    return n + 1


@jit()
def _write_order(flow: Flow, out: Events, n: int, s: int, action: int, slot: int, volume: int) -> int:
    order = flow.orders[s, slot]
    # Integers of one size: each function is compiled once.
    level, side, broker = np.int64(order.level), np.int64(order.side), np.int64(order.broker_id)
    return _write(flow, out, n, s, action, order.id, level, volume, side, broker)


@jit()
def _enqueue(flow: Flow, s: int, slot: int, level: int) -> None:
    market, order, queue = flow.markets[s], flow.orders[s, slot], flow.queues[s, level]
    order.level = level
    order.next = 0
    order.previous = queue[1]
    if queue[1]:
        flow.orders[s, queue[1] - 1].next = slot + 1
    else:
        queue[0] = slot + 1
    queue[1] = slot + 1
    if order.side == _BID:
        market.best_bid = max(market.best_bid, level)
    else:
        market.best_ask = min(market.best_ask, level)


@jit()
def _dequeue(flow: Flow, s: int, slot: int) -> None:
    market, order = flow.markets[s], flow.orders[s, slot]
    queue = flow.queues[s, order.level]
    if order.previous:
        flow.orders[s, order.previous - 1].next = order.next
    else:
        queue[0] = order.next
    if order.next:
        flow.orders[s, order.next - 1].previous = order.previous
    else:
        queue[1] = order.previous
    queues = flow.queues[s]
    if order.side == _BID:
        while market.best_bid >= 0 and queues[market.best_bid, 0] == 0:
            market.best_bid -= 1
    else:
        while market.best_ask < len(queues) and queues[market.best_ask, 0] == 0:
            market.best_ask += 1


@jit()
def _remove(flow: Flow, s: int, slot: int) -> None:
    _dequeue(flow, s, slot)
    market, order, slots = flow.markets[s], flow.orders[s, slot], flow.slots[s]
    market.live -= 1
    market.bids -= order.side == _BID
    last = slots[market.live]
    slots[order.place] = last
    flow.orders[s, last].place = order.place
    slots[market.live] = slot


@jit()
def _orders_of(market: Record, side: int) -> int:
    return market.bids if side == _BID else market.live - market.bids


@jit()
def _draw_volume(random: np.random.Generator) -> int:
    return ROUND_LOT * (1 + int(random.exponential(2.0)))


@jit()
def _draw_level(flow: Flow, random: np.random.Generator, s: int, side: int) -> int:
    """Where a limit order of a side goes: around the fair price, never through the other side."""
    market = flow.markets[s]
    scale = flow.scale
    if market.pressure:
        near = (market.pressure > 0) == (side == _BID)
        scale = scale / (1.0 + 3.0 * flow.imbalance) if near else scale * (1.0 + 0.5 * flow.imbalance)
    distance = random.exponential(scale)
    if distance >= flow.levels - 1:
        distance = random.random() * (flow.levels - 1)
    if side == _BID:
        level = int(np.floor(market.fair - 0.5 - distance))
        return max(min(level, market.best_ask - 1), 0)
    level = int(np.ceil(market.fair + 0.5 + distance))
    return min(max(level, market.best_bid + 1), len(flow.queues[s]) - 1)


@jit()
def _add(flow: Flow, random: np.random.Generator, out: Events, n: int, s: int, side: int) -> int:
    market = flow.markets[s]
    slot = np.int64(flow.slots[s, market.live])
    order = flow.orders[s, slot]
    order.id = flow.counters[ORDER_ID]
    flow.counters[ORDER_ID] += 1
    order.volume = _draw_volume(random)
    order.side = side
    order.broker_id = 1 + random.integers(0, flow.brokers)
    order.place = market.live
    market.live += 1
    market.bids += side == _BID
    _enqueue(flow, s, slot, _draw_level(flow, random, s, side))
    return _write_order(flow, out, n, s, _ADD, slot, order.volume)


@jit()
def _draw_order(flow: Flow, random: np.random.Generator, s: int) -> np.int64:
    return np.int64(flow.slots[s, random.integers(0, flow.markets[s].live)])


@jit()
def _draw_deleted(flow: Flow, random: np.random.Generator, s: int) -> int:
    """An order to delete: any, but in an episode the far ones of one side, the near ones of the other."""
    market = flow.markets[s]
    slot = _draw_order(flow, random, s)
    if market.pressure:
        order = flow.orders[s, slot]
        for _ in range(_CANDIDATES - 1):
            other = _draw_order(flow, random, s)
            rival = flow.orders[s, other]
            lower = rival.level < order.level
            if rival.side == order.side and lower == (market.pressure > 0):
                slot, order = other, rival
    return slot


@jit()
def _delete(flow: Flow, out: Events, n: int, s: int, slot: int) -> int:
    order = flow.orders[s, slot]
    if _orders_of(flow.markets[s], np.int64(order.side)) <= _FEWEST_ORDERS:
        return n
    n = _write_order(flow, out, n, s, _DELETE, slot, order.volume)
    _remove(flow, s, slot)
    return n


@jit()
def _reduce(flow: Flow, random: np.random.Generator, out: Events, n: int, s: int) -> int:
    slot = _draw_order(flow, random, s)
    order = flow.orders[s, slot]
    if order.volume == ROUND_LOT:
        return n
    volume = ROUND_LOT * (1 + random.integers(0, order.volume // ROUND_LOT - 1))
    order.volume -= volume
    return _write_order(flow, out, n, s, _REDUCE, slot, volume)


@jit()
def _modify(flow: Flow, random: np.random.Generator, out: Events, n: int, s: int) -> int:
    slot = _draw_order(flow, random, s)
    order = flow.orders[s, slot]
    side, level = np.int64(order.side), np.int64(order.level)
    if random.random() < 0.5:
        level = _draw_level(flow, random, s, side)
    _dequeue(flow, s, slot)
    order.volume = _draw_volume(random)
    _enqueue(flow, s, slot, level)
    return _write_order(flow, out, n, s, _MODIFY, slot, order.volume)


@jit()
def _market_order(flow: Flow, random: np.random.Generator, out: Events, n: int, s: int, room: int) -> int:
    """An aggressor trades with the best orders of the other side, each a TRADE and an EXECUTE."""
    market = flow.markets[s]
    if market.best_ask < market.fair or market.best_bid > market.fair:
        aggressor = _BID if market.best_ask < market.fair else _ASK
    else:
        aggressor = int(random.integers(0, 2))
    side = _ASK if aggressor == _BID else _BID
    left = _draw_volume(random)
    for _ in range(min(_LONGEST_SWEEP, room // 2)):
        if left == 0 or _orders_of(market, side) <= _FEWEST_ORDERS:
            break
        level = market.best_bid if side == _BID else market.best_ask
        slot = int(flow.queues[s, level, 0]) - 1
        order = flow.orders[s, slot]
        volume = min(left, order.volume)
        n = _write(flow, out, n, s, _TRADE, flow.counters[TRADE_ID], level, volume, aggressor, 0)
        flow.counters[TRADE_ID] += 1
        n = _write_order(flow, out, n, s, _EXECUTE, slot, volume)
        order.volume -= volume
        left -= volume
        if order.volume == 0:
            _remove(flow, s, slot)
    return n


@jit()
def _burst(flow: Flow, random: np.random.Generator, out: Events, n: int, s: int, room: int) -> int:
    """Quotes are cancelled and replaced in one message."""
    sides = np.empty(_LONGEST_BURST, np.int64)
    count = 0
    for _ in range(min(2 + int(random.integers(0, _LONGEST_BURST - 1)), room // 2)):
        slot = _draw_deleted(flow, random, s)
        sides[count] = flow.orders[s, slot].side
        before = n
        n = _delete(flow, out, n, s, slot)
        count += n > before
    for k in range(count):
        n = _add(flow, random, out, n, s, sides[k])
    return n


@jit()
def _snapshot(flow: Flow, random: np.random.Generator, out: Events, n: int, s: int, room: int) -> int:
    """The first message of a symbol: its book, then STATE VALID."""
    first = n
    flow.markets[s].started = 1
    for k in range(min(flow.resting, room - 1)):
        n = _add(flow, random, out, n, s, k & 1)
    n = _write(flow, out, n, s, _STATE, 0, 0, _VALID, _NO_SIDE, 0)
    for k in range(first, n):
        out[k].flags = _SNAPSHOT
    return n


@jit()
def _walk(flow: Flow, random: np.random.Generator, s: int) -> None:
    """The fair price moves; episodes of pressure begin and end."""
    market = flow.markets[s]
    fair = market.fair + flow.drift * random.standard_normal()
    low, high = 1.0 * flow.levels, 2.0 * flow.levels
    if fair < low:
        fair = 2.0 * low - fair
    elif fair > high:
        fair = 2.0 * high - fair
    market.fair = min(max(fair, low), high)
    if flow.imbalance > 0.0:
        market.left -= 1
        if market.left <= 0:
            market.left = np.int64(flow.resting * (1.0 + 2.0 * random.random()))
            market.pressure = 0 if market.pressure else 2 * random.integers(0, 2) - 1


@jit()
def _single(flow: Flow, random: np.random.Generator, out: Events, n: int, s: int) -> int:
    """One order added or deleted, whichever brings the book towards its size."""
    market = flow.markets[s]
    adding = min(max(0.5 + 2.0 * (flow.resting - market.live) / flow.resting, 0.05), 0.95)
    if random.random() >= adding:
        before = n
        n = _delete(flow, out, n, s, _draw_deleted(flow, random, s))
        if n > before:
            return n
    side = random.integers(0, 2)
    if _orders_of(market, 1 - side) <= _FEWEST_ORDERS:
        side = 1 - side
    return _add(flow, random, out, n, s, side)


@jit()
def _message(flow: Flow, random: np.random.Generator, out: Events, n: int, s: int, room: int) -> int:
    """One message of a symbol, at most `room` events; room is at least 1. Returns the next position."""
    market = flow.markets[s]
    if not market.started:
        return _snapshot(flow, random, out, n, s, room)
    _walk(flow, random, s)
    start = n
    if market.live > _FEWEST_ORDERS:
        stale = market.best_ask < market.fair - 1.0 or market.best_bid > market.fair + 1.0
        u = random.random() - (_STALE_SHARE if stale else _MARKET_SHARE)
        if u < 0.0:
            n = _market_order(flow, random, out, n, s, room)
        elif u < _MODIFY_SHARE:
            n = _modify(flow, random, out, n, s)
        elif u < _MODIFY_SHARE + _REDUCE_SHARE:
            n = _reduce(flow, random, out, n, s)
        elif u < _MODIFY_SHARE + _REDUCE_SHARE + _BURST_SHARE:
            n = _burst(flow, random, out, n, s, room)
    return n if n > start else _single(flow, random, out, n, s)


@jit()
def _stamp(flow: Flow, random: np.random.Generator, out: Events, start: int, end: int) -> None:
    """Gives the events of a message their times and sequence number, and the last its flag."""
    clock, counters = flow.clock, flow.counters
    if counters[BURST] > 0:
        counters[BURST] -= 1
    elif random.random() < 0.001:
        counters[BURST] = random.integers(20, 200)
    gap = flow.gap * (end - start) * (0.05 if counters[BURST] else 1.0)
    clock[0] += np.int64(random.exponential(gap))
    clock[1] = max(clock[1], clock[0] + 30_000 + np.int64(random.exponential(20_000.0)))
    for k in range(start, end):
        event = out[k]
        event.exchange_time = clock[0]
        event.receive_time = clock[1]
        event.sequence = counters[SEQUENCE]
    out[end - 1].flags |= _LAST
    counters[SEQUENCE] += 1


@jit(nogil=True)
def fill(flow: Flow, random: np.random.Generator, out: Events, enough: int, most: int) -> int:
    """Writes messages into `out` until it has `enough` events, never more than `most`; returns how many."""
    n = 0
    while n < enough:
        s = min(np.searchsorted(flow.activity, random.random(), side="right"), len(flow.activity) - 1)
        end = _message(flow, random, out, n, s, most - n)
        _stamp(flow, random, out, n, end)
        n = end
    return n


VENUE = "SIM"
# 2026-01-05 14:30 UTC, ns.
START = 1_767_623_400_000_000_000
_BLOCK = 1 << (8 if config.DISABLE_JIT else 16)
_FEWEST_LEVELS = 10
_BASE_PRICE = 10_000
# Typical distance of a new order from the fair price, as a share of `levels`.
_DEPTH = 0.25
# The fair price moves little while an order rests, so that balanced sides keep equal profiles.
_DRIFT = 0.02


def synthetic_instruments(symbols: int) -> Instruments:
    """The instruments of generated flow: AAA-USD, AAB-USD, … of venue SIM, tick 0.01, lot 1."""
    names = ("".join(letters) for length in count(3) for letters in product(ascii_uppercase, repeat=length))
    return Instruments(
        Instrument(VENUE, f"{name}-USD", f"{name}-USD", Decimal("0.01"), Decimal(1))
        for name in islice(names, symbols)
    )


def generate(
    events: int,
    symbols: int,
    levels: int,
    seed: int,
    *,
    batch: int = _BLOCK,
    resting: int | None = None,
    brokers: int = 10,
    rate: float = 20_000.0,
    imbalance: float = 0.0,
    start: int = START,
) -> Iterator[Events]:
    """Exactly `events` market events of `synthetic_instruments(symbols)`, as batches EVENT[n].

    The first message of a symbol is its snapshot, ending in STATE VALID. `levels` is the depth of a
    side in ticks, `resting` the number of orders a book returns to (default 10 a level, at most
    4,000), `rate` the events a second of exchange_time. Batches hold whole messages, at most `batch`
    events unless one message is longer; the events are the same for every `batch`. No book is
    crossed, and no event names an order that does not rest.

    With `imbalance` 0 both sides have the same depth profile. Above 0, episodes come and go in which
    one side crowds to the touch and the other moves away, the more the greater it is (1 is strong).

    Raises UserError for arguments out of range.
    """
    if resting is None:
        resting = min(10 * levels, 4_000)
    for name, value, least in (
        ("events", events, 0),
        ("symbols", symbols, 1),
        ("levels", levels, _FEWEST_LEVELS),
        ("seed", seed, 0),
        ("batch", batch, 1),
        ("resting", resting, 20),
        ("brokers", brokers, 1),
        ("imbalance", imbalance, 0),
    ):
        if value < least:
            raise UserError(f"{name} must be at least {least}, not {value}")
    if not rate > 0:
        raise UserError(f"rate must be above 0, not {rate}")
    flow = _flow(symbols, levels, resting, brokers, 1e9 / rate, imbalance, start)
    return _batches(flow, np.random.Generator(np.random.PCG64(seed)), events, resting, batch)


def _flow(
    symbols: int, levels: int, resting: int, brokers: int, gap: float, imbalance: float, start: int
) -> Flow:
    capacity = 2 * resting + LONGEST_MESSAGE
    grid = 3 * levels + 2
    weights = 1.0 / np.arange(1, symbols + 1)
    markets = np.zeros(symbols, MARKET)
    markets["fair"] = 1.5 * levels
    markets["best_bid"], markets["best_ask"] = -1, grid
    markets["base"] = 2 * levels + _BASE_PRICE + 100 * (np.arange(symbols) % 997)
    counters = np.zeros(COUNTERS, np.int64)
    counters[FIRST_NUMBER:] = 1
    scale = _DEPTH * levels
    return Flow(
        markets=records(markets),
        orders=records(np.zeros((symbols, capacity), ORDER)),
        slots=np.broadcast_to(np.arange(capacity, dtype=np.int32), (symbols, capacity)).copy(),
        queues=np.zeros((symbols, grid, 2), np.int32),
        activity=np.cumsum(weights) / weights.sum(),
        clock=np.array([start, start], np.int64),
        counters=counters,
        levels=levels,
        resting=resting,
        brokers=brokers,
        scale=scale,
        drift=_DRIFT * scale / np.sqrt(2.5 * resting),
        gap=gap,
        imbalance=float(imbalance),
    )


def _batches(
    flow: Flow, random: np.random.Generator, events: int, resting: int, batch: int
) -> Iterator[Events]:
    while events:
        block = np.zeros(_BLOCK + resting + LONGEST_MESSAGE, EVENT)
        block = block[: fill(flow, random, records(block), min(events, _BLOCK), events)]
        events -= len(block)
        ends = np.flatnonzero(block["flags"] & Flag.LAST) + 1
        first = 0
        while first < len(block):
            fitting = np.searchsorted(ends, first + batch, side="right") - 1
            end = ends[fitting] if fitting >= 0 and ends[fitting] > first else ends[fitting + 1]
            yield block[first:end]
            first = int(end)
