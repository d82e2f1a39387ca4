"""A simulated exchange of order books: Coinbase's `full` channel, and its level-3 snapshots."""

import json
import random
from bisect import insort
from collections.abc import Mapping
from typing import Any, ClassVar
from uuid import UUID

import numpy as np

from feeds.exchanges.coinbase_full import CoinbaseFull
from feeds.simulated_market import Order, SimulatedBook, SimulatedMarket, iso_time
from feeds.simulation.faults import Dialect
from feeds.simulation.history import BookRows
from feeds.simulation.venue import LOT, TICK, Frame, Subscriber, Venue
from orderbook.events import Action, Side

_SIDES = {"buy": Side.BID, "sell": Side.ASK}
# Numbers that begin again begin so much lower than before, so that none is used twice.
_STEP_BACK = 50_000
_MIDDLE, _RESTING = 10_000, 40
# UUIDs are made for so many orders at a time.
_TOGETHER = 256

Event = tuple[int, int, int, int, int]  # action, order number, side, price in ticks, volume in lots


def order_number(uuid: str) -> int:
    """The first 63 bits of a UUID."""
    return int(f"{UUID(uuid).int:0128b}"[:63], 2)


class OrderVenue(Venue):
    """Random orders: they come, are reduced, moved and cancelled, and trade."""

    dialect: ClassVar[Dialect] = "orders"
    kind = CoinbaseFull
    native = "{}-USD"

    def __init__(self, seed: int, products: int) -> None:
        super().__init__(products)
        self._random = random.Random(f"orders {seed}")
        self._market = SimulatedMarket(self.instruments, seed)
        self._uuids: dict[tuple[str, int], str] = {}
        self._told = {name: _ToldBook() for name in self.products}
        self._begins = {name: book.sequence for name, book in self._market.books.items()}
        self._number = 0
        for product in self.products:
            for _ in range(_RESTING // 2):
                self._happen(product, 0)

    def step(self, time: int, product: str | None = None) -> list[Frame]:
        return self._happen(product or self._random.choice(self.products), time)

    def rows(self, product: str) -> dict[object, tuple[int, int, int]]:
        return self._told[product].rows

    def last(self, product: str) -> int:
        return self._market.books[product].sequence

    def second(self, subscriber: Subscriber, time: int) -> list[Frame]:
        books = [self._market.books[name] for name in sorted(subscriber.products("heartbeat"))]
        text = iso_time(time)
        return [Frame("heartbeat", book.product, book.sequence, book.heartbeat(text)) for book in books]

    def received(self, subscriber: Subscriber, text: str, time: int) -> list[Frame]:
        request = json.loads(text)
        if subscriber.refusing:
            refusal = {"type": "error", "message": "Failed to subscribe", "reason": "try again later"}
            return [Frame("refusal", "", 0, json.dumps(refusal).encode())]
        for channel in request["channels"]:
            subscriber.products(channel).update(request["product_ids"])
        channels = [{"name": n, "product_ids": sorted(p)} for n, p in subscriber.channels.items()]
        return [Frame("answer", "", 0, json.dumps({"type": "subscriptions", "channels": channels}).encode())]

    def told(self, subscriber: Subscriber, frame: Frame) -> bool:
        return frame.product in subscriber.products("full")

    def snapshot(self, product: str, time: int) -> bytes:
        return self._market.books[product].snapshot(iso_time(time))

    def restart(self, product: str, forget: bool) -> None:
        book, told = self._market.books[product], self._told[product]
        if self._begins[product] > 2 * _STEP_BACK:
            self._begins[product] -= _STEP_BACK
            book.sequence = self._begins[product]
            if forget:
                book.orders.clear()
                told.clear()
            self.history[product][book.sequence] = told.sums()
            # Some orders come before anybody hears of it.
            for _ in range(3):
                self._happen(product, 0)

    def unknown(self, time: int) -> bytes:
        return json.dumps({"type": "auction", "state": "collecting", "time": iso_time(time)}).encode()

    def stranger(self, frame: Frame) -> bytes:
        return frame.data.replace(frame.product.encode(), b"XXX-USD")

    def wrong(self, frame: Frame) -> bytes | None:
        message = json.loads(frame.data)
        if message["type"] in ("open", "match"):
            return json.dumps(message | {"price": self._random.choice(["1e99", "0.001", "-5", "x"])}).encode()
        return None

    def _happen(self, product: str, time: int) -> list[Frame]:
        book = self._market.books[product]
        rows = [self._row(book, event) for event in self._unit(book.orders)]
        told, history = self._told[product], self.history[product]
        frames = []
        for data in book.speak(rows, iso_time(time)):
            message = json.loads(data)
            changes = told.take(message)
            history[message["sequence"]] = told.sums()
            if message["type"] == "match":
                insort(self.trades[product], message["sequence"])
            frames.append(Frame("book", product, message["sequence"], data, changes))
        assert {order[1:] for order in told.rows.values()} == {o[1:] for o in book.orders.values()}
        return frames

    def _row(self, book: SimulatedBook, event: Event) -> tuple[Any, ...]:
        """An event as `SimulatedBook.speak` takes it."""
        action, number, side, price, volume = event
        place = (book.product, number)
        if place not in self._uuids:
            numbers = range(number, number + _TOGETHER)
            texts = book.uuids(np.array(numbers))
            self._uuids |= zip(((book.product, n) for n in numbers), texts, strict=True)
        return (0, 0, 0, number, price, volume, 0, 0, action, side, 0, 0, self._uuids[place])

    def _unit(self, orders: Mapping[int, Order]) -> list[Event]:
        chance = self._random
        choice = chance.random() if len(orders) > _RESTING // 2 else 0.0
        side = chance.randrange(2)
        distance = chance.randrange(1, 50)
        price = _MIDDLE + (distance if side == Side.ASK else -distance)
        volume = chance.randrange(1, 10**6)
        if choice < 0.4 and len(orders) < _RESTING:
            self._number += 1
            return [(Action.ADD, self._number, side, price, volume)]
        if choice < 0.65:
            return self._trades(orders, side)
        victim = chance.choice(list(orders))
        side, old_price, left = orders[victim]
        if choice < 0.75 and left > 1:
            return [(Action.REDUCE, victim, side, old_price, chance.randrange(1, left))]
        if choice < 0.85:
            price = _MIDDLE + (distance if side == Side.ASK else -distance)
            return [(Action.MODIFY, victim, side, price, volume)]
        return [(Action.DELETE, victim, side, old_price, left)]

    def _trades(self, orders: Mapping[int, Order], side: int) -> list[Event]:
        """An order that executes up to three others of a side; what is left of some rests."""
        chance = self._random
        makers = [number for number, order in orders.items() if order[0] == side] or [*orders]
        makers = [number for number in makers if orders[number][0] == orders[makers[0]][0]]
        events: list[Event] = []
        for maker in makers[: chance.randrange(1, 4)]:
            maker_side, price, left = orders[maker]
            events.append((Action.EXECUTE, maker, maker_side, price, left))
        maker_side, price, left = orders[makers[len(events) - 1]]
        events[-1] = (*events[-1][:4], chance.randrange(1, left + 1))
        if chance.random() < 0.3:
            self._number += 1
            events.append((Action.ADD, self._number, 1 - maker_side, _MIDDLE, 7))
        return events


class _ToldBook(BookRows):
    """The book as the messages tell it, read apart from what wrote them."""

    def take(self, message: Mapping[str, Any]) -> bool:
        """Follow one message; whether it says anything of the book's orders."""
        kind = message["type"]
        if kind == "received":
            return False
        key = order_number(message["maker_order_id" if kind == "match" else "order_id"])
        if kind == "open":
            price, volume = _count(message["price"], TICK), _count(message["remaining_size"], LOT)
            self.set(key, _SIDES[message["side"]], price, volume)
            return True
        if key not in self.rows:
            return False
        side, price, volume = self.rows[key]
        if kind == "match":
            self.set(key, side, price, volume - _count(message["size"], LOT))
        elif kind == "done":
            self.remove(key)
        else:
            new = message.get("new_price")
            price = price if new is None else _count(new, TICK)
            self.set(key, side, price, _count(message["new_size"], LOT))
        return True


def _count(text: str, step: Any) -> int:
    return int(type(step)(text) / step)

