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

from orderbook.core.jit import exported, jit
from orderbook.market import ladder
from orderbook.market.block_memory import Record, load, record_at, store
from orderbook.market.book_state import ASK, BID, CONTEXT, book_of, ladder_of
from orderbook.market.events import BookState
from orderbook.strategies.execution.displayed_volume import WORST, filled, forget_passed, take, takeable
from orderbook.strategies.execution.exchange_state import (
    ACCOUNT,
    BOARD,
    BOOK_SYNCING,
    CANCELLED,
    CLOSED,
    EXPIRED,
    FILLED,
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
    ORDERS,
    PAYMENT,
    PLACE,
    REFUSED,
    RESTING,
    STOP,
    TIED_IS_DONE,
    WAITING,
    WOULD_TAKE,
    account_at,
    board_at,
    dropped,
    message_at,
    offset_of,
    order_at,
    payment_at,
    pushed,
)
from orderbook.strategies.execution.own_orders import (
    alive,
    end_order,
    has_filled,
    join_queue,
    leave_board,
    protected_by,
    rejoin_queue,
    rest,
    room_of,
    send_report,
    tie_to_named,
    to_come,
)
from orderbook.strategies.execution.queue_position import follow
from orderbook.strategies.execution.stop_prices import (
    first_reached,
    is_reached,
    note_reached,
    touch_of,
)

_context_at = record_at(CONTEXT)
_SYNCING, _VALID = int(BookState.SYNCING), int(BookState.VALID)
_MESSAGE_BYTES = MESSAGE.itemsize
_SESSION_BYTES = 24
_BIDS, _ASKS = offset_of(BOARD, "bids"), offset_of(BOARD, "asks")
_MESSAGES = offset_of(BOARD, "messages")
_PAYMENTS, _PAYMENT_BYTES = offset_of(ACCOUNT, "payments"), PAYMENT.itemsize
_VECTOR_BYTES = 32
# A day in ns; the first of 1970 was a Thursday.
_DAY, _FIRST_WEEKDAY = 24 * 60 * 60 * 10**9, 3


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
    worst, most, fills = WORST if order.market else -order.key, room_of(own, order), 0
    whole = most == order.left
    if order.fok:
        whole = whole and takeable(context, board, 1 - order.side, worst, most) >= most
        most = most if whole else 0
    if most > 0:
        lots, fills = take(context, board, 1 - order.side, worst, most, now, 1)
        order.left -= lots
        if lots > 0:
            has_filled(board, order, lots)
    order.status = RESTING if order.left else FILLED
    if order.fok and order.left:
        order.status, order.reason = CANCELLED, NOT_WHOLE
    elif order.left and order.reduce_only and room_of(own, order) == 0:
        order.status, order.reason = CANCELLED, NOTHING_TO_REDUCE
    elif order.left and (order.market or order.ioc):
        order.status, order.reason = CANCELLED, NO_VOLUME if order.market else NOT_AT_ONCE
    send_report(own, order, time, fills, modified)
    if order.status == RESTING:
        order.shown = min(order.display, order.left)
        join_queue(context, own, order)
        rest(board, address)
    else:
        end_order(board, address, time, now)


@jit()
def _place(context: Record, board: int, address: int, time: int, now: int) -> None:
    """An order arrives: it fills, rests, waits for its stop, or is refused."""
    own, order = board_at(board), order_at(address)
    order.time = now
    order.reason = _refusal(context, board, order, order.key, time)
    if order.reason == NO_REASON and order.reduce_only and room_of(own, order) == 0:
        order.reason = NOTHING_TO_REDUCE
    if order.reason == NO_REASON and order.tie != 0 and not tie_to_named(board, order):
        order.reason = TIED_IS_DONE
    if order.reason != NO_REASON:
        order.status = REFUSED
        send_report(own, order, time, 0, 0)
        end_order(board, address, time, now)
    elif order.waits != GOES and not is_reached(context, own, order):
        order.status = WAITING
        send_report(own, order, time, 0, 0)
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
        send_report(board_at(board), order, time, 0, 0)
        end_order(board, address, time, now)
    else:
        _enter(context, board, address, time, now, 0)


@jit()
def _cancel(board: int, order_id: int, time: int, reason: int) -> None:
    """Cancels what is left of an order; nothing where nothing is."""
    address = alive(board, order_id)
    if address == 0:
        address = to_come(board, order_id)
        if address == 0:
            return
        before = order_at(protected_by(board, order_id))
        if before.profit == address:
            before.profit = 0
        else:
            before.loss = 0
    order = order_at(address)
    order.time, order.status, order.reason = time, CANCELLED, reason
    leave_board(board, address)
    send_report(board_at(board), order, time, 0, 0)
    end_order(board, address, time, time)


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
    send_report(board, order, time, 0, 1)


@jit()
def _modify(context: Record, board: int, message: Record, time: int) -> None:
    """Gives an order another volume, limit or stop; nothing where nothing of it is left. One that rests keeps
    its place only if nothing but volume goes."""
    own, address = board_at(board), alive(board, message.id)
    if address == 0:
        _modify_to_come(own, to_come(board, message.id), message, time)
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
            send_report(own, order, time, 0, 0)
            return
    keeps = limit == order.limit and left <= order.left
    order.volume, order.limit, order.reason = lots + max(left, 0), limit, NO_REASON
    if left <= 0:
        leave_board(board, address)
        order.left, order.status, order.reason = 0, CANCELLED, NOTHING_LEFT
        send_report(own, order, time, 0, 1)
        end_order(board, address, time, time)
    elif order.waits != GOES:
        order.left, order.key = left, key
        if message.has_stop:
            order.stop, order.waits = message.stop, STOP
        if is_reached(context, own, order):
            leave_board(board, address)
            order.waits, order.changed = GOES, 1
            _go(context, board, address, time, time)
        else:
            send_report(own, order, time, 0, 1)
    elif keeps:
        order.left, order.shown = left, min(order.shown, left)
        send_report(own, order, time, 0, 1)
    else:
        leave_board(board, address)
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
                if order.reduce_only and room_of(own, order) == 0:
                    order.ended = NOTHING_TO_REDUCE
                elif order.changed and (one < ORDERS - 1 or not valid):
                    order.time = now
                    send_report(own, order, time, 0, 1)
            if order.left > 0 and order.ended == 0:
                store(data + 8 * left, address)
                left += 1
            else:
                if order.left > 0:
                    order.time, order.status, order.reason = now, CANCELLED, order.ended
                    send_report(own, order, time, 0, 0)
                end_order(board, address, time, now)
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
            leave_board(board, address)
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
def _wait(board: int, order_id: int, address: int, time: int) -> None:
    """An order waits for another to be done, if that is not."""
    if address != 0:
        entry = alive(board, order_id)
        if entry != 0:
            order = order_at(address)
            order.time, order.status = time, WAITING
            send_report(board_at(board), order, time, 0, 0)


@exported
def _act(board: int, message_address: int, time: int) -> int:
    """A message has arrived: MESSAGE at an address."""
    own, message = board_at(board), message_at(message_address)
    context = _context_at(account_at(own.account).books)
    own.seen = max(own.seen, time)
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
    return 0


@jit()
def _pay(context: Record, own: Record, time: int) -> int:
    """What is held pays funding that is due then, or gets it, at the mark price; 1 where it does."""
    book = book_of(context, own.instrument)
    price: int = book.mark
    if price <= 0:
        has_bid, bid = touch_of(context, own, BID)
        has_ask, ask = touch_of(context, own, ASK)
        price = (bid + ask) * own.tick_scale // 2 if has_bid and has_ask else 0
    own.seen = time
    if own.position == 0 or price <= 0 or book.rate == 0:
        return 0
    payment = payment_at(pushed(own.account + _PAYMENTS, _PAYMENT_BYTES))
    payment.time, payment.instrument, payment.lots = time, own.instrument, own.position
    payment.price, payment.rate = price, book.rate
    return 1


@exported
def arrive(board: int, time: int) -> int:
    """Before a message of this time at the exchange changes the book: what has arrived earlier acts, what was
    good until then ends, and funding is paid; 1 where it is."""
    own, paid = board_at(board), 0
    context = _context_at(account_at(own.account).books)
    while True:
        arrival = LAST
        if own.messages_first < own.messages_count:
            arrival = message_at(own.messages + _MESSAGE_BYTES * own.messages_first).arrival
        funding: int = book_of(context, own.instrument).paid_at
        if own.seen < funding and funding <= min(time, arrival, own.expires):
            paid = max(paid, _pay(context, own, funding))
        elif min(arrival, own.expires) >= time:
            own.seen = max(own.seen, time)
            return paid
        elif arrival <= own.expires:
            _act(board, own.messages + _MESSAGE_BYTES * own.messages_first, arrival)
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
            rejoin_queue(context, own, order)
        most = 0 if order.ended != 0 else room_of(own, order)
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
            has_filled(board, order, hit)
            filled(own.account, now, hit, order.limit, 1)
            send_report(own, order, time, 1, 0)
            order.shown -= hit
            if order.display != 0 and order.shown <= 0 and order.left > 0:
                # The next part of an iceberg stands behind everybody.
                order.shown = min(order.display, order.left)
                join_queue(context, own, order)


@jit()
def _release_stops(context: Record, board: int, time: int, now: int) -> None:
    """Orders whose stop is reached enter the book, the oldest first."""
    address = first_reached(board_at(board))
    while address != 0:
        leave_board(board, address)
        order_at(address).waits = GOES
        _go(context, board, address, time, now)
        _settle(context, board, time, now)
        address = first_reached(board_at(board))


@exported
def meet(board: int, events: int, count: int, actions: int, time: int, now: int) -> int:
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
        if own.stops_count > 0 and note_reached(context, own, events, count):
            _release_stops(context, board, time, now)
        return 0
    lost = 1 if state == _SYNCING else 0
    for side in (BID, ASK):
        vector = board + (_BIDS if side == BID else _ASKS)
        for number in range(load(vector + 16)):
            order = order_at(load(load(vector) + 8 * number))
            order.hit = 0
            order.requeue |= lost
            own.lost |= lost
    return 0


@exported
def sent(
    board: int, arrival: int, at_once: int, kind: int, order_id: int, order: int, lots: int, has_lots: int,
    limit: int, has_limit: int, stop: int, has_stop: int, reason: int,
) -> int:  # fmt: skip
    """Sends a MESSAGE: it arrives then, or, at the same time, at once."""
    own = board_at(board)
    own.arrival = max(arrival, own.arrival)
    address = pushed(board + _MESSAGES, _MESSAGE_BYTES)
    message = message_at(address)
    message.arrival, message.kind, message.id, message.order = own.arrival, kind, order_id, order
    message.lots, message.has_lots, message.limit, message.has_limit = lots, has_lots, limit, has_limit
    message.stop, message.has_stop, message.reason = stop, has_stop, reason
    if at_once:
        own.messages_count -= 1
        _act(board, address, arrival)
    return 0
