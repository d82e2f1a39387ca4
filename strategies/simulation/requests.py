"""What a strategy asks for, checked against the instruments: the same wherever orders go."""

from decimal import Decimal

from orderbook.errors import DataError
from orderbook.instruments import SCALE, Instruments, fixed_point
from strategies.orders import Order
from strategies.simulation.client import Number, OrderRequest
from strategies.simulation.working import Working

_ZERO = Decimal(0)


class Requests:
    """Makes orders of requests of one strategy."""

    def __init__(self, strategy: str, instruments: Instruments) -> None:
        self._strategy, self._instruments = strategy, instruments

    def unchecked(self, request: OrderRequest, now: int) -> Order:
        """The request as an order, with the venue and numbers that it cannot have left out."""
        candidates = self._venues(request)
        one = self._instruments[candidates[0]] if len(candidates) == 1 else None
        volume, price = _number(request.volume), None if request.price is None else _number(request.price)
        return Order(
            now, self._strategy, request.id, one.venue if one else request.venue or "", str(request.symbol),
            request.side, volume if volume is not None and volume > 0 else _ZERO, price, _ZERO, "resting",
        )  # fmt: skip

    def checked(self, order: Order, request: OrderRequest) -> Working:
        """Raises DataError with the reason for a refusal."""
        candidates = self._venues(request)
        if not candidates:
            where = f" on {request.venue}" if request.venue else ""
            raise DataError(f"no instrument {request.symbol}{where}")
        if len(candidates) > 1:
            venues = ", ".join(self._instruments[i].venue for i in candidates)
            raise DataError(f"{request.symbol} trades on {venues}; name the venue")
        index = candidates[0]
        lots = self.lots(index, request.volume)
        limit = None if request.price is None else self.ticks(index, request.price)
        one = self._instruments[index]
        if one.not_tradable is not None:
            raise DataError(one.not_tradable)
        if request.time_in_force not in ("gtc", "ioc"):
            raise DataError(f"{one}: time_in_force={request.time_in_force!r}; give 'gtc' or 'ioc'")
        if request.post_only and (limit is None or request.time_in_force == "ioc"):
            raise DataError(f"{one}: only a limit order that may rest can be post-only")
        return Working(order, index, limit, lots, request.time_in_force == "ioc", request.post_only)

    def lots(self, instrument: int, volume: Number) -> int:
        """A volume above 0, a multiple of the lot, as books count it. Raises DataError."""
        one = self._instruments[instrument]
        lots = one.check_volume(str(volume))
        if lots <= 0:
            raise DataError(f"{one}: volume must be above 0, not {volume}")
        return lots

    def ticks(self, instrument: int, price: Number) -> int:
        """A price, a multiple of the tick, as books count it. Raises DataError."""
        return self._instruments[instrument].check_price(str(price))

    def _venues(self, request: OrderRequest) -> list[int]:
        """The instruments that a request may mean."""
        return [
            index
            for index, one in enumerate(self._instruments)
            if one.symbol == request.symbol and request.venue in (None, one.venue)
        ]


def _number(value: Number) -> Decimal | None:
    """The number as the relation holds it; None where it cannot."""
    try:
        return Decimal(fixed_point(str(value))).scaleb(-SCALE)
    except DataError:
        return None
