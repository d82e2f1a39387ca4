"""Kraken's updates and trades, protocol version 2, compiled; see `orderbook.feeds.exchanges.kraken`."""

from orderbook.core.jit import jit
from orderbook.feeds.wire.bytes_memory import Name, name_of
from orderbook.feeds.wire.checked_book import drop_beyond, kraken_agrees, put_level
from orderbook.feeds.wire.decoder_state import NONE, SYNCING, book_at, book_named
from orderbook.feeds.wire.event_writing import (
    ASK,
    BID,
    TRADE,
    end_in_order,
    end_unit,
    goes_back,
    name_order,
    set_times,
    write_numbers,
)
from orderbook.feeds.wire.frame_decoder import frame_loop
from orderbook.feeds.wire.json_tape import (
    ARRAY,
    DECIMAL,
    INTEGER,
    OBJECT,
    STRING,
    after,
    is_kind,
    kind_of,
    length_of,
    member,
    member_of,
    says,
    start_of,
    token_at,
)
from orderbook.feeds.wire.numbers import REFUSED, integer, iso_time
from orderbook.market.block_memory import Record

_CHANNEL, _TYPE, _DATA, _SYMBOL = (name_of(text) for text in ("channel", "type", "data", "symbol"))
_BIDS, _ASKS, _PRICE, _QUANTITY = (name_of(text) for text in ("bids", "asks", "price", "qty"))
_CHECKSUM, _TIMESTAMP, _SIDE, _TRADE_ID = (
    name_of(text) for text in ("checksum", "timestamp", "side", "trade_id")
)
_BOOK, _TRADE, _HEARTBEAT, _UPDATE = (name_of(text) for text in ("book", "trade", "heartbeat", "update"))
_BUY, _SELL, _METHOD = (name_of(text) for text in ("buy", "sell", "method"))
_CHECKSUM_DIGITS, _DIGITS = 10, 18


@jit()
def _number(context: Record, place: int, name: Name) -> int:
    """The token of a member that is a number; 0 where there is none."""
    value = member(context.text, context.tape, place, name)
    if is_kind(context.tape, value, DECIMAL) or is_kind(context.tape, value, INTEGER):
        return token_at(context.tape, value)
    return 0


@jit()
def _side_of(context: Record, book: Record, one: int, side: int) -> bool:
    """Writes the levels of a side of a message."""
    text, tape = context.text, context.tape
    levels = member(text, tape, one, _ASKS if side == ASK else _BIDS)
    if not is_kind(tape, levels, ARRAY):
        return False
    at, end = levels + 1, length_of(token_at(tape, levels))
    if at == end:
        return True
    while at < end:
        if kind_of(token_at(tape, at)) != OBJECT:
            return False
        price, size = _number(context, at, _PRICE), _number(context, at, _QUANTITY)
        if price == 0 or size == 0:
            return False
        if not put_level(context, book, side, price, size, 1):
            return False
        at = after(tape, at)
    return drop_beyond(context, book, side)


@jit()
def _time(context: Record, token: int) -> int:
    return iso_time(start_of(context.text, token), length_of(token))


@jit()
def _update(context: Record, one: int) -> bool:
    """Takes an update of a book."""
    text, tape, start = context.text, context.tape, context.written
    symbol = member_of(text, tape, one, _SYMBOL, STRING)
    checksum = member_of(text, tape, one, _CHECKSUM, INTEGER)
    timestamp = member_of(text, tape, one, _TIMESTAMP, STRING)
    if symbol == 0 or checksum == 0 or timestamp == 0:
        return False
    address = book_named(context, start_of(text, symbol), length_of(symbol))
    stated = integer(start_of(text, checksum), length_of(checksum), _CHECKSUM_DIGITS)
    time = _time(context, timestamp)
    if address == 0 or min(stated, time) == REFUSED:
        return False
    book = book_at(address)
    if book.state == SYNCING or book.depth == 0 or goes_back(book, time):
        return False
    context.sequence = 0
    if not _side_of(context, book, one, BID) or not _side_of(context, book, one, ASK):
        return False
    if not kraken_agrees(context, address, stated):
        return False
    set_times(context, start, time)
    end_in_order(context, book, start, time)
    return True


@jit()
def _trades(context: Record, data: int) -> bool:
    """Takes trades of one product whose numbers follow one another."""
    text, tape, start = context.text, context.tape, context.written
    at, end, address, last = data + 1, length_of(token_at(tape, data)), 0, NONE
    while at < end:
        if kind_of(token_at(tape, at)) != OBJECT:
            return False
        symbol, side = member_of(text, tape, at, _SYMBOL, STRING), member_of(text, tape, at, _SIDE, STRING)
        price, size = _number(context, at, _PRICE), _number(context, at, _QUANTITY)
        identifier = member_of(text, tape, at, _TRADE_ID, INTEGER)
        timestamp = member_of(text, tape, at, _TIMESTAMP, STRING)
        if min(symbol, side) == 0 or min(price, size) == 0 or min(identifier, timestamp) == 0:
            return False
        own = book_named(context, start_of(text, symbol), length_of(symbol))
        if own == 0 or (address != 0 and own != address):
            return False
        if address == 0:
            last = book_at(own).last_trade
        address = own
        number, time = (
            integer(start_of(text, identifier), length_of(identifier), _DIGITS),
            _time(context, timestamp),
        )
        buys = says(text, side, _BUY)
        if min(number, time) == REFUSED or (not buys and not says(text, side, _SELL)):
            return False
        if last != NONE and number != last + 1:
            return False
        context.sequence = last = number
        if not write_numbers(context, book_at(own), TRADE, BID if buys else ASK, time, price, size):
            return False
        name_order(context, number)
        at = after(tape, at)
    if address == 0:
        return False
    end_unit(context, start)
    book = book_at(address)
    book.sequence, book.last_trade = last, last
    return True


@jit()
def _answers(context: Record) -> bool:
    """Whether a string in a message is what answers are told by."""
    place, end = 1, length_of(token_at(context.tape, 0))
    while place < end and not says(context.text, token_at(context.tape, place), _METHOD):
        place += 1
    return place < end


@jit()
def _decode(context: Record) -> bool:
    """{"channel": …, "type": "update", "data": […]}."""
    text, tape = context.text, context.tape
    if kind_of(token_at(tape, 0)) != OBJECT or _answers(context):
        return False
    channel = member_of(text, tape, 0, _CHANNEL, STRING)
    if channel == 0:
        return False
    if says(text, channel, _HEARTBEAT):
        return True
    kind, data = member_of(text, tape, 0, _TYPE, STRING), member(text, tape, 0, _DATA)
    if kind == 0 or not says(text, kind, _UPDATE) or not is_kind(tape, data, ARRAY):
        return False
    if says(text, channel, _TRADE):
        return _trades(context, data)
    one, end = data + 1, length_of(token_at(tape, data))
    if not says(text, channel, _BOOK) or one == end or kind_of(token_at(tape, one)) != OBJECT:
        return False
    return after(tape, one) == end and _update(context, one)


take = frame_loop(_decode)
