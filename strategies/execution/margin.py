"""Margin of a simulated account: how much it may hold of its equity, and when it has to give that up.

All of an account counts together, in the quote currency, as under cross margin: its equity is its balance and
what it has earned, with what it holds at the mark price told last, where there is none at the mid. Sources:
Binance, "Leverage and margin of USD-M futures"; Bybit, "Cross margin mode".
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from orderbook.market.instruments import Instruments
from orderbook.strategies.execution.account import Ledger, Order, OrderSide, Position
from orderbook.strategies.execution.contract_money import EXACT, ContractMoney
from orderbook.strategies.execution.risk import Exposure
from orderbook.strategies.execution.venue_model import MarginOptions

_ZERO = Decimal(0)


@dataclass(frozen=True, slots=True)
class Equity:
    """What an account is worth, what all that it holds is, and by instrument what it would hold at most were
    what it has open on either side filled; each of these above 0."""

    worth: Decimal
    held: Decimal
    values: Mapping[int, Decimal]


class Margin:
    """The margin of one account.

    price_of: the price by which positions of an instrument are valued; None where there is none. orders:
    those that are open, as far as was told, with their instruments, and whether each only reduces a position.
    """

    def __init__(
        self,
        options: MarginOptions,
        ledger: Ledger,
        instruments: Instruments,
        price_of: Callable[[int], Decimal | None],
        orders: Callable[[], Iterable[tuple[int, Order, bool]]],
    ) -> None:
        self._options, self._ledger, self._instruments = options, ledger, instruments
        self._price_of, self._orders = price_of, orders
        # Whether the equity was below what keeps the positions, at the last look.
        self._breached = False

    def refusal(self, instrument: int, exposure: Exposure) -> str | None:
        """Why an order may not be sent to an instrument; None where it may."""
        equity, price = self._equity(), exposure.price
        price = self._price_of(instrument) if price is None else price
        if equity is None or price is None:
            return "what the account would hold has no price, which margin needs"
        value = _value(self._ledger.money(instrument), exposure.worst, price)
        whole = sum((own for index, own in equity.values.items() if index != instrument), value)
        leverage = self._options.leverage
        if whole <= EXACT.multiply(leverage, equity.worth):
            return None
        return (
            f"positions could be worth {whole.normalize():f}, above leverage {leverage.normalize():f} "
            f"of an equity of {equity.worth.normalize():f}"
        )

    def look(self) -> None:
        """Looks at what the account is worth after a message."""
        equity = self._equity()
        self._breached = (
            equity is not None
            and equity.held > 0
            and equity.worth < EXACT.multiply(self._options.maintenance, equity.held)
        )

    def to_close(self, strategy: str) -> Sequence[Position]:
        """What is to be closed now, and is not being closed."""
        if not self._breached:
            return ()
        closing = {
            index
            for index, order, reduces in self._orders()
            if reduces and order.price is None and order.status != "waiting"
        }
        return [
            Position(strategy, one.venue, one.symbol, one.volume(holding.lots))
            for index, holding in self._ledger
            if holding.lots and index not in closing
            for one in (self._instruments[index],)
        ]

    def _equity(self) -> Equity | None:
        """The account now; None where a price is not known that this needs."""
        waiting: dict[int, dict[OrderSide, Decimal]] = {}
        for index, order, reduces in self._orders():
            if not reduces:
                own = waiting.setdefault(index, {"buy": _ZERO, "sell": _ZERO})
                own[order.side] += order.volume - order.filled
        ledger, worth, held = self._ledger, self._options.balance, _ZERO
        values, traded = dict[int, Decimal](), dict(ledger)
        for index in dict.fromkeys((*traded, *waiting)):
            money, price, volume, earned = ledger.money(index), self._price_of(index), _ZERO, _ZERO
            if index in traded:
                volume = self._instruments[index].volume(traded[index].lots)
                paid = EXACT.subtract(ledger.fees(index), ledger.funding(index))
                earned = EXACT.subtract(ledger.cash(index), paid)
            if price is None:
                if volume or (earned and money.inverse):
                    return None
                worth = EXACT.add(worth, earned)
                continue
            earned = EXACT.add(earned, money.at(volume, price)) if volume else earned
            worth = EXACT.add(worth, EXACT.multiply(earned, price) if money.inverse else earned)
            buys, sells = (waiting.get(index, {}).get(side, _ZERO) for side in ("buy", "sell"))
            most = max(abs(volume + buys), abs(volume - sells), abs(volume))
            values[index] = _value(money, most, price)
            held = EXACT.add(held, _value(money, volume, price))
        return Equity(worth, held, values)


def _value(money: ContractMoney, volume: Decimal, price: Decimal) -> Decimal:
    found = money.notional(volume, price)
    assert found is not None
    return found
