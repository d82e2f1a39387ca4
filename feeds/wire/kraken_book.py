"""What both versions of Kraken's protocol do with levels in compiled code: books of so many, checked."""

from orderbook.core.jit import jit
from orderbook.feeds.wire import text_ladder
from orderbook.feeds.wire.checksums import crc32
from orderbook.feeds.wire.decoder_state import book_at
from orderbook.feeds.wire.event_writing import ASK, BID, LEVEL, write_event
from orderbook.feeds.wire.numbers import REFUSED, units
from orderbook.feeds.wire.text_ladder import ladder_at
from orderbook.market.block_memory import Record, load

# Levels of a side in a checksum.
CHECKED = 10


@jit()
def _side(book: Record, side: int) -> int:
    return book.asks if side == ASK else book.bids


@jit()
def put_level(
    context: Record, book: Record, side: int, price: int, price_length: int, size: int, size_length: int
) -> bool:
    """Writes a level and keeps it, by the text of its price and size; False where something is unusual."""
    ticks = units(price, price_length, book.price_scale, book.price_places, book.price_step)
    lots = units(size, size_length, book.size_scale, book.size_places, book.size_step)
    if ticks == REFUSED or lots == REFUSED or load(context.notes) >= context.notes_room:
        return False
    ladder, key = _side(book, side), ticks if side == ASK else -ticks
    if lots == 0:
        text_ladder.remove_level(context.notes, ladder, key)
    else:
        slot = text_ladder.set_level(context.notes, ladder, key)
        if slot == 0:
            return False
        if not text_ladder.put_level_text(slot, 1, price, price_length, size, size_length):
            return False
    return write_event(context, book, LEVEL, side, 0, ticks, lots)


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
def agrees(context: Record, address: int, checksum: int) -> bool:
    """Whether this is the checksum of the book at an address."""
    book = book_at(address)
    asks, bids = ladder_at(book.asks), ladder_at(book.bids)
    if asks.changed or bids.changed:
        to = context.scratch
        for side in range(ASK, BID - 1, -1):
            ladder = asks if side == ASK else bids
            for rank in range(min(CHECKED, ladder.count)):
                to = text_ladder.copy_text(text_ladder.slot_of_rank(ladder, rank), to)
                if to == 0:
                    return False
        book.checksum = crc32(context.scratch, to - context.scratch, context.tables)
        asks.changed, bids.changed = 0, 0
    if book.checksum != checksum:
        return False
    context.checksums += 1
    return True
