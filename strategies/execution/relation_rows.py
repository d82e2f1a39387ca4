"""What strategies were told in the compiled loop, as rows of the relations `orders`, `fills` and `positions`.

Each row is an event and a message of its own for the engine, as where Python brings it there; the views that
read it are fresh before the next one, and compiled methods are called with the rows of views that it changes.
"""

import numpy as np

from orderbook.core.changes import END_OF_EVENT, END_OF_MESSAGE, NULL_CODE, OR_STOP
from orderbook.core.jit import jit
from orderbook.engine.generate.state_layout import UNCOUNTED
from orderbook.engine.generate.support import run_columns
from orderbook.engine.maps.wide_numbers import low_word, wide
from orderbook.market.block_memory import Record, load, record_at, store
from orderbook.strategies.execution.desk import MARKET, desk_at
from orderbook.strategies.execution.exchange_state import (
    FILL,
    NO_REASON,
    NOT_MODIFIED,
    account_at,
    board_at,
    fill_at,
)
from orderbook.strategies.execution.row_dispatch import dispatch

# Where rows go. A row that is replaced is the first of two changes, one that is new the second.
RELATIONS = np.dtype(
    [
        ("orders", "i8"),  # the kind of an insert into each; -1: what strategies are told is not kept there
        ("fills", "i8"),
        ("positions", "i8"),
        ("kinds", "i8"),  # address of int16[2], uint8[2] and int64[2, width], the changes at hand
        ("flags", "i8"),
        ("values", "i8"),
        ("width", "i8"),
        ("sides", "i8"),  # addresses of codes: of sides, of statuses, of what takes and what rests
        ("statuses", "i8"),
        ("liquidity", "i8"),
        ("places", "i8"),  # address of int64[instruments, 2], codes of venues and symbols
        ("state", "i8"),  # of the engine's runtime, where its events are counted, HANDLER by watch
        ("progress", "i8"),
        ("handlers", "i8"),
        ("now", "i8"),  # ns
        ("start", "i8"),  # of the changes at hand the first
        ("stop", "i8"),  # what `run_columns` returned where Python is to say what is wrong; 0: nothing is
    ]
)
# The flags of the changes at hand.
FLAGS = (OR_STOP, END_OF_EVENT | END_OF_MESSAGE | OR_STOP)
# A fee: of so many lots, of lots times ticks or lots by ticks, above / below of them, in 10^-8.
FEE = np.dtype([("of", "i8"), ("above", "i8"), ("below", "i8")])
OF_LOTS, OF_VALUE, OF_INVERSE = range(3)
# A row of `positions`: whether it is there, its volume and fees in 10^-8.
HELD = np.dtype([("there", "i8"), ("volume", "i8"), ("fees", "i8")])
_CHANGES = len(FLAGS)
# Words of a row of `orders`, the longest.
ORDER_WIDTH = 11

relations_at = record_at(RELATIONS)
fee_at = record_at(FEE)
held_at = record_at(HELD)
_SHORT = record_at(np.dtype([("value", "i2")]))
_FEE_BYTES, _HELD_BYTES, _FILL_BYTES = FEE.itemsize, HELD.itemsize, FILL.itemsize


@jit()
def fee_of(fee: int, lots: int, ticks: int) -> int:
    """The fee (FEE at an address) of an execution, 10^-8, rounded half to even."""
    one = fee_at(fee)
    if one.above == 0:
        return 0
    above, below = wide(lots) * wide(one.above), wide(one.below)
    if one.of == OF_VALUE:
        above = above * wide(abs(ticks))
    elif one.of == OF_INVERSE:
        below = below * wide(max(ticks, 1))
    quotient = above // below
    twice = (above - quotient * below) * 2
    found: int = low_word(quotient)
    if twice > below or (twice == below and found & 1 != 0):
        found += 1
    return found


@jit()
def code_of(desk: Record, instrument: int, reason: int) -> int:
    """The code of the text of a reason, of an order to an instrument; NULL_CODE where there is none.

    The texts of an instrument are those of reasons, then those of orders that could not be modified.
    """
    if reason == NO_REASON or desk.reasons == 0:
        return NULL_CODE
    place = reason if reason < NOT_MODIFIED else reason - NOT_MODIFIED + desk.reason_count
    code: int = load(load(desk.reasons + 8 * instrument) + 8 * place)
    return code


@jit()
def _apply(own: Record, kind: int, start: int) -> None:
    """Applies the changes at hand of a relation from `start` on, 0 where a row is replaced, else 1."""
    _SHORT(own.kinds).value = kind + 1
    _SHORT(own.kinds + 2).value = kind
    place = start
    while own.stop == 0 and place < _CHANGES:
        stop = run_columns(
            own.state, own.progress, own.kinds, own.flags, own.values, 8 * own.width, place, _CHANGES
        )
        if stop >= 0:
            place = stop
        elif stop < -UNCOUNTED or not dispatch(own.handlers, own.state, own.now):
            own.start, own.stop = place, stop
        else:
            place = ~stop


@jit()
def _write_order(desk: Record, opened: Record, row: int) -> None:
    """Writes the row of an OPEN order at an address."""
    own = relations_at(desk.relations)
    store(row, opened.ts)
    store(row + 8, desk.strategy)
    store(row + 16, opened.id)
    store(row + 24, load(own.places + 16 * opened.instrument))
    store(row + 32, load(own.places + 16 * opened.instrument + 8))
    store(row + 40, load(own.sides + 8 * opened.side))
    store(row + 48, opened.volume)
    store(row + 56, NULL_CODE if opened.limit == MARKET else opened.limit)
    store(row + 64, opened.filled)
    store(row + 72, load(own.statuses + 8 * opened.status))
    store(row + 80, opened.reason)


@jit()
def show_order(address: int, opened: Record, news: Record) -> None:
    """An OPEN order of a desk is as NEWS say: that becomes its row."""
    desk = desk_at(address)
    board = board_at(load(desk.boards + 8 * opened.instrument))
    shows = desk.relations != 0 and relations_at(desk.relations).orders >= 0
    known = opened.known
    if shows and known != 0:
        _write_order(desk, opened, relations_at(desk.relations).values)
    opened.known, opened.ts, opened.status = 1, news.time, news.status
    opened.volume, opened.filled = news.volume * board.lot_scale, news.filled * board.lot_scale
    opened.limit = MARKET if news.market else news.limit * board.tick_scale
    opened.reason = code_of(desk, opened.instrument, news.reason)
    if shows:
        own = relations_at(desk.relations)
        _write_order(desk, opened, own.values + 8 * own.width)
        _apply(own, own.orders, 0 if known else 1)


@jit()
def _show_fill(desk: Record, opened: Record, fill: Record, fee: int) -> None:
    """An execution becomes a row."""
    own, board = relations_at(desk.relations), board_at(load(desk.boards + 8 * opened.instrument))
    row = own.values + 8 * own.width
    store(row, fill.time)
    store(row + 8, desk.strategy)
    store(row + 16, opened.id)
    store(row + 24, load(own.places + 16 * opened.instrument))
    store(row + 32, load(own.places + 16 * opened.instrument + 8))
    store(row + 40, load(own.sides + 8 * opened.side))
    store(row + 48, fill.lots * board.lot_scale)
    store(row + 56, fill.ticks * board.tick_scale)
    store(row + 64, fee)
    store(row + 72, load(own.liquidity + 8 * (1 if fill.maker else 0)))
    _apply(own, own.fills, 1)


@jit()
def _show_position(desk: Record, instrument: int, volume: int, fee: int) -> None:
    """So much more is held of an instrument, and was paid."""
    own, held = relations_at(desk.relations), held_at(desk.held + _HELD_BYTES * instrument)
    known = held.there
    for number in range(2):
        row = own.values + 8 * own.width * number
        if number == 1:
            held.there, held.volume, held.fees = 1, held.volume + volume, held.fees + fee
        store(row, desk.strategy)
        store(row + 8, load(own.places + 16 * instrument))
        store(row + 16, load(own.places + 16 * instrument + 8))
        store(row + 24, held.volume)
        store(row + 32, held.fees)
    _apply(own, own.positions, 0 if known else 1)


@jit()
def show_fills(address: int, opened: Record, first: int, count: int) -> None:
    """Executions of an OPEN order, the account's FILLs first … first + count - 1, become rows; then so does
    what is held."""
    desk = desk_at(address)
    if desk.relations == 0:
        return
    own, account = relations_at(desk.relations), account_at(desk.account)
    board = board_at(load(desk.boards + 8 * opened.instrument))
    for positions in range(2):
        taken = own.fills if positions == 0 else own.positions
        for number in range(first, first + count if taken >= 0 else first):
            fill = fill_at(account.fills + _FILL_BYTES * number)
            maker = 1 if fill.maker else 0
            fee = fee_of(desk.fees + _FEE_BYTES * (2 * opened.instrument + maker), fill.lots, fill.ticks)
            if positions == 0:
                _show_fill(desk, opened, fill, fee)
            else:
                volume = fill.lots * board.lot_scale
                _show_position(desk, opened.instrument, -volume if opened.side else volume, fee)
