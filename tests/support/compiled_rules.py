"""Strategies with compiled methods, and the same rules in Python."""

from collections.abc import Sequence
from decimal import Decimal
from typing import Any, ClassVar

from orderbook import Strategy, compiled, on_timer, on_view
from orderbook.market.events import BookState
from orderbook.strategies.execution.account import Order


class Quoter(Strategy):
    """Quotes a bid, moves it, takes now and then, and asks for what cannot be."""

    defaults: ClassVar = {"size": Decimal("0.4")}
    seen: int = 0
    quote: int = 0
    entry: int = 0
    mean: float = 0.0
    rising: bool = False

    @on_view("touch", fire="change")
    @compiled
    def moved(self: Any, row: Any, old: Any) -> None:
        self.seen += 1
        if row.multiplicity == 0 or not row.has_bid:
            if self.quote != 0:
                self.cancel(self.quote)
            return
        self.rising = old.multiplicity != 0 and old.has_bid and row.bid > old.bid
        if row.has_imbalance:
            self.mean += (row.imbalance - self.mean) / 8.0
        step = self.seen % 7
        if self.quote == 0 or not self.is_open(self.quote):
            self.quote = self.buy(self.size, row.bid - (step % 3) * self.tick, post_only=True)
        elif step == 1 or self.rising:
            self.modify(self.quote, price=row.bid)
        elif step == 2:
            self.modify(self.quote, self.lot)
        elif step == 3:
            self.cancel(self.quote)
        if step == 4 and self.position > -5 * self.lot:
            self.sell(2 * self.lot)
        elif step == 5:
            self.takes(row.bid)
        if self.seen % 23 == 0:
            self.buy(self.lot, row.bid + 1)
        if self.seen % 29 == 0:
            self.buy(0, row.bid)
        self.more(row.bid)

    @compiled
    def more(self: Any, bid: Any) -> None:
        tick, lot = self.tick, self.lot
        if self.seen % 5 == 0:
            profit, loss = bid + 3 * tick, bid - 2 * tick
            self.entry = self.buy(2 * lot, bid, take_profit=profit, stop_loss=loss)
        elif self.seen % 11 == 0:
            self.sell(3 * lot, stop=bid - tick, reduce_only=True, good_until=self.now + 50_000_000)
        elif self.seen % 13 == 0:
            self.sell(4 * lot, bid + 2 * tick, display=lot, trail=2 * tick)
        elif self.seen % 17 == 0:
            self.buy(9 * lot, bid + 2 * tick, fok=True)
        elif self.seen % 7 == 6 and self.is_open(self.quote):
            self.sell(lot, bid + 4 * tick, oco=self.quote)
        elif self.seen % 3 == 0 and self.entry != 0:
            self.modify(self.entry + 2, stop=bid - 3 * tick)
        elif self.seen % 31 == 0:
            self.sell(lot, bid, take_profit=bid + tick)

    @compiled
    def takes(self: Any, price: Any) -> None:
        self.sell(3 * self.lot, price, ioc=True)


class Plain(Strategy):
    """The same in Python."""

    defaults: ClassVar = Quoter.defaults

    def __init__(self) -> None:
        self.seen = self.quote = self.entry = 0
        self.mean, self.rising = 0.0, False
        self.live: set[int] = set()

    @on_view("touch", fire="change")
    def moved(self, event: Any) -> None:
        self.seen += 1
        row, old = event.new, event.old
        if row is None or row.bid is None:
            if self.quote:
                self.cancel(self.quote)
            return
        one = self.instrument(row.symbol, row.venue)
        self.rising = old is not None and old.bid is not None and row.bid > old.bid
        if row.imbalance is not None:
            self.mean += (row.imbalance - self.mean) / 8.0
        step = self.seen % 7
        where, bid = {"venue": row.venue}, f"{row.bid.normalize():f}"
        if self.quote not in self.live:
            price = f"{(row.bid - (step % 3) * one.tick).normalize():f}"
            self.quote = self.buy(row.symbol, self.parameters["size"], price, post_only=True, **where)
            self.live.add(self.quote)
        elif step == 1 or self.rising:
            self.modify(self.quote, price=bid)
        elif step == 2:
            self.modify(self.quote, one.lot)
        elif step == 3:
            self.cancel(self.quote)
        if step == 4 and self.position(row.symbol) > -5 * one.lot:
            self.sell(row.symbol, 2 * one.lot, **where)
        elif step == 5:
            self.sell(row.symbol, 3 * one.lot, bid, time_in_force="ioc", **where)
        if self.seen % 23 == 0:
            self.buy(row.symbol, one.lot, row.bid + Decimal("1e-8"), **where)
        if self.seen % 29 == 0:
            self.buy(row.symbol, 0, row.bid, **where)
        self.more(row.symbol, row.bid, one.tick, one.lot, where)

    def more(self, symbol: str, bid: Decimal, tick: Decimal, lot: Decimal, where: dict[str, Any]) -> None:
        def text(price: Decimal) -> str:
            return f"{price.normalize():f}"

        if self.seen % 5 == 0:
            profit, loss = text(bid + 3 * tick), text(bid - 2 * tick)
            self.entry = self.buy(symbol, 2 * lot, text(bid), take_profit=profit, stop_loss=loss, **where)
        elif self.seen % 11 == 0:
            until = self.now + 50_000_000
            self.sell(symbol, 3 * lot, stop=text(bid - tick), reduce_only=True, good_until=until, **where)
        elif self.seen % 13 == 0:
            self.sell(symbol, 4 * lot, text(bid + 2 * tick), display=lot, trail=2 * tick, **where)
        elif self.seen % 17 == 0:
            self.buy(symbol, 9 * lot, text(bid + 2 * tick), time_in_force="fok", **where)
        elif self.seen % 7 == 6 and self.quote in self.live:
            self.sell(symbol, lot, text(bid + 4 * tick), oco=self.quote, **where)
        elif self.seen % 3 == 0 and self.entry:
            self.modify(self.entry + 2, stop=text(bid - 3 * tick))
        elif self.seen % 31 == 0:
            self.sell(symbol, lot, text(bid), take_profit=text(bid + tick), **where)

    def on_order_update(self, order: Order) -> None:
        if order.status in ("filled", "cancelled", "refused"):
            self.live.discard(order.id)


class QuoterBySymbol(Quoter):
    partition_by = "symbol"


class PlainBySymbol(Plain):
    partition_by = "symbol"


class Paced(Strategy):
    """Looks at rows once in a while, moves one order of each side, and withdraws from books that are lost."""

    partition_by = "symbol"
    defaults: ClassVar = {"away": 2.5}
    seen: int = 0
    quote: int = 0
    mean: float = 0.0
    rising: bool = False

    @on_view("touch", fire="change", every="7ms")
    @compiled
    def looked(self: Any, row: Any, old: Any) -> None:
        self.seen += 1
        if row.multiplicity == 0 or not row.has_bid or not row.has_ask:
            self.withdraw(self)
            return
        self.rising = old.multiplicity != 0 and old.has_bid and row.bid > old.bid
        self.mean = row.bid / self.tick - self.away
        self.aim(0, row.bid - (self.seen % 3) * self.tick)
        self.aim(1, row.ask + (self.seen % 2) * self.tick + (1 if self.seen % 19 == 0 else 0))

    @compiled
    def aim(self: Any, side: Any, price: Any) -> None:
        self.quote = self.open_order(side)
        if self.quote == 0:
            if side == 0:
                self.buy(2 * self.lot, price, post_only=True)
            else:
                self.sell(2 * self.lot, price, post_only=True)
        elif self.open_price(self.quote) != price:
            self.modify(self.quote, price=price)

    @compiled
    def withdraw(self: Any, state: Any) -> None:
        for side in range(2):
            if self.open_order(side) != 0:
                self.cancel(self.open_order(side))

    @compiled
    def on_book_state(self: Any, state: Any) -> None:
        if state.state != int(BookState.VALID):
            self.withdraw(state)


class PlainPaced(Strategy):
    """The same in Python."""

    partition_by = "symbol"
    defaults: ClassVar = Paced.defaults

    def __init__(self) -> None:
        self.seen = self.quote = 0
        self.mean, self.rising = 0.0, False
        self.orders: dict[tuple[str, str], list[Any]] = {}

    @on_view("touch", fire="change", every="7ms")
    def looked(self, event: Any) -> None:
        self.seen += 1
        row, old = event.new, event.old
        if row is None or row.bid is None or row.ask is None:
            self.withdraw(*event.key)
            return
        one = self.instrument(row.symbol, row.venue)
        self.rising = old is not None and old.bid is not None and row.bid > old.bid
        self.mean = float(row.bid / one.tick) - self.parameters["away"]
        self.aim(row, "buy", row.bid - (self.seen % 3) * one.tick)
        odd = Decimal("1e-8") if self.seen % 19 == 0 else 0
        self.aim(row, "sell", row.ask + (self.seen % 2) * one.tick + odd)

    def aim(self, row: Any, side: str, price: Decimal) -> None:
        lot = self.instrument(row.symbol, row.venue).lot
        self.quote, asked = self.orders.get((row.venue, side), (0, None))
        if self.quote == 0:
            place = self.buy if side == "buy" else self.sell
            made = place(row.symbol, 2 * lot, f"{price:f}", row.venue, post_only=True)
            self.orders[row.venue, side] = [made, price]
        elif asked != price:
            self.modify(self.quote, price=f"{price:f}")
            self.orders[row.venue, side][1] = price

    def withdraw(self, venue: str, symbol: str) -> None:
        for side in ("buy", "sell"):
            if (venue, side) in self.orders:
                self.cancel(self.orders[venue, side][0])

    def on_order_update(self, order: Order) -> None:
        own = self.orders.get((order.venue, order.side))
        if own is None or own[0] != order.id:
            return
        if order.status in ("filled", "cancelled", "refused"):
            del self.orders[order.venue, order.side]
        elif order.reason is not None:
            own[1] = order.price

    def on_book_state(self, state: Any) -> None:
        if state.state != "valid":
            self.withdraw(state.venue, state.symbol)


class Hedger(Strategy):
    """Sells what its quotes buy as soon as it is told, and counts what it is told."""

    seen: int = 0
    quote: int = 0
    mean: float = 0.0
    rising: bool = False

    @on_view("touch", fire="change")
    @compiled
    def moved(self: Any, row: Any) -> None:
        self.seen += 1
        if row.multiplicity == 0 or not row.has_bid:
            return
        if not self.is_open(self.quote):
            self.quote = self.buy(3 * self.lot, row.bid)
        elif self.seen % 4 == 0:
            self.modify(self.quote, price=row.bid)
        if self.seen % 13 == 0:
            self.buy(self.lot, row.bid + 1)
        if self.seen % 17 == 0:
            self.modify(self.quote, price=row.bid + 1)

    @compiled
    def on_order_update(self: Any, order: Any) -> None:
        self.mean += order.status + 8.0 * order.has_reason + order.filled / self.lot + self.now % 7
        self.mean += order.volume / self.lot + order.has_price * order.price / self.tick / 1000.0
        if order.id == self.quote and order.status == 1 and order.has_reason:
            self.cancel(order.id)

    @compiled
    def on_fill(self: Any, fill: Any) -> None:
        self.mean += 3 * self.position / self.lot + fill.price / self.tick / 1000.0 + fill.ts % 5
        self.rising = fill.maker != 0
        if fill.side == 0:
            self.sell(fill.volume)


class PlainHedger(Strategy):
    """The same in Python."""

    def __init__(self) -> None:
        self.seen = self.quote = 0
        self.mean, self.rising = 0.0, False
        self.live: set[int] = set()

    @on_view("touch", fire="change")
    def moved(self, event: Any) -> None:
        self.seen += 1
        row = event.new
        if row is None or row.bid is None:
            return
        lot, where = self.instrument(row.symbol, row.venue).lot, {"venue": row.venue}
        if self.quote not in self.live:
            self.quote = self.buy(row.symbol, 3 * lot, row.bid, **where)
            self.live.add(self.quote)
        elif self.seen % 4 == 0:
            self.modify(self.quote, price=row.bid)
        if self.seen % 13 == 0:
            self.buy(row.symbol, lot, row.bid + Decimal("1e-8"), **where)
        if self.seen % 17 == 0:
            self.modify(self.quote, price=row.bid + Decimal("1e-8"))

    def on_order_update(self, order: Order) -> None:
        one = self.instrument(order.symbol, order.venue)
        status = ("sent", "resting", "filled", "cancelled", "refused").index(order.status)
        if status > 1:
            self.live.discard(order.id)
        priced = order.price is not None
        self.mean += status + 8.0 * (order.reason is not None) + float(order.filled / one.lot) + self.now % 7
        self.mean += float(order.volume / one.lot) + float((order.price or 0) / one.tick) * priced / 1000.0
        if order.id == self.quote and status == 1 and order.reason is not None:
            self.cancel(order.id)

    def on_fill(self, fill: Any) -> None:
        one = self.instrument(fill.symbol, fill.venue)
        held = float(3 * self.position(fill.symbol) / one.lot)
        self.mean += held + float(fill.price / one.tick) / 1000.0 + fill.ts % 5
        self.rising = fill.liquidity == "maker"
        if fill.side == "buy":
            self.sell(fill.symbol, fill.volume, venue=fill.venue)


class Timed(Strategy):
    """Looks at rows once in a while, where a condition holds, or comes to hold, and withdraws at times."""

    defaults: ClassVar = {"least": 0.1}
    seen: int = 0
    quote: int = 0
    mean: float = 0.0
    rising: bool = False

    @on_view("touch", when="imbalance > :least", fire="edge", every="9ms")
    @compiled
    def leans(self: Any, row: Any, old: Any) -> None:
        self.seen += 1
        self.rising = old.multiplicity != 0 and old.has_bid and row.bid > old.bid
        self.quote = self.buy((1 + self.seen % 3) * self.lot, row.bid)

    @on_timer("11ms")
    @compiled
    def withdraws(self: Any) -> None:
        self.seen += 1
        self.mean += self.now % 9 + self.position / 1e8
        if self.seen % 2 == 0:
            self.cancel(self.quote)
        if self.lot != 0 and self.position > 0:
            self.sell(self.lot)

    @on_view("touch", when="imbalance < :least", fire="change", every="5ms")
    @compiled
    def moved(self: Any, row: Any, old: Any) -> None:
        self.mean += row.ask / self.tick + (3.0 if old.multiplicity != 0 and old.has_ask else 0.0)
        if self.is_open(self.quote):
            self.modify(self.quote, price=row.bid)

    @on_timer("40ms")
    @compiled
    def counts(self: Any) -> None:
        self.mean += 1000.0


class PlainTimed(Strategy):
    """The same in Python."""

    defaults: ClassVar = Timed.defaults

    def __init__(self) -> None:
        self.seen = self.quote = 0
        self.mean, self.rising = 0.0, False
        self.live: set[int] = set()

    @on_view("touch", when="imbalance > :least", fire="edge", every="9ms")
    def leans(self, event: Any) -> None:
        self.seen += 1
        row, old = event.new, event.old
        self.rising = old is not None and old.bid is not None and row.bid > old.bid
        lot = self.instrument(row.symbol, row.venue).lot
        self.quote = self.buy(row.symbol, (1 + self.seen % 3) * lot, row.bid, venue=row.venue)
        self.live.add(self.quote)

    @on_timer("11ms")
    def withdraws(self) -> None:
        self.seen += 1
        held = self.position(self.partition) if self.partition else Decimal(0)
        self.mean += self.now % 9 + float(held)
        if self.seen % 2 == 0:
            self.cancel(self.quote)
        if self.partition and held > 0:
            self.sell(self.partition, self.instrument(self.partition).lot)

    @on_view("touch", when="imbalance < :least", fire="change", every="5ms")
    def moved(self, event: Any) -> None:
        row, old = event.new, event.old
        tick = self.instrument(row.symbol, row.venue).tick
        self.mean += float(row.ask / tick) + (3.0 if old is not None and old.ask is not None else 0.0)
        if self.quote in self.live:
            self.modify(self.quote, price=row.bid)

    @on_timer("40ms")
    def counts(self) -> None:
        self.mean += 1000.0

    def on_order_update(self, order: Order) -> None:
        if order.status in ("filled", "cancelled", "refused"):
            self.live.discard(order.id)


class TimedBySymbol(Timed):
    partition_by = "symbol"


class PlainTimedBySymbol(PlainTimed):
    partition_by = "symbol"


class _Market(Strategy):
    """What Python is told before rows that have waited."""

    seen: int
    mean: float

    def on_trade(self, trade: Any) -> None:
        self.seen += 1
        self.mean += float(trade.volume)
        if self.seen % 3 == 0 and trade.volume > 0:
            self.buy(trade.symbol, trade.volume, trade.price, venue=trade.venue)

    @on_timer("17ms")
    def rests(self) -> None:
        self.seen += 1


class _Traded(_Market):
    """The same, compiled."""

    @compiled
    def on_trade(self: Any, trade: Any) -> None:
        self.seen += 1
        self.mean += trade.volume / 1e8
        if self.seen % 3 == 0 and trade.volume > 0:
            self.buy(trade.volume, trade.price)


class _Leans(Strategy):
    """What Python asks for at messages at which the loop calls other methods."""

    seen: int
    quote: int

    @on_view("touch", when="imbalance > 0.3", fire="change")
    def more(self, event: Any) -> None:
        row = event.new
        self.seen += 1
        if self.seen % 2 == 0:
            self.modify(self.quote, price=row.bid)
        elif self.seen % 5 == 0:
            self.cancel(self.quote)
        if self.seen % 3 == 0:
            self.buy(row.symbol, self.instrument(row.symbol, row.venue).lot, row.ask, venue=row.venue)


class TimedAndLeans(_Leans, TimedBySymbol): ...


class PlainTimedAndLeans(_Leans, PlainTimedBySymbol): ...


class HedgerAndLeans(_Leans, Hedger): ...


class PlainHedgerAndLeans(_Leans, PlainHedger): ...


class TimedAndTold(_Market, Timed): ...


class PlainTimedAndTold(_Market, PlainTimed): ...


class HedgerAndTold(_Market, Hedger): ...


class PlainHedgerAndTold(_Market, PlainHedger): ...


class TimedAndTraded(_Traded, Timed): ...


class PlainTimedAndTraded(_Market, PlainTimed): ...


class HedgerAndTraded(_Traded, Hedger): ...


class PlainHedgerAndTraded(_Market, PlainHedger): ...


# Latencies are drawn by the names of classes.
for plain, own in (
    (Plain, Quoter),
    (PlainBySymbol, QuoterBySymbol),
    (PlainPaced, Paced),
    (PlainHedger, Hedger),
    (PlainTimed, Timed),
    (PlainTimedBySymbol, TimedBySymbol),
    (PlainTimedAndTold, TimedAndTold),
    (PlainHedgerAndTold, HedgerAndTold),
    (PlainTimedAndTraded, TimedAndTraded),
    (PlainHedgerAndTraded, HedgerAndTraded),
    (PlainTimedAndLeans, TimedAndLeans),
    (PlainHedgerAndLeans, HedgerAndLeans),
):
    plain.__name__ = own.__name__

# Rules in Python, and compiled.
RULES: Sequence[tuple[list[type[Strategy]], list[type[Strategy]]]] = (
    ([Plain, PlainHedger], [Quoter, Hedger]),
    ([PlainBySymbol, Plain, PlainPaced], [QuoterBySymbol, Quoter, Paced]),
    ([PlainTimed, PlainTimedBySymbol], [Timed, TimedBySymbol]),
    ([PlainTimedAndTold, PlainHedgerAndTold], [TimedAndTold, HedgerAndTold]),
    ([PlainTimedAndLeans, PlainHedgerAndLeans], [TimedAndLeans, HedgerAndLeans]),
    ([PlainTimedAndTraded, PlainHedgerAndTraded], [TimedAndTraded, HedgerAndTraded]),
)
