"""The desk of a strategy with compiled methods: its state, and what it asks for.

A state begins with DESK. Requests are written there, and become messages to the exchange once the message at
hand has ended (`desk_messages`). Where a desk is not run in the loop, Python does with the same requests what
it does with any strategy's.
"""

import numpy as np

from orderbook.core.jit import called_with, jit
from orderbook.core.native_types import BEYOND
from orderbook.market.block_memory import Record, address_of, load, move, record_at
from orderbook.strategies.execution.exchange_state import (
    CANCEL,
    MODIFY,
    PLACE,
    board_at,
    offset_of,
    pushed,
    vector,
)

# The price of an order that takes at any.
MARKET = -(2**63)
# Of a volume that stays as it is.
UNCHANGED = -1

# What every state begins with. Prices and volumes are in 10^-8 of the relation's units.
DESK = np.dtype(
    [
        *vector("requests"),
        *vector("open"),  # OPEN, orders under way or resting, as far as was told
        ("account", "i8"),  # address of ACCOUNT
        ("plain", "i8"),  # whether requests, and what orders come to, are all that a message can bring about
        ("asked", "i8"),  # whether Python has asked for something of it that waits for the end of a message
        ("sent", "i8"),  # requests of the message at hand
        ("looked", "i8"),  # whether `look` was called at this message
        ("stopped", "i8"),  # whether Python is to go on at the end of the message at hand
        *vector("news"),
        ("news_fills", "i8"),  # how many of the account's FILLs are of news
        ("orders", "i8"),  # how many were placed
        ("calls", "i8"),  # of methods, in the loop
        ("now", "i8"),  # ns
        ("instrument", "i8"),  # of the row at hand; -1: it names none
        ("tick", "i8"),
        ("lot", "i8"),
        ("position", "i8"),  # held of it, as far as was told
        ("boards", "i8"),  # address of int64[instruments], of the BOARD of each, 0 where it has none
        ("positions", "i8"),  # address of int64[instruments], lots held, as far as was told
        (
            "siblings",
            "i8",
        ),  # address of int64[instruments]: how far the next of its symbol is; 0: none has one
        ("own", "i8"),  # address of int64[own_count], BOARDs whose messages alone tell it anything; 0: all do
        ("own_count", "i8"),
        ("throttles", "i8"),  # address of int64[throttles_count], THROTTLEs, in the order of watches
        ("throttles_count", "i8"),
        ("due", "i8"),  # when the first of those that wait has waited for long enough, ns; LAST: none waits
        ("timers", "i8"),  # address of TIMER[timers_count]
        ("timers_count", "i8"),
        ("timer_due", "i8"),  # when the first of them comes, ns; LAST: none is called in the loop
        ("only", "i8"),  # the instrument of all of its rows; -1: there are several
        ("told_market", "i8"),  # whether Python tells it of trades, or has timers of it
        ("told_apart", "i8"),  # whether Python tells it of its fills
        ("waited", "i8"),  # how often one began to wait
        ("looks", "i8"),  # whether timers and rows that are due are left to Python
        ("on_order", "i8"),  # what is called with an ORDER_UPDATE and a FILL_UPDATE; 0: nothing is
        ("on_fill", "i8"),
        ("record", "i8"),  # where these are written
        ("called", "i8"),  # how many of the news, and of their FILLs, these were called for
        ("called_fills", "i8"),
        ("before", "i8"),  # where Python goes on, how many of the news are told before rows that have waited
        ("others", "i8"),  # calls that are not of rows
        ("look", "i8"),  # what is called with the time at the end of a message, once; 0: nothing is
        ("looking", "i8"),  # whether it is to be called
        ("wake", "i8"),  # from when on it is to be called at a message, ns; LAST: by no time
        ("relations", "i8"),  # address of RELATIONS, where what it is told goes; 0: nowhere
        ("strategy", "i8"),  # the code of its name there
        ("reasons", "i8"),  # address of int64[instruments], of the codes of reasons' texts; see `code_of`
        ("reason_count", "i8"),
        ("fees", "i8"),  # address of FEE[instruments, 2, fee_count], of what takes, and rests, by tier
        ("fee_count", "i8"),
        ("traded", "i8"),  # address of FEE[instruments], what executions count for tiers
        ("tiers", "i8"),  # address of int64[instruments], addresses of TIERS or 0; 0: no venue has any
        ("held", "i8"),  # address of HELD[instruments], its rows of `positions`
        ("limits", "i8"),  # address of LIMITS; 0: every order may be sent
        ("notionals", "i8"),  # address of NOTIONAL[instruments]
        ("worth", "i8"),  # address of WORTH; 0: nobody limits how far it may fall
        ("tied", "i8"),  # whether orders are tied to others
        ("logged", "i8"),  # whether Python sends what is asked for, which is in a log before
        (BEYOND, "i8"),  # the line at which a method had an integer of too many bits; 0: none has
    ]
)
# What methods are told of orders: prices and volumes as above, `status` as of ORDER.
ORDER_UPDATE = np.dtype(
    [
        (name, "i8")
        for name in (
            "ts", "id", "side", "volume", "has_price", "price", "filled", "status", "has_reason",
        )
    ]
)  # fmt: skip
FILL_UPDATE = np.dtype([(name, "i8") for name in ("ts", "order_id", "side", "volume", "price", "maker")])
REQUEST = np.dtype(
    [
        ("kind", "i8"),
        ("id", "i8"),
        ("instrument", "i8"),
        ("side", "i8"),
        ("volume", "i8"),
        ("price", "i8"),  # MARKET: none, or as it is
        ("post_only", "i8"),
        ("ioc", "i8"),
        ("terms", "i8"),  # whether what follows is to be looked at; see OrderTerms
        ("fok", "i8"),
        ("reduce_only", "i8"),
        ("good_until", "i8"),  # ns; 0: for ever
        ("stop", "i8"),  # MARKET: none, as of the exits
        ("trail", "i8"),  # 0: none, as of the display and the tie
        ("display", "i8"),
        ("take_profit", "i8"),
        ("stop_loss", "i8"),
        ("oco", "i8"),
    ]
)
# An order that is asked for, under way, or rests; from `known` on as the strategy was told last.
OPEN = np.dtype(
    [
        ("id", "i8"),
        ("instrument", "i8"),
        ("market", "i8"),
        ("side", "i8"),
        ("price", "i8"),  # as it was asked for last, or is where that was refused; of a market order MARKET
        ("known", "i8"),  # whether it was sent, and is not answered at once
        ("ts", "i8"),
        ("volume", "i8"),
        ("limit", "i8"),  # MARKET: it has none
        ("filled", "i8"),
        ("status", "i8"),
        ("reason", "i8"),  # the code of its text; NULL_CODE: there is none
        ("group", "i8"),  # of tied orders the first; else its own id
        ("reduces", "i8"),  # whether it can only reduce a position
    ]
)

desk_at = record_at(DESK)
request_at = record_at(REQUEST)
open_at = record_at(OPEN)
_REQUEST_BYTES, _OPEN_BYTES = REQUEST.itemsize, OPEN.itemsize
_OPEN_AT = offset_of(DESK, "open")


@jit()
def opened(desk: Record, order_id: int) -> int:
    """Where the OPEN of an order is, 0 where it is not."""
    for number in range(desk.open_count):
        place: int = desk.open + _OPEN_BYTES * number
        if open_at(place).id == order_id:
            return place
    return 0


@jit()
def _open(desk: int, order_id: int, instrument: int, side: int, price: int) -> None:
    if opened(desk_at(desk), order_id) == 0:
        one = open_at(pushed(desk + _OPEN_AT, _OPEN_BYTES))
        one.id, one.instrument, one.side, one.price = order_id, instrument, side, price
        one.market = 1 if price == MARKET else 0
        one.known, one.group, one.reduces = 0, order_id, 0


@jit()
def close(desk: Record, order_id: int) -> None:
    place = opened(desk, order_id)
    if place != 0:
        desk.open_count -= 1
        last = desk.open + _OPEN_BYTES * desk.open_count
        move(last, place, _OPEN_BYTES // 8)


@jit()
def _asked(desk: Record, kind: int, order_id: int) -> Record:
    """A request, to be filled in."""
    request: Record = request_at(pushed(address_of(desk), _REQUEST_BYTES))
    request.kind, request.id, request.instrument = kind, order_id, desk.instrument
    request.side, request.post_only, request.ioc = 0, 0, 0
    request.volume, request.price, request.terms, request.stop = UNCHANGED, MARKET, 0, MARKET
    return request


@jit()
def _placed(
    desk: Record, side: int, volume: int, price: int, post_only: bool, ioc: bool, fok: bool,
    reduce_only: bool, good_until: int, stop: int, trail: int, display: int, take_profit: int,
    stop_loss: int, oco: int,
) -> int:  # fmt: skip
    desk.orders += 1
    order_id: int = desk.orders
    _open(address_of(desk), order_id, max(desk.instrument, 0), side, price)
    request = _asked(desk, PLACE, order_id)
    request.side, request.volume, request.price = side, volume, price
    request.post_only, request.ioc = 1 if post_only else 0, 1 if ioc else 0
    exits = take_profit != MARKET or stop_loss != MARKET
    limits = fok or reduce_only or good_until != 0 or display != 0
    if exits or limits or stop != MARKET or trail != 0 or oco != 0:
        request.terms, request.fok, request.reduce_only = 1, 1 if fok else 0, 1 if reduce_only else 0
        request.good_until, request.stop, request.trail = good_until, stop, trail
        request.display, request.oco = display, oco
        request.take_profit, request.stop_loss = take_profit, stop_loss
        # Those that come once it is done have the ids after its own.
        if take_profit != MARKET:
            desk.orders += 1
            _open(address_of(desk), desk.orders, max(desk.instrument, 0), 1 - side, take_profit)
        if stop_loss != MARKET:
            desk.orders += 1
            _open(address_of(desk), desk.orders, max(desk.instrument, 0), 1 - side, MARKET)
    return order_id


@jit()
def buy(
    self: Record, volume: int, price: int = MARKET, post_only: bool = False, ioc: bool = False,
    fok: bool = False, reduce_only: bool = False, good_until: int = 0, stop: int = MARKET, trail: int = 0,
    display: int = 0, take_profit: int = MARKET, stop_loss: int = MARKET, oco: int = 0,
) -> int:  # fmt: skip
    """See `Strategy.buy`; of the instrument of the row at hand. The id of the order."""
    order_id: int = _placed(
        self, 0, volume, price, post_only, ioc, fok, reduce_only, good_until, stop, trail, display,
        take_profit, stop_loss, oco,
    )  # fmt: skip
    return order_id


@jit()
def sell(
    self: Record, volume: int, price: int = MARKET, post_only: bool = False, ioc: bool = False,
    fok: bool = False, reduce_only: bool = False, good_until: int = 0, stop: int = MARKET, trail: int = 0,
    display: int = 0, take_profit: int = MARKET, stop_loss: int = MARKET, oco: int = 0,
) -> int:  # fmt: skip
    """See `Strategy.sell`."""
    order_id: int = _placed(
        self, 1, volume, price, post_only, ioc, fok, reduce_only, good_until, stop, trail, display,
        take_profit, stop_loss, oco,
    )  # fmt: skip
    return order_id


@jit()
def hold(self: Record, target: int) -> None:
    """Buys or sells at market what is missing to a position, as far as it is known."""
    if target > self.position:
        buy(self, target - self.position)
    elif target < self.position:
        sell(self, self.position - target)


@jit()
def _ask_price(desk: Record, order_id: int, price: int) -> None:
    place = opened(desk, order_id)
    if place != 0 and price != MARKET and open_at(place).market == 0:
        open_at(place).price = price


@jit()
def modify(
    self: Record, order_id: int, volume: int = UNCHANGED, price: int = MARKET, stop: int = MARKET
) -> None:
    """See `Strategy.modify`."""
    request = _asked(self, MODIFY, order_id)
    request.volume, request.price, request.stop = volume, price, stop
    _ask_price(self, order_id, price)


@jit()
def cancel(self: Record, order_id: int) -> None:
    """See `Strategy.cancel`."""
    _asked(self, CANCEL, order_id)


@jit()
def is_open(self: Record, order_id: int) -> bool:
    """Whether an order is asked for, under way or rests, as far as was told."""
    found: bool = opened(self, order_id) != 0
    return found


@jit()
def open_order(self: Record, side: int) -> int:
    """The last order to the instrument of the row at hand on a side (0: to buy, 1: to sell) that `is_open`; 0
    where there is none."""
    found = 0
    for number in range(self.open_count):
        one = open_at(self.open + _OPEN_BYTES * number)
        if one.side == side and one.instrument == self.instrument and one.id > found:
            found = one.id
    return found


@jit()
def open_price(self: Record, order_id: int) -> int:
    """The price of an order that `is_open`, as it was asked for last, or is where the exchange has refused
    that; 0 for others, and without a limit."""
    place = opened(self, order_id)
    if place == 0 or open_at(place).market != 0:
        return 0
    price: int = open_at(place).price
    return price


@jit()
def at_hand(desk: Record, instrument: int, now: int) -> None:
    """A method is called, for a row of an instrument; -1: of none."""
    if instrument < 0:
        desk.now, desk.instrument, desk.tick, desk.lot, desk.position = now, -1, 0, 0, 0
        return
    board = board_at(load(desk.boards + 8 * instrument))
    desk.now, desk.instrument, desk.tick, desk.lot = now, instrument, board.tick, board.lot
    desk.position = load(desk.positions + 8 * instrument) * board.lot_scale
    if desk.siblings != 0:
        other = instrument + load(desk.siblings + 8 * instrument)
        while other != instrument:
            lots = load(desk.positions + 8 * other)
            if lots != 0:
                desk.position += lots * board_at(load(desk.boards + 8 * other)).lot_scale
            other += load(desk.siblings + 8 * other)


@called_with("iiiiiiiiiiiiiiii")
def place_order(
    desk: int, instrument: int, side: int, volume: int, price: int, post_only: int, ioc: int, fok: int,
    reduce_only: int, good_until: int, stop: int, trail: int, display: int, take_profit: int, stop_loss: int,
    oco: int,
) -> int:  # fmt: skip
    """A method in Python asks for an order to an instrument; its id. See `buy`."""
    record = desk_at(desk)
    record.instrument = instrument
    order_id: int = _placed(
        record, side, volume, price, post_only != 0, ioc != 0, fok != 0, reduce_only != 0, good_until, stop,
        trail, display, take_profit, stop_loss, oco,
    )  # fmt: skip
    return order_id


@called_with("iiiii")
def modify_order(desk: int, order_id: int, volume: int, price: int, stop: int) -> int:
    """A method in Python asks for a change of an order; see `modify`."""
    record = desk_at(desk)
    record.instrument = -1
    modify(record, order_id, volume, price, stop)
    return 0


@called_with("ii")
def instrument_of(desk: int, order_id: int) -> int:
    """The instrument of an order that `is_open`; -1 of others."""
    place = opened(desk_at(desk), order_id)
    found: int = -1 if place == 0 else open_at(place).instrument
    return found


@called_with("ii")
def cancel_order(desk: int, order_id: int) -> int:
    """A method in Python asks for an order to be cancelled."""
    record = desk_at(desk)
    record.instrument = -1
    cancel(record, order_id)
    return 0


@called_with("iiiiiii")
def note_open(
    desk: int, order_id: int, instrument: int, side: int, price: int, open_now: int, refused: int
) -> int:
    """An order is under way or rests, or is done. price: MARKET of a market order; refused: another was, so
    that it is this one."""
    found = opened(desk_at(desk), order_id)
    if not open_now:
        close(desk_at(desk), order_id)
    elif found == 0:
        _open(desk, order_id, instrument, side, price)
    elif refused and price != MARKET:
        open_at(found).price = price
    return 0


@called_with("iii")
def note_asked(desk: int, order_id: int, price: int) -> int:
    """An order was asked for at a price, by what nobody calls again."""
    _ask_price(desk_at(desk), order_id, price)
    return 0


@called_with("iiiiiiiiii")
def note_told(
    desk: int, order_id: int, ts: int, volume: int, limit: int, filled: int, status: int, reason: int,
    group: int, reduces: int,
) -> int:  # fmt: skip
    """What was told of an order that is under way or rests; see OPEN."""
    found = opened(desk_at(desk), order_id)
    if found != 0:
        one = open_at(found)
        one.known, one.ts, one.volume, one.limit, one.filled = 1, ts, volume, limit, filled
        one.status, one.reason, one.group, one.reduces = status, reason, group, reduces
        if group != order_id:
            desk_at(desk).tied = 1
    return 0
