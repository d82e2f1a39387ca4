"""Kraken's updates and trades, protocol version 1, compiled; see `orderbook.feeds.exchanges.kraken`."""

from orderbook.core.jit import jit
from orderbook.feeds.wire.bytes_memory import byte, name_of
from orderbook.feeds.wire.checked_book import drop_beyond, kraken_agrees, put_level
from orderbook.feeds.wire.decoder_state import SYNCING, book_at, book_named
from orderbook.feeds.wire.event_writing import (
    ASK,
    BID,
    TRADE,
    end_in_order,
    goes_back,
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
    says,
    start_of,
    token_at,
)
from orderbook.feeds.wire.numbers import REFUSED, integer, seconds_time
from orderbook.market.block_memory import Record

_A, _B, _C, _AS, _BS, _S = (name_of(text) for text in ("a", "b", "c", "as", "bs", "s"))
_TRADE, _BOOK, _EVENT, _HEARTBEAT = (name_of(text) for text in ("trade", "book-", "event", "heartbeat"))
_NO_CHECKSUM, _UNUSUAL = -1, -2
# Digits of a checksum, and of a depth.
_CHECKSUM_DIGITS, _DEPTH_DIGITS = 10, 9


@jit()
def _strings(tape: int, place: int, count: int) -> bool:
    """Whether an array begins with so many strings."""
    if kind_of(token_at(tape, place)) != ARRAY or length_of(token_at(tape, place)) <= place + count:
        return False
    number = 1
    while number <= count and kind_of(token_at(tape, place + number)) == STRING:
        number += 1
    return number > count


@jit()
def _side_of(context: Record, book: Record, side: int, first: int, end: int) -> tuple[int, int]:
    """Writes the levels of a side in the parts of a message; the latest time, 0 without levels, and how many
    characters all times have; REFUSED as the first where something is unusual."""
    text, tape = context.text, context.tape
    latest, width, place = 0, 0, first
    while place < end:
        levels = member(text, tape, place, _A if side == ASK else _B)
        if levels:
            if not is_kind(tape, levels, ARRAY):
                return REFUSED, 0
            at, behind = levels + 1, length_of(token_at(tape, levels))
            while at < behind:
                if not _strings(tape, at, 3):
                    return REFUSED, 0
                price, size, time = token_at(tape, at + 1), token_at(tape, at + 2), token_at(tape, at + 3)
                moment = seconds_time(start_of(text, time), length_of(time))
                # Only texts that are written alike are in the order of their times.
                if moment == REFUSED or (width != 0 and width != length_of(time)):
                    return REFUSED, 0
                latest, width = max(latest, moment), length_of(time)
                if not put_level(context, book, side, price, size, 1):
                    return REFUSED, 0
                at = after(tape, at)
        place = after(tape, place)
    return latest, width


@jit()
def _checksum(context: Record, first: int, end: int) -> int:
    """The checksum in the parts of a message, _NO_CHECKSUM without one, _UNUSUAL where parts are."""
    text, tape = context.text, context.tape
    found, place = _NO_CHECKSUM, first
    while place < end:
        if kind_of(token_at(tape, place)) != OBJECT or member(text, tape, place, _AS):
            return _UNUSUAL
        if member(text, tape, place, _BS):
            return _UNUSUAL
        stated = member(text, tape, place, _C)
        if stated:
            if not is_kind(tape, stated, STRING) or found != _NO_CHECKSUM:
                return _UNUSUAL
            token = token_at(tape, stated)
            found = integer(start_of(text, token), length_of(token), _CHECKSUM_DIGITS)
            if found == REFUSED:
                return _UNUSUAL
        place = after(tape, place)
    return found


@jit()
def _update(context: Record, address: int, first: int, end: int) -> bool:
    """Takes the parts of an update, from place to place."""
    book, start = book_at(address), context.written
    checksum = _checksum(context, first, end)
    if book.state == SYNCING or checksum < _NO_CHECKSUM:
        return False
    bids, width = _side_of(context, book, BID, first, end)
    if bids == REFUSED or (width != 0 and not drop_beyond(context, book, BID)):
        return False
    asks, other = _side_of(context, book, ASK, first, end)
    if asks == REFUSED or (other != 0 and not drop_beyond(context, book, ASK)):
        return False
    time = max(bids, asks)
    if (width != 0 and other != 0 and width != other) or goes_back(book, time):
        return False
    if checksum != _NO_CHECKSUM and not kraken_agrees(context, address, checksum):
        return False
    set_times(context, start, time)
    end_in_order(context, book, start, time)
    return True


@jit()
def _trades(context: Record, address: int, first: int, end: int) -> bool:
    """Takes the trades of a message."""
    text, tape, book, start = context.text, context.tape, book_at(address), context.written
    if after(tape, first) != end or kind_of(token_at(tape, first)) != ARRAY or end == first + 1:
        return False
    at, latest = first + 1, book.latest
    while at < end:
        if not _strings(tape, at, 4):
            return False
        price, size, time = token_at(tape, at + 1), token_at(tape, at + 2), token_at(tape, at + 3)
        buys, moment = token_at(tape, at + 4), seconds_time(start_of(text, time), length_of(time))
        if moment == REFUSED or (moment != 0 and moment < latest):
            return False
        if not says(text, buys, _B) and not says(text, buys, _S):
            return False
        side = BID if says(text, buys, _B) else ASK
        latest = max(latest, moment)
        if not write_numbers(context, book, TRADE, side, moment, price, size):
            return False
        at = after(tape, at)
    end_in_order(context, book, start, latest)
    return True


@jit()
def _beats(context: Record) -> bool:
    return says(context.text, token_at(context.tape, 2), _HEARTBEAT)


@jit()
def _decode(context: Record) -> bool:
    """[channel number, part, …, channel, pair]."""
    text, tape = context.text, context.tape
    if kind_of(token_at(tape, 0)) == OBJECT:
        # {"event": "heartbeat"}, and no more.
        return length_of(token_at(tape, 0)) == 3 and says(text, token_at(tape, 1), _EVENT) and _beats(context)
    if kind_of(token_at(tape, 0)) != ARRAY:
        return False
    end = length_of(token_at(tape, 0))
    if end < 5 or kind_of(token_at(tape, 1)) != INTEGER:
        return False
    # The last two are strings, a token each.
    place = 2
    while place < end - 2:
        place = after(tape, place)
    if place != end - 2 or place == 2:
        return False
    channel, product = token_at(tape, place), token_at(tape, place + 1)
    if kind_of(channel) != STRING or kind_of(product) != STRING:
        return False
    address = book_named(context, start_of(text, product), length_of(product))
    if address == 0:
        return False
    context.sequence = 0
    if says(text, channel, _TRADE):
        return _trades(context, address, 2, place)
    name, length = start_of(text, channel), length_of(channel)
    # In a shorter name the quote that ends it differs.
    for number in range(_BOOK[0]):
        if byte(name + number) != (_BOOK[1] >> (8 * number)) & 255:
            return False
    depth = integer(name + _BOOK[0], length - _BOOK[0], _DEPTH_DIGITS)
    return depth == book_at(address).depth and depth > 0 and _update(context, address, 2, place)


take = frame_loop(_decode)
