"""One order at the simulated exchange, in ticks and lots."""

from dataclasses import dataclass

from orderbook.events import Side
from strategies.orders import Order
from strategies.simulation.saved import SavedOrder


@dataclass(slots=True)
class Working:
    """An order that is checked; `limit` None for a market order, `left` is still to be filled.

    Its place in the queue of its price, while it rests:
    ahead: by id the lots of the orders before it; None in an L2 book, where they are not known.
    front: lots before it. level: lots displayed at the price at the last look, of which `traded` have traded
        since. requeue: the book was lost, and its place with it.
    hit: lots that the message at hand has filled.
    """

    order: Order
    instrument: int
    limit: int | None
    left: int
    ioc: bool = False
    post_only: bool = False
    ahead: dict[int, int] | None = None
    front: int = 0
    level: int = 0
    traded: int = 0
    requeue: bool = False
    hit: int = 0

    @property
    def side(self) -> Side:
        """The side of the book where it rests."""
        return Side.BID if self.order.side == "buy" else Side.ASK

    @property
    def open(self) -> int:
        """Lots that the message at hand can still fill."""
        return self.left - self.hit

    @property
    def key(self) -> int:
        """The price, greater where it is better for who takes it; of an order that rests."""
        assert self.limit is not None
        return self.limit if self.order.side == "buy" else -self.limit

    def fill(self, lots: int) -> int:
        """Fills up to so many lots by the message at hand; how many."""
        filled = min(lots, self.left - self.hit)
        self.hit += filled
        return filled

    def save(self) -> SavedOrder:
        """The order between two messages."""
        return SavedOrder(
            self.order, self.instrument, self.limit, self.left, self.ioc, self.post_only,
            None if self.ahead is None else dict(self.ahead),
            self.front, self.level, self.traded, self.requeue,
        )  # fmt: skip

    @classmethod
    def load(cls, saved: SavedOrder, instrument: int) -> "Working":
        """Goes on from `save`, with the index of its instrument in this run."""
        ahead = None if saved.ahead is None else dict(saved.ahead)
        return cls(
            saved.order, instrument, saved.limit, saved.left, saved.ioc, saved.post_only,
            ahead, saved.front, saved.level, saved.traded, saved.requeue,
        )  # fmt: skip
