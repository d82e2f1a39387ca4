"""Messages in several threads: each runs the compiled loop over those of its partition's books.

Events are handed over together. Every part picks the events of its own books out of them, by compiled code
that holds no lock, and runs them through its own books and views: a `MessageLoop` that is told of nobody's
strategies. Watches that fire do not stop the others: what fired is told afterwards in the order of versions,
each at the version that it has in one thread. So whoever is told sees what an event says, and other rows as
they are after all that was handed over.

    events ─┬─ those of part 0 ─ books ─ views ─┬─ what fired, by version
            └─ those of part 1 ─ books ─ views ─┘
"""

import threading
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby
from operator import attrgetter
from queue import SimpleQueue
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from orderbook.core.errors import Problems
from orderbook.core.jit import called_with
from orderbook.core.latency import LatencyHistogram
from orderbook.engine.generate.state_layout import EVENTS
from orderbook.engine.maps.memory import Block
from orderbook.engine.runtime.engine import Engine
from orderbook.engine.runtime.interface import Firing, Runtime
from orderbook.engine.runtime.partitioned_runtime import PartitionedRuntime, Partitions
from orderbook.market.block_memory import load, move, record_at, store
from orderbook.market.book_relations import BookRelations
from orderbook.market.books import Books
from orderbook.market.events import EVENT, Action, Events, Flag
from orderbook.market.instruments import Instruments
from orderbook.market.partitioned_books import PartitionedBooks
from orderbook.run.message_loop import Feed, MessageLoop

_LAST, _STATE, _INSTRUMENT = int(Flag.LAST), int(Action.STATE), int(Action.INSTRUMENT)
# Fewer events are done by one thread, before another could have begun.
_FEW = 256
# Events that a part looks through before it applies its own; in between it needs the interpreter's lock, for
# which it may have to wait.
_CHUNK = 1 << 16
# Why picking has come to an end: of the chunk, at a message that Python takes, or one that goes on.
_DONE, _TOLD, _OPEN = range(3)

_PICK = np.dtype(
    [
        ("events", "i8"),  # address of EVENT[count]
        ("count", "i8"),
        ("place", "i8"),  # the event that is looked at next
        ("number", "i8"),  # of its message
        ("owners", "i8"),  # address of int64[instruments]: the part that has each book
        ("instruments", "i8"),
        ("own", "i8"),  # the part that picks
        ("whole", "i8"),  # 1: messages with books of several parts are not for them
        ("out", "i8"),  # address of EVENT[…], where what is picked goes,
        ("places", "i8"),  # of int64[…], where it was,
        ("numbers", "i8"),  # and of int64[…], which messages these are
        ("picked", "i8"),
        ("messages", "i8"),
    ]
)
_pick_at, _event_at = record_at(_PICK), record_at(EVENT)
_EVENT_BYTES = EVENT.itemsize


@called_with("i", nogil=True)
def _pick(at: int) -> int:
    """Picks a part's events out of whole messages, a batch; why it has come to an end."""
    pick = _pick_at(at)
    place, whole, number = pick.place, pick.place, pick.number
    written, kept, messages, first, why = 0, 0, 0, -1, _DONE
    while place < pick.count and why == _DONE and (place != whole or place - pick.place < _CHUNK):
        event = _event_at(pick.events + _EVENT_BYTES * place)
        instrument = np.int64(event.instrument)
        owner = load(pick.owners + 8 * instrument) if 0 <= instrument < pick.instruments else 0
        shared = pick.whole != 0 and place != whole and owner != first
        if shared or event.action == _STATE or event.action == _INSTRUMENT:
            why = _TOLD
        elif owner == pick.own:
            move(pick.events + _EVENT_BYTES * place, pick.out + _EVENT_BYTES * written, _EVENT_BYTES // 8)
            store(pick.places + 8 * written, place)
            written += 1
        first = owner
        place += 1
        if why == _DONE and event.flags & _LAST != 0:
            if written > kept:
                _event_at(pick.out + _EVENT_BYTES * (written - 1)).flags |= _LAST
                store(pick.numbers + 8 * messages, number)
                messages += 1
            number += 1
            kept, whole = written, place
    if why == _DONE and place != whole:
        why = _OPEN
    pick.place, pick.number, pick.picked, pick.messages = whole, number, kept, messages
    return why


class _Fired(NamedTuple):
    """Firings of a part, as of an event at a place of what was handed over, in a message with this number."""

    place: int
    number: int
    firings: Sequence[Firing]


class _Engine:
    """What a part's loop takes for its engine."""

    asked = False

    def __init__(self, runtime: Runtime, fired: Callable[[Sequence[Firing]], object]) -> None:
        self._runtime, self._fired = runtime, fired
        self._counts = Block(2)
        self.progress = self._counts.address

    @property
    def events(self) -> int:
        """How many events the part has applied."""
        return self._counts.words[EVENTS]

    def ready(self, events: int) -> int:
        return self._runtime.ready()

    def call_back(self) -> None:
        self._fired(self._runtime.firings())

    def attend(self, changes: object, start: int, stop: int) -> int:
        """Raises ExactnessError; rows of books are checked, so that nothing else is left to do."""
        return self._runtime.stopped(stop)


class _Host:
    """What a part's loop takes for its strategies, of which there are none."""

    watches = asked = False
    now = step = 0

    def called(self, time: int) -> None:
        self.now = max(self.now, time)

    def answered(self) -> None:
        pass


class _Part:
    """One partition: its books, its views, and what came of the events that were handed over last."""

    def __init__(self, number: int, books: Books, runtime: Runtime, owners: NDArray[np.int64]) -> None:
        self.problems, self.latencies = Problems(), LatencyHistogram()
        self.host, self.engine = _Host(), _Engine(runtime, self._note)
        self.fired: list[_Fired] = []
        self._books = books
        self._loop = MessageLoop(cast(Feed, self), books, self.latencies, self.latencies)
        self._picks = np.zeros(1, _PICK)
        self._pick = self._picks[0]
        self._pick["own"], self._pick["owners"], self._pick["instruments"] = (
            number,
            owners.ctypes.data,
            len(owners),
        )
        self._out, self._places = np.empty(0, EVENT), np.empty(0, np.int64)
        self._numbers = np.empty(0, np.int64)
        self._noted: list[tuple[int, int, Sequence[Firing]]] = []
        self._before = 0

    def fit(self, relations: BookRelations) -> None:
        self._loop.fit(relations.apart(self.problems))
        # A quote is part of the last event of a message that changes something, whoever has its book.
        self._pick["whole"] = relations.quotes

    def at_message(self, start: int, time: int) -> None:
        pass

    def received(self, time: int) -> None:
        pass

    def apply(
        self,
        events: Events,
        start: int,
        times: NDArray[np.int64] | None,
        live: bool,
        ahead: int,
        changed: NDArray[np.bool_] | None,
    ) -> tuple[int, int, int]:
        """Applies its events from place `start` on, up to a message that is to go through Python.

        changed: bool[n], which is set for events that change rows; None: nobody watches. Returns why it
        ended, where, and how many messages those were, of all parts.
        """
        if len(self._out) < len(events):
            self._out = np.empty(len(events), EVENT)
            self._places, self._numbers = np.empty((2, len(events)), np.int64)
        pick = self._pick
        pick["events"], pick["count"], pick["place"], pick["number"] = (
            events.ctypes.data,
            len(events),
            start,
            0,
        )
        pick["out"], pick["places"], pick["numbers"] = (
            array.ctypes.data for array in (self._out, self._places, self._numbers)
        )
        why = _DONE
        while why == _DONE and pick["place"] < len(events):
            why = _pick(self._picks.ctypes.data)
            if count := int(pick["picked"]):
                own = None if times is None else times.take(self._places[:count])
                self._run(self._out[:count], own, live, ahead, changed)
        return why, int(pick["place"]), int(pick["number"])

    def _run(
        self,
        events: Events,
        times: NDArray[np.int64] | None,
        live: bool,
        ahead: int,
        changed: NDArray[np.bool_] | None,
    ) -> None:
        counts = None if changed is None else np.zeros(len(events), np.int64)
        if not self._books.writes_to(self._loop.out):
            self._books.direct_to(self._loop.out)
        self._books.count_changes(counts)
        self.host.step, self._before = 0, self.engine.events
        # There are no strategies, who alone ask how many events were applied before.
        self._loop.apply(events, times, True, live, ahead, 0)
        if counts is None or changed is None:
            return
        self._books.count_changes(None)
        places = self._places[: len(events)][counts > 0]
        changed[places] = True
        self.fired += [_Fired(int(places[count - 1]), number, own) for count, number, own in self._noted]
        self._noted.clear()

    def _note(self, firings: Sequence[Firing]) -> None:
        number = int(self._numbers[self.host.step // 2])
        self._noted.append((self.engine.events - self._before, number, firings))


class Workers:
    """Threads that wait for work."""

    def __init__(self, count: int) -> None:
        self._queues: list[SimpleQueue[Callable[[], object] | None]] = [SimpleQueue() for _ in range(count)]
        self._done: SimpleQueue[BaseException | None] = SimpleQueue()
        for number, queue in enumerate(self._queues, 1):
            threading.Thread(
                target=_work, args=(queue, self._done), name=f"engine-{number}", daemon=True
            ).start()
        weakref.finalize(self, _dismiss, self._queues)

    def run(self, actions: Sequence[Callable[[], object]]) -> None:
        """Does all of them at once, the first in the calling thread. Raises what one of them raises."""
        first, *others = actions
        for queue, action in zip(self._queues, others, strict=False):
            queue.put(action)
        errors: list[BaseException | None] = []
        try:
            first()
        finally:
            errors = [self._done.get() for _ in others]
        for error in errors:
            if error is not None:
                raise error


def _work(
    queue: "SimpleQueue[Callable[[], object] | None]", done: "SimpleQueue[BaseException | None]"
) -> None:
    while (action := queue.get()) is not None:
        try:
            action()
        except BaseException as error:
            done.put(error)
        else:
            done.put(None)
        del action


def _dismiss(queues: Sequence["SimpleQueue[Callable[[], object] | None]"]) -> None:
    for queue in queues:
        queue.put(None)


def partitioned_books(engine: Engine, partitions: Partitions, instruments: Instruments) -> PartitionedBooks:
    """Books in the partitions in which an engine has their rows, dealt out in the order of their names."""
    by_venue = partitions.column == "venue"
    names = [one.venue if by_venue else one.symbol for one in instruments]
    for name in sorted(set(names)):
        partitions.of(engine.dictionary.encode(name))
    numbers = partitions.numbers(engine.dictionary.encode_all(names))
    return PartitionedBooks(instruments, engine.dictionary, numbers, partitions.count)


class PartitionedLoop:
    """See MessageLoop: the same outcome, for a program without strategies whose engine is in partitions."""

    def __init__(self, feed: Feed, books: PartitionedBooks, latencies: LatencyHistogram) -> None:
        runtime = feed.engine.runtime
        assert isinstance(runtime, PartitionedRuntime)
        self._feed, self._books, self._latencies = feed, books, latencies
        pairs = zip(books.parts, runtime.parts, strict=True)
        self._parts = [_Part(number, *pair, books.numbers) for number, pair in enumerate(pairs)]
        self._workers = Workers(len(self._parts) - 1)
        self._problems = Problems()

    @property
    def events(self) -> Sequence[int]:
        """How many events that changed rows each thread has applied."""
        return [part.engine.events for part in self._parts]

    def fit(self, relations: BookRelations) -> None:
        """See MessageLoop."""
        self._problems = relations.problems
        for part in self._parts:
            part.fit(relations)

    def apply(
        self,
        events: Events,
        times: NDArray[np.int64] | None,
        together: bool,
        live: bool,
        ahead: int,
        origin: int,
    ) -> int:
        """See MessageLoop."""
        feed, place, ended = self._feed, 0, 0
        events = np.ascontiguousarray(events).view(EVENT)
        while place < len(events):
            why, before = _TOLD, place
            if feed.engine.ready(len(events) - place) and not _told(events[place]):
                why, place, number = self._run(events, place, times, live, ahead)
                ended += number
            if why == _OPEN:
                feed.apply_apart(events, place, len(events), live)
                place = len(events)
            elif why == _TOLD:
                end = _message_end(events, place)
                feed.apply_apart(events, place, end, live)
                place = end
            elif place == before:
                break
        return ended

    def _run(
        self, events: Events, start: int, times: NDArray[np.int64] | None, live: bool, ahead: int
    ) -> tuple[int, int, int]:
        """Runs all parts from a place on; see `_Part.apply`."""
        engine, host = self._feed.engine, self._feed.host
        changed = np.zeros(len(events), np.bool_) if engine.watched else None
        parts = self._concerned(events[start:])
        before = sum(part.engine.events for part in parts)
        found: list[tuple[int, int, int]] = [(_DONE, start, 0)] * len(parts)

        def run(number: int) -> None:
            parts[number].host.now = host.now
            found[number] = parts[number].apply(events, start, times, live, ahead, changed)

        actions = [partial(run, number) for number in range(len(parts))]
        if len(events) - start < _FEW:
            for action in actions:
                action()
        else:
            self._workers.run(actions)
        why, end, number = found[0]
        sequence = engine.sequence
        engine.count_from(sequence + sum(part.engine.events for part in parts) - before)
        for part in parts:
            host.called(part.host.now)
            if live:
                self._latencies.take(part.latencies)
            if part.problems.counts:
                self._problems.extend(part.problems)
                part.problems.clear()
        if changed is not None:
            self._tell(events, start, sequence, changed, [one for part in parts for one in part.fired])
            for part in parts:
                part.fired.clear()
        if end > start:
            self._feed.at_message(*_message_at(events, end - 1))
        return why, end, number

    def _concerned(self, events: Events) -> Sequence[_Part]:
        """The parts that have books of these events; all, where there are many."""
        if len(events) >= _FEW:
            return self._parts
        own = self._books.owners(events).tolist()
        return [self._parts[number] for number in sorted(set(own))]

    def _tell(
        self,
        events: Events,
        start: int,
        sequence: int,
        changed: NDArray[np.bool_],
        fired: Sequence[_Fired],
    ) -> None:
        """Calls back for what fired, in the order of versions; the first event's came after `sequence`."""
        if not fired:
            return
        engine = self._feed.engine
        numbers = sequence + np.cumsum(changed)
        ends = start + np.flatnonzero(events["flags"][start:] & _LAST)
        waiting: list[_Due] = []
        for one in fired:
            end = int(ends[one.number])
            for firing in one.firings:
                place = end if engine.watched[firing.watch].watch.per_message else one.place
                waiting.append(_Due(int(numbers[place]), end, firing))
        waiting.sort(key=attrgetter("version"))
        for version, due in groupby(waiting, attrgetter("version")):
            together = list(due)
            self._feed.at_message(*_message_at(events, together[0].end))
            engine.deliver([one.firing for one in together], version)


class _Due(NamedTuple):
    """A firing that is to be told, at a version's number, and where its message ends."""

    version: int
    end: int
    firing: Firing


def _told(event: Any) -> bool:
    return bool(event["action"] == _STATE or event["action"] == _INSTRUMENT)


def _message_end(events: Events, place: int) -> int:
    """Where the message ends that has the event at a place, or all do."""
    while place < len(events) and not events[place]["flags"] & _LAST:
        place += 1
    return min(place + 1, len(events))


def _message_at(events: Events, place: int) -> tuple[int, int]:
    """Where the message begins that ends with the event at a place, and its time, ns."""
    while place and not events[place - 1]["flags"] & _LAST:
        place -= 1
    first = events[place]
    return place, int(first["receive_time"]) or int(first["exchange_time"])
