"""What strategies ask for, written ahead of its effect, so that a crash neither loses nor doubles it."""

from collections import deque
from collections.abc import Iterable
from typing import Literal, Protocol

import msgspec

RequestKind = Literal["order", "modify", "cancel", "failed", "unloaded"]


class LoggedRequest(msgspec.Struct, frozen=True):
    """An order of a strategy, the modifying or cancelling of one, the strategy's end because it failed, or
    that of its orders because it could not take up its state.

    `id` is the order's, counted from 1 in the order in which the strategy asks; `step` counts the steps of
    what the switch has stamped, `number` the strategy's requests there. Volume and price are text in the
    relation's units; an order without a price is a market order, and what is modified stays as it is without.
    """

    step: int
    strategy: str
    kind: RequestKind
    id: int
    symbol: str = ""
    side: Literal["buy", "sell"] = "buy"
    volume: str | None = None
    price: str | None = None
    venue: str | None = None
    time_in_force: str = "gtc"
    post_only: bool = False
    number: int = 0


class RequestLog(Protocol):
    """Where requests go before they take effect."""

    def request(self, request: LoggedRequest) -> None: ...


class NoLog:
    """A run that keeps no log."""

    def request(self, request: LoggedRequest) -> None:
        """Keep nothing."""


class Replayed:
    """Requests that a log holds of what is being applied again, each taken once at its step."""

    def __init__(self, requests: Iterable[LoggedRequest] = ()) -> None:
        self._waiting = deque(requests)

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def due(self, step: int) -> LoggedRequest | None:
        """The next request of a step."""
        if self._waiting and self._waiting[0].step <= step:
            return self._waiting.popleft()
        return None
