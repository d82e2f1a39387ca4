"""Compiled making of events from rows that `feeds.tardis_rows` has read: messages, books, trades."""

from typing import Any

import numpy as np

from feeds.tardis_rows import NOTHING, Status
from orderbook.events import EVENT, Action, BookState, Flag, Side, StateReason
from orderbook.jit import jit

# Words of a file's open message: its time (ns) and instrument, and how many events are in closed ones.
TIME, INSTRUMENT, CLOSED = 0, 1, 2
# Words of a book: whether a snapshot began it, whether its last row was of one, whether it is to be VALID,
# whether a row of it was lost since it began, and whether a file before this one told it.
BEGUN, IN_SNAPSHOT, PENDING, LOST, TOLD = range(5)
WORDS = 5

# What is wrong with a row that can be read; goes on from Status.
TICK, LOT, NEGATIVE, UNKNOWN = range(len(Status), len(Status) + 4)
EARLY = 255
REASONS = {
    TICK: "off the tick: the price is finer than those of the file's first rows; kept",
    LOT: "off the lot: the amount is finer than those of the file's first rows; kept",
    NEGATIVE: "the amount is negative",
    UNKNOWN: "the symbol is not in the file's first rows; write ?scan=all",
}

_LEVEL, _CLEAR, _TRADE, _STATE = (
    int(a) for a in (Action.LEVEL, Action.CLEAR, Action.TRADE, Action.STATE)
)
_LAST, _SNAPSHOT, _NONE = int(Flag.LAST), int(Flag.SNAPSHOT), int(Side.NONE)
_VALID, _SYNCHRONISED = int(BookState.VALID), int(StateReason.SYNCHRONISED)
_STALE, _MALFORMED, _GAP = int(BookState.STALE), int(StateReason.MALFORMED), int(StateReason.GAP)
_NUMBER, _SIDE = int(Status.NUMBER), int(Status.SIDE)
_COLUMNS, _UNTIMED = int(Status.COLUMNS), int(Status.TIME)


def new_message() -> np.ndarray:
    """int64[3]: no message is open."""
    return np.array([NOTHING, -1, 0], np.int64)


@jit(nogil=True)
def _write(
    events: np.ndarray,
    count: int,
    message: np.ndarray,
    times: tuple[int, int],
    action: int,
    side: int,
    row: tuple[int, int, int],
    flags: int,
) -> int:
    """Write one event; `row` is (id, price, volume). The new count."""
    event: Any = events[count]
    event.exchange_time, event.receive_time = times
    event.order_id, event.price, event.volume = row
    event.sequence = 0
    event.instrument = message[INSTRUMENT]
    event.broker_id = event.reserved = 0
    event.action, event.side, event.flags = action, side, flags
    return count + 1


@jit(nogil=True)
def close_message(events: np.ndarray, count: int, message: np.ndarray, books: np.ndarray) -> int:
    """End the open message: a book that was waiting for it is VALID, and its last event is flagged."""
    instrument = message[INSTRUMENT]
    if count > message[CLOSED]:
        if books[instrument, PENDING]:
            books[instrument, PENDING] = 0
            times = events[count - 1].exchange_time, events[count - 1].receive_time
            count = _write(events, count, message, times, _STATE, _NONE, (_SYNCHRONISED, 0, _VALID), 0)
        events[count - 1].flags |= _LAST
    message[CLOSED] = count
    return count


@jit(nogil=True)
def _enter(
    events: np.ndarray, count: int, message: np.ndarray, books: np.ndarray, time: int, instrument: int
) -> int:
    """Be in the message of (time, instrument)."""
    if time != message[TIME] or instrument != message[INSTRUMENT]:
        count = close_message(events, count, message, books)
        message[TIME], message[INSTRUMENT] = time, instrument
    return count


@jit(nogil=True)
def _lose(
    events: np.ndarray, count: int, message: np.ndarray, books: np.ndarray, instrument: int, time: int
) -> int:
    """A row cannot be used: its book is STALE until it begins again, or all where `instrument` is -1."""
    for index in range(len(books)):
        book = books[index]
        if (instrument >= 0 and index != instrument) or not book[BEGUN] or book[LOST]:
            continue
        count = _enter(events, count, message, books, time, index)
        book[LOST] = 1
        if book[PENDING]:
            book[PENDING] = 0
        else:
            row = (_MALFORMED, 0, _STALE)
            count = _write(events, count, message, (time, time), _STATE, _NONE, row, 0)
    return count


@jit(nogil=True)
def _time_of(status: int, time: int, message: np.ndarray) -> int:
    """When a row that cannot be used was, in ns: with its time unread, with the row before."""
    return message[TIME] if status in (_COLUMNS, _UNTIMED) else time * 1000


@jit(nogil=True)
def _fault(price: int, amount: int, tick: int, lot: int) -> int:
    """What is wrong with a price and an amount, both times 10^8; off tick or lot they are kept."""
    if price == NOTHING or amount == NOTHING:
        return _NUMBER
    if amount < 0:
        return NEGATIVE
    if price % tick:
        return TICK
    return LOT if amount % lot else 0


@jit(nogil=True)
def update_events(
    values: np.ndarray,
    status: np.ndarray,
    instruments: np.ndarray,
    steps: np.ndarray,
    columns: np.ndarray,
    trades: bool,
    books: np.ndarray,
    message: np.ndarray,
    events: np.ndarray,
    count: int,
) -> int:
    """Events of rows of incremental_book_L2, or of trades, after the `count` that there are.

    `instruments` is int32[rows], -1 where a name is not known, `steps` int64[instruments, 2] (tick and lot
    times 10^8), `columns` the places of timestamp, local_timestamp, is_snapshot or id, side, price, amount.
    A row that is wrong has its reason in `status`, or EARLY where its book has no snapshot yet; its book is
    STALE from then on until a snapshot, as is one that a file before this one told. At most four events
    a row, and one for each book.
    """
    for row in range(len(status)):
        instrument = instruments[row]
        if status[row]:
            if not trades and status[row] != UNKNOWN:
                time = _time_of(status[row], values[row, columns[1]], message)
                count = _lose(events, count, message, books, instrument, time)
            continue
        price, amount = values[row, columns[4]], values[row, columns[5]]
        side = values[row, columns[3]]
        wrong = _fault(price, amount, steps[instrument, 0], steps[instrument, 1])
        if not trades and side == _NONE:
            wrong = _SIDE
        if wrong and wrong != TICK and wrong != LOT:
            status[row] = wrong
            if not trades:
                count = _lose(events, count, message, books, instrument, values[row, columns[1]] * 1000)
            continue
        marked = values[row, columns[2]]
        book = books[instrument]
        times = values[row, columns[0]] * 1000, values[row, columns[1]] * 1000
        if not trades and not marked and not book[BEGUN]:
            status[row] = EARLY
            if book[TOLD]:
                book[TOLD] = 0
                count = _enter(events, count, message, books, times[1], instrument)
                count = _write(events, count, message, times, _STATE, _NONE, (_GAP, 0, _STALE), 0)
            continue
        status[row] = wrong
        count = _enter(events, count, message, books, times[1], instrument)
        if trades:
            count = _write(events, count, message, times, _TRADE, side, (marked, price, amount), 0)
            continue
        flags = _SNAPSHOT if marked else 0
        if marked and not book[IN_SNAPSHOT]:
            count = _write(events, count, message, times, _CLEAR, _NONE, (0, 0, 0), _SNAPSHOT)
            book[PENDING] = not book[BEGUN] or book[LOST]
            book[BEGUN], book[LOST] = 1, 0
        book[IN_SNAPSHOT] = marked
        count = _write(events, count, message, times, _LEVEL, side, (0, price, amount), flags)
    return count


@jit(nogil=True)
def _amount_at(prices: np.ndarray, amounts: np.ndarray, price: int, likely: int) -> int:
    """The amount at a price, NOTHING where it is no level; `likely` is where to look first."""
    if amounts[likely] and prices[likely] == price:
        return amounts[likely]
    for i in range(len(prices)):
        if amounts[i] and prices[i] == price:
            return amounts[i]
    return NOTHING


@jit(nogil=True)
def _read_levels(
    values: np.ndarray, places: np.ndarray, steps: np.ndarray, prices: np.ndarray, amounts: np.ndarray
) -> int:
    """The levels of a row, [2, depth], times 10^8, an amount of 0 where there is none; what is wrong."""
    off = 0
    for side in range(2):
        for k in range(places.shape[1]):
            price, amount = values[places[side, k, 0]], values[places[side, k, 1]]
            prices[side, k] = amounts[side, k] = 0
            if (price == NOTHING or price == 0) and (amount == NOTHING or amount == 0):
                continue
            wrong = _fault(price, amount, steps[0], steps[1])
            if wrong == TICK or wrong == LOT:
                off = wrong
            elif wrong:
                return wrong
            prices[side, k], amounts[side, k] = price, amount
    return off


@jit(nogil=True)
def snapshot_events(
    values: np.ndarray,
    status: np.ndarray,
    instruments: np.ndarray,
    steps: np.ndarray,
    times_at: np.ndarray,
    places: np.ndarray,
    levels: np.ndarray,
    books: np.ndarray,
    message: np.ndarray,
    events: np.ndarray,
    count: int,
) -> int:
    """Events of rows that hold the best levels of a book: what changed since the row before.

    As `update_events`; `times_at` has the places of timestamp and local_timestamp, `places`
    int64[2, depth, 2] those of the bids' and asks' prices and amounts, `levels`
    int64[instruments, 2 (price, amount), 2, depth] the row before. A book is STALE after a row that is wrong
    until the next one. At most 4 * depth + 3 events a row, and one for each book.
    """
    depth = places.shape[1]
    prices, amounts = np.zeros((2, depth), np.int64), np.zeros((2, depth), np.int64)
    for row in range(len(status)):
        instrument = instruments[row]
        if status[row]:
            if status[row] != UNKNOWN:
                time = _time_of(status[row], values[row, times_at[1]], message)
                count = _lose(events, count, message, books, instrument, time)
            continue
        wrong = _read_levels(values[row], places, steps[instrument], prices, amounts)
        status[row] = wrong
        if wrong and wrong != TICK and wrong != LOT:
            count = _lose(events, count, message, books, instrument, values[row, times_at[1]] * 1000)
            continue
        times = values[row, times_at[0]] * 1000, values[row, times_at[1]] * 1000
        count = _enter(events, count, message, books, times[1], instrument)
        book = books[instrument]
        flags = 0
        if not book[BEGUN]:
            book[BEGUN] = book[PENDING] = 1
            flags = _SNAPSHOT
            count = _write(events, count, message, times, _CLEAR, _NONE, (0, 0, 0), flags)
        old_prices, old_amounts = levels[instrument, 0], levels[instrument, 1]
        for side in range(2):
            for k in range(depth):
                price, amount = old_prices[side, k], old_amounts[side, k]
                if amount and _amount_at(prices[side], amounts[side], price, k) == NOTHING:
                    count = _write(events, count, message, times, _LEVEL, side, (0, price, 0), flags)
            for k in range(depth):
                price, amount = prices[side, k], amounts[side, k]
                if amount and _amount_at(old_prices[side], old_amounts[side], price, k) != amount:
                    count = _write(events, count, message, times, _LEVEL, side, (0, price, amount), flags)
        old_prices[:], old_amounts[:] = prices, amounts
        if book[LOST]:
            book[LOST] = 0
            count = _write(events, count, message, times, _STATE, _NONE, (_SYNCHRONISED, 0, _VALID), 0)
    return count


def room(rows: int, waiting: int, depth: int, books: int) -> np.ndarray:
    """EVENT[n]: room for the events of `rows` rows of `depth` levels (0: updates) after those waiting."""
    return np.empty(waiting + rows * (4 * depth + 3 if depth else 4) + books + 2, EVENT)
