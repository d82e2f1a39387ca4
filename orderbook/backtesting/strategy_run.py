"""Strategies over versioned messages: through books and an engine of their own, orders with versions."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from orderbook.backtesting.market_samples import Sampler, Signal, Version
from orderbook.backtesting.order_tables import NewsTables
from orderbook.backtesting.sources import LoggedSlice
from orderbook.durability.journal import Known
from orderbook.engine.distribution.blocks import VERSION, Versions
from orderbook.feeds.merge import ChangeItem, Item, Slice, VersionedChanges, VersionedEvents
from orderbook.jobs.datasets import PARTITION_KEY, PLACE, VERSION_COLUMNS
from orderbook.jobs.writers import OrderWriters
from orderbook.market.instruments import Instruments
from orderbook.run.event_queue import Stamped
from orderbook.run.pipeline import Pipeline
from orderbook.strategies.execution.account import OrderUpdate, StrategySummary, row_of
from orderbook.strategies.execution.order_news import OrderNews
from orderbook.strategies.execution.venue_model import TRADING, TradingOptions
from orderbook.strategies.gated_engine import GatedEngine
from orderbook.strategies.runner import Runner
from orderbook.strategies.strategy import StrategyDefinition
from orderbook.views.program import CompiledProgram

# A message of a slice: stamp, switch, last sequence, and what it is.
_Message = tuple[int, int, int, Item]
_NAME = ("stamp", "switch", "last")


class StrategyRun:
    """Runs strategies over slices, and writes what becomes of their orders.

    An order changes at the version of the last event of the message after which it does; what is done before
    the first message has version (0, 0, 0). The clock that strategies see is the message's stamp.

    signals: columns of views to sample with the market; None: only fills are marked. logged: slices are those
    of a log, which says when strategies start and stop, and has the clock of its run.
    """

    def __init__(
        self,
        program: CompiledProgram,
        instruments: Instruments,
        strategies: Sequence[StrategyDefinition],
        writers: OrderWriters,
        backend: str,
        resolution: int,
        trading: TradingOptions = TRADING,
        signals: Sequence[Signal] | None = (),
        logged: bool = False,
    ) -> None:
        engine = GatedEngine(program, backend)
        engine.grows = False
        self.pipeline = Pipeline(engine, instruments, strategies, resolution, trading)
        self.pipeline.measures = False
        self.pipeline.warm_up()
        self.pipeline.host.observe_orders(self._note, self._note_news)
        self._writers, self._stopping = writers, False
        # Versions of the events of a slice, from how many events were applied before on; news of orders that
        # are not written yet.
        self._pieces: list[tuple[int, Versions]] = []
        self._news = NewsTables(instruments)
        self._version = (0, 0, 0)
        # Of the last change of each instance's orders: the version, and how many there were of it.
        self._places: dict[str, tuple[Version, int]] = {}
        # The last version of a message of each symbol and venue, by which instances end.
        self._last: dict[str | None, Version] = {}
        self._sampler = Sampler(engine, self.pipeline.books, instruments, signals)
        self._logged, self._running = logged, not logged
        if not logged:
            self.pipeline.start()

    def apply(self, part: Slice) -> None:
        """Apply the messages of a slice, in the order of their versions."""
        self._sampler.follow(part.events)
        self._apply(part)
        self.pipeline.host.learn()
        self._pieces.clear()
        self._sampler.settle(self._writers.write)

    def _apply(self, part: Slice) -> None:
        self._note_last(part)
        looks = self._looks(part)
        if isinstance(part, LoggedSlice):
            for instrument in dict.fromkeys(one for own in looks.values() for one in own):
                self._sampler.take(instrument)
            self._apply_logged(part)
            return
        if not part.changes:
            self._apply_events(part.events, looks)
            return
        messages = self._event_messages(part)
        for changes in part.changes:
            messages += self._change_messages(changes)
        messages.sort(key=lambda message: message[:3])
        for stamp, switch, last, item in messages:
            self._sample(looks, (stamp, switch, last))
            self._at(stamp, switch, last)
            self._piece()
            self.pipeline.host.now = max(self.pipeline.host.now, stamp)
            self.pipeline.apply(item, "message")

    def _apply_logged(self, part: LoggedSlice) -> None:
        """Applies what a log has as its run did."""
        entry, pipeline = part.entry, self.pipeline
        if entry is None:
            return
        if isinstance(entry, Known):
            pipeline.instruments.adopt(entry.instruments)
            return
        self._version = (entry.stamp, 0, 0)
        if isinstance(entry, Stamped):

            def noted(place: int) -> None:
                if place < len(part.places):
                    row = part.places[place]
                    self._version = int(row["stamp"]), int(row["switch"]), int(row["last"])

            if part.changes:
                self._version = entry.stamp, entry.switch, int(part.changes[0].versions["last"][-1])
            self._piece(part.places)
            pipeline.host.begin_item()
            pipeline.apply_stamped(entry, noted)
            return
        self._running = entry.starts
        if not entry.starts:
            pipeline.finish()
        elif entry.names is None:
            pipeline.start()
        else:
            # Strategies that its run did not have start, too.
            pipeline.start({*entry.names, *pipeline.host.unstarted})

    def _apply_events(self, events: VersionedEvents, looks: Mapping[Version, list[int]]) -> None:
        """Applies messages of events together, up to those before which something is sampled."""
        versions = events.versions
        self._piece(versions)
        first = _message_starts(versions)
        cuts = [0]
        if looks:
            names = zip(*(versions[name].take(first).tolist() for name in _NAME), strict=True)
            cuts += [start for start, name in zip(first.tolist(), names, strict=True) if name in looks]
        for start, end in pairwise([*cuts, len(events)]):
            if start == end:
                continue
            own = versions[start:end]

            def noted(place: int, own: NDArray[np.void] = own) -> None:
                row = own[place]
                self._at(int(row["stamp"]), int(row["switch"]), int(row["last"]))

            row = own[0]
            self._sample(looks, (int(row["stamp"]), int(row["switch"]), int(row["last"])))
            self.pipeline.apply(events.events[start:end], "message", noted, own["stamp"])

    def _sample(self, looks: Mapping[Version, list[int]], version: Version) -> None:
        """Samples what is to be sampled before the message of a version."""
        for instrument in looks.get(version, ()):
            self._sampler.take(instrument)

    def _at(self, stamp: int, switch: int, last: int) -> None:
        """A message of this version is at hand."""
        self._version = (stamp, switch, last)
        self.pipeline.engine.at(stamp, switch)

    def finish(self) -> tuple[StrategySummary, ...]:
        """End the strategies; what became of each.

        What they do at the end has the time and version of the last message, of that of an instance's own
        symbol or venue.
        """
        host = self.pipeline.host
        self._sampler.write(self._writers.write)
        if not self._logged:
            host.last_times = {key: version[0] for key, version in self._last.items()}
            self._stopping = True
        if self._running:
            self.pipeline.finish()
        self._sampler.settle(self._writers.write)
        self._news.write(self._writers.write_table)
        for key, payment in host.payments():
            place = dict(zip((*VERSION_COLUMNS, PLACE), (payment.ts, 0, 0, 0), strict=True))
            self._writers.write("payments", {**place, PARTITION_KEY: key, **row_of(payment)})
        return host.summary()

    def _looks(self, part: Slice) -> Mapping[Version, list[int]]:
        """The instruments to be sampled before messages of a slice, by the messages' versions."""
        found: dict[Version, list[int]] = {}
        if len(part.events):
            versions = part.events.versions
            stamps: NDArray[np.int64] = versions["stamp"]
            if isinstance(part, LoggedSlice):
                # It is applied as a whole.
                stamps = np.full(len(stamps), stamps[0])
            for place, instrument in self._sampler.looks(part.events.events["instrument"], stamps):
                row = versions[place]
                name = int(row["stamp"]), int(row["switch"]), int(row["last"])
                found.setdefault(name, []).append(instrument)
        return found

    def _note_last(self, part: Slice) -> None:
        numbers: NDArray[np.int32] = part.events.events["instrument"]
        found, places = np.unique(numbers[::-1], return_index=True)
        count = len(part.events)
        for index, place in zip(found.tolist(), places.tolist(), strict=True):
            row = part.events.versions[count - 1 - place]
            version = (int(row["stamp"]), int(row["switch"]), int(row["last"]))
            one = self.pipeline.instruments[index]
            for name in (one.symbol, one.venue):
                self._last[name] = max(version, self._last.get(name, version))

    def _event_messages(self, part: Slice) -> list[_Message]:
        events, versions = part.events.events, part.events.versions
        if not len(events):
            return []
        cuts = [*_message_starts(versions).tolist(), len(events)]
        first = versions[cuts[:-1]]
        names = zip(first["stamp"].tolist(), first["switch"].tolist(), first["last"].tolist(), strict=True)
        return [(*name, events[start:end]) for name, (start, end) in zip(names, pairwise(cuts), strict=True)]

    def _change_messages(self, changes: VersionedChanges) -> list[_Message]:
        versions = changes.versions
        last: NDArray[np.int64] = versions["last"]
        ends = np.flatnonzero(last[1:] != last[:-1]) + 1
        found: list[_Message] = []
        for start, end in pairwise([0, *ends.tolist(), len(versions)]):
            one = versions[start]
            item = ChangeItem(changes.source, changes.changes[start:end])
            found.append((int(one["stamp"]), int(one["switch"]), int(one["last"]), item))
        return found

    def _note(self, runner: Runner, update: OrderUpdate) -> None:
        """Writes a change of an order, and its fills."""
        self._write("orders", runner, row_of(update.new))
        for fill in update.fills:
            self._write("fills", runner, row_of(fill))
            self._sampler.filled(fill.venue, fill.symbol, self._version[0] if self._logged else fill.ts)

    def _note_news(self, runner: Runner, news: OrderNews) -> None:
        """Writes changes of orders of the compiled loop, and their fills."""
        versions = self._versions_at(news.news["first"])
        first, last = tuple(versions[0].tolist()), tuple(versions[-1].tolist())
        before, count = self._places.get(runner.identity, (first, 0))
        in_first = self._news.add(runner.key, news, versions, count if before == first else 0)
        self._places[runner.identity] = last, in_first
        if len(news.fills):
            times = news.fills["time"] if not self._logged else versions[:, 0].take(news.owners)
            indexes = news.news["instrument"].take(news.owners)
            self._sampler.filled_at(indexes, times)
        if self._news.full:
            self._news.write(self._writers.write_table)

    def _piece(self, versions: Versions | None = None) -> None:
        """What is applied next has these versions, or that at hand."""
        if versions is None or not len(versions):
            versions = np.zeros(1, VERSION)
            for name, own in zip(_NAME, self._version, strict=True):
                versions[name] = own
        self._pieces.append((self.pipeline.events, versions))

    def _versions_at(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """int64[n, 3]: the versions of messages that so many events were applied before."""
        found = np.empty((len(places), len(_NAME)), np.int64)
        starts = [start for start, _ in self._pieces]
        which = np.searchsorted(starts, places, side="right") - 1
        for number in np.unique(which).tolist():
            start, versions = self._pieces[number]
            own = which == number
            rows = versions.take(np.minimum(places[own] - start, len(versions) - 1))
            for column, name in enumerate(_NAME):
                found[own, column] = rows[name]
        return found

    def _write(self, name: str, runner: Runner, row: Mapping[str, Any]) -> None:
        version = self._version
        if self._stopping:
            version = self._last.get(runner.key, version if runner.key is None else (0, 0, 0))
        before, count = self._places.get(runner.identity, (version, 0))
        place = count if before == version else 0
        self._places[runner.identity] = version, place + 1
        own = dict(zip((*VERSION_COLUMNS, PLACE), (*version, place), strict=True))
        self._writers.write(name, {**own, PARTITION_KEY: runner.key, **row})


def _message_starts(versions: Versions) -> NDArray[np.int64]:
    """Where the messages of VERSION[n] begin."""
    if not len(versions):
        return np.empty(0, np.int64)
    switch: NDArray[np.int32] = versions["switch"]
    last: NDArray[np.int64] = versions["last"]
    differs = (switch[1:] != switch[:-1]) | (last[1:] != last[:-1])
    return np.concatenate([[0], np.flatnonzero(differs) + 1])
