"""Tardis' rows to EVENT records, compiled: comma-separated text in, messages, books and trades out.

Numbers are read exactly, names by hash, and every row gets a status; events are made of the rows read.
"""

from enum import IntEnum
from typing import Any

import numpy as np

from orderbook.core.jit import jit
from orderbook.market.events import EVENT, Action, BookState, Events, Flag, Side, StateReason

# What an empty field reads as.
NOTHING = -(2**63)
# A row holds DECIMAL(18, 8): numbers times 10^8 below 10^18.
_SCALE = 8
_LARGEST = 10**18 - 1
# µs that, as ns, fit 64 bits.
_LATEST = (2**63 - 1) // 1000
_PRIME = np.uint64(1_099_511_628_211)
_OFFSET = np.uint64(14_695_981_039_346_656_037)
_COMMA, _NEWLINE, _RETURN, _POINT = ord(","), ord("\n"), ord("\r"), ord(".")
_PLUS, _MINUS, _ZERO, _NINE, _E, _LOWER_E = ord("+"), ord("-"), ord("0"), ord("9"), ord("E"), ord("e")


class Kind(IntEnum):
    """What a column holds, and what it reads as."""

    SKIPPED = 0
    NAME = 1  # part of the instrument's name; the row's names together are its hash
    TIME = 2  # µs since 1970 UTC
    NUMBER = 3  # a decimal: times 10^8; NOTHING where empty
    FLAG = 4  # true or false: 1 or 0
    SIDE = 5  # bid, buy: 0; ask, sell: 1; unknown or empty: 2
    ID = 6  # digits: the number; other text: a hash of 63 bits; empty: 0


class Status(IntEnum):
    """Whether a row was read, or why not."""

    GOOD = 0
    COLUMNS = 1
    TIME = 2
    NUMBER = 3
    FINE = 4
    LARGE = 5
    FLAG = 6
    SIDE = 7


ROW_REASONS = {
    Status.COLUMNS: "too few or too many columns",
    Status.TIME: "a time is not in microseconds since 1970",
    Status.NUMBER: "a price or amount is not a number",
    Status.FINE: "a price or amount has more than 8 decimal places",
    Status.LARGE: "a price or amount does not fit DECIMAL(18, 8)",
    Status.FLAG: "is_snapshot is neither true nor false",
    Status.SIDE: "the side is none of bid, ask, buy, sell and unknown",
}
_COLUMNS, _TIME, _NUMBER, _FINE, _LARGE, _FLAG, _SIDE = map(int, list(Status)[1:])
_K_SKIPPED, _K_NAME, _K_TIME, _K_NUMBER, _K_FLAG, _K_SIDE, _K_ID = map(int, Kind)


@jit(nogil=True, inline="always")
def _hash(block: np.ndarray, start: int, end: int, value: np.uint64) -> np.uint64:
    """FNV-1a of bytes, going on from `value`."""
    for i in range(start, end):
        value = (value ^ np.uint64(block[i])) * _PRIME
    return value


def name_hash(names: list[bytes]) -> int:
    """The hash that a row with these names has; NAME columns in the order of the file."""
    value = int(_OFFSET)
    for name in names:
        for byte in name + b",":
            value = (value ^ byte) * int(_PRIME) & (2**64 - 1)
    return value


@jit(nogil=True)
def _integer(block: np.ndarray, start: int, end: int, largest: int) -> int:
    """Digits as a number up to `largest`; -1 where they are none."""
    if start == end or end - start > 19:
        return -1
    value = 0
    for i in range(start, end):
        # int() would make it unsigned, which numba adds as a double.
        digit: Any = np.int64(block[i]) - _ZERO
        if digit < 0 or digit > 9 or value > (largest - digit) // 10:
            return -1
        value = value * 10 + digit
    return value


@jit(nogil=True)
def _exponent(block: np.ndarray, start: int, end: int) -> int:
    """The exponent after an e; 10^6 where it is malformed."""
    negative = False
    if start < end and (block[start] == _MINUS or block[start] == _PLUS):
        negative = block[start] == _MINUS
        start += 1
    value = _integer(block, start, end, 400)
    if value < 0:
        return 1_000_000
    return -value if negative else value


@jit(nogil=True)
def _decimal(block: np.ndarray, start: int, end: int) -> tuple[int, int]:
    """(number times 10^8, 0) of decimal text, or (0, status)."""
    negative = block[start] == _MINUS
    i = start + 1 if negative or block[start] == _PLUS else start
    value, digits, shift, exponent = 0, 0, _SCALE, 0
    pointed = large = fine = False
    while i < end:
        byte: Any = np.int64(block[i])
        if _ZERO <= byte <= _NINE:
            digits += 1
            if value > _LARGEST // 10:
                # What follows counts only where it is zero.
                fine = fine or byte != _ZERO
                shift += 0 if pointed else 1
            else:
                value = value * 10 + (byte - _ZERO)
                shift -= 1 if pointed else 0
        elif byte == _POINT and not pointed:
            pointed = True
        elif (byte == _E or byte == _LOWER_E) and digits:
            exponent = _exponent(block, i + 1, end)
            break
        else:
            return 0, _NUMBER
        i += 1
    if not digits or exponent == 1_000_000:
        return 0, _NUMBER
    shift += exponent
    while shift < 0 and value and not fine:
        fine = value % 10 != 0
        value //= 10
        shift += 1
    while shift > 0 and value and not large:
        large = value > _LARGEST // 10
        value = value if large else value * 10
        shift -= 1
    if large:
        return 0, _LARGE
    if fine:
        return 0, _FINE
    return (-value if negative else value), 0


@jit(nogil=True)
def _equal(block: np.ndarray, start: int, end: int, text: bytes) -> bool:
    if end - start != len(text):
        return False
    for i in range(len(text)):  # noqa: SIM110 - compiled
        if block[start + i] != text[i]:
            return False
    return True


@jit(nogil=True)
def _side(block: np.ndarray, start: int, end: int) -> int:
    if _equal(block, start, end, b"bid") or _equal(block, start, end, b"buy"):
        return 0
    if _equal(block, start, end, b"ask") or _equal(block, start, end, b"sell"):
        return 1
    return 2 if start == end or _equal(block, start, end, b"unknown") else -1


@jit(nogil=True)
def _id(block: np.ndarray, start: int, end: int) -> int:
    if start == end:
        return 0
    number = _integer(block, start, end, 2**63 - 1)
    if number >= 0:
        return number
    hashed: Any = np.int64(_hash(block, start, end, _OFFSET) >> np.uint64(1))
    return hashed


@jit(nogil=True)
def _field(block: np.ndarray, start: int, end: int, kind: int) -> tuple[int, int]:
    """(value, status) of one field."""
    if kind == _K_NUMBER:
        return (NOTHING, 0) if start == end else _decimal(block, start, end)
    if kind == _K_TIME:
        value = _integer(block, start, end, _LATEST)
        return value, (_TIME if value < 0 else 0)
    if kind == _K_FLAG:
        if _equal(block, start, end, b"true"):
            return 1, 0
        return 0, (0 if _equal(block, start, end, b"false") else _FLAG)
    if kind == _K_SIDE:
        value = _side(block, start, end)
        return value, (_SIDE if value < 0 else 0)
    return _id(block, start, end), 0


@jit(nogil=True)
def read_rows(
    block: np.ndarray,
    kinds: np.ndarray,
    values: np.ndarray,
    hashes: np.ndarray,
    status: np.ndarray,
    starts: np.ndarray,
    lines: np.ndarray,
) -> tuple[int, int]:
    """Read the whole lines of `block`, uint8[n]; every line ends with a line feed.

    `kinds` is int8[columns], a Kind each. Row i goes to values[i] (int64[columns]), hashes[i] (uint64, of
    its NAMEs), status[i] (uint8, a Status), starts[i] and lines[i] (int64: its offset, and how many lines
    of the block came before it). Blank lines are no rows. Returns (rows, lines).
    """
    columns = len(kinds)
    row = line = position = 0
    size = len(block)
    while position < size:
        start = position
        column = 0
        state = 0
        name = _OFFSET
        while True:
            first = position
            while block[position] != _COMMA and block[position] != _NEWLINE:
                position += 1
            ended = block[position] == _NEWLINE
            last = position - 1 if ended and position > first and block[position - 1] == _RETURN else position
            position += 1
            if column < columns:
                kind = kinds[column]
                if kind == _K_NAME:
                    name = (_hash(block, first, last, name) ^ np.uint64(_COMMA)) * _PRIME
                elif kind != _K_SKIPPED and not state:
                    values[row, column], state = _field(block, first, last, kind)
            column += 1
            if ended:
                break
        if column > 1 or last > first:
            status[row] = state if column == columns else _COLUMNS
            hashes[row], starts[row], lines[row] = name, start, line
            row += 1
        line += 1
    return row, line


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
_LAST, _SNAPSHOT, _NONE = int(Flag.LAST), int(Flag.SNAPSHOT), int(Side.NONE)
_VALID, _SYNCHRONISED = int(BookState.VALID), int(StateReason.SYNCHRONISED)
_STALE, _MALFORMED, _GAP = int(BookState.STALE), int(StateReason.MALFORMED), int(StateReason.GAP)


def new_message() -> np.ndarray:
    """int64[3]: no message is open."""
    return np.array([NOTHING, -1, 0], np.int64)


@jit(nogil=True)
def _write(
    events: Events,
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
def close_message(events: Events, count: int, message: np.ndarray, books: np.ndarray) -> int:
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
    events: Events, count: int, message: np.ndarray, books: np.ndarray, time: int, instrument: int
) -> int:
    """Be in the message of (time, instrument)."""
    if time != message[TIME] or instrument != message[INSTRUMENT]:
        count = close_message(events, count, message, books)
        message[TIME], message[INSTRUMENT] = time, instrument
    return count


@jit(nogil=True)
def _lose(
    events: Events, count: int, message: np.ndarray, books: np.ndarray, instrument: int, time: int
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
    values: np.ndarray,
    status: np.ndarray,
    instruments: np.ndarray,
    steps: np.ndarray,
    columns: np.ndarray,
    trades: bool,
    books: np.ndarray,
    message: np.ndarray,
    events: Events,
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
    events: Events,
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
