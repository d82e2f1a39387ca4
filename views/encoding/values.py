"""Values at the edge: what users write and read, and the words that runtimes compute with.

Exact numbers become scaled integers, strings dictionary codes, timestamps ns since 1970 UTC; NULL is
None. A code is a word as an int64 of a ChangeBatch: the bits of a double, `NULL_CODE` for NULL.
"""

import math
import struct
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Context, Decimal, InvalidOperation
from typing import Any

import numpy as np

from orderbook.core.changes import (
    HALF_CHARACTER,
    NULL_CODE,
    Dictionary,
    Word,
)
from orderbook.views.scalars.texts import moment
from orderbook.views.types import Column, Kind, Relation, Type

Value = int | Decimal | float | str | bool | None

# Wide enough for every 128-bit integer and for the bounds of types beyond.
_CONTEXT = Context(prec=1000)
_MOST_DIGITS = 400
_TRUTH = {"true": True, "false": False}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DOUBLE, _CODE = struct.Struct("<d"), struct.Struct("<q")


def encode_value(column: Column, value: Any, dictionary: Dictionary) -> Word:
    """The word of a value; raises ValueError with the reason where the column does not take it.

    Exact columns take int, Decimal, strings of digits, and floats where the decimal that their repr
    shows has no more places than the column; DOUBLE columns any number that is finite; TIMESTAMP ints
    (ns), datetimes and texts such as '2024-01-31 12:00:00.5' (UTC unless they say otherwise); BOOLEAN
    columns booleans and the texts true and false.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if value is None:
        if not column.nullable:
            raise ValueError("NULL in a NOT NULL column")
        return None
    match column.type.kind:
        case Kind.TEXT:
            if not isinstance(value, str):
                raise ValueError(f"{shown(value)} is not a string")
            if HALF_CHARACTER.search(value):
                raise ValueError(f"{shown(value)} is not text: it holds half of a character")
            return dictionary.encode(value)
        case Kind.BOOLEAN:
            if isinstance(value, str):
                value = _TRUTH.get(value.lower(), value)
            if not isinstance(value, bool):
                raise ValueError(f"{shown(value)} is not a boolean")
            return int(value)
        case Kind.DOUBLE:
            return _double(value)
        case Kind.TIMESTAMP if isinstance(value, datetime):
            at = value if value.tzinfo else value.replace(tzinfo=UTC)
            return _in_range(column.type, (at - _EPOCH) // timedelta(microseconds=1) * 1000, value)
        case Kind.TIMESTAMP if isinstance(value, str) and (ns := moment(value)) is not None:
            return _in_range(column.type, ns, value)
        case Kind.TIMESTAMP if not isinstance(value, int) or isinstance(value, bool):
            instead = "give ns since 1970 UTC, a datetime or its text"
            raise ValueError(f"{shown(value)} is not a timestamp; {instead}")
    return _exact(column.type, value)


def _exact(kind: Type, value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return _in_range(kind, value * 10**kind.scale, value)
    number = _decimal(value)
    exponent = number.as_tuple().exponent
    if not isinstance(exponent, int):
        raise ValueError(f"{shown(value)} is not a finite number")
    if abs(exponent) > _MOST_DIGITS:
        raise ValueError(f"{shown(value)} has more than {_MOST_DIGITS} digits")
    numerator, denominator = number.as_integer_ratio()
    scaled, rest = divmod(numerator * 10**kind.scale, denominator)
    if rest:
        fix = "; floats are inexact, give a Decimal or a string" if isinstance(value, float) else ""
        places = f"more than {kind.scale} decimal places" if kind.scale else "decimal places"
        raise ValueError(f"{shown(value)} has {places}{fix}")
    return _in_range(kind, scaled, value)


def _decimal(value: Any) -> Decimal:
    if isinstance(value, Decimal):
        return value
    if isinstance(value, float):
        return Decimal(repr(value))
    if isinstance(value, str):
        try:
            # Decimal takes 1_000, which nobody means.
            return Decimal(value if "_" not in value else "")
        except InvalidOperation:
            pass
    raise ValueError(f"{shown(value)} is not a number")


def _double(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal | str):
        raise ValueError(f"{shown(value)} is not a number")
    try:
        number = float(value)
    except ValueError:
        raise ValueError(f"{shown(value)} is not a number") from None
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise ValueError(f"{shown(value)} is not a finite number")
    return number + 0.0  # -0.0 becomes 0.0: the two are one key


def _in_range(kind: Type, scaled: int, value: Any) -> int:
    if kind.low <= scaled <= kind.high:
        return scaled
    low, high = (unscaled(bound, kind.scale) for bound in (kind.low, kind.high))
    raise ValueError(f"{shown(value)} is outside the declared range {low} to {high}")


def shown(value: Any) -> str:
    """A value in a message, cut where it is long."""
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= 60 else text[:57] + "..."


def unscaled(word: int, scale: int) -> Decimal:
    """The decimal that a scaled integer holds, exactly, with `scale` places."""
    return Decimal(word).scaleb(-scale, _CONTEXT)


def decoder(kind: Type, dictionary: Dictionary) -> Callable[[Any], Value]:
    """A function from words of a type to values: Decimal, int (also for timestamps, ns), float, str, bool."""
    scale = kind.scale
    if kind.kind is Kind.TEXT:
        return lambda word: None if word is None else dictionary.decode(word)
    if kind.kind is Kind.BOOLEAN:
        return lambda word: None if word is None else bool(word)
    if kind.kind is Kind.DECIMAL:
        return lambda word: None if word is None else unscaled(word, scale)
    return lambda word: word


def pack(word: Word) -> int:
    """The int64 of a word."""
    if word is None:
        return NULL_CODE
    if isinstance(word, float):
        return int(_CODE.unpack(_DOUBLE.pack(word))[0])
    return word


def unpack(relation: Relation, codes: Sequence[int]) -> tuple[Word, ...]:
    """The words of a row of a ChangeBatch; codes past the relation's columns are ignored."""
    return tuple(
        unpack_word(column.type, code) for column, code in zip(relation.columns, codes, strict=False)
    )


def unpack_word(kind: Type, code: int) -> Word:
    """The word of an int64."""
    if code == NULL_CODE:
        return None
    return float(_DOUBLE.unpack(_CODE.pack(code))[0]) if kind.kind is Kind.DOUBLE else code


def describe_row(relation: Relation, codes: Sequence[int], dictionary: Dictionary) -> str:
    """A row of a ChangeBatch as a person reads it, for messages."""
    words = unpack(relation, codes)
    parts = (
        f"{c.name}={shown(decoder(c.type, dictionary)(w))}"
        for c, w in zip(relation.columns, words, strict=True)
        if not (c.hidden and w is None)
    )
    return f"({', '.join(parts)})"
