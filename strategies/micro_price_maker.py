"""A market maker around the micro-price, over views/micro_price.sql."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, ClassVar

from orderbook import Parameter, Strategy, compiled, on_view
from orderbook.market.events import BookState

_BUY, _SELL = 0, 1
_VALID = int(BookState.VALID)


class MicroPriceMaker(Strategy):
    """Quotes both sides of each book around what the price will be rather than around the mid.

    Quotes are `half_spread` away, a share of the price, and lower or higher by `skew`, a share of the price,
    for each `volume` that it is long or short. They never cross the touch, a side is not quoted beyond a
    position of `most`, and they are cancelled while a book is not valid.

    Sources: S. Stoikov, "The micro-price: a high-frequency estimator of future prices" (Quantitative Finance,
    2018), in the form of views/micro_price.sql; M. Avellaneda, S. Stoikov, "High-frequency trading in a limit
    order book" (Quantitative Finance, 2008), whose reservation price s - q * gamma * sigma^2 * (T - t) falls
    with the inventory q: `skew` stands for gamma * sigma^2 * (T - t), and does not go to 0 towards the end of
    a day.
    """

    partition_by = "symbol"
    signal = "micro_price.lean"
    defaults: ClassVar[Mapping[str, Parameter]] = {
        "half_spread": 0.0002, "skew": 0.0001, "volume": Decimal(1), "most": Decimal(5),
    }  # fmt: skip

    @on_view("micro_price", fire="change", every="50ms")
    @compiled
    def moved(self: Any, row: Any) -> None:
        """Quotes anew, at most once in so long, for another price costs an order its place in the queue."""
        if row.multiplicity == 0 or not row.has_micro:
            self.withdraw()
        else:
            share = -(self.position / self.volume) * self.skew
            # On the tick, where a double is within a millionth of it, and not through the touch.
            middle = row.micro * 1e8 / self.tick
            low = middle * (1.0 + share - self.half_spread) + 1e-6
            high = middle * (1.0 + share + self.half_spread) - 1e-6
            self.quote(_BUY, min(self.floor(low) * self.tick, row.ask - self.tick))
            self.quote(_SELL, max(-self.floor(-high) * self.tick, row.bid + self.tick))

    @compiled
    def floor(self: Any, value: float) -> int:
        """The greatest integer that is not above it."""
        whole = int(value)
        return whole - 1 if whole > value else whole

    @compiled
    def quote(self: Any, side: int, price: int) -> None:
        """Has one order of a side at a price, unless the position is the most that it may be."""
        order = self.open_order(side)
        held = self.position if side == _BUY else -self.position
        if held + self.volume > self.most or price <= 0:
            if order != 0:
                self.cancel(order)
        elif order != 0:
            if self.open_price(order) != price:
                self.modify(order, price=price)
        elif side == _BUY:
            self.buy(self.volume, price, post_only=True)
        else:
            self.sell(self.volume, price, post_only=True)

    @compiled
    def withdraw(self: Any) -> None:
        """Cancels what stands at the venue."""
        for side in range(2):
            order = self.open_order(side)
            if order != 0:
                self.cancel(order)

    @compiled
    def on_book_state(self: Any, state: Any) -> None:
        """Takes orders out of a book that cannot be seen."""
        if state.state != _VALID:
            self.withdraw()
