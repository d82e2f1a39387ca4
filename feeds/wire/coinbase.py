"""Coinbase Advanced Trade's levels and trades, compiled; see `orderbook.feeds.exchanges.coinbase`."""

from orderbook.core.jit import jit
from orderbook.feeds.wire.bytes_memory import Name, name_of, put_word, word
from orderbook.feeds.wire.decoder_state import SYNCING, book_at, book_named, expect_next, is_expected
from orderbook.feeds.wire.event_writing import (
    ASK,
    BID,
    LEVEL,
    TRADE,
    end_in_order,
    end_unit,
    goes_back,
    name_order,
    write_numbers,
)
from orderbook.feeds.wire.frame_decoder import SCRATCH, frame_loop
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
    says,
    start_of,
    token_at,
)
from orderbook.feeds.wire.numbers import REFUSED, integer, iso_time
from orderbook.market.block_memory import Record

_CHANNEL, _NUMBER, _TIMESTAMP, _EVENTS = (
    name_of(text) for text in ("channel", "sequence_num", "timestamp", "events")
)
_TYPE, _MESSAGE, _PRODUCT, _UPDATE = (name_of(text) for text in ("type", "message", "product_id", "update"))
_UPDATES, _TRADES, _SIDE, _TIME = (name_of(text) for text in ("updates", "trades", "side", "time"))
_PRICE_LEVEL, _QUANTITY, _EVENT_TIME = (name_of(t) for t in ("price_level", "new_quantity", "event_time"))
_TRADE_ID, _PRICE, _SIZE = (name_of(text) for text in ("trade_id", "price", "size"))
_BID, _OFFER, _BUY, _SELL = (name_of(text) for text in ("bid", "offer", "BUY", "SELL"))
_L2, _MARKET_TRADES = name_of("l2_data"), name_of("market_trades")
_HEARTBEATS, _CANDLES, _TICKER, _BATCH = (
    name_of(text) for text in ("heartbeats", "candles", "ticker", "ticker_batch")
)
# Words of the scratch memory for a level or trade that waits, and how many have room.
_WAITING = 4
_MOST = SCRATCH // (8 * _WAITING)
_DIGITS = 18


@jit()
def _text_of(context: Record, place: int, name: Name) -> int:
    """The token of a member that is a string; 0 where there is none."""
    value = member(context.text, context.tape, place, name)
    return token_at(context.tape, value) if is_kind(context.tape, value, STRING) else 0


@jit()
def _level(context: Record, place: int) -> tuple[int, int, int, int]:
    """The tokens of side, price, size and time of a level, which are strings; 0 as the first where one is not
    there."""
    text, tape = context.text, context.tape
    if kind_of(token_at(tape, place)) != OBJECT:
        return 0, 0, 0, 0
    side, price, size, time = 0, 0, 0, 0
    at, end = place + 1, length_of(token_at(tape, place))
    while at < end:
        key, value = token_at(tape, at), token_at(tape, at + 1)
        known, seen = True, 0
        if says(text, key, _PRICE_LEVEL):
            seen, price = price, value
        elif says(text, key, _QUANTITY):
            seen, size = size, value
        elif says(text, key, _SIDE):
            seen, side = side, value
        elif says(text, key, _EVENT_TIME):
            seen, time = time, value
        else:
            known = False
        if known and (seen != 0 or kind_of(value) != STRING):
            return 0, 0, 0, 0
        at = after(tape, at + 1)
    return (side if price != 0 and size != 0 and time != 0 else 0), price, size, time


@jit()
def _last_time(context: Record, frame_time: int, updates: int) -> int:
    """The time of a message: of its last level, or its own; REFUSED for none."""
    tape, token = context.tape, frame_time
    at, end = updates + 1, length_of(token_at(tape, updates))
    last = 0
    while at < end:
        last = at
        at = after(tape, at)
    if last:
        side, _, _, token = _level(context, last)
        if side == 0:
            return REFUSED
    return iso_time(start_of(context.text, token), length_of(token))


@jit()
def _levels(context: Record, address: int, event: int, frame_time: int) -> bool:
    """Takes an event of levels."""
    text, tape, book, start = context.text, context.tape, book_at(address), context.written
    updates = member(text, tape, event, _UPDATES)
    if book.state == SYNCING or not is_kind(tape, updates, ARRAY):
        return False
    time = _last_time(context, frame_time, updates)
    if time == REFUSED or goes_back(book, time):
        return False
    # Bids come first, so asks wait.
    asks = 0
    at, end = updates + 1, length_of(token_at(tape, updates))
    while at < end:
        side, price, size, _ = _level(context, at)
        if side == 0:
            return False
        if says(text, side, _BID):
            if not write_numbers(context, book, LEVEL, BID, time, price, size):
                return False
        elif not says(text, side, _OFFER) or asks == _MOST:
            return False
        else:
            put_word(context.scratch + 16 * asks, price)
            put_word(context.scratch + 16 * asks + 8, size)
            asks += 1
        at = after(tape, at)
    for number in range(asks):
        waits = context.scratch + 16 * number
        if not write_numbers(context, book, LEVEL, ASK, time, word(waits), word(waits + 8)):
            return False
    end_in_order(context, book, start, time)
    return True


@jit()
def _trades(context: Record, event: int) -> bool:
    """Takes an event of trades: of one product, and in the order of their numbers or against it."""
    text, tape, start = context.text, context.tape, context.written
    trades = member(text, tape, event, _TRADES)
    if not is_kind(tape, trades, ARRAY):
        return False
    at, end, count = trades + 1, length_of(token_at(tape, trades)), 0
    address, rising, before = 0, True, 0
    while at < end:
        if kind_of(token_at(tape, at)) != OBJECT or count == _MOST:
            return False
        product, identifier = _text_of(context, at, _PRODUCT), _text_of(context, at, _TRADE_ID)
        price, size = _text_of(context, at, _PRICE), _text_of(context, at, _SIZE)
        side, time = _text_of(context, at, _SIDE), _text_of(context, at, _TIME)
        if product == 0 or identifier == 0 or price == 0 or size == 0 or side == 0 or time == 0:
            return False
        number = integer(start_of(text, identifier), length_of(identifier), _DIGITS)
        moment = iso_time(start_of(text, time), length_of(time))
        sells = says(text, side, _SELL)
        if min(number, moment) == REFUSED or (not sells and not says(text, side, _BUY)):
            return False
        own = book_named(context, start_of(text, product), length_of(product))
        if own == 0 or (count != 0 and own != address):
            return False
        if count == 1:
            rising = number > before
        if count != 0 and (number == before or (number > before) != rising):
            return False
        address, before = own, number
        waits = context.scratch + 8 * _WAITING * count
        put_word(waits, number)
        put_word(waits + 8, moment if sells else -moment - 1)
        put_word(waits + 16, price)
        put_word(waits + 24, size)
        count += 1
        at = after(tape, at)
    if count == 0:
        return False
    book = book_at(address)
    last = book.last_trade
    for place in range(count):
        waits = context.scratch + 8 * _WAITING * (place if rising else count - 1 - place)
        number, moment = word(waits), word(waits + 8)
        # `side` is the maker's.
        side = BID if moment >= 0 else ASK
        if number > book.last_trade:
            time = moment if moment >= 0 else -moment - 1
            if not write_numbers(context, book, TRADE, side, time, word(waits + 16), word(waits + 24)):
                return False
            name_order(context, number)
            last = number
    if context.written > start:
        book.sequence = context.sequence
    book.last_trade = last
    end_unit(context, start)
    return True


@jit()
def _is_not_read(context: Record, channel: int) -> bool:
    text = context.text
    if says(text, channel, _HEARTBEATS) or says(text, channel, _TICKER):
        return True
    return says(text, channel, _BATCH) or says(text, channel, _CANDLES)


@jit()
def _decode(context: Record) -> bool:
    """{"channel": …, "sequence_num": …, "events": [ONE]}."""
    text, tape = context.text, context.tape
    if (
        kind_of(token_at(tape, 0)) != OBJECT
        or member(text, tape, 0, _TYPE)
        or member(text, tape, 0, _MESSAGE)
    ):
        return False
    channel, timestamp = _text_of(context, 0, _CHANNEL), _text_of(context, 0, _TIMESTAMP)
    place, events = member(text, tape, 0, _NUMBER), member(text, tape, 0, _EVENTS)
    if (
        channel == 0
        or timestamp == 0
        or not is_kind(tape, place, INTEGER)
        or not is_kind(tape, events, ARRAY)
    ):
        return False
    token = token_at(tape, place)
    number = integer(start_of(text, token), length_of(token), _DIGITS)
    if number == REFUSED or not is_expected(context, number):
        return False
    context.sequence = number
    taken = _is_not_read(context, channel)
    if not taken:
        event = events + 1
        end = length_of(token_at(tape, events))
        if end == event or kind_of(token_at(tape, event)) != OBJECT or after(tape, event) != end:
            return False
        kind = _text_of(context, event, _TYPE)
        if kind == 0 or not says(text, kind, _UPDATE):
            return False
        if says(text, channel, _L2):
            product = _text_of(context, event, _PRODUCT)
            if product == 0:
                return False
            address = book_named(context, start_of(text, product), length_of(product))
            taken = address != 0 and _levels(context, address, event, timestamp)
        elif says(text, channel, _MARKET_TRADES):
            taken = _trades(context, event)
    if taken:
        expect_next(context, number)
    return taken


take = frame_loop(_decode)
