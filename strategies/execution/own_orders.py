"""Own orders of an account at one instrument's book: which there are, where they stand, what they may fill.

What becomes of one is reported; others of its group lose what it fills, and those that protect it come once
it is done, for what it has filled.
"""

from orderbook.core.jit import jit
from orderbook.engine.maps.memory import calloc, high_bits, mix, release
from orderbook.market import ladder
from orderbook.market.block_memory import Record, load, store
from orderbook.market.book_state import BID, book_of, ladder_of
from orderbook.market.order_table import ROW, copy_at, row_at
from orderbook.strategies.execution.exchange_state import (
    ACCOUNT,
    BOARD,
    CANCELLED,
    ENTRY_UNFILLED,
    GOES,
    ORDER,
    ORDERS,
    REPORT,
    TIED_HAS_FILLED,
    account_at,
    board_at,
    offset_of,
    order_at,
    pushed,
    report_at,
)

_REPORT_BYTES = REPORT.itemsize
_ROW_BYTES, _ORDER_BYTES, _PAIR_BYTES = ROW.itemsize, ORDER.itemsize, 16
_BIDS, _ASKS = offset_of(BOARD, "bids"), offset_of(BOARD, "asks")
_STOPS, _ENTERING = offset_of(BOARD, "stops"), offset_of(BOARD, "entering")
_REPORTS = offset_of(ACCOUNT, "reports")
_VECTOR_BYTES = 32


@jit()
def _delay_at(rows: int, count: int, time: int) -> int:
    """The delay at a time, by int64[count, 2] at an address: times, rising, and delays, as hftbacktest's
    `IntpOrderLatency` has it."""
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        if load(rows + _PAIR_BYTES * middle) <= time:
            low = middle + 1
        else:
            high = middle
    here = rows + _PAIR_BYTES * max(low - 1, 0)
    delay: int = load(here + 8)
    if low == 0 or low == count:
        return delay
    before, after = load(here), load(here + _PAIR_BYTES)
    slope = float(load(here + _PAIR_BYTES + 8) - delay) / float(after - before)
    return delay + int(slope * float(time - before))


@jit()
def drawn(delays: int, count: int, key: int, timed: int, order_id: int, number: int, time: int) -> int:
    """How long a message of a number, which is about an order, takes that is sent at a time: one of
    int64[count] delays at an address, or where these are timed by `_delay_at`."""
    if timed != 0:
        delay_then: int = _delay_at(delays, count, time)
        return delay_then
    share = high_bits(mix(mix(key, order_id), number), 33) if count > 1 else 0
    delay: int = load(delays + 8 * (share * count >> 31))
    return delay


@jit()
def send_report(board: Record, order: Record, time: int, fills: int, modified: int) -> None:
    """Sends back what has become of an order at a time of the exchange, by the last so many of the fills."""
    account, due = account_at(board.account), 0
    if account.instant == 0:
        account.numbers += 1
        delay = drawn(
            account.responses, account.responses_count, account.responses_key, account.responses_timed,
            order.id, account.numbers, time,
        )  # fmt: skip
        due = max(time + delay, account.last_due)
        account.last_due = due
    if account.reports_first == account.reports_count:
        account.due = due
    report = report_at(pushed(board.account + _REPORTS, _REPORT_BYTES))
    report.due, report.id, report.instrument = due, order.id, board.instrument
    report.time, report.status, report.reason = order.time, order.status, order.reason
    report.filled, report.volume, report.limit = order.volume - order.left, order.volume, order.limit
    report.modified, report.fills, report.side = modified | order.changed, fills, order.side
    order.changed = 0


@jit()
def made_order(
    order_id: int, side: int, limit: int, market: int, volume: int, ioc: int, post_only: int
) -> int:
    """The address of an ORDER, which the exchange frees once it is done."""
    address: int = calloc(1, _ORDER_BYTES)
    order = order_at(address)
    order.id, order.side, order.limit, order.market = order_id, side, limit, market
    order.key = limit if side == BID else -limit
    order.volume, order.left, order.ioc, order.post_only = volume, volume, ioc, post_only
    return address


@jit()
def specify(
    order: int, fok: int, reduce_only: int, good_until: int, waits: int, stop: int, trail: int, display: int,
    tie: int,
) -> None:  # fmt: skip
    """Gives an ORDER what not every order has."""
    own = order_at(order)
    own.fok, own.reduce_only, own.good_until, own.tie = fok, reduce_only, good_until, tie
    own.waits, own.stop, own.trail, own.display = waits, stop, trail, display


@jit()
def protect(order: int, profit: int, loss: int) -> None:
    """ORDERs that come once another is done, for what it has filled; what one fills the other loses."""
    own = order_at(order)
    own.profit, own.loss = profit, loss
    if profit != 0 and loss != 0:
        order_at(profit).group = order_at(loss).group = order_at(profit).id


@jit()
def _free(order: int) -> None:
    release(order_at(order).ahead)
    release(order)


@jit()
def join_queue(context: Record, board: Record, order: Record) -> None:
    """An order stands behind everything that is displayed at its price."""
    book = book_of(context, board.instrument)
    volume, orders = ladder.level_of(ladder_of(context, book, order.side), order.key)
    release(order.ahead)
    order.ahead = order.count = 0
    # Where nothing rests, nobody is ahead in an L2 book, either.
    order.known = 1 if book.orders != 0 or volume == 0 else 0
    if book.orders != 0 and orders > 0:
        rows = calloc(orders, _ROW_BYTES)
        count = copy_at(book, order.side, order.limit, rows, orders)
        order.ahead = calloc(count, _PAIR_BYTES)
        order.count = count
        for number in range(count):
            row = row_at(rows + _ROW_BYTES * number)
            store(order.ahead + _PAIR_BYTES * number, row.id)
            store(order.ahead + _PAIR_BYTES * number + 8, row.volume)
        release(rows)
    order.front, order.level, order.traded, order.part = volume, volume, 0, 0
    order.requeue, order.moved = 0, 1


@jit()
def rejoin_queue(context: Record, board: Record, order: Record) -> None:
    """An order stands where it can be said to stand when its book has been lost and is there again: in an L2
    book not further back than before."""
    known, before = order.known, order.front
    join_queue(context, board, order)
    if known == 0 and order.known == 0:
        order.front = min(order.front, before)


@jit()
def rest(board: int, address: int) -> None:
    """From now on an order rests, with the place in its queue that it has, or waits for its stop."""
    own, order = board_at(board), order_at(address)
    if order.good_until != 0:
        own.expires = min(own.expires, order.good_until)
    if order.waits != GOES:
        store(pushed(board + _STOPS, 8), address)
        return
    vector = board + (_BIDS if order.side == BID else _ASKS)
    pushed(vector, 8)
    data, place = load(vector), load(vector + 16) - 1
    while place > 0 and order_at(load(data + 8 * (place - 1))).key < order.key:
        store(data + 8 * place, load(data + 8 * (place - 1)))
        place -= 1
    store(data + 8 * place, address)
    own.lost |= order.requeue


@jit()
def enter_later(board: int, address: int) -> None:
    """From now on an order comes as soon as the book is valid."""
    store(pushed(board + _ENTERING, 8), address)
    board_at(board).stirred = 1


@jit()
def alive(board: int, order_id: int) -> int:
    """The address of an order that rests, waits or comes, 0 where it does not."""
    for one in range(ORDERS):
        vector = board + _BIDS + _VECTOR_BYTES * one
        for number in range(load(vector + 16)):
            address: int = load(load(vector) + 8 * number)
            if order_at(address).id == order_id:
                return address
    return 0


@jit()
def leave_board(board: int, address: int) -> None:
    """An order is none of the board's any more."""
    for one in range(ORDERS):
        vector = board + _BIDS + _VECTOR_BYTES * one
        data, left = load(vector), 0
        for number in range(load(vector + 16)):
            order = load(data + 8 * number)
            if order != address:
                store(data + 8 * left, order)
                left += 1
        store(vector + 16, left)


@jit()
def protected_by(board: int, order_id: int) -> int:
    """The address of the order that is done before this one comes, 0 where there is none."""
    for one in range(ORDERS):
        vector = board + _BIDS + _VECTOR_BYTES * one
        for number in range(load(vector + 16)):
            address: int = load(load(vector) + 8 * number)
            order = order_at(address)
            profit = order.profit != 0 and order_at(order.profit).id == order_id
            if profit or (order.loss != 0 and order_at(order.loss).id == order_id):
                return address
    return 0


@jit()
def to_come(board: int, order_id: int) -> int:
    """The address of an order that comes when another is done, 0 where it does not."""
    entry = protected_by(board, order_id)
    if entry == 0:
        return 0
    before = order_at(entry)
    address: int = before.profit
    if address == 0 or order_at(address).id != order_id:
        address = before.loss
    return address


@jit()
def tie_to_named(board: int, order: Record) -> bool:
    """Ties an order to the one that it names; whether that is there."""
    address = alive(board, order.tie)
    if address == 0:
        address = to_come(board, order.tie)
    if address == 0:
        return False
    other = order_at(address)
    if other.group == 0:
        other.group = other.id
    order.group = other.group
    return True


@jit()
def room_of(board: Record, order: Record) -> int:
    """How many lots an order may fill."""
    if order.reduce_only == 0:
        lots: int = order.left
        return lots
    held = -board.position if order.side == BID else board.position
    room: int = max(0, min(order.left, held))
    return room


@jit()
def has_filled(board: int, order: Record, lots: int) -> None:
    """An order has filled so many lots: others of its group lose them."""
    own = board_at(board)
    own.position += lots if order.side == BID else -lots
    own.stirred = 1
    if order.group == 0:
        return
    for one in range(ORDERS):
        vector = board + _BIDS + _VECTOR_BYTES * one
        for number in range(load(vector + 16)):
            other = order_at(load(load(vector) + 8 * number))
            if other.group == order.group and other.id != order.id and other.left > 0:
                if order.left == 0 or other.left <= lots:
                    other.ended = TIED_HAS_FILLED
                elif other.ended == 0:
                    other.volume -= lots
                    other.left -= lots
                    other.changed = 1


@jit()
def _end_unfilled(board: Record, address: int, time: int, now: int) -> None:
    """An order that was to come does not, as nothing was filled that it could protect."""
    if address != 0:
        order = order_at(address)
        order.time, order.status, order.reason = now, CANCELLED, ENTRY_UNFILLED
        send_report(board, order, time, 0, 0)
        _free(address)


@jit()
def _come(board: int, address: int, lots: int) -> None:
    """An order comes, for what another has filled."""
    if address != 0:
        order = order_at(address)
        order.volume, order.left, order.changed = lots, lots, 1
        enter_later(board, address)


@jit()
def end_order(board: int, address: int, time: int, now: int) -> None:
    """Nothing becomes of an order any more; what protects it comes."""
    order = order_at(address)
    lots = order.volume - order.left
    if lots > 0:
        _come(board, order.profit, lots)
        _come(board, order.loss, lots)
    else:
        _end_unfilled(board_at(board), order.profit, time, now)
        _end_unfilled(board_at(board), order.loss, time, now)
    _free(address)
