"""One compiled loop over messages: books, orders that rest, views, and what Python is to be told of.

A message goes through the books, orders at work follow it in their queues, and every view is refreshed,
before the next one is looked at. The loop comes back where Python has work (a callback, an order that may be
filled, a strategy's timer) with books, orders and views exactly as of that message, and goes on from there:

    events ─ books ─► changes ─ relations ─► rows ─ triggers ─► views
               └─ wake conditions               └─ firings
"""

import time
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from orderbook.core.changes import NULL_CODE, ChangeBatch
from orderbook.core.jit import called_with, exported, jit
from orderbook.core.latency import COUNT, MAXIMUM, STEPS, LatencyHistogram
from orderbook.engine.generate.state_layout import UNCOUNTED
from orderbook.engine.generate.support import run_columns
from orderbook.engine.maps.batch_arrays import array_types, describe_records
from orderbook.engine.maps.memory import load_short, read_clock, restore_thread, save_thread
from orderbook.market.block_memory import Record, fetch_line, load, record_at, store
from orderbook.market.book_loop import apply_range
from orderbook.market.book_relations import BookRelations
from orderbook.market.book_state import CONTEXT
from orderbook.market.books import Books, MessageChanges
from orderbook.market.events import EVENT, Action, Events, Flag
from orderbook.strategies.execution.desk_messages import end_message
from orderbook.strategies.execution.queue_position import action_bit
from orderbook.strategies.execution.row_dispatch import dispatch
from orderbook.strategies.execution.wake_conditions import (
    NOT_TOLD,
    PRINTED,
    TOLD,
    arrivals,
    followed,
    wakes,
)
from orderbook.strategies.gated_engine import GatedEngine
from orderbook.strategies.host import StrategyHost

LOOP = np.dtype(
    [
        ("events", "i8"),  # address of EVENT[count]
        ("count", "i8"),
        ("times", "i8"),  # address of int64[count], the times of the run, ns; 0: those of the messages
        ("place", "i8"),  # the event that is looked at next
        ("first", "i8"),  # where the message at hand begins
        ("end", "i8"),  # and ends
        ("actions", "i8"),  # of its events, a bit each
        ("told_by", "i8"),  # how many of its events say which instruments it is of: 1 where all are of one
        ("number", "i8"),  # how many messages are done
        ("time", "i8"),  # of the message at hand, and of the run then, ns
        ("now", "i8"),
        ("phase", "i8"),
        ("alone", "i8"),  # 1: come back after the message at hand, of which nobody waits to be told
        ("conditions", "i8"),  # address of WakeConditions; 0: nobody waits for messages
        ("books", "i8"),  # address of the books' CONTEXT
        ("woken", "i8"),  # what somebody is to be told of the message at hand, as `wakes` says
        ("change", "i8"),  # the change that views take next
        ("state", "i8"),  # of the engine's runtime, and where its events are counted
        ("progress", "i8"),
        ("stop", "i8"),  # what `run_columns` has returned
        ("map", "i8"),  # see BookRelations: address of `kinds`, and of `fits`, 0 for none
        ("fits", "i8"),
        ("kinds", "i8"),  # address of int16[room], and of int64[room, width] where there are fits
        ("values", "i8"),
        ("width", "i8"),
        ("messages", "i8"),  # how many have ended
        ("latencies", "i8"),  # address of a LatencyHistogram's words, from receipt to views; 0: not measured
        ("called", "i8"),  # and of those until compiled methods were called
        ("ahead", "i8"),  # ns, how far the clock of receive times is ahead of the monotonic one
        ("clock", "i8"),  # address of the seconds and nanoseconds of that
        ("handlers", "i8"),  # address of HANDLER, by watch; 0: Python is told of every firing
        ("desks", "i8"),  # see `end_message`
        ("desks_count", "i8"),
        ("relations", "i8"),
        ("origin", "i8"),  # how many events were applied before these
    ]
)
(
    _EVENTS, _COUNT, _TIMES, _PLACE, _FIRST, _END, _ACTIONS, _TOLD_BY, _NUMBER, _TIME, _NOW, _PHASE, _ALONE,
    _CONDITIONS, _BOOKS, _WOKEN, _CHANGE, _STATE_AT, _PROGRESS, _STOP, _MAP, _FITS, _KINDS, _VALUES, _WIDTH,
    _MESSAGES, _LATENCIES, _CALLED, _AHEAD, _CLOCK, _HANDLERS, _DESKS, _DESKS_COUNT, _RELATIONS, _ORIGIN,
) = range(len(LOOP.names or ()))  # fmt: skip

# Phases: between messages, while books apply one, while views do.
BETWEEN, IN_BOOKS, IN_VIEWS = range(3)
# Why the loop comes back: at the end of the events; at a message without an end; at one that holds a STATE or
# an INSTRUMENT; between the books and the views of one that is told to somebody; for room; since rows are
# outside of a declared range; as `run_columns` has stopped; at the end of a message, where it goes `alone`;
# there, where compiled methods have asked for what Python is to look at; before the books, as funding is
# paid; at the end of a message of which strategies are told the trades alone.
DONE, OPEN, STATES, WOKEN, ROOM, OUTSIDE, STOPPED, ENDED, ASKED, PAID, TRADED = range(11)

_LAST = int(Flag.LAST)
_TOLD_APART = 1 << Action.STATE | 1 << Action.INSTRUMENT
_EVENT_BYTES = EVENT.itemsize
# So far ahead events are fetched, each of which is a line of the cache that nothing has read before.
_LEAD_BYTES = 24 * _EVENT_BYTES
_MONOTONIC = int(time.CLOCK_MONOTONIC)
# Calls of the loop after which Python is told what compiled methods did there, at least.
_MOST_DEFERRED = 64
# Fewer events are done before another thread could have begun.
_LONG = 64
# Compiled code does not take the array of the events.
_REFUSED = -1

_loop_at = record_at(LOOP)
_event_at = record_at(EVENT)
_context_at = record_at(CONTEXT)
_SHORT = np.dtype([("value", "i2")])
_short_at = record_at(_SHORT)


@jit()
def _begin(loop: Record) -> int:
    """Finds the next message, of events that there are; why it is not to be applied as others are, DONE if it
    is."""
    first, place, count = loop.place, loop.place, loop.count
    at = loop.events + _EVENT_BYTES * place
    instrument = _event_at(at).instrument
    actions, mixed, whole = 0, False, False
    while place < count and not whole:
        event = _event_at(at)
        fetch_line(at + _LEAD_BYTES)
        actions |= action_bit(event.action)
        mixed = mixed or event.instrument != instrument
        whole = event.flags & _LAST != 0
        place += 1
        at += _EVENT_BYTES
    if not whole:
        return OPEN
    loop.first, loop.end, loop.actions = first, place, actions
    loop.told_by = place - first if mixed else 1
    event = _event_at(loop.events + _EVENT_BYTES * first)
    loop.time = event.receive_time if event.receive_time else event.exchange_time
    loop.now = max(loop.now, loop.time if loop.times == 0 else load(loop.times + 8 * first))
    return STATES if actions & _TOLD_APART else DONE


@jit()
def _start_books(loop: Record, context: Record) -> bool:
    """The books are about to apply the message at hand; whether funding is paid before."""
    loop.phase = IN_BOOKS
    context.written = 0
    if loop.conditions == 0:
        return False
    paid: bool = arrivals(loop.conditions, loop.events + _EVENT_BYTES * loop.first, loop.told_by)
    return paid


@jit()
def _fit(loop: Record, context: Record) -> bool:
    """Makes the changes of books those of the program's relations; whether a new row is outside of a range
    that is declared."""
    outside = False
    for number in range(context.written):
        before = load_short(context.kinds + 2 * number)
        kind = load_short(loop.map + 2 * before)
        if loop.fits != 0:
            row, out = context.values + context.row_bytes * number, loop.values + 8 * loop.width * number
            part = 0 if kind < 0 else load(loop.fits + 8 * (kind >> 1))
            if part == 0:
                for column in range(context.row_bytes >> 3):
                    store(out + 8 * column, load(row + 8 * column))
            else:
                fit = loop.fits + 8 * part
                columns, ranges = load(fit), load(fit + 8)
                for column in range(columns):
                    place = load(fit + 16 + 8 * column)
                    store(out + 8 * column, NULL_CODE if place < 0 else load(row + 8 * place))
                for one in range(ranges):
                    bounds = fit + 16 + 8 * columns + 24 * one
                    value = load(out + 8 * load(bounds))
                    if kind >= 0 and (value < load(bounds + 8) or value > load(bounds + 16)):
                        outside = outside or kind & 1 == 0
                        kind = -1
        _short_at(loop.kinds + 2 * number).value = kind
    return outside


@jit()
def _note_latency(loop: Record, called: bool) -> None:
    """Counts the latency of the message at hand, of which all views are fresh. called: compiled methods were
    called at it."""
    read_clock(_MONOTONIC, loop.clock)
    now = 1_000_000_000 * load(loop.clock) + load(loop.clock + 8) + loop.ahead
    latency = max(0, now - _event_at(loop.events + _EVENT_BYTES * loop.first).receive_time)
    shift = 0
    while latency >> shift >= STEPS:
        shift += 1
    for number in range(2 if called else 1):
        words = loop.called if number else loop.latencies
        for word in (shift * (STEPS // 2) + (latency >> shift), COUNT):
            store(words + 8 * word, load(words + 8 * word) + 1)
        store(words + 8 * MAXIMUM, max(load(words + 8 * MAXIMUM), latency))


@jit()
def _refresh(loop: Record, context: Record) -> bool:
    """Lets views take the changes of the message at hand; whether there is nothing left to do."""
    called = False
    while loop.change < context.written:
        values = loop.values if loop.fits != 0 else context.values
        stride = 8 * loop.width if loop.fits != 0 else context.row_bytes
        loop.stop = run_columns(
            loop.state, loop.progress, loop.kinds, context.flags, values, stride, loop.change, context.written
        )
        if loop.stop >= 0:
            loop.change = loop.stop
        elif (
            loop.handlers == 0 or loop.stop < -UNCOUNTED or not dispatch(loop.handlers, loop.state, loop.now)
        ):
            return False
        else:
            loop.change, called = ~loop.stop, True
    loop.phase = BETWEEN
    loop.number += 1
    loop.messages += 1
    if loop.latencies != 0:
        _note_latency(loop, called)
    return True


@exported
def _run(loop_at: int) -> int:
    """Applies messages; why it comes back. Compiled once, for all that call it."""
    loop = _loop_at(loop_at)
    context = _context_at(loop.books)
    while loop.phase != BETWEEN or loop.place < loop.count:
        if loop.phase == BETWEEN:
            why = _begin(loop)
            if why != DONE:
                return why
            if _start_books(loop, context):
                return PAID
        if loop.phase == IN_BOOKS:
            loop.place = apply_range(loop.books, loop.events, _EVENT_BYTES, loop.place, loop.end, loop.count)
            if loop.place < loop.end:
                return ROOM
            loop.phase, loop.change = IN_VIEWS, 0
            loop.woken = NOT_TOLD
            if loop.conditions != 0:
                first, count = loop.events + _EVENT_BYTES * loop.first, loop.end - loop.first
                loop.woken = wakes(loop.conditions, loop.now, first, count, loop.told_by, loop.actions)
            if _fit(loop, context):
                return OUTSIDE
            if loop.woken == TOLD:
                return WOKEN
        if not _refresh(loop, context):
            return STOPPED
        if loop.desks_count != 0 and not end_message(
            loop.desks,
            loop.desks_count,
            loop.relations,
            followed(loop.conditions),
            loop.woken,
            loop.now,
            loop.origin + loop.first,
            loop.time,
        ):
            return ASKED
        if loop.woken == PRINTED:
            return TRADED
        if loop.alone != 0:
            return ENDED
    return DONE


@jit()
def _run_alone(loop_at: int) -> int:
    """Runs the loop, without the interpreter lock where that takes long."""
    loop = _loop_at(loop_at)
    if loop.count - loop.place < _LONG:
        return _run(loop_at)
    thread = save_thread()
    why = _run(loop_at)
    restore_thread(thread)
    return why


@called_with("iioiiiiiii")
def _begin_events(
    loop_at: int,
    types: int,
    events: int,
    times: int,
    now: int,
    progress: int,
    origin: int,
    latencies: int,
    ahead: int,
    state: int,
) -> int:
    """Events are at hand, EVENT[n] between two messages; _REFUSED where compiled code does not take them.

    state: where it is not 0, the loop is run at once, and why it came back is returned.
    """
    if describe_records(loop_at, types, events, _EVENT_BYTES) == 0:
        return _REFUSED
    loop = _loop_at(loop_at)
    loop.times, loop.now, loop.progress = times, now, progress
    loop.origin, loop.latencies, loop.ahead = origin, latencies, ahead
    loop.place, loop.number, loop.phase, loop.alone, loop.messages = 0, 0, BETWEEN, 0, 0
    if state == 0:
        return DONE
    loop.state = state
    return _run_alone(loop_at)


@called_with("i")
def _run_messages(loop_at: int) -> int:
    return _run_alone(loop_at)


_TYPES = array_types(EVENT)
_TYPES_AT = int(_TYPES.ctypes.data)


class Feed(Protocol):
    """What messages come from; see `orderbook.run.pipeline.Pipeline`."""

    engine: GatedEngine
    host: StrategyHost

    def at_message(self, start: int, time: int) -> None:
        """A message is at hand, which begins there in what is applied, and has this time, ns."""

    def received(self, time: int) -> None:
        """The message at hand was received then, ns."""

    def apply_apart(self, events: Events, start: int, end: int, live: bool) -> None:
        """Applies events start … end - 1 outside of the loop, those of a STATE or INSTRUMENT apart."""


class MessageLoop:
    """Applies events to a feed's books and engine, and tells its strategies what is theirs to know.

    Every message has the outcome of being applied alone. `latencies` are those from the receipt of a message,
    where it is live, until its views are fresh, and `called` those until compiled methods were called. `fit`
    is to be called before the first, and whenever the program's relations are others.
    """

    def __init__(
        self, feed: Feed, books: Books, latencies: LatencyHistogram, called: LatencyHistogram
    ) -> None:
        self._feed, self._books = feed, books
        self._loops = np.zeros(1, LOOP)
        self._words = memoryview(self._loops.view(np.uint8)).cast("q")  # type: ignore[arg-type]
        self._address = int(self._loops.ctypes.data)
        self._clock, self._latencies = np.zeros(2, np.int64), latencies.address
        self._words[_CALLED] = called.address
        self._out = MessageChanges()
        self._kinds, self._values = np.empty(0, np.int16), np.empty((0, 0), np.int64)
        self._words[_CLOCK], self._words[_BOOKS] = self._clock.ctypes.data, books.address
        # How often compiled methods ran since Python was told what they did.
        self._deferred = 0
        # The events at hand, whether they are live, and the step at the start of their first message.
        self._events, self._live, self._step = np.empty(0, EVENT), False, 0

    @property
    def out(self) -> MessageChanges:
        """Where its books write the changes of the message at hand."""
        return self._out

    def fit(self, relations: BookRelations) -> None:
        """From now on changes of books become those of these relations."""
        self._relations = relations
        self._map, self._fits = np.ascontiguousarray(relations.kinds), relations.fits
        words = self._words
        words[_MAP] = self._map.ctypes.data
        words[_FITS] = self._fits.ctypes.data if len(self._fits) else 0
        words[_WIDTH] = relations.width
        self._fit_room()

    def apply(
        self,
        events: Events,
        times: NDArray[np.int64] | None,
        together: bool,
        live: bool,
        ahead: int,
        origin: int,
    ) -> int:
        """Applies EVENT[n] between two messages, after `origin` others; how many have ended in the loop.

        times: int64[n], ns, those of the run. together: what the loop does not take goes at once, where there
        are no strategies. live: they were received just now; `ahead`: see LOOP.
        """
        feed, words = self._feed, self._words
        host, engine = feed.host, feed.engine
        times = None if times is None else np.ascontiguousarray(times)
        at = 0 if times is None else times.ctypes.data
        watches, latencies, state = host.watches, self._latencies if live else 0, 0
        self._live, self._step = live, host.step & ~1
        if not watches and self._books.writes_to(self._out):
            # Most come alone, and are through with that.
            state = engine.ready(len(events))
        why = self._begin(events, at, origin, latencies, ahead, state)
        if why == _REFUSED:
            events = np.ascontiguousarray(events).view(EVENT)
            why = self._begin(events, at, origin, latencies, ahead, state)
        self._events = events
        if why != DONE:
            self._react(why)
        while words[_PLACE] < words[_COUNT] or words[_PHASE] != BETWEEN:
            words[_STATE_AT] = engine.ready(words[_COUNT] - words[_PLACE])
            if not words[_STATE_AT]:
                self._apart(len(events) if together and not watches else self._message_end())
                continue
            if watches:
                applied = words[_ORIGIN] + words[_PLACE]
                desks = host.loop_desks(self._books.all_valid, words[_STATE_AT], applied)
                words[_HANDLERS], words[_RELATIONS] = desks.handlers, desks.relations
                words[_DESKS], words[_DESKS_COUNT] = desks.desks, desks.count
                if desks.relations:
                    # Texts that rows of orders may have are known now.
                    engine.ready(0)
                words[_CONDITIONS] = host.wake_conditions()
            if not self._books.writes_to(self._out):
                self._books.direct_to(self._out)
            self._react(self._run())
        if number := words[_NUMBER]:
            feed.at_message(words[_FIRST], words[_TIME])
        host.called(words[_NOW])
        host.step = self._step + 2 * number
        return words[_MESSAGES]

    def _begin(self, events: Events, times: int, origin: int, latencies: int, ahead: int, state: int) -> int:
        """See `_begin_events`."""
        host, progress = self._feed.host, self._feed.engine.progress
        found: int = _begin_events(
            self._address, _TYPES_AT, events, times, host.now, progress, origin, latencies, ahead, state
        )
        return found

    def _react(self, why: int) -> None:
        """Does what the loop has come back for."""
        while (why == STOPPED and self._called()) or (why == TRADED and self._traded()):
            why = self._run()
        if why == STOPPED:
            self._finish()
            if self._words[_WOKEN] == PRINTED:
                self._traded()
            else:
                self._feed.host.answered()
        elif why == WOKEN:
            self._meet()
        elif why == ASKED:
            self._ask()
        elif why == PAID:
            # What accounts are worth is another from here on.
            self._feed.host.leave_loop()
        elif why == OPEN or why == STATES:
            self._apart(len(self._events) if why == OPEN else self._message_end())
        elif why not in (DONE, TRADED):
            self._provide(why)
            if why == OUTSIDE and self._words[_WOKEN] == TOLD:
                self._meet()

    def _run(self) -> int:
        """Runs the loop; why it comes back, with Python knowing what compiled methods did there."""
        why = _run_messages(self._address)
        if self._words[_DESKS_COUNT]:
            host = self._feed.host
            self._deferred += why == DONE
            # Python need not know before it has work with that, but for who observes each order.
            at_once = host.tells_each or (why != DONE and host.learns_at_once)
            if at_once or self._deferred >= _MOST_DEFERRED:
                self._deferred = 0
                host.learn(self._feed.at_message, self._words[_ORIGIN])
        return why

    def _ask(self) -> None:
        """The message that has ended has compiled methods that asked for what Python is to look at."""
        host = self._feed.host
        self._after()
        host.ask()
        if self._words[_WOKEN] == PRINTED:
            self._tell_trades()
        else:
            host.answered()

    def _after(self) -> None:
        """Says that the message at hand has ended."""
        words, host = self._words, self._feed.host
        host.step = self._step + 2 * (words[_NUMBER] - 1)
        self._at_message()
        host.called(words[_NOW])

    def _traded(self) -> bool:
        """Strategies are told the trades of a message that has ended; whether they have asked for nothing."""
        self._after()
        return self._tell_trades() and not self._feed.engine.asked

    def _tell_trades(self) -> bool:
        words = self._words
        return self._feed.host.traded(self._events[words[_FIRST] : words[_END]])

    def _fit_room(self) -> None:
        self._kinds = np.empty(self._out.room, np.int16)
        self._words[_KINDS] = self._kinds.ctypes.data
        if len(self._fits):
            self._values = np.empty((self._out.room, self._relations.width), np.int64)
            self._words[_VALUES] = self._values.ctypes.data

    def _message_end(self) -> int:
        """Where the message ends that is looked at next, or all do."""
        place = self._words[_PLACE]
        lasts = np.flatnonzero(self._events["flags"][place:] & _LAST)
        return place + int(lasts[0]) + 1 if len(lasts) else len(self._events)

    def _apart(self, end: int) -> None:
        """Lets Python apply events up to a place."""
        words, host = self._words, self._feed.host
        host.step = self._step + 2 * words[_NUMBER]
        host.called(words[_NOW])
        host.leave_loop()
        self._feed.apply_apart(self._events, words[_PLACE], end, self._live)
        words[_PLACE], words[_NUMBER], words[_NOW] = end, 0, host.now
        self._step = host.step & ~1

    def _provide(self, why: int) -> None:
        """What the loop needs to go on with the message at hand."""
        if why == ROOM:
            self._books.make_room(self._out)
            if len(self._kinds) < self._out.room:
                self._fit_room()
        elif why == OUTSIDE:
            # It counts and reports them.
            self._relations.translate(self._out.written(self._books.changes_written))

    def _reach(self) -> None:
        """The message at hand is told to somebody."""
        words, feed = self._words, self._feed
        feed.host.step = self._step + 2 * words[_NUMBER]
        if self._live:
            feed.received(int(self._events[words[_FIRST]]["receive_time"]))
        self._at_message()

    def _at_message(self) -> None:
        """Says which message is at hand."""
        words, feed = self._words, self._feed
        feed.at_message(words[_FIRST], words[_TIME])
        feed.host.message = words[_ORIGIN] + words[_FIRST], words[_TIME]

    def _called(self) -> bool:
        """Callbacks are called at a message that nobody waits for; whether they have asked for nothing."""
        host = self._feed.host
        self._reach()
        host.called(self._words[_NOW])
        self._attend()
        return not (host.asked or self._feed.engine.asked)

    def _meet(self) -> None:
        """A message is told to strategies; their orders have followed it."""
        words, host = self._words, self._feed.host
        self._reach()
        step = host.step
        host.called(words[_NOW])
        self._finish()
        self._reach()
        # It has ended, and the loop counts the next one already.
        host.step = step
        host.followed(self._events[words[_FIRST] : words[_END]])

    def _attend(self) -> None:
        """Does what `run_columns` has left to do."""
        host = self._feed.host
        host.in_views = True
        try:
            self._attend_views()
        finally:
            host.in_views = False

    def _attend_views(self) -> None:
        words, engine = self._words, self._feed.engine
        stop = words[_STOP]
        if stop >= -UNCOUNTED:
            words[_CHANGE] = ~stop
            engine.call_back()
            return
        out = self._out.written(self._books.changes_written)
        values = self._values[: len(out)] if words[_FITS] else out.values
        changes = ChangeBatch(self._kinds[: len(out)], out.flags, values)
        words[_CHANGE] = engine.attend(changes, words[_CHANGE], stop)

    def _finish(self) -> None:
        """Goes on to the end of the message at hand, and does what callbacks asked of the engine."""
        words = self._words
        words[_ALONE], why = 1, STOPPED
        while why not in (ENDED, ASKED, TRADED):
            why = self._run()
            if why == STOPPED:
                self._attend()
            elif why == ASKED:
                self._feed.host.ask()
            elif why not in (ENDED, TRADED):
                self._provide(why)
        words[_ALONE] = 0
        self._feed.engine.ready(0)
