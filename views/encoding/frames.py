"""Polars frames: of changes, encoded column by column, and of a view's rows.

Each column of changes is encoded in bulk where it can be; the values that are left go through `encode_value`,
which either takes a rarer form or says what is wrong, so that rows and frames obey the same rules.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from orderbook.core.changes import END_OF_EVENT, END_OF_MESSAGE, NULL_CODE, ChangeBatch, Dictionary, Word
from orderbook.core.errors import DataError, suggestion
from orderbook.views.encoding.moments import moments
from orderbook.views.encoding.rows import RowEncoder
from orderbook.views.encoding.values import decoder, encode_value, pack
from orderbook.views.m3 import Result, ResultColumn
from orderbook.views.types import INT64_MAX, Column, Kind, Relation, ShownBy, Type

_CONTROL = ("stream", "op", "last")
_DIGITS = r"^(-?[0-9]{1,20})(?:\.([0-9]{1,20}))?$"
_NS = {"ns": 1, "us": 1_000, "ms": 1_000_000}
# Integers below are exact doubles, and no two decimals of so few digits share a double.
_EXACT_DOUBLE = 2**53
# 10 to this power is an exact double.
_EXACT_POWER = 22
# No two decimals of 15 digits share a double; a text of so many characters has no more, or no point.
_LENGTH, _FEW_DIGITS = 16, 10**15
_MOST_DIGITS = 38
_DTYPES: dict[Kind, pl.DataType] = {
    Kind.DOUBLE: pl.Float64(),
    Kind.BOOLEAN: pl.Boolean(),
    Kind.TEXT: pl.String(),
    Kind.TIMESTAMP: pl.Datetime("ns"),
}


class _BadValueError(Exception):
    """A value that its column does not take, and its place in the column."""

    def __init__(self, row: int, reason: str):
        super().__init__(reason)
        self.row, self.reason = row, reason


def encode_frame(
    given: Any, relations: Sequence[Relation], dictionary: Dictionary, relation: str | None = None
) -> ChangeBatch:
    """See `CompiledProgram.changes`."""
    frame = given if isinstance(given, pl.DataFrame) else _frame(given)
    names = [r.name for r in relations]
    _check_columns(frame, relations, relation)
    if relation is None:
        streams = _codes_of(frame, "stream", names)
        there: list[int] = np.unique(streams).tolist()
    else:
        there = [names.index(relation)]
        streams = np.full(len(frame), there[0])
    deletes = _codes_of(frame, "op", ["+", "-"]) if "op" in frame.columns else 0
    flags = np.full(len(frame), END_OF_EVENT | END_OF_MESSAGE, np.uint8)
    if "last" in frame.columns:
        flags[~_last(frame)] = END_OF_EVENT
    width = max((len(relations[i].columns) for i in there or range(len(relations))), default=0)
    values = np.zeros((len(frame), width), np.int64)
    problems: list[tuple[int, str]] = []
    for index in there:
        rows = np.flatnonzero(streams == index) if len(there) > 1 else np.arange(len(frame))
        problems += _encode_stream(frame, rows, relations[index], dictionary, values)
    if problems:
        row, reason = min(problems)
        raise DataError(f"row {row}, {reason}")
    return ChangeBatch((2 * streams + deletes).astype(np.int16), flags, values)


def encode_rows(
    frame: pl.DataFrame, relation: Relation, dictionary: Dictionary
) -> tuple[NDArray[np.int64], dict[int, str]]:
    """The codes of rows of a relation, int64[n, columns], and by their places why rows are refused.

    As `RowEncoder` has it, row by row: what is not encoded by column, it encodes or refuses.
    """
    columns = [replace(c, nullable=c.nullable or c.hidden) for c in relation.columns]
    values = np.empty((len(frame), len(columns)), np.int64)
    left = np.zeros(len(frame), bool)
    left |= not {c.name for c in columns}.issuperset(frame.columns)
    _name_texts([frame[c.name] for c in columns if c.type.kind is Kind.TEXT and c.name in frame], dictionary)
    for place, column in enumerate(columns):
        if column.name not in frame:
            values[:, place] = NULL_CODE
            left |= not column.nullable
            continue
        series = frame[column.name]
        codes = _encode_bulk(column.type, series, dictionary)
        if codes.null_count():
            left |= _left(column, codes, series).to_numpy()
            codes = codes.fill_null(NULL_CODE)
        values[:, place] = codes.to_numpy()
    encoder, refused, rows = RowEncoder(relation, dictionary), {}, np.flatnonzero(left)
    others = frame[rows].iter_rows(named=True) if len(rows) else ()
    for row, given in zip(rows.tolist(), others, strict=True):
        try:
            values[row] = encoder.encode(given)
        except DataError as error:
            refused[row] = str(error)
    return values, refused


def _name_texts(columns: Sequence[pl.Series], dictionary: Dictionary) -> None:
    """Gives texts of several columns codes in the order of rows, as row by row they get them."""
    if len(columns) < 2:
        return
    found = []
    for place, series in enumerate(columns):
        if isinstance(series.dtype, pl.String | pl.Categorical | pl.Enum):
            firsts = series.is_first_distinct().arg_true()
            texts = series.gather(firsts).cast(pl.String).to_list()
            new = zip(firsts.to_list(), texts, strict=True)
            found += [(row, place, text) for row, text in new if text is not None and text not in dictionary]
    dictionary.encode_all(text for _, _, text in sorted(found))


def _frame(given: Any) -> pl.DataFrame:
    """What polars makes of it; a missing value of pandas, which is NaN, is null."""
    if isinstance(given, str | bytes):
        raise DataError(f"{given!r:.60} is no frame; read it first, as by polars.read_csv")
    try:
        of_pandas = type(given).__module__.partition(".")[0] == "pandas"
        return pl.from_pandas(given) if of_pandas else pl.DataFrame(given)
    except (TypeError, ValueError, pl.exceptions.PolarsError) as error:
        raise DataError(f"no frame can be made of {type(given).__name__}: {error}") from None


def _check_columns(frame: pl.DataFrame, relations: Sequence[Relation], relation: str | None) -> None:
    known = {r.name: {c.name for c in r.columns} for r in relations}
    if relation is None:
        for name, instead in (
            ("stream", "; or say whose rows all are: changes(frame, 'trades')"),
            ("op", ""),
        ):
            if name not in frame.columns:
                raise DataError(f"a frame of changes needs a column {name!r}{instead}")
    elif relation not in known:
        raise DataError(f"no stream is called {relation!r}; {suggestion(relation, known)}")
    elif "stream" in frame.columns:
        raise DataError(f"the frame has a column 'stream', and all rows are of {relation}; leave one out")
    own = set().union(*known.values()) if relation is None else known[relation]
    for name in frame.columns:
        if name not in own and name not in _CONTROL:
            which = "no stream has a column" if relation is None else f"{relation} has no column"
            raise DataError(f"{which} {name!r}; leave it out of the frame")


def _codes_of(frame: pl.DataFrame, name: str, known: list[str]) -> NDArray[np.int64]:
    """Each row's place in `known`, int64[n]."""
    texts = _texts(frame[name])
    codes = texts.replace_strict(known, list(range(len(known))), default=None, return_dtype=pl.Int64)
    bad = codes.is_null().arg_true()
    if len(bad):
        wrong = "no value" if texts[bad[0]] is None else repr(texts[bad[0]])
        raise DataError(f"row {bad[0]}, {name}: {wrong}; give one of {', '.join(known)}")
    return codes.to_numpy()


def _last(frame: pl.DataFrame) -> NDArray[np.bool_]:
    last = frame["last"]
    if last.dtype not in (pl.Boolean, pl.Null):
        raise DataError(f"column 'last' is {last.dtype}; it holds booleans")
    return last.cast(pl.Boolean).fill_null(value=True).to_numpy()


def _encode_stream(
    frame: pl.DataFrame,
    rows: NDArray[np.int64],
    relation: Relation,
    dictionary: Dictionary,
    values: NDArray[np.int64],
) -> list[tuple[int, str]]:
    """Fills in the rows of one stream; returns the first problem of every column, with its row."""
    whole = len(rows) == len(frame)
    part = frame if whole else frame[rows]
    problems: list[tuple[int, str]] = []
    own = {c.name for c in relation.columns}
    for name in frame.columns:
        if name not in own and name not in _CONTROL:
            foreign = part[name].is_not_null().arg_true()
            if len(foreign):
                reason = f"{name}: {relation.name} has no such column; leave it null"
                problems.append((int(rows[foreign[0]]), reason))
    for place, declared in enumerate(relation.columns):
        column = replace(declared, nullable=declared.nullable or declared.hidden)
        own_rows = slice(None) if whole else rows
        if column.name not in frame.columns and column.nullable:
            values[own_rows, place] = NULL_CODE
            continue
        series = part[column.name] if column.name in frame.columns else pl.repeat(None, len(rows), eager=True)
        try:
            values[own_rows, place] = _encode_column(column, series, dictionary)
        except _BadValueError as bad:
            problems.append((int(rows[bad.row]), f"{relation.name}.{column.name}: {bad.reason}"))
    return problems


def _encode_column(column: Column, series: pl.Series, dictionary: Dictionary) -> NDArray[np.int64]:
    """The codes of a column, int64[n]; raises _BadValueError at the first row that it does not take."""
    bulk = _encode_bulk(column.type, series, dictionary)
    codes = bulk.fill_null(NULL_CODE).to_numpy().copy()
    for row in _left(column, bulk, series).arg_true().to_list():
        try:
            codes[row] = pack(encode_value(column, series[row], dictionary))
        except ValueError as error:
            raise _BadValueError(row, str(error)) from None
    return codes


def _left(column: Column, codes: pl.Series, series: pl.Series) -> pl.Series:
    """Which values were not encoded."""
    return codes.is_null() & series.is_not_null() if column.nullable else codes.is_null()


def _encode_bulk(kind: Type, series: pl.Series, dictionary: Dictionary) -> pl.Series:
    """Codes as Int64, null where a value is null or was not encoded."""
    match kind.kind:
        case Kind.TEXT:
            return _dictionary_codes(series, dictionary)
        case Kind.BOOLEAN if series.dtype == pl.Boolean:
            return series.cast(pl.Int64)
        case Kind.BOOLEAN if series.dtype == pl.String:
            lower = series.str.to_lowercase()
            return _where(lower == "true", lower.is_in(("true", "false"))).cast(pl.Int64)
        case Kind.DOUBLE if series.dtype.is_numeric() or series.dtype == pl.String:
            doubles = _doubles(series)
            # In numpy, since polars drops the addition that makes -0.0 the same key as 0.0.
            bits = (doubles.fill_null(0.0).to_numpy() + 0.0).view(np.int64)
            return _where(pl.Series(bits), doubles.is_finite())
        case Kind.TIMESTAMP if isinstance(series.dtype, pl.Datetime):
            return _scaled(kind, series.to_physical().cast(pl.Int128), _NS[series.dtype.time_unit])
        case Kind.TIMESTAMP if series.dtype.is_integer():
            return _scaled(kind, _wide(series, 1), 1)
        case Kind.TIMESTAMP if series.dtype == pl.String:
            return _scaled(kind, moments(series), 1)
        case Kind.INTEGER | Kind.DECIMAL:
            return exact_numbers(kind, series)
    return _nothing(series)


def _dictionary_codes(series: pl.Series, dictionary: Dictionary) -> pl.Series:
    if not isinstance(series.dtype, pl.String | pl.Categorical | pl.Enum):
        return _nothing(series)
    texts = _texts(series)
    distinct = texts.drop_nulls().unique(maintain_order=True)
    codes = dictionary.encode_all(distinct.to_list())
    places = texts.cast(pl.Enum(distinct)).to_physical()
    return pl.Series(codes, dtype=pl.Int64).gather(places)


def _doubles(series: pl.Series) -> pl.Series:
    """As Float64, correctly rounded; null where that is not sure."""
    if isinstance(series.dtype, pl.Decimal):
        # Which is divided by a power of ten.
        few = (series.to_physical().abs() <= _EXACT_DOUBLE) & (series.dtype.scale <= _EXACT_POWER)
        series = _where(series, few)
    return series.cast(pl.Float64, strict=False)


def exact_numbers(kind: Type, series: pl.Series) -> pl.Series:
    """Numbers as integers of an exact type, Int64; null where they are none, or are not read by column."""
    factor = 10**kind.scale
    if series.dtype.is_integer():
        return _scaled(kind, _wide(series, factor), factor)
    if isinstance(series.dtype, pl.Decimal):
        fewer = series.dtype.scale - kind.scale
        whole = series.to_physical()
        if fewer <= 0:
            return _scaled(kind, whole, 10**-fewer)
        divisor = pl.Series([10**fewer], dtype=pl.Int128)
        return _scaled(kind, _where(whole, whole % divisor == 0) // divisor, 1)
    if series.dtype.is_float():
        return _from_floats(kind, series.cast(pl.Float64), factor)
    if series.dtype == pl.String:
        return _from_texts(kind, series)
    return _nothing(series)


def _from_floats(kind: Type, series: pl.Series, factor: int, limit: int = _EXACT_DOUBLE) -> pl.Series:
    """The decimals of the declared scale that are the floats' reprs: dividing gives the very float."""
    with np.errstate(invalid="ignore", over="ignore"):
        floats = series.fill_null(np.nan).to_numpy()
        scaled = np.rint(floats * factor)
        exact = (np.abs(scaled) < limit) & (scaled / factor == floats)
    whole = pl.Series(np.where(exact, scaled, 0.0).astype(np.int64))
    return _scaled(kind, _where(whole, pl.Series(exact)), 1)


def _from_texts(kind: Type, series: pl.Series) -> pl.Series:
    if kind.scale == 0:
        found = _scaled(kind, series.cast(pl.Int64, strict=False), 1)
    else:
        floats = _where(series.cast(pl.Float64, strict=False), series.str.len_bytes() <= _LENGTH)
        found = _from_floats(kind, floats, 10**kind.scale, _FEW_DIGITS)
        if (found == 0).any():
            # Too small for a double, or none.
            found = _where(found, (found != 0) | ~series.str.contains("[1-9]"))
    left = (found.is_null() & series.is_not_null()).arg_true()
    return found.scatter(left, _from_digits(kind, series.gather(left))) if len(left) else found


def _from_digits(kind: Type, series: pl.Series) -> pl.Series:
    parts = series.str.extract_groups(_DIGITS).struct.unnest()
    whole, fraction = (parts[name] for name in parts.columns)
    fraction = fraction.fill_null("").str.strip_chars_end("0")
    fraction = _where(fraction, fraction.str.len_bytes() <= kind.scale).str.pad_end(kind.scale, "0")
    return _scaled(kind, (whole + fraction).cast(pl.Int128, strict=False), 1)


def _wide(whole: pl.Series, factor: int) -> pl.Series:
    """Integers as those to be multiplied."""
    return whole if whole.dtype == pl.Int64 and factor == 1 else whole.cast(pl.Int128)


def _scaled(kind: Type, whole: pl.Series, factor: int) -> pl.Series:
    """Int64 or Int128 times `factor` as Int64, null outside the declared range."""
    low, high = -(-kind.low // factor), kind.high // factor
    least, most = whole.min(), whole.max()
    if not (least is None or (low <= least and most <= high)):  # type: ignore[operator]
        whole = _where(whole, (whole >= low) & (whole <= high))
    found = whole.cast(pl.Int64)
    return found if factor == 1 else found * factor


def _where(series: pl.Series, condition: pl.Series) -> pl.Series:
    """The series, null where the condition does not hold."""
    if condition.all(ignore_nulls=False):
        return series
    return pl.select(pl.when(condition).then(series)).to_series()


def _texts(series: pl.Series) -> pl.Series:
    if not isinstance(series.dtype, pl.String | pl.Categorical | pl.Enum | pl.Null):
        raise DataError(f"column {series.name!r} is {series.dtype}; it holds strings")
    return series.cast(pl.String)


def _nothing(series: pl.Series) -> pl.Series:
    return pl.repeat(None, len(series), dtype=pl.Int64, eager=True)


def view_frame(
    result: Result, rows: Sequence[Sequence[Word]], dictionary: Dictionary, order: Sequence[ShownBy] = ()
) -> pl.DataFrame:
    """The rows of a view, given by their encoded columns, sorted by `order`, else in the order given.

    DECIMAL becomes Decimal(38, scale), INTEGER Int64 or, where the declared bounds need it, Int128;
    TIMESTAMP becomes Datetime("ns"), in UTC. Raises DataError for a decimal of more than 38 digits.
    """
    frame = pl.DataFrame(
        [
            _view_column(result.name, column, [row[i] for row in rows], dictionary)
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


def _view_column(view: str, column: ResultColumn, words: list[Word], dictionary: Dictionary) -> pl.Series:
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
