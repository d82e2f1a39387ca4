"""Deletes of rows that are not there, rows beyond max_rows, and relations fed by books."""

from collections import Counter
from functools import cache

import numpy as np
import polars as pl
import pytest
from backends import BACKENDS, quote, quotes
from hypothesis import given
from hypothesis import strategies as st

import orderbook
from engine.changes import CHECKED, END_OF_EVENT, END_OF_MESSAGE, ChangeBatch
from orderbook.errors import DataError

SMALL = """
CREATE STREAM quotes (symbol TEXT NOT NULL, volume INTEGER NOT NULL) WITH (max_rows = 2);
CREATE STREAM fills (volume INTEGER NOT NULL);
CREATE VIEW totals AS SELECT symbol, SUM(volume) AS volume FROM quotes GROUP BY symbol;
CREATE VIEW filled AS SELECT COUNT(*) AS n FROM fills;
"""


@cache
def small_program():
    return orderbook.compile(SMALL)


@pytest.fixture(params=BACKENDS)
def engine(request):
    return orderbook.Engine(quotes(), request.param)


@pytest.fixture
def small():
    return orderbook.Engine(small_program(), "interpreter")


def fills(program, *ops, flags=END_OF_EVENT | END_OF_MESSAGE):
    frame = pl.DataFrame({"stream": ["fills"] * len(ops), "op": ops, "volume": [1] * len(ops)})
    batch = program.changes(frame)
    return ChangeBatch(batch.kinds, np.full(len(ops), flags, np.uint8), batch.values)


def test_a_delete_of_a_row_that_is_not_there_raises_and_applies_nothing(engine):
    engine.insert("quotes", quote("A", 5, "2.5"))
    with pytest.raises(DataError, match=r"quotes: deleted row is not there: \(symbol='A', .*volume=6.00"):
        engine.delete("quotes", quote("A", 6, "2.5"))
    with pytest.raises(DataError, match="not there"):
        engine.update("quotes", quote("B", 1), quote("B", 2))
    engine.delete("quotes", quote("A", "5.0", "2.50"))
    with pytest.raises(DataError, match="not there"):
        engine.delete("quotes", quote("A", 5, "2.5"))
    assert len(engine["totals"]) == 0 and not engine.problems.counts


def test_a_refused_update_leaves_the_rows_as_they_were(small):
    small.insert("quotes", {"symbol": "A", "volume": 1})
    small.insert("quotes", {"symbol": "B", "volume": 1})
    with pytest.raises(DataError):
        small.update("quotes", {"symbol": "C", "volume": 1}, {"symbol": "D", "volume": 1})
    small.update("quotes", {"symbol": "B", "volume": 1}, {"symbol": "C", "volume": 4})
    small.delete("quotes", {"symbol": "A", "volume": 1})
    small.delete("quotes", {"symbol": "C", "volume": 4})
    assert len(small["totals"]) == 0


def test_apply_skips_bad_events_whole_and_counts_them(engine):
    frame = pl.DataFrame(
        {
            "stream": ["quotes"] * 5,
            "op": ["+", "-", "+", "-", "+"],
            "symbol": ["A", "X", "X", "A", "B"],
            "volume": [1, 2, 3, 1, 4],
        }
    )
    batch = quotes().changes(frame)
    flags = batch.flags.copy()
    flags[1] = 0
    engine.apply(ChangeBatch(batch.kinds, flags, batch.values))
    assert {row.symbol: row.volume for row in engine["totals"].values()} == {"B": 4}
    assert engine.problems.counts == {"row not there": 1}
    assert "volume=2.00" in engine.problems.examples["row not there"][0]
    assert engine.version == (4, 0, 4)


def test_a_refused_last_event_still_ends_its_message(engine):
    fired = []
    engine.subscribe("overall", lambda e: fired.append(e.new.orders))
    frame = pl.DataFrame(
        {
            "stream": ["quotes"] * 3,
            "op": ["+", "-", "+"],
            "symbol": ["A", "X", "B"],
            "volume": [1, 2, 3],
            "last": [False, True, True],
        }
    )
    engine.apply(quotes().changes(frame))
    assert fired == [1, 2]


def test_no_more_rows_than_max_rows(small):
    for symbol in "AB":
        small.insert("quotes", {"symbol": symbol, "volume": 1})
    with pytest.raises(DataError, match="quotes already holds max_rows = 2 rows"):
        small.insert("quotes", {"symbol": "C", "volume": 1})
    small.delete("quotes", {"symbol": "A", "volume": 1})
    small.insert("quotes", {"symbol": "C", "volume": 1})
    assert set(small["totals"]) == {("B",), ("C",)}


def test_checked_changes_pass_and_their_relation_takes_no_others(small):
    program = small.program
    checked = END_OF_EVENT | END_OF_MESSAGE | CHECKED
    small.apply(fills(program, "+", flags=checked))
    small.apply(fills(program, *"+" * 40, flags=checked))
    assert small["filled"][()].n == 41
    small.apply(fills(program, "+", "+"))
    with pytest.raises(DataError, match="fills is fed by books; it cannot be fed row by row as well"):
        small.insert("fills", {"volume": 1})
    assert small["filled"][()].n == 41
    assert small.problems.counts == {"mixed feeding": 2}


@pytest.mark.parametrize("count", [1, 2, 40])
def test_a_relation_fed_by_rows_takes_no_checked_changes(small, count):
    small.insert("fills", {"volume": 1})
    small.apply(fills(small.program, *"+" * count, flags=END_OF_EVENT | END_OF_MESSAGE | CHECKED))
    assert small["filled"][()].n == 1
    assert small.problems.counts == {"mixed feeding": count}


def test_a_refused_delete_does_not_settle_how_a_relation_is_fed(small):
    with pytest.raises(DataError, match="not there"):
        small.delete("fills", {"volume": 1})
    small.apply(fills(small.program, "+", flags=END_OF_EVENT | END_OF_MESSAGE | CHECKED))
    assert small["filled"][()].n == 1


def test_without_check_rows_everything_passes():
    program = small_program()
    engine = orderbook.Engine(program, "interpreter", check_rows=False)
    for symbol in "ABC":
        engine.insert("quotes", {"symbol": symbol, "volume": 1})
    engine.apply(fills(program, "+", flags=END_OF_EVENT | END_OF_MESSAGE | CHECKED))
    engine.apply(fills(program, "+"))
    assert len(engine["totals"]) == 3 and engine["filled"][()].n == 2


def test_an_unfinished_event_is_refused(small):
    batch = fills(small.program, "+", "+")
    small.apply(ChangeBatch(batch.kinds, np.array([3, 0], np.uint8), batch.values))
    assert small["filled"][()].n == 1
    assert small.problems.counts == {"unfinished event": 1}


def test_a_kind_of_no_relation_is_refused(small):
    batch = fills(small.program, "+")
    for flags in (batch.flags, batch.flags | CHECKED):
        small.apply(ChangeBatch(np.array([99], np.int16), flags, batch.values))
    assert small.problems.counts == {"unknown relation": 2}


def test_kinds_of_another_order_are_translated(small):
    table = small.program.kinds_of(("fills", "nothing", "quotes"))
    place = {r.name: 2 * i for i, r in enumerate(small.program.relations)}
    fill, quoted = place["fills"], place["quotes"]
    assert table[np.array([0, 1, 2, 3, 4, 5, -1])].tolist() == [
        fill,
        fill + 1,
        -1,
        -1,
        quoted,
        quoted + 1,
        -1,
    ]


EVENTS = st.lists(st.tuples(st.sampled_from("+-"), st.integers(1, 3)), min_size=1, max_size=3)


@given(st.lists(EVENTS, max_size=15), st.booleans())
def test_events_apply_whole_or_not_at_all(events, watched):
    program = small_program()
    engine = orderbook.Engine(program, "interpreter")
    if watched:
        engine.subscribe("totals", lambda e: None)
    held, refused = Counter(), 0
    for event in events:
        after, good = Counter(held), True
        for op, volume in event:
            after[volume] += 1 if op == "+" else -1
            good = good and after[volume] >= 0 and after.total() <= 2
        held, refused = (after, refused) if good else (held, refused + 1)
    rows = [(op, volume, i == len(event) - 1) for event in events for i, (op, volume) in enumerate(event)]
    if rows:
        frame = pl.DataFrame(
            {
                "stream": ["quotes"] * len(rows),
                "op": [op for op, *_ in rows],
                "symbol": [str(volume) for _, volume, _ in rows],
                "volume": [volume for _, volume, _ in rows],
            }
        )
        batch = program.changes(frame)
        flags = np.array([END_OF_EVENT if last else 0 for *_, last in rows], np.uint8)
        engine.apply(ChangeBatch(batch.kinds, flags, batch.values))
    assert {row.symbol: row.volume for row in engine["totals"].values()} == {
        str(volume): volume * count for volume, count in held.items() if count
    }
    assert engine.problems.counts.total() == refused
