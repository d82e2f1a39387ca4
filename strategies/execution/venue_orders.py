"""Orders at a venue and its side of an account, as checkpoints keep them."""

from decimal import Decimal

import msgspec

from orderbook.strategies.execution.account import Order, SavedHolding
from orderbook.strategies.execution.venue_reports import Rules, VenueTrade


class SavedVenue(msgspec.Struct, frozen=True):
    """A VenueAccount in a checkpoint."""

    session: str
    rules: list[Rules]
    reconciled: dict[str, int]
    seen: dict[str, list[int]]
    orphans: list[VenueTrade]
    outside: dict[str, str]
    held: dict[str, tuple[str, int]]
    before: dict[str, str]
    begun: dict[str, int]
    problem: str | None


class VenueOrder(msgspec.Struct):
    """An order at a venue: as the relation has it, and what its row does not say.

    time: of the last state, ms. ended: the status that the venue has ended it with, "" before; `due` is how
    much of it was filled by then. why: the reason of our own cancelling, None where there was none.
    """

    instrument: int
    row: Order
    client_id: str
    post_only: bool
    order_id: int = 0
    time: int = 0
    ended: str = ""
    due: Decimal = Decimal(0)
    cancelling: bool = False
    why: str | None = None


class SavedVenueClient(msgspec.Struct, frozen=True):
    """A VenueClient in a checkpoint; `orders` and `ended` are those that are open, and were lately."""

    orders: list[VenueOrder]
    ended: list[VenueOrder]
    holdings: dict[int, SavedHolding]
    fees: dict[str, str]
    sent: list[int]
    worth: str = "0"
    peak: str = "0"
