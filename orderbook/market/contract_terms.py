"""What a venue lists of an instrument besides tick and lot: its kind, size, settlement, expiry and strike."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Literal

import msgspec

# Of the columns, DECIMAL(18, 8).
_DIGITS, _PLACES = 18, 8
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST = 2**63 - 1

Kind = Literal["spot", "perpetual", "future", "option", "spread", "share"]
OptionType = Literal["call", "put"]
_OPTION_TYPES: dict[str, OptionType] = {"c": "call", "call": "call", "p": "put", "put": "put"}


class Terms(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is not told is None.

    `settlement` is the currency in which profit is paid. `multiplier` is what one of the volumes of books and
    trades is: of the base, of inverse contracts of the quote currency, of shares 1. `expiry` is ns since 1970
    UTC, `strike` a price.
    """

    kind: Kind | None = None
    settlement: str | None = None
    multiplier: Decimal | None = None
    expiry: int | None = None
    strike: Decimal | None = None
    option_type: OptionType | None = None


SPOT = Terms(kind="spot", multiplier=Decimal(1))
PERPETUAL = Terms(kind="perpetual", multiplier=Decimal(1))
SHARE = Terms(kind="share", multiplier=Decimal(1))


def amount(stated: str | Decimal | None) -> Decimal | None:
    """A size or a strike above 0 as stated; None where it is none, or its column cannot hold it."""
    try:
        number = Decimal(stated or "")
        fits = number.is_finite() and number > 0 and number.adjusted() < _DIGITS - _PLACES
        return number.normalize() if fits and number == round(number, _PLACES) else None
    except InvalidOperation:
        return None


def expiry_of(stated: int | str | None, unit: int = 1_000_000) -> int | None:
    """A time as stated, in units of so many ns; None where there is none, which some venues state as 0."""
    try:
        time = int(stated or 0) * unit
    except ValueError:
        return None
    return time if 0 < time <= _LATEST else None


def expiry_of_text(stated: str | None) -> int | None:
    """A time of ISO 8601, of UTC where it names no zone, as ns since 1970 UTC; None where it is none."""
    try:
        time = datetime.fromisoformat(stated or "")
    except ValueError:
        return None
    whole = time if time.tzinfo else time.replace(tzinfo=UTC)
    return expiry_of((whole - _EPOCH) // timedelta(microseconds=1), 1000)


def option_type_of(stated: str) -> OptionType | None:
    """`call` or `put` as venues write them; None for what is neither."""
    return _OPTION_TYPES.get(stated.lower())
