"""The network between a session and a simulated exchange, and what goes wrong on it, on a virtual clock.

The agenda is virtual time: what is to happen, in the order in which it is due. An `Observer` watches a
session on the network, and spoilt frames are those that are not as the exchange meant them.
"""

import heapq
import random
import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from math import inf
from typing import Protocol

import numpy as np
from simulated_venue import Faults, Frame, Subscriber, Venue

from orderbook.feeds.exchanges.exchange import ExchangeOptions
from orderbook.feeds.live.session import Command, Connect, Disconnect, Get, Send, Session
from orderbook.feeds.live.simulated_market import iso_time

# 2026-01-05 14:30 UTC, ns: second 0 of the virtual clock.
START = 1_767_623_400_000_000_000


class Agenda:
    """Actions by the second in which they are due; those of the same moment in the order of `at`.

    now: seconds of a clock that never goes back.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._number = 0

    @property
    def next(self) -> float:
        """When the next action is due."""
        return self._due[0][0] if self._due else inf

    @property
    def nanoseconds(self) -> int:
        """The time, as ns since 1970 UTC."""
        return START + round(self.now * 1e9)

    def at(self, time: float, action: Callable[[], None]) -> None:
        """Do an action at a time, or at once where that is over."""
        self._number += 1
        heapq.heappush(self._due, (max(time, self.now), self._number, action))

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        """Do an action in so many seconds."""
        self.at(self.now + seconds, action)

    def step(self) -> None:
        """Let time pass until the next action, and do it."""
        time, _, action = heapq.heappop(self._due)
        self.now = time
        action()


class Observer(Protocol):
    """Sees everything that happens to the session, in order."""

    def hands(self, frame: Frame, fault: str | None) -> AbstractContextManager[None]:
        """A frame reaches the session inside of this, spoilt by a fault or as it was sent."""

    def suffers(self, fault: str, product: str) -> AbstractContextManager[None]:
        """What a fault does to something else than a frame happens inside of this."""

    def answers(self, product: str, number: int) -> AbstractContextManager[None]:
        """A whole snapshot of this number reaches the session inside of this."""

    def events(self, events: np.ndarray) -> None:
        """The session has made events (EVENT[n])."""

    def commanded(self, command: Command) -> None:
        """The session wants something done, which begins now."""

    def ended(self, product: str | None, retry_after: float = 0.0) -> None:
        """A GET has ended, told to wait so many seconds, or the connection where no product is named."""


_DEEP = b'{"type":' + b"[" * 100_000
_TIME = re.compile(rb'("time(?:stamp)?":")([^"]+)"')


def spoil(fault: str | None, frame: Frame, venue: Venue, chance: random.Random) -> bytes | None:
    """A frame with a fault; None where the fault does not spoil frames, or not this one."""
    data = frame.data
    match fault:
        case "truncated frame":
            return data[: chance.randrange(1, len(data) - 1)]
        case "malformed JSON":
            return chance.choice((b"", b"\xff\xfe{}", data[2:], data + b"}", b"<html>502</html>"))
        case "nested frame":
            return _DEEP
        case "oversized frame":
            return bytes(venue.kind.largest_frame + 1)
        case "wrong field":
            return venue.wrong(frame)
        case "corrupt checksum":
            return venue.corrupt(frame)
        case "exchange clock backwards" if frame.changes:
            return _earlier(data, chance.uniform(60.0, 3600.0))
    return None


def _earlier(data: bytes, seconds: float) -> bytes:
    """A message that says it is from so many seconds earlier."""

    def back(match: re.Match[bytes]) -> bytes:
        moment = datetime.fromisoformat(match[2].decode()) - timedelta(seconds=seconds)
        return match[1] + iso_time(round(moment.timestamp() * 1e6) * 1000).encode() + b'"'

    return _TIME.sub(back, data)


# Seconds: of one way, until a request without an answer is given up, and that a stopped socket still reads.
_LATENCY, _GET_TIMEOUT, _ABORTING = (0.005, 0.05), 10.0, 0.05
_MOST_WAKES = 100
# Snapshots that an exchange may still give out as its present one.
_OLD_SNAPSHOTS = 20


@dataclass(eq=False)
class _Connection:
    """One websocket; `arrived` is when the last frame on its way arrives."""

    subscriber: Subscriber
    # Until when its subscriptions are refused.
    refuses: float = 0.0
    arrived: float = 0.0
    stalled: bool = False
    closing: bool = False
    # Frames that others overtake, and how many still will.
    overtaken: list[tuple[Frame, int]] = field(default_factory=list)


class VirtualNetwork:
    """Runs a venue and one session of its kind, and injects `faults`. `observer` is to be set before `run`.

    events_per_second: steps of the market; 0 stops it.
    """

    observer: Observer

    def __init__(self, venue: Venue, faults: Faults, seed: int, events_per_second: float) -> None:
        self.venue = venue
        self.faults = faults
        self.agenda = Agenda()
        self.rate = events_per_second
        self.session = Session(
            venue.kind,
            venue.instruments,
            range(len(venue.instruments)),
            ExchangeOptions(),
            lambda: self.agenda.now,
            seed,
        )
        self._random = random.Random(f"network {seed}")
        self._connection: _Connection | None = None
        self._subscribed_once = False
        # How far the receiver's clock is behind, ns.
        self._behind = 0
        self._snapshots: dict[str, list[tuple[int, bytes]]] = {name: [] for name in venue.products}
        self._wakes = (-1.0, 0)
        self.agenda.at(0.0, self._step)
        self.agenda.at(0.0, self._second)

    @property
    def now(self) -> float:
        return self.agenda.now

    @property
    def receive_time(self) -> int:
        """What the receiver's clock says, ns since 1970 UTC."""
        return self.agenda.nanoseconds - self._behind

    def run(self, until: float) -> None:
        """Let time pass. Raises RuntimeError where the session wants to be woken without end."""
        agenda, session = self.agenda, self.session
        while True:
            connection = self._connection
            wake_at = session.wake_at
            if (connection is None or not connection.closing) and wake_at <= min(agenda.next, until):
                agenda.now = max(agenda.now, wake_at)
                self._count_wakes()
                session.wake(self.receive_time)
                self._settle()
            elif agenda.next <= until:
                agenda.step()
            else:
                agenda.now = until
                return

    def _count_wakes(self) -> None:
        last, count = self._wakes
        self._wakes = (self.now, count + 1 if last == self.now else 1)
        if self._wakes[1] > _MOST_WAKES:
            raise RuntimeError(f"the session is to be woken at {self.now} again and again")

    def _settle(self) -> None:
        """Pass on what the session has made, and begin what it wants."""
        events = self.session.take()
        if len(events):
            self.observer.events(events)
        for command in self.session.commands():
            self.observer.commanded(command)
            match command:
                case Connect():
                    self._later(self._connect)
                case Send(text):
                    self._send(self._connection, text)
                case Get(product):
                    self._later(lambda product=product: self._get(product))  # type: ignore[misc]
                case Disconnect(reason):
                    self._close(self._connection, reason)

    def _later(self, action: Callable[[], None], longest: float = _LATENCY[1]) -> None:
        self.agenda.after(self._random.uniform(_LATENCY[0], longest), action)

    # The market.

    def _step(self) -> None:
        rate = self.rate
        if rate:
            self._tell(self.venue.step(self.agenda.nanoseconds))
        self.agenda.after(self._random.expovariate(rate) if rate else 1.0, self._step)

    def _second(self) -> None:
        time = self.agenda.nanoseconds
        if self._connection is not None:
            self._write(self._connection, self.venue.second(self._connection.subscriber, time))
        if self.venue.dialect == "orders":
            product = self._random.choice(self.venue.products)
            kept = self._snapshots[product]
            kept.append((self.venue.last(product), self.venue.snapshot(product, time)))
            del kept[:-_OLD_SNAPSHOTS]
        self.agenda.after(1.0, self._second)
        self._fault_of_second(self.faults.strikes("second"))

    def _fault_of_second(self, fault: str | None) -> None:
        connection, chance = self._connection, self.faults.random
        if fault == "sequence reset":
            product = chance.choice(self.venue.products)
            with self.observer.suffers(fault, product):
                self.venue.restart(product, chance.random() < 0.5)
        elif connection is None or connection.closing:
            return
        elif fault == "clock backwards":
            back = self._behind = chance.randrange(10**9, 5 * 10**9)
            with self.observer.suffers(fault, ""):
                self.session.wake(self.receive_time)
                self._settle()
            self.agenda.after(2 * back / 1e9, self._set_clock)
        elif fault == "stall" and not connection.stalled:
            connection.stalled = True
            with self.observer.suffers(fault, ""):
                pass
        elif fault == "disconnect":
            with self.observer.suffers(fault, ""):
                self._end(connection, "reset by peer")

    def touch(self, product: str) -> None:
        """Something happens to a product, which all its subscribers are told."""
        frames: list[Frame] = []
        while not any(frame.kind == "book" for frame in frames):
            frames = self.venue.step(self.agenda.nanoseconds, product)
            self._tell(frames)

    def _set_clock(self) -> None:
        self._behind = 0

    # The connection.

    def _connect(self) -> None:
        fault = self.faults.strikes("connection")
        if fault == "refused connection":
            with self.observer.suffers(fault, ""):
                self.session.disconnected("connection refused", self.receive_time)
                self.observer.ended(None)
                self._settle()
            return
        # What is refused before a book was ever there ends the feed, so that its user sees why.
        refusing = fault == "refused subscription" and self._subscribed_once
        self._connection = connection = _Connection(Subscriber())
        if refusing:
            connection.refuses = self.now + self.faults.random.uniform(0.0, 60.0)
        self.session.connected(self.receive_time)
        self._settle()
        self._write(connection, self.venue.opened(self.agenda.nanoseconds))

    def _send(self, connection: _Connection | None, text: str) -> None:
        def received() -> None:
            if connection is not None and connection is self._connection:
                subscriber = connection.subscriber
                subscriber.refusing = self.now < connection.refuses
                self._write(connection, self.venue.received(subscriber, text, self.agenda.nanoseconds))

        # Messages of one connection arrive in order.
        self.agenda.after(_LATENCY[0], received)

    def _close(self, connection: _Connection | None, reason: str) -> None:
        if connection is not None:
            connection.closing = True
            self._later(lambda: self._end(connection, reason), _ABORTING)

    def _end(self, connection: _Connection, reason: str) -> None:
        if connection is self._connection:
            self._connection = None
            self.session.disconnected(reason, self.receive_time)
            self.observer.ended(None)
            self._settle()

    def _tell(self, frames: list[Frame]) -> None:
        connection = self._connection
        if connection is not None:
            self._write(connection, [f for f in frames if self.venue.told(connection.subscriber, f)])

    def _write(self, connection: _Connection, frames: list[Frame]) -> None:
        """Frames arrive in the order in which they are written."""
        for frame in frames:
            at = max(connection.arrived, self.now + self._random.uniform(*_LATENCY))
            connection.arrived = at
            self.agenda.at(at, lambda frame=frame: self._arrive(connection, frame))  # type: ignore[misc]

    def _arrive(self, connection: _Connection, frame: Frame) -> None:
        if connection is not self._connection or connection.stalled:
            return
        if frame.kind == "snapshot" and self.faults.strikes("answer") == "cut snapshot":
            with self.observer.suffers("cut snapshot", frame.product):
                self._end(connection, "reset by peer within a message")
            return
        if frame.kind == "refusal":
            self._hand(frame, frame.data, "refused subscription")
            return
        self._subscribed_once |= frame.kind in ("book", "heartbeat")
        self._deliver(connection, frame)
        for position, (overtaken, left) in enumerate(connection.overtaken):
            connection.overtaken[position] = (overtaken, left - 1)
        while connection is self._connection and connection.overtaken and connection.overtaken[0][1] < 0:
            self._hand(connection.overtaken.pop(0)[0])

    def _deliver(self, connection: _Connection, frame: Frame) -> None:
        """Hand a frame to the session, with what fault there is of it."""
        fault = self.faults.strikes("frame")
        chance = self.faults.random
        match fault:
            case "drop":
                self.faults.counted(fault)
                return
            case "reorder":
                self.faults.counted(fault)
                connection.overtaken.append((frame, chance.randrange(1, 4)))
                return
            case "delay":
                # All that is written from now on comes later.
                self.faults.counted(fault)
                connection.arrived = max(connection.arrived, self.now + chance.uniform(0.5, 4.0))
            case "duplicate":
                self._hand(frame)
                for _ in range(chance.choice((1, 1, 2, 9))):
                    if connection is self._connection:
                        self._hand(frame, frame.data, fault)
                return
            case "unknown message":
                self._hand(frame, self.venue.unknown(self.agenda.nanoseconds), fault)
            case "unknown product" if frame.kind in ("book", "snapshot"):
                self._hand(frame, self.venue.stranger(frame), fault)
        if connection is self._connection:
            spoilt = spoil(fault, frame, self.venue, chance)
            if spoilt is None:
                self._hand(frame)
            else:
                self._hand(frame, spoilt, fault)

    def _hand(self, frame: Frame, data: bytes | None = None, fault: str | None = None) -> None:
        connection = self._connection
        heard = connection is not None and not connection.closing
        with self.observer.hands(frame, fault if heard else "unheard"):
            self.session.frame(frame.data if data is None else data, self.receive_time)
            self._settle()

    # Requests.

    def _get(self, product: str) -> None:
        """A request has come to the exchange."""
        time = self.agenda.nanoseconds
        number, body = self.venue.last(product), self.venue.snapshot(product, time)
        fault, kept = self.faults.strikes("answer"), self._snapshots[product]
        if fault == "old snapshot" and kept:
            self.faults.counted(fault)
            number, body = self.faults.random.choice(kept)
        refused, retry_after = "", 0.0
        if fault == "refused snapshot":
            refused = "429 Too Many Requests"
            retry_after = self.faults.random.choice((0.0, 1.0, 5.0))
        elif fault == "lost snapshot":
            refused = "timed out"
        elif fault == "cut snapshot" and self.faults.random.random() < 0.5:
            refused = "IncompleteRead"
        elif fault == "cut snapshot":
            body = body[: self.faults.random.randrange(1, len(body) - 1)]
        else:
            fault = None

        def answered() -> None:
            session = self.session
            self.observer.ended(product, retry_after)
            if refused:
                with self.observer.suffers(fault or "", product):
                    session.failed(product, refused, self.receive_time, retry_after)
                    self._settle()
            elif fault is not None:
                with self.observer.suffers(fault, product):
                    session.answered(product, body, self.receive_time)
                    self._settle()
            else:
                with self.observer.answers(product, number):
                    session.answered(product, body, self.receive_time)
                    self._settle()

        if refused == "timed out":
            self.agenda.after(_GET_TIMEOUT, answered)
        else:
            self._later(answered, 0.3)
