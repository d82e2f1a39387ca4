"""`orderbook diff`: what another configuration changes is what an engine does that goes over to it."""

import json
from pathlib import Path

from command_line_support import Program, orderbook, write

import orderbook as door
from orderbook.operations.differences import program_differences

__all__ = ["orderbook"]

BEST = "CREATE VIEW best AS SELECT symbol, MAX(price) AS price FROM bids WHERE volume > {k} GROUP BY symbol;"
COUNTS = "CREATE VIEW counts AS SELECT symbol, COUNT(*) AS n FROM asks GROUP BY symbol;"
TOP = "CREATE VIEW top AS SELECT symbol, SUM(volume) AS v FROM asks GROUP BY symbol;"


def configuration(folder: Path, name: str, sql: str, more: str = "") -> Path:
    write(folder / f"{name}.sql", sql)
    return write(folder / f"{name}.toml", f'[run]\nviews = ["{name}.sql"]\n{more}')


def test_views_maps_costs_and_settings(orderbook: Program, tmp_path: Path) -> None:
    a = configuration(tmp_path, "a", BEST.format(k=1) + COUNTS)
    b = configuration(tmp_path, "b", BEST.format(k=2) + TOP, "[clock]\nresolution = '2s'\n")
    done = orderbook("diff", a, b, "--json")
    assert done.status == 0, done.err
    told = json.loads(done.out)
    views = {one["view"]: one for one in told["views"]}
    assert list(views) == ["best", "counts", "top"]
    assert [line.split() for line in views["best"]["lines"]][1:3] == [
        ["-", "bids.volume", ">", "1"], ["+", "bids.volume", ">", "2"],
    ]  # fmt: skip
    assert views["best"]["costs"] == ["O(log n)", "O(log n)"]
    assert views["counts"]["costs"] == ["O(1)", None] and views["top"]["costs"] == [None, "O(1)"]
    # How many asks there are is kept for both views.
    assert len(told["maps"]["kept"]) == 1
    assert told["filled_from"] == ["asks", "bids"] and told["restart"] is None
    assert told["settings"]["clock.resolution"][1] == "2s"
    assert "~ view best" in done.err and "- view counts" in done.err and "+ view top" in done.err
    assert orderbook("diff", a, a).out == "nothing differs\n"


def test_costs_that_change_are_named_by_event_and_map(orderbook: Program, tmp_path: Path) -> None:
    sql = "CREATE VIEW v AS SELECT COUNT(*) AS n FROM bids b, asks a WHERE b.price {} a.price;"
    a = configuration(tmp_path, "a", sql.format("=") + COUNTS)
    b = configuration(tmp_path, "b", sql.format(">") + COUNTS)
    done = orderbook("diff", a, b, "--json")
    (view,) = json.loads(done.out)["views"]
    assert view["costs"] == ["O(1)", "O(log n)"]
    # How many there are of each price is in both, and is looked up by ranges in one.
    costs = [view["events"]["insert into bids"], *view["map_costs"].values()]
    assert costs == [["O(1)", "O(log n)"]] * 3
    assert "    cost of insert into asks: O(1) -> O(log n)\n" in done.err
    back = json.loads(orderbook("diff", b, a, "--json").out)["views"][0]
    assert back["events"] == {name: costs[::-1] for name, costs in view["events"].items()}
    explained = json.loads(orderbook("explain", tmp_path / "b.sql", "--json").out)
    assert explained["view"] == "counts" and explained["cost"] == "O(1)"


def test_costs_of_events_that_are_new(orderbook: Program, tmp_path: Path) -> None:
    a = configuration(tmp_path, "a", COUNTS)
    b = configuration(
        tmp_path, "b", COUNTS.replace("asks", "(SELECT symbol FROM asks UNION ALL SELECT symbol FROM bids) t")
    )
    done = orderbook("diff", a, b, "--json")
    (view,) = json.loads(done.out)["views"]
    assert view["events"]["insert into bids"] == [None, "O(1)"]
    assert "cost of insert into bids: nothing -> O(1)" in done.err


def test_relations_that_are_declared_otherwise_need_a_restart(orderbook: Program, tmp_path: Path) -> None:
    stream = "CREATE STREAM s (a INTEGER NOT NULL{}); CREATE VIEW v AS SELECT SUM(a) AS a FROM s;"
    a = configuration(tmp_path, "a", stream.format(""))
    b = configuration(tmp_path, "b", stream.format(" CHECK (a BETWEEN 0 AND 9)"))
    assert "cannot go on with it: s declared otherwise" in orderbook("diff", a, b).out


def test_what_is_kept_is_what_an_engine_takes_over() -> None:
    before = door.compile(BEST.format(k=1) + COUNTS)
    engine = door.Engine(before, backend="interpreter", keep_rows=True)
    engine.insert(
        "asks", {"ts": 1, "venue": "X", "symbol": "A", "id": 1, "broker_id": 0, "volume": 3, "price": 2}
    )
    engine.add_view(TOP)
    found = program_differences(before, engine.program)
    assert set(found.kept) >= {one.name for one in before.program.maps}
    assert {one.name for one in engine.program.program.maps} == {*found.kept, *found.new}
    assert found.dropped == () and found.filled_from == ("asks",)
    assert [str(one) for one in found.views] == ["+ view top: 2 maps, worst event O(1)"]
    assert engine["top"]["A"].v == 3
