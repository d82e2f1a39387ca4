"""Queue positions by the plain rules of docs/strategies.md, in Python: what
`orderbook.strategies.execution.queue_position` is compared with.

Every function takes the own orders of one side, best price first, the older before the younger.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from orderbook.market.events import Action, Side


@dataclass
class PlainOrder:
    """An order that rests; `ahead`: lots by id of those before it, None in an L2 book. See queue.PLACE."""

    side: Side
    limit: int
    left: int
    ahead: dict[int, int] | None
    front: int
    level: int
    traded: int = 0
    requeue: bool = False
    hit: int = 0

    @property
    def key(self) -> int:
        return self.limit if self.side is Side.BID else -self.limit

    def fill(self, lots: int) -> int:
        filled = min(lots, self.left - self.hit)
        self.hit += filled
        return filled


class PlainBoard:
    """The orders of a book."""

    def __init__(self, proportional: bool) -> None:
        self.proportional, self.executes = proportional, False

    def follow(self, sides: Sequence[list[PlainOrder]], events: np.ndarray) -> None:
        """Lets the events of a message act."""
        if not (sides[0] or sides[1]):
            return
        for orders in sides:
            begin(orders)
        self.executes |= bool((events["action"] == Action.EXECUTE).any())
        for event in events:
            action, side, order_id = Action(event["action"]), Side(event["side"]), int(event["order_id"])
            price, lots = int(event["price"]), int(event["volume"])
            if action is Action.TRADE:
                if not self.executes and lots > 0:
                    printed(sides[Side.BID], price, lots, side is not Side.BID)
                    printed(sides[Side.ASK], -price, lots, side is not Side.ASK)
            elif action is Action.EXECUTE:
                if side is not Side.NONE and lots > 0:
                    executed(sides[side], order_id, price if side is Side.BID else -price, lots)
            elif action is Action.LEVEL:
                for order in sides[side] if side is not Side.NONE and lots >= 0 else ():
                    if order.limit == price and not order.requeue:
                        displayed(order, lots, self.proportional)
            elif action is Action.CLEAR:
                for order in (o for s in (Side.BID, Side.ASK) if side in (s, Side.NONE) for o in sides[s]):
                    order.requeue = True
            elif action is Action.DELETE or (action in (Action.REDUCE, Action.MODIFY) and lots > 0):
                for order in (*sides[Side.BID], *sides[Side.ASK]):
                    if action is Action.MODIFY:
                        modified(order, order_id, price, lots)
                    else:
                        gone(order, order_id, lots if action is Action.REDUCE else None)


def begin(orders: Sequence[PlainOrder]) -> None:
    """A message begins: what it prints meets what was ahead before it."""
    for order in orders:
        if order.ahead is not None:
            order.front = sum(order.ahead.values())


def executed(orders: Sequence[PlainOrder], order_id: int, key: int, lots: int) -> None:
    """Lots of a resting order of the market were executed at a price, which may be another than its own."""
    left = lots
    for order in _placed(orders):
        if order.ahead and order_id in order.ahead:
            gone(order, order_id, lots)
        elif order.key >= key:
            left -= order.fill(left)


def printed(orders: Sequence[PlainOrder], key: int, lots: int, at_price: bool) -> None:
    """Lots traded at a price; `at_price`: with this side resting, so that orders at the price are reached."""
    left, passed = lots, 0
    for order in _placed(orders):
        if order.key > key:
            left -= order.fill(left)
        elif order.key == key and at_price:
            step = min(left, max(0, order.front - passed))
            left, passed = left - step, passed + step
            left -= order.fill(left)
    for order in _placed(orders):
        if order.key == key and at_price:
            order.front -= min(order.front, passed)
            order.traded += lots


def gone(order: PlainOrder, order_id: int, lots: int | None) -> None:
    """Lots of an order of the market have left the book; None: all of it."""
    ahead = order.ahead
    if ahead and order_id in ahead:
        if lots is None or ahead[order_id] <= lots:
            del ahead[order_id]
        else:
            ahead[order_id] -= lots


def modified(order: PlainOrder, order_id: int, price: int, lots: int) -> None:
    """An order of the market has a new price and volume; it keeps its place if only volume goes."""
    ahead = order.ahead
    if ahead and order_id in ahead:
        if price == order.limit and lots <= ahead[order_id]:
            ahead[order_id] = lots
        else:
            del ahead[order_id]


def displayed(order: PlainOrder, lots: int, proportional: bool) -> None:
    """The level of the order's price in an L2 book now has this volume."""
    if order.ahead is None:
        standing = order.level - order.traded
        cancelled = standing - lots
        if proportional and cancelled > 0:
            order.front -= min(order.front, cancelled * order.front // standing)
        order.front = min(order.front, lots)
    order.level, order.traded = lots, 0


def _placed(orders: Sequence[PlainOrder]) -> Iterator[PlainOrder]:
    """Those whose place is known: a book that is being rebuilt fills nothing."""
    return (order for order in orders if not order.requeue)
