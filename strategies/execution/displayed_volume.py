"""What an account takes of displayed volume: each lot once, while the level stands.

Volume that goes from a level is taken to be what was filled, so that fills are understated rather than
overstated. A key is a price, greater where it is better for who takes it.
"""

from orderbook.core.jit import jit
from orderbook.market import ladder
from orderbook.market.block_memory import Record, load, store
from orderbook.market.book_state import BID, book_of, ladder_of
from orderbook.strategies.execution.exchange_state import (
    ACCOUNT,
    BOARD,
    FILL,
    board_at,
    fill_at,
    offset_of,
    pushed,
)
from orderbook.strategies.execution.queue_position import kept

_TAKEN_BIDS, _TAKEN_ASKS = offset_of(BOARD, "taken_bids"), offset_of(BOARD, "taken_asks")
_FILLS = offset_of(ACCOUNT, "fills")
_FILL_BYTES, _PAIR_BYTES = FILL.itemsize, 16
# Worse than every price.
WORST = -(2**63)


@jit()
def filled(account: int, time: int, lots: int, ticks: int, maker: int) -> None:
    """An execution, which the next report tells."""
    fill = fill_at(pushed(account + _FILLS, _FILL_BYTES))
    fill.time, fill.lots, fill.ticks, fill.maker = time, lots, ticks, maker


@jit()
def _entry(vector: int, key: int) -> int:
    """Where the lots are that are taken of a level, 0 where none are."""
    for number in range(load(vector + 16)):
        entry: int = load(vector) + _PAIR_BYTES * number
        if load(entry) == key:
            return entry
    return 0


@jit()
def take(
    context: Record, board: int, side: int, worst: int, lots: int, time: int, noted: int
) -> tuple[int, int]:
    """Takes lots from a side of the book, best level first, to the key of the worst; how many, and of how
    many levels. noted: each is a fill."""
    own = board_at(board)
    levels = ladder_of(context, book_of(context, own.instrument), side)
    taken = board + (_TAKEN_BIDS if side == BID else _TAKEN_ASKS)
    left, fills = lots, 0
    key = ladder.best_key(levels)
    for _ in range(levels.levels):
        if key < worst or left == 0:
            break
        volume, _ = ladder.level_of(levels, key)
        entry = _entry(taken, key)
        before = 0 if entry == 0 else min(load(entry + 8), volume)
        step = min(volume - before, left)
        if step > 0:
            if entry == 0:
                entry = pushed(taken, _PAIR_BYTES)
                store(entry, key)
            store(entry + 8, before + step)
            left -= step
            fills += 1
            if noted:
                filled(own.account, time, step, key if side == BID else -key, 0)
        key = ladder.key_below(levels, key)
    return lots - left, fills


@jit()
def takeable(context: Record, board: int, side: int, worst: int, most: int) -> int:
    """How many lots there are to take from a side, to the key of the worst level; counted up to `most`."""
    levels = ladder_of(context, book_of(context, board_at(board).instrument), side)
    taken = board + (_TAKEN_BIDS if side == BID else _TAKEN_ASKS)
    found = 0
    key = ladder.best_key(levels)
    for _ in range(levels.levels):
        if key < worst or found >= most:
            break
        volume, _ = ladder.level_of(levels, key)
        entry = _entry(taken, key)
        found += volume if entry == 0 else max(0, volume - load(entry + 8))
        key = ladder.key_below(levels, key)
    return found


@jit()
def forget_passed(context: Record, board: int, side: int) -> None:
    """Forgets what was taken of a side where the market has moved on."""
    taken = board + (_TAKEN_BIDS if side == BID else _TAKEN_ASKS)
    count = load(taken + 16)
    if count:
        levels = ladder_of(context, book_of(context, board_at(board).instrument), side)
        best, volume = WORST, 0
        if levels.levels:
            best = ladder.best_key(levels)
            volume, _ = ladder.level_of(levels, best)
        store(taken + 16, kept(load(taken), count, best, volume))


@jit()
def put(vector: int, key: int, lots: int) -> None:
    """So many lots are taken of a level."""
    entry = pushed(vector, _PAIR_BYTES)
    store(entry, key)
    store(entry + 8, lots)
