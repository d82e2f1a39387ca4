"""The simulated exchange's side of one account: orders that rest, and what the market does to them.

The market's book stays as it was recorded: own orders are not in it, what they take is taken once only
(see `displayed`), and accounts do not meet. An order that arrives takes displayed volume from the best price
to its limit. One that rests fills at its own price: by trades that reach it (see `queue`), then, when a
message has ended, by displayed volume of the other side at its price or beyond. Nothing fills while a book is
not valid.
"""

import dataclasses
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from msgspec.structs import replace

from orderbook.market.events import BookState, Events, Side
from orderbook.market.instruments import Instruments
from orderbook.strategies.execution.account import Execution, Fill, Order, fee_amount
from orderbook.strategies.execution.account_orders import (
    AccountOrders,
    DisplayedVolume,
    MarketBooks,
    QueuePosition,
    Working,
)
from orderbook.strategies.execution.venue_model import Fees, Sessions, SimulationOptions
from orderbook.strategies.execution.wake_conditions import LAST, WakeCondition

_BID, _ASK = int(Side.BID), int(Side.ASK)


class OrderOutcome(NamedTuple):
    """What has become of an order: the order, and the executions by which it did."""

    order: Order
    fills: tuple[Fill, ...] = ()
    executions: tuple[Execution, ...] = ()


class Matching:
    """The orders of one account at the exchange."""

    def __init__(self, books: MarketBooks, instruments: Instruments, options: SimulationOptions) -> None:
        self._books, self._instruments = books, instruments
        self._proportional = options.queue == "proportional"
        self._fees, self._sessions = Fees(options.fees), Sessions(options.sessions)
        self.displayed = DisplayedVolume(books)
        # By instrument and id, in the order in which they queued up.
        self.resting: dict[int, dict[int, Working]] = {}
        # Of these by instrument the buys and the sells, best price first, then oldest; made when needed.
        self._sides: dict[int, tuple[list[Working], list[Working]]] = {}
        self._boards: dict[int, AccountOrders] = {}

    @property
    def executes(self) -> set[int]:
        """The instruments of which executions of orders were seen; see `queue`."""
        return {index for index, board in self._boards.items() if board.row["executes"]}

    @executes.setter
    def executes(self, instruments: Iterable[int]) -> None:
        for index in instruments:
            self._board(index).row["executes"] = 1

    def _board(self, instrument: int) -> AccountOrders:
        found = self._boards.get(instrument)
        if found is None:
            found = self._boards[instrument] = AccountOrders(self.displayed.address(instrument), 0)
        # The exchange may change the lot.
        found.row["proportional"] = self._proportional and self._instruments[instrument].lot_units
        return found

    @property
    def idle(self) -> bool:
        """Whether no message can concern it."""
        return not self.resting and self.displayed.untouched

    def concern(self, instrument: int, found: WakeCondition) -> None:
        """Add which messages of an instrument can do something to orders or to what they took."""
        rests = instrument in self.resting
        if rests:
            # While the book is not valid, places are lost, and nothing meets.
            found.every |= self._books.state(instrument) is not BookState.VALID
            buys, sells = self._sorted(instrument)
            for order in (*buys[:1], *sells[:1]):
                assert order.limit is not None
                if order.side is Side.BID:
                    found.buy = max(found.buy, order.limit)
                else:
                    found.sell = min(found.sell, order.limit)
        if rests or self.displayed.taken_of(instrument):
            found.boards.append(self._board(instrument).address)

    def orders(self) -> Iterator[Working]:
        """All that rest."""
        return (order for own in self.resting.values() for order in own.values())

    def place(self, order: Working, time: int) -> OrderOutcome:
        """An order arrives: it fills, rests, or is refused."""
        row = replace(order.order, ts=time, status="resting")
        reason = self._refusal(order, time)
        if reason is not None:
            return OrderOutcome(replace(row, status="refused", reason=reason))
        order.order = row
        return self._enter(order, time)

    def cancel(self, instrument: int, order_id: int, time: int, reason: str | None) -> OrderOutcome | None:
        """Cancels what rests of an order; None where nothing does."""
        order = self._taken(instrument, order_id)
        if order is None:
            return None
        return OrderOutcome(replace(order.order, ts=time, status="cancelled", reason=reason))

    def modify(
        self, instrument: int, order_id: int, lots: int | None, limit: int | None, time: int
    ) -> OrderOutcome | None:
        """Gives an order another volume or limit; None where nothing of it rests.

        lots: of the whole order, what is filled included. It keeps its place only if nothing but volume goes.
        """
        order = self.resting.get(instrument, {}).get(order_id)
        if order is None:
            return None
        one = self._instruments[instrument]
        filled = one.lots(str(order.order.filled))
        left = order.left if lots is None else lots - filled
        changed = dataclasses.replace(order, left=left, limit=order.limit if limit is None else limit)
        if left > 0:
            reason = self._refusal(changed, time)
            if reason is not None:
                order.order = replace(order.order, ts=time, reason=f"not modified: {reason}")
                return OrderOutcome(order.order)
        assert changed.limit is not None
        row = replace(
            order.order, ts=time, volume=one.volume(filled + max(left, 0)), price=one.price(changed.limit),
            reason=None,
        )  # fmt: skip
        if left <= 0:
            self._taken(instrument, order_id)
            return OrderOutcome(replace(row, status="cancelled", reason="modified to what is filled"))
        if changed.limit == order.limit and left <= order.left:
            order.order, order.left = row, left
            order.place.row["left"] = left
            return OrderOutcome(row)
        self._taken(instrument, order_id)
        changed.order = row
        return self._enter(changed, time)

    def message(self, instrument: int, events: Events | None, now: int) -> list[OrderOutcome]:
        """What a message, EVENT[n], does to the orders that rest, once the book has it: best price first,
        then oldest. events: None where compiled code has let them act already."""
        own = self.resting.get(instrument)
        sides = self._sorted(instrument) if own else None
        if events is not None:
            self.displayed.refresh(instrument)
            if own:
                self._board(instrument).follow(events, instrument)
        if not own or sides is None:
            return []
        board, state = self._board(instrument).row, self._books.state(instrument)
        if state is not BookState.VALID:
            for order in own.values():
                order.place.row["hit"] = 0
                order.place.row["requeue"] |= state is BookState.SYNCING
            board["lost"] |= state is BookState.SYNCING
            return []
        changes = []
        best_bid, best_ask = self._books.best(instrument)
        # The least keys of orders that the other side's best price meets.
        least = LAST if best_ask is None else best_ask, LAST if best_bid is None else -best_bid
        moved = board["hit"] or board["lost"]
        board["hit"] = board["lost"] = 0
        for orders, meets in zip(sides, least, strict=True):
            # The best of a side is the first that the other side meets.
            for order in orders if moved or (orders and orders[0].key >= meets) else ():
                row = order.place.row
                if row["requeue"]:
                    order.place.rejoin(self._books, order)
                hit = int(row["hit"])
                if order.key >= meets:
                    hit += sum(lots for _, lots in self._take(order, order.left - hit))
                if hit:
                    assert order.limit is not None
                    lots, row["hit"] = hit, 0
                    changes.append(self._filled(order, [(order.limit, lots)], now, maker=True))
                    row["left"] = order.left
                    if not order.left:
                        self._taken(instrument, order.order.id)
        return changes

    def _sorted(self, instrument: int) -> tuple[list[Working], list[Working]]:
        """The orders that rest to buy and to sell, best price first, then oldest."""
        found = self._sides.get(instrument)
        if found is None:
            own = self.resting[instrument].values()
            bids, asks = ([order for order in own if order.side == side] for side in (_BID, _ASK))
            for orders in (bids, asks):
                orders.sort(key=_worst_last)
            found = self._sides[instrument] = bids, asks
            self._board(instrument).arrange(bids, asks)
        return found

    def _refusal(self, order: Working, time: int) -> str | None:
        """Why the exchange does not take an order."""
        one = self._instruments[order.instrument]
        state = self._books.state(order.instrument)
        if state is not BookState.VALID:
            return f"{one}: the book is {state.name.lower()}"
        if not self._sessions.open(time):
            return f"{one}: outside the trading hours"
        if order.post_only and self.displayed.reaches(order.instrument, _other(order), order.limit):
            return f"{one}: it is post-only, and would take"
        return None

    def _enter(self, order: Working, time: int) -> OrderOutcome:
        """Takes what is displayed, and lets what is left rest, or cancels it."""
        taken = self._take(order, order.left)
        change = self._filled(order, taken, time, maker=False)
        if not order.left:
            return change
        if order.limit is None or order.ioc:
            why = "the rest could not be filled at once"
            if order.limit is None:
                why = "no more volume is displayed"
            return change._replace(order=replace(change.order, status="cancelled", reason=why))
        order.standing = QueuePosition(order.key, order.left)
        order.place.join(self._books, order)
        self.rest(order)
        return change

    def rest(self, order: Working) -> None:
        """From now on an order rests, with the place in its queue that it has."""
        self.resting.setdefault(order.instrument, {})[order.order.id] = order
        self._sides.pop(order.instrument, None)
        self._board(order.instrument).row["lost"] |= order.place.row["requeue"]

    def _take(self, order: Working, lots: int) -> list[tuple[int, int]]:
        """Takes displayed volume for an order; (ticks, lots) of each level."""
        return self.displayed.take(order.instrument, _other(order), order.limit, lots)

    def _taken(self, instrument: int, order_id: int) -> Working | None:
        """Takes an order out of those that rest."""
        own = self.resting.get(instrument, {})
        order = own.pop(order_id, None)
        self._sides.pop(instrument, None)
        if not own and self.resting.pop(instrument, None) is not None:
            self._board(instrument).arrange((), ())
        return order

    def _filled(
        self, order: Working, parts: Iterable[tuple[int, int]], time: int, *, maker: bool
    ) -> OrderOutcome:
        """Books executions of (ticks, lots) on the order."""
        row, one = order.order, self._instruments[order.instrument]
        fills, executions = [], []
        for ticks, lots in parts:
            fee = self._fees.of(one, ticks, lots, maker)
            order.left -= lots
            volume = one.volume(lots)
            status = row.status if order.left else "filled"
            row = replace(row, ts=time, filled=row.filled + volume, status=status)
            fills.append(
                Fill(
                    time, row.strategy, row.id, one.venue, one.symbol, row.side, volume, one.price(ticks),
                    fee_amount(fee), "maker" if maker else "taker",
                )
            )  # fmt: skip
            executions.append(Execution(order.instrument, lots if row.side == "buy" else -lots, ticks, fee))
        order.order = row
        return OrderOutcome(row, tuple(fills), tuple(executions))


def _other(order: Working) -> Side:
    return Side.ASK if order.order.side == "buy" else Side.BID


def _worst_last(order: Working) -> int:
    return -order.key
