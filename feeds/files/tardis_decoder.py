"""Tardis' rows to EVENT records, compiled: messages, books, trades and what is told of contracts.

Events are made of the rows that `tardis_text` has read.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from orderbook.core.jit import jit
from orderbook.feeds.files.tardis_text import NOTHING, Status
from orderbook.market.events import EVENT, Action, BookState, Events, Flag, Side, StateReason

_COLUMNS, _TIME, _NUMBER, _SIDE = (int(s) for s in (Status.COLUMNS, Status.TIME, Status.NUMBER, Status.SIDE))

# Words of a file's open message: its time (ns) and instrument, and how many events are in closed ones.
TIME, INSTRUMENT, CLOSED = 0, 1, 2
# Words of a book: whether a snapshot began it, whether its last row was of one, whether it is to be VALID,
# whether a row of it was lost since it began, and whether a file before this one told it.
BEGUN, IN_SNAPSHOT, PENDING, LOST, TOLD = range(5)
WORDS = 5

# What is wrong with a row that can be read; goes on from Status.
TICK, LOT, NEGATIVE, UNKNOWN = range(len(Status), len(Status) + 4)
EARLY = 255
BOOK_REASONS = {
    TICK: "off the tick: the price is finer than those of the file's first rows; kept",
    LOT: "off the lot: the amount is finer than those of the file's first rows; kept",
    NEGATIVE: "the amount is negative",
    UNKNOWN: "the symbol is not in the file's first rows; write ?scan=all",
}

_LEVEL, _CLEAR, _TRADE, _STATE = (int(a) for a in (Action.LEVEL, Action.CLEAR, Action.TRADE, Action.STATE))
_MARK, _FUNDING, _INTEREST = (int(a) for a in (Action.MARK, Action.FUNDING, Action.OPEN_INTEREST))
_LAST, _SNAPSHOT, _NONE = int(Flag.LAST), int(Flag.SNAPSHOT), int(Side.NONE)
_VALID, _SYNCHRONISED = int(BookState.VALID), int(StateReason.SYNCHRONISED)
_STALE, _MALFORMED, _GAP = int(BookState.STALE), int(StateReason.MALFORMED), int(StateReason.GAP)


# Values of a contract: mark and index price, funding rate and when it is paid (µs), open interest.
VALUES = 5


def new_message() -> NDArray[np.int64]:
    """int64[3]: no message is open."""
    return np.array([NOTHING, -1, 0], np.int64)


@jit(nogil=True)
def _write(
    events: Events,
    count: int,
    message: NDArray[np.int64],
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
def close_message(events: Events, count: int, message: NDArray[np.int64], books: NDArray[np.uint8]) -> int:
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
    events: Events,
    count: int,
    message: NDArray[np.int64],
    books: NDArray[np.uint8],
    time: int,
    instrument: int,
) -> int:
    """Be in the message of (time, instrument)."""
    if time != message[TIME] or instrument != message[INSTRUMENT]:
        count = close_message(events, count, message, books)
        message[TIME], message[INSTRUMENT] = time, instrument
    return count


@jit(nogil=True)
def _lose(
    events: Events,
    count: int,
    message: NDArray[np.int64],
    books: NDArray[np.uint8],
    instrument: int,
    time: int,
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
def _time_of(status: int, time: int, message: NDArray[np.int64]) -> int:
    """When a row that cannot be used was, in ns: with its time unread, with the row before."""
    return message[TIME] if status in (_COLUMNS, _TIME) else time * 1000


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
    values: NDArray[np.int64],
    status: NDArray[np.uint8],
    instruments: NDArray[np.int32],
    steps: NDArray[np.int64],
    columns: NDArray[np.int64],
    prints: int,
    books: NDArray[np.uint8],
    message: NDArray[np.int64],
    events: Events,
    count: int,
) -> int:
    """Events of rows of incremental_book_L2, or of prints of an Action, after the `count` that there are.

    `instruments` is int32[rows], -1 where a name is not known, `steps` int64[instruments, 2] (tick and lot
    times 10^8), `columns` the places of timestamp, local_timestamp, is_snapshot or id, side, price, amount.
    A row that is wrong has its reason in `status`, or EARLY where its book has no snapshot yet; its book is
    STALE from then on until a snapshot, as is one that a file before this one told. At most four events
    a row, and one for each book.
    """
    trades = prints != 0
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
            count = _write(events, count, message, times, prints, side, (marked, price, amount), 0)
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
def _amount_at(prices: NDArray[np.int64], amounts: NDArray[np.int64], price: int, likely: int) -> int:
    """The amount at a price, NOTHING where it is no level; `likely` is where to look first."""
    if amounts[likely] and prices[likely] == price:
        return amounts[likely]
    for i in range(len(prices)):
        if amounts[i] and prices[i] == price:
            return amounts[i]
    return NOTHING


@jit(nogil=True)
def _read_levels(
    values: NDArray[np.int64],
    places: NDArray[np.int64],
    steps: NDArray[np.int64],
    prices: NDArray[np.int64],
    amounts: NDArray[np.int64],
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
    values: NDArray[np.int64],
    status: NDArray[np.uint8],
    instruments: NDArray[np.int32],
    steps: NDArray[np.int64],
    times_at: NDArray[np.int64],
    places: NDArray[np.int64],
    told: NDArray[np.int64],
    levels: NDArray[np.int64],
    known: NDArray[np.int64],
    books: NDArray[np.uint8],
    message: NDArray[np.int64],
    events: Events,
    count: int,
) -> int:
    """Events of rows that hold the best levels of a book: what changed since the row before.

    As `update_events`; `times_at` has the places of timestamp and local_timestamp, `places`
    int64[2, depth, 2] those of the bids' and asks' prices and amounts, `levels`
    int64[instruments, 2 (price, amount), 2, depth] the row before; `told` and `known` as in `told_events`. A
    book is STALE after a row that is wrong until the next one. At most 4 * depth + 6 events a row, and one
    for each book.
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
        wrong = NEGATIVE if _value(values[row], told[4]) < 0 else wrong
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
        count = _tell(values[row], told, known[instrument], events, count, message, times)
    return count


@jit(nogil=True)
def _value(values: NDArray[np.int64], place: int) -> int:
    """A value of a row, 0 where there is none."""
    return 0 if place < 0 or values[place] == NOTHING else values[place]


@jit(nogil=True)
def _is_new(
    values: NDArray[np.int64], told: NDArray[np.int64], known: NDArray[np.int64], first: int, last: int
) -> bool:
    """Whether a row states the first of some values, and any of them anew; notes them."""
    if told[first] < 0 or values[told[first]] == NOTHING:
        return False
    new = known[first] == NOTHING
    for at in range(first, last + 1):
        value = _value(values, told[at])
        new = new or known[at] != value
        known[at] = value
    return new


@jit(nogil=True)
def _tell(
    values: NDArray[np.int64],
    told: NDArray[np.int64],
    known: NDArray[np.int64],
    events: Events,
    count: int,
    message: NDArray[np.int64],
    times: tuple[int, int],
) -> int:
    """Write the values of a contract that a row states, where they are others than before."""
    if _is_new(values, told, known, 0, 1):
        count = _write(events, count, message, times, _MARK, _NONE, (0, known[0], known[1]), 0)
    if _is_new(values, told, known, 2, 3):
        count = _write(events, count, message, times, _FUNDING, _NONE, (known[3] * 1000, known[2], 0), 0)
    if _is_new(values, told, known, 4, 4):
        count = _write(events, count, message, times, _INTEREST, _NONE, (0, 0, known[4]), 0)
    return count


@jit(nogil=True)
def told_events(
    values: NDArray[np.int64],
    status: NDArray[np.uint8],
    instruments: NDArray[np.int32],
    times_at: NDArray[np.int64],
    told: NDArray[np.int64],
    known: NDArray[np.int64],
    books: NDArray[np.uint8],
    message: NDArray[np.int64],
    events: Events,
    count: int,
) -> int:
    """Events of rows that state values of contracts: what changed since the row before.

    As `update_events`; `told` has the places of the values, int64[VALUES], -1 for what there is not, `known`
    int64[instruments, VALUES] the row before, NOTHING at first. At most three events a row.
    """
    for row in range(len(status)):
        if status[row]:
            continue
        if _value(values[row], told[4]) < 0:
            status[row] = NEGATIVE
            continue
        times = values[row, times_at[0]] * 1000, values[row, times_at[1]] * 1000
        count = _enter(events, count, message, books, times[1], instruments[row])
        count = _tell(values[row], told, known[instruments[row]], events, count, message, times)
    return count


def room(rows: int, waiting: int, depth: int, books: int) -> Events:
    """EVENT[n]: room for the events of `rows` rows of `depth` levels (0: updates) after those waiting."""
    return np.empty(waiting + rows * (4 * depth + 6 if depth else 4) + books + 2, EVENT)
