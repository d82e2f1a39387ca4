"""What a simulated exchange is like, as configured: fees, latencies, trading hours; and limits of risk.

Fees of executions are exact to the eighth place of the quote currency, rounded half to even as fills hold
them.

Latencies are how long messages between a strategy and the simulated exchange take. What is drawn is a
function of the seed and of what the message is, never of a generator's state: so it is the same however a run
is cut into partitions and processes, and after a crash.

Trading hours are ranges of the UTC day, on all or some days of the week.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from hashlib import blake2b
from statistics import NormalDist
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, PlainValidator
from pydantic_core import PydanticCustomError

from orderbook.core.errors import UserError
from orderbook.core.options import Duration, Real, Section
from orderbook.core.units import delay
from orderbook.market.instruments import FIXED_POINT, Instrument

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_CLOCK = r"(?:[01]\d|2[0-3]):[0-5]\d"
SESSION = rf"(?:({'|'.join(DAYS)})(?:-({'|'.join(DAYS)}))? )?({_CLOCK})-({_CLOCK}|24:00)"


def _exact(value: Any) -> Any:
    return Decimal(value) if isinstance(value, int) and not isinstance(value, bool) else value


Exact = Annotated[Decimal, BeforeValidator(_exact), Field(allow_inf_nan=False)]
Positive = Annotated[Decimal, BeforeValidator(_exact), Field(gt=0, allow_inf_nan=False)]


class LognormalDelay(Section):
    """Delays whose logarithms are normal: `median`, and the standard deviation `sigma` of the logarithm."""

    median: Duration
    sigma: Annotated[Real, Field(ge=0, le=10)]


def _latency(value: Any) -> "Latency":
    if isinstance(value, LognormalDelay):
        return value
    if isinstance(value, Mapping):
        return LognormalDelay.model_validate(value)
    times = [value] if isinstance(value, str) else value
    if not isinstance(times, list | tuple) or not times or not all(map(_is_delay, times)):
        raise PydanticCustomError("latency", 'a time such as "5ms" or "0ms", an array of times, or a table')
    return value if isinstance(value, str) else tuple(times)


def _is_delay(value: Any) -> bool:
    try:
        return isinstance(value, str) and delay(value) >= 0
    except UserError:
        return False


Latency = str | tuple[str, ...] | LognormalDelay
_Latency = Annotated[Any, PlainValidator(_latency)]


class FeeOptions(Section):
    """What an execution costs, in the quote currency: `maker` of orders that rested, `taker` of others.

    unit "bps": basis points of the value; "lot": of every lot. Below 0 it is a rebate.
    """

    maker: Exact = Decimal(0)
    taker: Exact = Decimal(0)
    unit: Literal["bps", "lot"] = "bps"


class VenueFees(FeeOptions):
    """The fees of all venues but those that `venues` names."""

    venues: dict[str, FeeOptions] = Field(default_factory=dict)

    def of(self, venue: str) -> FeeOptions:
        """The fees of a venue."""
        return self.venues.get(venue, self)


def _ordered(sessions: tuple[str, ...]) -> tuple[str, ...]:
    for text in sessions:
        if re.fullmatch(SESSION, text) is None:
            raise PydanticCustomError("session", 'UTC times such as "08:00-16:30" or "mon-fri 14:30-21:00"')
    return sessions


class SimulationOptions(Section):
    """How the simulated exchange treats orders; see docs/strategies.md.

    `order_latency`: from a strategy to the exchange; `response_latency`: back; `feed_latency`: how much
    later than it was received a strategy sees a message. Each is a time, an array of times one of which is
    drawn, or a lognormal distribution; what is drawn follows from `seed`. `queue`: what leaves a price level
    of an L2 book without a trade is "back", behind every order, or "proportional", ahead and behind alike.
    `sessions`: when orders are taken, in UTC; always, without any.
    """

    order_latency: _Latency = "0ms"
    response_latency: _Latency = "0ms"
    feed_latency: _Latency = "0ms"
    seed: int = 0
    queue: Literal["back", "proportional"] = "back"
    sessions: Annotated[tuple[str, ...], Field(strict=False), AfterValidator(_ordered)] = ()
    fees: VenueFees = Field(default_factory=VenueFees)


class RiskLimits(Section):
    """What a strategy's orders may not exceed; None: no limit. See docs/strategies.md.

    `max_position` and `max_order_volume` are volumes, `max_notional` and `max_drawdown` amounts of the quote
    currency, `max_orders_per_second` counts by the event clock.
    """

    max_position: Positive | None = None
    max_order_volume: Positive | None = None
    max_notional: Positive | None = None
    max_drawdown: Positive | None = None
    max_orders_per_second: Annotated[int, Field(ge=1)] | None = None


class RiskOptions(RiskLimits):
    """The limits of every strategy, and in `strategies`, by their tables' names, what is otherwise for
    some."""

    strategies: dict[str, RiskLimits] = Field(default_factory=dict)

    def of(self, name: str) -> RiskLimits:
        """The limits of a strategy, given its table's name."""
        common = {key: getattr(self, key) for key in RiskLimits.model_fields}
        own: Mapping[str, Any] = {}
        if name in self.strategies:
            own = self.strategies[name].model_dump(exclude_none=True)
        return RiskLimits.model_construct(**{**common, **own})


@dataclass(frozen=True, slots=True)
class TradingOptions:
    """All that decides what becomes of orders."""

    simulation: SimulationOptions = field(default_factory=SimulationOptions)
    risk: RiskOptions = field(default_factory=RiskOptions)


# Nothing takes time, costs or is limited.
TRADING = TradingOptions()


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


_NORMAL = NormalDist()


class Delays:
    """Delays of one kind ("order", "response" or "feed") of one strategy, in ns.

    line: names the strategy and its partition.
    """

    def __init__(self, option: Latency, seed: int, line: str, kind: str) -> None:
        self._quantile = _quantile_of(option)
        least, most = self._quantile(0.0), self._quantile(1.0)
        self._constant = least if least == most else None
        self._key = f"{seed}\x1f{line}\x1f{kind}"

    @property
    def zero(self) -> bool:
        """Whether there is never any."""
        return self._constant == 0

    def of(self, order_id: int, number: int) -> int:
        """The delay of the message of this number, which is about an order."""
        if self._constant is not None:
            return self._constant
        digest = blake2b(f"{self._key}\x1f{order_id}\x1f{number}".encode(), digest_size=8).digest()
        # The upper 53 bits, so that the fraction is exact and below 1.
        return self._quantile((int.from_bytes(digest, "big") >> 11) / 2**53)


def _quantile_of(option: Latency) -> Callable[[float], int]:
    """From a fraction, 0 to 1, of all delays to the delay that they do not exceed."""
    if isinstance(option, str):
        constant = delay(option)
        return lambda _: constant
    if isinstance(option, LognormalDelay):
        median, sigma = delay(option.median), option.sigma
        return lambda fraction: round(median * math.exp(sigma * _NORMAL.inv_cdf(_inside(fraction))))
    drawn = sorted(delay(one) for one in option)
    return lambda fraction: drawn[min(int(fraction * len(drawn)), len(drawn) - 1)]


def _inside(fraction: float) -> float:
    return min(max(fraction, 2.0**-54), 1 - 2.0**-53)


_MINUTE = 60 * 10**9
_DAY = 24 * 60 * _MINUTE
# The first day of 1970 was a Thursday.
_FIRST_WEEKDAY = 3


class Sessions:
    """When orders are taken; always, where there are no ranges. A range that ends before it starts goes on
    into the next day."""

    def __init__(self, ranges: Sequence[str]) -> None:
        self._ranges = [_parsed(text) for text in ranges]

    def open(self, time: int) -> bool:
        """Whether orders are taken at a time, ns since 1970 UTC."""
        if not self._ranges:
            return True
        day, within = divmod(time, _DAY)
        weekday = (day + _FIRST_WEEKDAY) % 7
        return any(_within(weekday, within, *one) for one in self._ranges)


def _within(weekday: int, time: int, days: frozenset[int], start: int, end: int) -> bool:
    if start < end:
        return weekday in days and start <= time < end
    return (weekday in days and time >= start) or ((weekday - 1) % 7 in days and time < end)


def _parsed(text: str) -> tuple[frozenset[int], int, int]:
    """(weekdays, start, end), the times as ns of a day."""
    found = re.fullmatch(SESSION, text)
    assert found is not None, text
    first, last, start, end = found.groups()
    if first is None:
        days = frozenset(range(7))
    else:
        a, b = DAYS.index(first), DAYS.index(last or first)
        days = frozenset((a + n) % 7 for n in range((b - a) % 7 + 1))
    return days, _time(start), _time(end)


def _time(text: str) -> int:
    hours, minutes = text.split(":")
    return (60 * int(hours) + int(minutes)) * _MINUTE


def strategy_table(strategy: str) -> str:
    """The name of a strategy's table: its class in snake case (`module:MeanReversion`: mean_reversion)."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", strategy.rpartition(":")[2]).lower()
