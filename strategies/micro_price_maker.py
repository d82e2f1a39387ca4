"""A market maker around the micro-price, over views/micro_price.sql."""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import ClassVar

from orderbook import BookStateChange, Order, OrderSide, Parameter, Strategy, ViewEvent, ViewRow, on_view

_SIDES: tuple[OrderSide, ...] = ("buy", "sell")
_DONE = ("filled", "cancelled", "refused")


@dataclass(slots=True)
class Quote:
    """An order that stands, as far as the strategy knows."""

    id: int
    price: Decimal


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
        "half_spread": Decimal("0.0002"), "skew": Decimal("0.0001"), "volume": 1, "most": 5,
    }  # fmt: skip

    def __init__(self) -> None:
        self.quotes: dict[tuple[str, OrderSide], Quote] = {}

    @on_view("micro_price", fire="change", every="50ms")
    def moved(self, event: ViewEvent) -> None:
        """Quotes anew, at most once in so long, for another price costs an order its place in the queue."""
        venue, symbol = map(str, event.key)
        row = event.new
        if row is None or row.micro is None:
            self.withdraw(venue)
            return
        held = self.position(symbol) / self.parameters["volume"]
        for side in _SIDES:
            self.quote(venue, symbol, side, self.price(row, side, held))

    def price(self, row: ViewRow, side: OrderSide, held: Decimal) -> Decimal:
        """Where to quote: on the tick, and not through the touch."""
        tick = self.instrument(row.symbol, row.venue).tick
        share = -held * self.parameters["skew"]
        share += -self.parameters["half_spread"] if side == "buy" else self.parameters["half_spread"]
        wanted: Decimal = Decimal(repr(row.micro)) * (1 + share) / tick
        bid: Decimal = row.bid
        ask: Decimal = row.ask
        if side == "buy":
            return min(wanted.to_integral_value(ROUND_FLOOR) * tick, ask - tick)
        return max(wanted.to_integral_value(ROUND_CEILING) * tick, bid + tick)

    def quote(self, venue: str, symbol: str, side: OrderSide, price: Decimal) -> None:
        """Has one order of a side at a price, unless the position is the most that it may be."""
        position, volume = self.position(symbol), self.parameters["volume"]
        standing = self.quotes.get((venue, side))
        if (position if side == "buy" else -position) + volume > self.parameters["most"] or price <= 0:
            if standing is not None:
                self.cancel(standing.id)
        elif standing is None:
            place = self.buy if side == "buy" else self.sell
            self.quotes[venue, side] = Quote(place(symbol, volume, price, venue, post_only=True), price)
        elif standing.price != price:
            self.modify(standing.id, price=price)
            standing.price = price

    def withdraw(self, venue: str) -> None:
        """Cancels what stands on a venue."""
        for (where, _), standing in self.quotes.items():
            if where == venue:
                self.cancel(standing.id)

    def on_order_update(self, order: Order) -> None:
        """Forgets orders that are done, so that the next change quotes anew."""
        standing = self.quotes.get((order.venue, order.side))
        if standing is None or standing.id != order.id:
            return
        if order.status in _DONE:
            del self.quotes[order.venue, order.side]
        elif order.reason is not None and order.price is not None:
            # It could not be modified, and is where it was.
            standing.price = order.price

    def on_book_state(self, state: BookStateChange) -> None:
        """Takes orders out of a book that cannot be seen."""
        if state.state != "valid":
            self.withdraw(state.venue)
