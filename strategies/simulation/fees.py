"""Fees of executions, exact to the eighth place of the quote currency, rounded half to even as fills hold
them."""

from fractions import Fraction

from orderbook.instruments import FIXED_POINT, Instrument
from orderbook.simulation_options import VenueFees


class Fees:
    """The fees of all instruments, in units of 1e-8 of the quote currency; below 0 a rebate."""

    def __init__(self, options: VenueFees) -> None:
        self._options = options
        self._rates: dict[tuple[Instrument, int, bool], Fraction] = {}

    def of(self, one: Instrument, ticks: int, lots: int, maker: bool) -> int:
        """The fee of an execution, above 0, of a volume and at a price in the instrument's units; a negative
        price costs as a positive."""
        # The exchange may change the lot.
        key = one, one.lot_units, maker
        rate = self._rates.get(key)
        if rate is None:
            rate = self._rates[key] = self._rate(one, maker)
        if not rate:
            return 0
        size = lots if self._options.of(one.venue).unit == "lot" else lots * abs(ticks)
        return round(size * rate)

    def _rate(self, one: Instrument, maker: bool) -> Fraction:
        """1e-8 of the quote currency for one volume unit, or for one at one price unit."""
        options = self._options.of(one.venue)
        amount = Fraction(options.maker if maker else options.taker)
        if options.unit == "lot":
            return amount * FIXED_POINT / one.lot_units
        return amount * one.tick_scale * one.lot_scale / (10_000 * FIXED_POINT)
