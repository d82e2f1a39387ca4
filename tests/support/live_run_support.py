"""Flow that a live run is given instead of a feed's."""

import numpy as np

from orderbook.core.errors import Problems
from orderbook.market.events import EVENT, Action, BookState, Flag, Side
from orderbook.market.synthetic_flow import generate, synthetic_instruments
from orderbook.run.feed_runs import FeedReport, FeedRun, Put

INSTRUMENTS = synthetic_instruments(2)


class Given(FeedRun):
    """A feed that puts what it is given."""

    live = True
    name = "given"
    instruments = INSTRUMENTS

    def __init__(self, items: list[np.ndarray]) -> None:
        self.indexes = np.arange(len(INSTRUMENTS), dtype=np.int32)
        self.put = 0
        self._items = items

    async def follow(self, put: Put) -> None:
        for item in self._items:
            await put(item)
            self.put += 1

    def report(self) -> FeedReport:
        return FeedReport(self.name, {}, Problems())


def flow(events: int, parts: int, seed: int = 1) -> list[np.ndarray]:
    """Books that become valid, then generated flow in parts of whole messages."""
    states = np.zeros(len(INSTRUMENTS), EVENT)
    states["instrument"], states["action"] = range(len(INSTRUMENTS)), Action.STATE
    states["side"], states["volume"], states["flags"] = Side.NONE, BookState.VALID, Flag.LAST
    made = next(generate(events, len(INSTRUMENTS), 20, seed, batch=events))
    ends = np.flatnonzero(made["flags"] & int(Flag.LAST)) + 1
    return [states, *np.split(made[: ends[-1]], ends[np.linspace(0, len(ends) - 1, parts, dtype=int)[1:-1]])]
