"""Queue positions by the plain rules of docs/strategies.md, in Python: what
`orderbook.strategies.execution.queue_position` is compared with.

Every function takes the own orders of one side, best price first, the older before the younger.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from orderbook.market.events import Action, Side


@dataclass
class PlainOrder:
    """An order that rests; `ahead`: lots by id of those before it, None in an L2 book; `shown`: lots that an
    iceberg shows, None of others. See ORDER."""

    side: Side
    limit: int
    left: int
    ahead: dict[int, int] | None
    front: int
    level: int
    traded: int = 0
    requeue: bool = False
    hit: int = 0
    shown: int | None = None
    part: float = 0.0

    @property
    def key(self) -> int:
        return self.limit if self.side is Side.BID else -self.limit

    def fill(self, lots: int, at_price: bool) -> int:
        most = self.left if self.shown is None or not at_price else min(self.left, self.shown)
        filled = max(0, min(lots, most - self.hit))
        self.hit += filled
        return filled


class PlainBoard:
    """The orders of a book."""

    def __init__(self, proportional: bool, chance: "Chance | None" = None) -> None:
        self.proportional, self.chance, self.executes = proportional, chance, False

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
                        displayed(order, lots, self.proportional, self.chance)
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
            left -= order.fill(left, order.key == key)


def printed(orders: Sequence[PlainOrder], key: int, lots: int, at_price: bool) -> None:
    """Lots traded at a price; `at_price`: with this side resting, so that orders at the price are reached."""
    left, passed = lots, 0
    for order in _placed(orders):
        if order.key > key:
            left -= order.fill(left, False)
        elif order.key == key and at_price:
            step = min(left, max(0, order.front - passed))
            left, passed = left - step, passed + step
            left -= order.fill(left, True)
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


# The probability that what leaves stood behind, by what is ahead and behind, in the relation's units; and
# what one lot is in these.
Chance = tuple[Callable[[float, float], float], float]


def chance_of(name: str, n: float, unit: float) -> Chance:
    """A probability model of hftbacktest's, by the name that a configuration gives it."""
    functions: dict[str, Callable[[float, float], float]] = {
        "power": lambda front, back: back**n / (back**n + front**n),
        "power2": lambda front, back: back**n / (back + front) ** n,
        "power3": lambda front, back: 1 - (front / (front + back)) ** n,
        "log": lambda front, back: math.log(1 + back) / (math.log(1 + back) + math.log(1 + front)),
        "log2": lambda front, back: math.log(1 + back) / math.log(1 + front + back),
        "square": lambda front, back: back**2 / (back**2 + front**2),
    }
    return functions[name], unit


def left_by_chance(order: PlainOrder, lots: int, chance: Chance) -> None:
    """As hftbacktest's ProbQueueModel.depth, with what is ahead in whole lots and a part."""
    left, (probability, unit) = order.level - lots - order.traded, chance
    if left >= 0:
        front = order.front + order.part
        back = max(0.0, order.level - front)
        p = probability(front * unit, back * unit) if front + back > 0 else 1.0
        estimate = max(0.0, front - (1 - p) * left + min(0.0, back - p * left))
        order.front = math.ceil(estimate - 0.5)
        order.part = estimate - order.front
    if order.front > lots:
        order.front, order.part = lots, 0.0


def displayed(order: PlainOrder, lots: int, proportional: bool, chance: Chance | None = None) -> None:
    """The level of the order's price in an L2 book now has this volume."""
    if order.ahead is None and chance is not None:
        left_by_chance(order, lots, chance)
    elif order.ahead is None:
        standing = order.level - order.traded
        cancelled = standing - lots
        if proportional and cancelled > 0:
            order.front -= min(order.front, cancelled * order.front // standing)
        order.front = min(order.front, lots)
    order.level, order.traded = lots, 0


def _placed(orders: Sequence[PlainOrder]) -> Iterator[PlainOrder]:
    """Those whose place is known: a book that is being rebuilt fills nothing."""
    return (order for order in orders if not order.requeue)
