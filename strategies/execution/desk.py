"""The desk of a strategy with compiled methods, in the loop: its state, what it asks for, what it is told.

A state begins with DESK. Requests are written there, and become messages to the exchange once the message at
hand has ended. What became of orders is told there, and left as NEWS for Python, which keeps relations,
money and counts. Where a desk is not run in the loop, Python does with the same requests what it does with
any strategy's.
"""

import numpy as np

from orderbook.core.jit import called_with, jit
from orderbook.engine.generate.state_layout import FIRED, FIRED_WORDS
from orderbook.engine.maps.memory import call
from orderbook.market.block_memory import Record, address_of, load, move, record_at, store
from orderbook.market.instruments import LARGEST
from orderbook.strategies.execution.exchange import drawn, made_order, protect, sent, specify
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
    pushed,
    report_at,
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
        *vector("news"),
        ("news_fills", "i8"),  # how many of the account's FILLs are of news
        ("orders", "i8"),  # how many were placed
        ("calls", "i8"),  # of methods, in the loop
        ("now", "i8"),  # ns
        ("instrument", "i8"),  # of the row at hand; -1: it names none
        ("tick", "i8"),
        ("lot", "i8"),
        ("position", "i8"),  # held of it, as far as was told
        ("account", "i8"),  # address of ACCOUNT
        ("boards", "i8"),  # address of int64[instruments], of the BOARD of each, 0 where it has none
        ("positions", "i8"),  # address of int64[instruments], lots held, as far as was told
        ("own", "i8"),  # address of the BOARD whose messages alone tell it anything; 0: all do
        ("throttles", "i8"),  # address of int64[throttles_count], THROTTLEs, in the order of watches
        ("throttles_count", "i8"),
        ("due", "i8"),  # when the first of those that wait has waited for long enough, ns; LAST: none waits
        ("waited", "i8"),  # how often one began to wait
        ("looks", "i8"),  # whether those that are due are left for Python to look at
        ("on_order", "i8"),  # what is called with an ORDER_UPDATE and a FILL_UPDATE; 0: nothing is
        ("on_fill", "i8"),
        ("record", "i8"),  # where these are written
        ("called", "i8"),  # how many of the news, and of their FILLs, these were called for
        ("called_fills", "i8"),
        ("before", "i8"),  # where Python goes on, how many of the news are told before rows that have waited
        ("sent", "i8"),  # requests of the message at hand
        ("others", "i8"),  # calls that are not of rows
        ("look", "i8"),  # what is called with the time at the end of a message, once; 0: nothing is
        ("looking", "i8"),  # whether it is to be called
        ("looked", "i8"),  # whether it was, at this message
        ("wake", "i8"),  # from when on it is to be called at a message, ns; LAST: by no time
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
# `price`: as it was asked for last, or is where that was refused; of a market order MARKET.
OPEN = np.dtype([(name, "i8") for name in ("id", "instrument", "market", "side", "price")])
# A row of a watch that is looked at once in `every` ns at most. The row as it was when it began to wait, and
# the row now, follow, in words.
THROTTLE = np.dtype(
    [
        ("every", "i8"),
        ("told", "i8"),  # when it was told last, ns, and whether it ever was
        ("known", "i8"),
        ("waits", "i8"),  # 0: no; else a number that grows with each that begins to
        ("watch", "i8"),
        ("instrument", "i8"),
        ("entry", "i8"),
        ("words", "i8"),  # of a row
        ("kinds", "i8"),  # address of int64[words]: COUNT_WORD, FLAG_WORD, VALUE_WORD or DOUBLE_WORD
    ]
)
COUNT_WORD, FLAG_WORD, VALUE_WORD, DOUBLE_WORD = range(4)
# A REPORT, when it was told, at which message, and whether the order has no limit.
NEWS = np.dtype(
    [
        *((name, "i8") for name in REPORT.names or ()),
        ("now", "i8"),
        ("first", "i8"),  # how many events were applied before the message
        ("at", "i8"),
        ("market", "i8"),
    ]
)
# Of each watch: what it calls (0: Python does), and how its firings lie.
HANDLER = np.dtype(
    [
        ("entry", "i8"),
        ("words", "i8"),  # of a firing
        ("old", "i8"),  # where its rows begin, in words
        ("new", "i8"),
        ("venue", "i8"),  # which of the keys they are, from 0; -1: none is
        ("symbol", "i8"),
        ("instances", "i8"),  # address of INSTANCE[count]
        ("count", "i8"),
        ("apart", "i8"),  # whether it does not matter in which order rows are told
    ]
)
# A strategy's instance for the rows of one instrument: codes of its venue and symbol; the address of a
# THROTTLE, 0 where each row is told.
INSTANCE = np.dtype([(name, "i8") for name in ("venue", "symbol", "instrument", "desk", "throttle")])

_desk_at = record_at(DESK)
_request_at = record_at(REQUEST)
_open_at = record_at(OPEN)
_news_at = record_at(NEWS)
_handler_at = record_at(HANDLER)
_instance_at = record_at(INSTANCE)
_throttle_at = record_at(THROTTLE)
_order_update_at = record_at(ORDER_UPDATE)
_fill_update_at = record_at(FILL_UPDATE)
_REQUEST_BYTES, _OPEN_BYTES, _NEWS_BYTES = REQUEST.itemsize, OPEN.itemsize, NEWS.itemsize
_HANDLER_BYTES, _INSTANCE_BYTES, _FILL_BYTES = HANDLER.itemsize, INSTANCE.itemsize, FILL.itemsize
_THROTTLE_BYTES = THROTTLE.itemsize
_REPORT_BYTES, _REPORT_WORDS = REPORT.itemsize, REPORT.itemsize // 8
assert DESK.fields is not None and ACCOUNT.fields is not None
_OPEN_AT, _NEWS_AT = DESK.fields["open"][1], DESK.fields["news"][1]
_REPORTS_AT = ACCOUNT.fields["reports"][1]
# More than any message can call for.
MOST_REQUESTS = 1_000


@jit()
def _opened(desk: Record, order_id: int) -> int:
    """Where the OPEN of an order is, 0 where it is not."""
    for number in range(desk.open_count):
        place: int = desk.open + _OPEN_BYTES * number
        if _open_at(place).id == order_id:
            return place
    return 0


@jit()
def _open(desk: int, order_id: int, instrument: int, side: int, price: int) -> None:
    if _opened(_desk_at(desk), order_id) == 0:
        one = _open_at(pushed(desk + _OPEN_AT, _OPEN_BYTES))
        one.id, one.instrument, one.side, one.price = order_id, instrument, side, price
        one.market = 1 if price == MARKET else 0


@jit()
def _close(desk: Record, order_id: int) -> None:
    place = _opened(desk, order_id)
    if place != 0:
        desk.open_count -= 1
        last = desk.open + _OPEN_BYTES * desk.open_count
        move(last, place, _OPEN_BYTES // 8)


@jit()
def _asked(desk: Record, kind: int, order_id: int) -> Record:
    """A request, to be filled in."""
    request: Record = _request_at(pushed(address_of(desk), _REQUEST_BYTES))
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
def modify(
    self: Record, order_id: int, volume: int = UNCHANGED, price: int = MARKET, stop: int = MARKET
) -> None:
    """See `Strategy.modify`."""
    request = _asked(self, MODIFY, order_id)
    request.volume, request.price, request.stop = volume, price, stop
    place = _opened(self, order_id)
    if place != 0 and price != MARKET and _open_at(place).market == 0:
        _open_at(place).price = price


@jit()
def cancel(self: Record, order_id: int) -> None:
    """See `Strategy.cancel`."""
    _asked(self, CANCEL, order_id)


@jit()
def is_open(self: Record, order_id: int) -> bool:
    """Whether an order is asked for, under way or rests, as far as was told."""
    found: bool = _opened(self, order_id) != 0
    return found


@jit()
def open_order(self: Record, side: int) -> int:
    """The last order to the instrument of the row at hand on a side (0: to buy, 1: to sell) that `is_open`; 0
    where there is none."""
    found = 0
    for number in range(self.open_count):
        one = _open_at(self.open + _OPEN_BYTES * number)
        if one.side == side and one.instrument == self.instrument and one.id > found:
            found = one.id
    return found


@jit()
def open_price(self: Record, order_id: int) -> int:
    """The price of an order that `is_open`, as it was asked for last, or is where the exchange has refused
    that; 0 for others, and without a limit."""
    place = _opened(self, order_id)
    if place == 0 or _open_at(place).market != 0:
        return 0
    price: int = _open_at(place).price
    return price


@jit()
def _tell(desk_at: int, now: int, first: int, time: int) -> None:
    """Tells a desk what is due, and leaves it as news."""
    desk = _desk_at(desk_at)
    account = account_at(desk.account)
    while account.reports_first < account.reports_count:
        place = account.reports + _REPORT_BYTES * account.reports_first
        report = report_at(place)
        if report.due > now:
            break
        at = pushed(desk_at + _NEWS_AT, _NEWS_BYTES)
        move(place, at, _REPORT_WORDS)
        news = _news_at(at)
        news.now, news.first, news.at, news.market = now, first, time, 0
        opened = _opened(desk, report.id)
        if opened != 0:
            news.market = _open_at(opened).market
        held = desk.positions + 8 * report.instrument
        for number in range(report.fills):
            fill = account.fills + _FILL_BYTES * (account.fills_first + desk.news_fills + number)
            lots = fill_at(fill).lots
            store(held, load(held) + (lots if report.side == 0 else -lots))
        desk.news_fills += report.fills
        if report.status == FILLED or report.status == CANCELLED or report.status == REFUSED:
            _close(desk, report.id)
        elif opened != 0 and report.reason != NO_REASON and _open_at(opened).market == 0:
            own = board_at(load(desk.boards + 8 * report.instrument))
            _open_at(opened).price = report.limit * own.tick_scale
        # Fills stay until Python has the news.
        dropped(desk.account + _REPORTS_AT, 1)
    account.due = LAST
    if account.reports_first < account.reports_count:
        account.due = report_at(account.reports + _REPORT_BYTES * account.reports_first).due


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
        place = _opened(desk, request.oco)
        if place == 0 or _open_at(place).instrument != request.instrument:
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
def _give_terms(desk_at: int, order: int, request: Record, now: int, first: int, time: int) -> None:
    """Gives an ORDER the terms of a request; those that come once it is done are sent with it."""
    desk = _desk_at(desk_at)
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
            desk_at, order_id, request.instrument, 1 - request.side, lots, ticks, 0, 1, now, first, time
        )
    if request.stop_loss != MARKET:
        order_id += 1
        loss = made_order(order_id, 1 - request.side, 0, 1, lots, 0, 0)
        specify(loss, 0, 0, 0, STOP, request.stop_loss // board.tick_scale, 0, 0, 0)
        _note_sent(desk_at, order_id, request.instrument, 1 - request.side, lots, 0, 1, 1, now, first, time)
    protect(order, profit, loss)


@jit()
def _note_sent(
    desk_at: int, order_id: int, instrument: int, side: int, lots: int, ticks: int, market: int, later: int,
    now: int, first: int, time: int,
) -> None:  # fmt: skip
    """Leaves as news that an order was sent. later: it comes once another is done."""
    news = _news_at(pushed(desk_at + _NEWS_AT, _NEWS_BYTES))
    news.due, news.id, news.instrument, news.time, news.status = now, order_id, instrument, now, SENT
    news.filled, news.volume, news.limit, news.modified, news.reason = 0, lots, ticks, later, 0
    news.fills, news.side, news.market = 0, side, market
    news.now, news.first, news.at = now, first, time


@jit()
def _may_be_sent(desk: Record, request: Record) -> bool:
    """Whether a request is as it should be; where not, Python says what is wrong."""
    market, post_only = request.price == MARKET, request.post_only != 0
    board, instrument = 0, request.instrument
    if request.kind != PLACE:
        place = _opened(desk, request.id)
        if place == 0:
            return True
        opened = _open_at(place)
        instrument = opened.instrument
        if request.kind == MODIFY and opened.market:
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
    good: bool = _is_price(own, request.price)
    return good


@jit()
def _send(desk_at: int, request: Record, now: int, first: int, time: int) -> None:
    """Sends what a request asks for."""
    desk = _desk_at(desk_at)
    account = account_at(desk.account)
    instrument, market = request.instrument, 1 if request.price == MARKET else 0
    if request.kind != PLACE:
        place = _opened(desk, request.id)
        # What is done stays as it is.
        if place == 0:
            return
        instrument = _open_at(place).instrument
    board = load(desk.boards + 8 * instrument)
    own = board_at(board)
    lots = request.volume // own.lot_scale if request.volume != UNCHANGED else 0
    ticks = 0 if market else request.price // own.tick_scale
    account.numbers += 1
    delay = drawn(account.feed, account.feed_count, account.feed_key, request.id, account.numbers)
    delay += drawn(account.orders, account.orders_count, account.orders_key, request.id, account.numbers)
    # With a table of delays, none of which is 0 or all of which are.
    at_once = 1 if account.at_once else 0
    order = 0
    if request.kind == PLACE:
        order = made_order(request.id, request.side, ticks, market, lots, request.ioc, request.post_only)
        _note_sent(desk_at, request.id, instrument, request.side, lots, ticks, market, 0, now, first, time)
        if request.terms:
            _give_terms(desk_at, order, request, now, first, time)
    changes_lots = 1 if request.volume != UNCHANGED and request.kind == MODIFY else 0
    changes_limit = 1 if market == 0 and request.kind == MODIFY else 0
    has_stop = 1 if request.kind == MODIFY and request.stop != MARKET else 0
    stop = request.stop // own.tick_scale if has_stop else 0
    sent(
        board, now + delay, at_once, request.kind, request.id, order, lots, changes_lots, ticks,
        changes_limit, stop, has_stop, 0,
    )  # fmt: skip
    if account.instant:
        _tell(desk_at, now, first, time)


@jit()
def _send_all(desk_at: int, now: int, first: int, time: int) -> bool:
    """Sends what is asked for; False where Python is to go on with that."""
    desk = _desk_at(desk_at)
    desk.sent += desk.requests_count - desk.requests_first
    sending: bool = desk.sent <= MOST_REQUESTS
    while sending and desk.requests_first < desk.requests_count:
        request = _request_at(desk.requests + _REQUEST_BYTES * desk.requests_first)
        sending = _may_be_sent(desk, request)
        if sending:
            _send(desk_at, request, now, first, time)
            dropped(desk_at, 1)
    desk.sent -= desk.requests_count - desk.requests_first
    return sending


@jit()
def _at_hand(desk: Record, instrument: int, now: int) -> None:
    """A method is called, for a row of an instrument."""
    board = board_at(load(desk.boards + 8 * instrument))
    desk.now, desk.instrument, desk.tick, desk.lot = now, instrument, board.tick, board.lot
    desk.position = load(desk.positions + 8 * instrument) * board.lot_scale


@jit()
def _call_news(desk_at: int, end: int, now: int) -> None:
    """Calls what follows orders and fills with the news up to the number `end`."""
    desk = _desk_at(desk_at)
    account = account_at(desk.account)
    while desk.called < end:
        news = _news_at(desk.news + _NEWS_BYTES * desk.called)
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
            _at_hand(desk, news.instrument, now)
            desk.others += 1
            call(desk.on_order, desk_at, desk.record, 0)
        if told and desk.on_fill != 0:
            for number in range(count):
                fill = fill_at(account.fills + _FILL_BYTES * (account.fills_first + place + number))
                row = _fill_update_at(desk.record)
                row.ts, row.order_id, row.side, row.maker = fill.time, news.id, news.side, fill.maker
                row.volume, row.price = fill.lots * own.lot_scale, fill.ticks * own.tick_scale
                _at_hand(desk, news.instrument, now)
                desk.others += 1
                call(desk.on_fill, desk_at, desk.record, 0)


@jit()
def _same(one: int, other: int, kinds: int, words: int) -> bool:
    """Whether two rows at addresses are equal."""
    if load(one) == 0 and load(other) == 0:
        return True
    there = True
    for number in range(words):
        kind, a, b = load(kinds + 8 * number), load(one + 8 * number), load(other + 8 * number)
        if kind == FLAG_WORD:
            there = a != 0
            if there != (b != 0):
                return False
        elif a != b and (kind == COUNT_WORD or there):
            # 0.0 and -0.0 are equal.
            zeros = kind == DOUBLE_WORD and a << 1 == 0 and b << 1 == 0
            if not zeros:
                return False
    return True


@jit()
def _offered(desk: Record, throttle: Record, old: int, new: int, now: int) -> bool:
    """A row has changed; whether its method is to be called now."""
    rows = address_of(throttle) + _THROTTLE_BYTES
    move(new, rows + 8 * throttle.words, throttle.words)
    if throttle.waits != 0:
        return False
    if throttle.known != 0 and now < throttle.told + throttle.every:
        desk.waited += 1
        throttle.waits = desk.waited
        move(old, rows, throttle.words)
        desk.due = min(desk.due, throttle.told + throttle.every)
        return False
    throttle.told, throttle.known = now, 1
    return True


@jit()
def _look(desk_at: int, now: int) -> None:
    """Tells rows that have waited for long enough, by watches, then as they began to."""
    desk = _desk_at(desk_at)
    watch, waits = -1, 0
    while True:
        found = 0
        for number in range(desk.throttles_count):
            address = load(desk.throttles + 8 * number)
            one = _throttle_at(address)
            if one.waits != 0 and one.told + one.every <= now:
                later = one.watch > watch or (one.watch == watch and one.waits > waits)
                if later and (
                    found == 0
                    or one.watch < _throttle_at(found).watch
                    or (one.watch == _throttle_at(found).watch and one.waits < _throttle_at(found).waits)
                ):
                    found = address
        if found == 0:
            break
        one = _throttle_at(found)
        watch, waits = one.watch, one.waits
        one.waits = 0
        old, new = found + _THROTTLE_BYTES, found + _THROTTLE_BYTES + 8 * one.words
        if not _same(old, new, one.kinds, one.words):
            one.told = now
            _at_hand(desk, one.instrument, now)
            desk.calls += 1
            call(one.entry, desk_at, new, old)
    desk.due = LAST
    for number in range(desk.throttles_count):
        one = _throttle_at(load(desk.throttles + 8 * number))
        if one.waits != 0:
            desk.due = min(desk.due, one.told + one.every)


@jit()
def _end_message(desk_at: int, own: bool, now: int, first: int, time: int) -> bool:
    """See `end_message`. own: whether the message tells the desk anything.

    As Python's queue has it: what was asked for, then what methods are told, then what these ask for.
    """
    desk = _desk_at(desk_at)
    follows = desk.on_order != 0 or desk.on_fill != 0
    desk.sent = desk.looked = 0
    if own and account_at(desk.account).due <= now:
        _tell(desk_at, now, first, time)
    desk.before = desk.news_count
    sent_all: bool = desk.requests_count == 0 or _send_all(desk_at, now, first, time)
    looks = own and desk.due <= now
    if not sent_all:
        desk.looks = 1 if looks else 0
        return False
    if follows:
        _call_news(desk_at, desk.before, now)
    if looks:
        _look(desk_at, now)
    if follows:
        _call_news(desk_at, desk.news_count, now)
    while sent_all and desk.requests_count != 0:
        desk.before = desk.news_count
        sent_all = _send_all(desk_at, now, first, time)
        if sent_all and follows:
            _call_news(desk_at, desk.news_count, now)
    if sent_all and desk.look != 0:
        sent_all = _look_at_end(desk_at, own, now, first, time)
    return sent_all


@jit()
def _look_at_end(desk_at: int, own: bool, now: int, first: int, time: int) -> bool:
    """Lets a desk look once, and sends what it asks for; False where Python is to go on with that."""
    desk = _desk_at(desk_at)
    if own and desk.wake <= now:
        desk.wake, desk.looking = LAST, 1
    if desk.looking == 0:
        return True
    desk.others += 1
    if call(desk.look, desk_at, now, 0) != 0:
        desk.looking = 1
        return False
    desk.looked = 1
    desk.before = desk.news_count
    sent_all: bool = desk.requests_count == 0 or _send_all(desk_at, now, first, time)
    if sent_all:
        _call_news(desk_at, desk.news_count, now)
        if desk.looking != 0:
            # What came of it is looked at with the next message.
            desk.looking, desk.wake = 0, now
    return sent_all


@jit()
def end_message(desks: int, count: int, followed: int, now: int, first: int, time: int) -> bool:
    """A message has ended, at a time of the run: desks, int64[count] at an address, are told what is due, and
    what they asked for is sent. False where Python is to go on with that.

    followed: the number of the message, as boards have it. first: how many events were applied before it.
    time: its own, ns.
    """
    done = True
    for number in range(count):
        desk_at = load(desks + 8 * number)
        desk = _desk_at(desk_at)
        own = desk.own == 0 or board_at(desk.own).message == followed
        due = own and (account_at(desk.account).due <= now or desk.due <= now or desk.wake <= now)
        if due or desk.requests_count != 0 or desk.looking != 0:
            done = _end_message(desk_at, own, now, first, time) and done
    return done


@jit()
def _instance_of(handler: Record, firing: int) -> int:
    """The address of the INSTANCE of a firing's row, 0 where there is none."""
    for number in range(handler.count):
        place: int = handler.instances + _INSTANCE_BYTES * number
        one = _instance_at(place)
        venue = handler.venue < 0 or load(firing + 8 + 8 * handler.venue) == one.venue
        if venue and (handler.symbol < 0 or load(firing + 8 + 8 * handler.symbol) == one.symbol):
            return place
    return 0


@jit()
def dispatch(handlers: int, state: int, now: int) -> bool:
    """Calls compiled methods for the rows of views that have fired; False where Python is to do it, which
    knows the order of several rows of a watch.

    handlers: address of HANDLER, by watch. state: of the engine's runtime.
    """
    firing = load(state + 8 * FIRED)
    end, watch = firing + 8 * load(state + 8 * FIRED_WORDS), -1
    while firing < end:
        handler = _handler_at(handlers + _HANDLER_BYTES * load(firing))
        again = load(firing) <= watch and handler.apart == 0
        if handler.entry == 0 or again or _instance_of(handler, firing) == 0:
            return False
        watch = load(firing)
        firing += 8 * handler.words
    firing = load(state + 8 * FIRED)
    while firing < end:
        handler = _handler_at(handlers + _HANDLER_BYTES * load(firing))
        one = _instance_at(_instance_of(handler, firing))
        desk = _desk_at(one.desk)
        old, new = firing + 8 * handler.old, firing + 8 * handler.new
        if one.throttle == 0 or _offered(desk, _throttle_at(one.throttle), old, new, now):
            _at_hand(desk, one.instrument, now)
            desk.calls += 1
            call(handler.entry, one.desk, new, old)
        firing += 8 * handler.words
    return True


@called_with("iiiiiii")
def note_open(
    desk: int, order_id: int, instrument: int, side: int, price: int, open_now: int, refused: int
) -> int:
    """An order is under way or rests, or is done. price: MARKET of a market order; refused: another was, so
    that it is this one."""
    opened = _opened(_desk_at(desk), order_id)
    if not open_now:
        _close(_desk_at(desk), order_id)
    elif opened == 0:
        _open(desk, order_id, instrument, side, price)
    elif refused and price != MARKET:
        _open_at(opened).price = price
    return 0


@called_with("iiiii")
def offer(desk: int, throttle: int, old: int, new: int, now: int) -> int:
    """See `_offered`."""
    return 1 if _offered(_desk_at(desk), _throttle_at(throttle), old, new, now) else 0
