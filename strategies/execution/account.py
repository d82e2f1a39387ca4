"""A strategy's account: its orders and fills, its positions, and what became of it at the end of a run.

Orders and fills are as strategies and the relations `orders` and `fills` see them. Positions, cash, fees and
profit are kept by instrument, in exact integers. A checkpoint has orders and positions by the indexes that
instruments have in the run that wrote it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from typing import Any, Literal

import msgspec

from orderbook.market.instruments import SCALE, Instruments
from orderbook.strategies.execution.contract_money import ContractMoney

OrderSide = Literal["buy", "sell"]
Liquidity = Literal["maker", "taker"]
OrderStatus = Literal["sent", "resting", "filled", "cancelled", "refused", "waiting"]
# Decimal places of rates of funding.
RATE_SCALE = 12
# Of orders that are not done.
OPEN = ("sent", "resting", "waiting")


class Order(msgspec.Struct, frozen=True):
    """An order as it stands: a row of the relation `orders`, whose key is (strategy, id).

    ts: ns of its last change, by the event clock. id: the strategy's own count, from 1. venue: "" where
    none was found. volume, price, filled: in the relation's units; volume is 0 and price None where what
    was asked for is not one (the reason quotes it); price is None for a market order. status: "sent" while
    the exchange has not answered, "waiting" for its stop, or for the order that it protects to be done.
    reason: why it was refused or cancelled, or could not be modified.
    """

    ts: int
    strategy: str
    id: int
    venue: str
    symbol: str
    side: OrderSide
    volume: Decimal
    price: Decimal | None
    filled: Decimal
    status: OrderStatus
    reason: str | None = None


class Fill(msgspec.Struct, frozen=True):
    """An execution of an order: a row of the relation `fills`. Units are those of `Order`.

    fee: in the currency of its settlement (of an inverse contract the base), below 0 a rebate. liquidity:
    "maker" where the order rested, else "taker".
    """

    ts: int
    strategy: str
    order_id: int
    venue: str
    symbol: str
    side: OrderSide
    volume: Decimal
    price: Decimal
    fee: Decimal = Decimal(0)
    liquidity: Liquidity = "taker"


class OrderUpdate(msgspec.Struct, frozen=True):
    """One change of an order: as it was (None: new), as it is, and the fills that changed it."""

    old: Order | None
    new: Order
    fills: tuple[Fill, ...] = ()


class Position(msgspec.Struct, frozen=True):
    """What a strategy holds of an instrument: a row of the relation `positions`, from its first fill on.

    volume: in the relation's units, below 0 when short. fees: all that was paid, as of fills.
    """

    strategy: str
    venue: str
    symbol: str
    volume: Decimal = Decimal(0)
    fees: Decimal = Decimal(0)

    def after(self, fill: Fill) -> "Position":
        """With a fill more."""
        volume = fill.volume if fill.side == "buy" else -fill.volume
        return Position(self.strategy, self.venue, self.symbol, self.volume + volume, self.fees + fill.fee)


class FundingPayment(msgspec.Struct, frozen=True):
    """Funding of a position: a row of the table `payments` of a backtest.

    ts: when it was due at the exchange, ns. volume: what was held, below 0 when short. price: by which it was
    valued, the mark price or the mid. rate: what longs pay. amount: what was received, below 0 paid, in the
    currency of the settlement.
    """

    ts: int
    strategy: str
    venue: str
    symbol: str
    volume: Decimal
    price: Decimal
    rate: Decimal
    amount: Decimal


ORDER_COLUMNS = Order.__struct_fields__
FILL_COLUMNS = Fill.__struct_fields__
POSITION_COLUMNS = Position.__struct_fields__


def row_of(value: Order | Fill | Position | FundingPayment) -> dict[str, Any]:
    """The row of a relation or a table that it is."""
    return msgspec.structs.asdict(value)


class Execution(msgspec.Struct, frozen=True):
    """What was traded of an instrument: lots (below 0: sold) at a price in ticks, and its fee in 1e-8."""

    instrument: int
    lots: int
    ticks: int
    fee: int


class Holding(msgspec.Struct):
    """What is held of an instrument: lots, below 0 when short.

    cash and realised profit are in worth (see ContractMoney) times lots, before fees; fees and funding, what
    was received, in 1e-8 of the currency. entries: (lots, worth) of what was bought or sold to hold it, the
    oldest first, which leaves first.
    """

    lots: int = 0
    cash: int = 0
    realised: int = 0
    fees: int = 0
    entries: list[tuple[int, int]] = []
    funding: int = 0

    def trade(self, lots: int, worth: int, fee: int) -> None:
        """Books an execution at a price of this worth."""
        self.lots += lots
        self.cash -= lots * worth
        self.fees += fee
        while lots and self.entries and (self.entries[0][0] > 0) is not (lots > 0):
            held, price = self.entries[0]
            closed = min(abs(held), abs(lots)) * (1 if held > 0 else -1)
            self.realised += closed * (worth - price)
            lots += closed
            if closed == held:
                del self.entries[0]
            else:
                self.entries[0] = (held - closed, price)
        if lots:
            self.entries.append((lots, worth))


class SavedHolding(msgspec.Struct, frozen=True):
    """A Holding in a checkpoint: what may need more than 64 bits is text."""

    lots: int
    cash: str | int
    realised: str | int
    fees: int
    entries: list[tuple[int, int]]
    funding: int = 0


class Ledger:
    """The holdings of a strategy, as far as it has been told of its executions."""

    def __init__(self, instruments: Instruments) -> None:
        self._instruments = instruments
        self._holdings: dict[int, Holding] = {}
        self._moneys: dict[int, ContractMoney] = {}

    def money(self, instrument: int) -> ContractMoney:
        """What an instrument is worth."""
        found = self._moneys.get(instrument)
        if found is None:
            found = self._moneys[instrument] = ContractMoney(self._instruments[instrument])
        return found

    def trade(self, execution: Execution) -> None:
        """Books an execution."""
        holding = self._holdings.setdefault(execution.instrument, Holding())
        money = self.money(execution.instrument)
        holding.trade(execution.lots, money.worth(execution.ticks), execution.fee)

    def pay(self, instrument: int, lots: int, price: int, rate: int) -> int:
        """Books funding of so many lots, at a price in 1e-8 and a rate in 1e-12; what is received, 1e-8,
        rounded half to even."""
        holding = self._holdings.setdefault(instrument, Holding())
        amount = -round(self.money(instrument).value_at(lots, price) * Fraction(rate, 10**RATE_SCALE))
        holding.funding += amount
        return amount

    def __iter__(self) -> Iterator[tuple[int, Holding]]:
        """(instrument, what is held of it) of all that were traded, by index."""
        return iter(sorted(self._holdings.items()))

    def has(self, instrument: int) -> bool:
        """Whether an instrument was traded."""
        return instrument in self._holdings

    def held(self, instrument: int) -> int:
        """Lots held of an instrument."""
        holding = self._holdings.get(instrument)
        return 0 if holding is None else holding.lots

    def position(self, symbol: str) -> Decimal:
        """Volume held of a symbol on all venues."""
        found = Decimal(0)
        for index, holding in self._holdings.items():
            one = self._instruments[index]
            if one.symbol == symbol:
                found += one.volume(holding.lots)
        return found

    def cash(self, instrument: int) -> Decimal:
        """Cash received and paid, in the settlement currency, before fees."""
        return self.amount(instrument, self._holdings[instrument].cash)

    def realised(self, instrument: int) -> Decimal:
        """Profit of what was closed, the oldest first, before fees."""
        return self.amount(instrument, self._holdings[instrument].realised)

    def fees(self, instrument: int) -> Decimal:
        """Fees paid; below 0 when rebates are more."""
        return fee_amount(self._holdings[instrument].fees)

    def funding(self, instrument: int) -> Decimal:
        """Funding received; below 0 paid."""
        return fee_amount(self._holdings[instrument].funding)

    def amount(self, instrument: int, value: int) -> Decimal:
        """Worth times lots of an instrument as an amount of its settlement currency."""
        return self.money(instrument).amount(value)

    def save(self) -> dict[int, SavedHolding]:
        """The holdings by instrument."""
        return {
            index: SavedHolding(
                one.lots, str(one.cash), str(one.realised), one.fees, [*one.entries], one.funding
            )
            for index, one in self
        }

    def load(self, saved: Mapping[int, SavedHolding], indexes: Sequence[int]) -> None:
        """Goes on from `save`; `indexes` are the instruments' in this run."""
        for index, one in saved.items():
            own = Holding(one.lots, int(one.cash), int(one.realised), one.fees, [*one.entries], one.funding)
            self._holdings[indexes[index]] = own


def fee_amount(units: int) -> Decimal:
    """A fee, or funding, in units of 1e-8 as an amount."""
    return Decimal(units).scaleb(-SCALE)


@dataclass(frozen=True, slots=True)
class PositionSummary:
    """One instrument: volume held (negative: short), cash paid and received, both valued at `mark`.

    mark: the mid price now; None, as is `profit`, where a side of the book is empty. fees: paid, below 0 when
    rebates are more; funding: received, below 0 paid; cash is before both, profit after them. realised:
    profit of what was closed, the oldest first, before both. All are in the quote currency, of an inverse
    contract in the base, `currency`, "" where that is not known. size: what one of the volumes is.
    """

    venue: str
    symbol: str
    position: Decimal
    cash: Decimal
    mark: Decimal | None
    profit: Decimal | None
    fees: Decimal = Decimal(0)
    realised: Decimal = Decimal(0)
    currency: str = ""
    inverse: bool = False
    size: Decimal = Decimal(1)
    funding: Decimal = Decimal(0)

    @property
    def quoted_profit(self) -> Decimal | None:
        """The profit in the quote currency, at the mark; None where it is not known."""
        if self.profit is None or self.mark is None:
            return self.profit
        return self.profit * self.mark if self.inverse else self.profit

    @property
    def unrealised(self) -> Decimal | None:
        """Profit of what is held, at the mark; None where there is none."""
        return None if self.profit is None else self.profit + self.fees - self.funding - self.realised

    def joined(self, other: "PositionSummary") -> "PositionSummary":
        """Two positions in the instrument, valued at the one mark."""
        profits = (self.profit, other.profit)
        profit = None if None in profits else sum((p for p in profits if p is not None), Decimal(0))
        position, cash = self.position + other.position, self.cash + other.cash
        fees, realised = self.fees + other.fees, self.realised + other.realised
        funding = self.funding + other.funding
        return replace(
            self, position=position, cash=cash, profit=profit, fees=fees, realised=realised, funding=funding
        )


@dataclass(frozen=True, slots=True)
class StrategySummary:
    """One strategy. `orders` counts all it placed, `refused` those that were refused; `failure` says why
    it was disabled, in a line, and is None where it was not. refusal: the time (ns) and id of the first that
    was refused, and why. too_small: how often a row of a strategy in SQL asked for less than a lot.
    liquidations: how often positions were closed for want of margin."""

    name: str
    callbacks: int
    orders: int
    refused: int
    fills: int
    positions: tuple[PositionSummary, ...]
    failure: str | None
    refusal: tuple[int, int, str] | None = None
    too_small: int = 0
    liquidations: int = 0

    @property
    def profit(self) -> Decimal | None:
        """Sum over positions, in the quote currency where some are not inverse contracts, or these are of
        several currencies; None where one cannot be valued."""
        coins = {p.currency if p.inverse else None for p in self.positions}
        profits = [p.quoted_profit if len(coins) > 1 else p.profit for p in self.positions]
        return None if None in profits else sum((p for p in profits if p is not None), Decimal(0))

    @property
    def currency(self) -> str:
        """What `profit` is in, "" where that is not known, or several are added as they are."""
        quoted = len({p.currency if p.inverse else None for p in self.positions}) > 1
        found = {"".join(p.symbol.split("-")[1:2]) if quoted else p.currency for p in self.positions}
        return found.pop() if len(found) == 1 else ""

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
            min((one for one in (self.refusal, other.refusal) if one is not None), default=None),
            self.too_small + other.too_small,
            self.liquidations + other.liquidations,
        )
