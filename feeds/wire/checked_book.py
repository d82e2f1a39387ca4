"""Books of levels with checksums in compiled code; see `CheckedBook` in `orderbook.feeds.exchanges.books`.

A checksum is the CRC32 of zlib, eight bytes at a time by table ("slicing").
"""

from functools import cache

import numpy as np
from numpy.typing import NDArray

from orderbook.core.jit import jit
from orderbook.feeds.wire import text_ladder
from orderbook.feeds.wire.bytes_memory import byte, short, word
from orderbook.feeds.wire.decoder_state import book_at
from orderbook.feeds.wire.event_writing import ASK, BID, LEVEL, lots_of, ticks_of, write_event
from orderbook.feeds.wire.json_tape import length_of, start_of
from orderbook.feeds.wire.numbers import REFUSED
from orderbook.feeds.wire.text_ladder import ladder_at
from orderbook.market.block_memory import Record, load

# Levels of a side in a checksum.
_KRAKEN, _PAIRS = 10, 25
_SIGN = 1 << 31
_POLYNOMIAL = 0xEDB88320
_ALL, _SLICES = 0xFFFFFFFF, 8
# Bytes of one table.
_TABLE = 4 * 256


@cache
def crc_tables() -> NDArray[np.uint32]:
    """uint32[8, 256]: what a byte adds, that so many others follow."""
    tables = np.zeros((_SLICES, 256), np.uint32)
    numbers = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        numbers = (numbers >> np.uint32(1)) ^ np.where(numbers & 1, np.uint32(_POLYNOMIAL), np.uint32(0))
    tables[0] = numbers
    for one in range(1, _SLICES):
        before = tables[one - 1]
        tables[one] = (before >> np.uint32(8)) ^ numbers[before & 0xFF]
    return tables


@jit()
def crc32(at: int, length: int, tables: int) -> int:
    """The checksum of bytes; tables: the address of `crc_tables`."""
    found, end = _ALL, at + length
    while at + 8 <= end:
        eight = word(at)
        low, high = (eight & _ALL) ^ found, (eight >> 32) & _ALL
        found = short(tables + 7 * _TABLE + 4 * (low & 255))
        found ^= short(tables + 6 * _TABLE + 4 * ((low >> 8) & 255))
        found ^= short(tables + 5 * _TABLE + 4 * ((low >> 16) & 255))
        found ^= short(tables + 4 * _TABLE + 4 * (low >> 24))
        found ^= short(tables + 3 * _TABLE + 4 * (high & 255))
        found ^= short(tables + 2 * _TABLE + 4 * ((high >> 8) & 255))
        found ^= short(tables + 1 * _TABLE + 4 * ((high >> 16) & 255))
        found ^= short(tables + 4 * (high >> 24))
        at += 8
    while at < end:
        found = (found >> 8) ^ short(tables + 4 * ((found ^ byte(at)) & 255))
        at += 1
    return found ^ _ALL


@jit()
def _side(book: Record, side: int) -> int:
    return book.asks if side == ASK else book.bids


@jit()
def put_level(context: Record, book: Record, side: int, price: int, size: int, as_digits: int) -> bool:
    """Writes a level and keeps it, by the tokens of its price and size; False where something is unusual.

    as_digits: 1 where they count in a checksum without points and leading zeros.
    """
    ticks, lots = ticks_of(context, book, price), lots_of(context, book, size)
    if ticks == REFUSED or lots == REFUSED or load(context.notes) >= context.notes_room:
        return False
    ladder, key = _side(book, side), ticks if side == ASK else -ticks
    if lots == 0:
        text_ladder.remove_level(context.notes, ladder, key)
    else:
        slot = text_ladder.set_level(context.notes, ladder, key)
        if slot == 0:
            return False
        own, other = start_of(context.text, price), start_of(context.text, size)
        if not text_ladder.put_level_text(slot, as_digits, own, length_of(price), other, length_of(size)):
            return False
    return write_event(context, book, LEVEL, side, 0, ticks, lots)


@jit()
def put_nothing(context: Record, book: Record, side: int, price: int) -> bool:
    """Writes that a level goes, by the token of its price; False where something is unusual."""
    ticks = ticks_of(context, book, price)
    if ticks == REFUSED or load(context.notes) >= context.notes_room:
        return False
    text_ladder.remove_level(context.notes, _side(book, side), ticks if side == ASK else -ticks)
    return write_event(context, book, LEVEL, side, 0, ticks, 0)


@jit()
def drop_beyond(context: Record, book: Record, side: int) -> bool:
    """Levels beyond the depth of a side go; False where something is unusual."""
    address = _side(book, side)
    ladder = ladder_at(address)
    while ladder.count > book.depth:
        key = load(ladder.keys)
        # What is off the tick is counted elsewhere.
        if (book.price_step != 1 and key % book.price_step) or load(context.notes) >= context.notes_room:
            return False
        text_ladder.remove_level(context.notes, address, key)
        if not write_event(context, book, LEVEL, side, 0, abs(key), 0):
            return False
    return True


@jit()
def kraken_agrees(context: Record, address: int, checksum: int) -> bool:
    """Whether this is Kraken's checksum of the book at an address: of digits, asks before bids."""
    book = book_at(address)
    asks, bids = ladder_at(book.asks), ladder_at(book.bids)
    if asks.changed or bids.changed:
        to = context.scratch
        for side in range(ASK, BID - 1, -1):
            ladder = asks if side == ASK else bids
            for rank in range(min(_KRAKEN, ladder.count)):
                to = text_ladder.copy_text(text_ladder.slot_of_rank(ladder, rank), to)
                if to == 0:
                    return False
        book.checksum = crc32(context.scratch, to - context.scratch, context.tables)
        asks.changed, bids.changed = 0, 0
    return _counted(context, book.checksum == checksum)


@jit()
def _counted(context: Record, agree: bool) -> bool:
    if agree:
        context.checksums += 1
    return agree


@jit()
def pairs_agree(context: Record, address: int, checksum: int, marked: bool) -> bool:
    """Whether this is the checksum, signed, of the pairs price:size of the best bids and asks in turn, joined
    by colons. marked: sizes of asks have a minus."""
    book = book_at(address)
    asks, bids = ladder_at(book.asks), ladder_at(book.bids)
    if asks.changed or bids.changed:
        to = context.scratch
        for rank in range(_PAIRS):
            for side in range(BID, ASK + 1):
                ladder = bids if side == BID else asks
                if rank < ladder.count:
                    mark = marked and side == ASK
                    to = text_ladder.copy_pair(text_ladder.slot_of_rank(ladder, rank), to, mark)
                    if to == 0:
                        return False
        # Without the colon behind the last.
        found = crc32(context.scratch, max(to - context.scratch - 1, 0), context.tables)
        book.checksum = found - ((found & _SIGN) << 1)
        asks.changed, bids.changed = 0, 0
    return _counted(context, book.checksum == checksum)
