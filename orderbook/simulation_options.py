"""The tables of a configuration that say how orders are simulated, and what strategies may risk."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, PlainValidator
from pydantic_core import PydanticCustomError

from orderbook.durations import delay
from orderbook.errors import UserError
from orderbook.option_types import Duration, Real, Section

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
