"""Where orders stand in the queues of their prices and since when they rest, and what trades and reductions
of a price tell of each other; in compiled code, for books that tell of events.

A price of an L3 book has a queue: slots in the order of arrival, with a Fenwick tree (P. Fenwick, "A new
data structure for cumulative frequency tables", 1994) of the volumes, so that what is ahead of an order is
found in O(log n). Slots of orders that left stay, empty, until the queue is full: it is then made anew, which
costs each order O(log n) once. Tables find orders, levels and balances by their keys, as the order
table finds orders.
"""

import numpy as np

from orderbook.core.jit import jit
from orderbook.market import order_table
from orderbook.market.block_memory import ROW_BYTES, WORDS, Record, allocate, load, record_at, release, store
from orderbook.market.instruments import LARGEST

# What is followed of a book. Each table is a directory and a depth, see order_table.
TRACKED = np.dtype(
    [
        ("number", "i8"),  # how many events were told
        ("executes", "i8"),  # 1: the feed tells which orders are executed
        ("orders", "i8"),  # rows of each table
        ("levels", "i8"),
        ("balances", "i8"),
        ("kept", "i8"),  # balances that the last sweep has left
        *((f"{table}_{word}", "i8") for table in range(3) for word in ("directory", "depth")),
    ]
)
_TABLE = np.dtype([("directory", "i8"), ("depth", "i8")])
_TABLES_AT = 48
assert TRACKED.itemsize == _TABLES_AT + 3 * _TABLE.itemsize

# Rows of the tables; `taken` is not 0. A level's key is twice its price in ticks, plus its side.
PLACE = np.dtype([(n, "i8") for n in ("id", "slot", "taken", "placed_at", "unused")])
LEVEL_PLACE = np.dtype([(n, "i8") for n in ("key", "queue", "taken", "placed_at", "unused")])
# volume, lots: traded at a price and not yet taken from it; below 0: taken, and not explained by a trade.
BALANCE = np.dtype([(n, "i8") for n in ("key", "volume", "taken", "ts", "unused")])
assert {PLACE.itemsize, LEVEL_PLACE.itemsize, BALANCE.itemsize} == {ROW_BYTES}

# A balance that nothing has changed for so long is forgotten, ns.
WITHIN = 10**9
_FEW = 64

# A queue: this, then a Fenwick tree of volumes, and the ids, both of `capacity` words.
_QUEUE = np.dtype([(n, "i8") for n in ("used", "orders", "capacity", "size_class")])
_HEAD_WORDS, _SMALLEST = 4, 4

tracked_at = record_at(TRACKED)
place_at = record_at(PLACE)
level_place_at = record_at(LEVEL_PLACE)
balance_at = record_at(BALANCE)
_table_at = record_at(_TABLE)
_queue_at = record_at(_QUEUE)


@jit()
def orders_of(at: int) -> Record:
    """The table of the orders of the TRACKED at an address."""
    return _table_at(at + 48)


@jit()
def levels_of(at: int) -> Record:
    """The table of its levels."""
    return _table_at(at + 64)


@jit()
def balances_of(at: int) -> Record:
    """The table of its balances."""
    return _table_at(at + 80)


@jit()
def level_key(side: int, price: int) -> int:
    """The key of a level; price in ticks."""
    return 2 * price + side


@jit()
def _tree(queue: int, position: int) -> int:
    """The address of a word of a queue's tree, which are numbered from 1."""
    return queue + 24 + 8 * position


@jit()
def _id(queue: int, slot: int) -> int:
    return queue + 32 + 8 * (_queue_at(queue).capacity + slot)


@jit()
def _before(queue: int, slot: int) -> int:
    """The volume before a slot."""
    total = 0
    position = slot
    while position > 0:
        total += load(_tree(queue, position))
        position &= position - 1
    return total


@jit()
def _add(queue: int, slot: int, volume: int) -> None:
    """Adds a signed volume to a slot."""
    capacity = _queue_at(queue).capacity
    position = slot + 1
    while position <= capacity:
        word = _tree(queue, position)
        store(word, load(word) + volume)
        position += position & -position


@jit()
def _new_queue(pool: int, size_class: int) -> int:
    """The address of an empty queue of 2^size_class words."""
    queue = allocate(pool, WORDS + size_class)
    for word in range(1 << size_class):
        store(queue + 8 * word, 0)
    head = _queue_at(queue)
    head.size_class, head.capacity = size_class, ((1 << size_class) - _HEAD_WORDS) >> 1
    return queue


@jit()
def _append(queue: int, order_id: int, volume: int) -> int:
    """The slot of an order behind all others of a queue, which has room."""
    head = _queue_at(queue)
    slot = head.used
    head.used, head.orders = slot + 1, head.orders + 1
    store(_id(queue, slot), order_id)
    _add(queue, slot, volume)
    return slot


@jit()
def _renew(pool: int, at: int, queue: int) -> int:
    """A queue of those that are in a full one, with as much room again."""
    old = _queue_at(queue)
    size_class = _SMALLEST
    while ((1 << size_class) - _HEAD_WORDS) >> 1 < 2 * (old.orders + 1):
        size_class += 1
    new = _new_queue(pool, size_class)
    passed = 0
    for slot in range(old.used):
        until = _before(queue, slot + 1)
        if until > passed:
            order_id = load(_id(queue, slot))
            place_at(order_table.find(orders_of(at), order_id)).slot = _append(new, order_id, until - passed)
        passed = until
    release(pool, queue, WORDS + old.size_class)
    return new


@jit()
def _new_level(pool: int, at: int, key: int, placed_at: int) -> int:
    """The address of the row of a level that comes."""
    address = order_table.insert(pool, levels_of(at), key)
    level = level_place_at(address)
    level.key, level.queue, level.taken, level.placed_at = key, 0, 1, placed_at
    tracked_at(at).levels += 1
    return address


@jit()
def _join_queue(pool: int, at: int, key: int, place: Record, volume: int) -> None:
    """Places an order behind all others of a level."""
    address = order_table.find(levels_of(at), key)
    if address == 0:
        address = _new_level(pool, at, key, place.placed_at)
    level = level_place_at(address)
    if level.queue == 0:
        level.queue = _new_queue(pool, _SMALLEST)
    head = _queue_at(level.queue)
    if head.used == head.capacity:
        level.queue = _renew(pool, at, level.queue)
    place.slot = _append(level.queue, place.id, volume)


@jit()
def _leave_queue(pool: int, at: int, key: int, slot: int, volume: int) -> None:
    """Takes an order of a volume out of a level, which leaves with its last order."""
    address = order_table.find(levels_of(at), key)
    queue = level_place_at(address).queue
    _add(queue, slot, -volume)
    head = _queue_at(queue)
    head.orders -= 1
    if head.orders == 0:
        release(pool, queue, WORDS + head.size_class)
        _drop_level(pool, at, address)


@jit()
def _drop_level(pool: int, at: int, address: int) -> None:
    tracked, table = tracked_at(at), levels_of(at)
    order_table.remove(table, address)
    tracked.levels -= 1
    if tracked.levels == 0:
        order_table.clear(pool, table)


@jit()
def join(pool: int, at: int, key: int, order_id: int, volume: int, placed_at: int) -> None:
    """An order that is not there comes to a level."""
    place = place_at(order_table.insert(pool, orders_of(at), order_id))
    place.id, place.taken, place.placed_at = order_id, 1, placed_at
    tracked_at(at).orders += 1
    _join_queue(pool, at, key, place, volume)


@jit()
def leave(pool: int, at: int, key: int, order_id: int, volume: int) -> None:
    """An order of a volume leaves its level, and the book."""
    tracked, table = tracked_at(at), orders_of(at)
    address = order_table.find(table, order_id)
    _leave_queue(pool, at, key, place_at(address).slot, volume)
    order_table.remove(table, address)
    tracked.orders -= 1
    if tracked.orders == 0:
        order_table.clear(pool, table)


@jit()
def shrink(at: int, key: int, order_id: int, volume: int) -> None:
    """An order keeps its place with so much less."""
    slot = place_at(order_table.find(orders_of(at), order_id)).slot
    _add(level_place_at(order_table.find(levels_of(at), key)).queue, slot, -volume)


@jit()
def requeue(pool: int, at: int, key: int, order_id: int, volume: int, new_key: int, new_volume: int) -> None:
    """An order goes behind all others of a level, which may be its own."""
    place = place_at(order_table.find(orders_of(at), order_id))
    _leave_queue(pool, at, key, place.slot, volume)
    _join_queue(pool, at, new_key, place, new_volume)


@jit()
def ahead_of(at: int, key: int, order_id: int) -> int:
    """The volume ahead of an order of a level."""
    slot = place_at(order_table.find(orders_of(at), order_id)).slot
    return _before(level_place_at(order_table.find(levels_of(at), key)).queue, slot)


@jit()
def order_since(at: int, order_id: int) -> int:
    """When an order was placed, ns."""
    return place_at(order_table.find(orders_of(at), order_id)).placed_at


@jit()
def level_since(pool: int, at: int, key: int, ts: int) -> int:
    """Since when a level of an L2 book is there, ns; if it is not yet, it comes at a time."""
    address = order_table.find(levels_of(at), key)
    if address == 0:
        address = _new_level(pool, at, key, ts)
    return level_place_at(address).placed_at


@jit()
def drop_level(pool: int, at: int, key: int) -> None:
    """A level of an L2 book leaves."""
    _drop_level(pool, at, order_table.find(levels_of(at), key))


@jit()
def settle(pool: int, at: int, key: int, change: int, ts: int, owes: bool) -> int:
    """Brings a trade at a price (its volume), or what has left it (below 0), together with what came before
    of the other; how much of it that explains. `owes`: a trade may explain what left before it."""
    tracked, table = tracked_at(at), balances_of(at)
    address = order_table.find(table, key)
    before = 0
    if address and abs(ts - balance_at(address).ts) <= WITHIN:
        before = balance_at(address).volume
    if before == 0 and change < 0 and not owes:
        return 0
    if address == 0:
        if tracked.balances > 2 * tracked.kept + _FEW:
            tracked.balances -= order_table.drop_before(table, ts - 2 * WITHIN)
            tracked.kept = tracked.balances
        address = order_table.insert(pool, table, key)
        tracked.balances += 1
    balance = balance_at(address)
    after = before + change
    if after < 0 and not owes:
        after = 0
    balance.key, balance.taken, balance.ts = key, 1, ts
    balance.volume = min(max(after, -LARGEST), LARGEST)
    if before > 0 and change < 0:
        return min(before, -change)
    return min(-before, change) if before < 0 and change > 0 else 0


@jit()
def forget(pool: int, at: int) -> None:
    """Nothing is followed any more; all memory goes back to the pool."""
    levels = levels_of(at)
    entry = 0
    while levels.directory and entry < 1 << levels.depth:
        first, size, span = order_table.segment_of(levels, entry)
        for position in range(size):
            level = level_place_at(first + ROW_BYTES * position)
            if level.taken and level.queue:
                release(pool, level.queue, WORDS + _queue_at(level.queue).size_class)
        entry += span
    for table in range(3):
        order_table.clear(pool, _table_at(at + 48 + 16 * table))
    for word in range(6):
        store(at + 8 * word, 0)
