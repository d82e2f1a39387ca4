"""Bybit's deltas of books and its trades, compiled; see `orderbook.feeds.exchanges.bybit`."""

from orderbook.core.jit import jit
from orderbook.feeds.wire.bytes_memory import Name, byte, is_named, name_of
from orderbook.feeds.wire.decoder_state import SYNCING, arrive, book_at, book_named
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
    ARRAY,
    FALSE,
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
from orderbook.feeds.wire.numbers import REFUSED, integer, milliseconds_time
from orderbook.feeds.wire.recent_trades import (
    REMEMBERED,
    id_words,
    is_recent,
    note,
    order_id_of,
    remember,
)
from orderbook.market.block_memory import Record, address_of

_TOPIC, _TYPE, _TIME, _MATCHED, _DATA = (name_of(text) for text in ("topic", "type", "ts", "cts", "data"))
_OP, _REQUEST, _SUCCESS, _MESSAGE = (name_of(text) for text in ("op", "req_id", "success", "ret_msg"))
_SYMBOL, _BIDS, _ASKS, _NUMBER = (name_of(text) for text in ("s", "b", "a", "u"))
_BOOK, _DELTA, _TRADES = name_of("orderbook"), name_of("delta"), name_of("publicTrade.")
_TRADES_LENGTH = _TRADES[0]
_SIDE, _PRICE, _SIZE, _MOMENT, _ID = (name_of(text) for text in ("S", "p", "v", "T", "i"))
_BLOCK, _SEQUENCE, _BUY, _SELL = (name_of(text) for text in ("BT", "seq", "Buy", "Sell"))
_POINT, _DIGITS = ord("."), 18


@jit()
def _time(context: Record, name: Name) -> int:
    """The time of a member in ms, as ns; 0 where there is none, REFUSED where it cannot be read."""
    place = member(context.text, context.tape, 0, name)
    if place == 0:
        return 0
    if not is_kind(context.tape, place, INTEGER):
        return REFUSED
    token = token_at(context.tape, place)
    return milliseconds_time(start_of(context.text, token), length_of(token))


@jit()
def _product(context: Record, topic: int, symbol: int) -> int:
    """The book of a topic "orderbook.DEPTH.SYMBOL", with this symbol; 0 for others."""
    start, end = start_of(context.text, topic), start_of(context.text, topic) + length_of(topic)
    kind = start
    while kind < end and byte(kind) != _POINT:
        kind += 1
    name = end
    while name > start and byte(name - 1) != _POINT:
        name -= 1
    if not is_named(start, kind - start, _BOOK) or name == start or end - name != length_of(symbol):
        return 0
    own, at = start_of(context.text, symbol), 0
    while at < end - name and byte(own + at) == byte(name + at):
        at += 1
    return book_named(context, name, end - name) if at == end - name else 0


@jit()
def _trade(context: Record, book: Record, place: int, noted: int) -> bool:
    """Takes a trade of a message, of which so many were noted."""
    text, tape = context.text, context.tape
    symbol, side = member_of(text, tape, place, _SYMBOL, STRING), member_of(text, tape, place, _SIDE, STRING)
    price, size = member_of(text, tape, place, _PRICE, STRING), member_of(text, tape, place, _SIZE, STRING)
    moment, own = member_of(text, tape, place, _MOMENT, INTEGER), member_of(text, tape, place, _ID, STRING)
    block, number = member(text, tape, place, _BLOCK), member(text, tape, place, _SEQUENCE)
    # Block trades are left out, and repeated ones counted, in Python.
    if min(symbol, side, price, size, moment, own) <= 0 or (block != 0 and not is_kind(tape, block, FALSE)):
        return False
    if book_named(context, start_of(text, symbol), length_of(symbol)) != address_of(book):
        return False
    bought = says(text, side, _BUY)
    if not bought and not says(text, side, _SELL):
        return False
    sequence = 0
    if number:
        if not is_kind(tape, number, INTEGER):
            return False
        token = token_at(tape, number)
        sequence = integer(start_of(text, token), length_of(token), _DIGITS)
    time = milliseconds_time(start_of(text, moment), length_of(moment))
    high, low = id_words(start_of(text, own), length_of(own))
    if min(sequence, time) == REFUSED or low == REFUSED or is_recent(book.recent, noted, high, low):
        return False
    context.sequence = sequence
    if not write_numbers(context, book, TRADE, BID if bought else ASK, time, price, size):
        return False
    name_order(context, order_id_of(high, low))
    note(book.recent, noted, high, low)
    return True


@jit()
def _trades(context: Record, topic: int, data: int) -> bool:
    """Takes the trades of a topic "publicTrade.SYMBOL"."""
    text, tape = context.text, context.tape
    name = start_of(text, topic) + _TRADES_LENGTH
    address = book_named(context, name, start_of(text, topic) + length_of(topic) - name)
    if address == 0:
        return False
    book, start, noted = book_at(address), context.written, 0
    at, end = data + 1, length_of(token_at(tape, data))
    while at < end:
        if noted == REMEMBERED or kind_of(token_at(tape, at)) != OBJECT:
            return False
        if not _trade(context, book, at, noted):
            return False
        noted += 1
        at = after(tape, at)
    if noted:
        remember(book.recent, noted)
        book.sequence = context.sequence
        end_unit(context, start)
    return True


@jit()
def _is_of_trades(context: Record, topic: int) -> bool:
    start, length = start_of(context.text, topic), length_of(topic)
    return length > _TRADES_LENGTH and is_named(start, _TRADES_LENGTH, _TRADES)


@jit()
def _is_answer(context: Record) -> bool:
    """Whether a message has members of an answer."""
    text, tape = context.text, context.tape
    if member(text, tape, 0, _OP) or member(text, tape, 0, _REQUEST):
        return True
    return member(text, tape, 0, _SUCCESS) != 0 or member(text, tape, 0, _MESSAGE) != 0


@jit()
def _decode(context: Record) -> bool:
    """{"topic": "orderbook.DEPTH.SYMBOL", "type": "delta", "ts": …, "data": {…}}, or "publicTrade.SYMBOL" and
    an array."""
    text, tape, start = context.text, context.tape, context.written
    if kind_of(token_at(tape, 0)) != OBJECT or _is_answer(context):
        return False
    topic, kind = member_of(text, tape, 0, _TOPIC, STRING), member_of(text, tape, 0, _TYPE, STRING)
    data, sent, matched = member(text, tape, 0, _DATA), _time(context, _TIME), _time(context, _MATCHED)
    if topic == 0 or kind == 0 or min(sent, matched) == REFUSED:
        return False
    if _is_of_trades(context, topic):
        return is_kind(tape, data, ARRAY) and _trades(context, topic, data)
    if not is_kind(tape, data, OBJECT):
        return False
    symbol, token = (
        member_of(text, tape, data, _SYMBOL, STRING),
        member_of(text, tape, data, _NUMBER, INTEGER),
    )
    if symbol == 0 or token == 0 or not says(text, kind, _DELTA):
        return False
    number = integer(start_of(text, token), length_of(token), _DIGITS)
    address = _product(context, topic, symbol)
    if address == 0 or number == REFUSED:
        return False
    book, time = book_at(address), matched if matched else sent
    # A number of 1 begins anew.
    if book.state == SYNCING or number == 1 or number != book.arrived + 1 or goes_back(book, time):
        return False
    context.sequence = number
    if not write_pairs(context, book, member(text, tape, data, _BIDS), BID, time):
        return False
    if not write_pairs(context, book, member(text, tape, data, _ASKS), ASK, time):
        return False
    arrive(book, number)
    end_in_order(context, book, start, time)
    return True


take = frame_loop(_decode)
