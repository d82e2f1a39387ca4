"""Encoded columns as Arrow arrays, without a step for each value, and the Arrow types of view columns.

The types are those that files of view rows have.
"""

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from orderbook.core.changes import Dictionary
from orderbook.core.errors import DataError
from orderbook.views.types import INT64_MAX, Kind, Type

MOST_DIGITS = 38
TIMESTAMP = pa.timestamp("ns", "UTC")


def arrow_type(kind: Type, what: str) -> pa.DataType:
    """DECIMAL as decimal128(38, scale), INTEGER as int64 or, beyond its range, decimal128(38, 0).

    Raises DataError that names `what` for more decimal places than that.
    """
    if kind.kind is Kind.DECIMAL:
        if kind.scale > MOST_DIGITS:
            raise DataError(f"{what} has more than {MOST_DIGITS} decimal places; write .ndjson")
        return pa.decimal128(MOST_DIGITS, kind.scale)
    if kind.kind is Kind.INTEGER:
        fits = max(-kind.low, kind.high) <= INT64_MAX
        return pa.int64() if fits else pa.decimal128(MOST_DIGITS, 0)
    return {
        Kind.DOUBLE: pa.float64(),
        Kind.BOOLEAN: pa.bool_(),
        Kind.TEXT: pa.string(),
        Kind.TIMESTAMP: TIMESTAMP,
    }[kind.kind]


# Codes that are as near to each other, or as many as their rows, are told apart by a table of them.
_NEAR = 1024


def column_array(
    name: str,
    form: pa.DataType,
    kind: Type,
    dictionary: Dictionary,
    values: NDArray[np.int64],
    there: NDArray[np.bool_],
    high: NDArray[np.int64] | None = None,
) -> pa.Array:
    """A column of a type as an array of `form`, which `arrow_type` gives, or of texts a dictionary of that.

    values, high: int64[n], contiguous, low and high words of the encoded values; there: bool[n], else NULL.
    Raises DataError that names the column for a decimal of more than 38 digits.
    """
    if kind.kind is Kind.TEXT:
        texts = _texts(dictionary, values, there)
        return texts if pa.types.is_dictionary(form) else texts.cast(pa.string())
    if pa.types.is_decimal(form):
        return _decimals(name, form, values, high, there)
    # Without a mask nothing is copied.
    missing = None if there.all() else ~there
    if kind.kind is Kind.DOUBLE:
        return pa.array(values.view(np.float64), form, mask=missing)
    if kind.kind is Kind.BOOLEAN:
        return pa.array(values != 0, form, mask=missing)
    return pa.array(values, pa.int64(), mask=missing).cast(form)


def _texts(dictionary: Dictionary, codes: NDArray[np.int64], there: NDArray[np.bool_]) -> pa.DictionaryArray:
    everywhere = there.all()
    own = codes if everywhere else codes[there]
    places: NDArray[np.integer[Any]]
    if not len(own):
        found, places = own, own
    else:
        least, greatest = int(own.min()), int(own.max())
        if least == greatest:
            found, places = own[:1], np.zeros(len(own), np.int32)
        elif greatest - least < _NEAR + len(own):  # without sorting
            present = np.zeros(greatest - least + 1, np.bool_)
            present[own - least] = True
            found = np.flatnonzero(present) + least
            places = (np.cumsum(present) - 1).astype(np.int32).take(own - least)
        else:
            found, places = np.unique(own, return_inverse=True)
    strings = pa.array(dictionary.decode_all(found), pa.string())
    if everywhere:
        return pa.DictionaryArray.from_arrays(pa.array(places, pa.int32()), strings)
    indices = np.zeros(len(codes), np.int32)
    indices[there] = places
    return pa.DictionaryArray.from_arrays(pa.array(indices, mask=~there), strings)


def _decimals(
    name: str,
    form: pa.DataType,
    low: NDArray[np.int64],
    high: NDArray[np.int64] | None,
    there: NDArray[np.bool_],
) -> pa.Array:
    """128-bit integers, as low and high words, as decimals; a value of 64 bits has its sign as high word."""
    words = np.empty((len(low), 2), np.int64)
    words[:, 0], words[:, 1] = low, low >> 63 if high is None else high
    bits = None
    if not there.all():
        words[~there] = 0
        bits = pa.array(there).buffers()[1]
    array = pa.Array.from_buffers(form, len(low), [bits, pa.py_buffer(words)])
    if high is None:
        # 64 bits have 19 digits at most.
        return array
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        raise DataError(f"{name}: a value has more than {form.precision} digits; none is kept") from None
    return array
