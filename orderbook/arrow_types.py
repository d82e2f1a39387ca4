"""The Arrow types of view columns, as files of view rows have them."""

import pyarrow as pa

from orderbook.errors import DataError
from views.compiler.types import INT64_MAX, Kind, Type

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
