"""The care of one connection: synchronisation, silence, limits and new connections, without I/O.

A driver calls a session with what happened and when, then does what `commands` says and calls `wake` at
`wake_at`. So the same code runs over sockets, over recorded frames and on a virtual clock. A `Backoff` says
how long to wait before trying again.
"""

import logging
import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from math import inf

import msgspec
import numpy as np
from numba.core import config

from orderbook.core.errors import KEPT_TEXT, DataError
from orderbook.feeds.event_writer import EventWriter
from orderbook.feeds.exchanges.exchange import Exchange, ExchangeOptions, FeedBook
from orderbook.feeds.raw_log import InstrumentText
from orderbook.feeds.source import FeedStatistics
from orderbook.feeds.wire.frame_decoder import CHECKSUMS
from orderbook.market.book_state import NEVER
from orderbook.market.crossed_books import CrossedFeed
from orderbook.market.events import EVENT, BookState, Events, StateReason
from orderbook.market.instruments import Instruments


class Backoff:
    """Delays that double from `first` to `longest` seconds, each shortened at random by up to a half."""

    def __init__(self, first: float, longest: float, chance: random.Random | None = None) -> None:
        self._first, self._longest = first, longest
        self._random = chance or random.Random()
        self.reset()

    def reset(self) -> None:
        """Begin with the first delay again."""
        self._next = self._first

    def delay(self) -> float:
        """Seconds to wait now."""
        delay = self._next
        self._next = min(self._longest, delay * 2)
        return delay * self._random.uniform(0.5, 1.0)


# Seconds before another connection, and before a snapshot (so that the stream is ahead of it).
FIRST_DELAY, FIRST_SNAPSHOT_DELAY, LONGEST_DELAY = 0.1, 0.05, 30.0
# Seconds that a book may take to synchronise, and how often in a row until the connection is made anew.
PATIENCE, ATTEMPTS = 15.0, 5
# A book valid for so many seconds was well: its next loss is a new trouble.
WELL = 10.0
SNAPSHOTS_AT_ONCE = 4
_UNUSABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError, DataError, ValueError)

_EVENT_BYTES = EVENT.itemsize

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Connect:
    """Open a websocket; then `connected`, or `disconnected` where that fails."""

    url: str


@dataclass(frozen=True, slots=True)
class Disconnect:
    """Break the connection; then `disconnected`."""

    reason: str


@dataclass(frozen=True, slots=True)
class Send:
    """Send a text message."""

    text: str


@dataclass(frozen=True, slots=True)
class Get:
    """Ask for a product's snapshot; then `answered`, or `failed`."""

    product: str
    url: str


Command = Connect | Disconnect | Send | Get


@dataclass(slots=True)
class _Sync:
    """How a book comes to be valid; times are the session's monotonic clock, in seconds."""

    book: FeedBook
    delays: Backoff
    due: float = inf  # when to ask for a snapshot, or to subscribe anew
    deadline: float = inf  # by when the book is to be valid
    asked: bool = False  # a request is under way
    requests: int = 0  # those without an end, also of connections before
    known: bool = False  # the exchange has acknowledged the subscription, or sent a message of it
    failures: int = 0
    joined: int = 0
    changed: float = 0.0  # when it became valid, or ceased to be
    trading: tuple[BookState, StateReason] = (BookState.VALID, StateReason.SYNCHRONISED)

    def wait(self) -> None:
        self.due = self.deadline = inf
        self.asked = False

    def request_ended(self) -> None:
        self.asked = False
        self.requests = max(0, self.requests - 1)


@dataclass(slots=True)
class _Outgoing:
    """Messages that wait for the exchange's limit."""

    texts: deque[str] = field(default_factory=deque)
    next: float = 0.0


class Session:
    """One connection to an exchange and the books on it; what exchanges call is their `Link`.

    instruments: of the run; `indexes` are those of this connection.
    clock: seconds of a clock that never goes back.

    Whatever is wrong with a frame or answer is counted in `statistics`, never raised. Books are SYNCING and
    empty from a connection's beginning, and after a loss, until they equal the exchange's; STALE, with their
    rows, when the connection has ended. Receive times of events never go back.

    Where the exchange tells no books on the connection, no states are told of any.

    compiled: whether ordinary frames are decoded by compiled code, where the exchange has any.
    """

    compiled: bool = not config.DISABLE_JIT

    def __init__(
        self,
        kind: type[Exchange],
        instruments: Instruments,
        indexes: Sequence[int],
        options: ExchangeOptions,
        clock: Callable[[], float],
        seed: int | None = None,
    ) -> None:
        self.statistics = FeedStatistics()
        self.receive_time = 0
        self.refusal: str | None = None
        self.connections = 0
        self._events = EventWriter()
        self.tells_books = kind.tells_books
        limit = options.crossed_limit if self.tells_books else 0
        self._crossed = CrossedFeed(instruments, limit) if limit else None
        # Events that wait to be taken and are noted there.
        self._noted = 0
        self._clock = clock
        self._random = random.Random(seed)
        books = [FeedBook(instruments, index, self._events, self.statistics) for index in indexes]
        self.books: Mapping[str, FeedBook] = {book.product: book for book in books}
        self._by_index = dict(zip(indexes, books, strict=True))
        self._exchange = kind(self, options)
        self._decoder = self._exchange.decoder() if self.compiled else None
        self._syncs = {
            book.product: _Sync(book, Backoff(FIRST_SNAPSHOT_DELAY, LONGEST_DELAY, self._random))
            for book in books
            if self.tells_books
        }
        self._commands: list[Command] = []
        self._outgoing = _Outgoing()
        self._reconnects = Backoff(FIRST_DELAY, LONGEST_DELAY, self._random)
        self.open = self._closing = False
        self.end_reason = StateReason.DISCONNECTED
        self._connect_at = clock()
        self.opened_at = self._heard = self._pinged = self._next_get = 0.0

    # What a driver calls.

    def commands(self) -> list[Command]:
        """What is to be done now, in order; each is given once."""
        if self._outgoing.texts:
            self._flush()
        commands, self._commands = self._commands, []
        return commands

    @property
    def wake_at(self) -> float:
        """When to call `wake`, by the session's clock."""
        if not self.open:
            return self._connect_at
        times = [self._heard + self._exchange.silence]
        if self._outgoing.texts:
            times.append(self._outgoing.next)
        if self._exchange.ping_interval:
            times.append(self._pinged + self._exchange.ping_interval)
        syncs = self._syncs.values()
        times.append(min((sync.deadline for sync in syncs), default=inf))
        due = min((sync.due for sync in syncs), default=inf)
        if due < inf and self._slot_free:
            times.append(max(due, self._next_get))
        return min(times)

    @property
    def by_request(self) -> bool:
        """Whether snapshots are answers to requests."""
        return self._exchange.snapshots == "request"

    def snapshot_url(self, product: str) -> str:
        """Where a GET answers with a product's snapshot."""
        return self._exchange.snapshot_url(product)

    def wants_snapshot(self, product: str) -> bool:
        """Whether a product's book cannot be valid before the answer to a request."""
        sync = self._syncs[product]
        return sync.known and sync.book.state is BookState.SYNCING and self.by_request

    @property
    def synchronised_products(self) -> set[str]:
        """Products whose book has been valid."""
        return {product for product, sync in self._syncs.items() if sync.joined}

    @property
    def closing(self) -> bool:
        """Whether frames are ignored, because the connection is to be broken."""
        return self._closing

    @property
    def waiting_events(self) -> int:
        """How many events `take` would give."""
        return len(self._events)

    def take(self) -> Events:
        """EVENT[n]: the events since the last call, in order."""
        records, crossed = self._events.take_records(), self._crossed
        self.statistics.events += len(records) // _EVENT_BYTES
        if crossed is not None:
            crossed.note(records[self._noted * _EVENT_BYTES :] if self._noted else records)
            self._noted = 0
        return np.frombuffer(records, EVENT)

    def wake(self, receive_time: int) -> None:
        """Do what is due."""
        self._at(receive_time)
        now = self._clock()
        if not self.open:
            if now >= self._connect_at:
                self._connect_at = inf
                self._commands.append(Connect(self._exchange.websocket_url(tuple(self.books))))
            return
        if self._closing:
            return
        if now >= self._heard + self._exchange.silence:
            self.end_reason = StateReason.SILENCE
            self.reconnect("silence", f"no frame for {self._exchange.silence:g} s")
            return
        if self._exchange.ping_interval and now >= self._pinged + self._exchange.ping_interval:
            self._pinged = now
            self.send(self._exchange.ping())
        for sync in self._syncs.values():
            self._advance(sync, now)

    def resumed(self) -> None:
        """The connection is read again after a pause that was not the exchange's silence."""
        self._heard = self._clock()

    def connected(self, receive_time: int) -> None:
        """A connection is open: books are empty until their snapshots."""
        self._hear(receive_time)
        self.statistics.reconnects += self.connections > 0
        self.connections += 1
        self.refusal = None
        self.open, self._closing, self.end_reason = True, False, StateReason.DISCONNECTED
        now = self.opened_at = self._heard = self._pinged = self._clock()
        self._outgoing = _Outgoing()
        self._exchange.connected()
        for sync in self._syncs.values():
            sync.wait()
            sync.known, sync.trading = False, (BookState.VALID, StateReason.SYNCHRONISED)
            sync.failures, sync.deadline = 0, now + PATIENCE
            self._changes(sync, BookState.SYNCING, StateReason.CONNECTED)
        for text in (*self._exchange.opening(), *self._exchange.subscribe(tuple(self.books))):
            self.send(text)

    def ended(self, state: StateReason, reason: str, receive_time: int) -> None:
        """`disconnected`, as a recording tells it."""
        self.end_reason = state
        self.disconnected(reason, receive_time)

    def disconnected(self, reason: str, receive_time: int) -> None:
        """The connection has ended, or could not be opened: books keep what they had and are stale."""
        self._hear(receive_time)
        now = self._clock()
        if self.open:
            for sync in self._syncs.values():
                sync.wait()
                if sync.book.state is not BookState.SYNCING and now - sync.changed > WELL:
                    sync.delays.reset()
                self._changes(sync, BookState.STALE, self.end_reason)
            if now - self.opened_at > LONGEST_DELAY:
                self._reconnects.reset()
        delay = self._reconnects.delay()
        self.open = False
        self._connect_at = now + delay
        self.statistics.problems.add("disconnected", self._exchange.venue, reason)
        venue = self._exchange.venue
        _log.warning("%s: %s; connecting again in %.1f s", venue, reason, delay, extra={"venue": venue})

    def frame(self, data: bytes, receive_time: int) -> None:
        """A websocket message was received."""
        self.frames((data,), receive_time)

    def frames(self, frames: Sequence[bytes], receive_time: int) -> None:
        """Websocket messages were received together, in this order."""
        self._hear(receive_time)
        self.frames_of(frames, (self.receive_time,) * len(frames))

    def frames_of(
        self, frames: Sequence[bytes], times: Sequence[int], turn: Callable[[int], object] | None = None
    ) -> None:
        """Websocket messages were received in this order, at these times, ns.

        `turn` is called with the place of each that compiled code leaves, before it is looked at, and with
        that of the last of those that it decodes together.
        """
        if len(frames) == 1:
            self._take_one(frames[0], times[0], turn)
            return
        statistics, decoder, place = self.statistics, self._decoder, 0
        self._heard = self._clock()
        statistics.frames += len(frames)
        statistics.bytes += sum(map(len, frames))
        while place < len(frames) and not self._closing:
            end = place + 1
            waits = 0
            if decoder is not None:
                waits = decoder.load_frames(frames[place:], times[place:])
                end = place + max(waits, 1)
            while place < end and not self._closing:
                if turn is not None:
                    turn(place)
                self._hear(times[place])
                if decoder is not None and waits:
                    found = decoder.run(self.receive_time, self._crossed_due, self._events)
                    if found:
                        place += found
                        statistics.messages += found
                        statistics.checksums += decoder.take_checksums()
                        self.receive_time = times[place - 1]
                        if turn is not None:
                            turn(place - 1)
                        continue
                    decoder.skip()
                self._take(frames[place])
                place += 1

    def _take_one(self, frame: bytes, time: int, turn: Callable[[int], object] | None) -> None:
        """See `frames_of`."""
        statistics, decoder, crossed = self.statistics, self._decoder, self._crossed
        self._heard = self._clock()
        statistics.frames += 1
        statistics.bytes += len(frame)
        if self._closing:
            return
        if turn is not None:
            turn(0)
        due = NEVER if crossed is None else crossed.due
        if self.receive_time <= time < due:
            self.receive_time = time
        else:
            self._hear(time)
            due = self._crossed_due
        if decoder is not None and decoder.take(frame, time, self.receive_time, due, self._events):
            statistics.messages += 1
            if decoder.words[CHECKSUMS]:
                statistics.checksums += decoder.take_checksums()
        else:
            self._take(frame)

    @property
    def _crossed_due(self) -> int:
        """From when on books that have stayed crossed are to be looked at, ns."""
        return NEVER if self._crossed is None else self._crossed.due

    def _take(self, data: bytes) -> None:
        """Have the exchange's own decoder take a frame."""
        exchange = self._exchange
        if len(data) > exchange.largest_frame:
            self.reconnect("oversized frame", f"{len(data)} bytes")
            return
        try:
            exchange.frame(data)
            self.statistics.messages += 1
        except _UNUSABLE as error:
            self._events.undo()
            self._unreadable(data, _kind_of(error), error)
        except Exception as error:
            # Frames come from outside: what our code does not stand is bad data until it is looked into.
            self._events.undo()
            venue = exchange.venue
            _log.exception("%s: a frame could not be handled", venue, extra={"venue": venue})
            self._unreadable(data, "unexpected frame", error)
            self.lose_all(StateReason.MALFORMED, f"{type(error).__name__}: {error}")

    def answered(self, product: str, body: bytes, receive_time: int) -> None:
        """The answer to a `Get`, also one that was not asked for."""
        self._hear(receive_time)
        sync = self._syncs[product]
        sync.request_ended()
        if sync.book.state is not BookState.SYNCING or not self.open:
            return
        try:
            if self._exchange.snapshot(sync.book, body):
                return
            self.statistics.problems.add("old snapshot", product, "the stream starts after it")
        except _UNUSABLE as error:
            self._events.undo()
            self.statistics.problems.add("unusable snapshot", product, str(error))
        except Exception as error:
            self._events.undo()
            fields = {"venue": self._exchange.venue, "symbol": product}
            _log.exception("%(venue)s: a snapshot of %(symbol)s could not be handled", fields, extra=fields)
            self.statistics.problems.add("unusable snapshot", product, f"{type(error).__name__}: {error}")
        sync.due = self._clock() + sync.delays.delay()

    def failed(self, product: str, problem: str, receive_time: int, retry_after: float = 0.0) -> None:
        """A `Get` has no answer; `retry_after` seconds are what the exchange asks to wait."""
        self._at(receive_time)
        self.statistics.problems.add("no snapshot", product, problem)
        sync = self._syncs[product]
        sync.request_ended()
        now = self._clock()
        self._next_get = max(self._next_get, now + retry_after)
        sync.due = now + max(retry_after, sync.delays.delay())

    def relisted(self, instruments: Sequence[InstrumentText], receive_time: int) -> None:
        """The exchange's reference data say this of products now."""
        self._hear(receive_time)
        for one in instruments if self.tells_books else ():
            self.listed(one.native_symbol, one.tick, one.lot)

    # What an exchange calls.

    def book(self, product: str) -> FeedBook | None:
        """See Link."""
        found = self.books.get(product)
        if found is None:
            self.statistics.problems.add("unknown product", product, "not subscribed to")
        return found

    def subscribed(self, product: str) -> None:
        """See Link."""
        if self._exchange.snapshots == "request" and product in self.books:
            self.want_snapshot(self.books[product])

    def refused(self, reason: str, product: str | None = None) -> None:
        """See Link."""
        self.statistics.problems.add("refused", product or self._exchange.venue, reason)
        if self.tells_books and not any(sync.joined for sync in self._syncs.values()):
            self.refusal = reason

    def want_snapshot(self, book: FeedBook) -> None:
        """See Link."""
        sync = self._syncs[book.product]
        sync.known = True
        if book.state is BookState.SYNCING and not sync.asked and sync.due == inf:
            sync.due = self._clock() + sync.delays.delay()

    def synchronised(self, book: FeedBook) -> None:
        """See Link."""
        sync = self._syncs[book.product]
        self.statistics.resyncs += sync.joined > 0
        sync.joined += 1
        sync.failures = 0
        sync.wait()
        self._changes(sync, *sync.trading)

    def lose(self, book: FeedBook, reason: StateReason, detail: str) -> None:
        """See Link."""
        self.statistics.gaps += 1
        self.statistics.problems.add(reason.name.lower(), book.product, detail)
        sync, now = self._syncs[book.product], self._clock()
        if book.state is not BookState.SYNCING:
            fields = {"venue": self._exchange.venue, "symbol": book.product}
            why = f"{reason.name.lower()}: {detail[:KEPT_TEXT]}"
            _log.info("%s: %s has to be synchronised again: %s", *fields.values(), why, extra=fields)
            if now - sync.changed > WELL:
                sync.delays.reset()
        # Also while it is synchronising: a snapshot's rows may be there already.
        self._changes(sync, BookState.SYNCING, reason)
        # Lost again while it waits, it does not begin to wait anew.
        sync.deadline = min(sync.deadline, now + PATIENCE)
        if not sync.asked and sync.due == inf:
            sync.due = now + sync.delays.delay()

    def lose_all(self, reason: StateReason, detail: str) -> None:
        """See Link."""
        for sync in self._syncs.values():
            self.lose(sync.book, reason, detail)

    def hold(self, book: FeedBook, state: BookState, reason: StateReason) -> None:
        """See Link."""
        sync = self._syncs.get(book.product)
        if sync is not None and sync.trading != (state, reason):
            sync.trading = state, reason
            if book.state is not BookState.SYNCING:
                self._changes(sync, state, reason)

    def listed(self, product: str, tick: str, lot: str) -> None:
        """See Link."""
        book = self.books.get(product)
        if book is None or not tick or not lot:
            return
        detail = f"tick {tick[:KEPT_TEXT]}, lot {lot[:KEPT_TEXT]}"
        try:
            if book.change_steps(Decimal(tick), Decimal(lot), self.receive_time):
                self.statistics.problems.add("instrument changed", product, detail)
        except (DataError, ArithmeticError) as error:
            self.statistics.problems.add("instrument not held", product, f"{detail}: {error}")

    def reconnect(self, kind: str, detail: str) -> None:
        """See Link."""
        if self.open and not self._closing:
            self.statistics.problems.add(kind, self._exchange.venue, detail)
            self._closing = True
            self._outgoing = _Outgoing()
            self._commands.append(Disconnect(f"{kind}: {detail}"))

    def send(self, text: str) -> None:
        """See Link."""
        self._outgoing.texts.append(text)

    # The rest.

    def _hear(self, receive_time: int) -> None:
        """Something is heard that a recording has, too: books that have stayed crossed until now are lost."""
        self._at(receive_time)
        crossed = self._crossed
        if crossed is None or self.receive_time < crossed.due:
            return
        crossed.note(self._events.since(self._noted))
        self._noted = len(self._events)
        for index in crossed.expire(self.receive_time):
            if (book := self._by_index.get(index)) is not None and book.state is BookState.VALID:
                self.lose(book, StateReason.CROSSED, f"bids above asks for {crossed.limit / 1e9:g} s")

    def _at(self, receive_time: int) -> None:
        if receive_time < self.receive_time:
            detail = f"{self.receive_time - receive_time} ns"
            self.statistics.problems.add("clock backwards", self._exchange.venue, detail)
        else:
            self.receive_time = receive_time

    def _changes(self, sync: _Sync, state: BookState, reason: StateReason) -> None:
        """A book's state changes, and the time that it was not valid is counted."""
        now = self._clock()
        if state is BookState.VALID:
            if sync.changed and sync.joined > 1:
                self.statistics.stale_seconds += now - sync.changed
            sync.changed = now
        elif sync.book.state is BookState.VALID:
            sync.changed = now
        sync.book.become(state, reason, self.receive_time)

    @property
    def _slot_free(self) -> bool:
        return sum(sync.requests for sync in self._syncs.values()) < SNAPSHOTS_AT_ONCE

    def _advance(self, sync: _Sync, now: float) -> None:
        """Ask for a book that is due; one that has waited too long is tried again."""
        if now >= sync.deadline and not self._closing:
            sync.failures += 1
            self.statistics.problems.add("no synchronisation", sync.book.product, f"within {PATIENCE:g} s")
            if sync.failures >= ATTEMPTS:
                self.reconnect("books do not synchronise", sync.book.product)
                return
            sync.deadline, sync.asked = now + PATIENCE, False
            # A snapshot alone, without its stream, would be valid for ever.
            if sync.known or self._exchange.snapshots == "stream":
                sync.due = min(sync.due, now)
        if now < sync.due or self._closing:
            return
        if self._exchange.snapshots == "stream":
            sync.due = inf
            for text in self._exchange.resubscribe(sync.book.product):
                self.send(text)
        elif self._slot_free and now >= self._next_get:
            self._next_get = now + self._exchange.get_interval
            sync.due, sync.asked = inf, True
            sync.requests += 1
            url = self._exchange.snapshot_url(sync.book.product)
            self._commands.append(Get(sync.book.product, url))

    def _flush(self) -> None:
        """Turn messages that may be sent now into commands."""
        outgoing, now = self._outgoing, self._clock()
        while outgoing.texts and self.open and now >= outgoing.next:
            self._commands.append(Send(outgoing.texts.popleft()))
            outgoing.next = now + self._exchange.send_interval

    def _unreadable(self, data: bytes, kind: str, error: Exception) -> None:
        """Count a frame that cannot be used; what it said is lost."""
        self.statistics.malformed += 1
        self.statistics.problems.add(kind, self._exchange.venue, str(error) or type(error).__name__)
        try:
            placed = self._exchange.unreadable(data)
        except Exception:
            placed = False
        if not placed and not self._exchange.loss_shows:
            self.lose_all(StateReason.MALFORMED, str(error))


def _kind_of(error: Exception) -> str:
    """The name under which an unusable frame is counted."""
    if not isinstance(error, msgspec.ValidationError):
        bad_json = isinstance(error, msgspec.DecodeError | UnicodeDecodeError | RecursionError)
        return "malformed JSON" if bad_json else "unusable message"
    reason = str(error)
    if "missing required" in reason:
        return "missing field"
    return "unknown type" if reason.startswith("Invalid value") else "invalid field"
