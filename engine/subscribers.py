"""Who is told of views: the subscriptions, in the order they were made, and which of them are watched."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from orderbook.problems import Problems
from views.compiler.program import CompiledProgram

from .live_view import LiveView
from .runtime import Firing, Runtime
from .subscriptions import Subscription, Version, ViewDropped, ViewEvent
from .watches import rebound


class Subscribers:
    """Subscriptions of one engine. The runtime watches those that were there when it was last asked to.

    on_error: told of a callback that raised, and of a subscription whose view was dropped.
    """

    def __init__(self, problems: Problems, on_error: Callable[[Subscription, Exception], None]):
        self._problems = problems
        self._on_error = on_error
        self._all: list[Subscription] = []
        self._watched: list[Subscription] = []

    def __bool__(self) -> bool:
        """Whether the runtime watches anything, or is to."""
        return bool(self._all or self._watched)

    def __iter__(self) -> Iterator[Subscription]:
        return iter(list(self._all))

    def begin(self, subscription: Subscription) -> None:
        """From the next change on; rows as they are then are its first look."""
        self._all.append(subscription)

    def end(self, subscription: Subscription) -> None:
        """Tells it of nothing more."""
        subscription.active = False
        if subscription in self._all:
            self._all.remove(subscription)

    def watch(self, runtime: Runtime) -> None:
        """Lets the runtime watch those there are now, where they are others than before."""
        if self._watched != self._all:
            self.look(runtime)

    def look(self, runtime: Runtime) -> None:
        """Lets the runtime watch those there are now: rows as they are become the first look of all."""
        self._watched = list(self._all)
        runtime.watch([s.watch for s in self._watched])

    def ordered(self, firings: Sequence[Firing]) -> Sequence[Firing]:
        """By subscription, and then by the keys of rows: the same in every process, unlike codes of text."""
        return firings if len(firings) < 2 else sorted(firings, key=self._place)

    def _place(self, firing: Firing) -> tuple[object, ...]:
        key = self._watched[firing.watch].layout.key(firing.key)
        return firing.watch, *((value is not None, value) for value in key)

    def watched(self, firing: Firing) -> Subscription:
        """Whose watch fired."""
        return self._watched[firing.watch]

    def deliver(self, firing: Firing, version: Version) -> Subscription | None:
        """Calls back; returns the subscription where that raised, which is to end."""
        subscription = self._watched[firing.watch]
        if not subscription.active:
            return None
        try:
            subscription.callback(ViewEvent(subscription.layout, firing, version))
        except Exception as error:
            subscription.active = False
            self._problems.add("callback raised", subscription.view, f"{type(error).__name__}: {error}")
            self._on_error(subscription, error)
            return subscription
        return None

    def follow(self, program: CompiledProgram, views: Mapping[str, LiveView]) -> None:
        """Goes on with another program, whose runtime watches nothing yet; ends where a view is gone."""
        for subscription in self._all:
            if subscription.view in views:
                subscription.follow(views[subscription.view].layout, rebound(program, subscription))
            else:
                self._drop(subscription)
        self._all = [s for s in self._all if s.active]
        self._watched = []

    def _drop(self, subscription: Subscription) -> None:
        subscription.active = False
        error = ViewDropped(f"view {subscription.view} was dropped; its subscription has ended")
        self._on_error(subscription, error)
        subscription.ended()
