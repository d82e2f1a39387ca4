"""The simulated exchange's rules for one account, compiled: orders arrive, rest, fill, and are reported.

The market's book stays as it was recorded: own orders are not in it, what they take is taken once only, and
accounts do not meet. An order that arrives takes displayed volume from the best price to its limit. One that
rests fills at its own price: by trades that reach it (see `queue_position`), then, when a message has ended,
by displayed volume of the other side at its price or beyond. Nothing fills while a book is not valid.

What an account took of a level stays taken while the level stands, so that it never fills twice against the
same orders. Volume that goes from a level is taken to be what was filled, so that fills are understated
rather than overstated.
"""

import numpy as np

from orderbook.core.jit import called_with, jit
from orderbook.engine.maps.memory import calloc, high_bits, mix, release
from orderbook.market import ladder
from orderbook.market.block_memory import Record, load, record_at, store
from orderbook.market.book_state import ASK, BID, CONTEXT, book_of, ladder_of
from orderbook.market.events import BookState
from orderbook.market.order_table import ROW, copy_at, row_at
from orderbook.strategies.execution.exchange_state import (
    ACCOUNT,
    BOARD,
    BOOK_SYNCING,
    CANCELLED,
    CLOSED,
    FILL,
    FILLED,
    LAST,
    MESSAGE,
    MODIFY,
    NO_REASON,
    NO_VOLUME,
    NOT_AT_ONCE,
    NOT_MODIFIED,
    NOTHING_LEFT,
    ORDER,
    PLACE,
    REFUSED,
    REPORT,
    RESTING,
    WOULD_TAKE,
    account_at,
    board_at,
    dropped,
    fill_at,
    message_at,
    order_at,
    pushed,
    report_at,
)
from orderbook.strategies.execution.queue_position import follow, kept

_context_at = record_at(CONTEXT)
_SYNCING, _VALID = int(BookState.SYNCING), int(BookState.VALID)
_MESSAGE_BYTES, _REPORT_BYTES, _FILL_BYTES = MESSAGE.itemsize, REPORT.itemsize, FILL.itemsize
_ROW_BYTES, _ORDER_BYTES, _SESSION_BYTES, _PAIR_BYTES = ROW.itemsize, ORDER.itemsize, 24, 16
_WORST = -(2**63)


def _offset(dtype: np.dtype, name: str) -> int:
    assert dtype.fields is not None
    return dtype.fields[name][1]


_BIDS, _ASKS = _offset(BOARD, "bids"), _offset(BOARD, "asks")
_TAKEN_BIDS, _TAKEN_ASKS = _offset(BOARD, "taken_bids"), _offset(BOARD, "taken_asks")
_MESSAGES = _offset(BOARD, "messages")
_REPORTS, _FILLS = _offset(ACCOUNT, "reports"), _offset(ACCOUNT, "fills")
_TAKEN = _offset(ACCOUNT, "taken")
# A day in ns; the first of 1970 was a Thursday.
_DAY, _FIRST_WEEKDAY = 24 * 60 * 60 * 10**9, 3


@jit()
def drawn(delays: int, count: int, key: int, order_id: int, number: int) -> int:
    """One of int64[count] delays at an address: that of the message of a number, which is about an order."""
    share = high_bits(mix(mix(key, order_id), number), 33) if count > 1 else 0
    delay: int = load(delays + 8 * (share * count >> 31))
    return delay


@jit()
def _report(board: Record, order: Record, time: int, fills: int, modified: int) -> None:
    """Sends back what has become of an order at a time of the exchange, by the last so many of the fills."""
    account, due = account_at(board.account), 0
    if account.instant == 0:
        account.numbers += 1
        delay = drawn(
            account.responses, account.responses_count, account.responses_key, order.id, account.numbers
        )
        due = max(time + delay, account.last_due)
        account.last_due = due
    if account.reports_first == account.reports_count:
        account.due = due
    report = report_at(pushed(board.account + _REPORTS, _REPORT_BYTES))
    report.due, report.id, report.instrument = due, order.id, board.instrument
    report.time, report.status, report.reason = order.time, order.status, order.reason
    report.filled, report.volume, report.limit = order.volume - order.left, order.volume, order.limit
    report.modified, report.fills, report.side = modified, fills, order.side


@jit()
def _filled(account: int, time: int, lots: int, ticks: int, maker: int) -> None:
    fill = fill_at(pushed(account + _FILLS, _FILL_BYTES))
    fill.time, fill.lots, fill.ticks, fill.maker = time, lots, ticks, maker


@jit()
def _free(order: int) -> None:
    release(order_at(order).ahead)
    release(order)


@jit()
def _open(sessions: int, count: int, time: int) -> bool:
    """Whether orders are taken at a time, by int64[count, 3] at an address."""
    day = time // _DAY
    within, weekday = time - day * _DAY, (day + _FIRST_WEEKDAY) % 7
    for number in range(count):
        session = sessions + _SESSION_BYTES * number
        days, start, end = load(session), load(session + 8), load(session + 16)
        today, yesterday = days >> weekday & 1, days >> (weekday + 6) % 7 & 1
        if start < end:
            if today and start <= within and within < end:
                return True
        elif (today and within >= start) or (yesterday and within < end):
            return True
    return count == 0


@jit()
def _entry(vector: int, key: int) -> int:
    """Where the lots are that are taken of a level, 0 where none are."""
    for number in range(load(vector + 16)):
        entry: int = load(vector) + _PAIR_BYTES * number
        if load(entry) == key:
            return entry
    return 0


@jit()
def _take(
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
                _filled(own.account, time, step, key if side == BID else -key, 0)
        key = ladder.key_below(levels, key)
    return lots - left, fills


@jit()
def _reaches(context: Record, board: int, side: int, worst: int) -> bool:
    """Whether there is volume to take from a side, to the key of the worst level."""
    levels = ladder_of(context, book_of(context, board_at(board).instrument), side)
    taken = board + (_TAKEN_BIDS if side == BID else _TAKEN_ASKS)
    key = ladder.best_key(levels)
    for _ in range(levels.levels):
        if key < worst:
            return False
        volume, _ = ladder.level_of(levels, key)
        entry = _entry(taken, key)
        if entry == 0 or volume > load(entry + 8):
            return True
        key = ladder.key_below(levels, key)
    return False


@jit()
def _refresh(context: Record, board: int, side: int) -> None:
    """Forgets what was taken of a side where the market has moved on."""
    taken = board + (_TAKEN_BIDS if side == BID else _TAKEN_ASKS)
    count = load(taken + 16)
    if count:
        levels = ladder_of(context, book_of(context, board_at(board).instrument), side)
        best, volume = _WORST, 0
        if levels.levels:
            best = ladder.best_key(levels)
            volume, _ = ladder.level_of(levels, best)
        store(taken + 16, kept(load(taken), count, best, volume))


@jit()
def _join(context: Record, board: Record, order: Record) -> None:
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
    order.front, order.level, order.traded = volume, volume, 0
    order.requeue, order.moved = 0, 1


@jit()
def _rejoin(context: Record, board: Record, order: Record) -> None:
    """An order stands where it can be said to stand when its book has been lost and is there again: in an L2
    book not further back than before."""
    known, before = order.known, order.front
    _join(context, board, order)
    if known == 0 and order.known == 0:
        order.front = min(order.front, before)


@jit()
def rest(board: int, address: int) -> None:
    """From now on an order rests, with the place in its queue that it has."""
    own, order = board_at(board), order_at(address)
    vector = board + (_BIDS if order.side == BID else _ASKS)
    pushed(vector, 8)
    data, place = load(vector), load(vector + 16) - 1
    while place > 0 and order_at(load(data + 8 * (place - 1))).key < order.key:
        store(data + 8 * place, load(data + 8 * (place - 1)))
        place -= 1
    store(data + 8 * place, address)
    own.lost |= order.requeue


@jit()
def _resting(board: int, order_id: int) -> int:
    """The address of an order that rests, 0 where it does not."""
    for side in (BID, ASK):
        vector = board + (_BIDS if side == BID else _ASKS)
        for number in range(load(vector + 16)):
            address: int = load(load(vector) + 8 * number)
            if order_at(address).id == order_id:
                return address
    return 0


@jit()
def _leave(board: int, address: int) -> None:
    """An order does not rest any more."""
    vector = board + (_BIDS if order_at(address).side == BID else _ASKS)
    data, left = load(vector), 0
    for number in range(load(vector + 16)):
        one = load(data + 8 * number)
        if one != address:
            store(data + 8 * left, one)
            left += 1
    store(vector + 16, left)


@jit()
def _refusal(context: Record, board: int, side: int, worst: int, post_only: int, time: int) -> int:
    """Why the exchange does not take an order that would take from this side of the book."""
    own = board_at(board)
    account, state = account_at(own.account), book_of(context, own.instrument).state
    if state != _VALID:
        reason: int = BOOK_SYNCING + state
        return reason
    if not _open(account.sessions, account.sessions_count, time):
        return CLOSED
    if post_only and _reaches(context, board, side, worst):
        return WOULD_TAKE
    return NO_REASON


@jit()
def _enter(context: Record, board: int, address: int, time: int, modified: int) -> None:
    """An order takes what is displayed, and what is left rests, or is cancelled."""
    own, order = board_at(board), order_at(address)
    worst = _WORST if order.market else -order.key
    lots, fills = _take(context, board, 1 - order.side, worst, order.left, time, 1)
    order.left -= lots
    order.status = RESTING if order.left else FILLED
    if order.left and (order.market or order.ioc):
        order.status, order.reason = CANCELLED, NO_VOLUME if order.market else NOT_AT_ONCE
    _report(own, order, time, fills, modified)
    if order.status == RESTING:
        _join(context, own, order)
        rest(board, address)
    else:
        _free(address)


@jit()
def _place(context: Record, board: int, address: int, time: int) -> None:
    """An order arrives: it fills, rests, or is refused."""
    order = order_at(address)
    order.time = time
    worst = _WORST if order.market else -order.key
    order.reason = _refusal(context, board, 1 - order.side, worst, order.post_only, time)
    if order.reason != NO_REASON:
        order.status = REFUSED
        _report(board_at(board), order, time, 0, 0)
        _free(address)
    else:
        _enter(context, board, address, time, 0)


@jit()
def _cancel(board: int, order_id: int, time: int, reason: int) -> None:
    """Cancels what rests of an order; nothing where nothing does."""
    address = _resting(board, order_id)
    if address:
        order = order_at(address)
        order.time, order.status, order.reason = time, CANCELLED, reason
        _leave(board, address)
        _report(board_at(board), order, time, 0, 0)
        _free(address)


@jit()
def _modify(context: Record, board: int, message: Record, time: int) -> None:
    """Gives an order another volume or limit; nothing where nothing of it rests. It keeps its place only if
    nothing but volume goes."""
    address = _resting(board, message.id)
    if address == 0:
        return
    own, order = board_at(board), order_at(address)
    filled = order.volume - order.left
    left = message.lots - filled if message.has_lots else order.left
    limit = message.limit if message.has_limit else order.limit
    key = limit if order.side == BID else -limit
    order.time = time
    if left > 0:
        reason = _refusal(context, board, 1 - order.side, -key, order.post_only, time)
        if reason != NO_REASON:
            order.reason = NOT_MODIFIED + reason
            _report(own, order, time, 0, 0)
            return
    keeps = limit == order.limit and left <= order.left
    order.volume, order.limit, order.reason = filled + max(left, 0), limit, NO_REASON
    if left > 0 and keeps:
        order.left = left
        _report(own, order, time, 0, 1)
        return
    _leave(board, address)
    order.left, order.key = max(left, 0), key
    if left <= 0:
        order.status, order.reason = CANCELLED, NOTHING_LEFT
        _report(own, order, time, 0, 1)
        _free(address)
    else:
        _enter(context, board, address, time, 1)


@jit()
def _act(board: int, message: Record, time: int) -> None:
    """A message has arrived."""
    context = _context_at(account_at(board_at(board).account).books)
    if message.kind == PLACE:
        _place(context, board, message.order, time)
    elif message.kind == MODIFY:
        _modify(context, board, message, time)
    else:
        _cancel(board, message.id, time, message.reason)


@jit()
def arrive(board: int, time: int) -> None:
    """Before a message of this time at the exchange changes the book: what has arrived earlier acts."""
    own = board_at(board)
    while own.messages_first < own.messages_count:
        message = message_at(own.messages + _MESSAGE_BYTES * own.messages_first)
        if message.arrival >= time:
            return
        _act(board, message, message.arrival)
        dropped(board + _MESSAGES, 1)


@jit()
def _match(context: Record, board: int, side: int, moved: bool, time: int, now: int) -> None:
    """Fills the orders of a side by what the message at hand has filled and what is displayed."""
    own = board_at(board)
    vector = board + (_BIDS if side == BID else _ASKS)
    data, count = load(vector), load(vector + 16)
    levels = ladder_of(context, book_of(context, own.instrument), 1 - side)
    # The least key of an order that the other side's best price meets.
    meets = -ladder.best_key(levels) if levels.blocks else LAST
    # The best of a side is the first that the other side meets.
    if count == 0 or not (moved or order_at(load(data)).key >= meets):
        return
    left = 0
    for number in range(count):
        address = load(data + 8 * number)
        order = order_at(address)
        if order.requeue:
            _rejoin(context, own, order)
        hit = order.hit
        if order.key >= meets:
            lots, _ = _take(context, board, 1 - side, -order.key, order.left - hit, now, 0)
            hit += lots
        if hit > 0:
            order.hit, order.time = 0, now
            order.left -= hit
            if order.left == 0:
                order.status = FILLED
            _filled(own.account, now, hit, order.limit, 1)
            _report(own, order, time, 1, 0)
        if order.left:
            store(data + 8 * left, address)
            left += 1
        else:
            _free(address)
    store(vector + 16, left)


@jit()
def meet(board: int, events: int, count: int, time: int, now: int) -> None:
    """A message, EVENT[count] at an address, has changed the book: its time is the exchange's, `now` the
    run's. Orders that rest follow it, and fill, best price first, then oldest."""
    own = board_at(board)
    context = _context_at(account_at(own.account).books)
    _refresh(context, board, BID)
    _refresh(context, board, ASK)
    follow(own, events, count, own.instrument)
    state = book_of(context, own.instrument).state
    if state == _VALID:
        moved = own.hit != 0 or own.lost != 0
        own.hit = own.lost = 0
        _match(context, board, BID, moved, time, now)
        _match(context, board, ASK, moved, time, now)
        return
    lost = 1 if state == _SYNCING else 0
    for side in (BID, ASK):
        vector = board + (_BIDS if side == BID else _ASKS)
        for number in range(load(vector + 16)):
            order = order_at(load(load(vector) + 8 * number))
            order.hit = 0
            order.requeue |= lost
            own.lost |= lost


@called_with("iiiii")
def delay_of(delays: int, count: int, key: int, order_id: int, number: int) -> int:
    """See `drawn`."""
    delay: int = drawn(delays, count, key, order_id, number)
    return delay


@called_with("iii")
def is_open(sessions: int, count: int, time: int) -> int:
    """See `_open`."""
    return 1 if _open(sessions, count, time) else 0


@called_with("ii")
def push(vector: int, size: int) -> int:
    """See `pushed`."""
    item: int = pushed(vector, size)
    return item


@called_with("i")
def words(count: int) -> int:
    """The address of so many words, all 0, which belong to an order."""
    address: int = calloc(count, 8)
    return address


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
def sent(
    board: int, arrival: int, at_once: int, kind: int, order_id: int, order: int, lots: int, has_lots: int,
    limit: int, has_limit: int, reason: int,
) -> None:  # fmt: skip
    """Sends a MESSAGE: it arrives then, or, at the same time, at once."""
    own = board_at(board)
    own.arrival = max(arrival, own.arrival)
    message = message_at(pushed(board + _MESSAGES, _MESSAGE_BYTES))
    message.arrival, message.kind, message.id, message.order = own.arrival, kind, order_id, order
    message.lots, message.has_lots, message.limit, message.has_limit = lots, has_lots, limit, has_limit
    message.reason = reason
    if at_once:
        _act(board, message, arrival)
        own.messages_count -= 1


@called_with("iiiiiii")
def new_order(
    order_id: int, side: int, limit: int, market: int, volume: int, ioc: int, post_only: int
) -> int:
    """See `made_order`."""
    address: int = made_order(order_id, side, limit, market, volume, ioc, post_only)
    return address


@called_with("iiiiiiiiiii")
def send(
    board: int, arrival: int, at_once: int, kind: int, order_id: int, order: int, lots: int, has_lots: int,
    limit: int, has_limit: int, reason: int,
) -> int:  # fmt: skip
    """See `sent`."""
    sent(board, arrival, at_once, kind, order_id, order, lots, has_lots, limit, has_limit, reason)
    return 0


@called_with("ii")
def before_message(board: int, time: int) -> int:
    """See `arrive`."""
    arrive(board, time)
    return 0


@called_with("iiiii")
def after_message(board: int, events: int, count: int, time: int, now: int) -> int:
    """See `meet`."""
    meet(board, events, count, time, now)
    return 0


@called_with("ii")
def rests(board: int, address: int) -> int:
    """See `rest`."""
    rest(board, address)
    return 0


@called_with("iii")
def put_taken(vector: int, key: int, lots: int) -> int:
    """So many lots are taken of a level."""
    entry = pushed(vector, _PAIR_BYTES)
    store(entry, key)
    store(entry + 8, lots)
    return 0


@jit()
def _take_first(own: Record, vector: int, count: int, size: int) -> None:
    """Takes so many items, of so many bytes, from the start of a VECTOR of an account."""
    own.taken, own.taken_bytes = load(vector) + size * load(vector + 8), size * count
    dropped(vector, count)


@called_with("ii", "y")
def take_reports(account: int, now: int) -> int:
    """Takes the REPORTs that are due by now."""
    own = account_at(account)
    end = own.reports_first
    while end < own.reports_count and report_at(own.reports + _REPORT_BYTES * end).due <= now:
        end += 1
    count = end - own.reports_first
    own.due = LAST
    if end < own.reports_count:
        own.due = report_at(own.reports + _REPORT_BYTES * end).due
    _take_first(own, account + _REPORTS, count, _REPORT_BYTES)
    taken: int = account + _TAKEN
    return taken


@called_with("ii", "y")
def take_fills(account: int, count: int) -> int:
    """Takes the first so many FILLs."""
    _take_first(account_at(account), account + _FILLS, count, _FILL_BYTES)
    taken: int = account + _TAKEN
    return taken
