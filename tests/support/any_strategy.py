"""Strategies that ask for anything, rightly and not, wherever they are called; what, follows from a seed.

What they were told and knew is in `known`. Each asks at changes of the touch, and at what it is named for.
"""

from collections.abc import Callable, Sequence
from decimal import Decimal
from random import Random
from typing import Any, ClassVar

import numpy as np

from orderbook.market.instruments import Instrument
from orderbook.strategies.strategy import Strategy, compiled, on_timer, on_view

# What users give for prices and volumes by mistake, and numbers in unusual forms.
UNUSUAL: Sequence[Any] = (
    0, -1, "x", "", float("nan"), float("inf"), "1e400", Decimal("1e-12"), 10**30, None, "0.05", "1e2", " 1",
    "1_0", Decimal("-0"), np.float64(0.3), np.int64(1),
)  # fmt: skip


class Anything(Strategy):
    """Asks at changes of the touch."""

    reads = ("all_positions", "all_orders")
    seed: ClassVar[int] = 0

    def __init__(self) -> None:
        self.random = Random(f"{type(self).seed} {self.name} {self.partition}")
        self.known: list[Any] = []
        self.last = 0
        self.errs, self.busy = self.random.random() < 0.5, self.random.choice([0.1, 0.3, 0.5])

    @on_view("touch", fire="change")
    def moved(self, event: Any) -> None:
        row = event.new
        if row is not None:
            self.asks(row.symbol, row.venue, row.ask if row.bid is None else row.bid)

    def asks(self, symbol: str, venue: str, price: Decimal | None) -> None:
        """Asks for some things, of an instrument that trades about there."""
        one = self.instrument(symbol, venue)
        while price is not None and self.random.random() < self.busy:
            self.random.choice(_ACTIONS)(self, one, price)
        if self.random.random() < 0.2:
            rows = [sum(row.strategy == self.name for row in self.view(name).values()) for name in self.reads]
            self.known.append((self.now, symbol, self.position(symbol), rows))

    def order(self, one: Instrument, price: Decimal, terms: bool = False) -> None:
        random = self.random
        asked: dict[str, Any] = {
            "stop": lambda: self.price(one, price), "take_profit": lambda: self.price(one, price),
            "stop_loss": lambda: self.price(one, price), "reduce_only": lambda: True,
            "trail": lambda: self.number(one.tick * random.choice([1, 2, 5])),
            "display": lambda: self.number(one.lot * random.choice([1, 2, 3])),
            "good_until": lambda: self.now + random.choice([0, 1, 5, 20, 40]) * 10**6,
            "oco": lambda: random.choice([self.last, random.randrange(1, self.last + 3)]),
        }  # fmt: skip
        given = {name: make() for name, make in asked.items() if terms and random.random() < 0.2}
        lasts = random.choice(["gtc", "gtc", "gtc", "ioc", "fok", "gtd", *["day"] * self.errs])
        side: Callable[..., int] = random.choice([self.buy, self.sell])
        limit = None if random.random() < 0.3 else self.price(one, price)
        self.last = side(
            one.symbol, self.volume(one), limit, one.venue, time_in_force=lasts,
            post_only=random.random() < 0.3, **given,
        )  # fmt: skip

    def order_with_terms(self, one: Instrument, price: Decimal) -> None:
        self.order(one, price, True)

    def change(self, one: Instrument, price: Decimal) -> None:
        given: dict[str, Any] = {
            "volume": self.volume(one), "price": self.price(one, price), "stop": self.price(one, price),
        }  # fmt: skip
        self.modify(self.some(), **{name: own for name, own in given.items() if self.random.random() < 0.5})

    def end(self, one: Instrument, price: Decimal) -> None:
        self.cancel(self.some())

    def holds(self, one: Instrument, price: Decimal) -> None:
        self.hold(one.symbol, one.lot * self.random.randrange(-4, 5), one.venue)

    def some(self) -> int:
        """The id of an order, of one that has ended, or of none."""
        unusual = [-1, 10**30, 10**6] * self.errs
        return self.random.choice([self.last, self.random.randrange(self.last + 3), *unusual[:1]])

    def volume(self, one: Instrument) -> Any:
        return self.number(one.lot * self.random.choice([1, 1, 2, 3, 5, 9, 20]))

    def price(self, one: Instrument, about: Decimal) -> Any:
        off = one.tick / 3 if self.random.random() < 0.04 else 0
        return self.number(about + self.random.choice([-4, -2, -1, 0, 0, 1, 2, 4]) * one.tick + off)

    def number(self, value: Decimal) -> Any:
        forms: Any = [value, value, str(value), float(value), f"{value:f}00", value.normalize()]
        return self.random.choice([*forms, *[self.random.choice(UNUSUAL)] * self.errs])


_ACTIONS: Sequence[Callable[[Anything, Instrument, Decimal], None]] = (
    Anything.order, Anything.order, Anything.order_with_terms, Anything.order_with_terms, Anything.change,
    Anything.change, Anything.end, Anything.holds,
)  # fmt: skip


class Paced(Anything):
    """Has timers, and rows that wait, too."""

    @on_timer("11ms")
    def beats(self) -> None:
        self.known.append(self.now)
        if self.last % 2 == 0:
            self.cancel(self.last)

    @on_view("touch", when="imbalance > 0.2", every="9ms")
    def late(self, event: Any) -> None:
        self.asks(event.key[1], event.key[0], event.new.ask)


class Filled(Anything):
    """Is told of its fills."""

    def on_fill(self, fill: Any) -> None:
        self.known.append((self.now, fill))
        self.asks(fill.symbol, fill.venue, fill.price)


class Told(Anything):
    """Is told of the market."""

    def on_trade(self, trade: Any) -> None:
        self.asks(trade.symbol, trade.venue, trade.price)

    def on_book_state(self, state: Any) -> None:
        self.known.append((self.now, state))
        self.cancel(self.last)


class Followed(Filled, Told, Paced):
    """Is told of everything but its orders."""


class Updated(Filled):
    """Is told of its orders, too."""

    def on_order_update(self, order: Any) -> None:
        self.known.append((self.now, order))


class Compiled(Anything):
    """Has a compiled method that looks at orders and asks for others."""

    steps: int = 0
    mine: int = 0

    @on_view("touch", fire="change")
    @compiled
    def looks(self: Any, row: Any) -> None:
        self.steps += 1
        step = self.steps * 7 % 11
        if row.has_bid and row.has_ask:
            price = row.bid + (step % 5 - 2) * self.tick
            if step == 0:
                self.mine = self.buy(self.lot * 3, price, post_only=self.steps % 2 == 0)
            elif step == 1:
                self.mine = self.sell(2 * self.lot, row.ask, display=self.lot, good_until=self.now + 10**7)
            elif step == 2:
                self.cancel(self.mine)
            elif step == 3:
                self.modify(self.mine, volume=self.lot * 4, price=price)
            elif step == 4:
                self.hold(self.lot * (self.steps % 5 - 2))
            elif step == 5:
                self.mine = self.sell(self.lot, price, take_profit=price - self.tick, stop_loss=row.ask)
            elif step == 6:
                self.cancel(self.open_order(0))
            elif step == 7 and self.is_open(self.mine):
                self.buy(self.lot, self.open_price(self.mine), oco=self.mine)
            elif step == 8:
                self.mine = self.buy(self.lot, stop=row.ask + self.tick)


class CompiledFilled(Compiled, Filled):
    """Is told of its fills in Python."""


class CompiledTold(Compiled):
    """Is told of its orders and of the market by what is compiled."""

    sums: int = 0

    @compiled
    def on_order_update(self: Any, order: Any) -> None:
        self.sums = (self.sums * 31 + order.status + order.id) % 1_000_003

    @compiled
    def on_fill(self: Any, fill: Any) -> None:
        if fill.order_id % 3 == 0:
            self.mine = self.sell(self.lot, fill.price + self.tick)

    @compiled
    def on_trade(self: Any, trade: Any) -> None:
        self.sums += 1

    @compiled
    def on_book_state(self: Any, state: Any) -> None:
        self.cancel(self.mine)

    @on_timer("7ms")
    @compiled
    def beats(self: Any) -> None:
        self.modify(self.mine, volume=300_000_000)


KINDS: Sequence[type[Anything]] = (
    Anything, Paced, Filled, Told, Followed, Updated, Compiled, CompiledFilled, CompiledTold,
)  # fmt: skip


def drawn_strategies(random: Random, seed: int) -> list[type[Anything]]:
    """One to three of them, some of which are partitioned."""
    found = []
    for number in range(random.choice([1, 2, 3])):
        kind, by = random.choice(KINDS), random.choice([None, "symbol", "venue"])
        body = {"seed": seed, "partition_by": by, "__module__": __name__}
        found.append(type(f"{kind.__name__}{number}", (kind,), body))
    return found
