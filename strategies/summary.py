"""What became of each strategy, for the end of a run."""

from dataclasses import dataclass, replace
from decimal import Decimal


@dataclass(frozen=True, slots=True)
class PositionSummary:
    """One instrument: volume held (negative: short), cash paid and received, both valued at `mark`.

    mark: the mid price now; None, as is `profit`, where a side of the book is empty. fees: paid, below 0 when
    rebates are more; cash is before fees, profit after them. realised: profit of what was closed, the oldest
    first, before fees. All are in the quote currency.
    """

    venue: str
    symbol: str
    position: Decimal
    cash: Decimal
    mark: Decimal | None
    profit: Decimal | None
    fees: Decimal = Decimal(0)
    realised: Decimal = Decimal(0)

    @property
    def unrealised(self) -> Decimal | None:
        """Profit of what is held, at the mark; None where there is none."""
        return None if self.profit is None else self.profit + self.fees - self.realised

    def joined(self, other: "PositionSummary") -> "PositionSummary":
        """Two positions in the instrument, valued at the one mark."""
        profits = (self.profit, other.profit)
        profit = None if None in profits else sum((p for p in profits if p is not None), Decimal(0))
        position, cash = self.position + other.position, self.cash + other.cash
        fees, realised = self.fees + other.fees, self.realised + other.realised
        return replace(self, position=position, cash=cash, profit=profit, fees=fees, realised=realised)


@dataclass(frozen=True, slots=True)
class StrategySummary:
    """One strategy. `orders` counts all it placed, `refused` those that were refused; `failure` says why
    it was disabled, in a line, and is None where it was not."""

    name: str
    callbacks: int
    orders: int
    refused: int
    fills: int
    positions: tuple[PositionSummary, ...]
    failure: str | None

    @property
    def profit(self) -> Decimal | None:
        """Sum over positions; None where one cannot be valued."""
        profits = [p.profit for p in self.positions]
        return None if None in profits else sum((p for p in profits if p is not None), Decimal(0))

    def joined(self, other: "StrategySummary") -> "StrategySummary":
        """This and another instance of the strategy together; positions in one instrument are added up."""
        positions = {(p.venue, p.symbol): p for p in self.positions}
        for p in other.positions:
            name = (p.venue, p.symbol)
            positions[name] = positions[name].joined(p) if name in positions else p
        return StrategySummary(
            self.name,
            self.callbacks + other.callbacks,
            self.orders + other.orders,
            self.refused + other.refused,
            self.fills + other.fills,
            tuple(positions.values()),
            self.failure or other.failure,
        )
