"""The execution client that ships: an exchange simulated over the recorded market, and a line to it.

Clocks. A message has a time at the exchange, its exchange time where it has one, else its receive time; and
the run's time, `now`: receive time, else exchange time, never going back. Strategies see `now`.

The way of an order sent after a message at `now`:

1. It is checked at once by what the strategy knows: instrument, lot, tick, risk limits, these by what it has
   been told until then. What fails is refused.
2. With no latency to the exchange it arrives at once, at `now`. Else it arrives at `now` + feed
   latency + order latency, and not before what the strategy sent to the same instrument earlier. It meets the
   book as it is before the first message of its instrument whose time at the exchange is later than its
   arrival: all that happened at or before the arrival has happened, nothing else.
3. From then on it rests, and messages of its instrument fill it; `queue_position` and `exchange` say how.
4. What became of it, at the time t of its arrival or of a message at the exchange, is told at the end of the
   first message of the strategy's own whose `now` is t + response latency or later, and not before what was
   told earlier. A partitioned strategy's own messages are those of its symbol or venue; of others, all.
   The relations, `position` and callbacks change then, so that a strategy knows nothing before. Without any
   latency that is the message at hand.
5. Modifications and cancellations travel and arrive like orders.

So a decision at a message depends on nothing that comes after it, and what becomes of an order on nothing
that other symbols do; latencies that are drawn are functions of what they belong to (`venue_model`). An order
that waits for the next message of a quiet instrument is answered late, as nobody knows the book in between.

When a run ends, everything that happened is told, and what has not arrived is cancelled.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import islice

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from orderbook.core.errors import DataError
from orderbook.market.books import Books
from orderbook.market.events import Events, Side
from orderbook.market.instruments import Instruments
from orderbook.strategies.execution.account import (
    OPEN,
    RATE_SCALE,
    Execution,
    Fill,
    FundingPayment,
    Ledger,
    Order,
    OrderUpdate,
    Position,
    PositionSummary,
    fee_amount,
)
from orderbook.strategies.execution.account_worth import AccountWorth, fits
from orderbook.strategies.execution.client import (
    CheckedOrder,
    OrderRequest,
    Requests,
    SavedAccount,
)
from orderbook.strategies.execution.contract_money import EXACT, currency_of
from orderbook.strategies.execution.exchange_account import ExchangeAccount, Report, lots_before
from orderbook.strategies.execution.exchange_calls import give_exits, give_terms, new_order
from orderbook.strategies.execution.exchange_state import CANCEL, LAST, MODIFY, PLACE, SENT, STOP
from orderbook.strategies.execution.fees import Fees, FeeTables
from orderbook.strategies.execution.margin import Margin
from orderbook.strategies.execution.order_news import STATUSES, NewsColumns, OrderNews, columns_of, reasons_of
from orderbook.strategies.execution.order_terms import NO_TERMS, Number
from orderbook.strategies.execution.risk import Exposure, Risk
from orderbook.strategies.execution.venue_model import Delays, RiskLimits, SimulationOptions
from orderbook.strategies.execution.wake_conditions import WakeCondition


class PaperClient:
    """One strategy's orders, positions and cash; see ExecutionClient.

    line: names what latencies are drawn for, the same in every run. Without books every order is refused.
    """

    def __init__(
        self,
        strategy: str,
        books: Books | None,
        instruments: Instruments,
        options: SimulationOptions,
        limits: RiskLimits,
        line: str,
    ) -> None:
        self._books, self._instruments = books, instruments
        self._requests, self._ledger = Requests(strategy, instruments), Ledger(instruments)
        self._risk, self._fees = Risk(limits), Fees(options.fees)
        self._margin: Margin | None = None
        if options.margin is not None:
            self._margin = Margin(
                options.margin, self._ledger, instruments, self._price_of, self._open_orders
            )
        self._to, back, self._feed = (
            Delays(option, options.seed, line, kind)
            for option, kind in (
                (options.order_latency, "order"),
                (options.response_latency, "response"),
                (options.feed_latency, "feed"),
            )
        )
        self._arrives_at_once = self._to.zero and self._feed.zero
        # How long a message takes, where that is always the same.
        self._varies = not (self._to.constant and self._feed.constant)
        self._delay = self._feed.of(0, 0, 0) + self._to.of(0, 0, 0)
        self._instant = self._arrives_at_once and back.zero
        self._exchange: ExchangeAccount | None = None
        if books is not None:
            delays = {"orders": self._to, "feed": self._feed, "responses": back}
            self._exchange = ExchangeAccount(books, instruments, options, delays, self._instant)
        # Orders that are not done, as far as was told: as they stand in the relation, and their instruments.
        self._known: dict[int, tuple[int, Order]] = {}
        # Of these, those that only reduce positions, and the order that one is tied to.
        self._uncounted: set[int] = set()
        self._ties: dict[int, int] = {}
        # The one that is being sent, where it is not known before it is answered.
        self._new: Order | None = None
        self.stirred: set[int] = set()
        # Funding since the start.
        self._payments: list[FundingPayment] = []

    @property
    def account(self) -> int:
        """See ExecutionClient."""
        return 0 if self._exchange is None else self._exchange.address

    @property
    def exchange(self) -> ExchangeAccount | None:
        """The account at the simulated exchange; None where orders are refused."""
        return self._exchange

    @property
    def limits(self) -> int:
        """Where the LIMITS of risk are; 0: there are none."""
        return self._risk.address

    @property
    def watches_drawdown(self) -> bool:
        """Whether what the account is worth is looked at with every message."""
        return self._risk.watches_drawdown

    def worth_fits(self, instruments: Sequence[int]) -> bool:
        """Whether compiled code can value what is held of these instruments, and their fees, where somebody
        wants to know."""
        if self._margin is not None:
            return False
        if not self._risk.watches_drawdown:
            return True
        own = [self._instruments[index] for index in instruments]
        return self.fee_tables() is not None and fits(
            own, [self._ledger.money(index) for index in instruments]
        )

    def account_worth(self, instruments: Sequence[int]) -> AccountWorth | None:
        """What the account is worth, for compiled code; None where nobody wants to know."""
        if not self._risk.watches_drawdown:
            return None
        moneys = {index: self._ledger.money(index) for index in instruments}
        own = {index: self._instruments[index] for index in instruments}
        return AccountWorth(own, moneys, self._risk.most_drawdown)

    def note_worth(self, worth: AccountWorth) -> None:
        """Tells it what the account is worth, and of what."""
        self._take_payments()
        cash, held = Decimal(0), {}
        for index, holding in self._ledger:
            paid = EXACT.subtract(self._ledger.fees(index), self._ledger.funding(index))
            cash = EXACT.add(cash, EXACT.subtract(self._ledger.cash(index), paid))
            held[index] = holding.lots
        worth.enter(self._risk.worth, self._risk.peak, cash, held)

    def learn_worth(self, worth: AccountWorth) -> None:
        """What compiled code has valued the account at."""
        self._risk.worth, self._risk.peak = worth.worth, worth.peak

    def notionals(self) -> NDArray[np.void]:
        """NOTIONAL[instruments]."""
        return self._risk.notionals([self._ledger.money(index) for index in range(len(self._instruments))])

    def fee_tables(self) -> FeeTables | None:
        """The fees as compiled code has them; None where it has not."""
        moneys = [self._ledger.money(index) for index in range(len(self._instruments))]
        return self._fees.tables([*self._instruments], moneys)

    def note_traded(self, tables: FeeTables) -> None:
        """Tells tables what was traded so far."""
        self._fees.note_traded(tables)

    def known(self) -> Sequence[tuple[int, Order]]:
        """Orders that are not done, as far as was told, with the indexes of their instruments."""
        return list(self._known.values())

    def terms_of(self, order_id: int) -> tuple[int, bool]:
        """Of tied orders the first, else the order itself; and whether it can only reduce a position."""
        return self._ties.get(order_id, order_id), order_id in self._uncounted

    def held(self, instrument: int) -> int:
        """See ExecutionClient."""
        return self._ledger.held(instrument)

    def has_traded(self, instrument: int) -> bool:
        """Whether it was told of executions of an instrument."""
        return self._ledger.has(instrument)

    def learn(self, news: NDArray[np.void], fills: int) -> OrderNews:
        """What compiled code has sent and told, NEWS[n], with so many FILLs."""
        exchange, instruments = self._exchange, self._instruments
        assert exchange is not None
        columns = columns_of(news)
        self._note_terms(columns)
        own, kept = exchange.take_fill_rows(fills), None
        if self._instant:
            # At once it is told with what becomes of it; what comes once another is done is known before.
            kept = np.array([*map(_is_told, columns["status"], columns["modified"])], np.bool_)
            news = news[kept]
            columns = columns_of(news)
        ids, statuses, known = columns["id"], columns["status"], self._known
        before = {order_id: known[order_id][1] for order_id in ids if order_id in known}
        found = OrderNews(
            self._requests.strategy, instruments, news, own, self._booked(columns, own),
            reasons_of(columns, instruments, exchange.text), before, kept,
        )  # fmt: skip
        for order_id, number in {order_id: number for number, order_id in enumerate(ids)}.items():
            known.pop(order_id, None)
            if STATUSES[statuses[number]] in OPEN:
                known[order_id] = columns["instrument"][number], found.order(number)
            else:
                self._uncounted.discard(order_id)
                self._ties.pop(order_id, None)
        return found

    def _note_terms(self, columns: NewsColumns) -> None:
        """Notes which of the orders that news tell were sent only reduce positions, and which are tied."""
        told = (columns[name] for name in ("status", "id", "group", "reduces"))
        for status, order_id, group, only_reduces in zip(*told, strict=True):
            if status == SENT and only_reduces:
                self._uncounted.add(order_id)
            if status == SENT and group != order_id:
                self._ties[order_id] = group

    def _booked(self, columns: NewsColumns, fills: NDArray[np.void]) -> list[int]:
        """Brings the fills of news into the ledger; their fees, 1e-8."""
        if not len(fills):
            return []
        fees, rows = [], iter(fills.tolist())
        told = (columns[name] for name in ("instrument", "side", "fills"))
        for index, side, count in zip(*told, strict=True):
            for time, lots, ticks, maker in islice(rows, count):
                money = self._ledger.money(index)
                fee = self._fees.of(self._instruments[index], ticks, lots, bool(maker), money, time)
                fees.append(fee)
                self._ledger.trade(Execution(index, -lots if side else lots, ticks, fee))
        return fees

    @property
    def working(self) -> bool:
        """See ExecutionClient."""
        if self._exchange is not None and (not self._exchange.idle or self._exchange.holds):
            return True
        return self._marks

    @property
    def _marks(self) -> bool:
        """Whether what the account is worth is looked at."""
        return self._values and any(holding.lots for _, holding in self._ledger)

    @property
    def _values(self) -> bool:
        """Whether it matters what the account is worth."""
        return self._risk.watches_drawdown or self._margin is not None

    @property
    def due(self) -> int:
        """See ExecutionClient."""
        exchange = self._exchange
        return LAST if exchange is None or exchange.told_apart else exchange.due

    def concern(self, instrument: int, found: WakeCondition) -> None:
        """See ExecutionClient."""
        if self._exchange is not None and self._exchange.has(instrument):
            found.boards.append(self._exchange.board(instrument))
        # What is told by compiled code is valued there.
        apart = self._exchange is not None and self._exchange.told_apart
        found.every |= self._marks and not apart

    def place(self, request: OrderRequest, now: int) -> list[OrderUpdate]:
        """See ExecutionClient."""
        order, checked = self._requests.checked(request, now)
        try:
            if isinstance(checked, DataError):
                raise checked
            index, limit = checked.instrument, checked.limit
            if self._exchange is None:
                raise DataError(f"{self._instruments[index]}: the book is absent")
            self._check_tie(index, checked)
            self._check_risk(index, order, checked, now)
        except DataError as error:
            return [OrderUpdate(None, replace(order, status="refused", reason=str(error)))]
        told = []
        if self._instant:
            self._new = order
        else:
            sent = replace(order, status="sent")
            self._known[order.id] = (index, sent)
            told.append(OrderUpdate(None, sent))
        new = new_order(
            order.id, checked.side, limit or 0, limit is None, checked.lots, checked.ioc,
            checked.post_only,
        )  # fmt: skip
        if checked.terms is not NO_TERMS:
            self._give_terms(new, order, checked, told)
        return told + self._send(PLACE, index, order.id, now, order=new)

    def _give_terms(self, new: int, order: Order, checked: CheckedOrder, told: list[OrderUpdate]) -> None:
        """Gives an ORDER its terms; orders that come later are sent with it."""
        terms, side = checked.terms, Side(1 - checked.side)
        give_terms(
            new, terms.fok, terms.reduce_only, terms.good_until, terms.waits, terms.stop, terms.trail,
            terms.display, terms.tie,
        )  # fmt: skip
        if terms.reduce_only:
            self._uncounted.add(order.id)
        if terms.tie:
            self._ties[order.id] = self._ties.get(terms.tie, terms.tie)
        one, order_id = self._instruments[checked.instrument], order.id
        exits: list[int] = []
        for price, stops in ((terms.profit, False), (terms.loss, True)):
            if price is None:
                exits.append(0)
                continue
            order_id += 1
            limit = None if stops else price
            later = new_order(order_id, side, limit or 0, stops, checked.lots, False, False)
            if stops:
                give_terms(later, False, False, 0, STOP, price, 0, 0, 0)
            exits.append(later)
            row = replace(
                order, id=order_id, side="buy" if side is Side.BID else "sell",
                price=None if limit is None else one.price(limit), status="sent",
            )  # fmt: skip
            self._known[order_id] = (checked.instrument, row)
            # What it fills undoes what the order has filled.
            self._uncounted.add(order_id)
            told.append(OrderUpdate(None, row))
        give_exits(new, *exits)

    def _check_tie(self, index: int, checked: CheckedOrder) -> None:
        """Raises DataError where an order cannot be tied to the one that it names."""
        tie = checked.terms.tie
        if tie and (tie not in self._known or self._known[tie][0] != index):
            raise DataError(f"{self._instruments[index]}: oco={tie} is no open order of the instrument")

    def refuse(self, request: OrderRequest, now: int, reason: str) -> list[OrderUpdate]:
        """See ExecutionClient."""
        order = self._requests.unchecked(request, now)
        return [OrderUpdate(None, replace(order, status="refused", reason=reason))]

    def modify(
        self, order_id: int, volume: Number | None, price: Number | None, now: int, stop: Number | None = None
    ) -> list[OrderUpdate]:
        """See ExecutionClient."""
        if order_id not in self._known:
            return []
        index, order = self._known[order_id]
        try:
            lots = None if volume is None else self._requests.lots(index, volume)
            limit = None if price is None else self._requests.ticks(index, price)
            one = self._instruments[index]
            reached = None if stop is None else self._requests.ticks(index, stop)
            if order.price is None and (limit is not None or order.status != "waiting"):
                raise DataError(f"{one}: a market order cannot be modified")
            left = (one.lots(str(order.volume)) if lots is None else lots) - one.lots(str(order.filled))
            own = limit
            if limit is None and order.price is not None:
                own = one.ticks(str(order.price))
            if left > 0:
                side = Side.BID if order.side == "buy" else Side.ASK
                self._check_risk(index, order, CheckedOrder(index, side, own, left, False, False), now)
        except DataError as error:
            row = replace(order, ts=now, reason=f"not modified: {error}")
            self._known[order_id] = (index, row)
            return [OrderUpdate(order, row)]
        return self._send(MODIFY, index, order_id, now, lots=lots, limit=limit, stop=reached)

    def cancel(self, order_id: int, now: int, reason: str | None = None) -> list[OrderUpdate]:
        """See ExecutionClient."""
        if order_id not in self._known:
            return []
        return self._send(CANCEL, self._known[order_id][0], order_id, now, reason=reason)

    def before(self, instrument: int, time: int) -> None:
        """See ExecutionClient."""
        if self._exchange is not None:
            self._exchange.before(instrument, time)

    def after(self, instrument: int, events: Events, time: int, now: int) -> None:
        """See ExecutionClient."""
        if self._exchange is not None:
            self._exchange.after(instrument, events, time, now)
            self.followed()

    def followed(self) -> None:
        """See ExecutionClient."""
        if self._values:
            self._mark()

    def told(self, now: int) -> list[OrderUpdate]:
        """See ExecutionClient."""
        exchange = self._exchange
        return [] if exchange is None else [self._tell(report) for report in exchange.told(now)]

    def end(self, now: int) -> list[OrderUpdate]:
        """See ExecutionClient."""
        updates = self.told(LAST)
        for message in () if self._exchange is None else self._exchange.drop_messages():
            sent = message.order
            for one in () if sent is None else (sent, sent.profit, sent.loss):
                if one is not None and one.words["id"] in self._known:
                    _, row = self._known.pop(one.words["id"])
                    lost = replace(row, ts=now, status="cancelled", reason="the run ended before it arrived")
                    updates.append(OrderUpdate(row, lost))
        return updates

    def open_orders(self) -> list[int]:
        """See ExecutionClient."""
        return sorted(self._known)

    def position(self, symbol: str) -> Decimal:
        """See ExecutionClient."""
        return self._ledger.position(symbol)

    def positions(self) -> Iterator[PositionSummary]:
        """See ExecutionClient; valued at the mid of the book, or not at all where orders are refused."""
        self._take_payments()
        for index, holding in self._ledger:
            one = self._instruments[index]
            position = one.volume(holding.lots)
            cash, fees = self._ledger.cash(index), self._ledger.fees(index)
            mark = None if one.not_tradable else self._mid(index)
            money = self._ledger.money(index)
            worth = None if mark is None else EXACT.add(cash, money.at(position, mark))
            funding = self._ledger.funding(index)
            profit = None if worth is None else EXACT.add(EXACT.subtract(worth, fees), funding)
            realised = self._ledger.realised(index)
            yield PositionSummary(
                one.venue, one.symbol, position, cash, mark, profit, fees, realised, currency_of(one),
                money.inverse, money.size, funding,
            )  # fmt: skip

    @property
    def payments(self) -> Sequence[FundingPayment]:
        """Funding of its positions since it was made, in the order of the messages that showed it due."""
        self._take_payments()
        return self._payments

    def _take_payments(self) -> None:
        """Brings funding into the ledger."""
        for time, index, lots, price, rate in (
            () if self._exchange is None else self._exchange.take_payments()
        ):
            one, amount = self._instruments[index], self._ledger.pay(index, lots, price, rate)
            self._payments.append(
                FundingPayment(
                    time, self._requests.strategy, one.venue, one.symbol, one.volume(lots), fee_amount(price),
                    Decimal(rate).scaleb(-RATE_SCALE), fee_amount(amount),
                )
            )  # fmt: skip

    def places(self, instrument: int) -> Iterable[Mapping[str, object]]:
        """See ExecutionClient."""
        for order in () if self._exchange is None else self._exchange.orders(instrument):
            yield {
                "id": int(order["id"]), "side": "buy" if order["side"] == Side.BID else "sell",
                "price": int(order["limit"]), "left": int(order["left"]), "ahead": lots_before(order),
            }  # fmt: skip

    def save(self) -> SavedAccount:
        """See ExecutionClient."""
        self._take_payments()
        return SavedAccount(
            None if self._exchange is None else self._exchange.save(),
            list(self._known.values()),
            self._ledger.save(),
            self._risk.sent,
            str(self._risk.worth),
            str(self._risk.peak),
            sorted(self._uncounted & self._known.keys()),
            {own: first for own, first in sorted(self._ties.items()) if own in self._known},
            self._fees.save(),
        )

    def load(self, saved: SavedAccount, indexes: Sequence[int]) -> None:
        """See ExecutionClient."""
        if self._exchange is not None and saved.exchange is not None:
            self._exchange.load(saved.exchange, indexes)
        self._known = {row.id: (indexes[index], row) for index, row in saved.known}
        self._ledger.load(saved.holdings, indexes)
        self._uncounted, self._ties = set(saved.uncounted), dict(saved.ties)
        self._note_held(saved, indexes)
        self._fees.load(saved.traded)
        self._risk.sent = saved.sent
        self.stirred.update(range(len(self._instruments)))
        self._risk.worth, self._risk.peak = Decimal(saved.worth), Decimal(saved.peak)

    def _note_held(self, saved: SavedAccount, indexes: Sequence[int]) -> None:
        """The exchange knows of fills that are not told yet, too."""
        if self._exchange is None:
            return
        held = {index: holding.lots for index, holding in self._ledger}
        for report in () if saved.exchange is None else saved.exchange.reports:
            lots, index = sum(fill.lots for fill in report.fills), indexes[report.instrument]
            held[index] = held.get(index, 0) + (lots if report.side == Side.BID else -lots)
        for index, lots in held.items():
            if lots:
                self._exchange.hold(index, lots)

    def _send(
        self,
        kind: int,
        index: int,
        order_id: int,
        now: int,
        *,
        order: int = 0,
        lots: int | None = None,
        limit: int | None = None,
        stop: int | None = None,
        reason: str | None = None,
    ) -> list[OrderUpdate]:
        """Sends a message; what is told of it at once."""
        assert self._exchange is not None
        if not self._exchange.has(index):
            self.stirred.add(index)
        number, arrival = self._exchange.next_number(), now + self._delay
        if self._varies:
            seen = now + self._feed.of(order_id, number, now)
            arrival = seen + self._to.of(order_id, number, seen)
        self._exchange.send(
            kind, index, order_id, arrival, self._arrives_at_once,
            order=order, lots=lots, limit=limit, stop=stop, reason=reason,
        )  # fmt: skip
        return self.told(now) if self._instant else []

    def _tell(self, report: Report) -> OrderUpdate:
        """The strategy is told: its positions have what was executed."""
        index, before = self._known.pop(report.id, (report.instrument, None))
        row = self._new if before is None else before
        assert row is not None
        one, fills = self._instruments[index], []
        for fill in report.fills:
            maker, lots = bool(fill.maker), fill.lots if row.side == "buy" else -fill.lots
            fee = self._fees.of(one, fill.ticks, fill.lots, maker, self._ledger.money(index), fill.time)
            fills.append(
                Fill(
                    fill.time, row.strategy, row.id, one.venue, one.symbol, row.side, one.volume(fill.lots),
                    one.price(fill.ticks), fee_amount(fee), "maker" if maker else "taker",
                )
            )  # fmt: skip
            self._ledger.trade(Execution(index, lots, fill.ticks, fee))
        if fills and self._values:
            self._mark()
            self.stirred.update(range(len(self._instruments)))
        new = Order(
            report.time, row.strategy, row.id, row.venue, row.symbol, row.side,
            row.volume if report.volume is None else one.volume(report.volume),
            row.price if report.limit is None or row.price is None else one.price(report.limit),
            one.volume(report.filled) if fills else row.filled, STATUSES[report.status], report.reason,
        )  # fmt: skip
        if new.status in OPEN:
            self._known[row.id] = (index, new)
        else:
            self._uncounted.discard(row.id)
            self._ties.pop(row.id, None)
        return OrderUpdate(before, new, tuple(fills))

    def _check_risk(self, index: int, order: Order, checked: CheckedOrder, now: int) -> None:
        """Raises DataError with the reason for a refusal."""
        if self._risk.unlimited and self._margin is None:
            return
        one, buys, lots, terms = self._instruments[index], order.side == "buy", checked.lots, checked.terms
        waiting = self._open_volume(index, order, terms.tie)
        price = checked.limit if checked.limit is not None or terms.waits != STOP else terms.stop
        if price is None and self._books is not None:
            price = self._books.best(index)[Side.ASK if buys else Side.BID]
        volume = one.volume(lots)
        exposure = Exposure(
            volume if buys else -volume,
            None if price is None else one.price(price),
            one.volume(self._ledger.held(index)),
            waiting,
            terms.reduce_only or order.id in self._uncounted,
            self._ledger.money(index),
        )
        reason = None if self._risk.unlimited else self._risk.refusal(exposure, now)
        if reason is None and self._margin is not None and not exposure.reduces:
            self._take_payments()
            reason = self._margin.refusal(index, exposure)
        if reason is not None:
            raise DataError(f"{one}: {reason}")

    def _price_of(self, index: int) -> Decimal | None:
        """What a position is valued at for margin: the mark price, else the mid."""
        mark = 0 if self._books is None else self._books.mark(index)
        return fee_amount(mark) if mark > 0 else self._mid(index)

    def _open_orders(self) -> Iterator[tuple[int, Order, bool]]:
        return ((index, order, order.id in self._uncounted) for index, order in self._known.values())

    def to_close(self) -> Sequence[Position]:
        """See ExecutionClient."""
        return () if self._margin is None else self._margin.to_close(self._requests.strategy)

    def _open_volume(self, index: int, order: Order, tie: int) -> Decimal:
        """What other open orders of an order's side may add to a position: the most of those that are tied,
        nothing of those that only reduce it, and nothing of what the order itself is tied to."""
        own = self._ties.get(order.id, self._ties.get(tie, tie or order.id))
        most: dict[int, Decimal] = {}
        for i, row in self._known.values():
            if i == index and row.side == order.side and row.id not in self._uncounted:
                group = self._ties.get(row.id, row.id)
                if group != own:
                    most[group] = max(most.get(group, Decimal(0)), row.volume - row.filled)
        return sum(most.values(), Decimal(0))

    def _mark(self) -> None:
        """Looks at what the account is worth, in the quote currency, where each book has a price."""
        if self._margin is not None:
            self._take_payments()
            self._margin.look()
        if not self._risk.watches_drawdown:
            return
        worth = Decimal(0)
        for position in self.positions():
            profit = position.quoted_profit
            if profit is None and not (position.position or position.inverse):
                profit = EXACT.add(EXACT.subtract(position.cash, position.fees), position.funding)
            if profit is None:
                return
            worth = EXACT.add(worth, profit)
        self._risk.mark(worth)

    def _mid(self, instrument: int) -> Decimal | None:
        bid, ask = (None, None) if self._books is None else self._books.best(instrument)
        return None if bid is None or ask is None else self._instruments[instrument].price(bid + ask) / 2


def _is_told(status: int, modified: int) -> bool:
    """Whether news are told where there is no latency."""
    return status != SENT or modified != 0
