"""What is shown and followed of views: their first rows, by ORDER BY and keys, out of any number."""

import asyncio
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from monitor_support import client, running
from samples import examples

from orderbook.engine.runtime.engine import Engine
from orderbook.monitor import continuous_queries
from orderbook.monitor.view_topic import RowReader, first_rows
from orderbook.views.compilation import compile_views
from orderbook.views.types import ShownBy

SQL = """
CREATE STREAM r (a TEXT, b DECIMAL(18, 2), c DOUBLE, d INTEGER CHECK (d BETWEEN -9 AND 9));
CREATE VIEW plain AS SELECT a, b, c, d FROM r;
CREATE VIEW falling AS SELECT a, b, c, d FROM r ORDER BY b DESC NULLS FIRST, a;
CREATE VIEW wide AS
SELECT a, SUM(b * b) AS big, MAX(c) AS c FROM r GROUP BY a ORDER BY c, big DESC NULLS LAST;
CREATE VIEW named AS SELECT a, COUNT(*) AS n FROM r GROUP BY a ORDER BY a DESC NULLS LAST;
"""
PROGRAM = compile_views(SQL)
VALUES = st.fixed_dictionaries(
    {
        "a": st.sampled_from(["x", "y", "ß", "", "z1", None]),
        "b": st.sampled_from(["0", "-1.25", "3.5", "1234567890123.5", "-999999999999999", None]),
        "c": st.sampled_from([0.0, -1.5, 2.25, 1e300, -1e-300, None]),
        "d": st.sampled_from([0, -9, 9, 4, None]),
    }
)


def place(value: Any, first: bool) -> tuple[bool, Any]:
    return ((value is None) != first, 0 if value is None else value)


def _by_column(item: ShownBy, pair: Any) -> tuple[bool, Any]:
    return place(pair[1][item.name], item.nulls_first != item.descending)


def in_order(engine: Engine, name: str) -> list[Any]:
    """The rows of a view by its ORDER BY, then its keys, with Python's own sort."""
    view = engine[name]
    found = sorted(view.pairs(), key=lambda pair: [place(part, True) for part in pair[0]])
    for item in reversed(engine.program.order(name)):
        found.sort(
            key=partial(_by_column, item),
            reverse=item.descending,
        )
    return found


@examples(60)
@given(st.lists(VALUES, max_size=30), st.integers(1, 12), st.sampled_from(PROGRAM.program.results))
def test_first_rows_are_those_of_a_whole_sort(rows: list[dict[str, Any]], limit: int, result: Any) -> None:
    engine = Engine(PROGRAM, "interpreter")
    for row in rows:
        engine.insert("r", row)
    view = engine[result.name]
    words = view.row_words()
    reader = RowReader(view)
    shown = list(reader.rows(words.take(first_rows(view.layout, words, limit), 0)))
    assert shown == in_order(engine, result.name)[:limit]
    assert reader.count(words) == sum(row.multiplicity for row in view.values())


def test_a_large_view_is_followed_by_its_first_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(continuous_queries, "MOST_ROWS", 2)

    async def go() -> None:
        async with running() as run, client(run) as one:
            for symbol in "BDC":
                run.engine.insert("quotes", {"symbol": symbol, "volume": "1"})
            told = await one.ask(id=1, op="follow", view="totals")
            assert (sorted(told["rows"]), told["beyond"]) == ([["B", "1.00", 1], ["C", "1.00", 1]], 1)
            run.engine.insert("quotes", {"symbol": "A", "volume": "1"})
            told = await one.take(id=1, type="changes")
            assert sorted(told["changes"]) == [[-1, "C", "1.00", 1], [1, "A", "1.00", 1]]
            assert told["beyond"] == 2
            for symbol in "AB":
                run.engine.delete("quotes", {"symbol": symbol, "volume": "1"})
            rows = [["B", "1.00", 1], ["A", "1.00", 1]]
            while rows != [["C", "1.00", 1], ["D", "1.00", 1]]:
                told = await one.take(id=1, type="changes")
                for count, *row in told["changes"]:
                    rows.append(row) if count > 0 else rows.remove(row)
                rows.sort()
            assert "beyond" not in told
            shown = await one.ask(id=2, op="subscribe", topic="view", view="totals", limit=1)
            assert (shown["rows"], shown["count"]) == ([["C", "1.00", 1]], 2)

    asyncio.run(go())
