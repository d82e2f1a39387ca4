"""The simulated exchange by the plain rules of docs/strategies.md, in Python: what the compiled one is
compared with. One book of levels, one account, nothing takes time; prices are ticks and volumes lots.
"""

from dataclasses import dataclass, field

import numpy as np
from plain_queue import PlainBoard, PlainOrder

from orderbook.market.events import Action, BookState, Side

DONE = ("filled", "cancelled", "refused")


@dataclass
class Asked:
    """An order as it is asked for; None and 0 are none."""

    id: int
    side: Side
    lots: int
    limit: int | None = None
    ioc: bool = False
    fok: bool = False
    post_only: bool = False
    reduce_only: bool = False
    good_until: int = 0
    stop: int | None = None
    trail: int = 0
    display: int = 0
    profit: int | None = None
    loss: int | None = None
    oco: int = 0


@dataclass
class Own:
    """An order and what has become of it; `place` is its place in its queue while it rests."""

    asked: Asked
    lots: int
    limit: int | None
    stop: int | None
    waits: bool
    filled: int = 0
    status: str = "sent"
    place: PlainOrder | None = None
    exits: list["Own"] = field(default_factory=list)
    group: set[int] = field(default_factory=set)
    ending: bool = False
    reached: bool = False

    @property
    def left(self) -> int:
        return self.lots - self.filled

    @property
    def sign(self) -> int:
        return 1 if self.asked.side is Side.BID else -1


class PlainVenue:
    """Levels by side and price, what is taken of them, and own orders by id."""

    def __init__(self, stop_by: str = "trade") -> None:
        self.levels: tuple[dict[int, int], dict[int, int]] = ({}, {})
        self.taken: tuple[dict[int, int], dict[int, int]] = ({}, {})
        self.state, self.stop_by = BookState.SYNCING, stop_by
        self.board = PlainBoard(False)
        self.orders: dict[int, Own] = {}
        # Those that rest, of both sides in the order in which they came to their places; those that wait for
        # their stop; those that come when the book is valid.
        self.resting: list[Own] = []
        self.stops: list[Own] = []
        self.coming: list[Own] = []
        self.position, self.time = 0, 0

    # What a strategy asks for.

    def place(self, asked: Asked, time: int) -> None:
        self.expire(time - 1)
        own = self._own(asked)
        self._arrives(own)
        self._settle()
        if own.status not in DONE:
            for exit_ in own.exits:
                exit_.status = "waiting"

    def cancel(self, order_id: int, time: int) -> None:
        self.expire(time - 1)
        own = self.orders.get(order_id)
        if own is None or own.status in DONE:
            return
        for other in self.orders.values():
            if own in other.exits:
                other.exits.remove(own)
        self._end(own, "cancelled")
        self._settle()

    def modify(self, order_id: int, lots: int | None, limit: int | None, stop: int | None, time: int) -> None:
        self.expire(time - 1)
        own = self.orders.get(order_id)
        if own is None or own.status in DONE or (own.limit is None and limit is not None):
            return
        if any(own in other.exits and other.status not in DONE for other in self.orders.values()):
            own.limit = limit if limit is not None else own.limit
            own.stop = stop if stop is not None and own.waits else own.stop
            return
        total = own.lots if lots is None else lots
        new = own.limit if limit is None else limit
        if own.limit is None and not own.waits:
            return
        if total > own.filled:
            takes = own.asked.post_only and not own.waits and self._takes(own, new, 1)
            if self.state is not BookState.VALID or takes:
                return
        else:
            own.lots = own.filled
            self._end(own, "cancelled")
            self._settle()
            return
        keeps = new == own.limit and total <= own.lots
        own.lots, own.limit = total, new
        if own.waits:
            own.stop = stop if stop is not None else own.stop
            if self._beyond(own):
                self.stops.remove(own)
                self._goes(own)
        elif keeps:
            assert own.place is not None
            own.place.left = own.left
            if own.asked.display:
                own.place.shown = min(own.place.shown or 0, own.left)
        else:
            self.resting.remove(own)
            self._enters(own)
        self._settle()

    def expire(self, time: int) -> None:
        """The clock of the exchange has passed this time."""
        self.time = time + 1
        times = sorted({o.asked.good_until for o in self._alive() if 0 < o.asked.good_until <= time})
        for until in times:
            for own in self._alive():
                own.ending |= own.asked.good_until == until
            self._settle()

    # What the market does.

    def message(self, events: np.ndarray, time: int) -> None:
        self.expire(time - 1)
        for event in events:
            action, side, price = Action(event["action"]), Side(event["side"]), int(event["price"])
            if action is Action.LEVEL:
                self.levels[side][price] = int(event["volume"])
                if not event["volume"]:
                    del self.levels[side][price]
            elif action is Action.STATE:
                self.state = BookState(int(event["volume"]))
        for side in (Side.BID, Side.ASK):
            best = self._best(side)
            for price in list(self.taken[side]):
                if best is None or _better(side, price, best):
                    del self.taken[side][price]
                elif price == best:
                    self.taken[side][price] = min(self.taken[side][price], self.levels[side][best])
        queues = [self._queue(side) for side in (Side.BID, Side.ASK)]
        self.board.follow([[own.place for own in queue if own.place] for queue in queues], events)
        if self.state is not BookState.VALID:
            for own in self.resting:
                assert own.place is not None
                own.place.hit = 0
                own.place.requeue |= self.state is BookState.SYNCING
            return
        for queue in queues:
            for own in queue:
                self._followed(own)
        self._settle()
        for seen in self._prices(events):
            for own in self.stops:
                self._looks(own, seen)
        while reached := [own for own in self.stops if own.reached]:
            own = reached[0]
            self.stops.remove(own)
            self._goes(own)
            self._settle()

    def _prices(self, events: np.ndarray) -> list[int | None]:
        if self.stop_by == "touch":
            return [None]
        trades = events[(events["action"] == Action.TRADE) & (events["volume"] > 0)]
        return [int(price) for price in trades["price"]]

    def _looks(self, own: Own, price: int | None) -> None:
        """A price may reach a stop, or draw it on."""
        seen = self._best(Side(1 - own.asked.side)) if price is None else price
        if own.ending or own.reached or seen is None:
            return
        if own.stop is not None and own.sign * seen >= own.sign * own.stop:
            own.reached = True
        elif own.stop is None or own.asked.trail:
            near = seen + own.sign * own.asked.trail
            stops = (near,) if own.stop is None else (near, own.stop)
            own.stop = min(stops) if own.sign > 0 else max(stops)

    def _followed(self, own: Own) -> None:
        """Fills an order that rests by what the message has filled, then by what is displayed."""
        place = own.place
        assert place is not None and own.limit is not None
        if place.requeue:
            before, known = place.front, place.ahead is not None
            place = self._joins(own, place.shown)
            if not known and place.ahead is None:
                place.front = min(place.front, before)
        most = 0 if own.ending else self._room(own)
        hit = min(place.hit, most)
        place.hit = 0
        opposite = self._best(Side(1 - own.asked.side))
        if opposite is not None and own.sign * (own.limit - opposite) >= 0 and most > hit:
            hit += self._take(own, own.limit, most - hit)
        if hit:
            self._fills(own, hit)
            place.left = own.left
            if place.shown is not None:
                place.shown -= hit
                if place.shown <= 0 and own.left:
                    self._joins(own, min(own.asked.display, own.left))

    # How orders go through the exchange.

    def _own(self, asked: Asked) -> Own:
        waits = asked.stop is not None or asked.trail > 0
        own = self.orders[asked.id] = Own(asked, asked.lots, asked.limit, asked.stop, waits)
        other, order_id = Side(1 - asked.side), asked.id
        if asked.profit is not None:
            order_id += 1
            own.exits.append(self._own(Asked(order_id, other, asked.lots, asked.profit)))
        if asked.loss is not None:
            order_id += 1
            own.exits.append(self._own(Asked(order_id, other, asked.lots, stop=asked.loss)))
        ids = {one.asked.id for one in own.exits}
        for one in own.exits if len(ids) > 1 else ():
            one.group = ids
        return own

    def _arrives(self, own: Own) -> None:
        asked = own.asked
        refused = self.state is not BookState.VALID or 0 < asked.good_until < self.time
        refused |= asked.post_only and not own.waits and self._takes(own, own.limit, 1)
        refused |= asked.reduce_only and self._room(own) == 0
        if not refused and asked.oco:
            other = self.orders.get(asked.oco)
            if other is None or other.status in DONE:
                refused = True
            else:
                other.group = other.group or {asked.oco}
                other.group.add(asked.id)
                own.group = other.group
        if refused:
            self._end(own, "refused")
        elif own.waits and own.stop is None:
            own.status = "waiting"
            seen = self._best(Side(1 - asked.side))
            own.stop = None if seen is None else seen + own.sign * asked.trail
            self.stops.append(own)
        elif own.waits and not self._beyond(own):
            own.status = "waiting"
            self.stops.append(own)
        else:
            self._goes(own)

    def _beyond(self, own: Own) -> bool:
        """Whether the market is beyond a stop when it arrives."""
        if own.stop is None:
            return False
        by_touch = self.stop_by == "touch"
        seen = self._best(Side(1 - own.asked.side) if by_touch else own.asked.side)
        return seen is not None and own.sign * seen >= own.sign * own.stop

    def _goes(self, own: Own) -> None:
        own.waits = False
        if own.asked.post_only and self._takes(own, own.limit, 1):
            self._end(own, "cancelled")
        else:
            self._enters(own)

    def _enters(self, own: Own) -> None:
        asked, most = own.asked, self._room(own)
        if asked.fok and (most < own.left or not self._takes(own, own.limit, own.left)):
            self._end(own, "cancelled")
            return
        taken = self._take(own, own.limit, most)
        if taken:
            self._fills(own, taken)
        closed = asked.reduce_only and self._room(own) == 0
        if own.left and not closed and own.limit is not None and not asked.ioc:
            own.status = "resting"
            self._joins(own, min(asked.display, own.left) if asked.display else None)
            self.resting.append(own)
        else:
            self._end(own, "cancelled" if own.left else "filled")

    def _joins(self, own: Own, shown: int | None) -> PlainOrder:
        assert own.limit is not None
        volume = self.levels[own.asked.side].get(own.limit, 0)
        ahead: dict[int, int] | None = None if volume else {}
        own.place = PlainOrder(own.asked.side, own.limit, own.left, ahead, volume, volume, shown=shown)
        return own.place

    def _fills(self, own: Own, lots: int) -> None:
        own.filled += lots
        self.position += own.sign * lots
        for other in (self.orders[one] for one in own.group):
            if other is own or other.status in DONE or other.ending or other not in self._alive():
                continue
            if own.left == 0 or other.left <= lots:
                other.ending = True
            else:
                other.lots -= lots
                if other.place is not None:
                    other.place.left = other.left

    def _settle(self) -> None:
        """What is filled, or has to end, goes; what comes then comes."""
        while True:
            for own in self._alive():
                if own.asked.reduce_only and self._room(own) == 0:
                    own.ending = True
            ends = [own for own in self._alive() if own.ending or own.left == 0]
            for own in ends:
                self._end(own, "filled" if own.left == 0 else "cancelled")
            if ends:
                continue
            if not self.coming or self.state is not BookState.VALID:
                return
            self._arrives(self.coming.pop(0))

    def _end(self, own: Own, status: str) -> None:
        own.status = status
        for held in (self.resting, self.stops, self.coming):
            if own in held:
                held.remove(own)
        for exit_ in own.exits:
            if own.filled:
                exit_.lots = own.filled
                self.coming.append(exit_)
            else:
                exit_.status = "cancelled"
        own.exits = []

    def _alive(self) -> list[Own]:
        return [*self._queue(Side.BID), *self._queue(Side.ASK), *self.stops, *self.coming]

    def _room(self, own: Own) -> int:
        if not own.asked.reduce_only:
            return own.left
        return max(0, min(own.left, -own.sign * self.position))

    # The book.

    def _queue(self, side: Side) -> list[Own]:
        own = [one for one in self.resting if one.asked.side is side]
        return sorted(own, key=lambda one: -one.sign * (one.limit or 0))

    def _best(self, side: Side) -> int | None:
        prices = self.levels[side]
        return None if not prices else max(prices) if side is Side.BID else min(prices)

    def _open(self, own: Own, limit: int | None) -> list[tuple[int, int]]:
        """What an order could take, best price first: (price, lots)."""
        side = Side(1 - own.asked.side)
        reached = [one for one in self.levels[side] if limit is None or own.sign * (limit - one) >= 0]
        prices = sorted(reached, reverse=side is Side.BID)
        left = ((p, self.levels[side][p] - self.taken[side].get(p, 0)) for p in prices)
        return [(price, lots) for price, lots in left if lots > 0]

    def _takes(self, own: Own, limit: int | None, lots: int) -> bool:
        return sum(one for _, one in self._open(own, limit)) >= lots

    def _take(self, own: Own, limit: int | None, lots: int) -> int:
        side, left = Side(1 - own.asked.side), lots
        for price, there in self._open(own, limit):
            step = min(there, left)
            left -= step
            if step:
                before = min(self.taken[side].get(price, 0), self.levels[side][price])
                self.taken[side][price] = before + step
        return lots - left


def _better(side: Side, price: int, best: int) -> bool:
    return price > best if side is Side.BID else price < best
