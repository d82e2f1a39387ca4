"""What executions cost: exact to the eighth place, rounded half to even, as fills hold it.

Where a venue has tiers, they go by what an account has traded there in the 30 UTC days before that of an
execution, in the quote currency.
"""

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from orderbook.market.instruments import FIXED_POINT, Instrument
from orderbook.strategies.execution.contract_money import ContractMoney
from orderbook.strategies.execution.relation_rows import (
    DAY,
    DAYS,
    FEE,
    MOST_TRADED,
    OF_INVERSE,
    OF_LOTS,
    OF_VALUE,
    TIER_DAYS,
    TIERS,
)
from orderbook.strategies.execution.venue_model import VenueFees

# Before all days.
_NEVER = -(2**62)


class FeeTables:
    """The fees of all instruments as compiled code has them, and what was traded: see `Fees.tables`.

    fees: FEE[instruments, 2, count], of orders that take, and that rest, by tier. traded: FEE[instruments].
    tiers: int64[instruments], addresses of TIERS or 0.
    """

    def __init__(self, fees: NDArray[np.void], traded: NDArray[np.void], least: Mapping[str, Sequence[int]],
                 venues: Sequence[str]) -> None:  # fmt: skip
        self.fees, self.traded = fees, traded
        self._least = {venue: np.array(own, np.int64) for venue, own in least.items()}
        self._days = {venue: np.full((DAYS, 2), _NEVER, np.int64) for venue in least}
        self._records = {venue: np.zeros(1, TIERS) for venue in least}
        for venue, records in self._records.items():
            row, own = records[0], self._least[venue]
            row["count"], row["least"], row["days"] = (
                len(own), own.ctypes.data, self._days[venue].ctypes.data,
            )  # fmt: skip
        addresses = [self._records[one].ctypes.data if one in least else 0 for one in venues]
        self.tiers = np.array(addresses, np.int64)

    def note_traded(self, traded: Mapping[str, Mapping[int, int]]) -> None:
        """What was traded so far, by venue and UTC day, 1e-8 of the quote currency."""
        for venue, days in self._days.items():
            days[:] = _NEVER
            for day, amount in sorted(traded.get(venue, {}).items()):
                days[day % DAYS] = day, min(amount, MOST_TRADED)


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

    def tables(self, instruments: Sequence[Instrument], moneys: Sequence[ContractMoney]) -> FeeTables | None:
        """The fees of instruments; None where there are numbers that 128 bits may not hold."""
        of_venues = {one.venue: self._options.of(one.venue) for one in instruments}
        count = 1 + max((len(options.tiers) for options in of_venues.values()), default=0)
        fees, traded = np.zeros((len(instruments), 2, count), FEE), np.zeros(len(instruments), FEE)
        for index, (one, money) in enumerate(zip(instruments, moneys, strict=True)):
            for maker in range(2):
                for tier in range(1 + len(of_venues[one.venue].tiers)):
                    fee = self._compiled(one, money, bool(maker), tier)
                    if fee is None:
                        return None
                    fees[index, maker, tier] = fee
            # The value of one lot at one tick, or of an inverse contract of one lot.
            of = OF_LOTS if money.inverse else OF_VALUE
            value = _record(one, of, money.quoted(1, 1))
            if value is None:
                return None
            traded[index] = value
        least = {
            venue: [
                math.ceil((Fraction(tier.volume) - Fraction(options.traded)) * FIXED_POINT)
                for tier in options.tiers
            ]
            for venue, options in of_venues.items()
            if options.tiers
        }
        if any(abs(one) >= MOST_TRADED for own in least.values() for one in own):
            return None
        found = FeeTables(fees, traded, least, [one.venue for one in instruments])
        found.note_traded(self._traded)
        return found

    def note_traded(self, tables: FeeTables) -> None:
        """Tells tables what was traded so far."""
        tables.note_traded(self._traded)

    def _compiled(
        self, one: Instrument, money: ContractMoney, maker: bool, tier: int
    ) -> tuple[int, int, int] | None:
        """A FEE of executions of an instrument; None where 128 bits may not hold it."""
        options = self._options.of(one.venue)
        if (money.inverse or money.size != 1) and options.unit == "bps":
            value = money.value(1, 1) * self._amount(one.venue, maker, tier) / 10_000
            return _record(one, OF_INVERSE if money.inverse else OF_VALUE, value)
        of = OF_LOTS if options.unit == "lot" else OF_VALUE
        return _record(one, of, self._rate(one, maker, tier))

    def save(self) -> dict[str, dict[int, int]]:
        """What was traded, for a checkpoint."""
        return {venue: dict(days) for venue, days in self._traded.items()}

    def load(self, saved: Mapping[str, Mapping[int, int]]) -> None:
        """Goes on from `save`."""
        self._traded = {venue: dict(days) for venue, days in saved.items()}

    def _tier(self, one: Instrument, ticks: int, lots: int, money: ContractMoney | None, time: int) -> int:
        """Which fees an execution has, 0 for those without a tier; it counts for later days."""
        options, day = self._options.of(one.venue), time // DAY
        days = self._traded.setdefault(one.venue, {})
        # Executions are told in another order than they happened in.
        for old in [known for known in days if known <= day - DAYS]:
            del days[old]
        value = (money or ContractMoney(one)).quoted(lots, ticks)
        days[day] = days.get(day, 0) + round(value)
        traded = sum(amount for known, amount in days.items() if day - TIER_DAYS <= known < day)
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


def _record(one: Instrument, of: int, value: Fraction) -> tuple[int, int, int] | None:
    """A FEE of such a value for a lot, at a tick; None where 128 bits may not hold it."""
    above, below = abs(value.numerator) * one.max_lots, value.denominator
    if of == OF_VALUE:
        above *= one.max_ticks
    elif of == OF_INVERSE:
        below *= one.max_ticks
    fits = 2 * max(above, below) < 2**127 and max(abs(value.numerator), value.denominator) < 2**63
    return (of, value.numerator, value.denominator) if fits else None
