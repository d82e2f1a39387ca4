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
3. From then on it rests, and messages of its instrument fill it; `queue_position` and `matching` say how.
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

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from msgspec.structs import replace

from orderbook.core.errors import DataError
from orderbook.market.events import Events, Side
from orderbook.market.instruments import Instruments
from orderbook.strategies.execution.account import (
    EXACT,
    Ledger,
    Order,
    OrderUpdate,
    PositionSummary,
)
from orderbook.strategies.execution.account_orders import MarketBooks, Working
from orderbook.strategies.execution.client import (
    Number,
    OrderMessage,
    OrderRequest,
    Report,
    Requests,
    SavedAccount,
)
from orderbook.strategies.execution.matching import Matching, OrderOutcome
from orderbook.strategies.execution.venue_model import Delays, RiskLimits, SimulationOptions
from orderbook.strategies.execution.wake_conditions import LAST, WakeCondition

_SECOND = 10**9


@dataclass(frozen=True, slots=True)
class Exposure:
    """What an order would add to: of its instrument, in the relation's units.

    volume: of the order, above 0 to buy, below to sell. price: its limit, else the best of the other side;
    None where that is empty. position: held. open: of other orders of the side that are not done, above 0.
    """

    volume: Decimal
    price: Decimal | None
    position: Decimal
    open: Decimal

    @property
    def reduces(self) -> bool:
        """Whether the position can only come nearer to 0 by it."""
        against = self.position * self.volume < 0
        return against and abs(self.volume) + self.open <= abs(self.position)

    @property
    def worst(self) -> Decimal:
        """The position if everything on the side is filled."""
        return self.position + self.volume + (self.open if self.volume > 0 else -self.open)


class Risk:
    """The limits of one strategy's account, and what they count. An order that only reduces a position is
    refused for its own volume and for the rate of orders alone."""

    def __init__(self, limits: RiskLimits) -> None:
        self._limits = limits
        self.sent: deque[int] = deque()
        # The most that the account was worth, in the quote currency; it begins with nothing.
        self.peak = Decimal(0)
        self.worth = Decimal(0)

    @property
    def watches_drawdown(self) -> bool:
        """Whether `mark` is to be called."""
        return self._limits.max_drawdown is not None

    def mark(self, worth: Decimal) -> None:
        """The account's profit is now so much."""
        self.worth, self.peak = worth, max(self.peak, worth)

    def refusal(self, order: Exposure, now: int) -> str | None:
        """Why an order is not sent; None: it is, and counts from now on."""
        reason = self._refusal(order, now)
        if reason is None and self._limits.max_orders_per_second is not None:
            self.sent.append(now)
        return reason

    def _refusal(self, order: Exposure, now: int) -> str | None:
        limits = self._limits
        if limits.max_order_volume is not None and abs(order.volume) > limits.max_order_volume:
            return f"risk: a volume above max_order_volume {limits.max_order_volume}"
        while self.sent and self.sent[0] <= now - _SECOND:
            self.sent.popleft()
        if limits.max_orders_per_second is not None and len(self.sent) >= limits.max_orders_per_second:
            return f"risk: more than max_orders_per_second {limits.max_orders_per_second}"
        if order.reduces:
            return None
        worst = abs(order.worst)
        if limits.max_position is not None and worst > limits.max_position:
            text = f"the position could become {_text(order.worst)}"
            return f"risk: {text}, beyond max_position {limits.max_position}"
        if limits.max_notional is not None and order.price is not None:
            value = worst * abs(order.price)
            if value > limits.max_notional:
                text = f"the position could be worth {_text(value)}"
                return f"risk: {text}, above max_notional {limits.max_notional}"
        if limits.max_drawdown is not None and self.peak - self.worth > limits.max_drawdown:
            limit = limits.max_drawdown
            return f"risk: a drawdown above max_drawdown {limit}; orders may only reduce positions"
        return None


def _text(value: Decimal) -> str:
    return f"{value.normalize():f}"


class PaperClient:
    """One strategy's orders, positions and cash; see ExecutionClient.

    line: names what latencies are drawn for, the same in every run. Without books every order is refused.
    """

    def __init__(
        self,
        strategy: str,
        books: MarketBooks | None,
        instruments: Instruments,
        options: SimulationOptions,
        limits: RiskLimits,
        line: str,
    ) -> None:
        self._books, self._instruments = books, instruments
        self._requests, self._ledger = Requests(strategy, instruments), Ledger(instruments)
        self._risk = Risk(limits)
        self._matching = None if books is None else Matching(books, instruments, options)
        self._to, self._back, self._feed = (
            Delays(option, options.seed, line, kind)
            for option, kind in (
                (options.order_latency, "order"),
                (options.response_latency, "response"),
                (options.feed_latency, "feed"),
            )
        )
        self._arrives_at_once = self._to.zero and self._feed.zero
        self._instant = self._arrives_at_once and self._back.zero
        self._messages: dict[int, deque[OrderMessage]] = {}
        self._reports: deque[Report] = deque()
        # Orders that are not done, as far as was told: as they stand in the relation, and their instruments.
        self._known: dict[int, tuple[int, Order]] = {}
        # How many messages were sent either way; the last arrival by instrument; when the last report is due.
        self._numbers, self._due = 0, 0
        self._arrivals: dict[int, int] = {}
        self.stirred: set[int] = set()

    @property
    def working(self) -> bool:
        """See ExecutionClient."""
        if self._messages or self._reports:
            return True
        if self._matching is not None and not self._matching.idle:
            return True
        return self._risk.watches_drawdown and any(holding.lots for _, holding in self._ledger)

    @property
    def due(self) -> int:
        """See ExecutionClient."""
        return self._reports[0].due if self._reports else LAST

    def concern(self, instrument: int, found: WakeCondition) -> None:
        """See ExecutionClient."""
        waiting = self._messages.get(instrument)
        if waiting:
            found.arrival = min(found.arrival, waiting[0].arrival)
        if self._matching is not None:
            self._matching.concern(instrument, found)
        found.every |= self._risk.watches_drawdown and any(holding.lots for _, holding in self._ledger)

    def place(self, request: OrderRequest, now: int) -> list[OrderUpdate]:
        """See ExecutionClient."""
        order = self._requests.unchecked(request, now)
        try:
            working = self._requests.checked(order, request)
            if self._matching is None:
                raise DataError(f"{self._instruments[working.instrument]}: the book is absent")
            self._check_risk(working.instrument, order, working.left, working.limit, now)
        except DataError as error:
            return [OrderUpdate(None, replace(order, status="refused", reason=str(error)))]
        told = []
        if not self._instant:
            working.order = sent = replace(order, status="sent")
            self._known[order.id] = (working.instrument, sent)
            told.append(OrderUpdate(None, sent))
        return told + self._send(OrderMessage(0, "order", order.id, working.instrument, working), now)

    def refuse(self, request: OrderRequest, now: int, reason: str) -> list[OrderUpdate]:
        """See ExecutionClient."""
        order = self._requests.unchecked(request, now)
        return [OrderUpdate(None, replace(order, status="refused", reason=reason))]

    def modify(
        self, order_id: int, volume: Number | None, price: Number | None, now: int
    ) -> list[OrderUpdate]:
        """See ExecutionClient."""
        if order_id not in self._known:
            return []
        index, order = self._known[order_id]
        try:
            lots = None if volume is None else self._requests.lots(index, volume)
            limit = None if price is None else self._requests.ticks(index, price)
            one = self._instruments[index]
            if order.price is None:
                raise DataError(f"{one}: a market order cannot be modified")
            left = (one.lots(str(order.volume)) if lots is None else lots) - one.lots(str(order.filled))
            own = one.ticks(str(order.price)) if limit is None else limit
            if left > 0:
                self._check_risk(index, order, left, own, now)
        except DataError as error:
            row = replace(order, ts=now, reason=f"not modified: {error}")
            self._known[order_id] = (index, row)
            return [OrderUpdate(order, row)]
        return self._send(OrderMessage(0, "modify", order_id, index, None, lots, limit), now)

    def cancel(self, order_id: int, now: int, reason: str | None = None) -> list[OrderUpdate]:
        """See ExecutionClient."""
        if order_id not in self._known:
            return []
        index = self._known[order_id][0]
        return self._send(OrderMessage(0, "cancel", order_id, index, reason=reason), now)

    def before(self, instrument: int, time: int) -> None:
        """See ExecutionClient."""
        waiting = self._messages.get(instrument)
        if not waiting or waiting[0].arrival >= time:
            return
        while waiting and waiting[0].arrival < time:
            message = waiting.popleft()
            self._act(message, message.arrival)
        if not waiting:
            del self._messages[instrument]

    def after(self, instrument: int, events: Events | None, time: int, now: int) -> None:
        """See ExecutionClient."""
        if self._matching is None:
            return
        self.stirred.add(instrument)
        for change in self._matching.message(instrument, events, now):
            self._report(change, time)
        if self._risk.watches_drawdown:
            self._mark()

    def told(self, now: int) -> list[OrderUpdate]:
        """See ExecutionClient."""
        updates = []
        while self._reports and self._reports[0].due <= now:
            updates.append(self._tell(self._reports.popleft()))
        return updates

    def end(self, now: int) -> list[OrderUpdate]:
        """See ExecutionClient."""
        updates = [self._tell(report) for report in self._reports]
        self._reports.clear()
        for message in (message for own in self._messages.values() for message in own):
            if message.kind == "order" and message.order_id in self._known:
                row = self._known[message.order_id][1]
                lost = replace(row, ts=now, status="cancelled", reason="the run ended before it arrived")
                updates.append(self._tell(Report(now, lost, (), ())))
        self._messages.clear()
        return updates

    def open_orders(self) -> list[int]:
        """See ExecutionClient."""
        return sorted(self._known)

    def position(self, symbol: str) -> Decimal:
        """See ExecutionClient."""
        return self._ledger.position(symbol)

    def positions(self) -> Iterator[PositionSummary]:
        """See ExecutionClient; valued at the mid of the book, or not at all where orders are refused."""
        for index, holding in self._ledger:
            one = self._instruments[index]
            position = one.volume(holding.lots)
            cash, fees = self._ledger.cash(index), self._ledger.fees(index)
            mark = None if one.not_tradable else self._mid(index)
            worth = None if mark is None else EXACT.add(cash, EXACT.multiply(position, mark))
            profit = None if worth is None else EXACT.subtract(worth, fees)
            realised = self._ledger.realised(index)
            yield PositionSummary(one.venue, one.symbol, position, cash, mark, profit, fees, realised)

    def places(self, instrument: int) -> Iterable[Mapping[str, object]]:
        """See ExecutionClient."""
        matching = self._matching
        for order in () if matching is None else matching.resting.get(instrument, {}).values():
            row, ahead = order.order, order.place.before
            yield {"id": row.id, "side": row.side, "price": order.limit, "left": order.left, "ahead": ahead}

    def save(self) -> SavedAccount:
        """See ExecutionClient."""
        matching = self._matching
        return SavedAccount(
            [] if matching is None else [order.save() for order in matching.orders()],
            [] if matching is None else matching.displayed.save(),
            [] if matching is None else sorted(matching.executes),
            [message for own in self._messages.values() for message in own],
            list(self._reports),
            list(self._known.values()),
            self._ledger.save(),
            self._numbers,
            dict(self._arrivals),
            self._due,
            list(self._risk.sent),
            str(self._risk.worth),
            str(self._risk.peak),
        )

    def load(self, saved: SavedAccount, indexes: Sequence[int]) -> None:
        """See ExecutionClient."""
        if self._matching is not None:
            for one in saved.resting:
                self._matching.rest(Working.load(one, indexes[one.instrument]))
            self._matching.displayed.load([(indexes[index], *rest) for index, *rest in saved.taken])
            self._matching.executes = {indexes[index] for index in saved.executes}
        for message in saved.messages:
            own = message.load(indexes)
            self._messages.setdefault(own.instrument, deque()).append(own)
        self._reports.extend(report.load(indexes) for report in saved.reports)
        self._known = {row.id: (indexes[index], row) for index, row in saved.known}
        self._ledger.load(saved.holdings, indexes)
        self._numbers, self._due = saved.numbers, saved.due
        self._arrivals = {indexes[index]: time for index, time in saved.arrivals.items()}
        self._risk.sent = deque(saved.sent)
        self.stirred.update(range(len(self._instruments)))
        self._risk.worth, self._risk.peak = Decimal(saved.worth), Decimal(saved.peak)

    def _send(self, message: OrderMessage, now: int) -> list[OrderUpdate]:
        """Sends a message; what is told of it at once."""
        index, order_id = message.instrument, message.order_id
        self.stirred.add(index)
        self._numbers += 1
        if self._arrives_at_once:
            self._act(message, now)
            return self.told(now) if self._instant else []
        arrival = now + self._feed.of(order_id, self._numbers) + self._to.of(order_id, self._numbers)
        # One line to each instrument: what is sent later does not arrive earlier.
        arrival = self._arrivals[index] = max(arrival, self._arrivals.get(index, arrival))
        self._messages.setdefault(index, deque()).append(replace(message, arrival=arrival))
        return []

    def _act(self, message: OrderMessage, time: int) -> None:
        """A message has arrived."""
        matching, index, order_id = self._matching, message.instrument, message.order_id
        self.stirred.add(index)
        if matching is None:
            return
        if message.order is not None:
            change: OrderOutcome | None = matching.place(message.order, time)
        elif message.kind == "modify":
            change = matching.modify(index, order_id, message.lots, message.limit, time)
        else:
            change = matching.cancel(index, order_id, time, message.reason)
        if change is not None:
            self._report(change, time)

    def _report(self, change: OrderOutcome, time: int) -> None:
        """Sends back what has become of an order."""
        due = 0
        if not self._instant:
            self._numbers += 1
            due = self._due = max(time + self._back.of(change.order.id, self._numbers), self._due)
        self._reports.append(Report(due, change.order, change.fills, change.executions))

    def _tell(self, report: Report) -> OrderUpdate:
        """The strategy is told: its positions have what was executed."""
        row = report.order
        index, before = self._known.pop(row.id, (-1, None))
        for execution in report.executions:
            self._ledger.trade(execution)
        if report.executions and self._risk.watches_drawdown:
            self.stirred.update(range(len(self._instruments)))
        if row.status in ("sent", "resting"):
            if before is None:
                index = self._instruments.index(row.venue, row.symbol)
            self._known[row.id] = (index, row)
        return OrderUpdate(before, row, tuple(report.fills))

    def _check_risk(self, index: int, order: Order, lots: int, limit: int | None, now: int) -> None:
        """Raises DataError with the reason for a refusal."""
        one, buys = self._instruments[index], order.side == "buy"
        known = (row for i, row in self._known.values() if i == index and row.side == order.side)
        waiting = sum((row.volume - row.filled for row in known if row.id != order.id), Decimal(0))
        price = limit
        if price is None and self._books is not None:
            price = self._books.best(index)[Side.ASK if buys else Side.BID]
        volume = one.volume(lots)
        exposure = Exposure(
            volume if buys else -volume,
            None if price is None else one.price(price),
            one.volume(self._ledger.held(index)),
            waiting,
        )
        reason = self._risk.refusal(exposure, now)
        if reason is not None:
            raise DataError(f"{one}: {reason}")

    def _mark(self) -> None:
        """Tells the risk check what the account is worth, where every book has a mid."""
        profits = [position.profit for position in self.positions()]
        if None not in profits:
            self._risk.mark(sum(filter(None, profits), Decimal(0)))

    def _mid(self, instrument: int) -> Decimal | None:
        bid, ask = (None, None) if self._books is None else self._books.best(instrument)
        return None if bid is None or ask is None else self._instruments[instrument].price(bid + ask) / 2
