"""What users read from an engine, against results worked out by hand or by plain Python."""

from collections import Counter
from datetime import datetime
from decimal import Decimal

import polars as pl
import pytest
from backends import BACKENDS, quote, quotes
from hypothesis import given
from hypothesis import strategies as st

import orderbook
from orderbook.core.errors import DataError, UserError
from orderbook.engine.runtime.program_start import Backend
from orderbook.operations.summary import some_rows


@pytest.fixture(params=BACKENDS)
def engine(request: pytest.FixtureRequest) -> orderbook.Engine:
    return orderbook.Engine(quotes(), request.param)


def test_a_view_of_one_row_is_there_before_any_event(engine: orderbook.Engine) -> None:
    assert engine["overall"][()] == {"volume": None, "orders": 0}
    assert len(engine["overall"]) == 1
    assert engine.version == (0, 0, 0)


def test_rows_follow_inserts_updates_and_deletes(engine: orderbook.Engine) -> None:
    totals = engine["totals"]
    engine.insert("quotes", quote("A", "1.50"))
    engine.insert("quotes", quote("A", Decimal("2.25")))
    engine.insert("quotes", quote("B", 4))
    assert dict(totals) == {
        ("A",): {"symbol": "A", "volume": Decimal("3.75"), "orders": 2},
        ("B",): {"symbol": "B", "volume": Decimal("4.00"), "orders": 1},
    }
    engine.update("quotes", quote("A", "1.5"), quote("B", "0.5"))
    assert {key: row.volume for key, row in totals.items()} == {
        ("A",): Decimal("2.25"),
        ("B",): Decimal("4.50"),
    }
    engine.delete("quotes", quote("A", "2.25"))
    assert list(totals) == [("B",)] and len(totals) == 1
    assert engine["overall"][()].orders == 2
    assert engine.version == (5, 0, 5)
    assert not engine.problems.counts


def test_deleting_everything_empties_every_map(engine: orderbook.Engine) -> None:
    rows = [quote("A", 12, "3.10", "X"), quote("A", 12, "3.10", "X"), quote("B", 1, None, None)]
    for row in rows:
        engine.insert("quotes", row)
    assert any(engine.map_sizes().values()) and engine.memory_bytes() > 0
    for row in reversed(rows):
        engine.delete("quotes", row)
    assert not any(engine.map_sizes().values())


def test_keys_have_the_order_of_group_by_and_may_be_null(engine: orderbook.Engine) -> None:
    engine.insert("quotes", quote("A", 1, "2.00", "X"))
    engine.insert("quotes", quote("A", 1, "3.50", "X"))
    engine.insert("quotes", quote("A", 1, "9"))
    places = engine["places"]
    assert set(places) == {("A", "X"), ("A", None)}
    assert places["A", "X"].mean == 2.75
    assert places["A", None] == {"venue": None, "symbol": "A", "mean": 9.0}


def test_key_order_does_not_depend_on_the_maps_that_views_share() -> None:
    program = orderbook.compile("""
        CREATE VIEW one AS SELECT SUM(volume) AS v FROM bids GROUP BY venue, symbol;
        CREATE VIEW two AS SELECT SUM(volume) AS v FROM bids GROUP BY symbol, venue""")
    engine = orderbook.Engine(program, "interpreter")
    row = {"ts": 1, "venue": "X", "symbol": "A", "id": 1, "broker_id": 0, "volume": 3, "price": 1}
    engine.insert("bids", row)
    assert list(engine["one"]) == [("X", "A")]
    assert list(engine["two"]) == [("A", "X")]


def test_keys_of_decimals_and_of_equal_names() -> None:
    program = orderbook.compile("""
        CREATE VIEW depth AS SELECT COUNT(*) AS n FROM bids GROUP BY price;
        CREATE VIEW pairs AS SELECT b.price AS bid, a.price AS ask FROM bids b, asks a""")
    engine = orderbook.Engine(program, "interpreter")
    row = {"ts": 1, "venue": "X", "symbol": "A", "id": 1, "broker_id": 0, "volume": 3, "price": "223.95"}
    engine.insert("bids", row)
    engine.insert("asks", {**row, "price": "224.5"})
    assert engine["depth"][Decimal("223.950")].n == 1
    assert engine["depth"]["223.95"].n == 1
    assert list(engine["pairs"]) == [(Decimal("223.95"), Decimal("224.5"))]


def test_a_key_of_one_column_may_be_given_bare(engine: orderbook.Engine) -> None:
    engine.insert("quotes", quote("AMZN", 7))
    assert engine["totals"]["AMZN"].volume == 7
    assert engine["totals"][("AMZN",)]["volume"] == 7


@pytest.mark.parametrize("key", ["nobody", 5, (), ("AMZN", "X"), None])
def test_a_key_without_a_row_is_a_key_error(engine: orderbook.Engine, key: object) -> None:
    engine.insert("quotes", quote("AMZN", 7))
    known = len(engine.dictionary)
    with pytest.raises(KeyError):
        engine["totals"][key]
    assert key not in engine["totals"]
    assert len(engine.dictionary) == known


def test_rows_are_read_only_records_as_of_when_they_were_read(engine: orderbook.Engine) -> None:
    engine.insert("quotes", quote("A", 1))
    row = engine["totals"]["A"]
    engine.insert("quotes", quote("A", 1))
    assert (row.orders, row["orders"], engine["totals"]["A"].orders) == (1, 1, 2)
    assert list(row) == ["symbol", "volume", "orders"] and len(row) == 3
    assert repr(row) == "totals(symbol='A', volume=Decimal('1.00'), orders=1)"
    with pytest.raises(AttributeError):
        row.orders = 5  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match="no column 'order'"):
        _ = row.order
    with pytest.raises(KeyError):
        row["order"]


def test_without_aggregates_a_view_is_a_multiset(engine: orderbook.Engine) -> None:
    for volume in (10, 10, "25.5", 9):
        engine.insert("quotes", quote("A", volume))
    large = engine["large"]
    assert {key: row.multiplicity for key, row in large.items()} == {
        ("A", Decimal("10.00")): 2,
        ("A", Decimal("25.50")): 1,
    }
    assert sorted(engine.frame("large")["volume"].to_list()) == [10, 10, Decimal("25.5")]


def test_values_come_out_decoded(engine: orderbook.Engine) -> None:
    at = 1_700_000_000_123_456_789
    engine.insert("marks", {"symbol": "A", "value": -0.0, "at": at, "open": True, "level": -5})
    engine.insert("marks", {"symbol": "B"})
    rows = {row.symbol: row for row in engine["marked"].values()}
    assert dict(rows["A"]) == {"symbol": "A", "value": 0.0, "at": at, "open": True, "level": -5}
    assert isinstance(rows["A"].open, bool)
    assert dict(rows["B"]) == {"symbol": "B", "value": None, "at": None, "open": None, "level": None}
    engine.delete("marks", {"symbol": "A", "value": 0.0, "at": at, "open": True, "level": -5})
    assert {row.symbol for row in engine["marked"].values()} == {"B"}


def test_frames_have_the_types_of_the_columns(engine: orderbook.Engine) -> None:
    at = datetime(2024, 1, 2)
    engine.insert("marks", {"symbol": "A", "value": 0.5, "at": at, "open": True, "level": 2**62})
    engine.insert("marks", {"symbol": "A", "level": 2**62})
    engine.insert("quotes", quote("A", "1.5", "2", "X"))
    marked = engine.frame("marked")
    assert marked.schema == {
        "symbol": pl.String,
        "value": pl.Float64,
        "at": pl.Datetime("ns"),
        "open": pl.Boolean,
        "level": pl.Int64,
    }
    assert sorted(marked.rows(), key=str) == [
        ("A", 0.5, at, True, 2**62),
        ("A", None, None, None, 2**62),
    ]
    assert engine.frame("levels").schema["level"] == pl.Int128
    assert engine.frame("levels").rows() == [("A", 2**63)]
    assert engine.frame("totals").schema == {
        "symbol": pl.String,
        "volume": pl.Decimal(38, 2),
        "orders": pl.Int64,
    }
    assert engine.frame("totals").rows() == [("A", Decimal("1.5"), 1)]
    assert engine.frame("places").rows() == [("X", "A", 2.0)]


def test_a_frame_of_an_empty_view_has_its_columns(engine: orderbook.Engine) -> None:
    frame = engine.frame("totals")
    assert (frame.height, frame.columns) == (0, ["symbol", "volume", "orders"])


def test_unknown_names_say_what_there_is(engine: orderbook.Engine) -> None:
    with pytest.raises(DataError, match="no view 'total'; the program has totals, overall"):
        engine["total"]
    with pytest.raises(DataError, match="no view 'total'"):
        engine.frame("total")
    with pytest.raises(DataError, match="no view 'total'"):
        engine.subscribe("total", print)
    with pytest.raises(DataError, match=r"no stream or table 'quote'; the program has .*quotes"):
        engine.insert("quote", {})
    with pytest.raises(UserError, match="backend 'spark'; give one of numba, interpreter"):
        orderbook.Engine(quotes(), "spark")  # type: ignore[arg-type]


def test_engines_of_one_program_are_apart_and_share_its_dictionary() -> None:
    one, two = (orderbook.Engine(quotes(), "interpreter") for _ in range(2))
    one.insert("quotes", quote("A", 1))
    assert len(one["totals"]) == 1 and len(two["totals"]) == 0
    assert one.dictionary is two.dictionary is quotes().dictionary


VOLUMES = st.integers(0, 2000).map(lambda lots: Decimal(lots) / 100)
ROWS = st.tuples(st.sampled_from("ABC"), VOLUMES)


@given(st.lists(st.tuples(st.booleans(), ROWS), max_size=40), st.sampled_from(BACKENDS))
def test_frames_equal_a_recomputation(
    steps: list[tuple[bool, tuple[str, Decimal]]], backend: Backend
) -> None:
    engine = orderbook.Engine(quotes(), backend)
    rows: Counter[tuple[str, Decimal]] = Counter()
    for insert, (symbol, volume) in steps:
        if insert or not rows[symbol, volume]:
            engine.insert("quotes", quote(symbol, volume))
            rows[symbol, volume] += 1
        else:
            engine.delete("quotes", quote(symbol, volume))
            rows[symbol, volume] -= 1
    expected = {
        symbol: (
            sum(v * n for (s, v), n in rows.items() if s == symbol),
            sum(n for (s, _), n in rows.items() if s == symbol),
        )
        for symbol in {s for s, _ in rows.elements()}
    }
    found = {symbol: (volume, orders) for symbol, volume, orders in engine.frame("totals").rows()}
    assert found == expected
    large = Counter(engine.frame("large").rows())
    assert large == Counter(row for row in rows.elements() if row[1] >= 10)


ORDERED = """
CREATE STREAM t (s TEXT NOT NULL, x INTEGER);
CREATE VIEW plain AS SELECT s, x FROM t ORDER BY x DESC NULLS FIRST, s;
CREATE VIEW grouped AS SELECT s, SUM(x) AS total FROM t GROUP BY s ORDER BY total, s DESC;
CREATE VIEW counted AS SELECT COUNT(*) AS n, s FROM t GROUP BY s;
"""


@pytest.mark.parametrize("backend", BACKENDS)
def test_rows_are_shown_in_the_order_of_the_view(backend: Backend) -> None:
    engine = orderbook.Engine(orderbook.compile(ORDERED), backend)
    for s, x in (("a", 1), ("b", None), ("c", 5), ("b", 5), ("d", 1), ("d", 6)):
        engine.insert("t", {"s": s, "x": x})
    assert engine.frame("plain").rows() == [("b", None), ("d", 6), ("b", 5), ("c", 5), ("a", 1), ("d", 1)]
    assert engine.frame("grouped").rows() == [("a", 1), ("c", 5), ("b", 5), ("d", 7)]
    assert [label for label, _ in some_rows(engine, "plain", 3)] == ["b", "d", "b"]
    engine.insert("t", {"s": "e", "x": None})
    assert engine.frame("grouped").rows()[-1] == ("e", None)
    assert [label for label, _ in some_rows(engine, "grouped")] == ["a", "c", "b", "d", "e"]
    assert [label for label, _ in some_rows(engine, "counted")] == ["a", "c", "e", "b", "d"]


@pytest.mark.parametrize("backend", ["interpreter", "numba"])
def test_the_total_of_no_rows_has_no_value_of_a_double(backend: Backend) -> None:
    sql = """
        CREATE STREAM t (ts TIMESTAMP NOT NULL, symbol TEXT NOT NULL, price DOUBLE NOT NULL);
        CREATE VIEW v AS SELECT symbol, ARG_MIN(price, ts) AS first, AVG(price) AS mean, COUNT(*) AS n
        FROM t GROUP BY ROLLUP (symbol);
        """
    engine = orderbook.Engine(orderbook.compile(sql), backend)
    assert engine.frame("v").rows() == [(None, None, None, 0)]
    engine.insert("t", (1, "A", 0.5))
    assert sorted(engine.frame("v").rows(), key=str) == [("A", 0.5, 0.5, 1), (None, 0.5, 0.5, 1)]
    engine.delete("t", (1, "A", 0.5))
    assert engine.frame("v").rows() == [(None, None, None, 0)]
