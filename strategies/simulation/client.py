"""What strategies' orders go through: an execution client, of which the simulated exchange is one."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal, Protocol

import numpy as np

from strategies.concerns import Concern
from strategies.orders import OrderSide, OrderUpdate
from strategies.simulation.saved import SavedAccount
from strategies.summary import PositionSummary

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
        """The time of the run, ns, from which on `told` has something; concerns.LAST: it has not."""

    def concern(self, instrument: int, found: Concern) -> None:
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

    def after(self, instrument: int, events: np.ndarray | None, time: int, now: int) -> None:
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
