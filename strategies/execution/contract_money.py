"""What executions and positions of an instrument are worth, exactly, in the currency that it is settled in.

Of spot, shares and linear contracts a position gains with its price times its volume times the size of one
(the multiplier). An inverse contract is of an amount of the quote currency and settled in the base: one of
size m, bought at p and sold at q, gains m / p - m / q. Sources: Binance, "Profit and loss of COIN-margined
futures"; Bybit, "Inverse contract: P&L calculations"; OKX, "Crypto-margined perpetual swaps".

So each price has a WORTH for which a position gains worth times lots, as it would with a price: the price
itself, or minus its inverse. Worths are whole numbers of a unit, in which those of inverse contracts are
rounded half to even: to 10^-32 of the settlement currency for each lot.
"""

from decimal import ROUND_HALF_EVEN, Context, Decimal
from fractions import Fraction

from orderbook.market.instruments import SCALE, Instrument

# More digits than a product of three DECIMAL(18, 8) and a count of executions need.
EXACT = Context(prec=96, rounding=ROUND_HALF_EVEN)
_PLACES = 32
_INVERSE_UNIT = Decimal(1).scaleb(-_PLACES)


def currency_of(one: Instrument) -> str:
    """The currency of its profit and fees, "" where its symbol names none and its venue lists none."""
    if one.terms.settlement:
        return one.terms.settlement
    base, *rest = one.symbol.split("-")
    return base if one.contract == "inverse" else rest[0] if rest else ""


class ContractMoney:
    """The money of one instrument, by the terms that it has now."""

    def __init__(self, one: Instrument) -> None:
        self._one = one
        self.inverse = one.contract == "inverse"
        self.size = one.size
        scaled = self.size.scaleb(SCALE)
        assert scaled == scaled.to_integral_value(), one
        self._scaled = int(scaled)
        # 10^-8 of the quote currency times 10^8 are 1, so that of an inverse contract these are lot and tick.
        self._above = one.lot_scale * self._scaled * 10 ** (_PLACES - SCALE)
        # The worth of a price is the price, where a contract is of one unit.
        self.factor = 1 if self.size == 1 else self._scaled
        unit = EXACT.multiply(one.price_unit, one.volume_unit)
        self.unit = _INVERSE_UNIT if self.inverse else unit if self.size == 1 else unit.scaleb(-SCALE, EXACT)

    def worth(self, ticks: int) -> int:
        """The worth of a price, for a lot, in `unit`."""
        if not self.inverse:
            return ticks * self.factor
        return -round(Fraction(self._above, max(ticks, 1) * self._one.tick_scale))

    def amount(self, units: int) -> Decimal:
        """So many units as an amount of the settlement currency."""
        return EXACT.multiply(Decimal(units), self.unit)

    def at(self, volume: Decimal, price: Decimal) -> Decimal:
        """What a position counts at a price."""
        if not self.inverse:
            return EXACT.multiply(EXACT.multiply(volume, price), self.size)
        if price <= 0:
            return Decimal(0)
        return EXACT.quantize(EXACT.divide(-EXACT.multiply(volume, self.size), price), _INVERSE_UNIT)

    def value(self, lots: int, ticks: int) -> Fraction:
        """The value of an execution, above 0, in 1e-8 of the settlement currency."""
        return self.value_at(lots, (max(ticks, 1) if self.inverse else abs(ticks)) * self._one.tick_scale)

    def value_at(self, lots: int, price: int) -> Fraction:
        """The value of lots, below 0 of a short position, at a price above 0 in 1e-8; in 1e-8, likewise."""
        scaled = lots * self._one.lot_scale * self._scaled
        return Fraction(scaled, price) if self.inverse else Fraction(scaled * price, 10 ** (2 * SCALE))

    def quoted(self, lots: int, ticks: int) -> Fraction:
        """The value of an execution, above 0, in 1e-8 of the quote currency."""
        if self.inverse:
            return Fraction(lots * self._one.lot_scale * self._scaled, 10**SCALE)
        return self.value(lots, ticks)

    def notional(self, volume: Decimal, price: Decimal | None) -> Decimal | None:
        """The value of a volume in the quote currency; None without a price where that counts."""
        if self.inverse:
            return EXACT.multiply(abs(volume), self.size)
        return None if price is None else EXACT.multiply(EXACT.multiply(abs(volume), abs(price)), self.size)

    def most_of(self, value: Decimal) -> int:
        """The most of a position whose `notional` is not above a value: in 10^-16 of volume times price; of
        an inverse contract in 10^-8 of volume."""
        places = SCALE if self.inverse else 2 * SCALE
        return int(Fraction(value) * 10**places / Fraction(self.size))
