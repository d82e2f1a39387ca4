"""Risk limits: checked when a strategy sends an order, by what it has been told until then."""

from collections import deque
from dataclasses import dataclass
from decimal import Decimal

from orderbook.simulation_options import RiskLimits

_SECOND = 10**9


@dataclass(frozen=True, slots=True)
class Exposure:
    """What an order would add to: of its instrument, in the relation's units.

    volume: of the order, above 0 to buy, below to sell. price: its limit, else the best of the other side;
    None where that is empty. position: held. open: of other orders of the side that are not done, above 0.
    """

    volume: Decimal
    price: Decimal | None
    position: Decimal
    open: Decimal

    @property
    def reduces(self) -> bool:
        """Whether the position can only come nearer to 0 by it."""
        against = self.position * self.volume < 0
        return against and abs(self.volume) + self.open <= abs(self.position)

    @property
    def worst(self) -> Decimal:
        """The position if everything on the side is filled."""
        return self.position + self.volume + (self.open if self.volume > 0 else -self.open)


class Risk:
    """The limits of one strategy's account, and what they count. An order that only reduces a position is
    refused for its own volume and for the rate of orders alone."""

    def __init__(self, limits: RiskLimits) -> None:
        self._limits = limits
        self.sent: deque[int] = deque()
        # The most that the account was worth, in the quote currency; it begins with nothing.
        self.peak = Decimal(0)
        self.worth = Decimal(0)

    @property
    def watches_drawdown(self) -> bool:
        """Whether `mark` is to be called."""
        return self._limits.max_drawdown is not None

    def mark(self, worth: Decimal) -> None:
        """The account's profit is now so much."""
        self.worth, self.peak = worth, max(self.peak, worth)

    def refusal(self, order: Exposure, now: int) -> str | None:
        """Why an order is not sent; None: it is, and counts from now on."""
        reason = self._refusal(order, now)
        if reason is None and self._limits.max_orders_per_second is not None:
            self.sent.append(now)
        return reason

    def _refusal(self, order: Exposure, now: int) -> str | None:
        limits = self._limits
        if limits.max_order_volume is not None and abs(order.volume) > limits.max_order_volume:
            return f"risk: a volume above max_order_volume {limits.max_order_volume}"
        while self.sent and self.sent[0] <= now - _SECOND:
            self.sent.popleft()
        if limits.max_orders_per_second is not None and len(self.sent) >= limits.max_orders_per_second:
            return f"risk: more than max_orders_per_second {limits.max_orders_per_second}"
        if order.reduces:
            return None
        worst = abs(order.worst)
        if limits.max_position is not None and worst > limits.max_position:
            text = f"the position could become {_text(order.worst)}"
            return f"risk: {text}, beyond max_position {limits.max_position}"
        if limits.max_notional is not None and order.price is not None:
            value = worst * abs(order.price)
            if value > limits.max_notional:
                text = f"the position could be worth {_text(value)}"
                return f"risk: {text}, above max_notional {limits.max_notional}"
        if limits.max_drawdown is not None and self.peak - self.worth > limits.max_drawdown:
            limit = limits.max_drawdown
            return f"risk: a drawdown above max_drawdown {limit}; orders may only reduce positions"
        return None


def _text(value: Decimal) -> str:
    return f"{value.normalize():f}"
