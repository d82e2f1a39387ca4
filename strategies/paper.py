"""Paper orders: one strategy's account, filled against the displayed market.

What is simulated: market orders and marketable limit orders take displayed volume at once, level by level;
a resting limit order fills at its own price, up to the displayed volume when the opposite touch reaches it,
up to the printed volume when trades print through it. What is not: latency, queue position (a trade at
the order's own price never fills it), fees, and the market's answer to the orders. Accounts do not meet.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

import msgspec

from orderbook.books import Books
from orderbook.errors import DataError
from orderbook.events import BookState, Side
from orderbook.instruments import SCALE, Instruments, fixed_point
from strategies.displayed import DisplayedVolume
from strategies.orders import Fill, Order, OrderSide, OrderUpdate
from strategies.summary import PositionSummary

Number = int | float | str | Decimal
# Trades of one message: (price in ticks, volume in lots).
Trades = Sequence[tuple[int, int]]

_ZERO = Decimal(0)


@dataclass(frozen=True, slots=True)
class OrderRequest:
    """What a strategy asked for, in the relation's units and unchecked; price None: a market order."""

    id: int
    symbol: str
    side: OrderSide
    volume: Number
    price: Number | None
    venue: str | None


@dataclass(slots=True)
class _Working:
    """A checked order in ticks and lots; `limit` None for a market order, `left` is still to be filled."""

    order: Order
    instrument: int
    limit: int | None
    left: int


class SavedOrder(msgspec.Struct, frozen=True):
    """A resting order in a checkpoint, in ticks and lots."""

    order: Order
    instrument: int
    limit: int | None
    left: int


class SavedAccount(msgspec.Struct, frozen=True):
    """An account in a checkpoint; instruments by their indexes in the run that wrote it.

    `positions` are (instrument, lots, cash in ticks times lots), `taken` (instrument, side, price, lots).
    """

    resting: list[SavedOrder]
    positions: list[tuple[int, int, int]]
    taken: list[tuple[int, int, int, int]]


class PaperAccount:
    """The orders, positions and cash of one strategy. Times are ns of the event clock."""

    def __init__(self, strategy: str, books: Books | None, instruments: Instruments) -> None:
        self._strategy = strategy
        self._books = books
        self._instruments = instruments
        self._displayed = None if books is None else DisplayedVolume(books)
        self._resting: dict[int, _Working] = {}
        # By instrument: lots held, and cash in ticks times lots.
        self._positions: dict[int, int] = {}
        self._cash: dict[int, int] = {}

    @property
    def idle(self) -> bool:
        """Whether no message can concern the account: nothing rests, nothing that it took still stands."""
        return not self._resting and (self._displayed is None or self._displayed.untouched)

    def place(self, request: OrderRequest, now: int) -> OrderUpdate:
        """Fills, rests, or refuses an order against the books as they are."""
        order = self._unchecked(request, now)
        try:
            working = self._checked(order, request)
        except DataError as error:
            return OrderUpdate(None, replace(order, status="refused", reason=str(error)))
        fills = tuple(self._fill(working, price, lots, now) for price, lots in self._take(working))
        if working.left and working.limit is None:
            working.order = replace(working.order, status="cancelled", reason="no more volume is displayed")
        elif working.left:
            self._resting[order.id] = working
        return OrderUpdate(None, working.order, fills)

    def refuse(self, request: OrderRequest, now: int, reason: str) -> OrderUpdate:
        """The order that `request` would have been, refused."""
        return OrderUpdate(None, replace(self._unchecked(request, now), status="refused", reason=reason))

    def cancel(self, order_id: int, now: int, reason: str | None = None) -> OrderUpdate | None:
        """Cancels what rests of an order; None where nothing does."""
        working = self._resting.pop(order_id, None)
        if working is None:
            return None
        return OrderUpdate(working.order, replace(working.order, ts=now, status="cancelled", reason=reason))

    def resting(self) -> list[int]:
        """Ids of the orders that rest, oldest first."""
        return sorted(self._resting)

    def message(self, instrument: int, trades: Trades, now: int) -> list[OrderUpdate]:
        """Fills resting orders after a message of an instrument: best price first, then oldest."""
        if self._displayed is None or self._books is None:
            return []
        self._displayed.refresh(instrument)
        if self._books.state(instrument) is not BookState.VALID:
            return []
        prints = [[price, lots] for price, lots in trades]
        mine = [w for w in self._resting.values() if w.instrument == instrument]
        updates = []
        for working in sorted(mine, key=_priority):
            old = working.order
            lots = sum(lots for _, lots in self._take(working))
            lots += _take_prints(prints, working, working.left - lots)
            if lots:
                assert working.limit is not None
                fill = self._fill(working, working.limit, lots, now)
                updates.append(OrderUpdate(old, working.order, (fill,)))
                if not working.left:
                    del self._resting[working.order.id]
        return updates

    def save(self) -> SavedAccount:
        """The account between two messages."""
        return SavedAccount(
            [SavedOrder(w.order, w.instrument, w.limit, w.left) for w in self._resting.values()],
            [(index, lots, self._cash[index]) for index, lots in self._positions.items()],
            [] if self._displayed is None else self._displayed.save(),
        )

    def load(self, saved: SavedAccount, indexes: Sequence[int]) -> None:
        """Goes on from `save`; `indexes` are the instruments' in this run."""
        for one in saved.resting:
            working = _Working(one.order, indexes[one.instrument], one.limit, one.left)
            self._resting[one.order.id] = working
        for index, lots, cash in saved.positions:
            self._positions[indexes[index]], self._cash[indexes[index]] = lots, cash
        if self._displayed is not None:
            self._displayed.load([(indexes[index], *rest) for index, *rest in saved.taken])

    def position(self, symbol: str) -> Decimal:
        """Volume held of a symbol on all venues, negative when short."""
        held = ((self._instruments[i], lots) for i, lots in self._positions.items())
        return sum((one.volume(lots) for one, lots in held if one.symbol == symbol), _ZERO)

    def positions(self) -> Iterator[PositionSummary]:
        """Position and cash of every instrument that was traded, valued at the mid."""
        for index in sorted(self._positions):
            one = self._instruments[index]
            position, cash = one.volume(self._positions[index]), self._cash[index] * one.tick * one.lot
            mark = self._mid(index)
            profit = None if mark is None else cash + position * mark
            yield PositionSummary(one.venue, one.symbol, position, cash, mark, profit)

    def _mid(self, instrument: int) -> Decimal | None:
        bid, ask = (None, None) if self._books is None else self._books.best(instrument)
        return None if bid is None or ask is None else self._instruments[instrument].tick * (bid + ask) / 2

    def _unchecked(self, request: OrderRequest, now: int) -> Order:
        """The request as an order, with the venue and numbers that it cannot have left out."""
        candidates = self._venues(request)
        one = self._instruments[candidates[0]] if len(candidates) == 1 else None
        volume, price = _number(request.volume), None if request.price is None else _number(request.price)
        return Order(
            now, self._strategy, request.id, one.venue if one else request.venue or "", str(request.symbol),
            request.side, volume if volume is not None and volume > 0 else _ZERO, price, _ZERO, "resting",
        )

    def _checked(self, order: Order, request: OrderRequest) -> _Working:
        """Raises DataError with the reason for a refusal."""
        candidates = self._venues(request)
        if not candidates:
            where = f" on {request.venue}" if request.venue else ""
            raise DataError(f"no instrument {request.symbol}{where}")
        if len(candidates) > 1:
            venues = ", ".join(self._instruments[i].venue for i in candidates)
            raise DataError(f"{request.symbol} trades on {venues}; name the venue")
        index = candidates[0]
        one = self._instruments[index]
        lots = one.lots(str(request.volume))
        if lots <= 0:
            raise DataError(f"{one}: volume must be above 0, not {request.volume}")
        limit = None if request.price is None else one.ticks(str(request.price))
        if self._books is None or self._books.state(index) is not BookState.VALID:
            state = "absent" if self._books is None else self._books.state(index).name.lower()
            raise DataError(f"{one}: the book is {state}")
        return _Working(order, index, limit, lots)

    def _venues(self, request: OrderRequest) -> list[int]:
        """The instruments that a request may mean."""
        return [
            index
            for index, one in enumerate(self._instruments)
            if one.symbol == request.symbol and request.venue in (None, one.venue)
        ]

    def _take(self, working: _Working) -> list[tuple[int, int]]:
        """Takes displayed volume for an order; (ticks, lots) of each level."""
        assert self._displayed is not None
        opposite = Side.ASK if working.order.side == "buy" else Side.BID
        return self._displayed.take(working.instrument, opposite, working.limit, working.left)

    def _fill(self, working: _Working, price: int, lots: int, now: int) -> Fill:
        """Books an execution: order, position and cash."""
        order, index = working.order, working.instrument
        one = self._instruments[index]
        volume = one.volume(lots)
        working.left -= lots
        status = order.status if working.left else "filled"
        working.order = replace(order, ts=now, filled=order.filled + volume, status=status)
        signed = lots if order.side == "buy" else -lots
        self._positions[index] = self._positions.get(index, 0) + signed
        self._cash[index] = self._cash.get(index, 0) - signed * price
        return Fill(
            now, order.strategy, order.id, one.venue, one.symbol, order.side, volume, one.price(price)
        )


def _priority(working: _Working) -> tuple[bool, int, int]:
    """Bids before asks, better prices first, then the older order."""
    assert working.limit is not None
    buys = working.order.side == "buy"
    return not buys, -working.limit if buys else working.limit, working.order.id


def _take_prints(prints: list[list[int]], working: _Working, most: int) -> int:
    """Takes up to `most` lots from trades that printed through the order's limit; returns how many."""
    assert working.limit is not None
    buys, taken = working.order.side == "buy", 0
    for trade in prints:
        if trade[0] < working.limit if buys else trade[0] > working.limit:
            lots = min(trade[1], most - taken)
            trade[1] -= lots
            taken += lots
    return taken


def _number(value: Number) -> Decimal | None:
    """The number as the relation holds it; None where it cannot."""
    try:
        return Decimal(fixed_point(str(value))).scaleb(-SCALE)
    except DataError:
        return None
