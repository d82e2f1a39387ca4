"""Rows as users write them: mappings, tuples and objects, encoded as `encode_value` says."""

from collections import OrderedDict
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import examples

import orderbook
from orderbook.core.changes import Dictionary
from orderbook.core.errors import DataError
from orderbook.views.compilation import compile_views
from orderbook.views.encoding.rows import RowEncoder
from orderbook.views.encoding.values import encode_value, pack

SQL = """
CREATE STREAM quotes (
    ts     TIMESTAMP,
    id     BIGINT         CHECK (id BETWEEN -5 AND 1000000),
    symbol TEXT,
    price  DECIMAL(18, 8),
    small  DECIMAL(6, 2),
    ratio  DOUBLE,
    open   BOOLEAN
);
CREATE VIEW v AS SELECT symbol, SUM(price) AS s, COUNT(*) AS n FROM quotes GROUP BY symbol;
"""
RELATION = compile_views(SQL).catalog.relations[-1]
NAMES = [column.name for column in RELATION.columns]

numbers = (
    st.integers(-(2**70), 2**70)
    | st.floats()
    | st.decimals(allow_nan=True, allow_infinity=True)
    | st.decimals(-1000, 1000, places=3)
    | st.floats(-1000, 1000).map(lambda x: round(x, 2))
    | st.sampled_from(
        ["1.5", "-0.25", "1_000", "x", "", "1e400", "NaN", Decimal("1E-900"), Decimal("1E+900"), -0.0]
    )
    | st.sampled_from([" 7 ", "-0.0", "1e3", "\u0663", "inf", "3.123456789"])
)
values = (
    st.none()
    | numbers
    | st.booleans()
    | st.sampled_from(["true", "False", "2024-01-31 12:00:00.5", "2024-13-31"])
    | st.sampled_from(["A", "B", "\ud800", datetime(2026, 1, 2, tzinfo=UTC)])
)


@examples(400)
@given(st.fixed_dictionaries(dict.fromkeys(NAMES, values)))
def test_a_row_is_encoded_as_its_values_are(row: dict[str, Any]) -> None:
    words = Dictionary(["A"])
    encoder, expected, wrong = RowEncoder(RELATION, words), [], None
    for column in RELATION.columns:
        try:
            expected.append(pack(encode_value(column, row[column.name], words)))
        except ValueError as error:
            wrong = f"quotes.{column.name}: {error}"
            break
    for form in (row, OrderedDict(row), tuple(row[name] for name in NAMES), Attributes(**row)):
        if wrong is None:
            assert encoder.encode(form) == expected
        else:
            with pytest.raises(DataError) as raised:
                encoder.encode(form)
            assert str(raised.value) == wrong


@dataclass
class Attributes:
    ts: Any
    id: Any
    symbol: Any
    price: Any
    small: Any
    ratio: Any
    open: Any


class Quote(msgspec.Struct):
    symbol: str
    price: Decimal
    id: int = 7


@pytest.mark.parametrize("backend", ["interpreter", "numba"])
def test_rows_in_every_form_are_inserted_and_deleted(backend: Any) -> None:
    engine = orderbook.Engine(orderbook.compile(SQL), backend)
    engine.insert("quotes", Quote("A", Decimal("1.5")))
    engine.insert("quotes", {"symbol": "A", "price": "1.5", "id": 7})
    engine.insert("quotes", (None, 7, "A", 1.5, None, None, None))
    assert engine["v"]["A"]["n"] == 3 and engine["v"]["A"]["s"] == Decimal("4.5")
    engine.update("quotes", Quote("A", Decimal("1.5")), Quote("A", Decimal(2), id=8))
    engine.delete("quotes", (None, 7, "A", Decimal("1.50"), None, None, None))
    assert engine["v"]["A"]["s"] == Decimal("3.5")


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ((1, 2), "quotes: a row of 2 values; its columns are ts, id, symbol, price, small, ratio, open"),
        ({"symbol": "A", "prize": 1}, "quotes has no column 'prize'; its columns are ts, id"),
        ({"id": 1000001}, "quotes.id: 1000001 is outside the declared range -5 to 1000000"),
        (5, "quotes: a row is a mapping of column names to values, a tuple of them .* not 5"),
        ("A", "quotes: a row is a mapping"),
        ([1, 2], "quotes: a row is a mapping"),
    ],
)
def test_what_is_no_row_is_refused(row: Any, said: str) -> None:
    engine = orderbook.Engine(orderbook.compile(SQL), "interpreter")
    with pytest.raises(DataError, match=said):
        engine.insert("quotes", row)
    assert not len(engine["v"])
