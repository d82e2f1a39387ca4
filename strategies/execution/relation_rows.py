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
from orderbook.strategies.execution.account_worth import mark, trade
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
# Of a venue with tiers: how many there are, the address of int64[count], what has to be traded for each, and
# that of int64[DAYS, 2], UTC days and what was traded in them, at the day's remainder; in 10^-8 of the quote
# currency.
TIERS = np.dtype([("count", "i8"), ("least", "i8"), ("days", "i8")])
DAYS = 64
TIER_DAYS = 30
DAY = 24 * 60 * 60 * 10**9
# More than that a day counts as that.
MOST_TRADED = 2**62
# A row of `positions`: whether it is there, its volume and fees in 10^-8.
HELD = np.dtype([("there", "i8"), ("volume", "i8"), ("fees", "i8")])
_CHANGES = len(FLAGS)
# Words of a row of `orders`, the longest.
ORDER_WIDTH = 11

relations_at = record_at(RELATIONS)
fee_at = record_at(FEE)
tiers_at = record_at(TIERS)
held_at = record_at(HELD)
_SHORT = record_at(np.dtype([("value", "i2")]))
_FEE_BYTES, _HELD_BYTES, _FILL_BYTES = FEE.itemsize, HELD.itemsize, FILL.itemsize


@jit()
def _rounded(fee: int, lots: int, ticks: int):  # type: ignore[no-untyped-def]
    """What a FEE at an address says of an execution, 10^-8 as Int128, rounded half to even."""
    one = fee_at(fee)
    above, below = wide(lots) * wide(one.above), wide(one.below)
    if one.of == OF_VALUE:
        above = above * wide(abs(ticks))
    elif one.of == OF_INVERSE:
        below = below * wide(max(ticks, 1))
    quotient = above // below
    twice = (above - quotient * below) * 2
    if twice > below or (twice == below and low_word(quotient) & 1 != 0):
        quotient = quotient + wide(1)
    return quotient


@jit()
def fee_of(fee: int, lots: int, ticks: int) -> int:
    """The fee (FEE at an address) of an execution, 10^-8, rounded half to even."""
    found: int = 0 if fee_at(fee).above == 0 else low_word(_rounded(fee, lots, ticks))
    return found


@jit()
def tier_of(tiers: int, day: int) -> int:
    """Which fees an execution of a UTC day has at a venue, TIERS at an address; 0: those without a tier."""
    own, traded, found = tiers_at(tiers), wide(0), 0
    for before in range(1, TIER_DAYS + 1):
        place = own.days + 16 * ((day - before) % DAYS)
        if load(place) == day - before:
            traded = traded + wide(load(place + 8))
    for number in range(own.count):
        if traded >= wide(load(own.least + 8 * number)):
            found = number + 1
    return found


@jit()
def count_traded(tiers: int, day: int, fee: int, lots: int, ticks: int) -> None:
    """An execution counts for a UTC day at a venue, TIERS at an address; `fee` is what one counts, a FEE."""
    place = tiers_at(tiers).days + 16 * (day % DAYS)
    if load(place) <= day:
        value = _rounded(fee, lots, ticks)
        if load(place) == day:
            value = value + wide(load(place + 8))
        store(place, day)
        store(place + 8, low_word(value) if value < wide(MOST_TRADED) else MOST_TRADED)


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
def _fee_of_fill(desk: Record, instrument: int, fill: Record) -> int:
    """What an execution costs, 10^-8."""
    tiers = load(desk.tiers + 8 * instrument) if desk.tiers != 0 else 0
    tier = tier_of(tiers, fill.time // DAY) if tiers != 0 else 0
    place = (2 * instrument + (1 if fill.maker else 0)) * desk.fee_count + tier
    fee: int = fee_of(desk.fees + _FEE_BYTES * place, fill.lots, fill.ticks)
    return fee


@jit()
def _value(desk: Record, opened: Record, first: int, count: int) -> None:
    """Books executions of an OPEN order in what the account is worth, and values it."""
    account = account_at(desk.account)
    for number in range(first, first + count):
        fill = fill_at(account.fills + _FILL_BYTES * number)
        lots = -fill.lots if opened.side else fill.lots
        fee = _fee_of_fill(desk, opened.instrument, fill)
        trade(desk.worth, opened.instrument, lots, fill.ticks, fee)
    mark(desk.worth, desk.boards, account.books)


@jit()
def book_fills(address: int, opened: Record, first: int, count: int) -> None:
    """Executions of an OPEN order, the account's FILLs first … first + count - 1, count for fees and for what
    the account is worth, and become rows; then so does what is held."""
    desk = desk_at(address)
    if desk.fees == 0:
        return
    account = account_at(desk.account)
    tiers = load(desk.tiers + 8 * opened.instrument) if desk.tiers != 0 else 0
    for number in range(first, first + count if tiers != 0 else first):
        fill = fill_at(account.fills + _FILL_BYTES * number)
        counted = desk.traded + _FEE_BYTES * opened.instrument
        count_traded(tiers, fill.time // DAY, counted, fill.lots, fill.ticks)
    if desk.worth != 0:
        _value(desk, opened, first, count)
    if desk.relations == 0:
        return
    own, board = relations_at(desk.relations), board_at(load(desk.boards + 8 * opened.instrument))
    for positions in range(2):
        taken = own.fills if positions == 0 else own.positions
        for number in range(first, first + count if taken >= 0 else first):
            fill = fill_at(account.fills + _FILL_BYTES * number)
            fee = _fee_of_fill(desk, opened.instrument, fill)
            if positions == 0:
                _show_fill(desk, opened, fill, fee)
            else:
                volume = fill.lots * board.lot_scale
                _show_position(desk, opened.instrument, -volume if opened.side else volume, fee)
