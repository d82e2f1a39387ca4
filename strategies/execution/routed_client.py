"""One strategy's orders through several ways: to venues with an order gateway, and to the simulated exchange.

An order goes where its instrument is: to the gateway of its venue, or, where that has none, to the exchange
simulated over the recorded market. To the strategy they are one account.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal

from msgspec.structs import replace

from orderbook.core.errors import DataError
from orderbook.market.books import Books
from orderbook.market.events import Events
from orderbook.market.instruments import Instruments
from orderbook.strategies.execution.account import FundingPayment, OrderUpdate, Position, PositionSummary
from orderbook.strategies.execution.client import OrderRequest, Requests, SavedAccount
from orderbook.strategies.execution.contract_money import EXACT
from orderbook.strategies.execution.order_terms import NO_TERMS, Number
from orderbook.strategies.execution.paper_client import PaperClient
from orderbook.strategies.execution.risk import Risk
from orderbook.strategies.execution.venue_account import VenueAccount, VenueClient
from orderbook.strategies.execution.venue_model import RiskLimits
from orderbook.strategies.execution.wake_conditions import WakeCondition


class RoutedClient:
    """See ExecutionClient. strategy: its name; identity: what tells the instance from others."""

    def __init__(
        self,
        strategy: str,
        identity: str,
        paper: PaperClient,
        accounts: Mapping[str, VenueAccount],
        books: Books | None,
        instruments: Instruments,
        limits: RiskLimits,
    ) -> None:
        self.paper = paper
        self._accounts, self._instruments, self._books = accounts, instruments, books
        self._requests = Requests(strategy, instruments)
        self._venues = {
            venue: VenueClient(identity, account, books, instruments, Risk(limits))
            for venue, account in accounts.items()
        }
        self._watches_drawdown = limits.max_drawdown is not None
        self._ended = False

    @property
    def venues(self) -> Mapping[str, VenueClient]:
        """Its orders at venues, by venue."""
        return self._venues

    @property
    def stirred(self) -> set[int]:
        """See ExecutionClient."""
        return self.paper.stirred

    @property
    def account(self) -> int:
        """See ExecutionClient."""
        return self.paper.account

    @property
    def working(self) -> bool:
        """See ExecutionClient."""
        return self.paper.working or self._marks

    @property
    def _marks(self) -> bool:
        """Whether a risk check is told what is made and lost at a venue."""
        clients = self._venues.values()
        return self._watches_drawdown and any(one.lots for client in clients for _, one in client.ledger)

    @property
    def due(self) -> int:
        """See ExecutionClient."""
        return self.paper.due

    def concern(self, instrument: int, found: WakeCondition) -> None:
        """See ExecutionClient."""
        self.paper.concern(instrument, found)
        found.every |= self._marks

    def place(self, request: OrderRequest, now: int) -> list[OrderUpdate]:
        """See ExecutionClient."""
        order, checked = self._requests.checked(request, now)
        client = self._venues.get(order.venue)
        if client is None:
            return self.paper.place(request, now)
        if isinstance(checked, DataError):
            return [OrderUpdate(None, replace(order, status="refused", reason=str(checked)))]
        if self._ended:
            return [OrderUpdate(None, replace(order, status="refused", reason="the run ends"))]
        if checked.terms != NO_TERMS:
            reason = f"{order.symbol}: the order gateway sends market, limit, post-only and IOC orders alone"
            return [OrderUpdate(None, replace(order, status="refused", reason=reason))]
        return client.place(order, checked, now)

    def refuse(self, request: OrderRequest, now: int, reason: str) -> list[OrderUpdate]:
        """See ExecutionClient."""
        return self.paper.refuse(request, now, reason)

    def modify(
        self, order_id: int, volume: Number | None, price: Number | None, now: int, stop: Number | None = None
    ) -> list[OrderUpdate]:
        """See ExecutionClient; an order at a venue has no stop."""
        client = self._of(order_id)
        if client is None:
            return self.paper.modify(order_id, volume, price, now, stop)
        return client.modify(self._requests, order_id, volume, price, now)

    def cancel(self, order_id: int, now: int, reason: str | None = None) -> list[OrderUpdate]:
        """See ExecutionClient."""
        client = self._of(order_id)
        return self.paper.cancel(order_id, now, reason) if client is None else client.cancel(order_id, reason)

    def before(self, instrument: int, time: int) -> None:
        """See ExecutionClient."""
        self.paper.before(instrument, time)

    def after(self, instrument: int, events: Events, time: int, now: int) -> None:
        """See ExecutionClient."""
        self.paper.after(instrument, events, time, now)
        self._mark()

    def followed(self) -> None:
        """See ExecutionClient."""
        self.paper.followed()
        self._mark()

    def told(self, now: int) -> list[OrderUpdate]:
        """See ExecutionClient; what venues tell comes through `VenueAccount.take`."""
        return self.paper.told(now)

    def to_close(self) -> Sequence[Position]:
        """See ExecutionClient; a venue closes for itself."""
        return self.paper.to_close()

    def end(self, now: int) -> list[OrderUpdate]:
        """See ExecutionClient; what rests at a venue stays as it was told last."""
        self._ended = True
        return self.paper.end(now)

    def open_orders(self) -> list[int]:
        """See ExecutionClient."""
        own = [order_id for client in self._venues.values() for order_id in client.orders]
        return sorted([*self.paper.open_orders(), *own])

    def held(self, instrument: int) -> int:
        """Lots held of an instrument, as far as was told."""
        client = self._venues.get(self._instruments[instrument].venue)
        return self.paper.held(instrument) if client is None else client.ledger.held(instrument)

    def position(self, symbol: str) -> Decimal:
        """See ExecutionClient."""
        own = (client.ledger.position(symbol) for client in self._venues.values())
        return self.paper.position(symbol) + sum(own, Decimal(0))

    def positions(self) -> Iterator[PositionSummary]:
        """See ExecutionClient."""
        yield from self.paper.positions()
        for client in self._venues.values():
            yield from self._held_at(client)

    @property
    def payments(self) -> Sequence[FundingPayment]:
        """See ExecutionClient; what a venue pays is not known here."""
        return self.paper.payments

    def places(self, instrument: int) -> Iterable[Mapping[str, object]]:
        """See ExecutionClient."""
        client = self._venues.get(self._instruments[instrument].venue)
        return self.paper.places(instrument) if client is None else client.places(instrument)

    def save(self) -> SavedAccount:
        """See ExecutionClient."""
        own = {venue: client.save() for venue, client in self._venues.items()}
        return replace(self.paper.save(), venues=own)

    def load(self, saved: SavedAccount, indexes: Sequence[int]) -> None:
        """See ExecutionClient."""
        self.paper.load(saved, indexes)
        for venue, own in saved.venues.items():
            if venue in self._venues:
                self._venues[venue].load(own, indexes)

    def _of(self, order_id: int) -> VenueClient | None:
        """The venue that an open order is at; None: the simulated exchange's, or it is done."""
        return next((client for client in self._venues.values() if order_id in client.orders), None)

    def _held_at(self, client: VenueClient) -> Iterator[PositionSummary]:
        ledger = client.ledger
        for index, holding in ledger:
            one = self._instruments[index]
            bid, ask = (None, None) if self._books is None else self._books.best(index)
            mark = None if bid is None or ask is None else one.price(bid + ask) / 2
            position, cash, fees = one.volume(holding.lots), ledger.cash(index), ledger.fees(index)
            worth = None if mark is None else EXACT.add(cash, EXACT.multiply(position, mark))
            profit = None if worth is None else EXACT.subtract(worth, fees)
            yield PositionSummary(
                one.venue, one.symbol, position, cash, mark, profit, fees, ledger.realised(index)
            )

    def _mark(self) -> None:
        """Tells the risk check of each venue what is made and lost there, where every book has a mid."""
        for client in self._venues.values() if self._watches_drawdown else ():
            profits = [position.profit for position in self._held_at(client)]
            if None not in profits:
                client.risk.mark(sum(filter(None, profits), Decimal(0)))
