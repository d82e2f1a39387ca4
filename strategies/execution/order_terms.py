"""What not every order has: stops, trailing stops, icebergs, expiry, exits, ties to other orders.

A strategy gives them in the relation's units (`OrderTerms`, as they are logged); an order that may be sent
has them in ticks and lots (`CheckedTerms`).
"""

from datetime import UTC, datetime
from decimal import Decimal
from operator import index
from typing import Literal, SupportsIndex, TypedDict, Unpack

import msgspec

from orderbook.core.errors import DataError, suggestion
from orderbook.market.events import Side
from orderbook.market.instruments import Instrument
from orderbook.strategies.execution.exchange_state import FIRST, GOES, STOP

Number = int | float | str | Decimal
TimeInForce = Literal["gtc", "ioc", "fok", "gtd"]
TIMES_IN_FORCE: tuple[TimeInForce, ...] = ("gtc", "ioc", "fok", "gtd")
# Later than any time of a run, ns.
LATEST = 2**63 - 2
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class OrderTerms(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Terms as a strategy asked for them, prices and volumes as text in the relation's units.

    stop: the price that lets the order go to the exchange's book. trail: how far the stop stays from the best
    price since then. good_until: ns. display: the volume that others see. take_profit, stop_loss: of orders
    that come once this one is done, for what it has filled. oco: the id of an order which loses what this one
    fills, and this one what that fills.
    """

    stop: str | None = None
    trail: str | None = None
    good_until: int | str | None = None
    reduce_only: bool = False
    display: str | None = None
    take_profit: str | None = None
    stop_loss: str | None = None
    oco: int | str | None = None

    @property
    def exits(self) -> int:
        """How many orders come once this one is done; their ids follow its own."""
        return (self.take_profit is not None) + (self.stop_loss is not None)


PLAIN = OrderTerms()


class CheckedTerms(msgspec.Struct, frozen=True):
    """Terms as the exchange has them, in ticks, lots and ns; see ORDER. profit, loss: prices of orders that
    come later, None without."""

    fok: bool = False
    reduce_only: bool = False
    good_until: int = 0
    waits: int = GOES
    stop: int = 0
    trail: int = 0
    display: int = 0
    tie: int = 0
    profit: int | None = None
    loss: int | None = None


NO_TERMS = CheckedTerms()


class TermsAsked(TypedDict, total=False):
    """Arguments of `Strategy.buy`; see OrderTerms."""

    stop: Number | None
    trail: Number | None
    good_until: int | datetime | None
    reduce_only: bool
    display: Number | None
    take_profit: Number | None
    stop_loss: Number | None
    oco: int | None


def terms_of(**asked: Unpack[TermsAsked]) -> OrderTerms | None:
    """The terms that arguments of `Strategy.buy` ask for; None for an order without any.

    Raises TypeError for an argument that there is not.
    """
    for name in asked:
        if name not in OrderTerms.__struct_fields__:
            raise TypeError(f"an order has no {name!r}; {suggestion(name, OrderTerms.__struct_fields__)}")
    until = asked.get("good_until")
    until = _nanoseconds(until) if isinstance(until, datetime) else until
    found = OrderTerms(
        stop=_text(asked.get("stop")), trail=_text(asked.get("trail")), good_until=_whole(until),
        reduce_only=bool(asked.get("reduce_only")), display=_text(asked.get("display")),
        take_profit=_text(asked.get("take_profit")), stop_loss=_text(asked.get("stop_loss")),
        oco=_whole(asked.get("oco")),
    )  # fmt: skip
    return None if found == PLAIN else found


def _text(value: Number | None) -> str | None:
    return None if value is None else str(value)


def _whole(value: object) -> int | str | None:
    """A number of 64 bits; of what is none the text, which can be logged and is refused later."""
    if isinstance(value, SupportsIndex) and not isinstance(value, bool) and abs(index(value)) < 2**63:
        return index(value)
    return None if value is None else str(value)


def _nanoseconds(time: datetime) -> int:
    """A time as ns since 1970; of UTC where it names no zone."""
    span = (time if time.tzinfo else time.replace(tzinfo=UTC)) - _EPOCH
    return (span.days * 86_400 + span.seconds) * 10**9 + span.microseconds * 1_000


def checked_terms(
    one: Instrument, terms: OrderTerms, side: Side, limit: int | None, lots: int, time_in_force: str
) -> CheckedTerms:
    """The terms as the exchange takes them, of an order with this limit (ticks) and volume (lots).

    Raises DataError for what is no multiple of tick or lot, or does not go together.
    """

    def price(name: str, text: str | None) -> int | None:
        return None if text is None else _named(one, name, text)

    until = terms.good_until
    if time_in_force == "gtd" and until is None:
        raise DataError(f"{one}: an order with time_in_force='gtd' needs good_until, a time in ns")
    if until is not None and (type(until) is not int or not 0 < until <= LATEST):
        raise DataError(f"{one}: good_until={until}; give ns since 1970 UTC")
    if until is not None and time_in_force in ("ioc", "fok"):
        raise DataError(f"{one}: an order that is not to rest has no good_until")
    tie = terms.oco or 0
    if isinstance(tie, str):
        raise DataError(f"{one}: oco={tie} is no open order of the instrument")
    stop, trail = price("stop", terms.stop), price("trail", terms.trail)
    if trail is not None and trail <= 0:
        raise DataError(f"{one}: trail must be above 0, not {terms.trail}")
    profit, loss = price("take_profit", terms.take_profit), price("stop_loss", terms.stop_loss)
    _check_exits(one, side, limit, profit, loss)
    return CheckedTerms(
        time_in_force == "fok", terms.reduce_only, until or 0,
        FIRST if trail is not None and stop is None else GOES if stop is None else STOP,
        stop or 0, trail or 0, _display(one, terms, limit, lots, time_in_force), tie, profit, loss,
    )  # fmt: skip


def _named(one: Instrument, name: str, text: str) -> int:
    """A price of an order, in ticks. Raises DataError, which names it."""
    try:
        return one.check_price(text)
    except DataError as error:
        raise DataError(f"{name}: {error}") from None


def _display(one: Instrument, terms: OrderTerms, limit: int | None, lots: int, time_in_force: str) -> int:
    """The lots that others see of an order; 0: all."""
    if terms.display is None:
        return 0
    if limit is None or time_in_force in ("ioc", "fok"):
        raise DataError(f"{one}: only a limit order that may rest has a display")
    try:
        shown = one.check_volume(terms.display)
    except DataError as error:
        raise DataError(f"display: {error}") from None
    if shown <= 0:
        raise DataError(f"{one}: display must be above 0, not {terms.display}")
    return shown if shown < lots else 0


def _check_exits(
    one: Instrument, side: Side, limit: int | None, profit: int | None, loss: int | None
) -> None:
    """Raises DataError where the prices of exits are not on their sides of the order's own."""
    prices = [price for price in (loss, limit, profit) if price is not None]
    if loss is None and profit is None:
        return
    ordered = sorted(set(prices), reverse=side is Side.ASK)
    if prices != ordered:
        what, other = ("below", "above") if side is Side.BID else ("above", "below")
        raise DataError(f"{one}: a stop_loss is {what} the order's price, and a take_profit {other}")
