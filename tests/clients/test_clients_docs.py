"""The examples of docs/clients.md run as they stand; cubes and ibis beyond them."""

import ast
import asyncio
import inspect
import re
from decimal import Decimal
from pathlib import Path
from types import CodeType, SimpleNamespace
from typing import Any

import ibis  # type: ignore[import-untyped]
import pytest
from ibis import _

from orderbook.clients.client_engine import ClientEngine as Engine
from orderbook.core.errors import DataError, SqlError
from orderbook.views.compilation import compile_views, ibis_text, is_ibis

CUBES = """
CREATE STREAM t (venue TEXT, symbol TEXT NOT NULL, level INTEGER NOT NULL CHECK (level BETWEEN 0 AND 100),
    ts TIMESTAMP NOT NULL, v DECIMAL(8, 2) NOT NULL CHECK (v BETWEEN 0 AND 100));
CREATE VIEW marked AS
SELECT venue, symbol, level, GROUPING(venue, symbol, level) AS g, SUM(v) AS v, COUNT(*) AS n FROM t
GROUP BY GROUPING SETS ((venue), (venue, symbol, level), (symbol), ());
CREATE VIEW plain AS SELECT symbol, level, SUM(v) AS v FROM t GROUP BY CUBE (symbol, level);
CREATE VIEW vague AS SELECT venue, symbol, SUM(v) AS v FROM t GROUP BY ROLLUP (venue, symbol);
CREATE VIEW hidden AS SELECT symbol, SUM(v) AS v FROM t GROUP BY GROUPING SETS ((venue, symbol), (symbol));
CREATE VIEW one AS SELECT symbol, ts, SUM(v) AS v FROM t GROUP BY symbol, ts;
CREATE VIEW rows AS SELECT symbol FROM t;
"""


def test_examples(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # As they are on every backend; the interpreter compiles nothing.
    monkeypatch.setattr(Engine.__init__, "__defaults__", ("interpreter",))
    text = (project / "docs" / "clients.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(blocks) > 6
    names: dict[str, Any] = {}

    async def main() -> None:
        for block in blocks:
            code = compile(block, "clients.md", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            found = eval(code, names)
            if isinstance(code, CodeType) and code.co_flags & inspect.CO_COROUTINE:
                await found

    asyncio.run(main())


@pytest.fixture(scope="module")
def engine() -> Engine:
    engine = Engine(compile_views(CUBES), "interpreter")
    rows = ((None, "A", 1, 3), ("x", "A", 1, 4), ("x", "B", 2, 5), ("y", "B", 2, "0.25"))
    for venue, symbol, level, v in rows:
        engine.insert("t", {"venue": venue, "symbol": symbol, "level": level, "ts": level * 7, "v": v})
    return engine


def test_every_level_of_a_cube(engine: Engine) -> None:
    cube = engine.cube("marked")
    assert cube.shown == ("venue", "symbol", "level") and len(cube) == 4
    assert {key: row["v"] for key, row in cube.rollup("venue").items()} == {
        (None,): 3, ("x",): 9, ("y",): Decimal("0.25")
    }  # fmt: skip
    assert cube.rollup()[()].n == 4
    assert cube.rollup("symbol")["B"].n == 2
    assert ("C",) not in cube.rollup("symbol")
    own = cube.rollup("venue").slice(symbol="B").drill_down("level")
    assert own.frame().rows() == [("x", 2, 5, 1), ("y", 2, Decimal("0.25"), 1)]
    assert own.frame().columns == ["venue", "level", "v", "n"]
    assert list(cube.dice(venue={None, "y"})) == [(None, "A", 1), ("y", "B", 2)]
    assert cube.dice(venue={None, "y"}).frame()["venue"].to_list() == [None, "y"]
    assert cube.slice(venue=None).frame().height == 1
    assert engine.cube("one").slice(ts=14).frame().rows() == [("B", Decimal("5.25"))]


def test_levels_are_told_by_null_where_that_is_certain(engine: Engine) -> None:
    cube = engine.cube("plain")
    assert {key: row["v"] for key, row in cube.rollup("level").items()} == {(1,): 7, (2,): Decimal("5.25")}
    assert cube.slice(symbol="A").frame().rows() == [(1, 7)]
    assert cube.rollup().frame().rows() == [(Decimal("12.25"),)]


def test_a_cube_is_live(engine: Engine) -> None:
    total = engine.cube("plain").rollup()
    before: Any = total[()]["v"]
    row = {"venue": "z", "symbol": "Z", "level": 9, "ts": 1, "v": 1}
    engine.insert("t", row)
    assert total[()]["v"] == before + 1
    engine.delete("t", row)
    assert total.frame().item() == before


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda e: e.cube("marked").rollup("venue", "symbol").frame(), "no groups by symbol, venue; it has"),
        (lambda e: e.cube("marked").drill_down("x"), "no dimension 'x'; it has venue, symbol, level"),
        (lambda e: e.cube("vague"), r"venue may be NULL; add GROUPING\(venue, symbol\)"),
        (lambda e: e.cube("hidden"), "does not show all that it groups by"),
        (lambda e: e.cube("rows"), "no GROUP BY"),
        (lambda e: e.cube("nope"), "no view 'nope'"),
    ],
)
def test_what_is_no_cube(engine: Engine, ask: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        ask(engine)


def test_ibis_is_taken_wherever_sql_is() -> None:
    t = ibis.table({"venue": "string", "symbol": "string", "v": "decimal(8, 2)"}, name="t")
    large = t.filter(_.v > 3).group_by("symbol").aggregate(v=_.v.sum(), n=_.count())
    stream = CUBES[: CUBES.index("CREATE VIEW")]
    engine = Engine(compile_views({"own.sql": stream, "large": large}), "interpreter")
    engine.insert("t", {"venue": "x", "symbol": "A", "level": 1, "ts": 1, "v": 4})
    assert engine["large"]["A"].n == 1
    assert engine.query_plan(large).instead == ("large",)
    assert engine.query(large).rows() == [("A", Decimal(4), 1)]
    narrower = t.filter(_.v > 3).filter(_.symbol == "A").aggregate(s=_.v.sum())
    assert (engine.query_plan(narrower).instead, engine.query(narrower).item()) == (("large",), 4)
    engine.add_view({"all_rows": t.group_by("symbol").aggregate(n=_.count())})
    assert engine["all_rows"]["A"].n == 1
    assert Engine(compile_views([stream, large]), "interpreter").views == ("view",)


def test_only_expressions_of_ibis_are_taken_for_them() -> None:
    assert not is_ibis("SELECT 1") and not is_ibis(SimpleNamespace(compile=str))
    with pytest.raises(SqlError, match="the ibis expression has no SQL"):
        ibis_text(object())  # type: ignore[arg-type]
