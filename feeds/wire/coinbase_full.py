"""Coinbase Exchange's orders, compiled; see `orderbook.feeds.exchanges.coinbase_full`."""

from orderbook.core.jit import jit
from orderbook.feeds.wire.bytes_memory import Name, byte, name_of
from orderbook.feeds.wire.decoder_state import NONE, SYNCING, arrive, book_at, book_named, follows
from orderbook.feeds.wire.event_writing import (
    ASK,
    BID,
    TRADE,
    end_in_order,
    goes_back,
    lots_of,
    name_order,
    ticks_of,
    write_event,
)
from orderbook.feeds.wire.frame_decoder import frame_loop
from orderbook.feeds.wire.json_tape import (
    INTEGER,
    OBJECT,
    STRING,
    kind_of,
    length_of,
    member,
    member_of,
    says,
    start_of,
    token_at,
)
from orderbook.feeds.wire.numbers import REFUSED, integer, iso_time
from orderbook.feeds.wire.order_amounts import FREE, amount_of, has_room, put_amount, take_amount
from orderbook.market.block_memory import Record
from orderbook.market.events import Action

_TYPE, _PRODUCT, _SEQUENCE, _TIME, _SIDE = (
    name_of(text) for text in ("type", "product_id", "sequence", "time", "side")
)
_ORDER, _MAKER, _TRADE_ID, _PRICE = (
    name_of(text) for text in ("order_id", "maker_order_id", "trade_id", "price")
)
_SIZE, _REMAINING, _BUY, _SELL = (name_of(text) for text in ("size", "remaining_size", "buy", "sell"))
_NEW_SIZE, _NEW_PRICE, _OLD_PRICE = (name_of(text) for text in ("new_size", "new_price", "old_price"))
_RECEIVED, _OPEN, _MATCH, _DONE, _CHANGE, _HEARTBEAT = (
    name_of(text) for text in ("received", "open", "match", "done", "change", "heartbeat")
)
_ADD, _EXECUTE, _DELETE, _REDUCE, _MODIFY = (
    int(action) for action in (Action.ADD, Action.EXECUTE, Action.DELETE, Action.REDUCE, Action.MODIFY)
)
_DIGITS = 18
# Characters of a UUID, and where its hyphens stand; the first 16 digits make an order's number.
_UUID, _NUMBERED, _HYPHEN = 36, 18, ord("-")
_ZERO, _A, _CAPITAL_A = ord("0"), ord("a"), ord("A")


@jit()
def _text_of(context: Record, name: Name) -> int:
    return member_of(context.text, context.tape, 0, name, STRING)


@jit()
def _whole(context: Record, name: Name) -> int:
    """The whole number of a member; REFUSED for others."""
    token = member_of(context.text, context.tape, 0, name, INTEGER)
    return REFUSED if token == 0 else integer(start_of(context.text, token), length_of(token), _DIGITS)


@jit()
def _order_number(context: Record, name: Name) -> int:
    """The number of the order whose UUID a member is; REFUSED for others."""
    token = _text_of(context, name)
    if token == 0 or length_of(token) != _UUID:
        return REFUSED
    start, number = start_of(context.text, token), 0
    for place in range(_UUID):
        letter = byte(start + place)
        if place in (8, 13, 18, 23):
            if letter != _HYPHEN:
                return REFUSED
        else:
            digit = letter - _ZERO
            if digit > 9:
                digit = letter - (_A if letter >= _A else _CAPITAL_A) + 10
                if digit < 10:
                    return REFUSED
            if digit < 0 or digit > 15:
                return REFUSED
            if place < _NUMBERED:
                # Of 64 bits all but the last.
                number = (number << 4) | digit if place < _NUMBERED - 1 else (number << 3) | (digit >> 1)
    return number


@jit()
def _side(context: Record) -> int:
    """The side that a message names; REFUSED for none."""
    token = _text_of(context, _SIDE)
    if token == 0:
        return REFUSED
    if says(context.text, token, _BUY):
        return BID
    return ASK if says(context.text, token, _SELL) else REFUSED


@jit()
def _open(context: Record, book: Record, side: int, time: int) -> bool:
    order = _order_number(context, _ORDER)
    price, size = _text_of(context, _PRICE), _text_of(context, _REMAINING)
    if order == REFUSED or price == 0 or size == 0 or not has_room(book.orders):
        return False
    ticks, lots = ticks_of(context, book, price), lots_of(context, book, size)
    if ticks == REFUSED or lots == REFUSED:
        return False
    if not write_event(context, book, _ADD, side, time, ticks, lots):
        return False
    name_order(context, order)
    put_amount(book.orders, order, lots)
    return True


@jit()
def _match(context: Record, book: Record, side: int, time: int) -> bool:
    order, trade = _order_number(context, _MAKER), _whole(context, _TRADE_ID)
    price, size = _text_of(context, _PRICE), _text_of(context, _SIZE)
    if min(order, trade) == REFUSED or price == 0 or size == 0:
        return False
    ticks, lots = ticks_of(context, book, price), lots_of(context, book, size)
    if ticks == REFUSED or lots == REFUSED:
        return False
    if not write_event(context, book, _EXECUTE, side, time, ticks, lots):
        return False
    name_order(context, order)
    if not write_event(context, book, TRADE, BID if side == ASK else ASK, time, ticks, lots):
        return False
    name_order(context, trade)
    left = amount_of(book.orders, order)
    if left != FREE:
        if left > lots:
            put_amount(book.orders, order, left - lots)
        else:
            take_amount(book.orders, order)
    return True


@jit()
def _done(context: Record, book: Record, side: int, time: int) -> bool:
    order = _order_number(context, _ORDER)
    if order == REFUSED:
        return False
    left = amount_of(book.orders, order)
    if left == FREE:
        return True
    # What is off the lot is counted elsewhere.
    if (book.size_step != 1 and left % book.size_step) or not write_event(
        context, book, _DELETE, side, time, 0, left
    ):
        return False
    name_order(context, order)
    take_amount(book.orders, order)
    return True


@jit()
def _is_absent(context: Record, name: Name) -> bool:
    return member(context.text, context.tape, 0, name) == 0


@jit()
def _change(context: Record, book: Record, side: int, time: int) -> bool:
    order, size = _order_number(context, _ORDER), _text_of(context, _NEW_SIZE)
    price = _text_of(context, _PRICE)
    new, old = _text_of(context, _NEW_PRICE), _text_of(context, _OLD_PRICE)
    if order == REFUSED or size == 0:
        return False
    left = amount_of(book.orders, order)
    if left == FREE:
        return True
    if new == 0 and not _is_absent(context, _NEW_PRICE):
        return False
    token, moved = price if new == 0 else new, False
    if token == 0:
        return False
    ticks, lots = ticks_of(context, book, token), lots_of(context, book, size)
    if ticks == REFUSED or lots == REFUSED:
        return False
    if new != 0:
        if old == 0:
            return False
        before = ticks_of(context, book, old)
        if before == REFUSED:
            return False
        moved = before != ticks
    if lots == 0 or (not moved and book.size_step != 1 and left % book.size_step):
        return False
    if not moved and lots == left:
        return True
    reduces = not moved and lots < left
    action, volume = (_REDUCE, left - lots) if reduces else (_MODIFY, lots)
    if not write_event(context, book, action, side, time, ticks, volume):
        return False
    name_order(context, order)
    put_amount(book.orders, order, lots)
    return True


@jit()
def _decode(context: Record) -> bool:
    """{"type": …, "product_id": …, "sequence": …, …}."""
    text, tape, start = context.text, context.tape, context.written
    if kind_of(token_at(tape, 0)) != OBJECT:
        return False
    kind, product, number = _text_of(context, _TYPE), _text_of(context, _PRODUCT), _whole(context, _SEQUENCE)
    if kind == 0 or product == 0 or number == REFUSED:
        return False
    address = book_named(context, start_of(text, product), length_of(product))
    if address == 0:
        return False
    book = book_at(address)
    if says(text, kind, _HEARTBEAT):
        if book.state == SYNCING or book.joined == 0 or book.fresh or number != book.arrived:
            return False
        book.late = 0
        return True
    if not follows(book, number, number, NONE):
        return False
    context.sequence = number
    if says(text, kind, _RECEIVED):
        book.sequence = number
        arrive(book, number)
        return True
    side, stamp = _side(context), _text_of(context, _TIME)
    if side == REFUSED or stamp == 0:
        return False
    time = iso_time(start_of(text, stamp), length_of(stamp))
    if time == REFUSED or goes_back(book, time):
        return False
    if says(text, kind, _OPEN):
        taken = _open(context, book, side, time)
    elif says(text, kind, _MATCH):
        taken = _match(context, book, side, time)
    elif says(text, kind, _DONE):
        taken = _done(context, book, side, time)
    else:
        taken = says(text, kind, _CHANGE) and _change(context, book, side, time)
    if taken:
        arrive(book, number)
        end_in_order(context, book, start, time)
    return taken


take = frame_loop(_decode)
