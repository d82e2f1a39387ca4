"""What Python calls of the simulated exchange, which is compiled: see `exchange`."""

from orderbook.core.jit import called_with, jit
from orderbook.engine.maps.memory import calloc
from orderbook.market.block_memory import Record, load
from orderbook.strategies.execution.displayed_volume import put
from orderbook.strategies.execution.exchange import arrive, is_within, meet, sent
from orderbook.strategies.execution.exchange_state import (
    ACCOUNT,
    FILL,
    LAST,
    PAYMENT,
    REPORT,
    account_at,
    dropped,
    offset_of,
    pushed,
    report_at,
)
from orderbook.strategies.execution.own_orders import (
    drawn,
    enter_later,
    made_order,
    protect,
    rest,
    specify,
)
from orderbook.strategies.execution.queue_position import actions_of

_REPORTS, _FILLS = offset_of(ACCOUNT, "reports"), offset_of(ACCOUNT, "fills")
_PAYMENTS, _PAYMENT_BYTES = offset_of(ACCOUNT, "payments"), PAYMENT.itemsize
_TAKEN = offset_of(ACCOUNT, "taken")
_REPORT_BYTES, _FILL_BYTES = REPORT.itemsize, FILL.itemsize


@called_with("iiiiiii")
def delay_of(delays: int, count: int, key: int, timed: int, order_id: int, number: int, time: int) -> int:
    """See `drawn`."""
    delay: int = drawn(delays, count, key, timed, order_id, number, time)
    return delay


@called_with("iii")
def is_open(sessions: int, count: int, time: int) -> int:
    """See `is_within`."""
    return 1 if is_within(sessions, count, time) else 0


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


@called_with("iiiiiii")
def new_order(
    order_id: int, side: int, limit: int, market: int, volume: int, ioc: int, post_only: int
) -> int:
    """See `made_order`."""
    address: int = made_order(order_id, side, limit, market, volume, ioc, post_only)
    return address


@called_with("iiiiiiiii")
def give_terms(
    order: int, fok: int, reduce_only: int, good_until: int, waits: int, stop: int, trail: int, display: int,
    tie: int,
) -> int:  # fmt: skip
    """See `specify`."""
    specify(order, fok, reduce_only, good_until, waits, stop, trail, display, tie)
    return 0


@called_with("iii")
def give_exits(order: int, profit: int, loss: int) -> int:
    """See `protect`."""
    protect(order, profit, loss)
    return 0


@called_with("iiiiiiiiiiiii")
def send(
    board: int, arrival: int, at_once: int, kind: int, order_id: int, order: int, lots: int, has_lots: int,
    limit: int, has_limit: int, stop: int, has_stop: int, reason: int,
) -> int:  # fmt: skip
    """See `sent`."""
    sent(
        board, arrival, at_once, kind, order_id, order, lots, has_lots, limit, has_limit, stop, has_stop,
        reason,
    )  # fmt: skip
    return 0


@called_with("ii")
def before_message(board: int, time: int) -> int:
    """See `arrive`."""
    arrive(board, time)
    return 0


@called_with("iiiii")
def after_message(board: int, events: int, count: int, time: int, now: int) -> int:
    """See `meet`."""
    meet(board, events, count, actions_of(events, count), time, now)
    return 0


@called_with("ii")
def rests(board: int, address: int) -> int:
    """See `rest`."""
    rest(board, address)
    return 0


@called_with("ii")
def enters_later(board: int, address: int) -> int:
    """See `enter_later`."""
    enter_later(board, address)
    return 0


@called_with("iii")
def put_taken(vector: int, key: int, lots: int) -> int:
    """See `put`."""
    put(vector, key, lots)
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


@called_with("i", "y")
def take_payments(account: int) -> int:
    """Takes all PAYMENTs."""
    own = account_at(account)
    _take_first(own, account + _PAYMENTS, own.payments_count - own.payments_first, _PAYMENT_BYTES)
    taken: int = account + _TAKEN
    return taken


@called_with("ii", "y")
def take_fills(account: int, count: int) -> int:
    """Takes the first so many FILLs."""
    _take_first(account_at(account), account + _FILLS, count, _FILL_BYTES)
    taken: int = account + _TAKEN
    return taken
