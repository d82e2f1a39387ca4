"""Rows of `book_events` by the plain rules of views/schema.sql, in Python: lists and dictionaries."""

from typing import Any, NamedTuple

from orderbook.market.events import Action, Flag

SECOND = 10**9
MOST = 10**18 - 1
SIDES = ("bid", "ask")


class Told(NamedTuple):
    """A row, in ticks, lots and ns; None: NULL."""

    ts: int
    instrument: int
    number: int
    side: str
    id: int
    broker_id: int
    action: str
    reason: str
    price: int
    volume: int
    remaining: int
    placed_at: int
    old_price: int | None
    ahead: int | None
    level_volume: int
    bid: int | None
    ask: int | None


class _Order:
    def __init__(self, event: dict[str, Any], ts: int) -> None:
        self.id, self.side, self.price = event["order_id"], event["side"], event["price"]
        self.volume, self.broker_id, self.placed_at = event["volume"], event["broker_id"], ts


class PlainEvents:
    """The events of one book; `limits`: the most ticks and lots that it takes."""

    def __init__(self, instrument: int, limits: tuple[int, int]) -> None:
        self.instrument, self.limits = instrument, limits
        self.queue: list[_Order] = []  # all orders, in the order of their priority at whatever price
        self.levels: dict[tuple[int, int], list[int]] = {}  # volume, placed_at
        self.balances: dict[tuple[int, int], tuple[int, int]] = {}  # volume, ts
        self.number, self.executes = 0, False

    def apply(self, event: dict[str, Any]) -> list[Told]:
        """The rows that an event makes, valid or not."""
        self.told: list[Told] = []
        self.event = event
        self.ts = event["exchange_time"] or event["receive_time"]
        self.of_snapshot = bool(event["flags"] & Flag.SNAPSHOT)
        touch = [self.prices(side) for side in (0, 1)]
        self.touch = (max(touch[0], default=None), min(touch[1], default=None))
        action = event["action"]
        if action == Action.CLEAR and event["side"] <= 2:
            self._clear()
        elif action in (Action.ADD, Action.LEVEL) and self._is_valid(0 if action == Action.LEVEL else 1):
            (self._add if action == Action.ADD else self._level)()
        elif action == Action.TRADE and self._is_valid(1, 2) and event["side"] < 2 and not self.executes:
            side = 1 - event["side"]
            late = self._settle((side, event["price"]), event["volume"], not self.queue)
            if late:
                left = self.volume_at(side, event["price"])
                self._tell(side, "execute", "late", event["price"], late, left, 0, left)
        elif action == Action.DELETE or (
            action in (Action.REDUCE, Action.EXECUTE, Action.MODIFY)
            and self._is_valid(1, 255, action == Action.MODIFY)
        ):
            for order in [o for o in self.queue if o.id == event["order_id"]]:
                self._modify(order) if action == Action.MODIFY else self._take(order)
        return self.told

    def prices(self, side: int) -> set[int]:
        return {o.price for o in self.queue if o.side == side} | {p for s, p in self.levels if s == side}

    def volume_at(self, side: int, price: int) -> int:
        own = sum(o.volume for o in self.queue if (o.side, o.price) == (side, price))
        return int(own + self.levels.get((side, price), [0])[0])

    def ahead(self, order: _Order) -> int:
        before = self.queue[: self.queue.index(order)]
        return sum(o.volume for o in before if (o.side, o.price) == (order.side, order.price))

    def _is_valid(self, least: int, last: int = 1, priced: bool = True) -> bool:
        price, volume, side = (self.event[name] for name in ("price", "volume", "side"))
        most_ticks, most_lots = self.limits
        return least <= volume <= most_lots and side <= last and (not priced or abs(price) <= most_ticks)

    def _settle(self, key: tuple[int, int], change: int, owes: bool) -> int:
        volume, ts = self.balances.get(key, (0, 0))
        before = volume if key in self.balances and abs(self.ts - ts) <= SECOND else 0
        if before == 0 and change < 0 and not owes:
            return 0
        after = before + change if owes else max(0, before + change)
        self.balances[key] = (min(max(after, -MOST), MOST), self.ts)
        return min(abs(before), abs(change)) if (before > 0) == (change < 0) else 0

    def _tell(
        self, side: int, action: str, reason: str, price: int, volume: int, left: int, ahead: int | None,
        level: int, order: _Order | None = None, placed_at: int | None = None, old_price: int | None = None,
    ) -> None:  # fmt: skip
        self.number += 1
        order_id, broker_id = (0, 0) if order is None else (order.id, order.broker_id)
        bid, ask = self.touch
        since = self.ts if placed_at is None else placed_at
        since = since if order is None else order.placed_at
        if self.of_snapshot and reason in ("order", "level"):
            reason = "snapshot"
        self.told.append(
            Told(
                self.ts, self.instrument, self.number, SIDES[side], order_id, broker_id, action, reason,
                price, volume, left, since, old_price, ahead, level, bid, ask,
            )
        )  # fmt: skip

    def _add(self) -> None:
        order = _Order(self.event, self.ts)
        if self.levels or any(o.id == order.id for o in self.queue):
            return
        ahead = self.volume_at(order.side, order.price)
        level = ahead + order.volume
        self._tell(order.side, "add", "order", order.price, order.volume, order.volume, ahead, level, order)
        self.queue.append(order)

    def _take(self, order: _Order) -> None:
        deletes = self.event["action"] == Action.DELETE
        volume = order.volume if deletes else min(order.volume, self.event["volume"])
        ahead, action, executed = self.ahead(order), "cancel", 0
        if self.event["action"] == Action.EXECUTE:
            action, self.executes = "execute", True
        elif self.event["flags"] & Flag.REPLACED:
            action = "replace"
        elif not self.of_snapshot and not self.executes:
            executed = self._settle((order.side, order.price), -volume, False)
        for name, reason, part in (("execute", "trade", executed), (action, "order", volume - executed)):
            if part:
                level = self.volume_at(order.side, order.price) - part
                order.volume -= part
                self._tell(
                    order.side, name, reason, order.price, part, order.volume, ahead, level, order
                )  # fmt: skip
        if not order.volume:
            self.queue.remove(order)

    def _modify(self, order: _Order) -> None:
        price, volume = self.event["price"], self.event["volume"]
        old, before = order.price, order.volume
        order.price, order.volume = price, volume
        if price != old or volume > before:
            self.queue.remove(order)
            self.queue.append(order)
        level, ahead = self.volume_at(order.side, price), self.ahead(order)
        name, old_price = ("modify", None) if price == old else ("replace", old)
        self._tell(order.side, name, "order", price, before, volume, ahead, level, order, None, old_price)

    def _level(self) -> None:
        side, price, volume = (self.event[name] for name in ("side", "price", "volume"))
        before, since = self.levels.get((side, price), [0, self.ts])
        if self.queue or volume == before:
            return
        if volume > before:
            self._tell(side, "add", "level", price, volume - before, volume, before, volume, None, since)
        else:
            gone = before - volume
            executed = 0 if self.of_snapshot else self._settle((side, price), -gone, True)
            if executed:
                left = before - executed
                self._tell(side, "execute", "trade", price, executed, left, 0, left, None, since)
            if gone - executed:
                self._tell(side, "cancel", "level", price, gone - executed, volume, None, volume, None, since)
        self.levels[side, price] = [volume, since]
        if not volume:
            del self.levels[side, price]

    def _clear(self) -> None:
        sides = {self.event["side"]} if self.event["side"] < 2 else {0, 1}
        for order in [o for o in self.queue if o.side in sides]:
            self._tell(order.side, "clear", "order", order.price, order.volume, 0, None, 0, order)
            self.queue.remove(order)
        for side, price in [key for key in self.levels if key[0] in sides]:
            volume, since = self.levels.pop((side, price))
            self._tell(side, "clear", "level", price, volume, 0, None, 0, None, since)
