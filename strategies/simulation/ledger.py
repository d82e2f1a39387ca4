"""Positions, cash, fees and profit of one strategy, by instrument, in exact integers."""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Context, Decimal

import msgspec

from orderbook.instruments import SCALE, Instruments

# More digits than a product of two DECIMAL(18, 8) and a count of executions need.
EXACT = Context(prec=76)


class Execution(msgspec.Struct, frozen=True):
    """What was traded of an instrument: lots (below 0: sold) at a price in ticks, and its fee in 1e-8."""

    instrument: int
    lots: int
    ticks: int
    fee: int


class SavedHolding(msgspec.Struct, frozen=True):
    """A holding in a checkpoint; see Holding."""

    lots: int
    cash: int
    realised: int
    fees: int
    entries: list[tuple[int, int]]


@dataclass(slots=True)
class Holding:
    """What is held of an instrument: lots, below 0 when short.

    cash and realised profit are in ticks times lots, before fees; fees in 1e-8 of the quote currency.
    entries: (lots, ticks) of what was bought or sold to hold it, the oldest first, which leaves first.
    """

    lots: int = 0
    cash: int = 0
    realised: int = 0
    fees: int = 0
    entries: deque[tuple[int, int]] = field(default_factory=deque)

    def trade(self, lots: int, ticks: int, fee: int) -> None:
        """Books an execution."""
        self.lots += lots
        self.cash -= lots * ticks
        self.fees += fee
        while lots and self.entries and (self.entries[0][0] > 0) is not (lots > 0):
            held, price = self.entries[0]
            closed = min(abs(held), abs(lots)) * (1 if held > 0 else -1)
            self.realised += closed * (ticks - price)
            lots += closed
            if closed == held:
                self.entries.popleft()
            else:
                self.entries[0] = (held - closed, price)
        if lots:
            self.entries.append((lots, ticks))


class Ledger:
    """The holdings of a strategy, as far as it has been told of its executions."""

    def __init__(self, instruments: Instruments) -> None:
        self._instruments = instruments
        self._holdings: dict[int, Holding] = {}

    def trade(self, execution: Execution) -> None:
        """Books an execution."""
        holding = self._holdings.setdefault(execution.instrument, Holding())
        holding.trade(execution.lots, execution.ticks, execution.fee)

    def __iter__(self) -> Iterator[tuple[int, Holding]]:
        """(instrument, what is held of it) of all that were traded, by index."""
        return iter(sorted(self._holdings.items()))

    def held(self, instrument: int) -> int:
        """Lots held of an instrument."""
        holding = self._holdings.get(instrument)
        return 0 if holding is None else holding.lots

    def position(self, symbol: str) -> Decimal:
        """Volume held of a symbol on all venues."""
        own = ((self._instruments[index], one.lots) for index, one in self._holdings.items())
        return sum((one.volume(lots) for one, lots in own if one.symbol == symbol), Decimal(0))

    def cash(self, instrument: int) -> Decimal:
        """Cash received and paid, in the quote currency, before fees."""
        return self.amount(instrument, self._holdings[instrument].cash)

    def realised(self, instrument: int) -> Decimal:
        """Profit of what was closed, the oldest first, before fees."""
        return self.amount(instrument, self._holdings[instrument].realised)

    def fees(self, instrument: int) -> Decimal:
        """Fees paid; below 0 when rebates are more."""
        return fee_amount(self._holdings[instrument].fees)

    def amount(self, instrument: int, value: int) -> Decimal:
        """Ticks times lots of an instrument as an amount of its quote currency."""
        one = self._instruments[instrument]
        return EXACT.multiply(EXACT.multiply(Decimal(value), one.price_unit), one.volume_unit)

    def save(self) -> dict[int, SavedHolding]:
        """The holdings by instrument."""
        return {
            index: SavedHolding(one.lots, one.cash, one.realised, one.fees, list(one.entries))
            for index, one in self._holdings.items()
        }

    def load(self, saved: dict[int, SavedHolding], indexes: Sequence[int]) -> None:
        """Goes on from `save`; `indexes` are the instruments' in this run."""
        for index, one in saved.items():
            entries = deque((lots, ticks) for lots, ticks in one.entries)
            self._holdings[indexes[index]] = Holding(one.lots, one.cash, one.realised, one.fees, entries)


def fee_amount(units: int) -> Decimal:
    """A fee in units of 1e-8 as an amount."""
    return Decimal(units).scaleb(-SCALE)
