"""Simulated exchanges: one of price levels with checksums, and one of order books.

The first speaks Kraken's `book` and `trade`, version 2; the second Coinbase's `full` channel, with its
level-3 snapshots.
"""

import json
import random
import zlib
from bisect import insort
from collections.abc import Mapping
from typing import Any, ClassVar
from uuid import UUID

import numpy as np
from simulated_venue import LOT, TICK, BookRows, Dialect, Frame, Subscriber, Venue

from orderbook.feeds.exchanges.coinbase_full import CoinbaseFull
from orderbook.feeds.exchanges.kraken import Kraken
from orderbook.feeds.live.simulated_market import Order, SimulatedBook, SimulatedMarket, iso_time
from orderbook.market.events import Action, Side

DEPTH = 10
_MIDDLE, _LEVELS = 10_000, 25
Levels = list[tuple[int, int]]


class LevelVenue(Venue):
    """Random changes of levels; the best 10 of each side are told, and all of them are in the checksum."""

    dialect: ClassVar[Dialect] = "levels"
    kind = Kraken
    native = "{}/USD"

    def __init__(self, seed: int, products: int) -> None:
        super().__init__(products)
        self._random = random.Random(f"levels {seed}")
        self._markets = {name: _Market(self._random) for name in self.products}
        self._told = {name: BookRows() for name in self.products}
        self._trade_ids = dict.fromkeys(self.products, 0)
        self._versions = dict.fromkeys(self.products, 0)
        for name in self.products:
            self._note(name)

    def step(self, time: int, product: str | None = None) -> list[Frame]:
        product = product or self._random.choice(self.products)
        frames = []
        if self._random.random() < 0.3:
            frames.append(self._trade(product, time))
        changed = self._markets[product].change()
        if any(changed):
            self._note(product)
            data = self._book(product, "update", changed, time)
            frames.append(Frame("book", product, self._versions[product], data, True))
        return frames

    def rows(self, product: str) -> dict[object, tuple[int, int, int]]:
        return self._told[product].rows

    def last(self, product: str) -> int:
        return self._versions[product]

    def second(self, subscriber: Subscriber, time: int) -> list[Frame]:
        return [Frame("heartbeat", "", 0, b'{"channel":"heartbeat"}')]

    def opened(self, time: int) -> list[Frame]:
        status = {"channel": "status", "type": "update", "data": [{"system": "online", "version": "2.0.0"}]}
        return [Frame("answer", "", 0, json.dumps(status).encode())]

    def received(self, subscriber: Subscriber, text: str, time: int) -> list[Frame]:
        request = json.loads(text)
        method, parameters = request["method"], request["params"]
        channel = parameters["channel"]
        frames = []
        for product in parameters.get("symbol", ["*"]):
            place = {"channel": channel, "symbol": product}
            answer: dict[str, Any] = {"method": method, "result": place, "success": True}
            if subscriber.refusing and channel == "book":
                answer = {"method": method, "success": False, "error": "try again later", "symbol": product}
            elif (product in subscriber.products(channel)) == (method == "subscribe"):
                if method == "subscribe":
                    self.violations.append(f"subscribes twice to {channel} of {product}")
                answer = {"method": method, "success": False, "error": "already so", "symbol": product}
            elif method == "subscribe":
                subscriber.products(channel).add(product)
            else:
                subscriber.products(channel).discard(product)
            kind = "answer" if answer["success"] else "refusal"
            frames.append(Frame(kind, product, 0, json.dumps(answer).encode()))  # type: ignore[arg-type]
            if channel == "book" and method == "subscribe" and answer["success"]:
                data = self._book(product, "snapshot", self._markets[product].shown, time)
                frames.append(Frame("snapshot", product, self._versions[product], data))
        return frames

    def told(self, subscriber: Subscriber, frame: Frame) -> bool:
        return frame.product in subscriber.products(frame.kind)

    def unknown(self, time: int) -> bytes:
        return json.dumps({"channel": "auction", "type": "update", "data": []}).encode()

    def stranger(self, frame: Frame) -> bytes:
        return frame.data.replace(frame.product.encode(), b"XXX/USD")

    def wrong(self, frame: Frame) -> bytes | None:
        if frame.kind not in ("book", "snapshot"):
            return None
        bad = self._random.choice([b'"price":-5,', b'"price":0.001,', b'"price":1e99,'])
        data = frame.data.replace(b'"price":', bad + b'"was":', 1)
        return data if data != frame.data else None

    def corrupt(self, frame: Frame) -> bytes | None:
        if frame.kind not in ("book", "snapshot"):
            return None
        return frame.data.replace(b'"checksum":', b'"checksum":1', 1)

    def _note(self, product: str) -> None:
        self._versions[product] += 1
        rows = self._told[product]
        rows.clear()
        for side, levels in zip(Side, self._markets[product].shown, strict=False):
            for price, volume in levels:
                rows.set((int(side), price), side, price, volume)
        self.history[product][self._versions[product]] = rows.sums()

    def _book(self, product: str, kind: str, levels: tuple[Levels, Levels], time: int) -> bytes:
        def side(rows: Levels) -> str:
            return ",".join(f'{{"price":{price * TICK},"qty":{volume * LOT}}}' for price, volume in rows)

        bids, asks = map(side, levels)
        checksum = self._markets[product].checksum()
        return (
            f'{{"channel":"book","type":"{kind}","data":[{{"symbol":"{product}","bids":[{bids}],'
            f'"asks":[{asks}],"checksum":{checksum},"timestamp":"{iso_time(time)}"}}]}}'
        ).encode()

    def _trade(self, product: str, time: int) -> Frame:
        self._trade_ids[product] += 1
        number, price = self._trade_ids[product], _MIDDLE * TICK
        data = (
            f'{{"channel":"trade","type":"update","data":[{{"symbol":"{product}","side":"buy",'
            f'"price":{price},"qty":{number * LOT},"trade_id":{number},"timestamp":"{iso_time(time)}"}}]}}'
        )
        self.trades[product].append(number)
        return Frame("trade", product, number, data.encode(), True)


class _Market:
    """A whole book, of which the best levels of bids and asks are shown: (ticks, lots), best first."""

    def __init__(self, chance: random.Random) -> None:
        self._random = chance
        self._sides: tuple[dict[int, int], dict[int, int]] = ({}, {})
        for distance in range(1, _LEVELS):
            self._sides[0][_MIDDLE - distance] = chance.randrange(1, 10**6)
            self._sides[1][_MIDDLE + distance] = chance.randrange(1, 10**6)
        self.shown = self._best()

    def change(self) -> tuple[Levels, Levels]:
        """Some levels change; those that are to be told: a level that only leaves the best is not."""
        before = self.shown
        for _ in range(self._random.randrange(1, 5)):
            side = self._random.randrange(2)
            distance = 1 + min(self._random.randrange(_LEVELS), self._random.randrange(_LEVELS))
            price = _MIDDLE + (distance if side else -distance)
            self._sides[side].pop(price, None)
            if self._random.random() < 0.6:
                self._sides[side][price] = self._random.randrange(1, 10**6)
        self.shown = self._best()
        told: list[Levels] = []
        for old, new, whole in zip(before, self.shown, self._sides, strict=True):
            known = dict(old)
            gone = [(price, 0) for price in known if price not in whole]
            told.append(gone + [(price, volume) for price, volume in new if known.get(price) != volume])
        return told[0], told[1]

    def checksum(self) -> int:
        """CRC32 of asks, then bids: digits of price and size without point and leading zeros."""
        bids, asks = self.shown
        digits = "".join(f"{price}{volume}" for price, volume in (*asks, *bids))
        return zlib.crc32(digits.encode())

    def _best(self) -> tuple[Levels, Levels]:
        bids, asks = self._sides
        return sorted(bids.items(), reverse=True)[:DEPTH], sorted(asks.items())[:DEPTH]


_SIDES = {"buy": Side.BID, "sell": Side.ASK}
# Numbers that begin again begin so much lower than before, so that none is used twice.
_STEP_BACK = 50_000
_MIDDLE_TICKS, _RESTING = 10_000, 40
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
        price = _MIDDLE_TICKS + (distance if side == Side.ASK else -distance)
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
            price = _MIDDLE_TICKS + (distance if side == Side.ASK else -distance)
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
            events.append((Action.ADD, self._number, 1 - maker_side, _MIDDLE_TICKS, 7))
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
