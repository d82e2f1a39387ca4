"""Widgets of notebooks show what their views hold; the notebook of the documents runs in a kernel."""

import asyncio
import json
import os
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from time import monotonic
from typing import Any

import nbclient
import nbformat
import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import PATIENCE, examples

import orderbook
from orderbook.core.errors import DataError

SQL = """
CREATE VIEW levels AS
SELECT symbol, 'bid' AS side, price, SUM(volume) AS volume FROM bids GROUP BY symbol, price
UNION ALL SELECT symbol, 'ask' AS side, price, SUM(volume) AS volume FROM asks GROUP BY symbol, price;
CREATE VIEW depth AS SELECT symbol, COUNT(*) AS orders, MAX(price) AS best FROM bids GROUP BY symbol;
"""
PROGRAM = orderbook.compile(SQL)
OFTEN = 1e9


def an_engine() -> Any:
    return orderbook.Engine(PROGRAM, backend="interpreter")


def order(symbol: str, number: int, price: int, volume: int = 1) -> dict[str, Any]:
    return {"ts": 1, "venue": "X", "symbol": symbol, "id": number, "broker_id": 0, "volume": volume,
            "price": Decimal(price) / 4}  # fmt: skip


@examples(30)
@given(
    st.lists(
        st.tuples(st.sampled_from(["bids", "asks"]), st.sampled_from("AB"), st.integers(1, 6)), max_size=30
    )
)
def test_they_show_what_the_views_hold(changes: list[tuple[str, str, int]]) -> None:
    engine, held = an_engine(), dict[tuple[str, str, int], dict[str, Any]]()
    table = orderbook.live(engine["depth"], rate=OFTEN)
    ladder = orderbook.ladder(engine["levels"], depth=3, rate=OFTEN, symbol="A")
    heat = orderbook.heat_map(engine["levels"], depth=3, rate=OFTEN, symbol="A")
    for number, change in enumerate(changes):
        relation, symbol, price = change
        if (row := held.pop(change, None)) is not None:
            engine.delete(relation, row)
        else:
            held[change] = order(symbol, number, price, number + 1)
            engine.insert(relation, held[change])
        counts = Counter(symbol for relation, symbol, _ in held if relation == "bids")
        assert {row[0]: row[1] for row in table.rows} == {s: str(n) for s, n in counts.items()}
        assert [row[0] for row in table.rows] == sorted(counts) and table.count == len(counts)
        for side, shown in (("bids", ladder.bids), ("asks", ladder.asks)):
            levels = sorted(
                (row["price"], row["volume"]) for (own, s, _), row in held.items() if (own, s) == (side, "A")
            )
            best = levels[::-1][:3] if side == "bids" else levels[:3]
            assert [(Decimal(p), Decimal(v)) for p, v in shown] == best
            told = heat.history[-1][side == "asks"]
            assert told == [float(value) for level in best for value in level]


def test_they_look_seldom_and_at_what_came_last() -> None:
    async def go() -> None:
        engine = an_engine()
        table = orderbook.live(engine["depth"], rate=20)
        looks: list[int] = []
        table.observe(lambda change: looks.append(len(change["new"])), "rows")
        began = monotonic()
        for number in range(60):
            engine.insert("bids", order(f"S{number:03}", number, 4))
        assert len(looks) <= 20 * (monotonic() - began) + 1
        while table.count < 60:
            await asyncio.sleep(0.01)
        assert len(table.rows) == 20 and table.rows[0][0] == "S000"
        shown = len(looks)
        table.close()
        engine.insert("bids", order("S000", 999, 4))
        await asyncio.sleep(0.1)
        assert len(looks) == shown

    asyncio.run(asyncio.wait_for(go(), PATIENCE))


def test_a_page_that_comes_later_is_told_all() -> None:
    engine = an_engine()
    heat = orderbook.heat_map(engine["levels"], rate=OFTEN)
    engine.insert("bids", order("A", 1, 4))
    sent: list[Any] = []
    heat.send = sent.append
    heat._asked(heat, {"all": True}, [])
    assert sent == [{"columns": [[[], []], [[1.0, 1.0], []]], "all": True}]


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda e: orderbook.ladder(e["depth"]), "no column side"),
        (lambda e: orderbook.heat_map(e["levels"], venue="X"), "no column venue"),
        (lambda e: orderbook.live(e["depth"], rate=0), "rate=0"),
    ],
)
def test_what_cannot_be_shown_is_refused(make: Callable[[Any], Any], said: str) -> None:
    with pytest.raises(DataError, match=said):
        make(an_engine())


@pytest.mark.sampled(2)
def test_the_notebook_of_the_documents_runs(project: Path, tmp_path: Path) -> None:
    notebook = nbformat.read(project / "docs" / "notebook.ipynb", as_version=4)  # type: ignore[no-untyped-call]
    os.environ["PYDEVD_DISABLE_FILE_VALIDATION"] = "1"
    client = nbclient.NotebookClient(
        notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    )
    client.execute()
    kinds = Counter(
        kind
        for cell in notebook.cells
        for output in cell.get("outputs", ())
        for kind in output.get("data", ())
    )
    assert kinds["application/vnd.jupyter.widget-view+json"] == 3 and kinds["text/html"] >= 3
    states = [
        one["state"]
        for one in notebook.metadata["widgets"]["application/vnd.jupyter.widget-state+json"]["state"].values()
    ]
    (ladder,) = [state for state in states if state.get("kind") == "ladder"]
    assert ladder["bids"] and ladder["asks"] and ladder["title"] == "levels BTC-USD"
    shown, held = json.loads(notebook.cells[-1].outputs[0]["text"])
    assert shown == held and [row[0] for row in held] == ["BTC-USD", "ETH-USD"]
