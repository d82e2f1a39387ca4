"""Queue position: where own orders stand at their price, and what market events fill of them.

In an L3 book the orders ahead are known by id. They leave when they are executed or cancelled, or lose their
place; when an order that is not ahead is executed at the price, that volume would have been ours. So
positions are exact where the exchange serves the oldest order of a price first.

In an L2 book the volume ahead is an estimate. At arrival it is all that is displayed. Trades at the price
take it, then the order. What leaves the level without a trade was cancelled: "back" takes it to be behind the
order until nothing else is left; "proportional" takes as much from ahead as the share of what is ahead. These
are the risk-averse and nearly the probability model with f(x) = x of hftbacktest ("Order Fill", Queue
Models), the latter after Rigtorp, "Estimating order queue position" (2013); in whole lots, rounded to stand
further back.

The others are hftbacktest's probability models as they are: what leaves is behind with a probability p that
follows from the volumes ahead and behind, in units of the relation, before the trades since the last look.
With f(x) = x^n, `power` is f(behind) / (f(behind) + f(ahead)), `power2` f(behind) / f(behind + ahead),
`power3` 1 - f(ahead / (ahead + behind)); `log` and `log2` are the first two with f(x) = ln(1 + x), and
`square` the first with n = 2. Of what leaves, 1 - p are ahead, and what is more than stood behind.

A feed of orders may tell a trade as executions of orders, as a print, or both. An instrument on which
executions were seen fills own orders by them alone: prints repeat them, or are of hidden orders. Otherwise
prints fill (Databento's feeds show what was executed as a print and a cancellation).

Everything here is compiled, and reached by address as books are. Own orders of a side stand best price first,
the older before the younger; a trade fills them in that order up to its volume. A trade beyond a price
reaches the orders at it with all its volume. A key is a price, greater where it is better for who takes it.
"""

import math

from orderbook.core.jit import jit
from orderbook.market.block_memory import Record, load, record_at, store
from orderbook.market.events import EVENT, Action, Side
from orderbook.strategies.execution.exchange_state import LOG, LOG_2, POWER_2, POWER_3, PROPORTIONAL, order_at

_EXECUTE, _TRADE, _LEVEL, _CLEAR = (
    int(action) for action in (Action.EXECUTE, Action.TRADE, Action.LEVEL, Action.CLEAR)
)
_REDUCE, _DELETE, _MODIFY = (int(action) for action in (Action.REDUCE, Action.DELETE, Action.MODIFY))
_EXECUTES = 1 << _EXECUTE
# The bit of what is no action.
_NO_ACTION = 63
_BID, _ASK, _NONE = int(Side.BID), int(Side.ASK), int(Side.NONE)
_MOST = 2**63 - 1
_PART = 2.0**-32

_event_at = record_at(EVENT)
_EVENT_BYTES = EVENT.itemsize


@jit()
def _place(side: int, number: int) -> Record:
    return order_at(load(side + 8 * number))


@jit()
def _fill(place: Record, lots: int, at_price: bool) -> int:
    """Fills up to so many lots by the message at hand; how many. at_price: of an iceberg what is shown."""
    filled: int = min(lots, place.left - place.hit)
    if at_price and place.display != 0:
        filled = min(filled, max(0, place.shown - place.hit))
    place.hit += filled
    return filled


@jit()
def _begin(side: int, count: int) -> None:
    """A message begins: what it prints meets what was ahead before it."""
    for number in range(count):
        place = _place(side, number)
        if place.known and place.moved:
            front = 0
            for other in range(place.count):
                front += load(place.ahead + 16 * other + 8)
            place.front, place.moved = front, 0


@jit()
def _standing(place: Record, order_id: int) -> int:
    """The address of an order's entry among those ahead, 0 where it is not."""
    for number in range(place.count):
        entry: int = place.ahead + 16 * number
        if load(entry) == order_id:
            return entry
    return 0


@jit()
def _left_ahead(place: Record, entry: int, lots: int) -> None:
    """So many lots of an order ahead stand there now."""
    place.moved = 1
    if lots > 0:
        store(entry + 8, lots)
        return
    place.count -= 1
    last = place.ahead + 16 * place.count
    store(entry, load(last))
    store(entry + 8, load(last + 8))


@jit()
def _executed(side: int, count: int, order_id: int, key: int, lots: int) -> None:
    """Lots of a resting order of the market were executed at a price, which may be another than its own."""
    left = lots
    for number in range(count):
        place = _place(side, number)
        # A book that is being rebuilt fills nothing.
        if place.requeue:
            continue
        entry = _standing(place, order_id)
        if entry:
            _left_ahead(place, entry, load(entry + 8) - lots)
        elif place.key >= key:
            left -= _fill(place, left, place.key == key)


@jit()
def _printed(side: int, count: int, key: int, lots: int, at_price: bool) -> None:
    """Lots traded at a price; `at_price`: with this side resting, so that orders at the price are reached."""
    left, passed = lots, 0
    for number in range(count):
        place = _place(side, number)
        if place.requeue:
            continue
        if place.key > key:
            left -= _fill(place, left, False)
        elif place.key == key and at_price:
            step = min(left, max(0, place.front - passed))
            left, passed = left - step, passed + step
            left -= _fill(place, left, True)
    for number in range(count):
        place = _place(side, number)
        if place.key == key and at_price and not place.requeue:
            place.front -= min(place.front, passed)
            place.traded += lots
            place.moved = 1


@jit()
def _left(side: int, count: int, action: int, order_id: int, key: int, lots: int) -> None:
    """An order of the market was deleted, reduced by lots, or has a new price and volume; it keeps its place
    if only volume goes."""
    for number in range(count):
        place = _place(side, number)
        entry = _standing(place, order_id)
        if entry:
            before, now = load(entry + 8), 0
            if action == _REDUCE:
                now = before - lots
            elif action == _MODIFY and key == place.key and lots <= before:
                now = lots
            _left_ahead(place, entry, now)


@jit()
def _behind(queue: int, power: float, front: float, back: float) -> float:
    """The probability that what leaves a level stood behind, by the volumes ahead and behind."""
    both = front + back
    if both <= 0.0:
        return 1.0
    if queue == LOG:
        return math.log(1.0 + back) / (math.log(1.0 + back) + math.log(1.0 + front))
    if queue == LOG_2:
        return math.log(1.0 + back) / math.log(1.0 + both)
    if queue == POWER_3:
        return 1.0 - math.pow(front / both, power)
    if queue == POWER_2:
        return math.pow(back, power) / math.pow(both, power)
    return math.pow(back, power) / (math.pow(back, power) + math.pow(front, power))


@jit()
def _left_by_chance(place: Record, board: Record, cancelled: int) -> None:
    """So many lots have left the level of an order, as hftbacktest's probability models have it."""
    lot, scale = 1.0 * board.proportional, 1e-8 * board.lot_scale
    front = place.front + place.part * _PART * lot
    back = max(0.0, place.level - front)
    p = _behind(board.queue, 1e-9 * board.power, front * scale, back * scale)
    left = front - (1.0 - p) * cancelled + min(0.0, back - p * cancelled)
    lots = max(0.0, left) / lot
    # A lot is filled from half a lot on.
    whole = int(lots)
    if lots - whole > 0.5:
        whole += 1
    place.front, place.part = whole * board.proportional, int((lots - whole) / _PART)


@jit()
def _displayed(side: int, count: int, key: int, lots: int, board: Record) -> None:
    """A level of an L2 book now has this volume."""
    proportional = board.proportional
    for number in range(count):
        place = _place(side, number)
        if place.key != key or place.requeue:
            continue
        if not place.known:
            standing = place.level - place.traded
            cancelled = standing - lots
            if board.queue > PROPORTIONAL:
                if cancelled >= 0:
                    _left_by_chance(place, board, cancelled)
                if place.front > lots:
                    place.front, place.part = lots, 0
            elif proportional and cancelled > 0:
                share = _share(cancelled, place.front, standing)
                place.front -= min(place.front, share - share % proportional)
            place.front = min(place.front, lots)
        place.level, place.traded = lots, 0


@jit()
def _share(part: int, of: int, whole: int) -> int:
    """part * of // whole, for numbers from 0 to 2^62, part at most the whole, which is above 0."""
    if of <= _MOST // part:
        return part * of // whole
    quotient, rest = 0, 0
    for bit in range(62, -1, -1):
        quotient, rest = 2 * quotient + 2 * rest // whole, 2 * rest % whole
        if part >> bit & 1:
            rest += of % whole
            quotient, rest = quotient + of // whole + rest // whole, rest % whole
    return quotient


@jit()
def _lose(side: int, count: int) -> None:
    for number in range(count):
        _place(side, number).requeue = 1


@jit()
def _hit(side: int, count: int) -> bool:
    found = False
    for number in range(count):
        found |= _place(side, number).hit > 0
    return found


@jit()
def _happened(board: Record, event: Record) -> None:
    """Lets an event act on the orders of a board."""
    action, side, price, lots = event.action, event.side, event.price, event.volume
    bids, asks, buys, sells = board.bids, board.asks, board.bids_count, board.asks_count
    own, count, key = (bids, buys, price) if side == _BID else (asks, sells, -price)
    if action == _TRADE:
        if not board.executes and lots > 0:
            _printed(bids, buys, price, lots, side != _BID)
            _printed(asks, sells, -price, lots, side != _ASK)
    elif action == _EXECUTE:
        if side < _NONE and lots > 0:
            _executed(own, count, event.order_id, key, lots)
    elif action == _LEVEL:
        # What the book refuses changes nothing.
        if side < _NONE and lots >= 0:
            _displayed(own, count, key, lots, board)
    elif action == _CLEAR:
        board.lost = 1
        if side == _BID or side == _NONE:
            _lose(bids, buys)
        if side == _ASK or side == _NONE:
            _lose(asks, sells)
    elif action == _DELETE or ((action == _REDUCE or action == _MODIFY) and lots > 0):
        _left(bids, buys, action, event.order_id, price, lots)
        _left(asks, sells, action, event.order_id, -price, lots)


@jit()
def action_bit(action: int) -> int:
    """The bit of an action among those of a message; of what is no Action one that is none's."""
    return 1 << (action if action < _NO_ACTION else _NO_ACTION)


@jit()
def actions_of(events: int, count: int) -> int:
    """The bits of the actions of EVENT[count] at an address."""
    actions = 0
    for number in range(count):
        actions |= action_bit(_event_at(events + _EVENT_BYTES * number).action)
    return actions


@jit()
def follow(board: Record, events: int, count: int, actions: int, instrument: int) -> bool:
    """Lets those events of a message, EVENT[count] at an address, that are of an instrument act on the orders
    of a board; whether one is filled. actions: those of all of its events, a bit each."""
    if board.bids_count + board.asks_count == 0:
        return False
    _begin(board.bids, board.bids_count)
    _begin(board.asks, board.asks_count)
    if actions & _EXECUTES:
        for number in range(count):
            event = _event_at(events + _EVENT_BYTES * number)
            if event.instrument == instrument and event.action == _EXECUTE:
                board.executes = 1
    for number in range(count):
        event = _event_at(events + _EVENT_BYTES * number)
        if event.instrument == instrument:
            _happened(board, event)
    board.hit = _hit(board.bids, board.bids_count) or _hit(board.asks, board.asks_count)
    return board.hit != 0


@jit()
def kept(taken: int, count: int, best: int, volume: int) -> int:
    """Forgets what was taken of levels, int64[count, 2], where the market has moved on: by the key and the
    volume of the best level at the end of a message. How many levels are left."""
    left = 0
    for number in range(count):
        key, lots = load(taken + 16 * number), load(taken + 16 * number + 8)
        if key <= best:
            store(taken + 16 * left, key)
            store(taken + 16 * left + 8, min(lots, volume) if key == best else lots)
            left += 1
    return left
