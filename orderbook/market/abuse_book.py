"""Books in plain dicts of orders, as an injector of abuse keeps them beside a stream it adds messages to.

They hold what rests after injection: orders of the stream, but those that an injected order has taken, and
injected ones.
"""

from collections import deque
from dataclasses import dataclass, field
from enum import IntEnum
from math import gcd
from statistics import median

from orderbook.market.events import BookState, Side

_BID, _ASK = int(Side.BID), int(Side.ASK)
# Prices of a side that an order is compared with.
_NEAR = 5
# Volumes of the newest orders, whose median is what is usual.
_REMEMBERED = 4_096
# Fields of an EVENT as a tuple.
EXCHANGE_TIME, RECEIVE_TIME, SEQUENCE, ORDER_ID, PRICE, VOLUME, INSTRUMENT, BROKER, ACTION, SIDE, FLAGS = (
    range(11)
)


class Role(IntEnum):
    """What an order is for."""

    CLEAN = 0  # of the stream itself
    NON_BONA_FIDE = 1  # not meant to be executed
    BONA_FIDE = 2  # meant to be executed
    COUNTERPARTY = 3  # of others, who quote what the abuser trades with


@dataclass(slots=True, eq=False)
class Order:
    """A resting order: price in ticks, volume in lots; `number` tells which came first."""

    id: int
    side: int
    price: int
    volume: int
    broker: int
    number: int = 0
    role: Role = Role.CLEAN


@dataclass(slots=True)
class Book:
    """Orders of one instrument by id, and at each price of a side in the order of time.

    step, lot: the greatest common divisors of all prices (ticks) and volumes (lots) so far. `taken` has the
    orders of the stream that rest there and not here.
    """

    orders: dict[int, Order] = field(default_factory=dict)
    levels: tuple[dict[int, dict[int, Order]], dict[int, dict[int, Order]]] = field(
        default_factory=lambda: ({}, {})
    )
    taken: dict[int, Order] = field(default_factory=dict)
    state: int = int(BookState.SYNCING)
    step: int = 0
    lot: int = 0
    volumes: deque[int] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))
    changed: int = 0

    def best(self, side: int) -> int | None:
        """The best price of a side; None where it is empty."""
        levels = self.levels[side]
        if not levels:
            return None
        return max(levels) if side == _BID else min(levels)

    def queue(self, side: int, price: int) -> list[Order]:
        """The orders at a price in the order of time."""
        return list(self.levels[side].get(price, {}).values())

    def depth(self, side: int) -> int:
        """The most that rests at one of the best prices of a side."""
        prices = sorted(self.levels[side], reverse=side == _BID)[:_NEAR]
        return max((sum(o.volume for o in self.levels[side][p].values()) for p in prices), default=0)

    @property
    def usual_volume(self) -> float:
        """The median volume of the newest orders, at least 1."""
        return max(1.0, median(self.volumes)) if self.volumes else 1.0

    def add(self, order: Order) -> None:
        """A new order rests."""
        self.orders[order.id] = order
        self._enter(order)

    def reduce(self, order: Order, volume: int) -> None:
        """Volume leaves an order, and with the last of it the order."""
        order.volume -= volume
        if order.volume <= 0:
            self.remove(order)

    def modify(self, order: Order, price: int, volume: int) -> None:
        """An order has another price and volume; it goes to the end unless it only has less."""
        if price == order.price and volume <= order.volume:
            order.volume = volume
            return
        self._leave(order)
        order.price, order.volume = price, volume
        self._enter(order)

    def remove(self, order: Order) -> None:
        """An order leaves."""
        del self.orders[order.id]
        self._leave(order)

    def clear(self, side: int) -> None:
        """All orders of a side, or of both, leave."""
        for each in (_BID, _ASK):
            if side in (each, Side.NONE):
                for queue in list(self.levels[each].values()):
                    for order in list(queue.values()):
                        self.remove(order)

    def _enter(self, order: Order) -> None:
        self.changed += 1
        order.number = self.changed
        self.levels[order.side].setdefault(order.price, {})[order.id] = order
        self.step = gcd(self.step, order.price)
        self.lot = gcd(self.lot, order.volume)

    def _leave(self, order: Order) -> None:
        queue = self.levels[order.side][order.price]
        del queue[order.id]
        if not queue:
            del self.levels[order.side][order.price]
