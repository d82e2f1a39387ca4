"""The feeds of a run: opened from their configuration, followed until they end, and recorded if asked for.

Of a live feed's messages it is counted how long they were under way, by the exchange's clock and by ours. A
recording is a folder for each live feed: raw frames, and what was decoded beside them.
"""

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from orderbook.configuration import options
from orderbook.configuration.configuration import RecordOptions
from orderbook.core.errors import Problems, SourceError, UserError, extra
from orderbook.core.latency import SignedLatencyHistogram
from orderbook.core.units import size_text
from orderbook.feeds.change_stream import ChangeSource
from orderbook.feeds.database_table import TableSource
from orderbook.feeds.exchanges.exchange import Exchange, ExchangeOptions, exchange
from orderbook.feeds.kafka_topic import TopicReader
from orderbook.feeds.live.http_requests import exchange_instruments
from orderbook.feeds.live.live_feed import LiveFeed
from orderbook.feeds.live.session import Backoff
from orderbook.feeds.live.simulated_exchange import Simulated, SimulatedExchange, simulated_instruments
from orderbook.feeds.merge import (
    ChangeItem,
    Item,
    Merger,
    check_relations,
    common_instruments,
    is_event_source,
    with_crossed_states,
)
from orderbook.feeds.recording.capture_replay import CapturePlayer
from orderbook.feeds.recording.raw_recorder import RawRecorder, Rotation
from orderbook.feeds.row_batch import changes_after, positions_after
from orderbook.feeds.source import (
    EventSource,
    FeedStatistics,
    Finding,
    SourceWatch,
    input_findings,
    watched,
)
from orderbook.feeds.source_kinds import open_sources
from orderbook.market.crossed_books import CROSSED_LIMIT, CrossedWatch
from orderbook.market.events import Events, Flag
from orderbook.market.instruments import Instruments
from orderbook.views.types import Relation

_LAST, _SNAPSHOT = int(Flag.LAST), int(Flag.SNAPSHOT)
# Events that are looked at together.
_TOGETHER = 4096


class ReceiptDelay:
    """Exchange-to-receive times of messages that say when they were sent; snapshots are none of them.

    They are below 0 where the exchange's clock is ahead. One thread owns it.
    """

    def __init__(self) -> None:
        self._histogram = SignedLatencyHistogram()
        self._waiting: list[Events] = []
        self._events = 0

    def note(self, events: Events) -> None:
        """Count the messages of EVENT[n], which must not change any more."""
        self._waiting.append(events)
        self._events += len(events)
        if self._events >= _TOGETHER:
            self._count()

    @property
    def histogram(self) -> SignedLatencyHistogram:
        """Everything noted so far, in ns."""
        self._count()
        return self._histogram

    def _count(self) -> None:
        if not self._waiting:
            return
        events = np.concatenate(self._waiting)
        self._waiting, self._events = [], 0
        flags: NDArray[np.uint16] = events["flags"]
        sent: NDArray[np.int64] = events["exchange_time"]
        received: NDArray[np.int64] = events["receive_time"]
        told = ((flags & (_LAST | _SNAPSHOT)) == _LAST) & (sent > 0)
        self._histogram.record((received - sent)[told])


_logger = logging.getLogger("orderbook.feeds")

Put = Callable[[Item], Awaitable[None]]
_STATISTICS = ("frames", "messages", "events", "gaps", "resyncs", "reconnects", "malformed")


@dataclass(frozen=True, slots=True)
class FeedReport:
    """What a feed or source has seen, and what went wrong in it.

    statistics, delay: of a live feed, with the times in ns from the exchange to the receipt.
    findings: what makes its part of a result incomplete.
    """

    name: str
    counts: Mapping[str, int]
    problems: Problems
    statistics: FeedStatistics | None = None
    delay: SignedLatencyHistogram | None = None
    findings: tuple[Finding, ...] = ()


class FeedRun(ABC):
    """One feed. `indexes` gives, for each of its `instruments`, the index in the run's; None without any.

    clock: ns since 1970 UTC, of which its receive times are. positions: how far its changes have been
    applied by the run that it goes on with, see Pipeline.
    """

    clock: Callable[[], int] = time.time_ns
    positions: Mapping[str, int] = {}
    # Whether it brings changes of relations instead of market events.
    changes_relations = False
    name: str
    live: bool
    instruments: Instruments
    indexes: NDArray[np.integer]

    @abstractmethod
    async def follow(self, put: Put) -> None:
        """Put everything that arrives, until the feed ends or the task is cancelled.

        Raises SourceError where the source is refused or truncated, after everything before that.
        """

    @abstractmethod
    def report(self) -> FeedReport: ...

    def _translated(self, events: Events) -> Events:
        events = events.copy()
        own: NDArray[np.int32] = events["instrument"]
        events["instrument"] = self.indexes[own]
        return events


class LiveFeedRun(FeedRun):
    """A live feed of an exchange; `protocol` is the exchange's name in the registry, `label` of files."""

    live = True

    def __init__(
        self,
        name: str,
        instruments: Instruments,
        label: str,
        protocol: str,
        crossed_limit: int,
        depth: int | None = None,
    ) -> None:
        self.name = name
        self.instruments = instruments
        self.label = label
        self._protocol, self._depth, self._crossed_limit = protocol, depth, crossed_limit
        self._feed: LiveFeed | None = None
        self._watch = SourceWatch(name, instruments, live=True)
        self._delay = ReceiptDelay()
        self._recorder: RawRecorder | None = None

    def record(self, folder: Path, rotation: Rotation, needed: bool) -> RawRecorder:
        """Have what will be followed recorded in a folder; whoever asks for it closes the recorder.

        needed: the feed ends where the recording cannot go on.
        """
        self._recorder = RawRecorder(
            folder,
            self.label,
            self._protocol,
            depth=self._depth,
            crossed_limit=self._crossed_limit,
            instruments=self.instruments,
            rotation=rotation,
            needed=needed,
            clock=self.clock,
        )
        return self._recorder

    async def _follow(self, kind: type[Exchange], addresses: ExchangeOptions, put: Put) -> None:
        recorder = self._recorder
        record = recorder.connection if recorder is not None else None
        indexes = range(len(self.instruments))
        self._feed = LiveFeed(kind, self.instruments, indexes, addresses, record, self.clock)
        async with self._feed as feed:
            async for events in feed:
                if recorder is not None:
                    recorder.events(events)
                self._watch.note(events)
                translated = self._translated(events)
                self._delay.note(translated)
                await put(translated)

    def report(self) -> FeedReport:
        """Statistics of the feed since it was opened; none counts anything before."""
        statistics = FeedStatistics() if self._feed is None else self._feed.statistics
        return _live_report(self._watch, statistics, statistics.problems, self._delay.histogram)


class ExchangeRun(LiveFeedRun):
    """The products of an exchange."""

    def __init__(
        self, feed: options.ExchangeFeed, kind: type[Exchange], instruments: Instruments, crossed_limit: int
    ) -> None:
        name = f"{feed.kind}:{','.join(feed.products)}"
        super().__init__(name, instruments, feed.kind, feed.kind, crossed_limit, feed.depth)
        self._kind = kind
        self._options = ExchangeOptions(feed.url, feed.rest_url, feed.depth, crossed_limit)

    async def follow(self, put: Put) -> None:
        """See FeedRun."""
        await self._follow(self._kind, self._options, put)


class SimulatedRun(LiveFeedRun):
    """The simulated exchange on loopback, and the feed that is its client."""

    def __init__(self, feed: options.SimulatedFeed, crossed_limit: int) -> None:
        name = f"simulated:{','.join(feed.products)}"
        found = simulated_instruments(feed.products)
        super().__init__(name, found, "simulated", "coinbase_full", crossed_limit)
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
        exchange.clock = self.clock
        async with exchange:
            limit = self._crossed_limit
            addresses = ExchangeOptions(exchange.url, exchange.rest_url, crossed_limit=limit)
            await first_to_end(exchange.serve_forever(), self._follow(Simulated, addresses, put))


class CaptureRun(FeedRun):
    """A recording of raw frames, played as if it happened now."""

    live = True

    def __init__(self, feed: options.CaptureFeed, crossed_limit: int) -> None:
        self.name = f"capture:{feed.path}"
        self._player = CapturePlayer(feed.path, feed.exchange, feed.products, feed.speed)
        self._delay = ReceiptDelay()
        self.instruments = self._player.instruments
        self._found = Problems()
        self._crossed = CrossedWatch(self.instruments, crossed_limit, self._found) if crossed_limit else None
        self._watch = SourceWatch(self.name, self.instruments)

    async def follow(self, put: Put) -> None:
        """See FeedRun."""
        self._player.clock = self.clock
        async for events in self._player:
            told = events if self._crossed is None else self._crossed.apply(events)
            self._watch.note(told)
            translated = self._translated(told)
            self._delay.note(translated)
            await put(translated)

    def report(self) -> FeedReport:
        """What was played so far."""
        player, problems = self._player, Problems()
        problems.extend(player.problems)
        problems.extend(self._found)
        return _live_report(self._watch, player.statistics, problems, self._delay.histogram)


class FileRun(FeedRun):
    """A recorded source, read as fast as it is taken; of changes those that a log does not have yet.

    Of several the first one puts the messages of all, in order of time as in a replay; the others wait.
    """

    live = False

    def __init__(self, source: EventSource | ChangeSource, crossed_limit: int = CROSSED_LIMIT) -> None:
        self.name = source.name
        self.changes_relations = not is_event_source(source)
        self.instruments = source.instruments if is_event_source(source) else Instruments(())
        own = with_crossed_states(source, crossed_limit) if is_event_source(source) else source
        self.source = watched(own)
        self._all: Sequence[FileRun] = (self,)
        self._indexes = np.empty(0, np.int32)
        self._through = asyncio.Event()

    def merge(self, files: "Sequence[FileRun]", instruments: Instruments) -> None:
        """Follow these together, all of a run whose instruments these are."""
        self._all = files
        places = {one: index for index, one in enumerate(instruments)}
        merged, _ = common_instruments([(one.name, one.instruments) for one in files])
        self._indexes = np.array([places[one] for one in merged], np.int32)

    async def follow(self, put: Put) -> None:
        """See FeedRun."""
        first = self._all[0]
        if first is not self:
            await first._through.wait()
            return
        merger = Merger([one.source for one in self._all], crossed_limit=0)
        items, before, read = iter(merger), dict(self.positions), dict[str, int]()
        try:
            while (item := await asyncio.to_thread(next, items, None)) is not None:
                if isinstance(item, np.ndarray):
                    own: NDArray[np.int32] = item["instrument"]
                    known = own >= 0
                    own[known] = self._indexes[own[known]]
                elif isinstance(item, ChangeItem) and before:
                    read |= positions_after(item.source, item.changes)
                    item = ChangeItem(item.source, changes_after(item.source, item.changes, before))
                if isinstance(item, np.ndarray) or item.changes:
                    await put(item)
        finally:
            self._through.set()
        merger.errors += [
            SourceError(
                f"{one.name}: the log has it up to line {last}, and it ends before: it is another file now; "
                "give it another name, or the log another folder"
            )
            for one in self._all
            if (last := before.get(one.name, 0)) > read.get(one.name, 0)
        ]
        for error in merger.errors[1:]:
            _logger.warning("feed %s: %s", self.name, error, extra={"feed": self.name})
        for error in merger.errors:
            raise error

    def report(self) -> FeedReport:
        """What the reader counted so far."""
        return source_report(self.source)


class TableRun(FeedRun):
    """A database's table, read again and again; where that fails, after a while once more."""

    live = changes_relations = True

    def __init__(self, feed: options.TableFeed) -> None:
        self._source = watched(TableSource(feed.table_options))
        self.name = self._source.name
        self.instruments = Instruments(())
        self._interval = feed.interval_seconds

    async def follow(self, put: Put) -> None:
        """See FeedRun; it never ends by itself."""
        backoff = Backoff(min(1.0, self._interval), 30.0)
        if self._source.options.mode == "log" and (last := self.positions.get(self.name)) is not None:
            self._source.reader.position = last
        while True:
            batches = self._source.reader.read()
            try:
                while (batch := await asyncio.to_thread(next, batches, None)) is not None:
                    await put(ChangeItem(self.name, batch))
            except SourceError as error:
                self._source.problems.add("table not read", self.name, str(error))
                await asyncio.sleep(backoff.delay())
            else:
                backoff.reset()
                await asyncio.sleep(self._interval)

    def report(self) -> FeedReport:
        """What was read so far."""
        return source_report(self._source)


class TopicRun(FeedRun):
    """A topic of Kafka, from where the run was; where it cannot be read, after a while once more."""

    live = changes_relations = True
    may_be_empty = True

    def __init__(self, feed: options.KafkaFeed) -> None:
        with extra("kafka", "confluent_kafka"):
            import confluent_kafka  # noqa: F401
        self._options = feed.topic_options
        self.name = self._options.name
        self.instruments = Instruments(())
        self.problems = Problems()
        self.counts: Counter[str] = Counter()
        self._messages = 0

    async def follow(self, put: Put) -> None:
        """See FeedRun; it never ends by itself."""
        backoff = Backoff(0.1, 30.0)
        positions = dict(self.positions)
        while True:
            reader: TopicReader | None = None
            try:
                reader = await asyncio.to_thread(
                    TopicReader, self._options, self.problems, self.counts, positions
                )
                while True:
                    for source, changes in await asyncio.to_thread(lambda r: list(r.read()), reader):
                        await put(ChangeItem(source, changes))
                        positions[source] = changes[-1].line
                        self._messages += len(changes)
                    backoff.reset()
            except SourceError as error:
                self.problems.add("topic not read", self.name, str(error))
                await asyncio.sleep(backoff.delay())
            finally:
                if reader is not None:
                    reader.close()

    def report(self) -> FeedReport:
        """What was read so far."""
        found = tuple(input_findings(self.name, self._messages, self.problems, quiet=True))
        return FeedReport(self.name, Counter(self.counts), self.problems, findings=found)


def _live_report(
    watch: SourceWatch, statistics: FeedStatistics, problems: Problems, delay: SignedLatencyHistogram
) -> FeedReport:
    counts = {name: getattr(statistics, name) for name in _STATISTICS}
    # A live feed that heard nothing has books that were never synchronised.
    own = input_findings(watch.name, max(watch.messages, statistics.messages), problems, quiet=watch.live)
    return FeedReport(watch.name, counts, problems, statistics, delay, (*watch.findings(), *own))


class CountedSource(Protocol):
    """A source that has been read in part or whole, and what was counted and found in it."""

    @property
    def name(self) -> str: ...

    @property
    def counts(self) -> Mapping[str, int]: ...

    @property
    def problems(self) -> Problems: ...

    def findings(self) -> Iterable[Finding]: ...


def source_report(source: CountedSource) -> FeedReport:
    """What a source has counted so far."""
    found = tuple(source.findings())
    return FeedReport(source.name, Counter(source.counts), source.problems, findings=found)


async def open_runs(
    feeds: Sequence[options.Feed], crossed_limit: int = CROSSED_LIMIT
) -> tuple[list[FeedRun], Instruments]:
    """The feeds, not yet followed, and the instruments of all.

    Files of one feed, of a glob or named apart, are one run, as in a replay.

    crossed_limit: ns that a book may be crossed before it is lost, 0 for ever; see `crossed_books`.

    Raises SourceError where a file or product is not there, UserError where two live feeds bring the same
    instrument.
    """
    files = [feed.source for feed in feeds if isinstance(feed, options.FileFeed)]
    sources = open_sources(files) if files else []
    opened: list[FeedRun] = [FileRun(source, crossed_limit) for source in sources]
    runs: list[FeedRun] = []
    for feed in feeds:
        if isinstance(feed, options.FileFeed):
            runs, opened = [*runs, *opened], []
        else:
            runs.append(await _open(feed, crossed_limit))
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
    recorded = [run for run in runs if isinstance(run, FileRun)]
    for run in recorded:
        run.merge(recorded, instruments)
    return runs, instruments


def check_runs(runs: Sequence[FeedRun], relations: Sequence[Relation]) -> None:
    """Raise SourceError where what a feed is known to give does not fit the program's relations."""
    check_relations([run.source for run in runs if isinstance(run, FileRun)], relations)


async def _open(feed: options.LiveKind, crossed_limit: int) -> FeedRun:
    if isinstance(feed, options.SimulatedFeed):
        return SimulatedRun(feed, crossed_limit)
    if isinstance(feed, options.ExchangeFeed):
        kind = exchange(feed.kind)
        found = await exchange_instruments(kind, feed.products, feed.rest_url)
        return ExchangeRun(feed, kind, Instruments(found), crossed_limit)
    if isinstance(feed, options.CaptureFeed):
        return CaptureRun(feed, crossed_limit)
    if isinstance(feed, options.KafkaFeed):
        return TopicRun(feed)
    return TableRun(feed)


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


class Recordings:
    """The recorders of live feeds, by the path of their folders; `errors` has what ended one at its end."""

    def __init__(self) -> None:
        self.recorders: dict[Path, RawRecorder] = {}
        self.errors: list[SourceError] = []

    def summary(self) -> Iterator[str]:
        """A line for each folder: what was written."""
        for folder, recorder in self.recorders.items():
            counts = recorder.counts
            lost = f", ended early: {counts.lost:,} lines and batches later" if counts.lost else ""
            yield (
                f"  recording {folder}: {counts.frames:,} frames, {counts.events:,} events, "
                f"{len(counts.files):,} files, {size_text(counts.bytes)} of raw lines{lost}"
            )


@contextmanager
def recorded(runs: Sequence[FeedRun], options: RecordOptions, *, needed: bool) -> Iterator[Recordings]:
    """Record the live feeds that will be followed, where the options name a folder; ended at the end.

    needed: a feed ends where its recording cannot go on, instead of going on without it. Raises SourceError
    where a folder cannot be made.
    """
    found = Recordings()
    size, seconds = options.limits
    taken: Counter[str] = Counter()
    try:
        for run in runs if options.folder is not None else ():
            if isinstance(run, LiveFeedRun):
                taken[run.label] += 1
                number = taken[run.label]
                assert options.folder is not None
                folder = options.folder / (run.label if number == 1 else f"{run.label}-{number}")
                found.recorders[folder] = run.record(folder, Rotation(size, seconds), needed)
        yield found
    finally:
        for recorder in found.recorders.values():
            try:
                recorder.close()
            except SourceError as error:
                found.errors.append(error)
