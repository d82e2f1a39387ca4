"""Subscriptions of clients, made on the engine's thread, from it or from another."""

import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from engine.subscriptions import Fire, Granularity, Subscription
from engine.watches import watch_of
from orderbook.errors import OrderbookError

if TYPE_CHECKING:
    from engine.engine import Engine


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
                self._subscription.ended = ended

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
