"""What strategies' orders go through: an execution client, of which the simulated exchange is one.

What a strategy asks for is checked against the instruments, the same wherever orders go, and written ahead of
its effect (`LoggedRequest`), so that a crash neither loses nor doubles it.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal, Protocol

import msgspec

from orderbook.core.errors import DataError
from orderbook.market.events import Events, Side
from orderbook.market.instruments import SCALE, Instruments, fixed_point
from orderbook.strategies.execution.account import (
    FundingPayment,
    Order,
    OrderSide,
    OrderUpdate,
    Position,
    PositionSummary,
    SavedHolding,
)
from orderbook.strategies.execution.exchange_account import SavedExchange
from orderbook.strategies.execution.order_terms import (
    NO_TERMS,
    TIMES_IN_FORCE,
    CheckedTerms,
    Number,
    OrderTerms,
    TimeInForce,
    checked_terms,
)
from orderbook.strategies.execution.venue_orders import SavedVenueClient
from orderbook.strategies.execution.wake_conditions import WakeCondition

RequestKind = Literal["order", "modify", "cancel", "failed", "unloaded"]


class LoggedRequest(msgspec.Struct, frozen=True):
    """An order of a strategy, the modifying or cancelling of one, the strategy's end because it failed, or
    that of its orders because it could not take up its state.

    `id` is the order's, counted from 1 in the order in which the strategy asks; `step` counts the steps of
    what the switch has stamped, `number` the strategy's requests there. Volume and price are text in the
    relation's units; an order without a price is a market order, and what is modified stays as it is without,
    its stop too, which is one of the terms. Orders that come once another is done have the ids after its own.
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
    terms: OrderTerms | None = None

    @property
    def identity(self) -> tuple[str, str, int, int]:
        """What tells it from others of what a switch has stamped."""
        return self.strategy, self.kind, self.id, self.number


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

    def named(self, identity: tuple[str, str, int, int]) -> LoggedRequest | None:
        """The one of an identity, which is not taken; None where there is none."""
        return next((one for one in self._waiting if one.identity == identity), None)

    def take(self, request: LoggedRequest) -> None:
        """Takes one that is there."""
        self._waiting.remove(request)


@dataclass(frozen=True, slots=True)
class OrderRequest:
    """What a strategy asked for, in the relation's units and unchecked; price None: a market order.

    time_in_force "ioc": what is not filled at once is cancelled; "fok": all of it where not all is filled at
    once. post_only: refused where it would be filled at once. terms: what not every order has.
    """

    id: int
    symbol: str
    side: OrderSide
    volume: Number
    price: Number | None
    venue: str | None
    time_in_force: TimeInForce = "gtc"
    post_only: bool = False
    terms: OrderTerms | None = None


class SavedAccount(msgspec.Struct, frozen=True):
    """One strategy's side of the exchange, and its own.

    `known` are the orders that are open as far as was told, with their instruments, `sent` the times of the
    orders of the last second, `worth` and `peak` the account's profit at the last look, and the most of it,
    in the quote currency. exchange: None where there are no books. venues: orders through order gateways.
    `uncounted` are the open orders that only reduce positions, `ties` those that lose what another one fills,
    with that. `traded`: see Fees.
    """

    exchange: SavedExchange | None
    known: list[tuple[int, Order]]
    holdings: dict[int, SavedHolding]
    sent: list[int]
    worth: str
    peak: str
    uncounted: list[int] = []
    ties: dict[int, int] = {}
    traded: dict[str, dict[int, int]] = {}
    venues: dict[str, SavedVenueClient] = {}


@dataclass(frozen=True, slots=True)
class CheckedOrder:
    """An order that may be sent, in ticks and lots; `limit` None: a market order."""

    instrument: int
    side: Side
    limit: int | None
    lots: int
    ioc: bool
    post_only: bool
    terms: CheckedTerms = NO_TERMS


class ExecutionClient(Protocol):
    """One strategy's way to the market. Times are ns of the event clock.

    What becomes of orders is told as OrderUpdates, each change of an order once and in order; some by the
    call that asked for it, others later, by `told`.
    """

    @property
    def stirred(self) -> set[int]:
        """Instruments of which other messages may concern it than `concern` said; whoever asks clears it."""

    @property
    def account(self) -> int:
        """The address of the ACCOUNT whose orders compiled code lets follow messages; 0: there is none."""

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
        self, order_id: int, volume: Number | None, price: Number | None, now: int, stop: Number | None = None
    ) -> list[OrderUpdate]:
        """Ask for another volume, price or stop of an order; without effect where it is done."""

    def cancel(self, order_id: int, now: int, reason: str | None = None) -> list[OrderUpdate]:
        """Ask for an order to be cancelled; without effect where it is done."""

    def before(self, instrument: int, time: int) -> None:
        """A message of an instrument, of this time at the exchange, is about to change its book."""

    def after(self, instrument: int, events: Events, time: int, now: int) -> None:
        """A message, EVENT[n], has changed the book of an instrument; `time` is the exchange's, `now` the
        run's."""

    def followed(self) -> None:
        """Compiled code has brought a message to `account`, which stands for `before` and `after`."""

    def told(self, now: int) -> list[OrderUpdate]:
        """What is known by now, at the end of a message that the strategy sees."""

    def to_close(self) -> Sequence[Position]:
        """What is to be closed now for want of margin, and is not being closed; its orders go, too."""

    def end(self, now: int) -> list[OrderUpdate]:
        """No message follows: what has happened is told, and what is under way is cancelled."""

    def open_orders(self) -> list[int]:
        """Ids of the orders that are under way or rest, as far as was told, oldest first."""

    def held(self, instrument: int) -> int:
        """Lots held of an instrument, as far as was told; below 0 when short."""

    def position(self, symbol: str) -> Decimal:
        """Volume held of a symbol on all venues, as far as was told; below 0 when short."""

    def positions(self) -> Iterator[PositionSummary]:
        """Every instrument that was traded, as far as was told."""

    @property
    def payments(self) -> Sequence[FundingPayment]:
        """Funding of its positions that was paid since it was made."""

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
        self.strategy, self._instruments = strategy, instruments
        # The instruments that a symbol and a venue may mean.
        self._candidates: dict[tuple[str, str | None], list[int]] = {}

    def unchecked(self, request: OrderRequest, now: int) -> Order:
        """The request as an order, with the venue and numbers that it cannot have left out."""
        volume = _fixed(request.volume)
        return self._order(request, now, volume, None if request.price is None else _fixed(request.price))

    def checked(self, request: OrderRequest, now: int) -> tuple[Order, CheckedOrder | DataError]:
        """The order as of `unchecked`, and as it may be sent, or the reason for a refusal."""
        volume, price = _fixed(request.volume), None if request.price is None else _fixed(request.price)
        order = self._order(request, now, volume, price)
        try:
            return order, self._checked(request, volume, price)
        except DataError as error:
            return order, error

    def _order(self, request: OrderRequest, now: int, volume: int | None, price: int | None) -> Order:
        candidates = self._venues(request)
        one = self._instruments[candidates[0]] if len(candidates) == 1 else None
        return Order(
            now, self.strategy, request.id, one.venue if one else request.venue or "", str(request.symbol),
            request.side, _decimal(volume) if volume is not None and volume > 0 else _ZERO,
            None if price is None else _decimal(price), _ZERO, "resting",
        )  # fmt: skip

    def _checked(self, request: OrderRequest, volume: int | None, price: int | None) -> CheckedOrder:
        candidates = self._venues(request)
        if not candidates:
            where = f" on {request.venue}" if request.venue else ""
            raise DataError(f"no instrument {request.symbol}{where}")
        if len(candidates) > 1:
            venues = ", ".join(self._instruments[i].venue for i in candidates)
            raise DataError(f"{request.symbol} trades on {venues}; name the venue")
        index = candidates[0]
        one = self._instruments[index]
        # What is not as it should be is said by what would take it.
        if volume is not None and volume > 0 and volume % (one.lot_scale * one.lot_units) == 0:
            lots = volume // one.lot_scale
        else:
            lots = self.lots(index, request.volume)
        limit = None
        if price is not None and price % (one.tick_scale * one.tick_units) == 0:
            limit = price // one.tick_scale
        elif request.price is not None:
            limit = self.ticks(index, request.price)
        if one.not_tradable is not None:
            raise DataError(one.not_tradable)
        lasts = request.time_in_force
        if lasts not in TIMES_IN_FORCE:
            raise DataError(f"{one}: time_in_force={lasts!r}; give 'gtc', 'ioc', 'fok' or 'gtd'")
        if request.post_only and (limit is None or lasts in ("ioc", "fok")):
            raise DataError(f"{one}: only a limit order that may rest can be post-only")
        side = Side.BID if request.side == "buy" else Side.ASK
        terms = NO_TERMS
        if request.terms is not None or lasts in ("fok", "gtd"):
            terms = checked_terms(one, request.terms or OrderTerms(), side, limit, lots, lasts)
        return CheckedOrder(index, side, limit, lots, lasts == "ioc", request.post_only, terms)

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
        asked = request.symbol, request.venue
        found = self._candidates.get(asked)
        if found is None:
            found = self._candidates[asked] = [
                index
                for index, one in enumerate(self._instruments)
                if one.symbol == request.symbol and request.venue in (None, one.venue)
            ]
        return found


def _fixed(value: Number) -> int | None:
    """The number times 10^8, as the relation holds it; None where it cannot."""
    try:
        return fixed_point(str(value))
    except DataError:
        return None


def _decimal(fixed: int) -> Decimal:
    return Decimal(fixed).scaleb(-SCALE)
