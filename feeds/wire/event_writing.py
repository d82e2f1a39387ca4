"""EVENT records written by compiled code, a unit for each message; see `orderbook.feeds.event_writer`."""

from orderbook.core.jit import jit
from orderbook.feeds.wire.json_tape import ARRAY, STRING, is_kind, kind_of, length_of, start_of, token_at
from orderbook.feeds.wire.numbers import REFUSED, units
from orderbook.market.block_memory import Record, record_at
from orderbook.market.events import EVENT, Action, Flag, Side

LEVEL, TRADE = int(Action.LEVEL), int(Action.TRADE)
BID, ASK = int(Side.BID), int(Side.ASK)
_LAST = int(Flag.LAST)
EVENT_BYTES = EVENT.itemsize

event_at = record_at(EVENT)


@jit()
def write_event(
    context: Record, book: Record, action: int, side: int, exchange_time: int, price: int, volume: int
) -> bool:
    """Adds an event of the unit at hand; False where there is no room."""
    if context.written == context.room:
        return False
    event = event_at(context.out + EVENT_BYTES * context.written)
    event.exchange_time, event.receive_time = exchange_time, context.time
    event.sequence, event.order_id = context.sequence, 0
    event.price, event.volume = price, volume
    event.instrument, event.broker_id = book.instrument, 0
    event.action, event.side, event.flags, event.reserved = action, side, 0, 0
    context.written += 1
    return True


@jit()
def name_order(context: Record, order_id: int) -> None:
    """The event written last is of this order or trade."""
    event_at(context.out + EVENT_BYTES * (context.written - 1)).order_id = order_id


@jit()
def ticks_of(context: Record, book: Record, price: int) -> int:
    """The price of a token in units; REFUSED for what is unusual or off the tick."""
    start = start_of(context.text, price)
    return units(start, length_of(price), book.price_scale, book.price_places, book.price_step)


@jit()
def lots_of(context: Record, book: Record, size: int) -> int:
    """The volume of a token in units; REFUSED for what is unusual or off the lot."""
    start = start_of(context.text, size)
    return units(start, length_of(size), book.size_scale, book.size_places, book.size_step)


@jit()
def write_numbers(
    context: Record, book: Record, action: int, side: int, time: int, price: int, size: int
) -> bool:
    """Adds an event with the price and size of tokens; False where one is unusual, or there is no room."""
    ticks, lots = ticks_of(context, book, price), lots_of(context, book, size)
    if ticks == REFUSED or lots == REFUSED:
        return False
    return write_event(context, book, action, side, time, ticks, lots)


@jit()
def write_pairs(context: Record, book: Record, levels: int, side: int, time: int) -> bool:
    """Adds the levels of an array at a place, each an array of price and size in strings; False where one is
    unusual, or there is no such."""
    tape = context.tape
    if not is_kind(tape, levels, ARRAY):
        return False
    at, end = levels + 1, length_of(token_at(tape, levels))
    while at < end:
        # Two strings, a token each.
        if kind_of(token_at(tape, at)) != ARRAY or length_of(token_at(tape, at)) != at + 3:
            return False
        price, size = token_at(tape, at + 1), token_at(tape, at + 2)
        if kind_of(price) != STRING or kind_of(size) != STRING:
            return False
        if not write_numbers(context, book, LEVEL, side, time, price, size):
            return False
        at += 3
    return True


@jit()
def goes_back(book: Record, exchange_time: int) -> bool:
    """Whether a unit of the book's own stream has a time, ns, before that of the last; 0: it has none."""
    return exchange_time != 0 and exchange_time < book.latest


@jit()
def end_in_order(context: Record, book: Record, first: int, exchange_time: int) -> None:
    """Closes the unit that begins with an event, of the book's own stream."""
    end_unit(context, first)
    book.sequence = context.sequence
    if exchange_time:
        book.latest = exchange_time


@jit()
def set_times(context: Record, first: int, exchange_time: int) -> None:
    """The events from a number on have this exchange time."""
    for number in range(first, context.written):
        event_at(context.out + EVENT_BYTES * number).exchange_time = exchange_time


@jit()
def end_unit(context: Record, first: int) -> None:
    """Closes the unit that begins with an event; one without events leaves no trace."""
    if context.written > first:
        event = event_at(context.out + EVENT_BYTES * (context.written - 1))
        event.flags = event.flags | _LAST
