"""What a strategy's orders may risk: its limits, which Python and the compiled loop check alike.

Compiled code says only whether an order may be sent; one that may not is Python's, which says why.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Decimal

import numpy as np
from numpy.typing import NDArray

from orderbook.core.jit import jit
from orderbook.engine.maps.wide_numbers import wide, words_to_wide
from orderbook.market.block_memory import Record, load, record_at, store
from orderbook.market.book_state import CONTEXT
from orderbook.market.instruments import SCALE
from orderbook.strategies.execution.account_worth import is_drawn_down
from orderbook.strategies.execution.contract_money import EXACT, ContractMoney
from orderbook.strategies.execution.desk import MARKET, OPEN, UNCHANGED, open_at, opened
from orderbook.strategies.execution.exchange_state import LAST, PLACE, account_at, board_at
from orderbook.strategies.execution.stop_prices import touch_of
from orderbook.strategies.execution.venue_model import RiskLimits

SECOND = 10**9
_NEVER = -(2**63)
# In 10^-8, LAST without a limit; whether there is one in the quote currency; how many orders there may be in
# a second (0: any number), where the times of the last are, and which of these is replaced next.
LIMITS = np.dtype([(name, "i8") for name in ("volume", "position", "notional", "rate", "times", "next")])
# What a position may count of one instrument: of an inverse contract its volume in 10^-8, else that times its
# price, in 10^-16; in two words.
NOTIONAL = np.dtype([(name, "i8") for name in ("inverse", "low", "high")])

_limits_at = record_at(LIMITS)
_notional_at = record_at(NOTIONAL)
_context_at = record_at(CONTEXT)
_OPEN_BYTES, _NOTIONAL_BYTES = OPEN.itemsize, NOTIONAL.itemsize


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
    reduce_only: bool = False
    money: ContractMoney | None = None

    @property
    def value(self) -> Decimal | None:
        """Of the position at worst, in the quote currency; None without a price."""
        if self.money is not None:
            return self.money.notional(self.worst, self.price)
        return None if self.price is None else abs(self.worst) * abs(self.price)

    @property
    def reduces(self) -> bool:
        """Whether the position can only come nearer to 0 by it."""
        if self.reduce_only:
            return True
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
        self._unlimited = all(getattr(limits, name) is None for name in RiskLimits.model_fields)
        # When the last orders were sent, as many as there may be in a second, the next place first.
        self._times = np.full(limits.max_orders_per_second or 1, _NEVER, np.int64)
        self._records = np.zeros(1, LIMITS)
        row = self._records[0]
        row["volume"], row["position"] = map(_units, (limits.max_order_volume, limits.max_position))
        row["notional"], row["rate"] = limits.max_notional is not None, limits.max_orders_per_second or 0
        row["times"] = self._times.ctypes.data
        # The most that the account was worth, in the quote currency; it begins with nothing.
        self.peak = Decimal(0)
        self.worth = Decimal(0)

    @property
    def unlimited(self) -> bool:
        """Whether every order may be sent."""
        return self._unlimited

    @property
    def address(self) -> int:
        """Where the LIMITS are, for compiled code; 0 where there are none."""
        return 0 if self._unlimited else int(self._records.ctypes.data)

    def notionals(self, moneys: Sequence[ContractMoney]) -> NDArray[np.void]:
        """NOTIONAL[n], the limit of `max_notional` for positions of contracts."""
        found = np.zeros(len(moneys), NOTIONAL)
        if self._limits.max_notional is not None:
            for row, money in zip(found, moneys, strict=True):
                row["inverse"] = money.inverse
                row["low"], row["high"] = _wide_words(money.most_of(self._limits.max_notional))
        return found

    @property
    def sent(self) -> list[int]:
        """When orders were sent, ns, as far as that limits others."""
        first = int(self._records[0]["next"])
        return [
            time for time in [*self._times[first:].tolist(), *self._times[:first].tolist()] if time != _NEVER
        ]

    @sent.setter
    def sent(self, times: Sequence[int]) -> None:
        self._times[:], self._records[0]["next"] = _NEVER, 0
        for time in times:
            self._count(time)

    def _count(self, time: int) -> None:
        """Something was sent at a time, ns."""
        place = int(self._records[0]["next"])
        self._times[place] = time
        self._records[0]["next"] = (place + 1) % len(self._times)

    @property
    def watches_drawdown(self) -> bool:
        """Whether `mark` is to be called."""
        return self._limits.max_drawdown is not None

    @property
    def most_drawdown(self) -> Decimal:
        """How far the account's worth may fall, where that is limited."""
        assert self._limits.max_drawdown is not None
        return self._limits.max_drawdown

    def mark(self, worth: Decimal) -> None:
        """The account's profit is now so much."""
        self.worth, self.peak = worth, max(self.peak, worth)

    def refusal(self, order: Exposure, now: int) -> str | None:
        """Why an order is not sent; None: it is, and counts from now on."""
        reason = self._refusal(order, now)
        if reason is None and self._limits.max_orders_per_second is not None:
            self._count(now)
        return reason

    def _refusal(self, order: Exposure, now: int) -> str | None:
        limits = self._limits
        if limits.max_order_volume is not None and abs(order.volume) > limits.max_order_volume:
            return f"risk: a volume above max_order_volume {limits.max_order_volume}"
        # The one that is to be forgotten next is as old as a second, or one more is too many.
        oldest = int(self._times[self._records[0]["next"]])
        if limits.max_orders_per_second is not None and oldest > now - SECOND:
            return f"risk: more than max_orders_per_second {limits.max_orders_per_second}"
        if order.reduces:
            return None
        worst = abs(order.worst)
        if limits.max_position is not None and worst > limits.max_position:
            text = f"the position could become {_text(order.worst)}"
            return f"risk: {text}, beyond max_position {limits.max_position}"
        value = None if limits.max_notional is None else order.value
        if value is not None and limits.max_notional is not None and value > limits.max_notional:
            text = f"the position could be worth {_text(value)}"
            return f"risk: {text}, above max_notional {limits.max_notional}"
        limit = limits.max_drawdown
        if limit is not None and EXACT.subtract(self.peak, self.worth) > limit:
            return f"risk: a drawdown above max_drawdown {limit}; orders may only reduce positions"
        return None


def _text(value: Decimal) -> str:
    return f"{value.normalize():f}"


def _units(limit: Decimal | None) -> int:
    """A limit in 10^-8, rounded down; LAST for none, and for one that nothing reaches."""
    if limit is None:
        return LAST
    return min(LAST, int(limit.scaleb(SCALE).to_integral_value(ROUND_FLOOR)))


def _wide_words(value: int) -> tuple[int, int]:
    """A number from 0 on as the two words of 128 bits; what is more is the most that these hold."""
    value = min(value, 2**127 - 1)
    low = value & (2**64 - 1)
    return low - 2**64 if low >> 63 else low, value >> 64


@jit()
def _left(desk: Record, number: int, instrument: int, side: int, group: int) -> int:
    """What an OPEN order may still add to a position, 10^-8, as far as it counts beside those of a group; 0
    where it does not."""
    one = open_at(desk.open + _OPEN_BYTES * number)
    counts = one.known != 0 and one.instrument == instrument and one.side == side
    if not counts or one.reduces != 0 or one.group == group:
        return 0
    left: int = one.volume - one.filled
    return left


@jit()
def _open_volume(desk: Record, instrument: int, side: int, group: int):  # type: ignore[no-untyped-def]
    """What other open orders of a side may add to a position, 10^-8 as Int128: of those that are tied the
    most."""
    found = wide(0)
    for number in range(desk.open_count):
        left = _left(desk, number, instrument, side, group)
        own = open_at(desk.open + _OPEN_BYTES * number).group
        most = left != 0
        for other in range(desk.open_count if most and desk.tied != 0 else 0):
            same = other != number and open_at(desk.open + _OPEN_BYTES * other).group == own
            more = _left(desk, other, instrument, side, group) if same else 0
            most = most and (more < left or (more == left and other > number))
        if most:
            found = found + wide(left)
    return found


@jit()
def _price_of(desk: Record, instrument: int, side: int, price: int, stop: int) -> int:
    """The price by which an order counts, 10^-8: its limit, its stop, or the best of the other side; MARKET
    where there is none."""
    if price != MARKET:
        return price
    if stop != MARKET:
        return stop
    board = board_at(load(desk.boards + 8 * instrument))
    there, best = touch_of(_context_at(account_at(desk.account).books), board, 1 - side)
    found: int = best * board.tick_scale if there else MARKET
    return found


@jit()
def _is_within(
    desk: Record, instrument: int, side: int, volume: int, price: int, group: int, reduces: int, now: int
) -> bool:  # fmt: skip
    """Whether an order may be sent: of so many 10^-8, at a price or MARKET. As `Risk.refusal`."""
    limits = _limits_at(desk.limits)
    if volume > limits.volume:
        return False
    if limits.rate != 0 and load(limits.times + 8 * limits.next) > now - SECOND:
        return False
    held = wide(load(desk.positions + 8 * instrument)) * wide(
        board_at(load(desk.boards + 8 * instrument)).lot_scale
    )
    if side != 0:
        held = wide(0) - held
    # As an order to buy of what is held then.
    others = _open_volume(desk, instrument, side, group)
    worst = held + wide(volume) + others
    against = held < wide(0)
    if reduces != 0 or (against and worst <= wide(0)):
        return True
    size = worst if worst >= wide(0) else wide(0) - worst
    if size > wide(limits.position):
        return False
    if limits.notional != 0:
        most = _notional_at(desk.notionals + _NOTIONAL_BYTES * instrument)
        value = size if most.inverse != 0 else size * wide(abs(price))
        if (most.inverse != 0 or price != MARKET) and value > words_to_wide(most.low, most.high):
            return False
    good: bool = desk.worth == 0 or not is_drawn_down(desk.worth)
    return good


@jit()
def may_be_sent(desk: Record, request: Record, now: int) -> bool:
    """Whether the limits of a desk let a request to place or to modify an order be sent."""
    if request.kind == PLACE:
        group, place = request.id, 0
        if request.terms != 0 and request.oco != 0:
            place = opened(desk, request.oco)
            group = open_at(place).group if place != 0 else request.oco
        stop = request.stop if request.terms != 0 else MARKET
        reduces = request.reduce_only if request.terms != 0 else 0
        price = _price_of(desk, request.instrument, request.side, request.price, stop)
        placed: bool = _is_within(
            desk, request.instrument, request.side, request.volume, price, group, reduces, now
        )
        return placed
    one = open_at(opened(desk, request.id))
    left = (one.volume if request.volume == UNCHANGED else request.volume) - one.filled
    if left <= 0:
        return True
    price = request.price if request.price != MARKET else one.limit
    price = _price_of(desk, one.instrument, one.side, price, MARKET)
    modified: bool = _is_within(desk, one.instrument, one.side, left, price, one.group, one.reduces, now)
    return modified


@jit()
def count_sent(desk: Record, request: Record, now: int) -> None:
    """A request to place or to modify an order is sent, which counts for what may be sent in a second."""
    limits = _limits_at(desk.limits)
    if request.kind != PLACE:
        one = open_at(opened(desk, request.id))
        if (one.volume if request.volume == UNCHANGED else request.volume) <= one.filled:
            return
    if limits.rate != 0:
        store(limits.times + 8 * limits.next, now)
        limits.next = (limits.next + 1) % limits.rate
