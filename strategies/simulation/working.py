"""One order at the simulated exchange, in ticks and lots."""

from dataclasses import dataclass, field

from orderbook.events import Side
from strategies.orders import Order
from strategies.simulation.board import Place
from strategies.simulation.saved import SavedOrder


@dataclass(slots=True)
class Working:
    """An order that is checked; `limit` None for a market order, `left` is still to be filled.

    place: where it stands, once it rests.
    """

    order: Order
    instrument: int
    limit: int | None
    left: int
    ioc: bool = False
    post_only: bool = False
    place: Place = field(init=False, repr=False, compare=False)

    @property
    def side(self) -> Side:
        """The side of the book where it rests."""
        return Side.BID if self.order.side == "buy" else Side.ASK

    @property
    def key(self) -> int:
        """The price, greater where it is better for who takes it; of an order that rests."""
        assert self.limit is not None
        return self.limit if self.order.side == "buy" else -self.limit

    def save(self) -> SavedOrder:
        """The order between two messages."""
        place = getattr(self, "place", None)
        ahead, places = (None, (0, 0, 0, 0)) if place is None else (place.ahead, place.numbers)
        front, level, traded, requeue = places
        return SavedOrder(
            self.order, self.instrument, self.limit, self.left, self.ioc, self.post_only,
            ahead, front, level, traded, bool(requeue),
        )  # fmt: skip

    @classmethod
    def load(cls, saved: SavedOrder, instrument: int) -> "Working":
        """Goes on from `save`, with the index of its instrument in this run."""
        found = cls(saved.order, instrument, saved.limit, saved.left, saved.ioc, saved.post_only)
        if saved.limit is not None:
            found.place = Place(found.key, found.left)
            found.place.stand(saved.ahead, saved.front, saved.level, saved.traded)
            found.place.row["requeue"] = saved.requeue
        return found
