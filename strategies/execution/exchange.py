"""The simulated exchange's rules for one account, compiled: orders arrive, rest, fill, and are reported.

The market's book stays as it was recorded: own orders are not in it, what they take is taken once only
(`displayed_volume`), and accounts do not meet. An order that arrives takes displayed volume from the best
price to its limit. One that rests fills at its own price: by trades that reach it (see `queue_position`),
then, when a message has ended, by displayed volume of the other side at its price or beyond. Nothing fills
while a book is not valid.

An order with a stop waits beside the book until a price reaches it; it then acts as one that arrives when
the message has ended. What an order fills, others of its group lose, and an order that only reduces a
position fills up to that. Both hold at each fill; who is left without anything is cancelled when the message
has ended, and orders that protect what another has filled come then (`_settle`).
"""

from orderbook.core.jit import jit
from orderbook.engine.maps.memory import calloc, high_bits, mix, release
from orderbook.market import ladder
from orderbook.market.block_memory import Record, load, record_at, store
from orderbook.market.book_state import ASK, BID, CONTEXT, book_of, ladder_of
from orderbook.market.events import EVENT, Action, BookState
from orderbook.market.order_table import ROW, copy_at, row_at
from orderbook.strategies.execution.displayed_volume import WORST, filled, forget_passed, take, takeable
from orderbook.strategies.execution.exchange_state import (
    ACCOUNT,
    BOARD,
    BOOK_SYNCING,
    BY_MARK,
    BY_TOUCH,
    CANCELLED,
    CLOSED,
    ENTRY_UNFILLED,
    EXPIRED,
    FILLED,
    FIRST,
    GOES,
    LAST,
    MESSAGE,
    MODIFY,
    NO_REASON,
    NO_VOLUME,
    NOT_AT_ONCE,
    NOT_MODIFIED,
    NOT_WHOLE,
    NOTHING_LEFT,
    NOTHING_TO_REDUCE,
    ORDER,
    ORDERS,
    PLACE,
    REACHED,
    REFUSED,
    REPORT,
    RESTING,
    STOP,
    TIED_HAS_FILLED,
    TIED_IS_DONE,
    WAITING,
    WOULD_TAKE,
    account_at,
    board_at,
    dropped,
    message_at,
    offset_of,
    order_at,
    pushed,
    report_at,
)
from orderbook.strategies.execution.queue_position import follow

_context_at = record_at(CONTEXT)
_event_at = record_at(EVENT)
_SYNCING, _VALID = int(BookState.SYNCING), int(BookState.VALID)
_TRADE, _EXECUTE, _MARK = int(Action.TRADE), int(Action.EXECUTE), int(Action.MARK)
_MESSAGE_BYTES, _REPORT_BYTES, _EVENT_BYTES = MESSAGE.itemsize, REPORT.itemsize, EVENT.itemsize
_ROW_BYTES, _ORDER_BYTES, _SESSION_BYTES, _PAIR_BYTES = ROW.itemsize, ORDER.itemsize, 24, 16
_BIDS, _ASKS = offset_of(BOARD, "bids"), offset_of(BOARD, "asks")
_STOPS, _ENTERING = offset_of(BOARD, "stops"), offset_of(BOARD, "entering")
_MESSAGES, _REPORTS = offset_of(BOARD, "messages"), offset_of(ACCOUNT, "reports")
_VECTOR_BYTES = 32
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
    report.modified, report.fills, report.side = modified | order.changed, fills, order.side
    order.changed = 0


@jit()
def _free(order: int) -> None:
    release(order_at(order).ahead)
    release(order)


@jit()
def is_within(sessions: int, count: int, time: int) -> bool:
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
    order.front, order.level, order.traded, order.part = volume, volume, 0, 0
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
def _alive(board: int, order_id: int) -> int:
    """The address of an order that rests, waits or comes, 0 where it does not."""
    for one in range(ORDERS):
        vector = board + _BIDS + _VECTOR_BYTES * one
        for number in range(load(vector + 16)):
            address: int = load(load(vector) + 8 * number)
            if order_at(address).id == order_id:
                return address
    return 0


@jit()
def _leave(board: int, address: int) -> None:
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
def _protected(board: int, order_id: int) -> int:
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
def _end_unfilled(board: Record, address: int, time: int, now: int) -> None:
    """An order that was to come does not, as nothing was filled that it could protect."""
    if address != 0:
        order = order_at(address)
        order.time, order.status, order.reason = now, CANCELLED, ENTRY_UNFILLED
        _report(board, order, time, 0, 0)
        _free(address)


@jit()
def _come(board: int, address: int, lots: int) -> None:
    """An order comes, for what another has filled."""
    if address != 0:
        order = order_at(address)
        order.volume, order.left, order.changed = lots, lots, 1
        enter_later(board, address)


@jit()
def _done(board: int, address: int, time: int, now: int) -> None:
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


@jit()
def _room(board: Record, order: Record) -> int:
    """How many lots an order may fill."""
    if order.reduce_only == 0:
        lots: int = order.left
        return lots
    held = -board.position if order.side == BID else board.position
    room: int = max(0, min(order.left, held))
    return room


@jit()
def _has_filled(board: int, order: Record, lots: int) -> None:
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
def _refusal(context: Record, board: int, order: Record, key: int, time: int) -> int:
    """Why the exchange does not take an order with a limit of this key."""
    own = board_at(board)
    account, state = account_at(own.account), book_of(context, own.instrument).state
    if state != _VALID:
        reason: int = BOOK_SYNCING + state
        return reason
    if not is_within(account.sessions, account.sessions_count, time):
        return CLOSED
    if order.good_until != 0 and order.good_until < time:
        return EXPIRED
    if order.post_only and order.waits == GOES and takeable(context, board, 1 - order.side, -key, 1) > 0:
        return WOULD_TAKE
    return NO_REASON


@jit()
def _enter(context: Record, board: int, address: int, time: int, now: int, modified: int) -> None:
    """An order takes what is displayed, and what is left rests, or is cancelled."""
    own, order = board_at(board), order_at(address)
    worst, most, fills = WORST if order.market else -order.key, _room(own, order), 0
    whole = most == order.left
    if order.fok:
        whole = whole and takeable(context, board, 1 - order.side, worst, most) >= most
        most = most if whole else 0
    if most > 0:
        lots, fills = take(context, board, 1 - order.side, worst, most, now, 1)
        order.left -= lots
        if lots > 0:
            _has_filled(board, order, lots)
    order.status = RESTING if order.left else FILLED
    if order.fok and order.left:
        order.status, order.reason = CANCELLED, NOT_WHOLE
    elif order.left and order.reduce_only and _room(own, order) == 0:
        order.status, order.reason = CANCELLED, NOTHING_TO_REDUCE
    elif order.left and (order.market or order.ioc):
        order.status, order.reason = CANCELLED, NO_VOLUME if order.market else NOT_AT_ONCE
    _report(own, order, time, fills, modified)
    if order.status == RESTING:
        order.shown = min(order.display, order.left)
        _join(context, own, order)
        rest(board, address)
    else:
        _done(board, address, time, now)


@jit()
def _reaches(order: Record, price: int) -> bool:
    """Whether a price reaches the stop that an order waits for, which trails it."""
    if order.waits == FIRST:
        order.waits, order.stop = STOP, price + (order.trail if order.side == BID else -order.trail)
        return False
    if order.side == BID:
        if price >= order.stop:
            return True
        if order.trail != 0:
            order.stop = min(order.stop, price + order.trail)
    else:
        if price <= order.stop:
            return True
        if order.trail != 0:
            order.stop = max(order.stop, price - order.trail)
    return False


@jit()
def touch_of(context: Record, board: Record, side: int) -> tuple[bool, int]:
    """Whether a side of the book has a price, and the best."""
    levels = ladder_of(context, book_of(context, board.instrument), side)
    if levels.levels == 0:
        return False, 0
    key = ladder.best_key(levels)
    return True, key if side == BID else -key


@jit()
def _is_reached(context: Record, board: Record, order: Record) -> bool:
    """Whether the stop of an order that arrives is reached: by the touch, where that reaches stops, else
    where both sides of it are beyond. One without a stop trails what a market order would get."""
    if order.waits == FIRST:
        there, price = touch_of(context, board, 1 - order.side)
        goes: bool = there and _reaches(order, price)
        return goes
    by_touch = account_at(board.account).stop_by == BY_TOUCH
    there, price = touch_of(context, board, 1 - order.side if by_touch else order.side)
    beyond = price >= order.stop if order.side == BID else price <= order.stop
    reached: bool = there and beyond
    return reached


@jit()
def _to_come(board: int, order_id: int) -> int:
    """The address of an order that comes when another is done, 0 where it does not."""
    entry = _protected(board, order_id)
    if entry == 0:
        return 0
    before = order_at(entry)
    address: int = before.profit
    if address == 0 or order_at(address).id != order_id:
        address = before.loss
    return address


@jit()
def _tie(board: int, order: Record) -> bool:
    """Ties an order to the one that it names; whether that is there."""
    address = _alive(board, order.tie)
    if address == 0:
        address = _to_come(board, order.tie)
    if address == 0:
        return False
    other = order_at(address)
    if other.group == 0:
        other.group = other.id
    order.group = other.group
    return True


@jit()
def _place(context: Record, board: int, address: int, time: int, now: int) -> None:
    """An order arrives: it fills, rests, waits for its stop, or is refused."""
    own, order = board_at(board), order_at(address)
    order.time = now
    order.reason = _refusal(context, board, order, order.key, time)
    if order.reason == NO_REASON and order.reduce_only and _room(own, order) == 0:
        order.reason = NOTHING_TO_REDUCE
    if order.reason == NO_REASON and order.tie != 0 and not _tie(board, order):
        order.reason = TIED_IS_DONE
    if order.reason != NO_REASON:
        order.status = REFUSED
        _report(own, order, time, 0, 0)
        _done(board, address, time, now)
    elif order.waits != GOES and not _is_reached(context, own, order):
        order.status = WAITING
        _report(own, order, time, 0, 0)
        rest(board, address)
    else:
        order.waits = GOES
        _go(context, board, address, time, now)


@jit()
def _go(context: Record, board: int, address: int, time: int, now: int) -> None:
    """An order that waits no longer enters the book, unless it must not take and would."""
    order = order_at(address)
    order.time = now
    if order.post_only and takeable(context, board, 1 - order.side, -order.key, 1) > 0:
        order.status, order.reason = CANCELLED, WOULD_TAKE
        _report(board_at(board), order, time, 0, 0)
        _done(board, address, time, now)
    else:
        _enter(context, board, address, time, now, 0)


@jit()
def _cancel(board: int, order_id: int, time: int, reason: int) -> None:
    """Cancels what is left of an order; nothing where nothing is."""
    address = _alive(board, order_id)
    if address == 0:
        address = _to_come(board, order_id)
        if address == 0:
            return
        before = order_at(_protected(board, order_id))
        if before.profit == address:
            before.profit = 0
        else:
            before.loss = 0
    order = order_at(address)
    order.time, order.status, order.reason = time, CANCELLED, reason
    _leave(board, address)
    _report(board_at(board), order, time, 0, 0)
    _done(board, address, time, time)


@jit()
def _modify_to_come(board: Record, address: int, message: Record, time: int) -> None:
    """Gives an order that comes later another limit or stop; its volume is what it protects."""
    if address == 0:
        return
    order = order_at(address)
    if message.has_limit and not order.market:
        order.limit = message.limit
        order.key = order.limit if order.side == BID else -order.limit
    if message.has_stop and order.waits != GOES:
        order.stop, order.waits = message.stop, STOP
    order.time = time
    _report(board, order, time, 0, 1)


@jit()
def _modify(context: Record, board: int, message: Record, time: int) -> None:
    """Gives an order another volume, limit or stop; nothing where nothing of it is left. One that rests keeps
    its place only if nothing but volume goes."""
    own, address = board_at(board), _alive(board, message.id)
    if address == 0:
        _modify_to_come(own, _to_come(board, message.id), message, time)
        return
    order = order_at(address)
    lots = order.volume - order.left
    left = message.lots - lots if message.has_lots else order.left
    limit = message.limit if message.has_limit and not order.market else order.limit
    key = limit if order.side == BID else -limit
    order.time = time
    if left > 0:
        reason = _refusal(context, board, order, key, time)
        if reason != NO_REASON:
            order.reason = NOT_MODIFIED + reason
            _report(own, order, time, 0, 0)
            return
    keeps = limit == order.limit and left <= order.left
    order.volume, order.limit, order.reason = lots + max(left, 0), limit, NO_REASON
    if left <= 0:
        _leave(board, address)
        order.left, order.status, order.reason = 0, CANCELLED, NOTHING_LEFT
        _report(own, order, time, 0, 1)
        _done(board, address, time, time)
    elif order.waits != GOES:
        order.left, order.key = left, key
        if message.has_stop:
            order.stop, order.waits = message.stop, STOP
        if _is_reached(context, own, order):
            _leave(board, address)
            order.waits, order.changed = GOES, 1
            _go(context, board, address, time, time)
        else:
            _report(own, order, time, 0, 1)
    elif keeps:
        order.left, order.shown = left, min(order.shown, left)
        _report(own, order, time, 0, 1)
    else:
        _leave(board, address)
        order.left, order.key = left, key
        _enter(context, board, address, time, time, 1)


@jit()
def _sweep(board: int, valid: bool, time: int, now: int) -> None:
    """Takes away orders that are filled, or have to end; tells which have another volume, but not of those
    that come at once."""
    own = board_at(board)
    for one in range(ORDERS):
        vector = board + _BIDS + _VECTOR_BYTES * one
        data, left = load(vector), 0
        for number in range(load(vector + 16)):
            address = load(data + 8 * number)
            order = order_at(address)
            if order.left > 0 and order.ended == 0:
                if order.reduce_only and _room(own, order) == 0:
                    order.ended = NOTHING_TO_REDUCE
                elif order.changed and (one < ORDERS - 1 or not valid):
                    order.time = now
                    _report(own, order, time, 0, 1)
            if order.left > 0 and order.ended == 0:
                store(data + 8 * left, address)
                left += 1
            else:
                if order.left > 0:
                    order.time, order.status, order.reason = now, CANCELLED, order.ended
                    _report(own, order, time, 0, 0)
                _done(board, address, time, now)
        store(vector + 16, left)


@jit()
def _settle(context: Record, board: int, time: int, now: int) -> None:
    """What follows from what has filled or ended, until nothing does."""
    own = board_at(board)
    valid = book_of(context, own.instrument).state == _VALID
    while own.stirred != 0:
        own.stirred = 0
        _sweep(board, valid, time, now)
        if own.entering_count > 0 and valid:
            address = load(own.entering)
            _leave(board, address)
            own.stirred = 1
            _place(context, board, address, time, now)


@jit()
def _expire(context: Record, board: int, time: int) -> None:
    """Orders that are good until this time end."""
    own = board_at(board)
    own.expires, own.stirred = LAST, 1
    for one in range(ORDERS):
        vector = board + _BIDS + _VECTOR_BYTES * one
        for number in range(load(vector + 16)):
            order = order_at(load(load(vector) + 8 * number))
            if order.good_until != 0 and order.good_until <= time:
                order.ended = EXPIRED
            elif order.good_until != 0:
                own.expires = min(own.expires, order.good_until)
    _settle(context, board, time, time)


@jit()
def _act(board: int, message: Record, time: int) -> None:
    """A message has arrived."""
    own = board_at(board)
    context = _context_at(account_at(own.account).books)
    while own.expires < time:
        _expire(context, board, own.expires)
    if message.kind == PLACE:
        order = order_at(message.order)
        profit, loss = order.profit, order.loss
        _place(context, board, message.order, time, time)
        _wait(board, message.id, profit, time)
        _wait(board, message.id, loss, time)
    elif message.kind == MODIFY:
        _modify(context, board, message, time)
    else:
        _cancel(board, message.id, time, message.reason)
    _settle(context, board, time, time)


@jit()
def _wait(board: int, order_id: int, address: int, time: int) -> None:
    """An order waits for another to be done, if that is not."""
    if address != 0:
        entry = _alive(board, order_id)
        if entry != 0:
            order = order_at(address)
            order.time, order.status = time, WAITING
            _report(board_at(board), order, time, 0, 0)


@jit()
def arrive(board: int, time: int) -> None:
    """Before a message of this time at the exchange changes the book: what has arrived earlier acts, and
    what was good until then ends."""
    own = board_at(board)
    context = _context_at(account_at(own.account).books)
    while True:
        arrival = LAST
        if own.messages_first < own.messages_count:
            arrival = message_at(own.messages + _MESSAGE_BYTES * own.messages_first).arrival
        if min(arrival, own.expires) >= time:
            return
        if arrival <= own.expires:
            message = message_at(own.messages + _MESSAGE_BYTES * own.messages_first)
            _act(board, message, arrival)
            dropped(board + _MESSAGES, 1)
        else:
            _expire(context, board, own.expires)


@jit()
def _match(context: Record, board: int, side: int, moved: bool, time: int, now: int) -> None:
    """Fills the orders of a side by what the message at hand has filled and what is displayed."""
    own = board_at(board)
    vector = board + (_BIDS if side == BID else _ASKS)
    data, count = load(vector), load(vector + 16)
    levels = ladder_of(context, book_of(context, own.instrument), 1 - side)
    # The least key of an order that the other side's best price meets.
    meets = -ladder.best_key(levels) if levels.levels else LAST
    # The best of a side is the first that the other side meets.
    if count == 0 or not (moved or order_at(load(data)).key >= meets):
        return
    for number in range(count):
        order = order_at(load(data + 8 * number))
        if order.requeue:
            _rejoin(context, own, order)
        most = 0 if order.ended != 0 else _room(own, order)
        hit = min(order.hit, most)
        order.hit = 0
        if order.key >= meets and most > hit:
            lots, _ = take(context, board, 1 - side, -order.key, most - hit, now, 0)
            hit += lots
        if hit > 0:
            order.time = now
            order.left -= hit
            if order.left == 0:
                order.status = FILLED
            _has_filled(board, order, hit)
            filled(own.account, now, hit, order.limit, 1)
            _report(own, order, time, 1, 0)
            order.shown -= hit
            if order.display != 0 and order.shown <= 0 and order.left > 0:
                # The next part of an iceberg stands behind everybody.
                order.shown = min(order.display, order.left)
                _join(context, own, order)


@jit()
def _look_at_stops(context: Record, board: Record, by: int, price: int) -> bool:
    """Notes which stops a price reaches: of a trade, of a mark in 1e-8, or of the touch; whether one is."""
    found = False
    for number in range(board.stops_count):
        order = order_at(load(board.stops + 8 * number))
        there, own = True, price
        if by == BY_TOUCH:
            there, own = touch_of(context, board, 1 - order.side)
        elif by == BY_MARK:
            # Rounded so that it is not taken to be beyond what it is.
            own = price // board.tick_scale if order.side == BID else -(-price // board.tick_scale)
        if there and order.ended == 0 and order.waits != REACHED and _reaches(order, own):
            order.waits, found = REACHED, True
    return found


@jit()
def _reached(context: Record, board: Record, events: int, count: int) -> bool:
    """Notes which stops a message has reached, price by price; whether one is."""
    by = account_at(board.account).stop_by
    if by == BY_TOUCH:
        touched: bool = _look_at_stops(context, board, by, 0)
        return touched
    found = False
    for place in range(count):
        event = _event_at(events + _EVENT_BYTES * place)
        action = event.action
        tells = action == _MARK
        if by != BY_MARK:
            tells = event.volume > 0 and (action == _TRADE or action == _EXECUTE)
        if tells and event.instrument == board.instrument:
            found = _look_at_stops(context, board, by, event.price) or found
    return found


@jit()
def _first_reached(board: Record) -> int:
    """The address of the first order whose stop is reached, 0 where none is."""
    for number in range(board.stops_count):
        address: int = load(board.stops + 8 * number)
        if order_at(address).waits == REACHED:
            return address
    return 0


@jit()
def _release_stops(context: Record, board: int, time: int, now: int) -> None:
    """Orders whose stop is reached enter the book, the oldest first."""
    address = _first_reached(board_at(board))
    while address != 0:
        _leave(board, address)
        order_at(address).waits = GOES
        _go(context, board, address, time, now)
        _settle(context, board, time, now)
        address = _first_reached(board_at(board))


@jit()
def meet(board: int, events: int, count: int, actions: int, time: int, now: int) -> None:
    """A message, EVENT[count] at an address, has changed the book: its time is the exchange's, `now` the
    run's. Orders that rest follow it, and fill, best price first, then oldest; then stops are looked at.
    actions: see `follow`."""
    own = board_at(board)
    context = _context_at(account_at(own.account).books)
    forget_passed(context, board, BID)
    forget_passed(context, board, ASK)
    follow(own, events, count, actions, own.instrument)
    state = book_of(context, own.instrument).state
    if state == _VALID:
        moved = own.hit != 0 or own.lost != 0
        own.hit = own.lost = 0
        _match(context, board, BID, moved, time, now)
        _match(context, board, ASK, moved, time, now)
        own.stirred |= 1 if own.entering_count > 0 else 0
        _settle(context, board, time, now)
        if own.stops_count > 0 and _reached(context, own, events, count):
            _release_stops(context, board, time, now)
        return
    lost = 1 if state == _SYNCING else 0
    for side in (BID, ASK):
        vector = board + (_BIDS if side == BID else _ASKS)
        for number in range(load(vector + 16)):
            order = order_at(load(load(vector) + 8 * number))
            order.hit = 0
            order.requeue |= lost
            own.lost |= lost


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
def sent(
    board: int, arrival: int, at_once: int, kind: int, order_id: int, order: int, lots: int, has_lots: int,
    limit: int, has_limit: int, stop: int, has_stop: int, reason: int,
) -> None:  # fmt: skip
    """Sends a MESSAGE: it arrives then, or, at the same time, at once."""
    own = board_at(board)
    own.arrival = max(arrival, own.arrival)
    message = message_at(pushed(board + _MESSAGES, _MESSAGE_BYTES))
    message.arrival, message.kind, message.id, message.order = own.arrival, kind, order_id, order
    message.lots, message.has_lots, message.limit, message.has_limit = lots, has_lots, limit, has_limit
    message.stop, message.has_stop, message.reason = stop, has_stop, reason
    if at_once:
        own.messages_count -= 1
        _act(board, message, arrival)
