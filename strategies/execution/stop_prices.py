"""What reaches the stops of orders: prices of trades, the touch, or mark prices; a stop may trail them."""

from orderbook.core.jit import jit
from orderbook.market import ladder
from orderbook.market.block_memory import Record, load, record_at
from orderbook.market.book_state import BID, book_of, ladder_of
from orderbook.market.events import EVENT, Action
from orderbook.strategies.execution.exchange_state import (
    BY_MARK,
    BY_TOUCH,
    FIRST,
    REACHED,
    STOP,
    account_at,
    order_at,
)

_event_at = record_at(EVENT)
_TRADE, _EXECUTE, _MARK = int(Action.TRADE), int(Action.EXECUTE), int(Action.MARK)
_EVENT_BYTES = EVENT.itemsize


@jit()
def touch_of(context: Record, board: Record, side: int) -> tuple[bool, int]:
    """Whether a side of the book has a price, and the best."""
    levels = ladder_of(context, book_of(context, board.instrument), side)
    if levels.levels == 0:
        return False, 0
    key = ladder.best_key(levels)
    return True, key if side == BID else -key


@jit()
def _reaches(order: Record, price: int) -> bool:
    """Whether a price reaches the stop that an order waits for, which trails it."""
    if order.waits == FIRST:
        order.waits, order.stop = STOP, price + (order.trail if order.side == BID else -order.trail)
        return False
    if order.side == BID:
        if price >= order.stop:
            return True
        if order.trail != 0:
            order.stop = min(order.stop, price + order.trail)
    else:
        if price <= order.stop:
            return True
        if order.trail != 0:
            order.stop = max(order.stop, price - order.trail)
    return False


@jit()
def is_reached(context: Record, board: Record, order: Record) -> bool:
    """Whether the stop of an order that arrives is reached: by the touch, where that reaches stops, else
    where both sides of it are beyond. One without a stop trails what a market order would get."""
    if order.waits == FIRST:
        there, price = touch_of(context, board, 1 - order.side)
        goes: bool = there and _reaches(order, price)
        return goes
    by_touch = account_at(board.account).stop_by == BY_TOUCH
    there, price = touch_of(context, board, 1 - order.side if by_touch else order.side)
    beyond = price >= order.stop if order.side == BID else price <= order.stop
    reached: bool = there and beyond
    return reached


@jit()
def _look_at_stops(context: Record, board: Record, by: int, price: int) -> bool:
    """Notes which stops a price reaches: of a trade, of a mark in 1e-8, or of the touch; whether one is."""
    found = False
    for number in range(board.stops_count):
        order = order_at(load(board.stops + 8 * number))
        there, own = True, price
        if by == BY_TOUCH:
            there, own = touch_of(context, board, 1 - order.side)
        elif by == BY_MARK:
            # Rounded so that it is not taken to be beyond what it is.
            own = price // board.tick_scale if order.side == BID else -(-price // board.tick_scale)
        if there and order.ended == 0 and order.waits != REACHED and _reaches(order, own):
            order.waits, found = REACHED, True
    return found


@jit()
def note_reached(context: Record, board: Record, events: int, count: int) -> bool:
    """Notes which stops a message has reached, price by price; whether one is."""
    by = account_at(board.account).stop_by
    if by == BY_TOUCH:
        touched: bool = _look_at_stops(context, board, by, 0)
        return touched
    found = False
    for place in range(count):
        event = _event_at(events + _EVENT_BYTES * place)
        action = event.action
        tells = action == _MARK
        if by != BY_MARK:
            tells = event.volume > 0 and (action == _TRADE or action == _EXECUTE)
        if tells and event.instrument == board.instrument:
            found = _look_at_stops(context, board, by, event.price) or found
    return found


@jit()
def first_reached(board: Record) -> int:
    """The address of the first order whose stop is reached, 0 where none is."""
    for number in range(board.stops_count):
        address: int = load(board.stops + 8 * number)
        if order_at(address).waits == REACHED:
            return address
    return 0
