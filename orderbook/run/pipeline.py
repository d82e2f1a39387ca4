"""The way of one event: from a feed's batch through books and relations into the engine."""

import math
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
from orderbook.feeds.change_stream import RelationChange, message_ends
from orderbook.feeds.merge import ChangeItem, Item, TickItem, encode_changes
from orderbook.market.book_relations import BookRelations, BookStates, SavedState
from orderbook.market.books import Books
from orderbook.market.events import EVENT, Action, Events, Flag, Ticker
from orderbook.market.instruments import Instruments
from orderbook.run.batch_stepper import BatchStepper, LaggedBooks, message_bounds
from orderbook.run.event_queue import Stamped
from orderbook.strategies.execution.account_orders import BooksAtHand
from orderbook.strategies.execution.venue_model import TRADING, TradingOptions
from orderbook.strategies.gated_engine import GatedEngine, HeldEvent
from orderbook.strategies.host import StrategyHost
from orderbook.strategies.strategy import StrategyDefinition

_LAST = int(Flag.LAST)
_STATE, _INSTRUMENT = int(Action.STATE), int(Action.INSTRUMENT)
# Handing on a part of a live batch takes about as long as this many events of it.
_HANDING_ON = 25

# How many messages of an item go through together where no strategy has to be told of each: all of it, which
# is fastest; one by one, so that `Pipeline.time` is that of the message at hand; or, of what has just been
# received, one by one unless many wait, with latencies measured from the receipt of the oldest of those that
# go together.
Pace = Literal["batch", "message", "live"]


class SavedPipeline(msgspec.Struct, frozen=True):
    """A pipeline in a checkpoint, without its engine, books and strategies.

    counts: events, messages, changes. ticked: the last tick. states: rows of `book_states`, by instrument.
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
        # As orders meet them; see `together`.
        self._at_hand: BooksAtHand | None = None
        # Whether the last message goes on; of the item at hand, how far it is, and who is told of messages.
        self._open, self._place = False, 0
        self._noted: Callable[[int], object] = lambda _: None
        self._times: np.ndarray | None = None
        self._relations: BookRelations | None = None
        self._receive_time = 0
        # The stamp of the live item at hand.
        self._received: int | None = None
        self._ticker = Ticker(resolution)
        self._states = BookStates(engine, instruments)
        if len(instruments):
            self.books = Books(instruments, engine.dictionary)
            self._fit_relations()
            engine.watch_books(self.books, instruments, self._fit_relations)
            self._at_hand = BooksAtHand(self.books)
            self._behind = LaggedBooks(self.books, instruments, engine.dictionary)
            self._together = BatchStepper(self, self._at_hand, self.books, self._behind)
        self.host = StrategyHost(
            engine, self._at_hand, instruments, strategies, on_callback=self._called_back, trading=trading
        )

    @property
    def late(self) -> tuple[int, int]:
        """How many times were well before the clock's, and by how many ns at most; see Ticker."""
        return self._ticker.late, self._ticker.latest

    @property
    def book_problems(self) -> dict[str, int]:
        """How many market events had each problem."""
        return {} if self.books is None else self.books.problems()

    def state_of(self, instrument: int) -> SavedState | None:
        """A book's state, why and since when; None before its first."""
        return self._states.of(instrument)

    @property
    def shows_states(self) -> bool:
        """Whether the relation `book_states` is filled: a view reads it, or all rows are kept."""
        return self._states.wanted

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
        self.host.warm_up()

    def start(self, names: Collection[str] | None = None) -> None:
        """Tell the strategies that events will come; names: see StrategyHost.start."""
        self.host.start(names)

    def apply(
        self,
        item: Item | TickItem,
        pace: Pace = "batch",
        noted: Callable[[int], object] = lambda _: None,
        times: NDArray[np.int64] | None = None,
    ) -> None:
        """Apply a batch of events, changes of relations, or the time that has come.

        noted: called with the place of an event in the batch before its message can be told to anyone.
        times: int64[n], ns, of events: the time of the run; without it, that of their messages.
        """
        self._receive_time, self._place, self._noted, self._times = 0, 0, noted, times
        if isinstance(item, TickItem):
            self._told = max(self._told, item.time)
            self._tick(item.time)
        elif isinstance(item, ChangeItem):
            together = pace != "message" and not (self.engine.reads_clock or self.host.watches)
            for changes in [item.changes] if together else _change_messages(item.changes):
                self._apply_changes(item.source, changes)
        elif self.engine.reads_clock and len(item):
            for tick, part in self._ticker.parts(item, pace == "live"):
                if tick is not None:
                    noted(self._place)
                    self._stamp(tick)
                self._apply_market(part, pace)
        else:
            self._apply_market(item, pace)

    def apply_stamped(self, stamped: Stamped) -> None:
        """Apply what a switch has stamped; view events have its version."""
        engine = self.engine
        engine.at(stamped.stamp, stamped.switch)
        engine.conflating = stamped.conflate
        if stamped.live:
            self._received = stamped.stamp
            self.apply(stamped.item, "live")
            self._received = None
        else:
            self.apply(stamped.item)
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
        ends = message_bounds(events)[1:]
        self.messages += len(ends)
        exactly = self.host.watches and not self.engine.conflating
        together = 1 if pace == "message" and not exactly else len(events)
        if live:
            together = _messages_at_once(len(ends), len(events))
        for part, state in _parts(events, ends, together):
            if exactly and not state:
                self._apply_messages(part, live)
            else:
                self._apply_events(part, state, live)
            self._place += len(part)
        self.events += len(events)

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
            engine.program.program, engine.dictionary, self.problems, engine.keeps_rows
        )

    def _called_back(self) -> None:
        if self._receive_time:
            self.to_callbacks.record(self.clock() - self._receive_time)

    def _apply_messages(self, events: Events, live: bool) -> None:
        """Applies events, none of which is a STATE, as if one message after the other."""
        bounds = message_bounds(events)
        alone = 1 if len(bounds) == 2 or (self._open and len(bounds) > 1) else 0
        if alone:
            self._apply_events(events, False, live, 0, bounds[1])
        whole = bounds[alone:]
        if len(whole) > 1:
            received = int(events[whole[0]]["receive_time"]) if live and self.measures else 0
            self._receive_time = received
            self._together.apply(events, whole, self._run_times(events, whole[:-1]))
            if received:
                self.to_views.record(self.clock() - received)
        if bounds[-1] < len(events):
            self._apply_events(events, False, live, bounds[-1])

    def _run_times(self, events: Events, starts: np.ndarray) -> NDArray[np.int64]:
        """The times of the run, int64[m], ns, at the messages that begin there; they never go back."""
        if self._times is not None:
            times = self._times[self._place + starts]
        else:
            first = events[["receive_time", "exchange_time"]].take(starts)
            times = np.where(first["receive_time"], first["receive_time"], first["exchange_time"])
        return np.maximum.accumulate(np.maximum(times, self.host.now))

    def at_message(self, start: int, events: Events) -> None:
        """A message is at hand, which begins there in what is applied; see `together.Feed`."""
        first = events[0]
        self.time = int(first["receive_time"]) or int(first["exchange_time"])
        self._noted(self._place + start)

    def translated(self, changes: ChangeBatch) -> ChangeBatch:
        """Changes of books as those of the engine's relations."""
        assert self._relations is not None
        return self._relations.translate(changes)

    def _apply_events(
        self, events: Events, state: bool, live: bool, start: int = 0, end: int | None = None
    ) -> None:
        """Applies events start … end - 1 as one message."""
        assert self.books is not None and self._relations is not None
        events = events[start:end]
        if live and self.measures:
            self._receive_time = int(events[0]["receive_time"])
        self.at_message(start, events)
        self.host.begin(self.time if self._times is None else int(self._times[self._place + start]), events)
        self._behind.note(events)
        self._open = not events[-1]["flags"] & _LAST
        changes = self.books.apply(events)
        if len(changes):
            self.engine.apply(self._relations.translate(changes))
        if state and events[0]["action"] == _INSTRUMENT:
            self._change_instrument(events[0])
        elif state:
            self._states.note(events)
            self.engine.books_changed()
        self.host.end()
        if self._receive_time:
            self.to_views.record(self.clock() - self._receive_time)

    def _change_instrument(self, event: np.void) -> None:
        """An instrument has another tick and lot; what rests and what is held are not touched by that."""
        numbers = [int(event[name]) for name in ("instrument", "price", "volume")]
        if not self.instruments.change(*numbers):
            self.problems.add("unusable instrument", f"instrument {numbers[0]}", f"{numbers[1:]} units")

    def _apply_changes(self, source: str, changes: Sequence[RelationChange]) -> None:
        stated = changes[0].stated_time
        if stated is not None:
            received = self._received
            # What was received has happened, and now, whatever time a table says.
            self.time = stated if received is None else min(stated, received)
            if received is None:
                self._ticker.note(stated)
            self._tick(stated if received is None else received)
        relations = self.engine.program.relations
        batch = encode_changes(changes, relations, self.engine.dictionary, source, self.problems)
        self.host.begin(self.time)
        self.engine.apply(batch)
        self.host.end()
        self.changes += len(batch)
        if changes[-1].line:
            self.positions[source] = changes[-1].line
        self.messages += int(np.count_nonzero(batch.flags & END_OF_MESSAGE))


def _messages_at_once(messages: int, events: int) -> int:
    """How many messages of a live batch go together, so that the mean of their waits is least.

    In k parts of n events, handing on a part taking h, that is (k h + n) / 2 + (h + n / k) / 2: least at
    k = sqrt(n / h).
    """
    parts = max(1, math.isqrt(events // _HANDING_ON))
    return max(1, -(-messages // parts))


def _parts(events: Events, ends: np.ndarray, messages: int) -> Iterator[tuple[np.ndarray, bool]]:
    """Parts of at most `messages` messages; a STATE or INSTRUMENT event is a part of its own, marked True.

    So every other part is applied as a whole while the books have one state. ends: where messages end.
    """
    states = ((events["action"] == _STATE) | (events["action"] == _INSTRUMENT)).nonzero()[0]
    if len(ends) <= messages and not len(states):
        yield events, False
        return
    cuts = np.unique(np.concatenate([[0], ends[messages - 1 :: messages], states, states + 1, [len(events)]]))
    changing = set(states.tolist())
    for start, end in pairwise(cuts.tolist()):
        yield events[start:end], start in changing


def _change_messages(changes: Sequence[RelationChange]) -> Iterator[Sequence[RelationChange]]:
    for start, end in pairwise([0, *message_ends(changes)]):
        yield changes[start:end]
