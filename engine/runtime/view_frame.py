"""A view as a polars frame."""

from collections.abc import Iterable, Sequence

import polars as pl

from orderbook.core.changes import Dictionary, Word
from orderbook.core.errors import DataError
from orderbook.engine.runtime.interface import Row
from orderbook.views.encoding.values import decoder
from orderbook.views.m3 import Result, ResultColumn
from orderbook.views.types import INT64_MAX, Kind, ShownBy, Type

_MOST_DIGITS = 38
_DTYPES: dict[Kind, pl.DataType] = {
    Kind.DOUBLE: pl.Float64(),
    Kind.BOOLEAN: pl.Boolean(),
    Kind.TEXT: pl.String(),
    Kind.TIMESTAMP: pl.Datetime("ns"),
}


def view_frame(
    result: Result, rows: Iterable[Row], dictionary: Dictionary, order: Sequence[ShownBy] = ()
) -> pl.DataFrame:
    """The rows of a view, each as often as it stands, sorted by `order`, else in the order given.

    DECIMAL becomes Decimal(38, scale), INTEGER Int64 or, where the declared bounds need it, Int128;
    TIMESTAMP becomes Datetime("ns"), in UTC. Raises DataError for a decimal of more than 38 digits.
    """
    words = [row.columns for row in rows for _ in range(row.count)]
    frame = pl.DataFrame(
        [
            _series(result.name, column, [w[i] for w in words], dictionary)
            for i, column in enumerate(result.columns)
        ]
    )
    if not order:
        return frame
    return frame.sort(
        [item.name for item in order],
        descending=[item.descending for item in order],
        nulls_last=[not item.nulls_first for item in order],
        maintain_order=True,
    )


def _series(view: str, column: ResultColumn, words: list[Word], dictionary: Dictionary) -> pl.Series:
    kind = column.type
    if kind.kind is Kind.DECIMAL and (
        kind.scale > _MOST_DIGITS or any(abs(w) >= 10**_MOST_DIGITS for w in words if w is not None)
    ):
        dtype = f"Decimal({_MOST_DIGITS}, {kind.scale})"
        raise DataError(f"{view}.{column.name} does not fit {dtype}; read it with engine[{view!r}]")
    decode = decoder(kind, dictionary)
    return pl.Series(column.name, [decode(w) for w in words], dtype=_dtype(kind), strict=True)


def _dtype(kind: Type) -> pl.DataType:
    if kind.kind is Kind.DECIMAL:
        return pl.Decimal(_MOST_DIGITS, kind.scale)
    if kind.kind is Kind.INTEGER:
        return pl.Int64() if kind.low >= -INT64_MAX and kind.high <= INT64_MAX else pl.Int128()
    return _DTYPES[kind.kind]
