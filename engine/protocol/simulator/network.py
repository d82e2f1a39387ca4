"""A network that delays, reorders and repeats messages as one seed says."""

import heapq
import random
from collections.abc import Iterable
from dataclasses import dataclass

from engine.protocol.messages import Address, Message


@dataclass(frozen=True, slots=True)
class Faults:
    """delay: ns at most. ordered: pairwise in-order delivery. repeated: how many of a hundred come twice."""

    delay: int = 20
    ordered: bool = False
    repeated: int = 0


class Network:
    """Messages on their way, by the time they arrive; what arrives somewhere at once is given together."""

    def __init__(self, faults: Faults, generator: random.Random):
        self._faults, self._random = faults, generator
        self._waiting: list[tuple[int, Address, int, Message]] = []
        self._sent = 0
        self._latest: dict[tuple[Address, Address], int] = {}

    def send(self, now: int, messages: Iterable[Message]) -> None:
        """Puts messages on their way at time `now`."""
        for message in messages:
            pair = message.sender, message.receiver
            arrival = now + 1 + self._random.randrange(self._faults.delay)
            if self._faults.ordered:
                arrival = self._latest[pair] = max(arrival, self._latest.get(pair, 0))
            self._push(arrival, message)
            if self._faults.repeated and self._random.randrange(100) < self._faults.repeated:
                self._push(arrival + 1 + self._random.randrange(2 * self._faults.delay), message)

    def _push(self, arrival: int, message: Message) -> None:
        self._sent += 1
        # Equal arrivals keep the order of sending, which pairwise order needs.
        heapq.heappush(self._waiting, (arrival, message.receiver, self._sent, message))

    @property
    def next(self) -> int | None:
        """When something arrives next; None: nothing is on its way."""
        return self._waiting[0][0] if self._waiting else None

    def arrive(self) -> tuple[int, Address, list[Message]]:
        """The next arrival: its time, where, and what."""
        time, receiver, _, message = heapq.heappop(self._waiting)
        messages = [message]
        while self._waiting and self._waiting[0][:2] == (time, receiver):
            messages.append(heapq.heappop(self._waiting)[3])
        if not self._faults.ordered:
            self._random.shuffle(messages)
        return time, receiver, messages
