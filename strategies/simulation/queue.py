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

A feed of orders may tell a trade as executions of orders, as a print, or both. An instrument on which
executions were seen fills own orders by them alone: prints repeat them, or are of hidden orders. Otherwise
prints fill (Databento's feeds show what was executed as a print and a cancellation).

Every function takes the own orders of one side, best price first, the older before the younger; a trade fills
them in that order up to its volume. A trade beyond a price reaches the orders at it with all its volume.
"""

from collections.abc import Iterator, Sequence

from strategies.simulation.market_books import MarketBooks
from strategies.simulation.working import Working


def join(books: MarketBooks, order: Working) -> None:
    """Stand behind everything that is displayed at the order's price."""
    assert order.limit is not None
    there = books.at(order.instrument, order.side, order.limit)
    volumes = there["volume"].tolist()
    order.front = order.level = sum(volumes)
    order.traded, order.requeue = 0, False
    # A level of an L2 book has the id 0. Where nothing rests, nobody is ahead in either.
    by_id = dict(zip(there["id"].tolist(), volumes, strict=True))
    order.ahead = None if 0 in by_id else by_id


def rejoin(books: MarketBooks, order: Working) -> None:
    """Stand where an order can be said to stand when its book has been lost and is there again.

    In an L2 book it is not further back than before.
    """
    before = order.front if order.ahead is None else None
    join(books, order)
    if before is not None and order.ahead is None:
        order.front = min(order.front, before)


def begin(orders: Sequence[Working]) -> None:
    """A message begins: what it prints meets what was ahead before it."""
    for order in orders:
        if order.ahead is not None:
            order.front = sum(order.ahead.values())


def executed(orders: Sequence[Working], order_id: int, key: int, lots: int) -> None:
    """Lots of a resting order of the market were executed at a price, which may be another than its own."""
    left = lots
    for order in _placed(orders):
        if order.ahead and order_id in order.ahead:
            gone(order, order_id, lots)
        elif order.key >= key:
            left -= order.fill(left)


def printed(orders: Sequence[Working], key: int, lots: int, at_price: bool) -> None:
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


def gone(order: Working, order_id: int, lots: int | None) -> None:
    """Lots of an order of the market have left the book; None: all of it."""
    ahead = order.ahead
    if ahead and order_id in ahead:
        if lots is None or ahead[order_id] <= lots:
            del ahead[order_id]
        else:
            ahead[order_id] -= lots


def modified(order: Working, order_id: int, price: int, lots: int) -> None:
    """An order of the market has a new price and volume; it keeps its place if only volume goes."""
    ahead = order.ahead
    if ahead and order_id in ahead:
        if price == order.limit and lots <= ahead[order_id]:
            ahead[order_id] = lots
        else:
            del ahead[order_id]


def displayed(order: Working, lots: int, proportional: bool) -> None:
    """The level of the order's price in an L2 book now has this volume."""
    if order.ahead is None:
        standing = order.level - order.traded
        cancelled = standing - lots
        if proportional and cancelled > 0:
            order.front -= min(order.front, cancelled * order.front // standing)
        order.front = min(order.front, lots)
    order.level, order.traded = lots, 0


def _placed(orders: Sequence[Working]) -> Iterator[Working]:
    """Those whose place is known: a book that is being rebuilt fills nothing."""
    return (order for order in orders if not order.requeue)
