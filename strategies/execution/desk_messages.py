"""What desks do at the end of a message of the loop: they are told what is due, and what they ask is sent.

What became of orders is left as NEWS for Python, which keeps money and counts, and becomes rows of the
relations of orders.
"""

import numpy as np

from orderbook.core.jit import called_with, exported, jit
from orderbook.engine.maps.memory import call
from orderbook.market.block_memory import Record, load, move, record_at, store
from orderbook.market.instruments import LARGEST
from orderbook.strategies.execution.account_worth import holds, mark
from orderbook.strategies.execution.desk import (
    DESK,
    FILL_UPDATE,
    MARKET,
    ORDER_UPDATE,
    REQUEST,
    UNCHANGED,
    at_hand,
    close,
    desk_at,
    open_at,
    opened,
    request_at,
)
from orderbook.strategies.execution.desk_clock import is_time, let_time_pass
from orderbook.strategies.execution.exchange import sent
from orderbook.strategies.execution.exchange_state import (
    ACCOUNT,
    CANCEL,
    CANCELLED,
    FILL,
    FILLED,
    FIRST,
    GOES,
    LAST,
    MODIFY,
    NO_REASON,
    PLACE,
    REFUSED,
    REPORT,
    SENT,
    STOP,
    account_at,
    board_at,
    dropped,
    fill_at,
    offset_of,
    pushed,
    report_at,
)
from orderbook.strategies.execution.own_orders import drawn, made_order, protect, specify
from orderbook.strategies.execution.relation_rows import book_fills, relations_at, show_order
from orderbook.strategies.execution.risk import count_sent, may_be_sent
from orderbook.strategies.execution.wake_conditions import TOLD

# A REPORT, when it was told, at which message, and whether the order has no limit; of one that was sent its
# group, and whether it can only reduce a position: see OPEN.
NEWS = np.dtype(
    [
        *((name, "i8") for name in REPORT.names or ()),
        ("now", "i8"),
        ("first", "i8"),  # how many events were applied before the message
        ("at", "i8"),
        ("market", "i8"),
        ("group", "i8"),
        ("reduces", "i8"),
    ]
)
# More than any message can call for.
MOST_REQUESTS = 1_000

news_at = record_at(NEWS)
_order_update_at = record_at(ORDER_UPDATE)
_fill_update_at = record_at(FILL_UPDATE)
_REQUEST_BYTES, _NEWS_BYTES, _FILL_BYTES = REQUEST.itemsize, NEWS.itemsize, FILL.itemsize
_REPORT_BYTES, _REPORT_WORDS = REPORT.itemsize, REPORT.itemsize // 8
_NEWS_AT, _REPORTS_AT = offset_of(DESK, "news"), offset_of(ACCOUNT, "reports")


@exported
def _tell(address: int, now: int, first: int, time: int) -> int:
    """Tells a desk what is due, and leaves it as news."""
    desk = desk_at(address)
    account = account_at(desk.account)
    while account.reports_first < account.reports_count:
        place = account.reports + _REPORT_BYTES * account.reports_first
        report = report_at(place)
        if report.due > now:
            break
        at = pushed(address + _NEWS_AT, _NEWS_BYTES)
        move(place, at, _REPORT_WORDS)
        news = news_at(at)
        news.now, news.first, news.at, news.market = now, first, time, 0
        place_of = opened(desk, report.id)
        if place_of != 0:
            one = open_at(place_of)
            news.market = one.market
            if report.modified == 0 and one.known != 0:
                # A report that a checkpoint had has none.
                own = board_at(load(desk.boards + 8 * report.instrument))
                news.volume = one.volume // own.lot_scale
                news.limit = one.limit // own.tick_scale if one.limit != MARKET else 0
            show_order(address, open_at(place_of), news)
        held = desk.positions + 8 * report.instrument
        for number in range(report.fills):
            fill = account.fills + _FILL_BYTES * (account.fills_first + desk.news_fills + number)
            lots = fill_at(fill).lots
            store(held, load(held) + (lots if report.side == 0 else -lots))
        if place_of != 0 and report.fills != 0:
            book_fills(address, open_at(place_of), account.fills_first + desk.news_fills, report.fills)
        desk.news_fills += report.fills
        if report.status == FILLED or report.status == CANCELLED or report.status == REFUSED:
            close(desk, report.id)
        elif place_of != 0 and report.reason != NO_REASON and open_at(place_of).market == 0:
            own = board_at(load(desk.boards + 8 * report.instrument))
            open_at(place_of).price = report.limit * own.tick_scale
        # Fills stay until Python has the news.
        dropped(desk.account + _REPORTS_AT, 1)
    account.due = LAST
    if account.reports_first < account.reports_count:
        account.due = report_at(account.reports + _REPORT_BYTES * account.reports_first).due
    return 0


@jit()
def _is_price(board: Record, price: int) -> bool:
    """Whether it is one of the instrument's, or none."""
    good: bool = price == MARKET or (abs(price) <= LARGEST and price % board.tick == 0)
    return good


@jit()
def _may_have_terms(desk: Record, board: Record, request: Record) -> bool:
    """Whether the terms of an order are as `checked_terms` takes them; Python says what is wrong."""
    market, at_once = request.price == MARKET, request.ioc != 0 or request.fok != 0
    if (at_once and (request.post_only != 0 or request.good_until != 0)) or request.good_until < 0:
        return False
    if request.ioc != 0 and request.fok != 0:
        return False
    if request.trail < 0 or request.trail > LARGEST or request.trail % board.tick != 0:
        return False
    if request.display != 0 and (
        market or at_once or request.display < 0 or request.display > LARGEST
        or request.display % board.lot != 0
    ):  # fmt: skip
        return False
    if request.oco != 0:
        place = opened(desk, request.oco)
        if place == 0 or open_at(place).instrument != request.instrument:
            return False
    profit, loss = request.take_profit, request.stop_loss
    if not (_is_price(board, request.stop) and _is_price(board, profit) and _is_price(board, loss)):
        return False
    sign = -1 if request.side else 1
    before_profit = profit == MARKET or market or sign * request.price < sign * profit
    after_loss = loss == MARKET or market or sign * loss < sign * request.price
    apart = profit == MARKET or loss == MARKET or sign * loss < sign * profit
    good: bool = before_profit and after_loss and apart
    return good


@jit()
def _give_terms(address: int, order: int, request: Record, now: int, first: int, time: int) -> None:
    """Gives an ORDER the terms of a request; those that come once it is done are sent with it."""
    desk = desk_at(address)
    board = board_at(load(desk.boards + 8 * request.instrument))
    waits, stop = GOES, 0
    if request.stop != MARKET:
        waits, stop = STOP, request.stop // board.tick_scale
    elif request.trail != 0:
        waits = FIRST
    display = request.display // board.lot_scale if request.display < request.volume else 0
    specify(
        order, request.fok, request.reduce_only, request.good_until, waits, stop,
        request.trail // board.tick_scale, display, request.oco,
    )  # fmt: skip
    profit, loss, order_id, lots = 0, 0, request.id, request.volume // board.lot_scale
    if request.take_profit != MARKET:
        order_id += 1
        ticks = request.take_profit // board.tick_scale
        profit = made_order(order_id, 1 - request.side, ticks, 0, lots, 0, 0)
        _note_sent(
            address,
            order_id,
            request.instrument,
            1 - request.side,
            lots,
            ticks,
            0,
            1,
            1,
            0,
            now,
            first,
            time,
        )
    if request.stop_loss != MARKET:
        order_id += 1
        loss = made_order(order_id, 1 - request.side, 0, 1, lots, 0, 0)
        specify(loss, 0, 0, 0, STOP, request.stop_loss // board.tick_scale, 0, 0, 0)
        _note_sent(
            address, order_id, request.instrument, 1 - request.side, lots, 0, 1, 1, 1, 0, now, first, time,
        )  # fmt: skip
    protect(order, profit, loss)


@jit()
def _note_sent(
    address: int, order_id: int, instrument: int, side: int, lots: int, ticks: int, market: int, later: int,
    reduces: int, tie: int, now: int, first: int, time: int,
) -> None:  # fmt: skip
    """Leaves as news that an order was sent. later: it comes once another is done. reduces: whether it can
    only reduce a position; tie: the order that it is tied to, 0 for none."""
    news = news_at(pushed(address + _NEWS_AT, _NEWS_BYTES))
    news.due, news.id, news.instrument, news.time, news.status = now, order_id, instrument, now, SENT
    news.filled, news.volume, news.limit, news.modified, news.reason = 0, lots, ticks, later, 0
    news.fills, news.side, news.market = 0, side, market
    news.now, news.first, news.at = now, first, time
    desk, place = desk_at(address), opened(desk_at(address), order_id)
    one = open_at(place)
    one.group, one.reduces = order_id, reduces
    if tie != 0:
        tied = opened(desk, tie)
        one.group, desk.tied = open_at(tied).group if tied != 0 else tie, 1
    news.group, news.reduces = one.group, reduces
    # At once it is told with what becomes of it.
    if later != 0 or account_at(desk.account).instant == 0:
        show_order(address, one, news)


@jit()
def _may_be_sent(desk: Record, request: Record, now: int) -> bool:
    """Whether a request is as it should be, and within limits; where not, Python says what is wrong."""
    market, post_only = request.price == MARKET, request.post_only != 0
    board, instrument = 0, request.instrument
    if request.kind != PLACE:
        place = opened(desk, request.id)
        if place == 0:
            return True
        one = open_at(place)
        instrument = one.instrument
        if request.kind == MODIFY and one.market:
            return False
    if instrument >= 0:
        board = load(desk.boards + 8 * instrument)
    if board == 0:
        return False
    if request.kind == CANCEL:
        return True
    own = board_at(board)
    if own.tick == 0:
        return False
    if request.kind == PLACE and (market or request.ioc != 0) and post_only:
        return False
    if request.kind == PLACE and request.terms != 0 and not _may_have_terms(desk, own, request):
        return False
    if request.kind == MODIFY and not _is_price(own, request.stop):
        return False
    stays = request.kind == MODIFY and request.volume == UNCHANGED
    if not stays and (request.volume <= 0 or request.volume > LARGEST or request.volume % own.lot != 0):
        return False
    if not _is_price(own, request.price):
        return False
    good: bool = desk.limits == 0 or may_be_sent(desk, request, now)
    return good


@jit()
def _send(address: int, request: Record, now: int, first: int, time: int) -> None:
    """Sends what a request asks for."""
    desk = desk_at(address)
    account = account_at(desk.account)
    instrument, market = request.instrument, 1 if request.price == MARKET else 0
    if request.kind != PLACE:
        place = opened(desk, request.id)
        # What is done stays as it is.
        if place == 0:
            return
        instrument = open_at(place).instrument
    if desk.limits != 0 and request.kind != CANCEL:
        count_sent(desk, request, now)
    board = load(desk.boards + 8 * instrument)
    own = board_at(board)
    lots = request.volume // own.lot_scale if request.volume != UNCHANGED else 0
    ticks = 0 if market else request.price // own.tick_scale
    account.numbers += 1
    delay = drawn(
        account.feed,
        account.feed_count,
        account.feed_key,
        account.feed_timed,
        request.id,
        account.numbers,
        now,
    )
    delay += drawn(
        account.orders, account.orders_count, account.orders_key, account.orders_timed, request.id,
        account.numbers, now + delay,
    )  # fmt: skip
    # With a table of delays, none of which is 0 or all of which are.
    at_once = 1 if account.at_once else 0
    order = 0
    if request.kind == PLACE:
        order = made_order(request.id, request.side, ticks, market, lots, request.ioc, request.post_only)
        reduces = request.reduce_only if request.terms else 0
        tie = request.oco if request.terms else 0
        _note_sent(
            address, request.id, instrument, request.side, lots, ticks, market, 0, reduces, tie, now, first,
            time,
        )  # fmt: skip
        if request.terms:
            _give_terms(address, order, request, now, first, time)
    changes_lots = 1 if request.volume != UNCHANGED and request.kind == MODIFY else 0
    changes_limit = 1 if market == 0 and request.kind == MODIFY else 0
    has_stop = 1 if request.kind == MODIFY and request.stop != MARKET else 0
    stop = request.stop // own.tick_scale if has_stop else 0
    sent(
        board, now + delay, at_once, request.kind, request.id, order, lots, changes_lots, ticks,
        changes_limit, stop, has_stop, 0,
    )  # fmt: skip
    if account.instant:
        _tell(address, now, first, time)


@exported
def _send_first(address: int, now: int, first: int, time: int) -> int:
    """Sends the first request of a desk; 0 where Python is to look at it."""
    desk = desk_at(address)
    request = request_at(desk.requests + _REQUEST_BYTES * desk.requests_first)
    if not _may_be_sent(desk, request, now):
        return 0
    _send(address, request, now, first, time)
    dropped(address, 1)
    return 1


@jit()
def _send_all(address: int, now: int, first: int, time: int) -> bool:
    """Sends what is asked for; False where Python is to go on with that."""
    desk = desk_at(address)
    if desk.logged != 0:
        nothing: bool = desk.requests_count == 0
        return nothing
    desk.sent += desk.requests_count - desk.requests_first
    sending: bool = desk.sent <= MOST_REQUESTS
    while sending and desk.requests_first < desk.requests_count:
        sending = _send_first(address, now, first, time) != 0
    desk.sent -= desk.requests_count - desk.requests_first
    return sending


@jit()
def _call_news(address: int, end: int, now: int) -> None:
    """Calls what follows orders and fills with the news up to the number `end`."""
    desk = desk_at(address)
    account = account_at(desk.account)
    while desk.called < end:
        news = news_at(desk.news + _NEWS_BYTES * desk.called)
        place, count, own = desk.called_fills, news.fills, board_at(load(desk.boards + 8 * news.instrument))
        desk.called += 1
        desk.called_fills += count
        # What is told with what becomes of it is no news.
        told = account.instant == 0 or news.status != SENT or news.modified != 0
        if told and desk.on_order != 0:
            order = _order_update_at(desk.record)
            order.ts, order.id, order.side = news.time, news.id, news.side
            order.volume, order.filled = news.volume * own.lot_scale, news.filled * own.lot_scale
            order.has_price = 1 - news.market
            order.price = news.limit * own.tick_scale if news.market == 0 else 0
            order.status, order.has_reason = news.status, 1 if news.reason != NO_REASON else 0
            at_hand(desk, news.instrument, now)
            desk.others += 1
            call(desk.on_order, address, desk.record, 0)
        if told and desk.on_fill != 0:
            for number in range(count):
                fill = fill_at(account.fills + _FILL_BYTES * (account.fills_first + place + number))
                row = _fill_update_at(desk.record)
                row.ts, row.order_id, row.side, row.maker = fill.time, news.id, news.side, fill.maker
                row.volume, row.price = fill.lots * own.lot_scale, fill.ticks * own.tick_scale
                at_hand(desk, news.instrument, now)
                desk.others += 1
                call(desk.on_fill, address, desk.record, 0)


@jit()
def _tells_apart(desk: Record) -> bool:
    """Whether there are fills that Python tells it of; nobody is told of the news before them."""
    if desk.told_apart == 0:
        return False
    while desk.called < desk.news_count and news_at(desk.news + _NEWS_BYTES * desk.called).fills == 0:
        desk.called += 1
    found: bool = desk.called < desk.news_count
    return found


@jit()
def _is_own(desk: Record, followed: int) -> bool:
    """Whether the message tells a desk anything."""
    if desk.own_count == 0:
        return True
    number = 0
    while number < desk.own_count and board_at(load(desk.own + 8 * number)).message != followed:
        number += 1
    own: bool = number < desk.own_count
    return own


@jit()
def _go_through(address: int, own: bool, woken: int, now: int, first: int, time: int) -> bool:
    """Sends what a desk has asked for, and calls its methods with what it was told; False where Python is to
    go on with that. own: whether the message tells the desk anything; woken: whether it is told to Python.

    As Python's queue has it: what was asked for, then what methods are told, then what these ask for.
    """
    desk = desk_at(address)
    if desk.asked != 0 or desk.beyond != 0:
        # That comes first.
        desk.looks = 1 if own and is_time(desk, now) else 0
        return False
    if woken != 0 and own and desk.told_market != 0:
        # What the market did comes before what these ask for, and before rows that have waited.
        return False
    follows = desk.on_order != 0 or desk.on_fill != 0
    sent_all: bool = desk.requests_count == 0 or _send_all(address, now, first, time)
    looks = own and is_time(desk, now)
    if not sent_all or _tells_apart(desk):
        desk.looks = 1 if looks else 0
        return False
    if follows:
        _call_news(address, desk.before, now)
    if looks:
        let_time_pass(address, now)
    if follows:
        _call_news(address, desk.news_count, now)
    while sent_all and desk.requests_count != 0 and desk.beyond == 0:
        desk.before = desk.news_count
        sent_all = _send_all(address, now, first, time) and not _tells_apart(desk)
        if sent_all and follows:
            _call_news(address, desk.news_count, now)
    return sent_all and desk.beyond == 0


@jit()
def _look_at_end(address: int, now: int) -> None:
    """Lets a desk look, once."""
    desk = desk_at(address)
    desk.others += 1
    if call(desk.look, address, now, 0) != 0:
        desk.looking, desk.stopped = 1, 1
    else:
        desk.looked, desk.before = 1, desk.news_count


@jit()
def _look_all(desks: int, count: int, now: int, first: int, time: int) -> None:
    """Lets desks look that have something to look at, once each, and sends what they ask; until none has."""
    looks = True
    while looks:
        looks = False
        for number in range(count):
            desk = desk_at(load(desks + 8 * number))
            if desk.looking != 0 and desk.look != 0 and desk.looked == 0 and desk.stopped == 0:
                _look_at_end(load(desks + 8 * number), now)
                looks = True
        for number in range(count if looks else 0):
            address = load(desks + 8 * number)
            desk = desk_at(address)
            if desk.requests_count != 0 and desk.looked != 0 and desk.stopped == 0:
                if _send_all(address, now, first, time):
                    _call_news(address, desk.news_count, now)
                else:
                    desk.stopped = 1
    for number in range(count):
        desk = desk_at(load(desks + 8 * number))
        if desk.looking != 0 and desk.looked != 0 and desk.stopped == 0:
            # What came of it is looked at with the next message.
            desk.looking, desk.wake = 0, now


@called_with("iiiii")
def send_asked(address: int, relations: int, now: int, first: int, time: int) -> int:
    """Sends what a method in Python has asked for at the end of a message; how much, up to what Python has to
    look at. See `end_message`."""
    desk, count = desk_at(address), 0
    if relations != 0:
        relations_at(relations).now = now
    while desk.requests_first < desk.requests_count and _send_first(address, now, first, time) != 0:
        count += 1
    return count


@jit()
def end_message(
    desks: int, count: int, relations: int, followed: int, woken: int, now: int, first: int, time: int,
) -> bool:  # fmt: skip
    """A message has ended, at a time of the run: desks are told what is due, and what they asked for is sent.
    False where Python is to go on with that.

    desks: address of int64[2, count], DESKs, and room for as many. relations: address of the RELATIONS where
    what they are told goes, whose rows may give others something to look at; 0: nowhere. followed: the number
    of the message, as boards have it. woken: what Python is told of it, as `wakes` says. first: how many
    events were applied before it. time: its own, ns.
    """
    active, some = desks + 8 * count, 0
    for number in range(count):
        address = load(desks + 8 * number)
        desk = desk_at(address)
        idle = desk.plain != 0 and desk.requests_count == 0 and desk.asked == 0
        # Of many strategies, as in a sweep, most have nothing to do.
        if idle and desk.sent == 0 and desk.stopped == 0 and account_at(desk.account).due > now:
            continue
        desk.sent = desk.looked = desk.stopped = 0
        if desk.worth != 0 and holds(desk.worth) and _is_own(desk, followed):
            mark(desk.worth, desk.boards, account_at(desk.account).books)
        due = account_at(desk.account).due <= now or is_time(desk, now) or desk.wake <= now
        # Of trades alone Python tells those that have nothing else to do once this is through.
        due = due or (woken == TOLD and desk.told_market != 0)
        asks = desk.asked != 0 or desk.requests_count != 0 or desk.looking != 0 or desk.beyond != 0
        if asks or (due and _is_own(desk, followed)):
            store(active + 8 * some, address)
            some += 1
    if some == 0:
        return True
    if relations != 0:
        relations_at(relations).now = now
    for number in range(some):
        address = load(active + 8 * number)
        desk = desk_at(address)
        if account_at(desk.account).due <= now and _is_own(desk, followed):
            _tell(address, now, first, time)
        desk.before = desk.news_count
    for number in range(some):
        address = load(active + 8 * number)
        desk = desk_at(address)
        own = _is_own(desk, followed)
        if not _go_through(address, own, woken, now, first, time):
            desk.stopped = 1
        elif desk.look != 0 and own and desk.wake <= now:
            desk.wake, desk.looking = LAST, 1
    if relations != 0:
        _look_all(desks, count, now, first, time)
    else:
        _look_all(active, some, now, first, time)
    done = relations == 0 or relations_at(relations).stop == 0
    for number in range(count if relations != 0 else some):
        place = desks if relations != 0 else active
        done = done and desk_at(load(place + 8 * number)).stopped == 0
    return done
