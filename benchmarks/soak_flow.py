"""Endless Coinbase `full` frames: a cycle of generated flow, encoded once and renumbered every time round.

A cycle ends with the books that it began with: every order is cancelled, and those of the beginning opened
again. What changes from one time round to the next is written over the digits in place: sequence numbers,
trade ids, the first digits of order ids (so that none ever comes twice), and the sender's time.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec
import numpy as np

from orderbook.feeds.exchanges.coinbase_full import order_number
from orderbook.feeds.live.simulated_exchange import simulated_instruments, text_frame
from orderbook.feeds.live.simulated_market import SimulatedMarket, iso_time
from orderbook.market.events import EVENT, Action, Flag
from orderbook.market.instruments import Instruments
from orderbook.market.synthetic_flow import generate

# Sequence numbers and trade ids have so many digits for as long as the flow goes on.
_DIGITS = 12
_FIRST = 10 ** (_DIGITS - 1)
_ORDER_ID = re.compile(rb'"(?:maker_|taker_)?order_id":"')
_SEQUENCE, _TRADE = re.compile(rb'"sequence":'), re.compile(rb'"trade_id":')
_SNAPSHOT_ID = re.compile(rb'"[0-9a-f]{4}([0-9a-f]{4}-)')
_NO_TIME = iso_time(0).encode()
_PATCHED_AT_ONCE = 2000


@dataclass(slots=True)
class _Numbers:
    """Numbers in the text: where their digits begin, what they are at first, and what is added each time."""

    places: np.ndarray
    first: np.ndarray
    step: np.ndarray

    def write(self, text: np.ndarray, cycle: int, low: int, high: int) -> None:
        """Write those that stand in text[low:high]."""
        a, b = np.searchsorted(self.places, (low, high))
        places, values = self.places[a:b], self.first[a:b] + cycle * self.step[a:b]
        for place in range(_DIGITS - 1, -1, -1):
            values, digit = np.divmod(values, 10)
            text[places + place] = 48 + digit


class Flow:
    """`size` messages of `products` (and those that close the cycle), again and again.

    `snapshots` are the answers to `GET /products/<id>/book?level=3` just before the first.
    """

    def __init__(self, products: tuple[str, ...], size: int, seed: int) -> None:
        self.instruments: Instruments = simulated_instruments(products)
        self.products = products
        market = SimulatedMarket(self.instruments, seed)
        events = generate(2**62, len(products), 200, seed, batch=1024, imbalance=0.3)
        while not all(book.orders for book in market.books.values()):
            market.apply(next(events), 0)
        for number, book in enumerate(market.books.values(), 1):
            book.sequence = book.trade_id = number * _FIRST
        begin = {name: dict(book.orders) for name, book in market.books.items()}
        now = iso_time(0)
        self.snapshots = {
            name: _SNAPSHOT_ID.sub(rb'"0000\1', book.snapshot(now)) for name, book in market.books.items()
        }
        messages: list[bytes] = []
        while len(messages) < size:
            messages += [text for _, text in market.apply(next(events), 0)]
        for index, book in enumerate(market.books.values()):
            messages += [text for _, text in market.apply(_cancelling(index, book.orders), 0)]
        reopened = len(messages)
        for index, name in enumerate(market.books):
            messages += [text for _, text in market.apply(_opening(index, begin[name]), 0)]
        self._lay_out(messages, reopened, {n: (b.sequence, b.trade_id) for n, b in market.books.items()})

    def __len__(self) -> int:
        return len(self._ends) - 1

    def _lay_out(self, messages: list[bytes], reopened: int, last: dict[str, tuple[int, int]]) -> None:
        frames = [text_frame(message) for message in messages]
        self._ends = np.concatenate([[0], np.cumsum([len(frame) for frame in frames])])
        text = b"".join(frames)
        self._text = np.frombuffer(text, np.uint8).copy()
        steps = [np.subtract(last[name], number * _FIRST) for number, name in enumerate(self.products, 1)]
        self.sequences_a_cycle = [int(step[0]) for step in steps]
        self._numbers = [
            _numbers(text, name, [int(step[column]) for step in steps])
            for column, name in enumerate((_SEQUENCE, _TRADE))
        ]
        self._ids = np.array([found.end() for found in _ORDER_ID.finditer(text)])
        # Orders that are opened again are those of the next time round.
        self._next = self._ids >= self._ends[reopened]
        self._cycle, self._patched = 0, 0

    def frames(self, first: int, last: int, nanoseconds: int) -> bytes:
        """The frames of messages first … last - 1 of all that there ever are, sent at this time; in order."""
        now = iso_time(nanoseconds).encode()
        parts = [self._part(cycle, a, b) for cycle, a, b in self._places(first, last)]
        return b"".join(parts).replace(_NO_TIME, now)

    def payloads(self, first: int, last: int) -> Iterator[bytes]:
        """The messages without their frames' heads."""
        for cycle, a, b in self._places(first, last):
            for place in range(a, b):
                frame = self._part(cycle, place, place + 1)
                yield frame[4 if frame[1] == 126 else 2 :]

    def _places(self, first: int, last: int) -> Iterator[tuple[int, int, int]]:
        while first < last:
            cycle, place = divmod(first, len(self))
            end = min(len(self), place + last - first)
            yield cycle, place, end
            first += end - place

    def _part(self, cycle: int, first: int, last: int) -> bytes:
        if cycle != self._cycle:
            self._cycle, self._patched = cycle, 0
        while self._patched < last:
            end = min(len(self), self._patched + _PATCHED_AT_ONCE)
            self._patch(cycle, int(self._ends[self._patched]), int(self._ends[end]))
            self._patched = end
        return self._text[self._ends[first] : self._ends[last]].tobytes()

    def _patch(self, cycle: int, low: int, high: int) -> None:
        for numbers in self._numbers:
            numbers.write(self._text, cycle, low, high)
        a, b = np.searchsorted(self._ids, (low, high))
        value = cycle + self._next[a:b]
        for place in range(3, -1, -1):
            value, digit = np.divmod(value, 16)
            self._text[self._ids[a:b] + place] = np.where(digit < 10, 48, 87) + digit


@dataclass(slots=True)
class PlainBook:
    """A product's last sequence number, and its orders: number -> [side, price, volume], both in 1e-8."""

    sequence: int
    orders: dict[int, list[int]]


def played(flow: Flow, count: int) -> dict[str, PlainBook]:
    """The books after the first `count` messages, by nothing but their text."""
    cycle, place = divmod(count, len(flow))
    books = {one.native_symbol: _begun(flow, index, cycle) for index, one in enumerate(flow.instruments)}
    for text in flow.payloads(count - place, count):
        message = msgspec.json.decode(text)
        product = message["product_id"]
        books[product].sequence = message["sequence"]
        _apply(books[product].orders, message)
    return books


def _begun(flow: Flow, index: int, cycle: int) -> PlainBook:
    one = flow.instruments[index]
    snapshot = msgspec.json.decode(flow.snapshots[one.native_symbol])
    orders = {}
    for side, name in enumerate(("bids", "asks")):
        for price, size, order_id in snapshot[name]:
            number = _number(f"{cycle:04x}{order_id[4:]}")
            orders[number] = [side, _units(price), _units(size)]
    return PlainBook(snapshot["sequence"] + cycle * flow.sequences_a_cycle[index], orders)


def _number(order_id: str) -> int:
    return order_number(UUID(order_id))


def _units(text: str) -> int:
    return int(Decimal(text).scaleb(8))


def _apply(orders: dict[int, list[int]], message: dict[str, Any]) -> None:
    kind = message["type"]
    if kind == "open":
        side, price = ("buy", "sell").index(message["side"]), _units(message["price"])
        orders[_number(message["order_id"])] = [side, price, _units(message["remaining_size"])]
    elif kind == "match":
        number = _number(message["maker_order_id"])
        orders[number][2] -= _units(message["size"])
        # The flow may end before the message that says that it is done.
        if not orders[number][2]:
            del orders[number]
    elif kind == "done":
        orders.pop(_number(message["order_id"]), None)
    elif kind == "change":
        order = orders[_number(message["order_id"])]
        order[2] = _units(message["new_size"])
        if "new_price" in message:
            order[1] = _units(message["new_price"])


def _numbers(text: bytes, name: re.Pattern[bytes], steps: list[int]) -> _Numbers:
    places = np.array([found.end() for found in name.finditer(text)])
    first = np.array([int(text[place : place + _DIGITS]) for place in places.tolist()])
    return _Numbers(places, first, np.array(steps)[first // _FIRST - 1])


def _cancelling(index: int, orders: dict[int, tuple[int, int, int]]) -> np.ndarray:
    """EVENT[n] that delete these orders."""
    events = np.zeros(len(orders), EVENT)
    events["instrument"], events["action"], events["flags"] = index, Action.DELETE, Flag.LAST
    events["order_id"] = list(orders)
    return events


def _opening(index: int, orders: dict[int, tuple[int, int, int]]) -> np.ndarray:
    """EVENT[n] that add these orders, which stand as [side, ticks, lots]."""
    events = np.zeros(len(orders), EVENT)
    events["instrument"], events["action"], events["flags"] = index, Action.ADD, Flag.LAST
    events["order_id"] = list(orders)
    for place, name in enumerate(("side", "price", "volume")):
        events[name] = [order[place] for order in orders.values()]
    return events
