"""The book that LOBSTER's rows show, compiled: its levels, their orders, and what it writes as events.

A level-N file tells only what happens within the N best levels of a side, and nothing of what rested at its
start. So a level can come into view holding orders that no message named, and one that leaves the view can
change unseen. Messages are applied (`add_order`, `take_order`), then the book is resynchronised with the row
of the order book file, and holds exactly the levels that it shows.

Volume that no message explains rests in synthetic orders, one a level, with negative ids that no other level
gets. Messages that name an unknown order take from its level's synthetic order. The orders of a level that
leaves the view are remembered, and brought back with it where they fit.

Levels of a side are sorted, the best first, by key: the price of an ask, minus the price of a bid, in ticks.
Orders of a level are in a list, in the order in which they joined, and found by (serial of the level, id).
"""

from enum import IntEnum

import numpy as np

from orderbook.core.jit import jit
from orderbook.market.block_memory import Record, load, move, record_at, store
from orderbook.market.events import EVENT, Action, Flag, Side

# Levels out of view whose orders are remembered, a side; the longest unseen is forgotten first.
REMEMBERED_LEVELS = 1 << 14


class Count(IntEnum):
    """What is counted of levels and rows."""

    CAME = 0  # into view, holding what no message told
    LEFT = 1  # the view
    CORRECTED = 2  # a level in view is not what messages made of it
    RESTORED = 3  # came back order by order
    ROWS = 4  # that the book had to be resynchronised with
    ROUNDED = 5  # times that are written more finely than in ns


def _words(*names: str) -> np.dtype:
    return np.dtype([(name, "i8") for name in names])


# Indexes of orders and hidden levels begin with 1; 0: none.
ORDER = _words("id", "volume", "next", "previous")
# `serial` tells levels apart, also one of a price that was there before, and counts their coming.
LEVEL = _words("key", "total", "first", "last", "synthetic", "serial")
# A level out of view, with its orders; `next` left the view later.
HIDDEN = _words("key", "first", "last", "next", "previous")
# What a row shows of a level.
SHOWN = _words("key", "volume")
# An entry of a table: two keys, and the index of what they name, 0 where it is free.
ENTRY = _words("one", "two", "index")

# levels: LEVEL[capacity]; row, before: SHOWN[depth], what the row at hand shows and that before it, and
# whether these are sorted by key; hidden: HIDDEN indexes in the order of leaving.
SIDE = _words(
    "levels", "count", "row", "row_count", "row_sorted", "before", "before_count", "before_sorted",
    "hidden_count", "hidden_first", "hidden_last",
)  # fmt: skip
BOOK = _words(
    "sides",  # SIDE[2]
    "depth",  # levels of a row's side
    "capacity",  # of the levels of a side
    "orders",  # ORDER[1 + order_capacity]
    "order_capacity",
    "order_top",  # how many were ever in use
    "order_free",  # the first of those that are free again
    "order_count",  # in use
    "order_table",  # ENTRY[order_mask + 1]
    "order_mask",
    "hidden",  # HIDDEN[1 + hidden_capacity]; the same
    "hidden_capacity",
    "hidden_top",
    "hidden_free",
    "hidden_table",
    "hidden_mask",
    "serial",
    "synthetic",  # id of the last synthetic order
    "counts",  # int64[Count]
    "out",  # EVENT[room]
    "room",
    "written",
    "time",  # of the message at hand, ns since 1970 UTC
    "sequence",
)

_order_at, _level_at, _hidden_at = record_at(ORDER), record_at(LEVEL), record_at(HIDDEN)
_shown_at, _entry_at, _side_at, _event_at = (
    record_at(SHOWN),
    record_at(ENTRY),
    record_at(SIDE),
    record_at(EVENT),
)
_LEVEL_BYTES, _LEVEL_WORDS = LEVEL.itemsize, LEVEL.itemsize // 8
_SIDE_BYTES, _EVENT_BYTES = SIDE.itemsize, EVENT.itemsize
_ADD, _MODIFY = int(Action.ADD), int(Action.MODIFY)
_REDUCE, _DELETE, _EXECUTE = int(Action.REDUCE), int(Action.DELETE), int(Action.EXECUTE)
_BID, _ASK = int(Side.BID), int(Side.ASK)
_SNAPSHOT = int(Flag.SNAPSHOT)
_CAME, _LEFT, _CORRECTED, _RESTORED, _ROWS = map(int, list(Count)[:5])
# Odd, and with bits everywhere.
_ONE, _TWO = 0x1E3779B97F4A7C15, 0x42B2AE3D27D4EB4F


@jit()
def emit(book: Record, action: int, side: int, order_id: int, price: int, volume: int, flags: int) -> None:
    """Writes an event of the message at hand; price in ticks, volume in lots."""
    event = _event_at(book.out + _EVENT_BYTES * book.written)
    book.written += 1
    event.exchange_time, event.receive_time = book.time, book.time
    event.sequence, event.order_id = book.sequence, order_id
    event.price, event.volume = price, volume
    event.instrument, event.broker_id = 0, 0
    event.action, event.side, event.flags, event.reserved = action, side, flags, 0


@jit()
def key_of(side: int, price: int) -> int:
    """The key of a price, and the price of a key."""
    return -price if side == _BID else price


@jit()
def side_of(book: Record, side: int) -> Record:
    """The SIDE."""
    return _side_at(book.sides + _SIDE_BYTES * side)


@jit()
def _count(book: Record, what: int) -> None:
    store(book.counts + 8 * what, load(book.counts + 8 * what) + 1)


@jit()
def _slot(one: int, two: int, mask: int) -> int:
    """Where the search for two keys begins."""
    mixed = one * _ONE ^ two * _TWO
    mixed ^= mixed >> 32
    return (mixed * _ONE >> 20) & mask


@jit()
def _entry(table: int, number: int) -> Record:
    return _entry_at(table + 24 * number)


@jit()
def _place(table: int, mask: int, one: int, two: int) -> int:
    """The number of the entry with two keys, or of the free one where they belong."""
    number: int = _slot(one, two, mask)
    while True:
        entry = _entry(table, number)
        if entry.index == 0 or (entry.two == two and entry.one == one):
            break
        number = (number + 1) & mask
    return number


@jit()
def _found(table: int, mask: int, one: int, two: int) -> int:
    """The index that two keys name; 0 where there is none."""
    index: int = _entry(table, _place(table, mask, one, two)).index
    return index


@jit()
def _enter(table: int, mask: int, one: int, two: int, index: int) -> None:
    entry = _entry(table, _place(table, mask, one, two))
    entry.one, entry.two, entry.index = one, two, index


@jit()
def _forget(table: int, mask: int, one: int, two: int) -> None:
    """Takes two keys out; those behind them move up, so that no search ends before its time."""
    free = _place(table, mask, one, two)
    if _entry(table, free).index == 0:
        return
    number = free
    while True:
        number = (number + 1) & mask
        entry = _entry(table, number)
        if entry.index == 0:
            break
        begin = _slot(entry.one, entry.two, mask)
        if ((number - begin) & mask) >= ((number - free) & mask):
            hole = _entry(table, free)
            hole.one, hole.two, hole.index = entry.one, entry.two, entry.index
            free = number
    _entry(table, free).index = 0


@jit()
def enter_again(table: int, mask: int, into: int, into_mask: int) -> None:
    """Enters all that a table has into a larger one, which is empty."""
    for number in range(mask + 1):
        entry = _entry(table, number)
        if entry.index:
            _enter(into, into_mask, entry.one, entry.two, entry.index)


@jit()
def _order(book: Record, index: int) -> Record:
    return _order_at(book.orders + 32 * index)


@jit()
def _position(side: Record, key: int) -> int:
    """How many levels are better than a key."""
    low, high = 0, side.count
    while low < high:
        middle = (low + high) >> 1
        if load(side.levels + _LEVEL_BYTES * middle) < key:
            low = middle + 1
        else:
            high = middle
    return low


@jit()
def _level_of(side: Record, key: int) -> int:
    """The address of the level with a key; 0 where there is none."""
    position = _position(side, key)
    address: int = side.levels + _LEVEL_BYTES * position
    if position < side.count and load(address) == key:
        return address
    return 0


@jit()
def _insert_level(book: Record, side: Record, key: int) -> int:
    """The address of a new level without orders."""
    position = _position(side, key)
    address: int = side.levels + _LEVEL_BYTES * position
    move(address, address + _LEVEL_BYTES, _LEVEL_WORDS * (side.count - position))
    side.count += 1
    book.serial += 1
    level = _level_at(address)
    level.key, level.total, level.first, level.last, level.synthetic = key, 0, 0, 0, 0
    level.serial = book.serial
    return address


@jit()
def _drop_level(side: Record, address: int) -> None:
    """Takes a level out, whose orders are elsewhere or free."""
    position = (address - side.levels) // _LEVEL_BYTES
    side.count -= 1
    move(address + _LEVEL_BYTES, address, _LEVEL_WORDS * (side.count - position))


@jit()
def _append(book: Record, level: Record, index: int) -> None:
    """An order joins a level."""
    order = _order(book, index)
    order.previous, order.next = level.last, 0
    if level.last:
        _order(book, level.last).next = index
    else:
        level.first = index
    level.last = index
    level.total += order.volume
    _enter(book.order_table, book.order_mask, level.serial, order.id, index)


@jit()
def _place_order(book: Record, side: int, level: Record, order_id: int, volume: int, flags: int) -> None:
    """A new order joins a level."""
    index = book.order_free
    if index:
        book.order_free = _order(book, index).next
    else:
        book.order_top += 1
        index = book.order_top
    book.order_count += 1
    order = _order(book, index)
    order.id, order.volume = order_id, volume
    _append(book, level, index)
    emit(book, _ADD, side, order_id, key_of(side, level.key), volume, flags)


@jit()
def _free_order(book: Record, index: int) -> None:
    _order(book, index).next = book.order_free
    book.order_free = index
    book.order_count -= 1


@jit()
def _free_orders(book: Record, first: int) -> None:
    """Frees a list of orders that no level has."""
    while first:
        following = _order(book, first).next
        _free_order(book, first)
        first = following


@jit()
def _leave(book: Record, level: Record, index: int) -> None:
    """An order leaves a level; its volume is of the level no more already."""
    order = _order(book, index)
    if order.previous:
        _order(book, order.previous).next = order.next
    else:
        level.first = order.next
    if order.next:
        _order(book, order.next).previous = order.previous
    else:
        level.last = order.previous
    _forget(book.order_table, book.order_mask, level.serial, order.id)
    _free_order(book, index)


@jit()
def _drop_empty(book: Record, side: Record, address: int) -> None:
    """Takes a level out that has no volume, with whatever orders of no volume it has."""
    level = _level_at(address)
    if level.total:
        return
    index = level.first
    while index:
        _forget(book.order_table, book.order_mask, level.serial, _order(book, index).id)
        index = _order(book, index).next
    _free_orders(book, level.first)
    _drop_level(side, address)


@jit()
def add_order(book: Record, side: int, order_id: int, price: int, volume: int) -> None:
    """A new order; one whose id its level knows already is left to the row."""
    own, key = side_of(book, side), key_of(side, price)
    address = _level_of(own, key)
    if address == 0:
        address = _insert_level(book, own, key)
    level = _level_at(address)
    if not _found(book.order_table, book.order_mask, level.serial, order_id):
        _place_order(book, side, level, order_id, volume, 0)


@jit()
def _take(book: Record, action: int, side: int, level: Record, index: int, volume: int, whole: bool) -> int:
    """Takes volume from an order, `whole`: all that it has; how much of it is taken."""
    order = _order(book, index)
    part: int = min(volume, order.volume)
    leaves = whole or part == order.volume
    gone = order.volume if leaves else part
    written = _DELETE if leaves else _REDUCE
    emit(book, _EXECUTE if action == _EXECUTE else written, side, order.id, key_of(side, level.key), gone, 0)
    level.total -= gone
    if leaves:
        _leave(book, level, index)
    else:
        order.volume -= gone
    return part


@jit()
def take_order(book: Record, action: int, side: int, order_id: int, price: int, volume: int) -> None:
    """Cancels (REDUCE), deletes (DELETE) or executes (EXECUTE) volume of an order.

    It is taken first from the order, then from its level's synthetic order; the rest is left to the row.
    """
    own = side_of(book, side)
    address = _level_of(own, key_of(side, price))
    if address == 0:
        return
    level = _level_at(address)
    index = _found(book.order_table, book.order_mask, level.serial, order_id)
    if index and volume > 0:
        volume -= _take(book, action, side, level, index, volume, action == _DELETE)
    if level.synthetic and volume > 0:
        index = _found(book.order_table, book.order_mask, level.serial, level.synthetic)
        if index:
            whole = action == _DELETE and level.synthetic == order_id
            _take(book, action, side, level, index, volume, whole)
    _drop_empty(book, own, address)


@jit()
def _shows(row: int, count: int, is_sorted: int, key: int) -> bool:
    """Whether one of the levels of a row has a key."""
    if is_sorted == 0:
        for number in range(count):  # noqa: SIM110 - compiled
            if load(row + 16 * number) == key:
                return True
        return False
    low, high = 0, count
    while low < high:
        middle = (low + high) >> 1
        if load(row + 16 * middle) < key:
            low = middle + 1
        else:
            high = middle
    return low < count and load(row + 16 * low) == key


@jit()
def _is_shown(side: Record) -> bool:
    """Whether the levels of a side are those of the row at hand."""
    if side.count != side.row_count:
        return False
    for number in range(side.row_count):
        shown = _shown_at(side.row + 16 * number)
        address = side.levels + _LEVEL_BYTES * number
        if load(address) != shown.key:
            address = _level_of(side, shown.key)
        if address == 0 or _level_at(address).total != shown.volume:
            return False
    return True


@jit()
def _remove_level(book: Record, side: int, address: int) -> int:
    """Writes that every order of a level leaves, and takes it out; gives the list of its orders."""
    level = _level_at(address)
    price = key_of(side, level.key)
    first: int = level.first
    index = first
    while index:
        order = _order(book, index)
        emit(book, _DELETE, side, order.id, price, order.volume, _SNAPSHOT)
        _forget(book.order_table, book.order_mask, level.serial, order.id)
        index = order.next
    _drop_level(side_of(book, side), address)
    return first


@jit()
def _hidden(book: Record, index: int) -> Record:
    return _hidden_at(book.hidden + 40 * index)


@jit()
def _unhide(book: Record, side: int, key: int) -> int:
    """The orders of a level that was out of view, which is forgotten there; 0 for none."""
    own = side_of(book, side)
    index = _found(book.hidden_table, book.hidden_mask, side, key)
    if index == 0:
        return 0
    hidden = _hidden(book, index)
    if hidden.previous:
        _hidden(book, hidden.previous).next = hidden.next
    else:
        own.hidden_first = hidden.next
    if hidden.next:
        _hidden(book, hidden.next).previous = hidden.previous
    else:
        own.hidden_last = hidden.previous
    own.hidden_count -= 1
    _forget(book.hidden_table, book.hidden_mask, side, key)
    first: int = hidden.first
    hidden.next = book.hidden_free
    book.hidden_free = index
    return first


@jit()
def _hide(book: Record, side: int, key: int, first: int) -> None:
    """A level with a list of orders is out of view; one of this key that was before is forgotten."""
    own = side_of(book, side)
    index = _found(book.hidden_table, book.hidden_mask, side, key)
    if index:
        _free_orders(book, _hidden(book, index).first)
        _hidden(book, index).first = first
        return
    index = book.hidden_free
    if index:
        book.hidden_free = _hidden(book, index).next
    else:
        book.hidden_top += 1
        index = book.hidden_top
    hidden = _hidden(book, index)
    hidden.key, hidden.first, hidden.next, hidden.previous = key, first, 0, own.hidden_last
    if own.hidden_last:
        _hidden(book, own.hidden_last).next = index
    else:
        own.hidden_first = index
    own.hidden_last = index
    own.hidden_count += 1
    _enter(book.hidden_table, book.hidden_mask, side, key, index)
    if own.hidden_count > REMEMBERED_LEVELS:
        _free_orders(book, _unhide(book, side, _hidden(book, own.hidden_first).key))


@jit()
def _restore(book: Record, side: int, level: Record, first: int, missing: int) -> int:
    """Brings a list of orders back to a level where they fit into what it lacks; what it lacks then."""
    held, index, fits = 0, first, first != 0
    while index:
        order = _order(book, index)
        held += order.volume
        fits = fits and not _found(book.order_table, book.order_mask, level.serial, order.id)
        index = order.next
    if not fits or held > missing:
        _free_orders(book, first)
        return missing
    synthetic = 0
    while first:
        order = _order(book, first)
        following = order.next
        _append(book, level, first)
        emit(book, _ADD, side, order.id, key_of(side, level.key), order.volume, _SNAPSHOT)
        if synthetic == 0 and order.id < 0:
            synthetic = order.id
        first = following
    if level.synthetic == 0:
        level.synthetic = synthetic
    if held == missing:
        _count(book, _RESTORED)
    return missing - held


@jit()
def _fill(book: Record, side: int, key: int, missing: int) -> None:
    """A level lacks volume: its remembered orders come back where they fit, the rest is synthetic."""
    own = side_of(book, side)
    address = _level_of(own, key)
    if address == 0:
        address = _insert_level(book, own, key)
    level = _level_at(address)
    missing = _restore(book, side, level, _unhide(book, side, key), missing)
    if missing == 0:
        return
    index = 0
    if level.synthetic:
        index = _found(book.order_table, book.order_mask, level.serial, level.synthetic)
    if index:
        order = _order(book, index)
        order.volume += missing
        level.total += missing
        emit(book, _MODIFY, side, order.id, key_of(side, key), order.volume, _SNAPSHOT)
        return
    book.synthetic -= 1
    # A file may have negative ids of its own.
    while _found(book.order_table, book.order_mask, level.serial, book.synthetic):
        book.synthetic -= 1
    level.synthetic = book.synthetic
    _place_order(book, side, level, book.synthetic, missing, _SNAPSHOT)


@jit()
def _first_not_shown(side: Record) -> int:
    """The address of that level which came first of those that the row does not show; 0 for none."""
    found, serial = 0, 0
    for number in range(side.count):
        address = side.levels + _LEVEL_BYTES * number
        level = _level_at(address)
        if (found == 0 or level.serial < serial) and not _shows(
            side.row, side.row_count, side.row_sorted, level.key
        ):
            found, serial = address, level.serial
    return found


@jit()
def _resynchronise_side(book: Record, side: int) -> None:
    own = side_of(book, side)
    full, worst = own.row_count == book.depth, 0
    for number in range(own.row_count):
        key = load(own.row + 16 * number)
        worst = key if number == 0 else max(worst, key)
    address = _first_not_shown(own)
    while address:
        key = load(address)
        hidden = full and key > worst
        _count(book, _LEFT if hidden else _CORRECTED)
        orders = _remove_level(book, side, address)
        if hidden:
            _hide(book, side, key, orders)
        else:
            _free_orders(book, orders)
        address = _first_not_shown(own)
    for number in range(own.row_count):
        shown = _shown_at(own.row + 16 * number)
        address = _level_of(own, shown.key)
        held = 0 if address == 0 else _level_at(address).total
        if held == shown.volume:
            continue
        known = _shows(own.before, own.before_count, own.before_sorted, shown.key)
        _count(book, _CORRECTED if known else _CAME)
        if held > shown.volume:
            # Which of its orders are gone is not known.
            _free_orders(book, _remove_level(book, side, address))
            held = 0
        _fill(book, side, shown.key, shown.volume - held)


@jit()
def resynchronise(book: Record) -> None:
    """Makes the book equal to the row at hand; the changes carry Flag.SNAPSHOT."""
    changed = False
    for side in range(_BID, _ASK + 1):
        own = side_of(book, side)
        if not _is_shown(own):
            _resynchronise_side(book, side)
            changed = True
        row, count, is_sorted = own.row, own.row_count, own.row_sorted
        own.row = own.before
        own.before, own.before_count, own.before_sorted = row, count, is_sorted
    if changed:
        _count(book, _ROWS)
