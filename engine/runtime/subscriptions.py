"""Subscriptions: what a user asks to be told, what a callback is given, and who is told in which order.

A subscription is a watch of the program that runs. Subscribers are told in the order in which they
subscribed; which of them the runtime watches is known here.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal

import msgspec
from msgspec.structs import force_setattr

from orderbook.core.changes import Word
from orderbook.core.errors import DataError, Problems
from orderbook.engine.runtime.interface import Firing, PlainFiring, Runtime, Watch
from orderbook.engine.runtime.live_view import Key, LiveView, ViewLayout, ViewRow, words_of
from orderbook.views.program import CompiledProgram

# (stamp, switch, seq): seq counts the events applied, from 1, refused ones included; without switches the
# stamp is the seq, and the switch 0.
Version = tuple[int, int, int]
Granularity = Literal["message", "event"]
Fire = Literal["edge", "change"]


class ViewEvent(msgspec.Struct, eq=False, frozen=True):
    """A row of a view that changed, or of which a condition came to hold; it never changes itself.

    key: the row's key as `engine[view]` has it. old, new: the row at the subscription's last look (the
    end of the event or message before) and now; None where there is none. version: of the event just
    applied. status: "committed", as every event of a single node is.
    """

    _layout: ViewLayout
    _firing: Firing
    version: Version
    # What was asked for before.
    _key: Key | None = None
    _new: ViewRow | None = None

    @classmethod
    def between(
        cls, layout: ViewLayout, key: Key, old: ViewRow | None, new: ViewRow | None, version: Version
    ) -> "ViewEvent":
        """What became of a row from one look to another, in which it was read. Raises KeyError for a key that
        no row of the view has."""
        return cls(layout, PlainFiring(-1, layout.encode_key(key), words_of(old), words_of(new)), version)

    @property
    def view(self) -> str:
        return self._layout.result.name

    @property
    def key(self) -> Key:
        found = self._key
        if found is None:
            found = self._layout.key(self._firing.key)
            force_setattr(self, "_key", found)
        return found

    @property
    def layout(self) -> ViewLayout:
        """How the event's key and rows are decoded."""
        return self._layout

    @property
    def firing(self) -> Firing:
        """The event as the runtime has it."""
        return self._firing

    @property
    def codes(self) -> tuple[Word, ...]:
        """The row's key as the runtime has it: encoded, in its own order."""
        return self._firing.key

    @property
    def old(self) -> ViewRow | None:
        return self._layout.row(self._firing.old)

    @property
    def new(self) -> ViewRow | None:
        found = self._new
        if found is None:
            found = self._layout.row(self._firing.new)
            force_setattr(self, "_new", found)
        return found

    @property
    def status(self) -> Literal["tentative", "committed"]:
        return "committed"

    def __repr__(self) -> str:
        return f"ViewEvent({self.view!r}, {self.key}, old={self.old}, new={self.new}, version={self.version})"


class ViewDropped(DataError):
    """A subscription's view was dropped."""


class Subscription:
    """A handle of `Engine.subscribe`; `when` is the condition's text, `ended` is called if the view goes."""

    __slots__ = ("_cancel", "_dropped", "active", "callback", "ignores", "layout", "watch", "when")

    def __init__(
        self,
        layout: ViewLayout,
        watch: Watch,
        callback: Callable[[ViewEvent], object],
        when: str | None,
        cancel: "Callable[[Subscription], None]",
        ignores: Callable[[Key], bool] | None = None,
    ):
        self.layout = layout
        self.watch = watch
        self.callback = callback
        self.when = when
        self.ignores = ignores
        self.active = True
        self._dropped: Callable[[], object] = lambda: None
        self._cancel = cancel

    @property
    def view(self) -> str:
        """Name of the view."""
        return self.watch.view

    def follow(self, layout: ViewLayout, watch: Watch) -> None:
        """Goes on with the view as another program has it."""
        self.layout, self.watch = layout, watch

    def when_dropped(self, told: Callable[[], object]) -> None:
        """`told` is called where the view is dropped."""
        self._dropped = told

    def dropped(self) -> None:
        """The view was dropped, and with it the subscription."""
        self._dropped()

    def cancel(self) -> None:
        """Ends the subscription: at once, or after the message at hand when called inside one."""
        self._cancel(self)

    def __repr__(self) -> str:
        return f"<subscription to {self.view}, {'active' if self.active else 'cancelled'}>"


def log_failure(subscription: Subscription, error: Exception) -> None:
    """Reports a callback that raised, with its traceback, or a dropped view to the log `orderbook.engine`."""
    if isinstance(error, ViewDropped):
        logging.getLogger("orderbook.engine").warning("%s", error)
        return
    message = "the callback of a subscription to %s raised and is cancelled"
    logging.getLogger("orderbook.engine").error(message, subscription.view, exc_info=error)


def watch_of(program: CompiledProgram, view: str, when: str | None, per_message: bool, edge: bool) -> Watch:
    """The watch of a view; `when` is a condition as in WHERE. Raises SqlError that names it."""
    condition = None if when is None else program.condition(view, when)
    return Watch(view, condition, per_message, edge)


def rebound(program: CompiledProgram, subscription: Subscription) -> Watch:
    """A subscription's watch in another program, which may call what a view reads otherwise."""
    watch = subscription.watch
    return watch_of(program, watch.view, subscription.when, watch.per_message, watch.edge)


class Subscribers:
    """Subscriptions of one engine. The runtime watches those that were there when it was last asked to.

    on_error: told of a callback that raised, and of a subscription whose view was dropped.
    """

    def __init__(self, problems: Problems, on_error: Callable[[Subscription, Exception], None]):
        self._problems = problems
        self._on_error = on_error
        self._all: list[Subscription] = []
        self.watched: list[Subscription] = []
        # Whether the runtime watches others than there are.
        self.stale = False
        # Whether any of them says of rows that it would do nothing for them.
        self.ignoring = False

    def __bool__(self) -> bool:
        """Whether the runtime watches anything, or is to."""
        return bool(self._all or self.watched)

    def __iter__(self) -> Iterator[Subscription]:
        return iter(list(self._all))

    def begin(self, subscription: Subscription) -> None:
        """From the next change on; rows as they are then are its first look."""
        self._all.append(subscription)
        self.stale = True

    def end(self, subscription: Subscription) -> None:
        """Tells it of nothing more."""
        subscription.active = False
        if subscription in self._all:
            self._all.remove(subscription)
            self.stale = True

    def look(self, runtime: Runtime) -> None:
        """Lets the runtime watch those there are now: rows as they are become the first look of all."""
        self.watched, self.stale = list(self._all), False
        self.ignoring = any(one.ignores is not None for one in self.watched)
        runtime.watch([s.watch for s in self.watched])

    def wanted(self, firings: Sequence[Firing]) -> Sequence[Firing]:
        """Without those of rows that their subscriptions have said they would do nothing for.

        By subscription, and then by the keys of rows: the same in every process, unlike codes of text.
        """
        if len(firings) > 1:
            firings = sorted(firings, key=self._place)
        return [firing for firing in firings if not self._ignored(firing)] if self.ignoring else firings

    def _place(self, firing: Firing) -> tuple[object, ...]:
        key = self.watched[firing.watch].layout.key(firing.key)
        return firing.watch, *((value is not None, value) for value in key)

    def _ignored(self, firing: Firing) -> bool:
        one = self.watched[firing.watch]
        return one.ignores is not None and one.ignores(one.layout.key(firing.key))

    def deliver(self, firing: Firing, version: Version) -> Subscription | None:
        """Calls back; returns the subscription where that raised, which is to end."""
        subscription = self.watched[firing.watch]
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
        self.watched, self.stale = [], bool(self._all)

    def _drop(self, subscription: Subscription) -> None:
        subscription.active = False
        error = ViewDropped(f"view {subscription.view} was dropped; its subscription has ended")
        self._on_error(subscription, error)
        subscription.dropped()
