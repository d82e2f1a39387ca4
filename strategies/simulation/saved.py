"""What a checkpoint has of one strategy's orders and positions; instruments by their indexes in the run
that wrote it."""

import msgspec

from strategies.orders import Fill, Order
from strategies.simulation.ledger import Execution, SavedHolding


class SavedOrder(msgspec.Struct, frozen=True):
    """An order in ticks and lots; see `working.Working`."""

    order: Order
    instrument: int
    limit: int | None
    left: int
    ioc: bool
    post_only: bool
    ahead: dict[int, int] | None
    front: int
    level: int
    traded: int
    requeue: bool


class SavedMessage(msgspec.Struct, frozen=True):
    """A message to the exchange that has not arrived; see `under_way.Message`."""

    arrival: int
    kind: str
    order_id: int
    instrument: int
    order: SavedOrder | None
    lots: int | None
    limit: int | None
    reason: str | None


class SavedReport(msgspec.Struct, frozen=True):
    """What the strategy has not been told yet; see `under_way.Report`."""

    due: int
    order: Order
    fills: list[Fill]
    executions: list[Execution]


class SavedAccount(msgspec.Struct, frozen=True):
    """One strategy's side of the exchange, and its own.

    `taken` are (instrument, side, price, lots), `executes` the instruments whose feeds tell executions of
    orders, `known` the orders that are open as far as was told, with their instruments, `numbers` how many
    messages were sent, `arrivals` by instrument the last arrival, `due` that of the last report, `sent` the
    times of the orders of the last second, `worth` and `peak` the account's profit at the last look, and the
    most of it, in the quote currency.
    """

    resting: list[SavedOrder]
    taken: list[tuple[int, int, int, int]]
    executes: list[int]
    messages: list[SavedMessage]
    reports: list[SavedReport]
    known: list[tuple[int, Order]]
    holdings: dict[int, SavedHolding]
    numbers: int
    arrivals: dict[int, int]
    due: int
    sent: list[int]
    worth: str
    peak: str
