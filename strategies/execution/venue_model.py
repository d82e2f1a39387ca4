"""What a simulated exchange is like, as configured: fees, latencies, trading hours; and limits of risk.

Latencies are how long messages between a strategy and the simulated exchange take. What is drawn is a
function of the seed and of what the message is, never of a generator's state: so it is the same however a run
is cut into partitions and processes, and after a crash.

Trading hours are ranges of the UTC day, on all or some days of the week.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from hashlib import blake2b
from pathlib import Path
from statistics import NormalDist
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import AfterValidator, BeforeValidator, Field, PlainValidator
from pydantic_core import PydanticCustomError

from orderbook.core.errors import UserError
from orderbook.core.options import Duration, File, Real, Section
from orderbook.core.units import delay
from orderbook.strategies.execution.exchange_calls import delay_of, is_open
from orderbook.strategies.execution.recorded_delays import DelayTable, read_delays

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


class RecordedDelay(Section):
    """Delays that were measured, in `files` of hftbacktest's columns; see `recorded_delays`."""

    files: Annotated[tuple[File, ...], Field(strict=False, min_length=1)]


def _latency(value: Any) -> "Latency":
    if isinstance(value, LognormalDelay | RecordedDelay | DelayTable):
        return value
    if isinstance(value, Mapping):
        return (RecordedDelay if "files" in value else LognormalDelay).model_validate(value)
    times = [value] if isinstance(value, str) else value
    if not isinstance(times, list | tuple) or not times or not all(map(_is_delay, times)):
        raise PydanticCustomError("latency", 'a time such as "5ms" or "0ms", an array of times, or a table')
    return value if isinstance(value, str) else tuple(times)


def _not_recorded(value: "Latency") -> "Latency":
    if isinstance(value, RecordedDelay | DelayTable):
        raise PydanticCustomError("latency", "a time, an array of times, or a distribution: no files")
    return value


def _is_delay(value: Any) -> bool:
    try:
        return isinstance(value, str) and delay(value) >= 0
    except UserError:
        return False


Latency = str | tuple[str, ...] | LognormalDelay | RecordedDelay | DelayTable
_Latency = Annotated[Any, PlainValidator(_latency)]


class FeeTier(Section):
    """Fees from a value on, in the quote currency, that was traded in 30 days."""

    volume: Positive
    maker: Exact
    taker: Exact


def _rising(tiers: tuple[FeeTier, ...]) -> tuple[FeeTier, ...]:
    volumes = [tier.volume for tier in tiers]
    if volumes != sorted(set(volumes)):
        raise PydanticCustomError("tiers", "tiers with rising volumes")
    return tiers


class FeeOptions(Section):
    """What an execution costs, in the currency of its settlement: `maker` of orders that rested, `taker` of
    others.

    unit "bps": basis points of the value; "lot": of every lot. Below 0 it is a rebate. `tiers`: fees in place
    of these, by what was traded at the venue, in the quote currency, in the 30 UTC days before that of an
    execution; `traded` is added to that, as what was traded before the run or elsewhere.
    """

    maker: Exact = Decimal(0)
    taker: Exact = Decimal(0)
    unit: Literal["bps", "lot"] = "bps"
    tiers: Annotated[tuple[FeeTier, ...], Field(strict=False), AfterValidator(_rising)] = ()
    traded: Annotated[Decimal, BeforeValidator(_exact), Field(ge=0, allow_inf_nan=False)] = Decimal(0)


class VenueFees(FeeOptions):
    """The fees of all venues but those that `venues` names."""

    venues: dict[str, FeeOptions] = Field(default_factory=dict)

    def of(self, venue: str) -> FeeOptions:
        """The fees of a venue."""
        return self.venues.get(venue, self)


class MarginOptions(Section):
    """Margin of each account, in the quote currency; see docs/strategies.md.

    `balance`: what it begins with. `leverage`: how many times its equity positions may be worth. Where the
    equity is below `maintenance`, a share of what positions are worth, they are closed.
    """

    balance: Positive
    leverage: Positive = Decimal(1)
    maintenance: Annotated[Decimal, BeforeValidator(_exact), Field(ge=0, lt=1, allow_inf_nan=False)] = (
        Decimal(0)
    )


def _ordered(sessions: tuple[str, ...]) -> tuple[str, ...]:
    for text in sessions:
        if re.fullmatch(SESSION, text) is None:
            raise PydanticCustomError("session", 'UTC times such as "08:00-16:30" or "mon-fri 14:30-21:00"')
    return sessions


class SimulationOptions(Section):
    """How the simulated exchange treats orders; see docs/strategies.md.

    `order_latency`: from a strategy to the exchange; `response_latency`: back; `feed_latency`: how much
    later than it was received a strategy sees a message. Each is a time, an array of times one of which is
    drawn, or a lognormal distribution; what is drawn follows from `seed`. Those of orders and responses may
    be in files, too, of which `loaded` has the tables. `queue`: what leaves a price level
    of an L2 book without a trade is "back", behind every order, "proportional", ahead and behind alike, or by
    one of hftbacktest's probability models, those of a power with `queue_power`.
    `stop_by`: what reaches stops: the prices of trades, the price that a market order would take from, or the
    mark price. `sessions`: when orders are taken, in UTC; always, without any.
    """

    order_latency: _Latency = "0ms"
    response_latency: _Latency = "0ms"
    feed_latency: Annotated[_Latency, AfterValidator(_not_recorded)] = "0ms"
    seed: int = 0
    queue: Literal["back", "proportional", "power", "power2", "power3", "log", "log2", "square"] = "back"
    queue_power: Annotated[Real, Field(gt=0, le=100)] = 2.0
    stop_by: Literal["trade", "touch", "mark"] = "trade"
    sessions: Annotated[tuple[str, ...], Field(strict=False), AfterValidator(_ordered)] = ()
    fees: VenueFees = Field(default_factory=VenueFees)
    margin: MarginOptions | None = None

    def anchored(self, folder: Path) -> "SimulationOptions":
        """With relative paths of latencies relative to a folder."""
        own = {name: one for name in _RECORDED if isinstance(one := getattr(self, name), RecordedDelay)}
        update = {
            name: RecordedDelay(files=tuple(folder / path for path in one.files)) for name, one in own.items()
        }
        return self.model_copy(update=update)

    def loaded(self) -> "SimulationOptions":
        """With the tables of latencies that are in files. Raises ConfigurationError as `read_delays` does."""
        own = {name: one for name in _RECORDED if isinstance(one := getattr(self, name), RecordedDelay)}
        update = {name: read_delays(one.files)[_RECORDED.index(name)] for name, one in own.items()}
        return self.model_copy(update=update)


# In the order of what `read_delays` gives.
_RECORDED = ("order_latency", "response_latency")


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
    # Venues whose orders go through an order gateway.
    gateways: tuple[str, ...] = ()


# Nothing takes time, costs or is limited.
TRADING = TradingOptions()


_NORMAL = NormalDist()
# Of a lognormal distribution.
_QUANTILES = 1 << 14


class Delays:
    """Delays of one kind ("order", "response" or "feed") of one strategy, in ns.

    line: names the strategy and its partition. A lognormal distribution is drawn from by its quantiles.
    """

    def __init__(self, option: Latency, seed: int, line: str, kind: str) -> None:
        self._timed = isinstance(option, DelayTable)
        if isinstance(option, DelayTable):
            self._table = option.rows
        else:
            assert not isinstance(option, RecordedDelay), option
            delays = _delays_of(option)
            # What is always the same need not be drawn.
            self._table = np.array(delays if len(set(delays)) > 1 else delays[:1], np.int64)
        digest = blake2b(f"{seed}\x1f{line}\x1f{kind}".encode(), digest_size=8).digest()
        self.words = (
            int(self._table.ctypes.data),
            len(self._table),
            int.from_bytes(digest, "big", signed=True),
            int(self._timed),
        )

    @property
    def zero(self) -> bool:
        """Whether there is never any."""
        return not self._timed and not self._table.any()

    @property
    def constant(self) -> bool:
        """Whether it is always the same."""
        return not self._timed and len(self._table) == 1

    def of(self, order_id: int, number: int, time: int) -> int:
        """The delay of the message of this number, which is about an order and sent at a time."""
        if self.constant:
            return int(self._table[0])
        return int(delay_of(*self.words, order_id, number, time))


def _delays_of(option: str | tuple[str, ...] | LognormalDelay) -> list[int]:
    """All delays, each as likely as another, from the least on."""
    if isinstance(option, str):
        return [delay(option)]
    if isinstance(option, LognormalDelay):
        median, sigma = delay(option.median), option.sigma
        shares = ((number + 0.5) / _QUANTILES for number in range(_QUANTILES if sigma else 1))
        return [round(median * math.exp(sigma * _NORMAL.inv_cdf(share))) for share in shares]
    return sorted(delay(one) for one in option)


_MINUTE = 60 * 10**9


class Sessions:
    """When orders are taken; always, where there are no ranges. A range that ends before it starts goes on
    into the next day."""

    def __init__(self, ranges: Sequence[str]) -> None:
        self._table = np.array([_parsed(text) for text in ranges], np.int64)
        self.words = int(self._table.ctypes.data), len(self._table)

    def open(self, time: int) -> bool:
        """Whether orders are taken at a time, ns since 1970 UTC."""
        return bool(is_open(*self.words, time))


def _parsed(text: str) -> tuple[int, int, int]:
    """A bit for each weekday, start, end, the times as ns of a day."""
    found = re.fullmatch(SESSION, text)
    assert found is not None, text
    first, last, start, end = found.groups()
    if first is None:
        days = range(7)
    else:
        a, b = DAYS.index(first), DAYS.index(last or first)
        days = range(a, a + (b - a) % 7 + 1)
    return sum(1 << day % 7 for day in days), _time(start), _time(end)


def _time(text: str) -> int:
    hours, minutes = text.split(":")
    return (60 * int(hours) + int(minutes)) * _MINUTE


def strategy_table(strategy: str) -> str:
    """The name of a strategy's table: its class in snake case (`module:MeanReversion`: mean_reversion)."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", strategy.rpartition(":")[2]).lower()
