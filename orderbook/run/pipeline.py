"""The way of one event: from a feed's batch through books and relations into the engine."""

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import pairwise
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from orderbook.core.changes import CHECKED, END_OF_EVENT, END_OF_MESSAGE, ChangeBatch
from orderbook.core.errors import Problems
from orderbook.core.latency import LatencyHistogram
from orderbook.feeds.change_encoding import encode_changes
from orderbook.feeds.merge import ChangeItem, TickItem
from orderbook.feeds.row_batch import Changes, RowBatch, messages_of, positions_after, stated_time
from orderbook.market.book_relations import BookRelations, BookStates, SavedState
from orderbook.market.books import Books
from orderbook.market.events import EVENT, Action, Events, Flag, Ticker
from orderbook.market.instruments import Instruments
from orderbook.run.event_queue import RunItem, Stamped
from orderbook.run.message_loop import MessageLoop
from orderbook.run.partitioned_loop import PartitionedLoop, partitioned_books
from orderbook.strategies.execution.venue_model import TRADING, TradingOptions
from orderbook.strategies.execution.venue_reports import HaltItem, ReportItem
from orderbook.strategies.gated_engine import GatedEngine, HeldEvent
from orderbook.strategies.host import StrategyHost
from orderbook.strategies.strategy import StrategyDefinition

_LAST = int(Flag.LAST)
_STATE, _INSTRUMENT = int(Action.STATE), int(Action.INSTRUMENT)
# Whether messages that the loop does not take (changes of relations, or where an engine has to be asked for
# each event) go together where no strategy has to be told of each; "live": they do, and were received just
# now, so that latencies are measured.
Pace = Literal["batch", "message", "live"]


class SavedPipeline(msgspec.Struct, frozen=True):
    """A pipeline in a checkpoint, without its engine, books and strategies.

    counts: events, messages, changes. ticked: the last tick. states: what states told, by instrument.
    held: callbacks that wait for their books. told: the latest time that came alone. positions: see Pipeline.
    """

    time: int
    counts: tuple[int, int, int]
    ticked: int | None
    states: dict[int, SavedState]
    held: list[HeldEvent]
    told: int = 0
    positions: dict[str, int] = {}


class Pipeline:
    """Applies events of `instruments` and changes to an engine, in the order given. One thread owns it.

    `time` is the time of the message at hand, ns: receive time, else exchange time, else a change's own.
    `events`, `messages` and `changes` count what was applied; `problems` are those of rows. `to_views` and
    `to_callbacks` are latencies from receipt until all views are fresh, and until a strategy is called.
    `host` runs the strategies, which `start` and `finish` begin and end; `trading` says how their orders are
    simulated. Where views read the clock it ticks
    every `resolution` ns of the events' times, before the first message of a step.

    `positions` says how far sources of changes have been applied: the `line` of the last of each.

    Raises UserError where the program declares relations that books cannot fill, ConfigurationError where
    a strategy does not fit the program.
    """

    def __init__(
        self,
        engine: GatedEngine,
        instruments: Instruments,
        strategies: Sequence[StrategyDefinition] = (),
        resolution: int = 10**9,
        trading: TradingOptions = TRADING,
    ) -> None:
        self.engine = engine
        self.instruments = instruments
        self.problems = Problems()
        self.events = self.messages = self.changes = 0
        self.time = self._told = 0
        self.positions: dict[str, int] = {}
        # Whether latencies are measured: of what is received now, not of what is applied again. By `clock`.
        self.measures = True
        self.clock: Callable[[], int] = time.time_ns
        self.to_views, self.to_callbacks = LatencyHistogram(), LatencyHistogram()
        self.books: Books | None = None
        # Whether the last message goes on; of the item at hand, how far it is, and who is told of messages.
        self._open, self._place = False, 0
        self._noted: Callable[[int], object] = lambda _: None
        self._times: NDArray[np.int64] | None = None
        self._relations: BookRelations | None = None
        self._receive_time = 0
        # The stamp of the live item at hand.
        self._received: int | None = None
        self._ticker = Ticker(resolution)
        self._states = BookStates(engine, instruments)
        if len(instruments):
            self._loop: MessageLoop | PartitionedLoop
            if engine.partitions is None:
                self.books = Books(instruments, engine.dictionary)
                self._loop = MessageLoop(self, self.books, self.to_views, self.to_callbacks)
            else:
                self.books = books = partitioned_books(engine, engine.partitions, instruments)
                self._loop = PartitionedLoop(self, books, self.to_views)
            self._fit_relations()
            engine.watch_books(self.books, instruments, self._fit_relations)
        self.host = StrategyHost(
            engine, self.books, instruments, strategies, on_callback=self._called_back, trading=trading
        )

    @property
    def late(self) -> tuple[int, int]:
        """How many times were well before the clock's, and by how many ns at most; see Ticker."""
        return self._ticker.late, self._ticker.latest

    @property
    def book_problems(self) -> dict[str, int]:
        """How many market events had each problem."""
        return {} if self.books is None else self.books.problems()

    @property
    def thread_events(self) -> Sequence[int]:
        """How many events that changed rows each thread has applied; empty where one applies all."""
        if self.books is None or not isinstance(self._loop, PartitionedLoop):
            return ()
        return self._loop.events

    def state_of(self, instrument: int) -> SavedState | None:
        """A book's state, why and since when; None before its first."""
        return self._states.of(instrument)

    def shows_states(self, relation: str) -> bool:
        """Whether `book_states` or `instruments` is filled: a view reads it, or all rows are kept."""
        return self._states.wants(relation)

    def warm_up(self) -> None:
        """Compile everything that an event runs through, before the first one comes."""
        nothing = ChangeBatch(
            np.array([-1], np.int16),
            np.array([CHECKED | END_OF_EVENT | END_OF_MESSAGE], np.uint8),
            np.zeros((1, 1), np.int64),
        )
        self.engine.apply(nothing)
        for view in self.engine.views:
            list(self.engine[view].items())
        if self.books is not None:
            self.books.apply(np.empty(0, EVENT))

    def start(self, names: Collection[str] | None = None) -> None:
        """Tell the strategies that events will come; names: see StrategyHost.start."""
        self.host.start(names)

    def apply(
        self,
        item: RunItem,
        pace: Pace = "batch",
        noted: Callable[[int], object] = lambda _: None,
        times: NDArray[np.int64] | None = None,
    ) -> None:
        """Apply a batch of events, changes of relations, or the time that has come.

        noted: called with the place of an event in the batch before its message can be told to anyone.
        times: int64[n], ns, of events: the time of the run; without it, that of their messages.
        """
        self._receive_time, self._place, self._noted, self._times = 0, 0, noted, times
        if isinstance(item, np.ndarray) and not self.engine.reads_clock:
            self._apply_market(item, pace)
        elif isinstance(item, ReportItem | HaltItem):
            self.time = max(self.time, item.time)
            self.host.begin(self.time)
            self.host.take(item)
            self.host.end()
        elif isinstance(item, TickItem):
            self._told = max(self._told, item.time)
            self._tick(item.time)
        elif isinstance(item, ChangeItem):
            self._apply_item(item, pace)
        elif self.engine.reads_clock and len(item):
            for tick, part in self._ticker.parts(item, pace == "live"):
                if tick is not None:
                    noted(self._place)
                    self._stamp(tick)
                self._apply_market(part, pace)
        else:
            self._apply_market(item, pace)

    def apply_stamped(self, stamped: Stamped, noted: Callable[[int], object] = lambda _: None) -> None:
        """Apply what a switch has stamped; view events have its version. noted: see `apply`."""
        engine = self.engine
        engine.at(stamped.stamp, stamped.switch)
        engine.conflating = stamped.conflate
        if stamped.live:
            self._received = stamped.stamp
            self.apply(stamped.item, "live", noted)
            self._received = None
        else:
            self.apply(stamped.item, noted=noted)
        if stamped.conflate:
            engine.conflating = False
            engine.books_changed()
            self.host.end()

    def save(self) -> SavedPipeline:
        """What the pipeline knows itself, between two items."""
        counts = (self.events, self.messages, self.changes)
        held = self.engine.save_held()
        states, last = self._states.save(), self._ticker.last
        return SavedPipeline(self.time, counts, last, states, held, self._told, dict(self.positions))

    def load(self, saved: SavedPipeline, indexes: Sequence[int], views: Collection[str] | None = None) -> int:
        """Goes on from `save`; how many callbacks that waited have gone with their subscriptions.

        indexes: the instruments' in this run. views: those whose rows mean what they meant; None: all.
        """
        self.time, self._told, self._ticker.last = saved.time, saved.told, saved.ticked
        self.events, self.messages, self.changes = saved.counts
        self.positions = dict(saved.positions)
        self._states.load({indexes[index]: row for index, row in saved.states.items()})
        return self.engine.load_held(saved.held, views)

    def catch_up_clock(self) -> None:
        """Tells the time to views that read the clock, where none did in the run that was saved."""
        time = self.time
        silent, self.host.silent = self.host.silent, True
        self._tick(max(time, self._told))
        self.time, self.host.silent = time, silent

    def _apply_market(self, events: Events, pace: Pace) -> None:
        live = pace == "live"
        self.host.passed(events)
        start = 0
        if self._open:
            start = _end_of_first(events)
            self.apply_apart(events, 0, start, live)
        # Partitions tell afterwards, when what is held back is held.
        if self.engine.conflating and self.engine.partitions is None:
            self.apply_apart(events, start, len(events), live)
        elif start < len(events):
            self._place += start
            times = None if self._times is None else self._times[self._place :]
            measured = live and self.measures
            ahead = self.clock() - time.monotonic_ns() if measured else 0
            rest = events[start:] if start else events
            origin = self.events + start
            done = self._loop.apply(rest, times, pace != "message", measured, ahead, origin)
            self.messages += done
            self._place -= start
        self._place += len(events)
        self.events += len(events)

    def apply_apart(self, events: Events, start: int, end: int, live: bool) -> None:
        """See `message_loop.Feed`."""
        self.messages += int(np.count_nonzero(events["flags"][start:end] & _LAST))
        for first, last, state in _parts(events, start, end):
            self._apply_events(events, state, live, first, last)

    def _tick(self, time: int) -> None:
        """Moves the clock, where a view reads it and a step of its resolution is over."""
        tick = self._ticker.due(time) if self.engine.reads_clock else None
        if tick is not None:
            self._stamp(tick)

    def _stamp(self, tick: int) -> None:
        self._receive_time = 0
        self.time = max(self.time, tick)
        self.host.begin(self.time)
        self.engine.tick(tick)
        self.host.ticked()

    @property
    def message_open(self) -> bool:
        """Whether the last event was not the last of its message."""
        return self._open

    def finish(self) -> None:
        """End a message that is open at the end of all sources, and the strategies."""
        self._receive_time = 0
        if self.books is not None and self._relations is not None:
            self.engine.apply(self._relations.translate(self.books.flush()))
            self.host.end()
        self.host.stop()

    def _fit_relations(self) -> None:
        """Fits what books give out to the engine's program, which views may join and leave."""
        engine = self.engine
        self._states.fit()
        self._relations = BookRelations(
            engine.program.program, engine.dictionary, self.problems, engine.keeps_rows, engine.noted
        )
        if self.books is not None:
            self.books.tell_quotes(self._relations.quotes)
            self.books.tell_events(self._relations.events)
        self._loop.fit(self._relations)

    def _called_back(self) -> None:
        if self._receive_time:
            self.to_callbacks.record(self.clock() - self._receive_time)

    def at_message(self, start: int, time: int) -> None:
        """See `message_loop.Feed`."""
        self.time = time
        self._noted(self._place + start)

    def received(self, time: int) -> None:
        """See `message_loop.Feed`."""
        self._receive_time = time

    def _apply_events(self, events: Events, state: bool, live: bool, start: int, end: int) -> None:
        """Applies events start … end - 1 as one message."""
        assert self.books is not None and self._relations is not None
        events = events[start:end]
        if live and self.measures:
            self._receive_time = int(events[0]["receive_time"])
        self.at_message(start, int(events[0]["receive_time"]) or int(events[0]["exchange_time"]))
        self.host.begin(self.time if self._times is None else int(self._times[self._place + start]), events)
        self._open = not events[-1]["flags"] & _LAST
        changes = self.books.apply(events)
        if len(changes):
            self.engine.apply(self._relations.translate(changes))
        if state and events[0]["action"] == _INSTRUMENT:
            self._change_instrument(events)
        elif state:
            self._states.note(events)
            self.engine.books_changed()
        self.host.end()
        if self._receive_time:
            self.to_views.record(self.clock() - self._receive_time)

    def _change_instrument(self, events: Events) -> None:
        """An instrument has another tick and lot; what rests and what is held are not touched by that."""
        numbers = [int(events[0][name]) for name in ("instrument", "price", "volume")]
        if self.instruments.change(*numbers):
            self._states.note(events)
        else:
            self.problems.add("unusable instrument", f"instrument {numbers[0]}", f"{numbers[1:]} units")

    def _apply_item(self, item: ChangeItem, pace: Pace) -> None:
        """Applies changes together, as far as nobody is told of each message and no tick comes between."""
        source, changes, ticks = item.source, item.changes, self.engine.reads_clock
        times = changes.times() if ticks and isinstance(changes, RowBatch) and pace == "batch" else None
        if pace == "message" or self.host.watches or (ticks and times is None):
            for message in messages_of(changes):
                self._apply_changes(source, message)
        elif times is None:
            self._apply_changes(source, changes)
        else:
            cuts = np.unique([0, *self._ticker.moves(times), len(changes)])
            for start, end in pairwise(cuts.tolist()):
                self._apply_changes(source, changes[start:end], noted=True)

    def _apply_changes(self, source: str, changes: Changes, noted: bool = False) -> None:
        """noted: it has been counted whether they are late."""
        stated = stated_time(changes)
        if stated is not None:
            received = self._received
            # What was received has happened, and now, whatever time a table says.
            self.time = stated if received is None else min(stated, received)
            if received is None and not noted:
                self._ticker.note(stated)
            self._tick(stated if received is None else received)
        relations = self.engine.program.relations
        batch = encode_changes(changes, relations, self.engine.dictionary, source, self.problems)
        self.host.begin(self.time)
        self.engine.apply(batch)
        self.host.end()
        self.changes += len(batch)
        self.positions |= positions_after(source, changes)
        self.messages += int(np.count_nonzero(batch.flags & END_OF_MESSAGE))


def _end_of_first(events: Events) -> int:
    """Where the first message ends, or all do."""
    lasts = np.flatnonzero(events["flags"] & _LAST)
    return int(lasts[0]) + 1 if len(lasts) else len(events)


def _parts(events: Events, start: int, end: int) -> Iterator[tuple[int, int, bool]]:
    """Parts of events start … end - 1, from where to where; a STATE or INSTRUMENT event is a part of its own,
    marked True, so that every other part is applied while the books have one state."""
    actions = events["action"][start:end]
    states = start + np.flatnonzero((actions == _STATE) | (actions == _INSTRUMENT))
    changing = set(states.tolist())
    for first, last in pairwise(sorted({start, end, *changing, *(place + 1 for place in changing)})):
        yield first, last, first in changing
