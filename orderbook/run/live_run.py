"""One run, from the opening of its feeds to their end: feeds, their switches, the log, and the engine."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from orderbook.configuration.configuration import Configuration
from orderbook.core.errors import SourceError
from orderbook.core.run_clock import EpochRing
from orderbook.engine.checkpoint import CheckpointError
from orderbook.engine.log.log import Log
from orderbook.feeds.merge import ChangeItem, Item, TickItem
from orderbook.feeds.row_batch import RowBatch, message_ends
from orderbook.market.events import EVENT, Action, BookState, Events, Flag, StateReason
from orderbook.run.event_queue import EventQueue, HybridClock, RunItem, Stamped, events_in
from orderbook.run.feed_runs import FeedRun
from orderbook.run.pipeline import Pipeline
from orderbook.strategies.execution.venue_reports import HaltItem

# Items that are logged and synced together.
_TOGETHER = 256
# Seconds between the promises of switches that receive nothing.
_PROMISE = 0.05
# A switch that is so many epochs behind the others is reported.
_EPOCHS_BEHIND = 10

_logger = logging.getLogger("orderbook.feeds")


ItemWatch = Callable[[Sequence[Stamped]], object]


@dataclass(slots=True)
class _Switch:
    """A feed's switch: whether it waits for room, and so can promise nothing."""

    number: int
    blocked: bool = False
    ended: bool = False


@dataclass(frozen=True, slots=True)
class RunReport:
    """What happened between the feeds and the engine.

    most_waiting: events in the queue at most, of `queue_size`. conflated: items applied while strategies were
    behind. epochs: committed by this run. checkpoints_failed: those that could not be written. log_bytes,
    log_segments: of the whole log, None without one. clock_jumps, clock_steps, clock_ahead: see RunClock; ns.
    """

    most_waiting: int
    queue_size: int
    conflated: int
    epochs: int
    checkpoints: int
    checkpoints_failed: int
    log_bytes: int | None
    log_segments: int | None
    clock_jumps: int = 0
    clock_steps: int = 0
    clock_ahead: int = 0


class RunLog(Protocol):
    """What keeps a run durable: it logs what is accepted, and writes checkpoints."""

    @property
    def log(self) -> Log: ...

    @property
    def clock(self) -> HybridClock: ...

    @property
    def epoch(self) -> int:
        """The number of the last epoch that is committed."""

    def start(self) -> None:
        """Tells the strategies that events will come, as far as they have not been told."""

    def stop(self) -> None:
        """Tells the strategies that no more will come."""

    def accept(self, items: Sequence[Stamped], /) -> None:
        """Logs what has been received. Raises LogError."""

    def apply(self, item: Stamped, /) -> None:
        """Applies what was accepted, in its order."""

    def end_epoch(self, number: int, stamp: int) -> None:
        """Logs that everything below a stamp is committed."""

    def checkpoint(self) -> bool:
        """Writes a checkpoint, between two items; whether it did. Raises CheckpointError."""


class LiveRun:
    """Follows feeds until they end, are told to, or fail. `errors` has what ended feeds.

    durable: keeps the log, or None. Where the strategies fall behind, by half of the queue, and the
    configuration says so, they see of several changes of a row the last.
    """

    def __init__(
        self,
        configuration: Configuration,
        pipeline: Pipeline,
        durable: RunLog | None,
        runs: Sequence[FeedRun],
    ) -> None:
        self.errors: list[Exception] = []
        self._watching: ItemWatch | None = None
        self.conflated = self.checkpoints = self.checkpoints_failed = 0
        self.checkpoint_seconds = 0.0
        # By time.monotonic.
        self.checkpointed: float | None = None
        limits = configuration.clock.limits
        self.clock = HybridClock(limits=limits) if durable is None else durable.clock
        self.time = pipeline.clock = self.clock.time.now
        for run in runs:
            run.clock = self.time
        engine = configuration.engine
        self.queue = EventQueue(engine.queue_size, self.clock)
        length = configuration.epochs.nanoseconds
        epoch = 0 if durable is None else durable.epoch
        self.epochs = EpochRing(max(1, len(runs)), length, self.clock.stamp(), epoch)
        self.epoch = self._first_epoch = epoch
        self._batch_size = engine.batch_size
        self._conflates = engine.when_behind == "conflate"
        self._behind = engine.queue_size // 2
        self._resolution = configuration.clock.nanoseconds
        self._checkpoint_every = configuration.log.checkpoint_seconds
        self._pipeline = pipeline
        self._durable = durable
        self._runs = runs
        self._switches = [_Switch(number) for number in range(len(runs))]
        self._length = length
        self._reported: set[int] = set()

    def watch_items(self, watch: ItemWatch | None) -> ItemWatch | None:
        """From now on `watch` is given items before they are applied; who was given them before."""
        before, self._watching = self._watching, watch
        return before

    def start(self) -> None:
        """Tell the strategies that events will come; books of live feeds are not known any more."""
        if self._durable is None:
            self._pipeline.start()
            return
        self._durable.start()
        stale = self._stale()
        if len(stale):
            self._apply([Stamped(self.clock.stamp(), 0, stale)])

    async def follow_all(self) -> None:
        """Follow every feed; the queue is closed when all have ended."""
        try:
            pairs = zip(self._runs, self._switches, strict=True)
            await asyncio.gather(*(self._follow(run, switch) for run, switch in pairs))
        finally:
            self.queue.close()

    async def consume(self) -> None:
        """Log and apply what switches stamp, until the queue is closed and empty."""
        checkpointed = time.monotonic()
        while taken := await self.queue.get(_TOGETHER):
            waited = self.queue.waiting + sum(events_in(stamped.item) for stamped in taken)
            if self._conflates and waited > self._behind:
                taken = [replace(stamped, conflate=True) for stamped in taken]
                self.conflated += len(taken)
            self._apply(taken)
            if self._durable is not None:
                due = time.monotonic() - checkpointed >= self._checkpoint_every
                if due and _whole(taken[-1].item):
                    self._checkpoint(self._durable)
                    checkpointed = time.monotonic()
            # A queue that is never empty must not keep the feeds and the display waiting.
            await asyncio.sleep(0)

    def take(self, item: RunItem) -> None:
        """Stamp, log and apply an item at once: once `consume` has ended."""
        self._apply([Stamped(self.clock.stamp(), 0, item, True)])

    def halt(self, halted: bool, reason: str) -> None:
        """Pull the kill switch, or release it: venues are asked at once to cancel everything, and strategies
        find their orders cancelled when the run comes to it."""
        for account in self._pipeline.host.accounts.values():
            account.block(halted)
        self.queue.put_now(HaltItem(self.time(), halted, reason or "by hand"), True)

    def finish(self) -> None:
        """End in order: the strategies are told, and everything is durable."""
        if self._durable is None:
            self._pipeline.finish()
            return
        self._durable.stop()
        self._checkpoint(self._durable)

    async def promise(self) -> None:
        """Let every switch that can promise what it will not stamp any more, also while nothing arrives."""
        while True:
            await asyncio.sleep(_PROMISE)
            for switch in self._switches:
                if not switch.blocked:
                    self._promise(switch, self.clock.stamp())
            self._report_stalled()
            if self._durable is not None:
                self._durable.log.sync_if_due()

    async def stamp_ticks(self) -> None:
        """Tell the time by the clock that stamps what live feeds receive, also while nothing arrives."""
        while True:
            await asyncio.sleep((self._resolution - self.time() % self._resolution) / 1e9)
            await self.queue.put(TickItem(self.time()), True)

    @property
    def stalled(self) -> Sequence[int]:
        """The switches, numbered as their feeds, that hold up the commit of epochs."""
        return self.epochs.stalled(_EPOCHS_BEHIND * self._length)

    def ended(self, number: int) -> bool:
        """Whether a feed has ended, by its number."""
        return self._switches[number].ended

    def report(self) -> RunReport:
        """What happened so far."""
        log = None if self._durable is None else self._durable.log
        return RunReport(
            self.queue.most,
            self.queue.limit,
            self.conflated,
            self.epoch - self._first_epoch,
            self.checkpoints,
            self.checkpoints_failed,
            None if log is None else log.bytes,
            None if log is None else log.segments,
            self.clock.time.jumps,
            self.clock.time.steps,
            self.clock.time.ahead,
        )

    def _checkpoint(self, durable: RunLog) -> None:
        start = time.monotonic()
        try:
            written = durable.checkpoint()
        except CheckpointError as error:
            # The one before, and the log after it, are as good; the next is tried when it is due.
            self.checkpoints_failed += 1
            _logger.warning("%s; the run goes on, and its log grows until one can", error)
            return
        if written:
            self.checkpointed = time.monotonic()
            self.checkpoint_seconds = self.checkpointed - start
            self.checkpoints += 1

    def _apply(self, taken: Sequence[Stamped]) -> None:
        if self._watching is not None:
            self._watching(taken)
        if self._durable is None:
            for stamped in taken:
                self._pipeline.host.begin_item()
                self._pipeline.apply_stamped(stamped)
            return
        self._durable.accept(taken)
        for stamped in taken:
            self._durable.apply(stamped)

    async def _follow(self, run: FeedRun, switch: _Switch) -> None:
        async def put(item: Item) -> None:
            for part in _slices(item, self._batch_size):
                switch.blocked = True
                stamp = await self.queue.put(part, run.live, switch.number)
                switch.blocked = False
                self._promise(switch, stamp)

        try:
            await run.follow(put)
        except (SourceError, OSError) as error:
            self.errors.append(error)
            # Where no other feed goes on, the run ends with this error.
            if sum(not one.ended for one in self._switches) > 1:
                _logger.warning("feed %s ended: %s", run.name, error, extra={"feed": run.name})
        finally:
            switch.ended = True

    def _promise(self, switch: _Switch, stamp: int) -> None:
        for epoch in self.epochs.promise(switch.number, stamp):
            self.epoch = epoch.number
            if self._durable is not None:
                self._durable.end_epoch(epoch.number, epoch.end)

    def _report_stalled(self) -> None:
        stalled = set(self.stalled)
        for number in stalled - self._reported:
            name = self._runs[number].name
            _logger.warning("feed %s is stalled: no epoch can be committed", name, extra={"feed": name})
        self._reported = stalled

    def _stale(self) -> Events:
        """Events that make books stale that nobody has followed since the crash, or follows any more."""
        books = self._pipeline.books
        live = {int(index) for run in self._runs if run.live for index in run.indexes}
        followed = {int(index) for run in self._runs for index in run.indexes}
        left = [] if books is None else sorted(set(range(len(self._pipeline.instruments))) - followed)
        known = [] if books is None else [i for i in (*live, *left) if books.state(i) is BookState.VALID]
        if left:
            names = ", ".join(str(self._pipeline.instruments[index]) for index in left)
            _logger.warning("no feed brings %s any more; their books stay as they were, and stale", names)
        events = np.zeros(len(known), EVENT)
        events["instrument"], events["action"], events["flags"] = known, Action.STATE, Flag.LAST
        events["volume"], events["order_id"] = BookState.STALE, StateReason.DISCONNECTED
        events["receive_time"] = self.clock.stamp()
        return events


def _whole(item: RunItem) -> bool:
    """Whether no message goes on after an item."""
    if isinstance(item, np.ndarray):
        return bool(item["flags"][-1] & int(Flag.LAST))
    if not isinstance(item, ChangeItem) or isinstance(item.changes, RowBatch):
        return True
    return item.changes[-1].last


def _slices(item: Item, size: int) -> Iterator[Item]:
    """Parts of about `size`, cut at ends of messages."""
    if isinstance(item, ChangeItem):
        ends = message_ends(item.changes)
        for start, end in _cuts(ends, len(item.changes), size):
            yield ChangeItem(item.source, item.changes[start:end])
    else:
        for start, end in _cuts(np.flatnonzero(item["flags"] & int(Flag.LAST)) + 1, len(item), size):
            yield item[start:end]


def _cuts(ends: NDArray[np.int64], length: int, size: int) -> Iterator[tuple[int, int]]:
    start = 0
    while start < length:
        place = int(np.searchsorted(ends, start + size, side="right"))
        end = int(ends[place - 1]) if place and ends[place - 1] > start else 0
        if not end:
            end = int(ends[place]) if place < len(ends) else length
        yield start, end
        start = end
