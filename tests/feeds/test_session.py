"""A session's care of a connection, where runs with faults have found it wanting."""

from typing import Any

from session_support import Driven, instrument
from simulated_venue import Subscriber
from simulated_venues import OrderVenue

from orderbook.feeds.exchanges.books import LONGEST_BEHIND
from orderbook.feeds.exchanges.coinbase_full import CoinbaseFull
from orderbook.feeds.exchanges.exchange import ExchangeOptions
from orderbook.feeds.exchanges.kraken import Kraken
from orderbook.feeds.live.session import SNAPSHOTS_AT_ONCE, Disconnect, Get, Session
from orderbook.market.events import BookState

SECOND = 10**9


class Connected:
    """A session of CoinbaseFull with a venue, by hand; frames and answers come when the test says so."""

    def __init__(self, products: int) -> None:
        self.now = 1000.0
        self.venue = OrderVenue(1, products)
        known = self.venue.instruments
        options = ExchangeOptions()
        self.session = Session(CoinbaseFull, known, range(products), options, lambda: self.now, seed=1)
        self.connect()

    @property
    def time(self) -> int:
        return round(self.now * 1e9)

    def connect(self) -> None:
        self.now = max(self.now, self.session.wake_at)
        self.session.wake(self.time)
        self.session.commands()
        self.session.connected(self.time)
        self.subscriber = Subscriber()
        for command in self.session.commands():
            for frame in self.venue.received(self.subscriber, command.text, self.time):  # type: ignore[union-attr]
                self.session.frame(frame.data, self.time)

    def wait(self, seconds: float) -> list[str]:
        """The products that are asked for in the next seconds, in which only heartbeats come."""
        end, found = self.now + seconds, []
        while self.now < end and self.session.open:
            self.now = min(end, max(self.now, self.session.wake_at))
            self.session.wake(self.time)
            commands = self.session.commands()
            assert not any(isinstance(command, Disconnect) for command in commands), commands
            found += [command.product for command in commands if isinstance(command, Get)]
        return found

    def second(self) -> list[str]:
        """A second passes, and the heartbeats come; the products that are asked for in it."""
        asked = self.wait(1.0)
        for frame in self.venue.second(self.subscriber, self.time):
            self.session.frame(frame.data, self.time)
        return asked

    def answer(self, product: str, body: bytes | None = None) -> None:
        self.session.answered(product, body or self.venue.snapshot(product, self.time), self.time)

    def state(self, product: str) -> BookState:
        return self.session.books[product].state


def test_requests_of_a_connection_that_ended_count_until_they_end() -> None:
    client = Connected(6)
    assert len(client.wait(2.0)) == SNAPSHOTS_AT_ONCE
    client.session.disconnected("reset", client.time)
    client.connect()
    assert client.wait(2.0) == []
    client.session.failed("AAA-USD", "timed out", client.time)
    assert len(client.wait(2.0)) == 1


def test_a_book_that_was_well_is_asked_for_soon_after_its_connection_ended() -> None:
    client = Connected(1)
    for _ in range(12):
        asked_at = client.now
        while not client.wait(0.25):
            pass
        assert client.now - asked_at <= 0.5
        client.answer("AAA-USD")
        for _ in range(40):
            client.second()
        assert client.state("AAA-USD") is BookState.VALID
        client.session.disconnected("closed", client.time)
        client.connect()


def test_a_book_that_is_lost_again_and_again_does_not_wait_for_ever() -> None:
    client = Connected(1)
    valid = 0
    for number in range(60):
        client.venue.step(client.time)
        for _ in range(8):
            for product in client.second():
                client.answer(product)
            # By then the delays have grown.
            valid += number >= 30 and client.state("AAA-USD") is BookState.VALID
    assert valid > 10


def test_a_snapshot_of_numbers_before_they_began_again_is_found_out() -> None:
    client = Connected(1)
    client.wait(2.0)
    old = client.venue.snapshot("AAA-USD", client.time)
    client.venue.restart("AAA-USD", forget=True)
    client.answer("AAA-USD", old)
    assert client.state("AAA-USD") is BookState.VALID
    for _ in range(LONGEST_BEHIND // SECOND + 2):
        client.second()
    assert client.state("AAA-USD") is BookState.SYNCING
    assert client.session.statistics.problems.counts["reset"] == 1
    client.answer("AAA-USD", old)
    assert client.state("AAA-USD") is BookState.SYNCING
    client.answer("AAA-USD")
    for _ in range(LONGEST_BEHIND // SECOND + 2):
        client.second()
    assert client.state("AAA-USD") is BookState.VALID


def test_missing_and_late_trades_are_counted() -> None:
    driven = Driven(Kraken, [instrument("kraken", "BTC/USD")])
    trade: dict[str, Any] = {
        "symbol": "BTC/USD",
        "side": "buy",
        "price": 5.5,
        "qty": 1,
        "timestamp": "2023-09-25T07:48:36.925533Z",
    }
    for number in (7, 8, 10, 9, 11):
        driven.frame({"channel": "trade", "type": "update", "data": [trade | {"trade_id": number}]})
    assert driven.problems == {"missed trades": 1, "late trade": 1}
    assert len(driven.books["BTC/USD"].trades) == 4
