"""ITCH messages of orders to events, compiled.

Executions, cancels and deletes name an order by its number alone, so the side, price and rest of every order
that is in a book are kept, in the same kind of table as books have.
"""

from feeds import itch_messages as wire
from feeds.itch_context import Count, count, emit
from orderbook import order_table
from orderbook.events import Action, Flag, Side
from orderbook.jit import jit
from orderbook.memory import Record

_ADD = int(Action.ADD)
_REDUCE = int(Action.REDUCE)
_DELETE = int(Action.DELETE)
_EXECUTE = int(Action.EXECUTE)
_TRADE = int(Action.TRADE)
_BID, _ASK = int(Side.BID), int(Side.ASK)
_LAST = int(Flag.LAST)
_UNKNOWN_ORDER = int(Count.UNKNOWN_ORDER)
_MALFORMED = int(Count.MALFORMED)
_NOT_PRINTABLE = int(Count.NOT_PRINTABLE)
_BUY, _SELL, _N = (ord(c) for c in "BSN")
_row_at = order_table.row_at
_find = order_table.find
_insert = order_table.insert
_remove = order_table.remove


@jit()
def _enter(
    context: Record,
    at: int,
    instrument: int,
    side: int,
    order_id: int,
    price: int,
    volume: int,
    broker_id: int,
) -> None:
    """An order joins its book."""
    emit(context, at, instrument, _ADD, side, order_id, price, volume, _LAST, broker_id)
    # Volume 0 marks free rows of the table. Books count such orders, and those entered twice.
    address = _insert(context.pool, context, order_id) if volume else 0
    if address:
        row = _row_at(address)
        row.id = order_id
        row.price = price
        row.volume = volume
        row.broker_id = broker_id
        row.side = side


@jit()
def add(context: Record, at: int, instrument: int, broker_id: int) -> None:
    """A new order; its broker_id is 0 where it has no attribution."""
    side = wire.number_1(at + wire.SIDE)
    if side != _BUY and side != _SELL:
        count(context, _MALFORMED)
        return
    _enter(
        context,
        at,
        instrument,
        _BID if side == _BUY else _ASK,
        wire.number_8(at + wire.REFERENCE),
        wire.number_4(at + wire.PRICE),
        wire.number_4(at + wire.SHARES),
        broker_id,
    )


@jit()
def _order(context: Record, at: int) -> int:
    """The address of the row of the message's order; 0, and counted, where it is in no book."""
    address = _find(context, wire.number_8(at + wire.REFERENCE))
    if address == 0:
        count(context, _UNKNOWN_ORDER)
    return address


@jit()
def _take(context: Record, address: int, volume: int) -> None:
    """Takes volume from an order; it leaves the table with its last."""
    row = _row_at(address)
    if volume < row.volume:
        row.volume -= volume
    else:
        _remove(context, address)


@jit()
def execute(context: Record, at: int, instrument: int, other_price: bool) -> None:
    """An order trades: at its own price, or (C) at another, and perhaps not to be printed."""
    address = _order(context, at)
    if address == 0:
        return
    row = _row_at(address)
    volume = wire.number_4(at + wire.TAKEN)
    price = wire.number_4(at + wire.TRADE_PRICE) if other_price else row.price
    printed = not other_price or wire.number_1(at + wire.PRINTABLE) != _N
    side = row.side
    last = 0 if printed else _LAST
    emit(context, at, instrument, _EXECUTE, side, row.id, row.price, volume, last)
    if printed:
        aggressor = _ASK if side == _BID else _BID
        match = wire.number_8(at + wire.MATCH)
        emit(context, at, instrument, _TRADE, aggressor, match, price, volume, _LAST)
    else:
        count(context, _NOT_PRINTABLE)
    _take(context, address, volume)


@jit()
def cancel(context: Record, at: int, instrument: int) -> None:
    """Part of an order is cancelled."""
    address = _order(context, at)
    if address:
        row = _row_at(address)
        volume = wire.number_4(at + wire.TAKEN)
        emit(context, at, instrument, _REDUCE, row.side, row.id, row.price, volume, _LAST)
        _take(context, address, volume)


@jit()
def _leave(context: Record, at: int, instrument: int, address: int, flags: int) -> None:
    row = _row_at(address)
    emit(context, at, instrument, _DELETE, row.side, row.id, row.price, row.volume, flags)
    _remove(context, address)


@jit()
def delete(context: Record, at: int, instrument: int) -> None:
    """An order leaves, whatever is left of it."""
    address = _order(context, at)
    if address:
        _leave(context, at, instrument, address, _LAST)


@jit()
def replace(context: Record, at: int, instrument: int) -> None:
    """An order leaves and another of the same side and participant joins, behind all at its price."""
    address = _order(context, at)
    if address == 0:
        return
    row = _row_at(address)
    side, broker_id = row.side, row.broker_id
    _leave(context, at, instrument, address, 0)
    _enter(
        context,
        at,
        instrument,
        side,
        wire.number_8(at + wire.NEW_REFERENCE),
        wire.number_4(at + wire.NEW_PRICE),
        wire.number_4(at + wire.NEW_SHARES),
        broker_id,
    )
