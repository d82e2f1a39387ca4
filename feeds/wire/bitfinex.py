"""Bitfinex's updates of levels, checksums and trades, compiled; see `orderbook.feeds.exchanges.bitfinex`."""

from orderbook.core.jit import jit
from orderbook.feeds.wire.bytes_memory import byte, is_named, name_of
from orderbook.feeds.wire.checked_book import pairs_agree, put_level, put_nothing
from orderbook.feeds.wire.decoder_state import SYNCING, book_at, expect_next, is_expected
from orderbook.feeds.wire.event_writing import (
    ASK,
    BID,
    TRADE,
    end_in_order,
    end_unit,
    name_order,
    write_numbers,
)
from orderbook.feeds.wire.frame_decoder import frame_loop
from orderbook.feeds.wire.json_tape import (
    ARRAY,
    DECIMAL,
    INTEGER,
    STRING,
    after,
    behind_sign,
    kind_of,
    length_of,
    says,
    start_of,
    token_at,
)
from orderbook.feeds.wire.numbers import REFUSED, integer, milliseconds_time
from orderbook.market.block_memory import Record, load

_HEARTBEAT, _CHECKSUM, _EXECUTED, _UPDATED = (name_of(text) for text in ("hb", "cs", "te", "tu"))
_NOTHING = name_of("0")
_DIGITS, _CHECKSUM_DIGITS, _MINUS = 18, 10, ord("-")


@jit()
def _number(context: Record, place: int) -> int:
    """The whole number at a place; REFUSED for others."""
    token = token_at(context.tape, place)
    if kind_of(token) != INTEGER:
        return REFUSED
    return integer(start_of(context.text, token), length_of(token), _DIGITS)


@jit()
def _are_numbers(tape: int, first: int, count: int) -> bool:
    """Whether an array, before a place, is of so many numbers."""
    if kind_of(token_at(tape, first - 1)) != ARRAY or length_of(token_at(tape, first - 1)) != first + count:
        return False
    at = first
    while at < first + count and INTEGER <= kind_of(token_at(tape, at)) <= DECIMAL:
        at += 1
    return at == first + count


@jit()
def _has_sign(context: Record, token: int) -> bool:
    return byte(start_of(context.text, token)) == _MINUS


@jit()
def _level(context: Record, address: int, row: int) -> bool:
    """Takes a row of price, count and amount."""
    book, start = book_at(address), context.written
    if book.state == SYNCING or not _are_numbers(context.tape, row + 1, 3):
        return False
    price, count, amount = (
        token_at(context.tape, row + 1),
        token_at(context.tape, row + 2),
        token_at(context.tape, row + 3),
    )
    side = ASK if _has_sign(context, amount) else BID
    if is_named(start_of(context.text, count), length_of(count), _NOTHING):
        if not put_nothing(context, book, side, price):
            return False
    elif not put_level(context, book, side, price, behind_sign(amount) if side == ASK else amount, 0):
        return False
    end_in_order(context, book, start, 0)
    return True


@jit()
def _checksum(context: Record, address: int, place: int) -> bool:
    token = token_at(context.tape, place)
    if kind_of(token) != INTEGER or book_at(address).state == SYNCING:
        return False
    sign = -1 if _has_sign(context, token) else 1
    own = behind_sign(token) if sign < 0 else token
    stated = integer(start_of(context.text, own), length_of(own), _CHECKSUM_DIGITS)
    return stated != REFUSED and pairs_agree(context, address, sign * stated, True)


@jit()
def _trade(context: Record, address: int, row: int) -> bool:
    """Takes a trade of id, ms, amount and price."""
    tape, book, start = context.tape, book_at(address), context.written
    if not _are_numbers(tape, row + 1, 4):
        return False
    number, time = _number(context, row + 1), token_at(tape, row + 2)
    moment = milliseconds_time(start_of(context.text, time), length_of(time))
    if kind_of(time) != INTEGER or min(number, moment) == REFUSED:
        return False
    if number <= book.last_trade:
        return True
    amount, price = token_at(tape, row + 3), token_at(tape, row + 4)
    side = ASK if _has_sign(context, amount) else BID
    size = behind_sign(amount) if side == ASK else amount
    if not write_numbers(context, book, TRADE, side, moment, price, size):
        return False
    name_order(context, number)
    end_unit(context, start)
    book.sequence, book.last_trade = context.sequence, number
    return True


@jit()
def _take(context: Record, channel: int, body: int, said: int) -> bool:
    """Takes a channel's data; said: the token of what kind they are, 0 for none."""
    text = context.text
    for number in range(context.book_count):
        address = load(context.books + 8 * number)
        book = book_at(address)
        if book.book_channel == channel:
            if said == 0:
                return _level(context, address, body)
            return says(text, said, _CHECKSUM) and _checksum(context, address, body)
        if book.trade_channel == channel:
            if said == 0:
                return False
            return says(text, said, _UPDATED) or (
                says(text, said, _EXECUTED) and _trade(context, address, body)
            )
    return False


@jit()
def _decode(context: Record) -> bool:
    """[channel, data, number], [channel, kind, data, number] or [channel, "hb", number]."""
    tape = context.tape
    if kind_of(token_at(tape, 0)) != ARRAY:
        return False
    end, channel = length_of(token_at(tape, 0)), _number(context, 1)
    if end < 4 or channel == REFUSED:
        return False
    said = token_at(tape, 2) if kind_of(token_at(tape, 2)) == STRING else 0
    beats = said != 0 and says(context.text, said, _HEARTBEAT)
    body = 3 if said != 0 else 2
    last = 3 if beats else after(tape, body)
    if last >= end:
        return False
    number = _number(context, last)
    if number == REFUSED or not is_expected(context, number):
        return False
    context.sequence = number
    if not beats and not _take(context, channel, body, said):
        return False
    expect_next(context, number)
    return True


take = frame_loop(_decode)
