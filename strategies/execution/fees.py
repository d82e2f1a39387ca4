"""What executions cost: exact to the eighth place, rounded half to even, as fills hold it.

Where a venue has tiers, they go by what an account has traded there in the 30 UTC days before that of an
execution, in the quote currency.
"""

from collections.abc import Mapping
from fractions import Fraction

from orderbook.market.instruments import FIXED_POINT, Instrument
from orderbook.strategies.execution.contract_money import ContractMoney
from orderbook.strategies.execution.relation_rows import OF_INVERSE, OF_LOTS, OF_VALUE
from orderbook.strategies.execution.venue_model import VenueFees

_DAY = 24 * 60 * 60 * 10**9
_DAYS = 30


class Fees:
    """The fees of all instruments, in units of 1e-8 of the settlement currency; below 0 a rebate."""

    def __init__(self, options: VenueFees) -> None:
        self._options = options
        self._rates: dict[tuple[Instrument, int, bool, int], Fraction] = {}
        # What was traded at venues with tiers, by UTC day, in 1e-8 of the quote currency.
        self._traded: dict[str, dict[int, int]] = {}

    def of(
        self,
        one: Instrument,
        ticks: int,
        lots: int,
        maker: bool,
        money: ContractMoney | None = None,
        time: int = 0,
    ) -> int:
        """The fee of an execution, above 0, of a volume and at a price in the instrument's units; a negative
        price costs as a positive. money: of a contract of another size than one, or an inverse one. time: ns.
        """
        options = self._options.of(one.venue)
        tier = self._tier(one, ticks, lots, money, time) if options.tiers else 0
        if money is not None and (money.inverse or money.size != 1) and options.unit == "bps":
            return round(money.value(lots, ticks) * self._amount(one.venue, maker, tier) / 10_000)
        # The exchange may change the lot.
        key = one, one.lot_units, maker, tier
        rate = self._rates.get(key)
        if rate is None:
            rate = self._rates[key] = self._rate(one, maker, tier)
        if not rate:
            return 0
        size = lots if options.unit == "lot" else lots * abs(ticks)
        return round(size * rate)

    def compiled(self, one: Instrument, money: ContractMoney, maker: bool) -> tuple[int, int, int] | None:
        """A FEE of executions of an instrument; None where that does not say it: with tiers, and for numbers
        that 128 bits may not hold."""
        options = self._options.of(one.venue)
        if options.tiers:
            return None
        if (money.inverse or money.size != 1) and options.unit == "bps":
            value = money.value(1, 1) * self._amount(one.venue, maker, 0) / 10_000
            of = OF_INVERSE if money.inverse else OF_VALUE
        else:
            value, of = self._rate(one, maker, 0), OF_LOTS if options.unit == "lot" else OF_VALUE
        above, below = abs(value.numerator) * one.max_lots, value.denominator
        if of == OF_VALUE:
            above *= one.max_ticks
        elif of == OF_INVERSE:
            below *= one.max_ticks
        fits = 2 * max(above, below) < 2**127 and max(abs(value.numerator), value.denominator) < 2**63
        return (of, value.numerator, value.denominator) if fits else None

    def save(self) -> dict[str, dict[int, int]]:
        """What was traded, for a checkpoint."""
        return {venue: dict(days) for venue, days in self._traded.items()}

    def load(self, saved: Mapping[str, Mapping[int, int]]) -> None:
        """Goes on from `save`."""
        self._traded = {venue: dict(days) for venue, days in saved.items()}

    def _tier(self, one: Instrument, ticks: int, lots: int, money: ContractMoney | None, time: int) -> int:
        """Which fees an execution has, 0 for those without a tier; it counts for later days."""
        options, day = self._options.of(one.venue), time // _DAY
        days = self._traded.setdefault(one.venue, {})
        for old in [known for known in days if known < day - _DAYS]:
            del days[old]
        value = (money or ContractMoney(one)).quoted(lots, ticks)
        days[day] = days.get(day, 0) + round(value)
        traded = sum(amount for known, amount in days.items() if known < day)
        reached = Fraction(traded, FIXED_POINT) + Fraction(options.traded)
        return sum(reached >= tier.volume for tier in options.tiers)

    def _amount(self, venue: str, maker: bool, tier: int) -> Fraction:
        options = self._options.of(venue)
        own = options.tiers[tier - 1] if tier else options
        return Fraction(own.maker if maker else own.taker)

    def _rate(self, one: Instrument, maker: bool, tier: int) -> Fraction:
        """1e-8 of the quote currency for one volume unit, or for one at one price unit."""
        amount = self._amount(one.venue, maker, tier)
        if self._options.of(one.venue).unit == "lot":
            return amount * FIXED_POINT / one.lot_units
        return amount * one.tick_scale * one.lot_scale / (10_000 * FIXED_POINT)
