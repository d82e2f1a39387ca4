"""What strategies' orders go through: an execution client, of which the simulated exchange is one.

What a strategy asks for is checked against the instruments, the same wherever orders go, and written ahead of
its effect (`LoggedRequest`), so that a crash neither loses nor doubles it.
"""

import dataclasses
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal, Protocol

import msgspec
from msgspec.structs import replace

from orderbook.core.errors import DataError
from orderbook.market.events import Events
from orderbook.market.instruments import SCALE, Instruments, fixed_point
from orderbook.strategies.execution.account import (
    Execution,
    Fill,
    Holding,
    Order,
    OrderSide,
    OrderUpdate,
    PositionSummary,
)
from orderbook.strategies.execution.account_orders import SavedOrder, Working
from orderbook.strategies.execution.wake_conditions import WakeCondition

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


Number = int | float | str | Decimal
TimeInForce = Literal["gtc", "ioc"]


@dataclass(frozen=True, slots=True)
class OrderRequest:
    """What a strategy asked for, in the relation's units and unchecked; price None: a market order.

    time_in_force "ioc": what is not filled at once is cancelled. post_only: refused where it would be.
    """

    id: int
    symbol: str
    side: OrderSide
    volume: Number
    price: Number | None
    venue: str | None
    time_in_force: TimeInForce = "gtc"
    post_only: bool = False


class OrderMessage(msgspec.Struct, frozen=True):
    """What is on its way to the exchange: an order, or another volume (lots) or limit for one, or its end.

    arrival: ns. reason: why the order is cancelled.
    """

    arrival: int
    kind: Literal["order", "modify", "cancel"]
    order_id: int
    instrument: int
    order: Working | None = None
    lots: int | None = None
    limit: int | None = None
    reason: str | None = None

    def load(self, indexes: Sequence[int]) -> "OrderMessage":
        """The message as it was saved; `indexes` are the instruments' in this run."""
        index, order = indexes[self.instrument], self.order
        return replace(self, instrument=index, order=order and dataclasses.replace(order, instrument=index))


class Report(msgspec.Struct, frozen=True):
    """What is on its way back, and when (ns) the strategy can know it."""

    due: int
    order: Order
    fills: tuple[Fill, ...]
    executions: tuple[Execution, ...]

    def load(self, indexes: Sequence[int]) -> "Report":
        """The report as it was saved; `indexes` are the instruments' in this run."""
        own = (replace(one, instrument=indexes[one.instrument]) for one in self.executions)
        return replace(self, executions=tuple(own))


class SavedAccount(msgspec.Struct, frozen=True):
    """One strategy's side of the exchange, and its own.

    `taken` are (instrument, side, price, lots), `executes` the instruments whose feeds tell executions of
    orders, `known` the orders that are open as far as was told, with their instruments, `numbers` how many
    messages were sent, `arrivals` by instrument the last arrival, `due` that of the last report, `sent` the
    times of the orders of the last second, `worth` and `peak` the account's profit at the last look, and the
    most of it, in the quote currency.
    """

    resting: list[SavedOrder]
    taken: list[tuple[int, int, int, int]]
    executes: list[int]
    messages: list[OrderMessage]
    reports: list[Report]
    known: list[tuple[int, Order]]
    holdings: dict[int, Holding]
    numbers: int
    arrivals: dict[int, int]
    due: int
    sent: list[int]
    worth: str
    peak: str


class ExecutionClient(Protocol):
    """One strategy's way to the market. Times are ns of the event clock.

    What becomes of orders is told as OrderUpdates, each change of an order once and in order; some by the
    call that asked for it, others later, by `told`.
    """

    @property
    def stirred(self) -> set[int]:
        """Instruments of which other messages may concern it than `concern` said; whoever asks clears it."""

    @property
    def working(self) -> bool:
        """Whether a message can concern it: without that it need not be told of any."""

    @property
    def due(self) -> int:
        """The time of the run, ns, from which on `told` has something; LAST: it has not."""

    def concern(self, instrument: int, found: WakeCondition) -> None:
        """Add which messages of an instrument concern it, between two messages; others need not be told."""

    def place(self, request: OrderRequest, now: int) -> list[OrderUpdate]:
        """Send an order; one that is wrong is told as refused."""

    def refuse(self, request: OrderRequest, now: int, reason: str) -> list[OrderUpdate]:
        """Tell an order as refused, without sending it."""

    def modify(
        self, order_id: int, volume: Number | None, price: Number | None, now: int
    ) -> list[OrderUpdate]:
        """Ask for another volume or price of an order; without effect where it is done."""

    def cancel(self, order_id: int, now: int, reason: str | None = None) -> list[OrderUpdate]:
        """Ask for an order to be cancelled; without effect where it is done."""

    def before(self, instrument: int, time: int) -> None:
        """A message of an instrument, of this time at the exchange, is about to change its book."""

    def after(self, instrument: int, events: Events | None, time: int, now: int) -> None:
        """A message, EVENT[n], has changed the book of an instrument; `time` is the exchange's, `now` the
        run's. events: None where the boards that `concern` named have had them already."""

    def told(self, now: int) -> list[OrderUpdate]:
        """What is known by now, at the end of a message that the strategy sees."""

    def end(self, now: int) -> list[OrderUpdate]:
        """No message follows: what has happened is told, and what is under way is cancelled."""

    def open_orders(self) -> list[int]:
        """Ids of the orders that are under way or rest, as far as was told, oldest first."""

    def position(self, symbol: str) -> Decimal:
        """Volume held of a symbol on all venues, as far as was told; below 0 when short."""

    def positions(self) -> Iterator[PositionSummary]:
        """Every instrument that was traded, as far as was told."""

    def places(self, instrument: int) -> Iterable[Mapping[str, object]]:
        """The orders that rest, for people to see: id, side, price (ticks), left and ahead (lots)."""

    def save(self) -> SavedAccount:
        """What it knows, between two messages."""

    def load(self, saved: SavedAccount, indexes: Sequence[int]) -> None:
        """Goes on from `save`; `indexes` are the instruments' in this run."""


_ZERO = Decimal(0)


class Requests:
    """Makes orders of requests of one strategy."""

    def __init__(self, strategy: str, instruments: Instruments) -> None:
        self._strategy, self._instruments = strategy, instruments

    def unchecked(self, request: OrderRequest, now: int) -> Order:
        """The request as an order, with the venue and numbers that it cannot have left out."""
        candidates = self._venues(request)
        one = self._instruments[candidates[0]] if len(candidates) == 1 else None
        volume, price = _number(request.volume), None if request.price is None else _number(request.price)
        return Order(
            now, self._strategy, request.id, one.venue if one else request.venue or "", str(request.symbol),
            request.side, volume if volume is not None and volume > 0 else _ZERO, price, _ZERO, "resting",
        )  # fmt: skip

    def checked(self, order: Order, request: OrderRequest) -> Working:
        """Raises DataError with the reason for a refusal."""
        candidates = self._venues(request)
        if not candidates:
            where = f" on {request.venue}" if request.venue else ""
            raise DataError(f"no instrument {request.symbol}{where}")
        if len(candidates) > 1:
            venues = ", ".join(self._instruments[i].venue for i in candidates)
            raise DataError(f"{request.symbol} trades on {venues}; name the venue")
        index = candidates[0]
        lots = self.lots(index, request.volume)
        limit = None if request.price is None else self.ticks(index, request.price)
        one = self._instruments[index]
        if one.not_tradable is not None:
            raise DataError(one.not_tradable)
        if request.time_in_force not in ("gtc", "ioc"):
            raise DataError(f"{one}: time_in_force={request.time_in_force!r}; give 'gtc' or 'ioc'")
        if request.post_only and (limit is None or request.time_in_force == "ioc"):
            raise DataError(f"{one}: only a limit order that may rest can be post-only")
        return Working(order, index, limit, lots, request.time_in_force == "ioc", request.post_only)

    def lots(self, instrument: int, volume: Number) -> int:
        """A volume above 0, a multiple of the lot, as books count it. Raises DataError."""
        one = self._instruments[instrument]
        lots = one.check_volume(str(volume))
        if lots <= 0:
            raise DataError(f"{one}: volume must be above 0, not {volume}")
        return lots

    def ticks(self, instrument: int, price: Number) -> int:
        """A price, a multiple of the tick, as books count it. Raises DataError."""
        return self._instruments[instrument].check_price(str(price))

    def _venues(self, request: OrderRequest) -> list[int]:
        """The instruments that a request may mean."""
        return [
            index
            for index, one in enumerate(self._instruments)
            if one.symbol == request.symbol and request.venue in (None, one.venue)
        ]


def _number(value: Number) -> Decimal | None:
    """The number as the relation holds it; None where it cannot."""
    try:
        return Decimal(fixed_point(str(value))).scaleb(-SCALE)
    except DataError:
        return None
