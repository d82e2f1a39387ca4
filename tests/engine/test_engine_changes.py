"""Frames and rows at the edge: what is taken, to the digit, and what is refused, with row and column."""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, timezone
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pytest
from backends import quotes
from hypothesis import given
from hypothesis import strategies as st
from polars._typing import PolarsDataType, TimeUnit

import orderbook
from orderbook.core.changes import END_OF_EVENT, END_OF_MESSAGE, NULL_CODE
from orderbook.core.errors import DataError

LARGEST = 10**10 - 1


def frame_of(
    column: str,
    values: Sequence[object],
    dtype: PolarsDataType | None = None,
    stream: str = "quotes",
    **others: Sequence[object],
) -> pl.DataFrame:
    """A frame of inserts with one column under test; symbol and volume are given where it is another."""
    count = len(values)
    data: dict[str, Sequence[object]] = {
        "stream": [stream] * count,
        "op": ["+"] * count,
        "symbol": ["A"] * count,
    }
    if stream == "quotes":
        data["volume"] = [1] * count
    return pl.DataFrame(data | others).with_columns(pl.Series(column, values, dtype=dtype, strict=False))


def codes(
    column: str, values: Sequence[object], dtype: PolarsDataType | None = None, stream: str = "quotes"
) -> list[int]:
    batch = quotes().changes(frame_of(column, values, dtype, stream))
    relation = next(r for r in quotes().relations if r.name == stream)
    place = [c.name for c in relation.columns].index(column)
    return [int(code) for code in batch.values[:, place]]


def test_kinds_flags_and_order_follow_the_rows() -> None:
    frame = pl.DataFrame(
        {
            "stream": ["quotes", "marks", "quotes", "quotes"],
            "op": ["+", "+", "-", "+"],
            "last": [False, None, True, False],
            "symbol": ["A", "B", "A", "C"],
            "volume": ["1.5", None, "1.50", "2"],
            "level": [None, 7, None, None],
        }
    )
    program = quotes()
    batch = program.changes(frame)
    index = [r.name for r in program.relations].index
    quotes_kind, marks_kind = 2 * index("quotes"), 2 * index("marks")
    assert batch.kinds.tolist() == [quotes_kind, marks_kind, quotes_kind + 1, quotes_kind]
    both = END_OF_EVENT | END_OF_MESSAGE
    assert batch.flags.tolist() == [END_OF_EVENT, both, both, END_OF_EVENT]
    assert batch.kinds.dtype == np.int16 and batch.flags.dtype == np.uint8 and batch.values.dtype == np.int64
    symbols = batch.values[:, 0].tolist()
    assert [program.dictionary.decode(code) for code in symbols] == ["A", "B", "A", "C"]
    assert batch.values[[0, 2, 3], 2].tolist() == [150, 150, 200]
    assert batch.values[0, [1, 3]].tolist() == [NULL_CODE, NULL_CODE]
    assert batch.values[1, 1:5].tolist() == [NULL_CODE, NULL_CODE, NULL_CODE, 7]


@pytest.mark.parametrize(
    ("values", "dtype", "expected"),
    [
        ([1, 2], pl.Int64, [100, 200]),
        ([3], pl.UInt8, [300]),
        ([99_999_999], pl.UInt64, [9_999_999_900]),
        ([Decimal("1.25"), Decimal("0.10")], pl.Decimal(20, 2), [125, 10]),
        ([Decimal("1.2"), Decimal("7")], pl.Decimal(20, 1), [120, 700]),
        ([Decimal("1.25000"), Decimal("99999999.99")], pl.Decimal(38, 20), [125, LARGEST]),
        (["1.5", "007", "12.3400", "0"], pl.String, [150, 700, 1234, 0]),
        (["1.5e1", "+2", ".5", "3."], pl.String, [1500, 200, 50, 300]),
        ([0.25, 223.95, 1e7], pl.Float64, [25, 22395, 10**9]),
        ([0.5], pl.Float32, [50]),
    ],
)
def test_decimals_are_taken_exactly(values: list[object], dtype: PolarsDataType, expected: list[int]) -> None:
    assert codes("volume", values, dtype) == expected


@pytest.mark.parametrize(
    ("values", "dtype", "reason"),
    [
        ([1, -1], pl.Int64, "row 1, quotes.volume: -1 is outside the declared range 0.00 to 99999999.99"),
        ([100_000_000], pl.Int64, "row 0, quotes.volume: 100000000 is outside"),
        ([2**64 - 1], pl.UInt64, "row 0, quotes.volume: 18446744073709551615 is outside"),
        ([Decimal("1.255")], pl.Decimal(20, 3), "1.255 has more than 2 decimal places"),
        ([Decimal(10) ** 37], pl.Decimal(38, 0), "is outside the declared range"),
        (["1", "1.001"], pl.String, "row 1, quotes.volume: '1.001' has more than 2 decimal places"),
        (["1", "ten"], pl.String, "row 1, quotes.volume: 'ten' is not a number"),
        (["nan"], pl.String, "'nan' is not a finite number"),
        (["1e999999999"], pl.String, "has more than 400 digits"),
        ([""], pl.String, "'' is not a number"),
        ([0.1 + 0.2], pl.Float64, "0.30000000000000004 has more than 2 decimal places; floats are inexact"),
        ([223.95], pl.Float32, "has more than 2 decimal places"),
        ([float("nan")], pl.Float64, "nan is not a finite number"),
        ([float("inf")], pl.Float64, "inf is not a finite number"),
        ([None, 1], pl.Int64, "row 0, quotes.volume: NULL in a NOT NULL column"),
        ([True], pl.Boolean, "True is not a number"),
        ([[1]], pl.List(pl.Int64), "is not a number"),
    ],
)
def test_what_is_not_a_value_of_the_column_is_named(
    values: list[object], dtype: PolarsDataType, reason: str
) -> None:
    with pytest.raises(DataError) as error:
        codes("volume", values, dtype)
    assert reason in str(error.value)


def test_other_columns() -> None:
    moment = datetime(2024, 1, 2, 3, 4, 5, 678901)
    ns = 1_704_164_645_678_901_000
    assert codes("at", [ns + 23, None], pl.Int64, "marks") == [ns + 23, NULL_CODE]
    units: tuple[tuple[TimeUnit, int], ...] = (("ns", 1), ("us", 1), ("ms", 1_000_000))
    for unit, lost in units:
        assert codes("at", [moment], pl.Datetime(unit), "marks") == [ns // lost * lost]
    berlin = timezone(timedelta(hours=2))
    moments = [moment.replace(tzinfo=berlin)]
    assert codes("at", moments, pl.Datetime("us", "UTC"), "marks") == [ns - 7_200 * 10**9]
    assert codes("open", [True, False, None], pl.Boolean, "marks") == [1, 0, NULL_CODE]
    assert codes("level", [2**63 - 1, -(2**63) + 1], pl.Int64, "marks") == [2**63 - 1, -(2**63) + 1]
    doubles = codes("value", [1.5, -0.0, None], pl.Float64, "marks")
    assert doubles[1:] == [0, NULL_CODE]
    assert np.array(doubles[:1]).view(np.float64).tolist() == [1.5]
    assert codes("value", [3], pl.Int32, "marks") == codes("value", [3.0], pl.Float64, "marks")
    names = codes("symbol", ["x", "y", "x"], pl.Categorical)
    assert [quotes().dictionary.decode(n) for n in names] == ["x", "y", "x"]


@pytest.mark.parametrize(
    ("column", "values", "dtype", "reason"),
    [
        ("at", ["2024-13-01"], pl.String, "marks.at: '2024-13-01' is not a timestamp; give ns"),
        ("at", [datetime(9999, 1, 1)], pl.Datetime("ms"), "marks.at: 9999-01-01 00:00:00 is outside"),
        ("open", [1], pl.Int64, "marks.open: 1 is not a boolean"),
        ("level", [-(2**63)], pl.Int64, "marks.level: -9223372036854775808 is outside the declared range"),
        ("level", [1.5], pl.Float64, "marks.level: 1.5 has decimal places"),
        ("value", [float("inf")], pl.Float64, "marks.value: inf is not a finite number"),
        ("symbol", [5], pl.Int64, "marks.symbol: 5 is not a string"),
    ],
)
def test_other_columns_refuse(column: str, values: list[object], dtype: PolarsDataType, reason: str) -> None:
    with pytest.raises(DataError) as error:
        codes(column, values, dtype, "marks")
    assert str(error.value).startswith("row 0, ") and reason in str(error.value)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"stream": ["quotes", "quote"]}, "row 1, stream: 'quote'; give one of bids, asks, trades"),
        ({"stream": ["quotes", None]}, "row 1, stream: no value; give one of"),
        ({"op": ["+", "insert"]}, "row 1, op: 'insert'; give one of +, -"),
        ({"last": [1, 0]}, "column 'last' is Int64; it holds booleans"),
        ({"stream": [1, 2]}, "column 'stream' is Int64; it holds strings"),
        ({"prise": [1, 2]}, "no stream has a column 'prise'"),
        ({"level": [None, 3]}, "row 1, level: quotes has no such column; leave it null"),
        ({"symbol": ["A", None]}, "row 1, quotes.symbol: NULL in a NOT NULL column"),
    ],
)
def test_bad_frames(change: dict[str, list[object]], reason: str) -> None:
    good = {"stream": ["quotes"] * 2, "op": ["+"] * 2, "symbol": ["A"] * 2, "volume": [1] * 2}
    with pytest.raises(DataError) as error:
        quotes().changes(pl.DataFrame(good | change))
    assert reason in str(error.value)


@pytest.mark.parametrize("name", ["stream", "op", "volume"])
def test_a_missing_column(name: str) -> None:
    good = {"stream": ["quotes"], "op": ["+"], "symbol": ["A"], "volume": [1]}
    with pytest.raises(DataError, match=name):
        quotes().changes(pl.DataFrame(good).drop(name))


def test_the_first_bad_row_is_named_whatever_its_stream() -> None:
    frame = pl.DataFrame(
        {
            "stream": ["marks", "quotes", "marks"],
            "op": ["+"] * 3,
            "symbol": ["A", "A", None],
            "volume": [None, -1, None],
            "level": [1, None, 1],
        }
    )
    with pytest.raises(DataError, match=r"^row 1, quotes.volume"):
        quotes().changes(frame)


def test_an_empty_frame() -> None:
    frame = pl.DataFrame({"stream": [], "op": [], "symbol": []}, schema_overrides={"stream": pl.String})
    batch = quotes().changes(frame)
    assert len(batch) == 0
    engine = orderbook.Engine(quotes(), "interpreter")
    engine.apply(batch)
    assert engine.version == (0, 0, 0)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"symbol": "A", "volume": "1.001"}, "quotes.volume: '1.001' has more than 2 decimal places"),
        ({"symbol": "A"}, "quotes.volume: no value; the column is NOT NULL"),
        ({"symbol": "A", "volume": None}, "quotes.volume: NULL in a NOT NULL column"),
        ({"symbol": 1, "volume": 1}, "quotes.symbol: 1 is not a string"),
        ({"symbol": "A", "volume": 1, "prise": 1}, "quotes has no column 'prise'; its columns are symbol"),
        ([1, 2], "quotes: a row is a mapping"),
        ({"symbol": "A", "volume": object}, "is not a number"),
    ],
)
def test_bad_rows_change_nothing(row: Mapping[str, object], reason: str) -> None:
    engine = orderbook.Engine(quotes(), "interpreter")
    with pytest.raises(DataError) as error:
        engine.insert("quotes", row)
    assert reason in str(error.value)
    assert engine.version == (0, 0, 0) and len(engine["totals"]) == 0


def test_rows_take_numpy_values_and_datetimes() -> None:
    engine = orderbook.Engine(quotes(), "interpreter")
    moment = datetime(2024, 1, 2, tzinfo=timezone(timedelta(hours=1)))
    engine.insert("marks", {"symbol": "A", "value": np.float64(0.5), "level": np.int32(4), "at": moment})
    engine.insert("marks", {"symbol": "B", "at": datetime(2024, 1, 1, 23)})
    rows = {row.symbol: row for row in engine["marked"].values()}
    assert (rows["A"].value, rows["A"].level) == (0.5, 4)
    assert rows["A"].at == rows["B"].at == 1_704_150_000 * 10**9


EXACT = st.integers(0, LARGEST).map(lambda scaled: Decimal(scaled).scaleb(-2))


@given(st.lists(EXACT, min_size=1, max_size=20))
def test_every_form_of_a_decimal_has_the_same_code(values: list[Decimal]) -> None:
    expected = [int(v * 100) for v in values]
    assert codes("volume", values, pl.Decimal(38, 5)) == expected
    assert codes("volume", [str(v) for v in values], pl.String) == expected
    assert codes("volume", [float(v) for v in values], pl.Float64) == expected


@given(st.lists(st.floats(0, 1e8), min_size=1, max_size=20))
def test_a_float_is_taken_just_where_its_repr_fits(values: list[float]) -> None:
    fits = [v for v in values if Decimal(repr(v)) * 100 % 1 == 0 and Decimal(repr(v)) * 100 <= LARGEST]
    assert codes("volume", fits, pl.Float64) == [int(Decimal(repr(v)) * 100) for v in fits]
    for value in {*values} - {*fits}:
        with pytest.raises(DataError):
            codes("volume", [value], pl.Float64)


@pytest.mark.parametrize("form", ["polars", "pandas", "arrow", "columns"])
def test_rows_of_one_relation_need_no_other_columns(form: str) -> None:
    columns = {"symbol": ["A", "B", "A"], "level": [7, 8, 9], "value": [1.5, None, 2.5]}
    frame = pl.DataFrame(columns)
    given = {"polars": frame, "pandas": pd.DataFrame(columns), "arrow": frame.to_arrow(), "columns": columns}
    program = quotes()
    said = frame.with_columns(stream=pl.lit("marks"), op=pl.lit("+"))
    found, wanted = program.changes(given[form], "marks"), program.changes(said)
    assert found.kinds.tolist() == wanted.kinds.tolist() and found.flags.tolist() == wanted.flags.tolist()
    assert found.values.tolist() == wanted.values.tolist()
    deleted = program.changes(frame.with_columns(op=pl.lit("-")), "marks")
    assert deleted.kinds.tolist() == [kind + 1 for kind in wanted.kinds.tolist()]


@pytest.mark.parametrize(
    ("frame", "relation", "reason"),
    [
        (pl.DataFrame({"level": [1]}), "mark", "no stream is called 'mark'; did you mean 'marks'?"),
        (
            pl.DataFrame({"stream": ["marks"]}),
            "marks",
            "the frame has a column 'stream', and all rows are of marks; leave one out",
        ),
        (pl.DataFrame({"level": [1]}), None, "needs a column 'stream'; or say whose rows all are"),
        (pl.DataFrame({"level": [1], "bid": [2]}), "marks", "marks has no column 'bid'; leave it out"),
        (5, "marks", "no frame can be made of int"),
        ("marks.csv", "marks", "'marks.csv' is no frame; read it first"),
    ],
)
def test_frames_of_one_relation_that_are_refused(frame: object, relation: str | None, reason: str) -> None:
    with pytest.raises(DataError, match=re.escape(reason)):
        quotes().changes(frame, relation)
