"""A simulated exchange of price levels with checksums: Kraken's `book` and `trade`, version 2."""

import json
import random
import zlib
from typing import Any, ClassVar

from feeds.exchanges.kraken import Kraken
from feeds.simulated_market import iso_time
from feeds.simulation.faults import Dialect
from feeds.simulation.history import BookRows
from feeds.simulation.venue import LOT, TICK, Frame, Subscriber, Venue
from orderbook.events import Side

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
