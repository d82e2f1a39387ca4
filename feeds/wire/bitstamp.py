"""Bitstamp's levels and trades, compiled; see `orderbook.feeds.exchanges.bitstamp`."""

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
    name_order,
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
from orderbook.market.block_memory import Record

_EVENT, _CHANNEL, _DATA, _TRADE = (name_of(text) for text in ("event", "channel", "data", "trade"))
_TIME, _BIDS, _ASKS, _BOOK = (name_of(text) for text in ("microtimestamp", "bids", "asks", "diff_order_book"))
_ID, _TYPE, _AMOUNT, _PRICE = (name_of(text) for text in ("id", "type", "amount_str", "price_str"))
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
def _decode(context: Record) -> bool:
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
    if not says(text, event, _DATA) or not is_named(start, product - 1 - start, _BOOK):
        return False
    return _levels(context, address, data)


take = frame_loop(_decode)
