"""OKX's book updates and trades, compiled; see `orderbook.feeds.exchanges.okx`."""

from orderbook.core.jit import jit
from orderbook.feeds.wire.bytes_memory import Name, byte, name_of
from orderbook.feeds.wire.checked_book import pairs_agree, put_level
from orderbook.feeds.wire.decoder_state import NONE, SYNCING, book_at, book_named
from orderbook.feeds.wire.event_writing import (
    ASK,
    BID,
    TRADE,
    end_in_order,
    goes_back,
    name_order,
    set_times,
    write_numbers,
)
from orderbook.feeds.wire.frame_decoder import frame_loop
from orderbook.feeds.wire.json_tape import (
    ARRAY,
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
from orderbook.market.block_memory import Record

_ARG, _CHANNEL, _PRODUCT, _ACTION, _DATA = (
    name_of(t) for t in ("arg", "channel", "instId", "action", "data")
)
_EVENT, _CODE, _MSG, _BOOKS, _TRADES = (name_of(text) for text in ("event", "code", "msg", "books", "trades"))
_UPDATE, _ASKS, _BIDS, _TIME = (name_of(text) for text in ("update", "asks", "bids", "ts"))
_CHECKSUM, _NUMBER, _PREVIOUS = (name_of(text) for text in ("checksum", "seqId", "prevSeqId"))
_TRADE_ID, _PRICE, _SIZE, _SIDE = (name_of(text) for text in ("tradeId", "px", "sz", "side"))
_BUY, _SELL = name_of("buy"), name_of("sell")
_DIGITS, _CHECKSUM_DIGITS, _MINUS = 18, 10, ord("-")
# Of a number that cannot be read.
_UNUSUAL = NONE + 1


@jit()
def _integer(context: Record, place: int, name: Name, digits: int, otherwise: int) -> int:
    """A whole number of a member, `otherwise` where there is none; _UNUSUAL where it cannot be read."""
    value = member(context.text, context.tape, place, name)
    if value == 0:
        return otherwise
    if not is_kind(context.tape, value, INTEGER):
        return _UNUSUAL
    token = token_at(context.tape, value)
    start, length = start_of(context.text, token), length_of(token)
    sign = 1
    if byte(start) == _MINUS:
        start, length, sign = start + 1, length - 1, -1
    found = integer(start, length, digits)
    return _UNUSUAL if found == REFUSED else sign * found


@jit()
def _side_of(context: Record, book: Record, one: int, side: int) -> bool:
    """Writes the levels of a side of a message."""
    tape = context.tape
    levels = member(context.text, tape, one, _ASKS if side == ASK else _BIDS)
    if not is_kind(tape, levels, ARRAY):
        return False
    at, end = levels + 1, length_of(token_at(tape, levels))
    while at < end:
        if kind_of(token_at(tape, at)) != ARRAY or length_of(token_at(tape, at)) < at + 3:
            return False
        price, size = token_at(tape, at + 1), token_at(tape, at + 2)
        if kind_of(price) != STRING or kind_of(size) != STRING:
            return False
        if not put_level(context, book, side, price, size, 0):
            return False
        at = after(tape, at)
    return True


@jit()
def _time(context: Record, token: int) -> int:
    return milliseconds_time(start_of(context.text, token), length_of(token))


@jit()
def _update(context: Record, address: int, one: int) -> bool:
    """Takes an update of a book that has the number after the last."""
    text, tape, book, start = context.text, context.tape, book_at(address), context.written
    stamp = member_of(text, tape, one, _TIME, STRING)
    checksum = _integer(context, one, _CHECKSUM, _CHECKSUM_DIGITS, 0)
    number, previous = (
        _integer(context, one, _NUMBER, _DIGITS, NONE),
        _integer(context, one, _PREVIOUS, _DIGITS, NONE),
    )
    if book.state == SYNCING or stamp == 0 or checksum == _UNUSUAL or number == _UNUSUAL:
        return False
    time = _time(context, stamp)
    if previous != book.arrived or time == REFUSED or goes_back(book, time):
        return False
    context.sequence = 0 if number == NONE else number
    if not _side_of(context, book, one, BID) or not _side_of(context, book, one, ASK):
        return False
    if checksum != 0 and not pairs_agree(context, address, checksum, False):
        return False
    book.arrived = number
    set_times(context, start, time)
    end_in_order(context, book, start, time)
    return True


@jit()
def _trades(context: Record, data: int) -> bool:
    """Takes trades of one product."""
    text, tape, start = context.text, context.tape, context.written
    at, end, address = data + 1, length_of(token_at(tape, data)), 0
    last, latest, number = NONE, 0, 0
    while at < end:
        if kind_of(token_at(tape, at)) != OBJECT:
            return False
        product, identifier = (
            member_of(text, tape, at, _PRODUCT, STRING),
            member_of(text, tape, at, _TRADE_ID, STRING),
        )
        price, size = member_of(text, tape, at, _PRICE, STRING), member_of(text, tape, at, _SIZE, STRING)
        stamp, side = member_of(text, tape, at, _TIME, STRING), member_of(text, tape, at, _SIDE, STRING)
        if min(product, identifier) == 0 or min(price, size) == 0 or min(stamp, side) == 0:
            return False
        own = book_named(context, start_of(text, product), length_of(product))
        if own == 0 or (address != 0 and own != address):
            return False
        book = book_at(own)
        if address == 0:
            last, latest = book.last_trade, book.latest
        address = own
        number, time = (
            integer(start_of(text, identifier), length_of(identifier), _DIGITS),
            _time(context, stamp),
        )
        buys = says(text, side, _BUY)
        if min(number, time) == REFUSED or book.since == NONE or (not buys and not says(text, side, _SELL)):
            return False
        if time >= book.since and number > last:
            if time < latest:
                return False
            latest, last = max(latest, time), number
            context.sequence = number
            if not write_numbers(context, book, TRADE, BID if buys else ASK, time, price, size):
                return False
            name_order(context, number)
        at = after(tape, at)
    if address == 0:
        return False
    if context.written > start:
        book = book_at(address)
        book.last_trade = last
        end_in_order(context, book, start, latest)
    return True


@jit()
def _decode(context: Record) -> bool:
    """{"arg": {"channel": …, "instId": …}, "action": "update", "data": […]}."""
    text, tape = context.text, context.tape
    if kind_of(token_at(tape, 0)) != OBJECT or member(text, tape, 0, _EVENT):
        return False
    if member(text, tape, 0, _CODE) or member(text, tape, 0, _MSG):
        return False
    argument, data = member(text, tape, 0, _ARG), member(text, tape, 0, _DATA)
    if not is_kind(tape, argument, OBJECT) or not is_kind(tape, data, ARRAY):
        return False
    channel = member_of(text, tape, argument, _CHANNEL, STRING)
    product = member_of(text, tape, argument, _PRODUCT, STRING)
    action = member(text, tape, 0, _ACTION)
    if channel == 0 or product == 0 or (action != 0 and not is_kind(tape, action, STRING)):
        return False
    if says(text, channel, _TRADES):
        return _trades(context, data)
    one, end = data + 1, length_of(token_at(tape, data))
    if not says(text, channel, _BOOKS) or action == 0 or not says(text, token_at(tape, action), _UPDATE):
        return False
    if one == end or kind_of(token_at(tape, one)) != OBJECT or after(tape, one) != end:
        return False
    address = book_named(context, start_of(text, product), length_of(product))
    return address != 0 and _update(context, address, one)


take = frame_loop(_decode)
