"""A client's event loop: events of several views as one asynchronous iterator, or the next one as a future.

Subscriptions of clients are made on the engine's thread, from it or from another; the asyncio loop is
woken from the thread of an engine, its own or another.

Source: the client interface of CIDR 2011: a future is bound when a result arrives. So a row of which the
condition holds already binds nothing; it has to come to hold.
"""

import asyncio
import threading
import weakref
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, Self, get_args

from orderbook.core.errors import DataError, OrderbookError
from orderbook.engine.runtime.subscriptions import (
    Fire,
    Granularity,
    Subscription,
    ViewDropped,
    ViewEvent,
    watch_of,
)

if TYPE_CHECKING:
    from orderbook.engine.runtime.engine import Engine


class Waker:
    """Calls into one loop: at once in its own thread, else as soon as the loop can. Made in the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._thread = threading.get_ident()

    def call(self, action: Callable[[], object]) -> bool:
        """From any thread; False where the loop is closed, so that nobody can be told."""
        if threading.get_ident() == self._thread:
            action()
            return True
        try:
            self.loop.call_soon_threadsafe(action)
        except RuntimeError:
            return False
        return True


class Following:
    """One subscription of a client.

    other_thread: the engine is in another thread; it is begun and ended after a later message of the engine.
    once: it ends with the first event.

    `ended` is called where the view is dropped, perhaps before it is begun. Raises SqlError and DataError as
    `Engine.subscribe`.
    """

    def __init__(
        self,
        engine: "Engine",
        view: str,
        callback: Callable[[Any], object],
        ended: Callable[[], object],
        *,
        when: str | None,
        on: Granularity,
        fire: Fire,
        other_thread: bool,
        once: bool = False,
    ) -> None:
        self.view, self.when = view, when
        self._engine = weakref.ref(engine)
        self._other_thread = other_thread
        self._lock = threading.Lock()
        self._cancelled = False
        self._subscription: Subscription | None = None

        def told(event: Any) -> None:
            if self._cancelled:
                return
            if once:
                self.cancel()
            callback(event)

        def begin() -> None:
            with self._lock:
                if self._cancelled:
                    return
                self._subscription = engine.follow(view, told, when, on, fire)
                self._subscription.when_dropped(ended)

        def begin_later() -> None:
            try:
                begin()
            except OrderbookError:
                # The view was there when it was asked for.
                ended()

        if other_thread:
            # What is wrong with it is said here, not in the engine's thread.
            engine[view]
            watch_of(engine.program, view, when, on == "message", fire == "edge")
            engine.post(begin_later)
        else:
            begin()

    def cancel(self) -> None:
        """Ends it; from the thread in which it was made, or the engine's."""
        with self._lock:
            if self._cancelled:
                return
            self._cancelled = True
            subscription, engine = self._subscription, self._engine()
        if subscription is None or engine is None:
            return
        if self._other_thread:
            engine.post(subscription.cancel)
        else:
            subscription.cancel()


Overflow = Literal["raise", "oldest", "conflate"]


class StreamOverflow(DataError):
    """A stream's reader is behind by more events than the stream holds."""


class EventStream(AsyncIterator[ViewEvent]):
    """The events of views in the order in which they happened; see `ClientEngine.events`.

    One task iterates. `dropped` counts the events that nobody will see. The stream ends when it is closed,
    and when the last of its views was dropped; what it holds is given out first. Without a reference to it,
    its subscriptions end.
    """

    def __init__(
        self,
        engine: "Engine",
        *,
        on: Granularity,
        fire: Fire,
        buffer: int,
        overflow: Overflow,
        other_thread: bool,
    ) -> None:
        if overflow not in get_args(Overflow):
            raise DataError(f"events: overflow={overflow!r}; give one of {', '.join(get_args(Overflow))}")
        if buffer < 1:
            raise DataError(f"events: buffer={buffer}; a stream holds one event at least")
        self.dropped = 0
        self._engine, self._on, self._fire = engine, on, fire
        self._buffer, self._overflow, self._other_thread = buffer, overflow, other_thread
        self._followed: dict[str, Following] = {}
        self._lock = threading.Lock()
        self._events: deque[ViewEvent] = deque()
        self._failure: StreamOverflow | None = None
        self._closed = False
        self._waker: Waker | None = None
        self._waiting: asyncio.Future[None] | None = None
        weakref.finalize(self, _cancel, self._followed).atexit = False

    @property
    def views(self) -> tuple[str, ...]:
        """The views whose events come."""
        return tuple(self._followed)

    def add(self, view: str, when: str | None = None) -> None:
        """From now on also events of this view. Raises DataError, SqlError as `Engine.subscribe`."""
        if self._closed:
            raise DataError("the stream is closed; make another with engine.events")
        if view in self._followed:
            raise DataError(f"the stream has the events of {view} already; remove it first")
        own = weakref.ref(self)
        self._followed[view] = Following(
            self._engine,
            view,
            lambda event: _to(own, "_take", event),
            lambda: _to(own, "_drop", view),
            when=when,
            on=self._on,
            fire=self._fire,
            other_thread=self._other_thread,
        )

    def remove(self, view: str) -> None:
        """From now on no events of this view, nor those that wait. Raises DataError where it is not there."""
        following = self._followed.pop(view, None)
        if following is None:
            raise DataError(f"the stream has no events of {view}; it has {', '.join(self.views) or 'none'}")
        following.cancel()
        with self._lock:
            self._events = deque(event for event in self._events if event.view != view)

    def close(self) -> None:
        """Ends the subscriptions; the iteration ends when what is held was given out."""
        self._closed = True
        _cancel(self._followed)
        self._wake()

    async def aclose(self) -> None:
        """As `close`."""
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ViewEvent:
        while True:
            with self._lock:
                if self._events:
                    return self._events.popleft()
                if self._failure is not None:
                    failure, self._failure = self._failure, None
                    raise failure
                if self._closed:
                    raise StopAsyncIteration
                waiting = self._new_wait()
            await waiting

    def _new_wait(self) -> "asyncio.Future[None]":
        if self._waiting is not None and not self._waiting.done():
            raise DataError("two tasks iterate over one stream; give each its own")
        loop = asyncio.get_running_loop()
        if self._waker is None or self._waker.loop is not loop:
            self._waker = Waker(loop)
        self._waiting = loop.create_future()
        return self._waiting

    def _take(self, event: ViewEvent) -> None:
        """An event has happened; on the engine's thread."""
        with self._lock:
            if self._closed:
                return
            if self._overflow == "conflate":
                self._conflate(event)
            if len(self._events) >= self._buffer:
                self.dropped += 1
                if self._overflow == "raise":
                    self._fail(event)
                    return
                self._events.popleft()
            self._events.append(event)
        self._wake()

    def _conflate(self, event: ViewEvent) -> None:
        """Leaves out an event of the same row that waits: the row is seen as it is at last."""
        if len(self._events) < self._buffer:
            return
        newest: dict[Any, ViewEvent] = {}
        for one in (*self._events, event):
            newest.pop((one.view, one.key), None)
            newest[one.view, one.key] = one
        newest.pop((event.view, event.key))
        self.dropped += len(self._events) - len(newest)
        self._events = deque(newest.values())

    def _fail(self, event: ViewEvent) -> None:
        self._closed = True
        self._failure = StreamOverflow(
            f"the reader of events of {', '.join(self.views)} is more than {self._buffer} events behind at "
            f"version {event.version}; read faster, or give a larger buffer or overflow='conflate'"
        )
        _cancel(self._followed)

    def _drop(self, view: str) -> None:
        self._followed.pop(view, None)
        if not self._followed:
            self._closed = True
        self._wake()

    def _wake(self) -> None:
        with self._lock:
            waiting, waker = self._waiting, self._waker
        if waiting is not None and waker is not None:
            waker.call(lambda: _set(waiting))


def event_stream(
    engine: "Engine", views: tuple[str, ...], when: str | Mapping[str, str] | None, **options: Any
) -> EventStream:
    """See `ClientEngine.events`."""
    stream = EventStream(engine, **options)
    try:
        for view in views:
            stream.add(view, when.get(view) if isinstance(when, Mapping) else when)
    except BaseException:
        stream.close()
        raise
    return stream


def _set(waiting: "asyncio.Future[None]") -> None:
    if not waiting.done():
        waiting.set_result(None)


def _cancel(followed: dict[str, Following]) -> None:
    while followed:
        followed.popitem()[1].cancel()


def _to(stream: "weakref.ref[EventStream]", method: str, argument: object) -> None:
    """Tells a stream, if there still is one."""
    there = stream()
    if there is not None:
        getattr(there, method)(argument)


def next_event(
    engine: "Engine",
    view: str,
    where: str | None,
    timeout: float | None,
    on: Granularity,
    other_thread: bool,
) -> "asyncio.Future[ViewEvent]":
    """See `ClientEngine.next`."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[ViewEvent] = loop.create_future()
    waker = Waker(loop)

    def bind(event: ViewEvent) -> None:
        waker.call(lambda: succeed(event))

    def succeed(event: ViewEvent) -> None:
        if not future.done():
            future.set_result(event)

    def fail(error: Exception) -> None:
        if not future.done():
            future.set_exception(error)

    def dropped() -> None:
        waker.call(lambda: fail(ViewDropped(f"view {view} was dropped while its next event was awaited")))

    following = Following(
        engine, view, bind, dropped, when=where, on=on, fire="edge", other_thread=other_thread, once=True
    )
    future.add_done_callback(lambda _: following.cancel())
    if timeout is not None:
        what = f"no event of {view}{f' where {where}' if where else ''} within {timeout:g} s"
        timer = loop.call_later(timeout, lambda: fail(TimeoutError(what)))
        future.add_done_callback(lambda _: timer.cancel())
    return future
