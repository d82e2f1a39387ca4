"""The server behind a driven session of Kraken, which answers subscriptions; its messages may go wrong."""

import re
from collections.abc import Iterable
from typing import Any

from hypothesis import strategies as st
from kraken_market import Frame, Market
from session_support import Driven

from orderbook.market.events import BookState

# A side, ticks and lots; few prices, so that they are hit again.
change = st.one_of(
    st.tuples(st.just("b"), st.integers(9_985, 10_030), st.integers(0, 4)),
    st.tuples(st.just("a"), st.integers(10_031, 10_115), st.integers(0, 4)),
)
# In both versions.
HEARTBEAT = '{"channel":"heartbeat","event":"heartbeat"}'
changes = st.lists(change, min_size=1, max_size=8)

_NUMBER = re.compile(r'("checksum":|"c":")')


class Server:
    """Markets of the session's products; an answer to a subscription is a snapshot."""

    def __init__(self, driven: Driven, write: Frame, depth: int) -> None:
        self.driven = driven
        self.write = write
        self.markets = {name: Market(name, depth) for name in driven.books}
        for market in self.markets.values():
            market.bids = {10_000 - n: 100 + n for n in range(3 * depth)}
            market.asks = {10_100 + n: 100 + n for n in range(3 * depth)}
        self.subscribed: set[str] = set()

    def answer(self, seconds: float) -> list[Any]:
        """Answer what the session sends in the next seconds, which is returned."""
        found = []
        end = self.driven.now + seconds
        while self.driven.now < end:
            self.driven.frame(HEARTBEAT)
            step = min(self.driven.now + 1.0, end)
            while sent := self.driven.sent(step - self.driven.now):
                for message in sent:
                    self._take(message)
                found += sent
            self.driven.now = step
        return found

    def _take(self, message: Any) -> None:
        channel = message.get("params", {}).get("channel") or message.get("subscription", {}).get("name")
        if channel != "book":
            return
        products = message.get("pair") or message["params"]["symbol"]
        if message.get("method", message.get("event")) == "unsubscribe":
            self.subscribed -= set(products)
            return
        for product in products:
            assert product not in self.subscribed, "subscribed to twice"
            self.subscribed.add(product)
            market = self.markets[product]
            self.driven.frame(self.write(market, "snapshot", market.snapshot()))

    def frame(self, product: str, changes: Iterable[tuple[str, int, int]]) -> str:
        """The message of a change."""
        market = self.markets[product]
        return self.write(market, "update", market.change(changes))

    def update(self, product: str, changes: Iterable[tuple[str, int, int]]) -> None:
        """A change happens, and its message arrives."""
        self.driven.frame(self.frame(product, changes))


def faulty_run(data: st.DataObject, driven: Driven, write: Frame, depth: int) -> None:
    """Random changes of two products; messages of the first are dropped, repeated, swapped or spoiled.

    A book that is valid after a message has the 10 best levels of it. At the end, books are the exchange's.
    """
    server = Server(driven, write, depth)
    server.answer(2.0)
    first, second = driven.books
    market = server.markets[first]
    held: list[tuple[str, Any]] = []
    for _ in range(data.draw(st.integers(1, 15))):
        frame, tops = server.frame(first, data.draw(changes)), _tops(market)
        fault = data.draw(st.sampled_from(["", "", "", "drop", "repeat", "hold", "checksum", "cut", "wait"]))
        if fault == "hold":
            held.append((frame, tops))
            continue
        if fault in ("checksum", "cut"):
            driven.frame(frame[:-4] if fault == "cut" else _NUMBER.sub(r"\g<1>1", frame))
            assert driven.state(first) is BookState.SYNCING
        elif fault != "drop":
            for text, top in [(frame, tops)] * (2 if fault == "repeat" else 1) + held:
                driven.frame(text)
                if driven.state(first) is BookState.VALID:
                    bids, asks = driven.levels(first)
                    assert (bids[:10], asks[:10]) == top
            held.clear()
        if fault == "wait":
            server.answer(1.0)
        server.update(second, data.draw(changes))
        if driven.state(second) is BookState.VALID:
            assert driven.levels(second) == server.markets[second].best()
    server.answer(60.0)
    _touch_everything(server, first)
    server.answer(60.0)
    assert driven.state(first) is driven.state(second) is BookState.VALID
    for product in (first, second):
        assert driven.levels(product) == server.markets[product].best()
    assert driven.statistics.reconnects == 0


def _tops(market: Market) -> Any:
    bids, asks = market.best()
    return bids[:10], asks[:10]


def _touch_everything(server: Server, product: str) -> None:
    """Take the book apart from its best levels on, so that every level comes under the checksum."""
    market = server.markets[product]
    while market.bids or market.asks:
        bids, asks = market.best()
        server.update(product, [("b", p, 0) for p, _ in bids[:5]] + [("a", p, 0) for p, _ in asks[:5]])
    server.update(product, [("b", 5, 5), ("a", 7, 7)])
