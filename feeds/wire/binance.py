"""Binance's depth diffs and trades, spot and futures, compiled; see `orderbook.feeds.exchanges.binance`."""

from orderbook.core.jit import jit
from orderbook.feeds.wire.bytes_memory import Name, byte, is_named, name_of
from orderbook.feeds.wire.decoder_state import NONE, arrive, book_at, book_named, follows
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
    FALSE,
    INTEGER,
    OBJECT,
    STRING,
    TRUE,
    is_kind,
    kind_of,
    length_of,
    member,
    start_of,
    token_at,
)
from orderbook.feeds.wire.numbers import REFUSED, integer, milliseconds_time
from orderbook.market.block_memory import Record

# Streams of trades, of which the first that comes counts.
TRADE_KIND, AGGREGATE_KIND = 1, 2
_STREAM, _DATA = name_of("stream"), name_of("data")
_EVENT_TIME, _TIME, _SYMBOL, _FIRST, _LAST = (name_of(text) for text in ("E", "T", "s", "U", "u"))
_BIDS, _ASKS, _PREVIOUS = (name_of(text) for text in ("b", "a", "pu"))
_TRADE_ID, _AGGREGATE_ID, _PRICE, _SIZE, _MAKER, _X = (
    name_of(text) for text in ("t", "a", "p", "q", "m", "X")
)
_DEPTH, _TRADE, _AGGREGATE, _MARKET = (name_of(text) for text in ("depth", "trade", "aggTrade", "MARKET"))
# Streams that say nothing of books and trades.
_TICKER, _KLINE, _BOOK_TICKER = (name_of(text) for text in ("ticker", "kline", "bookTicker"))
_MINI = name_of("miniTicker")
_AT, _UNDERSCORE, _CASE = ord("@"), ord("_"), 32
_DIGITS = 18


@jit()
def _number(context: Record, object_place: int, name: Name) -> int:
    """The whole number of a member, REFUSED where there is none."""
    place = member(context.text, context.tape, object_place, name)
    if not is_kind(context.tape, place, INTEGER):
        return REFUSED
    token = token_at(context.tape, place)
    return integer(start_of(context.text, token), length_of(token), _DIGITS)


@jit()
def _time(context: Record, object_place: int, name: Name) -> int:
    """The time of a member in ms, as ns; REFUSED where there is none."""
    place = member(context.text, context.tape, object_place, name)
    if not is_kind(context.tape, place, INTEGER):
        return REFUSED
    token = token_at(context.tape, place)
    return milliseconds_time(start_of(context.text, token), length_of(token))


@jit()
def _is_product(context: Record, data: int, name: int, length: int) -> bool:
    """Whether the symbol of a message is the name of its stream in upper case."""
    place = member(context.text, context.tape, data, _SYMBOL)
    if not is_kind(context.tape, place, STRING) or length_of(token_at(context.tape, place)) != length:
        return False
    symbol, at = start_of(context.text, token_at(context.tape, place)), 0
    while at < length:
        letter, own = byte(name + at), byte(symbol + at)
        if own != (letter - _CASE if 97 <= letter <= 122 else letter):
            return False
        at += 1
    return True


@jit()
def _depth(context: Record, address: int, data: int, futures: bool) -> bool:
    book, start = book_at(address), context.written
    time = _time(context, data, _EVENT_TIME)
    first, last = _number(context, data, _FIRST), _number(context, data, _LAST)
    if min(time, first, last) == REFUSED or last < first or goes_back(book, time):
        return False
    previous = NONE
    if futures:
        previous = _number(context, data, _PREVIOUS)
        if previous == REFUSED:
            return False
        first = previous
    elif member(context.text, context.tape, data, _PREVIOUS):
        return False
    if not follows(book, first, last, previous):
        return False
    context.sequence = last
    bids, asks = (
        member(context.text, context.tape, data, _BIDS),
        member(context.text, context.tape, data, _ASKS),
    )
    if not write_pairs(context, book, bids, BID, time) or not write_pairs(context, book, asks, ASK, time):
        return False
    arrive(book, last)
    end_in_order(context, book, start, time)
    return True


@jit()
def _trade(context: Record, address: int, data: int, kind: int) -> bool:
    text, tape, book = context.text, context.tape, book_at(address)
    number = _number(context, data, _TRADE_ID if kind == TRADE_KIND else _AGGREGATE_ID)
    time = _time(context, data, _TIME)
    price, size = member(text, tape, data, _PRICE), member(text, tape, data, _SIZE)
    maker = member(text, tape, data, _MAKER)
    if min(number, time) == REFUSED or not is_kind(tape, price, STRING) or not is_kind(tape, size, STRING):
        return False
    if not is_kind(tape, maker, TRUE) and not is_kind(tape, maker, FALSE):
        return False
    where = member(text, tape, data, _X)
    if where:
        token = token_at(tape, max(where, 0))
        if not is_kind(tape, where, STRING) or not is_named(start_of(text, token), length_of(token), _MARKET):
            return False
    if book.trade_kind == 0:
        return False
    if book.trade_kind != kind:
        return True
    if number <= book.last_trade:
        return False
    start = context.written
    context.sequence = number
    own, other = token_at(tape, price), token_at(tape, size)
    side = ASK if is_kind(tape, maker, TRUE) else BID
    if not write_numbers(context, book, TRADE, side, time, own, other):
        return False
    name_order(context, number)
    end_unit(context, start)
    book.sequence, book.last_trade = number, number
    return True


@jit()
def _until(start: int, end: int, letter: int) -> int:
    """Where a letter comes first; the end where it does not."""
    while start < end and byte(start) != letter:
        start += 1
    return start


@jit()
def _is_not_read(start: int, length: int) -> bool:
    if is_named(start, length, _TICKER) or is_named(start, length, _KLINE):
        return True
    return is_named(start, length, _BOOK_TICKER) or is_named(start, length, _MINI)


@jit()
def _decode(context: Record, futures: bool) -> bool:
    """{"stream": "PRODUCT@KIND…", "data": {…}}, and no more."""
    text, tape = context.text, context.tape
    if kind_of(token_at(tape, 0)) != OBJECT:
        return False
    stream, data = member(text, tape, 0, _STREAM), member(text, tape, 0, _DATA)
    if not is_kind(tape, stream, STRING) or not is_kind(tape, data, OBJECT):
        return False
    # The other members are known, too: of answers.
    if length_of(token_at(tape, 0)) - (length_of(token_at(tape, data)) - data) != 4:
        return False
    name = start_of(text, token_at(tape, stream))
    end = name + length_of(token_at(tape, stream))
    at = _until(name, end, _AT)
    address = book_named(context, name, at - name)
    if address == 0 or at == end:
        return False
    kind = at + 1
    kind_end = _until(kind, end, _AT)
    if is_named(kind, kind_end - kind, _DEPTH):
        return _is_product(context, data, name, at - name) and _depth(context, address, data, futures)
    if is_named(kind, kind_end - kind, _TRADE):
        return _is_product(context, data, name, at - name) and _trade(context, address, data, TRADE_KIND)
    if is_named(kind, kind_end - kind, _AGGREGATE):
        return _is_product(context, data, name, at - name) and _trade(context, address, data, AGGREGATE_KIND)
    return _is_not_read(kind, _until(kind, kind_end, _UNDERSCORE) - kind)


@jit()
def _decode_spot(context: Record) -> bool:
    return _decode(context, False)


@jit()
def _decode_futures(context: Record) -> bool:
    return _decode(context, True)


take_spot = frame_loop(_decode_spot)
take_futures = frame_loop(_decode_futures)
