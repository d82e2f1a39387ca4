"""What a session may ask of an exchange, and what it may keep."""

from collections import Counter
from collections.abc import Mapping

from fault_follower import Follower
from simulated_venues import DEPTH
from virtual_network import VirtualNetwork

from orderbook.feeds.live.session import (
    FIRST_DELAY,
    LONGEST_DELAY,
    PATIENCE,
    SNAPSHOTS_AT_ONCE,
    Command,
    Connect,
    Disconnect,
    Get,
    Send,
)
from orderbook.market.events import BookState


class Limits:
    """Times are of the virtual clock, in seconds."""

    def __init__(self, network: VirtualNetwork, followers: Mapping[str, Follower]) -> None:
        self.network = network
        self.session = network.session
        self.kind = network.venue.kind
        self.followers = followers
        self._requests: Counter[str] = Counter()
        self._sent = self._asked = self._patient = -1.0
        self._ended: float | None = None
        self._opened: float | None = None
        self._failures = 0
        # When each book was last asked for, or became what it is.
        self._looked_after = dict.fromkeys(followers, 0.0)

    def commanded(self, command: Command) -> None:
        """The session wants something now."""
        kind, at = self.kind, self.network.now
        now = at + 1e-9
        match command:
            case Connect():
                if self._ended is not None:
                    least = min(LONGEST_DELAY, FIRST_DELAY * 2 ** (self._failures - 1)) / 2
                    assert now >= self._ended + least, "connects again too soon"
                assert not self.session.open
                states = [follower.state for follower in self.followers.values()]
                assert BookState.VALID not in states, "valid without a connection"
                self._sent, self._opened = -1.0, at
            case Send(text):
                if self.network.venue.dialect == "levels" and '"book"' in text:
                    self._looked_after |= {name: at for name in self.followers if f'"{name}"' in text}
                assert self._sent < 0 or now >= self._sent + kind.send_interval, "sends too fast"
                self._sent = at
            case Get(product):
                assert now >= self._patient, "asks although it was told to wait"
                assert self._asked < 0 or now >= self._asked + kind.get_interval, "asks too fast"
                self._asked = at
                self._looked_after[product] = at
                self._requests[product] += 1
                assert self._requests.total() <= SNAPSHOTS_AT_ONCE, "asks for too many at once"
            case Disconnect():
                assert self.session.open

    def request_ended(self, product: str, retry_after: float) -> None:
        self._requests[product] -= 1
        self._patient = max(self._patient, self.network.now + retry_after)

    def patient(self) -> None:
        """A book that is not there is asked for, also where messages of it are lost again and again."""
        now = self.network.now
        for name, follower in self.followers.items():
            heard = self.network.venue.dialect == "levels" or follower.arrived is not None
            if follower.state is not BookState.SYNCING or not self.session.open or not heard:
                self._looked_after[name] = now
            waited = now - max(self._looked_after[name], self._patient)
            # Requests without an answer keep others waiting.
            assert waited < PATIENCE + 12.0, f"{name} is not asked for in {waited:.0f} s"

    def connection_ended(self) -> None:
        now = self.network.now
        if self._opened is not None and now - self._opened > LONGEST_DELAY:
            self._failures = 0
        self._failures += 1
        self._ended, self._opened = now, None

    def bounded(self) -> None:
        """What is kept does not grow with time."""
        problems = self.session.statistics.problems
        assert len(problems.counts) <= 25
        assert all(len(examples) <= 5 for examples in problems.examples.values())
        assert self.session.waiting_events == 0
        assert len(self.session._commands) == 0
        assert len(self.session._outgoing.texts) <= 3 + 4 * len(self.followers)
        for name, book in self.session._exchange._books.items():  # type: ignore[attr-defined]
            rows = len(self.followers[name].rows.rows)
            if self.network.venue.dialect == "levels":
                assert all(len(ladder) <= DEPTH for ladder in book._ladders.values())
            elif self.followers[name].state is BookState.VALID:
                assert len(book._left) == rows
                assert not book.place._held
