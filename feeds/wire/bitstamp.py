"""Bitstamp's levels, orders and trades, compiled; see `orderbook.feeds.exchanges.bitstamp`."""

from orderbook.core.jit import jit
from orderbook.feeds.wire.bytes_memory import Name, byte, is_named, name_of
from orderbook.feeds.wire.decoder_state import arrive, book_at, book_named, follows_in_time
from orderbook.feeds.wire.event_writing import (
    ASK,
    BID,
    TRADE,
    end_in_order,
    end_unit,
    goes_back,
    lots_of,
    name_order,
    ticks_of,
    write_event,
    write_numbers,
    write_pairs,
)
from orderbook.feeds.wire.frame_decoder import frame_loop
from orderbook.feeds.wire.json_tape import (
    INTEGER,
    OBJECT,
    STRING,
    is_kind,
    kind_of,
    length_of,
    member,
    member_of,
    says,
    start_of,
    token_at,
)
from orderbook.feeds.wire.numbers import REFUSED, integer
from orderbook.feeds.wire.order_amounts import FREE, amount_of, has_room, put_amount, take_amount
from orderbook.market.block_memory import Record
from orderbook.market.events import Action

_EVENT, _CHANNEL, _DATA, _TRADE = (name_of(text) for text in ("event", "channel", "data", "trade"))
_TIME, _BIDS, _ASKS, _BOOK = (name_of(text) for text in ("microtimestamp", "bids", "asks", "diff_order_book"))
_ID, _TYPE, _AMOUNT, _PRICE = (name_of(text) for text in ("id", "type", "amount_str", "price_str"))
_CREATED, _CHANGED, _DELETED = (name_of(f"order_{what}") for what in ("created", "changed", "deleted"))
_ORDERS, _ORDER_TYPE = name_of("live_orders"), name_of("order_type")
_ADD, _EXECUTE, _DELETE, _MODIFY = (
    int(action) for action in (Action.ADD, Action.EXECUTE, Action.DELETE, Action.MODIFY)
)
_UNDERSCORE = ord("_")
_DIGITS, _MICROSECOND = 18, 1000
_MOST_MICROSECONDS = (2**63 - 1) // _MICROSECOND


@jit()
def _microseconds(context: Record, data: int) -> int:
    """The moment of a message in µs; REFUSED where there is none."""
    token = member_of(context.text, context.tape, data, _TIME, STRING)
    if token == 0:
        return REFUSED
    found = integer(start_of(context.text, token), length_of(token), _DIGITS)
    return REFUSED if found > _MOST_MICROSECONDS else found


@jit()
def _levels(context: Record, address: int, data: int) -> bool:
    text, tape, book, start = context.text, context.tape, book_at(address), context.written
    moment = _microseconds(context, data)
    if moment == REFUSED or not follows_in_time(book, moment) or goes_back(book, moment * _MICROSECOND):
        return False
    context.sequence, time = moment, moment * _MICROSECOND
    if not write_pairs(context, book, member(text, tape, data, _BIDS), BID, time):
        return False
    if not write_pairs(context, book, member(text, tape, data, _ASKS), ASK, time):
        return False
    arrive(book, moment)
    end_in_order(context, book, start, time)
    return True


@jit()
def _number(context: Record, data: int, name: Name) -> int:
    token = member_of(context.text, context.tape, data, name, INTEGER)
    return REFUSED if token == 0 else integer(start_of(context.text, token), length_of(token), _DIGITS)


@jit()
def _trade(context: Record, address: int, data: int) -> bool:
    text, tape, book, start = context.text, context.tape, book_at(address), context.written
    moment, number, kind = (
        _microseconds(context, data),
        _number(context, data, _ID),
        _number(context, data, _TYPE),
    )
    price, size = member_of(text, tape, data, _PRICE, STRING), member_of(text, tape, data, _AMOUNT, STRING)
    if min(moment, number) == REFUSED or kind < 0 or kind > 1 or price == 0 or size == 0:
        return False
    if number <= book.last_trade:
        return True
    context.sequence = 0
    if not write_numbers(context, book, TRADE, ASK if kind else BID, moment * _MICROSECOND, price, size):
        return False
    name_order(context, number)
    end_unit(context, start)
    book.sequence, book.last_trade = 0, number
    return True


@jit()
def _change(
    context: Record, book: Record, action: int, side: int, time: int, price: int, volume: int, order: int
) -> bool:
    """Adds an event of an order; False where there is no room."""
    if not write_event(context, book, action, side, time, price, volume):
        return False
    name_order(context, order)
    return True


@jit()
def _delete(context: Record, book: Record, order: int, time: int, filled: bool) -> bool:
    """An order that is known leaves."""
    left = amount_of(book.orders, order)
    if left != FREE:
        place = amount_of(book.places, order)
        action = _EXECUTE if filled else _DELETE
        if not _change(context, book, action, place & 1, time, place >> 1, left, order):
            return False
        take_amount(book.orders, order)
        take_amount(book.places, order)
    return True


@jit()
def _put(context: Record, book: Record, order: int, time: int, side: int, price: int, volume: int) -> bool:
    """An order is as it is now."""
    left, place = amount_of(book.orders, order), 2 * price + side
    written = True
    if left == FREE:
        if not has_room(book.orders) or not has_room(book.places):
            return False
        written = _change(context, book, _ADD, side, time, price, volume, order)
    else:
        old = amount_of(book.places, order)
        if old == place and left == volume:
            return True
        if old & 1 != side:
            written = _change(context, book, _DELETE, old & 1, time, old >> 1, left, order)
            written = written and _change(context, book, _ADD, side, time, price, volume, order)
        elif old == place and volume < left:
            written = _change(context, book, _EXECUTE, side, time, price, left - volume, order)
        else:
            written = _change(context, book, _MODIFY, side, time, price, volume, order)
    if written:
        put_amount(book.orders, order, volume)
        put_amount(book.places, order, place)
    return written


@jit()
def _order(context: Record, address: int, data: int, deleted: bool) -> bool:
    text, tape, book, start = context.text, context.tape, book_at(address), context.written
    own, order, side = (
        _microseconds(context, data),
        _number(context, data, _ID),
        _number(context, data, _ORDER_TYPE),
    )
    price, size = member_of(text, tape, data, _PRICE, STRING), member_of(text, tape, data, _AMOUNT, STRING)
    if min(own, order) == REFUSED or side < 0 or side > 1 or price == 0 or size == 0:
        return False
    # An order's moments need not be in the order of the messages, which counts.
    moment = max(own, book.arrived)
    ticks, lots = ticks_of(context, book, price), lots_of(context, book, size)
    if not follows_in_time(book, moment) or min(ticks, lots) == REFUSED:
        return False
    context.sequence, time = moment, own * _MICROSECOND
    if deleted or lots == 0:
        if not _delete(context, book, order, time, lots == 0):
            return False
    # A market order has no price and never rests.
    elif ticks and not _put(context, book, order, time, side, ticks, lots):
        return False
    end_unit(context, start)
    book.sequence = moment
    arrive(book, moment)
    return True


@jit()
def _decode_kind(context: Record, orders: bool) -> bool:
    """{"event": …, "channel": "KIND_PRODUCT", "data": {…}}."""
    text, tape = context.text, context.tape
    if kind_of(token_at(tape, 0)) != OBJECT:
        return False
    event, channel = member_of(text, tape, 0, _EVENT, STRING), member_of(text, tape, 0, _CHANNEL, STRING)
    data = member(text, tape, 0, _DATA)
    if event == 0 or channel == 0 or not is_kind(tape, data, OBJECT):
        return False
    start, end = start_of(text, channel), start_of(text, channel) + length_of(channel)
    product = end
    while product > start and byte(product - 1) != _UNDERSCORE:
        product -= 1
    address = book_named(context, product, end - product)
    if address == 0 or product == start:
        return False
    if says(text, event, _TRADE):
        return _trade(context, address, data)
    if orders:
        deleted = says(text, event, _DELETED)
        if not deleted and not says(text, event, _CREATED) and not says(text, event, _CHANGED):
            return False
        return is_named(start, product - 1 - start, _ORDERS) and _order(context, address, data, deleted)
    if not says(text, event, _DATA) or not is_named(start, product - 1 - start, _BOOK):
        return False
    return _levels(context, address, data)


@jit()
def _decode_levels(context: Record) -> bool:
    return _decode_kind(context, False)


@jit()
def _decode_orders(context: Record) -> bool:
    return _decode_kind(context, True)


take = frame_loop(_decode_levels)
take_orders = frame_loop(_decode_orders)
