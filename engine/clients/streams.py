"""A client's event loop: the events of several views as one asynchronous iterator."""

import asyncio
import threading
import weakref
from collections import deque
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, Self, get_args

from engine.subscriptions import Fire, Granularity, ViewEvent
from orderbook.errors import DataError

from .following import Following
from .waking import Waker

if TYPE_CHECKING:
    from engine.engine import Engine

Overflow = Literal["raise", "oldest", "conflate"]


class StreamOverflow(DataError):
    """A stream's reader is behind by more events than the stream holds."""


class EventStream(AsyncIterator[ViewEvent]):
    """The events of views in the order in which they happened; see `ClientInterface.events`.

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
    """See `ClientInterface.events`."""
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
