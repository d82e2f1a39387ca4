"""Rows of a view as the orders that should be there: what changes of rows ask for, in compiled code.

See `orderbook.strategies.order_views`, which says by what rules. A state is a DESK, and behind it a VIEWED:
rows as the view has them (ROW), the order of each (WORKING), and what a row asks for (WANTED). Prices and
volumes of what is asked for are in 10^-8 of the relation's units, in steps of the instrument. What the rules
cannot go on with, since a row is not an order, is left to Python, which says what is wrong.
"""

import math

import numpy as np

from orderbook.core.jit import called_with, jit
from orderbook.engine.maps.memory import calloc, release
from orderbook.engine.maps.wide_numbers import low_word, wide, words_to_wide
from orderbook.market.block_memory import Record, address_of, load, move, record_at, store
from orderbook.market.book_state import CONTEXT, book_of
from orderbook.market.events import BookState
from orderbook.market.instruments import LARGEST, SCALE
from orderbook.strategies.execution.desk import (
    DESK,
    MARKET,
    ORDER_UPDATE,
    buy,
    cancel,
    desk_at,
    modify,
    sell,
)
from orderbook.strategies.execution.exchange_state import (
    CANCELLED,
    FILLED,
    LAST,
    REFUSED,
    RESTING,
    WAITING,
    dropped,
    offset_of,
    pushed,
    vector,
)

_SECOND = 10**9
# Columns of orders, as the state has them.
COLUMNS = (
    "venue", "symbol", "side", "tag", "price", "volume", "kind", "stop", "trail", "display", "reduce_only",
    "good_until",
)  # fmt: skip
(
    _VENUE, _SYMBOL, _SIDE, _TAG, _PRICE, _VOLUME, _KIND, _STOP, _TRAIL, _DISPLAY, _REDUCE_ONLY, _GOOD_UNTIL,
) = range(len(COLUMNS))  # fmt: skip
# Where a column is in a row, in words, 0: it is not there; what it holds, and its decimal places.
COLUMN = np.dtype([("at", "i8"), ("form", "i8"), ("scale", "i8")])
WORD, REAL, WIDE = range(3)
# Codes of an instrument's venue and symbol, and its steps.
PLACE = np.dtype([("venue", "i8"), ("symbol", "i8"), ("tick", "i8"), ("lot", "i8")])
KINDS = ("limit", "post only", "ioc", "fok")
_KIND_COUNT = len(KINDS)
LIMIT, POST_ONLY, IOC, FOK = range(_KIND_COUNT)

VIEWED = np.dtype(
    [
        *vector("rows"),  # addresses of ROW
        *vector("working"),  # addresses of WORKING
        *vector("changed"),  # of those that are to be looked at
        *vector("waiting"),  # and of those that were held back
        *vector("chosen"),  # of those that something is asked for, in their order
        *vector("times"),  # of the requests of the last second, ns
        ("columns", "i8"),  # address of COLUMN, by COLUMNS
        ("keys", "i8"),  # words of a row's key in the view, and of a row
        ("words", "i8"),
        ("places", "i8"),  # address of PLACE[places_count], by instrument
        ("places_count", "i8"),
        ("books", "i8"),  # address of the books' CONTEXT, 0: all books are valid
        ("sides", "i8"),  # address of int64[2], codes of SIDES, and of KINDS
        ("kinds", "i8"),
        ("min_life", "i8"),  # ns
        ("min_move", "i8"),  # ticks
        ("max_requests", "i8"),  # in a second; 0: any number
        ("refill", "i8"),
        ("quiet", "i8"),  # whether rows are read that are to be looked at no more than before
        ("texts", "i8"),  # whether tags are texts
        ("ranks", "i8"),  # address of int64[ranks_count, 2], of these by code their places; see `rank`
        ("ranks_count", "i8"),
        ("unranked", "i8"),  # whether Python is to rank them, as one is new
        ("too_small", "i8"),  # how often a row was looked at that asks for less than a lot
        ("wrong", "i8"),  # what Python is to say of the row at `wrong_row`
        ("wrong_row", "i8"),
        ("wrong_order", "i8"),
    ]
)
NOTHING_WRONG, NO_KEY, TWO_ROWS, NO_KIND = range(4)
STATE = np.dtype([*DESK.descr, *VIEWED.descr])
# A row, behind it the words of its key and of the row itself: its order, 0 where it can be none, and the
# next row of that.
ROW = np.dtype([("order", "i8"), ("next", "i8")])
WANTED = np.dtype(
    [
        ("volume", "i8"),  # 0: nothing is wanted
        ("has_price", "i8"),
        ("price", "i8"),
        ("has_stop", "i8"),
        ("stop", "i8"),
        ("kind", "i8"),
        ("trail", "i8"),  # 0: none, as of the display and the time
        ("display", "i8"),
        ("reduce_only", "i8"),
        ("good_until", "i8"),
    ]
)
# The order of a row, as far as was told; behind it the WANTED that the row asks for, that was asked for last,
# and that is not asked for again.
WORKING = np.dtype(
    [
        ("venue", "i8"),
        ("symbol", "i8"),
        ("side", "i8"),
        ("has_tag", "i8"),
        ("tag", "i8"),
        ("rank", "i8"),  # its place among tags, which Python says of those that are texts
        ("instrument", "i8"),  # -1: its venue and symbol name none
        ("row", "i8"),  # address of its first ROW, 0: there is none
        ("changed", "i8"),  # whether it is to be looked at, and waits for that
        ("waits", "i8"),
        ("choice", "i8"),  # what is asked for
        ("id", "i8"),  # 0 without an order
        ("has_price", "i8"),
        ("price", "i8"),  # the order's own, as asked
        ("volume", "i8"),
        ("filled", "i8"),  # of the order
        ("before", "i8"),  # of earlier ones of the row; below 0: what was filled for a row that has gone
        ("since", "i8"),  # when the exchange was asked last, ns
        ("asked", "i8"),  # whether that is not answered
        ("cancelling", "i8"),
        ("has_asked", "i8"),  # whether there are these WANTED
        ("has_ended", "i8"),
    ]
)
_CANCEL, _MODIFY, _PLACE, _NOTHING = range(4)
_VALID = int(BookState.VALID)
_ROW_BYTES, _WORKING_BYTES, _WANTED_WORDS = ROW.itemsize, WORKING.itemsize, WANTED.itemsize // 8
_VECTOR_WORDS = len(vector(""))
_COLUMN_BYTES, _PLACE_BYTES = COLUMN.itemsize, PLACE.itemsize
# Where the WANTED of a WORKING are.
WANTS_AT = _WORKING_BYTES
ASKED_AT = WANTS_AT + WANTED.itemsize
ENDED_AT = ASKED_AT + WANTED.itemsize
_ROWS, _WORKING, _CHANGED, _WAITING, _CHOSEN, _TIMES = (
    offset_of(STATE, name) for name in ("rows", "working", "changed", "waiting", "chosen", "times")
)
# More than an order may have; what is beyond is refused as too large.
_TOO_LARGE = LARGEST + 1
_LARGEST_REAL = float(_TOO_LARGE)
_MANY = 10**18

_state_at = record_at(STATE)
_row_at = record_at(ROW)
_working_at = record_at(WORKING)
_wanted_at = record_at(WANTED)
_column_at = record_at(COLUMN)
_place_at = record_at(PLACE)
_update_at = record_at(ORDER_UPDATE)
_context_at = record_at(CONTEXT)
_REAL = np.dtype([("value", "f8")])
_real_at = record_at(_REAL)


@jit()
def _column(state: Record, row: int, number: int) -> int:
    """The address of a column's flag in the words of a row, 0 where it is NULL or not there."""
    at = _column_at(state.columns + _COLUMN_BYTES * number).at
    if at == 0 or load(row + 8 * at) == 0:
        return 0
    place: int = row + 8 * at
    return place


@jit()
def _word(state: Record, row: int, number: int) -> int:
    """The word of a column, 0 where it is NULL or not there."""
    place = _column(state, row, number)
    word: int = load(place + 8) if place != 0 else 0
    return word


@jit()
def _is_number(state: Record, row: int, number: int) -> bool:
    """Whether a column holds a finite number."""
    place = _column(state, row, number)
    if place == 0:
        return False
    if _column_at(state.columns + _COLUMN_BYTES * number).form == REAL:
        finite: bool = math.isfinite(_real_at(place + 8).value)
        return finite
    return True


@jit()
def _rounded(state: Record, row: int, number: int, step: int, up: bool) -> int:
    """The number in a column as a multiple of a step, both in 10^-8; the step is above 0.

    A double is rounded to 10^-8 first. What is too large for an order is some number that is.
    """
    place, column = _column(state, row, number), _column_at(state.columns + _COLUMN_BYTES * number)
    scale = column.scale
    if column.form == REAL:
        real = _real_at(place + 8).value * 1e8
        if real > _LARGEST_REAL or real < -_LARGEST_REAL:
            return _TOO_LARGE if real > 0.0 else -_TOO_LARGE
        nearest = int(real + 0.5) if real > 0.0 else -int(0.5 - real)
        value, scale = wide(nearest), SCALE
    elif column.form == WIDE:
        value = words_to_wide(load(place + 8), load(place + 16))
    else:
        value = wide(load(place + 8))
    if up:
        value = wide(0) - value
    divisor = wide(step)
    for _ in range(scale, SCALE):
        if value < wide(_TOO_LARGE) and value > wide(-_TOO_LARGE):
            value = value * 10
    # Rounding down by factors is rounding down once.
    for _ in range(SCALE, scale):
        if divisor > wide(_MANY):
            value, divisor = value // divisor, wide(1)
        divisor = divisor * 10
    steps = value // divisor
    if up:
        steps = wide(0) - steps
    if steps > wide(_TOO_LARGE // step) or steps < wide(-(_TOO_LARGE // step)):
        return _TOO_LARGE if steps > wide(0) else -_TOO_LARGE
    found: int = low_word(steps) * step
    return found


@jit()
def _changed(state: Record, order: int) -> None:
    """An order is to be looked at, at the end of the message."""
    if state.quiet == 0:
        state.looking = 1
        own = _working_at(order)
        if own.changed == 0:
            own.changed = 1
            store(pushed(address_of(state) + _CHANGED, 8), order)


@jit()
def _instrument_of(state: Record, venue: int, symbol: int) -> int:
    for number in range(state.places_count):
        place = _place_at(state.places + _PLACE_BYTES * number)
        if place.venue == venue and place.symbol == symbol:
            return number
    return -1


@jit()
def _order_of(state: Record, row: int) -> int:
    """The WORKING of the words of a row, a new one at its first; 0 where they name none."""
    side = -1
    if _column(state, row, _SIDE) != 0:
        for number in range(2):
            if load(state.sides + 8 * number) == _word(state, row, _SIDE):
                side = number
    if _column(state, row, _VENUE) == 0 or _column(state, row, _SYMBOL) == 0 or side < 0:
        return 0
    has_tag = 1 if _column(state, row, _TAG) != 0 else 0
    address: int = working_of(
        address_of(state), _word(state, row, _VENUE), _word(state, row, _SYMBOL), side, has_tag,
        _word(state, row, _TAG),
    )  # fmt: skip
    return address


@jit()
def _rank_of(state: Record, tag: int) -> int:
    """The place of a text among tags; one that is new is left to Python."""
    low, high = 0, state.ranks_count
    while low < high:
        middle = (low + high) >> 1
        if load(state.ranks + 16 * middle) < tag:
            low = middle + 1
        else:
            high = middle
    if low == state.ranks_count or load(state.ranks + 16 * low) != tag:
        state.unranked = 1
        return 0
    rank: int = load(state.ranks + 16 * low + 8)
    return rank


@jit()
def working_of(state_at: int, venue: int, symbol: int, side: int, has_tag: int, tag: int) -> int:
    """The WORKING of a key, which are codes; a new one at its first."""
    state = _state_at(state_at)
    for number in range(state.working_count):
        place: int = load(state.working + 8 * number)
        one = _working_at(place)
        named = one.symbol == symbol and one.venue == venue
        if named and one.side == side and one.tag == tag and one.has_tag == has_tag:
            return place
    made: int = calloc(1, _WORKING_BYTES + 24 * _WANTED_WORDS)
    store(pushed(state_at + _WORKING, 8), made)
    own = _working_at(made)
    own.venue, own.symbol, own.side, own.has_tag, own.tag = venue, symbol, side, has_tag, tag
    own.rank = tag
    if has_tag != 0 and state.texts != 0:
        own.rank = _rank_of(state, tag)
    own.instrument = _instrument_of(state, venue, symbol)
    return made


@jit()
def _join(state: Record, place: int) -> None:
    """A row is one of its order's."""
    row, words = _row_at(place), place + _ROW_BYTES + 8 * state.keys
    row.order = _order_of(state, words)
    if row.order == 0:
        state.wrong, state.wrong_row, state.looking = NO_KEY, words, 1
        return
    own = _working_at(row.order)
    row.next, own.row = own.row, place
    _changed(state, row.order)


@jit()
def _part(state: Record, place: int) -> None:
    """A row is not one of its order's any more."""
    row = _row_at(place)
    if row.order == 0:
        return
    own = _working_at(row.order)
    if own.row == place:
        own.row = row.next
    else:
        before = _row_at(own.row)
        while before.next != place:
            before = _row_at(before.next)
        before.next = row.next
    _changed(state, row.order)


@jit()
def _row_of(state: Record, key: int) -> int:
    """The number of the ROW of a key in the view, -1 where it is not known."""
    for number in range(state.rows_count):
        own, word = load(state.rows + 8 * number) + _ROW_BYTES, 0
        while word < state.keys and load(own + 8 * word) == load(key + 8 * word):
            word += 1
        if word == state.keys:
            return number
    return -1


@jit()
def note_row(state_at: int, new: int, old: int) -> int:
    """A row of the view has changed: its words at addresses, before those of the old row those of its key."""
    state = _state_at(state_at)
    key = old - 8 * state.keys
    number = _row_of(state, key)
    place = load(state.rows + 8 * number) if number >= 0 else 0
    if number >= 0:
        _part(state, place)
    elif load(old) != 0:
        # Rows were read after it had gone, as after a crash.
        order = _order_of(state, old)
        if order != 0:
            _changed(state, order)
    if load(new) != 0:
        if number < 0:
            place = calloc(1, _ROW_BYTES + 8 * (state.keys + state.words))
            store(pushed(state_at + _ROWS, 8), place)
            move(key, place + _ROW_BYTES, state.keys)
        move(new, place + _ROW_BYTES + 8 * state.keys, state.words)
        _join(state, place)
    elif number >= 0:
        state.rows_count -= 1
        store(state.rows + 8 * number, load(state.rows + 8 * state.rows_count))
        release(place)
    return 0


@jit()
def _steps(state: Record, order: Record) -> tuple[int, int]:
    """The tick and the lot of an order's instrument, of none 10^-8."""
    if order.instrument < 0:
        return 1, 1
    place = _place_at(state.places + _PLACE_BYTES * order.instrument)
    return place.tick, place.lot


@jit()
def _want(state: Record, order: int) -> bool:
    """Writes what the row of an order asks for, of volume 0 where it asks for none; False: it is wrong."""
    own, wanted = _working_at(order), _wanted_at(order + WANTS_AT)
    for word in range(_WANTED_WORDS):
        store(order + WANTS_AT + 8 * word, 0)
    if own.row == 0:
        return True
    row = own.row + _ROW_BYTES + 8 * state.keys
    if _row_at(own.row).next != 0 or load(row) > 1:
        state.wrong, state.wrong_row, state.wrong_order = TWO_ROWS, row, order
        return False
    if _column(state, row, _KIND) != 0:
        wanted.kind = -1
        for number in range(_KIND_COUNT):
            if load(state.kinds + 8 * number) == _word(state, row, _KIND):
                wanted.kind = number
        if wanted.kind < 0:
            state.wrong, state.wrong_row, state.wrong_order = NO_KIND, row, order
            return False
    if not _is_number(state, row, _VOLUME):
        return True
    if _column(state, row, _PRICE) != 0 and not _is_number(state, row, _PRICE):
        return True
    tick, lot = _steps(state, own)
    # Prices and stops are rounded away from the market.
    if _is_number(state, row, _PRICE):
        wanted.has_price, wanted.price = 1, _rounded(state, row, _PRICE, tick, own.side == 1)
    if _is_number(state, row, _STOP):
        wanted.has_stop, wanted.stop = 1, _rounded(state, row, _STOP, tick, own.side == 0)
    if _is_number(state, row, _TRAIL):
        wanted.trail = _rounded(state, row, _TRAIL, tick, True)
    if _is_number(state, row, _DISPLAY):
        wanted.display = _rounded(state, row, _DISPLAY, lot, False)
    wanted.reduce_only = 1 if _word(state, row, _REDUCE_ONLY) != 0 else 0
    if _column(state, row, _GOOD_UNTIL) != 0:
        # The first moment there is has passed as well as one after it.
        wanted.good_until = max(1, _word(state, row, _GOOD_UNTIL))
    wanted.volume = max(0, _rounded(state, row, _VOLUME, lot, False))
    if wanted.volume == 0 and _rounded(state, row, _VOLUME, 1, False) > 0:
        state.too_small += 1
    return True


@jit()
def _same(one: int, other: int) -> bool:
    """Whether two WANTED are the same."""
    word = 0
    while word < _WANTED_WORDS and load(one + 8 * word) == load(other + 8 * word):
        word += 1
    same: bool = word == _WANTED_WORDS
    return same


@jit()
def _hold(state: Record, order: int, time: int) -> None:
    """Looks at an order again at the first message from a time on."""
    own = _working_at(order)
    if own.waits == 0:
        own.waits = 1
        store(pushed(address_of(state) + _WAITING, 8), order)
    state.wake = min(state.wake, time)


@jit()
def _is_valid(state: Record, order: Record) -> bool:
    """Whether the book of an order's instrument is valid; also where there is no such instrument."""
    if state.books == 0 or order.instrument < 0:
        return True
    valid: bool = book_of(_context_at(state.books), order.instrument).state == _VALID
    return valid


@jit()
def _missing(state: Record, order: int) -> int:
    """What is to be asked for where there is no order."""
    own, wanted = _working_at(order), _wanted_at(order + WANTS_AT)
    if wanted.volume == 0:
        own.before, own.has_asked, own.has_ended, own.since = 0, 0, 0, 0
        return _NOTHING
    if own.has_ended and _same(order + WANTS_AT, order + ENDED_AT):
        return _NOTHING
    own.has_ended = 0
    if own.before >= wanted.volume:
        if state.refill == 0:
            return _NOTHING
        own.before = 0
    return _PLACE


@jit()
def _price(state: Record, order: int) -> int:
    """The price that an order with a limit is to have."""
    own, wanted = _working_at(order), _wanted_at(order + WANTS_AT)
    tick, _ = _steps(state, own)
    near = own.has_price and abs(wanted.price - own.price) < state.min_move * tick
    price: int = own.price if near else wanted.price
    return price


@jit()
def _wrong(state: Record, order: int, now: int) -> int:
    """What is to be asked for of an order that rests."""
    own, wanted, before = _working_at(order), _wanted_at(order + WANTS_AT), _wanted_at(order + ASKED_AT)
    kind = _CANCEL
    if wanted.volume == 0:
        own.before, own.has_ended = -own.filled, 0
    elif wanted.volume - own.before > own.filled and own.has_asked:
        if own.has_ended and _same(order + WANTS_AT, order + ENDED_AT):
            return _NOTHING
        same = wanted.kind == before.kind and wanted.trail == before.trail
        same = same and wanted.display == before.display and wanted.reduce_only == before.reduce_only
        same = same and wanted.good_until == before.good_until
        same = same and wanted.has_price == before.has_price and wanted.has_stop == before.has_stop
        # A market order that does not wait is not modified.
        same = same and (wanted.has_price or wanted.has_stop or wanted.trail) != 0
        price = _price(state, order) if wanted.has_price else 0
        there = wanted.has_price == own.has_price and (own.has_price == 0 or price == own.price)
        if same and there and wanted.volume - own.before == own.volume and wanted.stop == before.stop:
            return _NOTHING
        kind = _MODIFY if same else _CANCEL
    held = own.since + state.min_life
    if now < held:
        _hold(state, order, held)
        return _NOTHING
    return kind


@jit()
def _choose(state: Record, order: int, now: int) -> int:
    """What is to be asked for of an order."""
    own = _working_at(order)
    if not _is_valid(state, own):
        # What rows say is told when the book is back.
        return _CANCEL if own.id != 0 and own.asked == 0 else _NOTHING
    if not _want(state, order):
        return _NOTHING
    if own.asked:
        if _wanted_at(order + WANTS_AT).volume == 0:
            own.before, own.has_ended = -own.filled, 0
        return _NOTHING
    choice: int = _missing(state, order) if own.id == 0 else _wrong(state, order, now)
    return choice


@jit()
def _before(one: Record, other: Record) -> bool:
    """Whether one order is asked for before another: cancellations first, then changes, then by keys."""
    if one.choice != other.choice:
        earlier: bool = one.choice < other.choice
    elif one.instrument != other.instrument:
        earlier = one.instrument < other.instrument
    elif one.side != other.side:
        earlier = one.side < other.side
    elif one.has_tag != other.has_tag:
        earlier = one.has_tag < other.has_tag
    else:
        earlier = one.rank < other.rank
    return earlier


@jit()
def _forget(state: Record, order: int) -> None:
    """Gives back what is known of an order that no row asks for, and that nothing is under way of."""
    own = _working_at(order)
    if own.row == 0 and own.id == 0 and own.waits == 0 and own.changed == 0:
        for number in range(state.working_count):
            if load(state.working + 8 * number) == order:
                state.working_count -= 1
                store(state.working + 8 * number, load(state.working + 8 * state.working_count))
                release(order)
                return


@jit()
def _ask(state: Record, order: int, now: int) -> None:
    """Asks the exchange, unless that were too often."""
    own, wanted, address = _working_at(order), _wanted_at(order + WANTS_AT), address_of(state)
    while (
        state.times_first < state.times_count and load(state.times + 8 * state.times_first) <= now - _SECOND
    ):
        dropped(address + _TIMES, 1)
    sent = state.times_count - state.times_first
    limited = state.max_requests != 0 and sent >= state.max_requests
    if limited and (own.choice != _CANCEL or _is_valid(state, own)):
        _hold(state, order, load(state.times + 8 * state.times_first) + _SECOND)
        return
    if state.max_requests:
        store(pushed(address + _TIMES, 8), now)
    own.asked, own.since = 1, now
    desk = desk_at(address)
    desk.instrument = own.instrument
    if own.choice == _CANCEL:
        own.cancelling = 1
        cancel(desk, own.id)
        return
    if own.choice == _PLACE:
        own.has_price = 0
    own.price = _price(state, order) if wanted.has_price else 0
    own.has_price, own.volume = wanted.has_price, wanted.volume - own.before
    move(order + WANTS_AT, order + ASKED_AT, _WANTED_WORDS)
    own.has_asked = 1
    price, stop = own.price if own.has_price else MARKET, wanted.stop if wanted.has_stop else MARKET
    if own.choice == _MODIFY:
        modify(desk, own.id, own.volume, price, stop)
    elif own.side == 0:
        own.id = buy(
            desk, own.volume, price, wanted.kind == POST_ONLY, wanted.kind == IOC, wanted.kind == FOK,
            wanted.reduce_only != 0, wanted.good_until, stop, wanted.trail, wanted.display,
        )  # fmt: skip
    else:
        own.id = sell(
            desk, own.volume, price, wanted.kind == POST_ONLY, wanted.kind == IOC, wanted.kind == FOK,
            wanted.reduce_only != 0, wanted.good_until, stop, wanted.trail, wanted.display,
        )  # fmt: skip


@jit()
def _look(state_at: int, now: int) -> bool:
    """Looks at the orders that are to be looked at; False where a row is wrong, or tags are to be ranked."""
    state = _state_at(state_at)
    if state.unranked != 0:
        return False
    state.looking = 0
    for number in range(state.waiting_count):
        order = load(state.waiting + 8 * number)
        _working_at(order).waits = 0
        if _working_at(order).changed == 0:
            _working_at(order).changed = 1
            store(pushed(state_at + _CHANGED, 8), order)
    state.waiting_count = state.chosen_count = 0
    for number in range(state.changed_count):
        order = load(state.changed + 8 * number)
        own = _working_at(order)
        own.choice = _choose(state, order, now)
        if own.choice != _NOTHING:
            pushed(state_at + _CHOSEN, 8)
            place = state.chosen_count - 1
            while place > 0 and _before(own, _working_at(load(state.chosen + 8 * (place - 1)))):
                store(state.chosen + 8 * place, load(state.chosen + 8 * (place - 1)))
                place -= 1
            store(state.chosen + 8 * place, order)
    if state.wrong != NOTHING_WRONG:
        return False
    for number in range(state.changed_count):
        order = load(state.changed + 8 * number)
        _working_at(order).changed = 0
        if _working_at(order).choice == _NOTHING:
            _forget(state, order)
    state.changed_count = 0
    for number in range(state.chosen_count):
        _ask(state, load(state.chosen + 8 * number), now)
    return True


@jit()
def look(state_at: int, now: int, unused: int) -> int:
    """See `_look`; what the loop calls at the end of a message. 0: it is done."""
    return 0 if _look(state_at, now) else 1


@jit()
def note_order(state_at: int, update: int, unused: int) -> int:
    """The exchange has answered, or filled something: an ORDER_UPDATE at an address."""
    state, told = _state_at(state_at), _update_at(update)
    order = 0
    for number in range(state.working_count):
        if _working_at(load(state.working + 8 * number)).id == told.id:
            order = load(state.working + 8 * number)
    if order == 0:
        return 0
    own = _working_at(order)
    quiet = own.filled == told.filled
    own.filled = told.filled
    if told.status == FILLED or told.status == CANCELLED or told.status == REFUSED:
        if told.status != FILLED and own.cancelling == 0:
            move(order + ASKED_AT, order + ENDED_AT, _WANTED_WORDS)
            own.has_ended = own.has_asked
        own.id, own.before, own.filled, own.asked, own.cancelling = 0, own.before + own.filled, 0, 0, 0
    elif (told.status == RESTING or told.status == WAITING) and own.cancelling == 0:
        there = told.has_price == own.has_price and (own.has_price == 0 or told.price == own.price)
        if there and told.volume == own.volume:
            own.asked = 0
        elif quiet and told.has_reason:
            # It could not be modified, and is as it was.
            own.has_price, own.price, own.volume, own.asked = told.has_price, told.price, told.volume, 0
            move(order + ASKED_AT, order + ENDED_AT, _WANTED_WORDS)
            own.has_ended = own.has_asked
    _changed(state, order)
    return 0


@called_with("iii")
def row_changed(state_at: int, new: int, old: int) -> int:
    """See `note_row`."""
    note_row(state_at, new, old)
    return 0


@called_with("ii")
def order_changed(state_at: int, update: int) -> int:
    """See `note_order`."""
    note_order(state_at, update, 0)
    return 0


@called_with("ii")
def look_now(state_at: int, now: int) -> int:
    """See `look`."""
    wrong: int = look(state_at, now, 0)
    return wrong


@called_with("iii")
def look_anew(state_at: int, venue: int, symbol: int) -> int:
    """Looks at the orders of a venue and symbol, of codes; below 0: at all, also at what was refused."""
    state = _state_at(state_at)
    for number in range(state.working_count):
        order = load(state.working + 8 * number)
        own = _working_at(order)
        if venue < 0 or (own.venue == venue and own.symbol == symbol):
            own.has_ended = 0
            _changed(state, order)
    return 0


@called_with("i")
def forget_rows(state_at: int) -> int:
    """No row of the view is known any more."""
    state = _state_at(state_at)
    for number in range(state.rows_count):
        release(load(state.rows + 8 * number))
    state.rows_count = 0
    for number in range(state.working_count):
        _working_at(load(state.working + 8 * number)).row = 0
    state.wrong = NOTHING_WRONG
    return 0


@called_with("iiiiii")
def order_of(state_at: int, venue: int, symbol: int, side: int, has_tag: int, tag: int) -> int:
    """See `working_of`."""
    address: int = working_of(state_at, venue, symbol, side, has_tag, tag)
    return address


@called_with("iii")
def hold(state_at: int, order: int, changed: int) -> int:
    """An order waits to be looked at, or is to be at the end of the message."""
    if changed:
        _changed(_state_at(state_at), order)
    else:
        _hold(_state_at(state_at), order, LAST)
    return 0


@called_with("ii")
def note_time(state_at: int, time: int) -> int:
    """Something was asked for at a time, ns."""
    store(pushed(state_at + _TIMES, 8), time)
    return 0


@called_with("i")
def free_rows(state_at: int) -> int:
    """Gives back what a state has."""
    state = _state_at(state_at)
    for number in range(state.rows_count):
        release(load(state.rows + 8 * number))
    for number in range(state.working_count):
        release(load(state.working + 8 * number))
    state.rows_count = state.working_count = 0
    for one in (_ROWS, _WORKING, _CHANGED, _WAITING, _CHOSEN, _TIMES):
        release(load(state_at + one))
        for word in range(_VECTOR_WORDS):
            store(state_at + one + 8 * word, 0)
    return 0
