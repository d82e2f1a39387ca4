"""The feeds of a run: opened from their configuration, followed until they end."""

import asyncio
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from feeds.coinbase_feed import CoinbaseFullFeed, coinbase_instruments
from feeds.live import LiveFeed
from feeds.simulated_exchange import VENUE as SIMULATED
from feeds.simulated_exchange import SimulatedExchange, simulated_instruments
from feeds.source import ChangeSource, EventSource, open_source
from orderbook import configuration as options
from orderbook.errors import UserError
from orderbook.instruments import Instruments
from orderbook.merge import ChangeItem, Item, common_instruments, is_event_source
from orderbook.problems import Problems

Put = Callable[[Item], Awaitable[None]]
_STATISTICS = ("frames", "messages", "events", "gaps", "resyncs", "reconnects", "malformed")


@dataclass(frozen=True, slots=True)
class FeedReport:
    """What a feed or source has seen, and what went wrong in it."""

    name: str
    counts: Mapping[str, int]
    problems: Problems


class FeedRun(ABC):
    """One feed. `indexes` gives, for each of its `instruments`, the index in the run's; None without any."""

    name: str
    live: bool
    instruments: Instruments
    indexes: np.ndarray

    @abstractmethod
    async def follow(self, put: Put) -> None:
        """Put everything that arrives, until the feed ends or the task is cancelled.

        Raises SourceError where the source is refused or truncated, after everything before that.
        """

    @abstractmethod
    def report(self) -> FeedReport: ...

    def _translated(self, events: np.ndarray) -> np.ndarray:
        events = events.copy()
        events["instrument"] = self.indexes[events["instrument"]]
        return events


class LiveRun(FeedRun):
    """A live feed of an exchange."""

    live = True

    def __init__(self, name: str, instruments: Instruments) -> None:
        self.name = name
        self.instruments = instruments
        self._feed: LiveFeed | None = None

    async def _follow(self, feed: LiveFeed, put: Put) -> None:
        self._feed = feed
        async with feed:
            async for events in feed:
                await put(self._translated(events))

    def report(self) -> FeedReport:
        """Statistics of the feed since it was opened."""
        if self._feed is None:
            return FeedReport(self.name, {}, Problems())
        statistics = self._feed.statistics
        counts = {name: getattr(statistics, name) for name in _STATISTICS}
        return FeedReport(self.name, counts, statistics.problems)


class CoinbaseRun(LiveRun):
    """Coinbase's `full` channel."""

    def __init__(self, feed: options.CoinbaseFeed, instruments: Instruments) -> None:
        super().__init__(f"coinbase:{','.join(feed.products)}", instruments)
        self._options = feed

    async def follow(self, put: Put) -> None:
        """See FeedRun."""
        await self._follow(CoinbaseFullFeed(self.instruments, self._options.url, self._options.rest_url), put)


class SimulatedRun(LiveRun):
    """The simulated exchange on loopback, and the feed that is its client."""

    def __init__(self, feed: options.SimulatedFeed) -> None:
        super().__init__(f"simulated:{','.join(feed.products)}", simulated_instruments(feed.products))
        self._exchange = SimulatedExchange.generated(
            feed.products,
            seed=feed.seed,
            levels=feed.levels,
            imbalance=feed.imbalance,
            events_per_second=feed.events_per_second,
        )
        # Compiles the generator now, so that the run does not begin with it.
        self._exchange.prepare()

    async def follow(self, put: Put) -> None:
        """See FeedRun. Raises DataError where the exchange fails."""
        exchange = self._exchange
        async with exchange:
            client = CoinbaseFullFeed(self.instruments, exchange.url, exchange.rest_url, venue=SIMULATED)
            await first_to_end(exchange.serve_forever(), self._follow(client, put))


class FileRun(FeedRun):
    """A recorded source, read as fast as it is taken."""

    live = False

    def __init__(self, source: EventSource | ChangeSource) -> None:
        self.name = source.name
        self.instruments = source.instruments if is_event_source(source) else Instruments(())
        self._source = source

    async def follow(self, put: Put) -> None:
        """See FeedRun."""
        batches: Iterator[Any] = iter(self._source)
        while (batch := await asyncio.to_thread(next, batches, None)) is not None:
            if isinstance(batch, np.ndarray):
                await put(self._translated(batch))
            else:
                await put(ChangeItem(self.name, batch))

    def report(self) -> FeedReport:
        """What the reader counted so far."""
        return source_report(self._source)


def source_report(source: EventSource | ChangeSource) -> FeedReport:
    """What a source has counted so far."""
    return FeedReport(source.name, Counter(source.counts), source.problems)


async def open_runs(feeds: Sequence[options.Feed]) -> tuple[list[FeedRun], Instruments]:
    """The feeds, not yet followed, and the instruments of all.

    Raises SourceError where a file or product is not there, UserError where two live feeds bring the same
    instrument.
    """
    runs = [await _open(feed) for feed in feeds]
    taken: dict[str, FeedRun] = {}
    for run in runs:
        for instrument in run.instruments:
            other = taken.setdefault(str(instrument), run)
            if other is not run and (run.live or other.live):
                raise UserError(
                    f"feeds {other.name} and {run.name} both bring {instrument}; keep one of them"
                )
    instruments, indexes = common_instruments([(run.name, run.instruments) for run in runs])
    for run, own in zip(runs, indexes, strict=True):
        run.indexes = own
    return runs, instruments


async def _open(feed: options.Feed) -> FeedRun:
    if isinstance(feed, options.SimulatedFeed):
        return SimulatedRun(feed)
    if isinstance(feed, options.CoinbaseFeed):
        return CoinbaseRun(feed, Instruments(await coinbase_instruments(feed.products, feed.rest_url)))
    return FileRun(open_source(feed.source))


async def first_to_end(*coroutines: Any) -> None:
    """Run them together; when one ends the others are cancelled, and what one raised is raised."""
    tasks = [asyncio.ensure_future(coroutine) for coroutine in coroutines]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
    for result in ended:
        if isinstance(result, Exception):
            raise result
