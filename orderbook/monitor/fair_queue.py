"""Whose query is next: that of the client which has had least, and no long one keeps short ones waiting."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count

from orderbook.errors import DataError

# Queries of one client that wait, and of all of them.
MOST_OF_A_CLIENT, MOST_WAITING = 4, 64


@dataclass(eq=False, slots=True)
class Turn:
    """A query that waits, or is under way `since` then. `long` once it has had its time as a short one."""

    client: int
    order: int
    long: bool = False
    since: float | None = None
    begun: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def going(self) -> bool:
        """Whether it is under way."""
        return self.since is not None


class FairQueue:
    """Gives at most `places` turns at a time, at most one to a client, all but one place to short queries.

    Start-time fair queueing (Goyal, Vin and Cheng, 1996): a client that comes begins with what the least
    served of those that are there has had, and whoever has had least is next. One place alone has long
    queries wherever others wait for it.
    """

    def __init__(self, places: int) -> None:
        self._places = places
        self._turns: list[Turn] = []
        self._had: dict[int, float] = {}
        self._orders = count()

    @asynccontextmanager
    async def turn(self, client: int, long: bool = False) -> AsyncIterator[Turn]:
        """Waits for a turn, which ends with the block. Raises DataError where too many wait."""
        mine = sum(turn.client == client and not turn.going for turn in self._turns)
        if mine >= MOST_OF_A_CLIENT:
            raise DataError(f"{MOST_OF_A_CLIENT} queries of yours wait already; wait for one")
        if sum(not turn.going for turn in self._turns) >= MOST_WAITING:
            raise DataError(f"{MOST_WAITING} queries of all clients wait already; ask again later")
        turn = Turn(client, next(self._orders), long)
        self._had[client] = max(self._had.get(client, 0.0), self._least())
        self._turns.append(turn)
        try:
            self._give()
            await turn.begun.wait()
            yield turn
        finally:
            self._turns.remove(turn)
            if turn.since is not None:
                self.charge(client, time.monotonic() - turn.since)
            self._give()

    def charge(self, client: int, seconds: float) -> None:
        """Note what a client has had beside its turns, unless it has gone."""
        if client in self._had:
            self._had[client] += seconds

    def leave(self, client: int) -> None:
        """A client has gone."""
        self._had.pop(client, None)

    def stays(self, turn: Turn) -> bool:
        """Whether a query that is no short one any more may go on where it is; then it is a long one."""
        turn.long = turn.long or self._room(True)
        return turn.long or not any(map(self._may_begin, self._waiting()))

    def _least(self) -> float:
        return min((self._had.get(turn.client, 0.0) for turn in self._turns), default=0.0)

    def _waiting(self) -> list[Turn]:
        waiting = [turn for turn in self._turns if not turn.going]
        return sorted(waiting, key=lambda turn: (self._had.get(turn.client, 0.0), turn.order))

    def _room(self, long: bool) -> bool:
        going = [turn for turn in self._turns if turn.going]
        return not long or sum(turn.long for turn in going) < max(1, self._places - 1)

    def _may_begin(self, turn: Turn) -> bool:
        others = any(one.client == turn.client and one.going for one in self._turns)
        return not others and self._room(turn.long)

    def _give(self) -> None:
        for turn in self._waiting():
            if sum(one.going for one in self._turns) >= self._places:
                return
            if self._may_begin(turn):
                turn.since = time.monotonic()
                turn.begun.set()
