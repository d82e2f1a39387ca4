"""Subscriptions: what a user asks to be told, and what a callback is given."""

import logging
from collections.abc import Callable
from typing import Literal

from orderbook.errors import DataError

from .live_view import Key, ViewLayout, ViewRow, words_of
from .runtime import Firing, PlainFiring, Watch

# (stamp, switch, seq): seq counts the events applied, from 1, refused ones included; without switches the
# stamp is the seq, and the switch 0.
Version = tuple[int, int, int]
Granularity = Literal["message", "event"]
Fire = Literal["edge", "change"]


class ViewEvent:
    """A row of a view that changed, or of which a condition came to hold; it never changes itself.

    key: the row's key as `engine[view]` has it. old, new: the row at the subscription's last look (the
    end of the event or message before) and now; None where there is none. version: of the event just
    applied. status: "committed", as every event of a single node is.
    """

    __slots__ = ("_firing", "_layout", "version")

    def __init__(self, layout: ViewLayout, firing: Firing, version: Version):
        self._layout = layout
        self._firing = firing
        self.version = version

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
        return self._layout.key(self._firing.key)

    @property
    def old(self) -> ViewRow | None:
        return self._layout.row(self._firing.old)

    @property
    def new(self) -> ViewRow | None:
        return self._layout.row(self._firing.new)

    @property
    def status(self) -> Literal["tentative", "committed"]:
        return "committed"

    def __repr__(self) -> str:
        return f"ViewEvent({self.view!r}, {self.key}, old={self.old}, new={self.new}, version={self.version})"


class ViewDropped(DataError):
    """A subscription's view was dropped."""


class Subscription:
    """A handle of `Engine.subscribe`; `when` is the condition's text, `ended` is called if the view goes."""

    __slots__ = ("_cancel", "active", "callback", "ended", "layout", "watch", "when")

    def __init__(
        self,
        layout: ViewLayout,
        watch: Watch,
        callback: Callable[[ViewEvent], object],
        when: str | None,
        cancel: "Callable[[Subscription], None]",
    ):
        self.layout = layout
        self.watch = watch
        self.callback = callback
        self.when = when
        self.active = True
        self.ended: Callable[[], object] = lambda: None
        self._cancel = cancel

    @property
    def view(self) -> str:
        """Name of the view."""
        return self.watch.view

    def follow(self, layout: ViewLayout, watch: Watch) -> None:
        """Goes on with the view as another program has it."""
        self.layout, self.watch = layout, watch

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
