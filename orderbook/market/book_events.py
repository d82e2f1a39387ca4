"""Rows of `book_events`: what happens to orders and levels, written before it happens to the book.

A book that is fed order by order tells exactly what becomes of each. Where the feed does not say why volume
of an order left (it never tells an execution), and of books by level, a trade at the price says it: see
`settle`.
"""

from orderbook.core.changes import NULL_CODE
from orderbook.core.jit import jit
from orderbook.market import order_queues
from orderbook.market.block_memory import Record, load
from orderbook.market.book_state import (
    ADDED,
    ASK,
    BID,
    CANCELLED,
    CLEARED,
    EXECUTED,
    MODIFIED,
    OF_LATE_TRADE,
    OF_LEVEL,
    OF_ORDER,
    OF_SNAPSHOT,
    OF_TRADE,
    REPLACED,
    begin_event_row,
    key_of,
    ladder_of,
    time_of,
)
from orderbook.market.events import Action, Flag
from orderbook.market.ladder import level_of
from orderbook.market.order_queues import TRACKED, level_key, tracked_at

_EXECUTE, _SNAPSHOT, _REPLACED = int(Action.EXECUTE), int(Flag.SNAPSHOT), int(Flag.REPLACED)
_TRACKED_BYTES = TRACKED.itemsize
# A volume that nobody knows.
_UNKNOWN = -1


@jit()
def _at(context: Record, book: Record) -> int:
    """The address of what is followed of a book."""
    return context.tracked + _TRACKED_BYTES * book.instrument


@jit()
def _reason(event: Record, usual: int) -> int:
    return OF_SNAPSHOT if event.flags & _SNAPSHOT else usual


@jit()
def _volume_at(context: Record, book: Record, side: int, price: int) -> int:
    """The volume of a level now, lots."""
    volume, _ = level_of(ladder_of(context, book, side), key_of(side, price))
    return volume


@jit()
def _known(book: Record, lots: int) -> int:
    """A volume of several orders as the relation has it; NULL where nobody knows it, or it does not fit."""
    return lots * book.lot_scale if 0 <= lots <= book.max_lots else NULL_CODE


@jit()
def _tell(
    context: Record,
    book: Record,
    event: Record,
    side: int,
    action: int,
    reason: int,
    price: int,
    volume: int,
    remaining: int,
    ahead: int,
    level_volume: int,
) -> Record:
    """Writes a row; prices in ticks, volumes in lots. It is of no order, and of now, if nobody says else."""
    tracked = tracked_at(_at(context, book))
    tracked.number += 1
    row = begin_event_row(context, book, tracked.number, side)
    row.ts = row.placed_at = time_of(event)
    row.id = row.broker_id = 0
    row.action, row.reason = load(context.event_texts + 8 * action), load(context.event_texts + 8 * reason)
    row.price, row.old_price = price * book.tick_scale, NULL_CODE
    row.volume, row.remaining = volume * book.lot_scale, remaining * book.lot_scale
    row.level_volume_ahead, row.level_volume = _known(book, ahead), _known(book, level_volume)
    return row


@jit()
def tell_add(context: Record, book: Record, event: Record) -> None:
    """An order is about to rest."""
    side, price, volume = event.side, event.price, event.volume
    ahead = _volume_at(context, book, side, price)
    reason = _reason(event, OF_ORDER)
    row = _tell(context, book, event, side, ADDED, reason, price, volume, volume, ahead, ahead + volume)
    row.id, row.broker_id = event.order_id, event.broker_id
    key = level_key(side, price)
    order_queues.join(context.pool, _at(context, book), key, event.order_id, volume, time_of(event))


@jit()
def _tell_of(
    context: Record,
    book: Record,
    event: Record,
    order: Record,
    action: int,
    reason: int,
    price: int,
    volume: int,
    remaining: int,
    ahead: int,
    level_volume: int,
) -> Record:
    """See `_tell`; of an order that rests."""
    side = order.side
    row = _tell(context, book, event, side, action, reason, price, volume, remaining, ahead, level_volume)
    row.id, row.broker_id = order.id, order.broker_id
    row.placed_at = order_queues.order_since(_at(context, book), order.id)
    return row


@jit()
def tell_taken(context: Record, book: Record, event: Record, order: Record, volume: int) -> None:
    """So much of an order, a ROW, is about to be cancelled or executed, and it leaves with its last."""
    at, pool = _at(context, book), context.pool
    tracked = tracked_at(at)
    side, price, before = order.side, order.price, order.volume
    key = level_key(side, price)
    ahead, level = order_queues.ahead_of(at, key, order.id), _volume_at(context, book, side, price)
    action, executed, left = CANCELLED, 0, volume
    if event.action == _EXECUTE:
        tracked.executes, action = 1, EXECUTED
    elif event.flags & _REPLACED:
        action = REPLACED
    elif event.flags & _SNAPSHOT == 0 and tracked.executes == 0:
        executed = order_queues.settle(pool, at, key, -volume, time_of(event), False)
    if executed:
        left -= executed
        before, level = before - executed, level - executed
        _tell_of(
            context, book, event, order, EXECUTED, OF_TRADE, price, executed, before, ahead, level
        )  # fmt: skip
    if left:
        reason = _reason(event, OF_ORDER)
        _tell_of(
            context, book, event, order, action, reason, price, left, before - left, ahead, level - left
        )  # fmt: skip
    if volume == order.volume:
        order_queues.leave(pool, at, key, order.id, volume)
    else:
        order_queues.shrink(at, key, order.id, volume)


@jit()
def tell_modified(context: Record, book: Record, event: Record, order: Record) -> None:
    """An order, a ROW, is about to get the price and volume of an event. It keeps its place with no more
    volume at the same price."""
    at, pool = _at(context, book), context.pool
    side, old, price, before, volume = order.side, order.price, event.price, order.volume, event.volume
    key, reason = level_key(side, old), _reason(event, OF_ORDER)
    level = _volume_at(context, book, side, price)
    if price != old:
        row = _tell_of(
            context, book, event, order, REPLACED, reason, price, before, volume, level, level + volume
        )  # fmt: skip
        row.old_price = old * book.tick_scale
        order_queues.requeue(pool, at, key, order.id, before, level_key(side, price), volume)
        return
    after = level - before + volume
    if volume > before:
        order_queues.requeue(pool, at, key, order.id, before, key, volume)
    else:
        order_queues.shrink(at, key, order.id, before - volume)
    ahead = order_queues.ahead_of(at, key, order.id)
    _tell_of(context, book, event, order, MODIFIED, reason, price, before, volume, ahead, after)


@jit()
def tell_level(context: Record, book: Record, event: Record, before: int) -> None:
    """A level is about to have another volume than before, 0 where it was not there."""
    at, pool = _at(context, book), context.pool
    side, price, volume, ts = event.side, event.price, event.volume, time_of(event)
    key, reason = level_key(side, price), _reason(event, OF_LEVEL)
    since = order_queues.level_since(pool, at, key, ts)
    if volume > before:
        row = _tell(
            context, book, event, side, ADDED, reason, price, volume - before, volume, before, volume
        )  # fmt: skip
        row.placed_at = since
        return
    executed, left = 0, before - volume
    if event.flags & _SNAPSHOT == 0:
        executed = order_queues.settle(pool, at, key, -left, ts, True)
    if executed:
        left -= executed
        after = volume + left
        row = _tell(context, book, event, side, EXECUTED, OF_TRADE, price, executed, after, 0, after)
        row.placed_at = since
    if left:
        row = _tell(context, book, event, side, CANCELLED, reason, price, left, volume, _UNKNOWN, volume)
        row.placed_at = since
    if volume == 0:
        order_queues.drop_level(pool, at, key)


@jit()
def tell_trade(context: Record, book: Record, event: Record) -> None:
    """A trade was printed: it explains what leaves its price within a second, or what has left a level."""
    at = _at(context, book)
    if event.side > ASK or tracked_at(at).executes:
        return
    side, price = BID + ASK - event.side, event.price
    owes = book.orders == 0
    late = order_queues.settle(
        context.pool, at, level_key(side, price), event.volume, time_of(event), owes
    )  # fmt: skip
    if late:
        left = _volume_at(context, book, side, price)
        _tell(context, book, event, side, EXECUTED, OF_LATE_TRADE, price, late, left, 0, left)


@jit()
def tell_cleared_order(context: Record, book: Record, event: Record, order: Record) -> None:
    """An order, a ROW, is about to leave with its side."""
    reason = _reason(event, OF_ORDER)
    _tell_of(
        context, book, event, order, CLEARED, reason, order.price, order.volume, 0, _UNKNOWN, 0
    )  # fmt: skip
    key = level_key(order.side, order.price)
    order_queues.leave(context.pool, _at(context, book), key, order.id, order.volume)


@jit()
def tell_cleared_level(
    context: Record, book: Record, event: Record, side: int, price: int, volume: int
) -> None:
    """A level is about to leave with its side."""
    reason, at, key = _reason(event, OF_LEVEL), _at(context, book), level_key(side, price)
    row = _tell(context, book, event, side, CLEARED, reason, price, volume, 0, _UNKNOWN, 0)
    row.placed_at = order_queues.level_since(context.pool, at, key, row.ts)
    order_queues.drop_level(context.pool, at, key)
