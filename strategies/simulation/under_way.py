"""What is under way between a strategy and the simulated exchange."""

from collections.abc import Sequence
from typing import Literal

import msgspec

from strategies.orders import Fill, Order
from strategies.simulation.ledger import Execution
from strategies.simulation.saved import SavedMessage, SavedReport
from strategies.simulation.working import Working


class Message(msgspec.Struct, frozen=True):
    """What is on its way to the exchange: an order, or another volume (lots) or limit for one, or its end.

    arrival: ns. reason: why the order is cancelled.
    """

    arrival: int
    kind: Literal["order", "modify", "cancel"]
    order_id: int
    instrument: int
    order: Working | None = None
    lots: int | None = None
    limit: int | None = None
    reason: str | None = None

    def save(self) -> SavedMessage:
        """The message between two messages of the market."""
        order = None if self.order is None else self.order.save()
        return SavedMessage(
            self.arrival, self.kind, self.order_id, self.instrument, order, self.lots, self.limit, self.reason
        )

    @classmethod
    def load(cls, saved: SavedMessage, indexes: Sequence[int]) -> "Message":
        """Goes on from `save`; `indexes` are the instruments' in this run."""
        index = indexes[saved.instrument]
        order = None if saved.order is None else Working.load(saved.order, index)
        return cls(
            saved.arrival, saved.kind, saved.order_id, index, order, saved.lots, saved.limit, saved.reason  # type: ignore[arg-type]
        )


class Report(msgspec.Struct, frozen=True):
    """What is on its way back, and when (ns) the strategy can know it."""

    due: int
    order: Order
    fills: Sequence[Fill]
    executions: Sequence[Execution]

    def save(self) -> SavedReport:
        """The report between two messages of the market."""
        return SavedReport(self.due, self.order, list(self.fills), list(self.executions))

    @classmethod
    def load(cls, saved: SavedReport, indexes: Sequence[int]) -> "Report":
        """Goes on from `save`; `indexes` are the instruments' in this run."""
        executions = [
            Execution(indexes[one.instrument], one.lots, one.ticks, one.fee) for one in saved.executions
        ]
        return cls(saved.due, saved.order, saved.fills, executions)
