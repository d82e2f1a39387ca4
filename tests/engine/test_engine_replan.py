"""Plans chosen by what was measured: other loops, the same views."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from backends import contents
from views_catalogue_dense import DENSE, LADDER

import orderbook
from orderbook.command_line import status_of
from orderbook.core.errors import DataError, SourceError
from orderbook.engine.plan import stores
from orderbook.engine.plan.describe import plan_text
from orderbook.engine.plan.planner import plan
from orderbook.engine.plan.statistics import Statistics, read_statistics
from orderbook.engine.runtime.measures import view_nanoseconds
from orderbook.engine.runtime.numba_runtime import NumbaRuntime

# An event of r loops over the keys of s or of t; the other one is a range then.
JOIN = """
CREATE STREAM r (a INTEGER NOT NULL);
CREATE STREAM s (b INTEGER NOT NULL);
CREATE STREAM t (c INTEGER NOT NULL);
CREATE VIEW sums AS SELECT COUNT(*) AS n, SUM(r.a) AS total FROM r, s, t WHERE r.a + s.b + t.c > 10;
"""


def changes() -> Iterator[tuple[str, dict[str, int]]]:
    """Few rows of s that differ, many of t."""
    for i in range(12):
        yield "s", {"b": i % 2}
        yield "t", {"c": i}
        yield "r", {"a": i % 5}


def mirrored(statistics: Statistics) -> Statistics:
    """Statistics that say the opposite of the lengths of loops."""
    return Statistics(loops={name: 1 / (1 + n) for name, n in statistics.loops.items()})


def test_loops_are_ordered_by_what_was_measured() -> None:
    program = orderbook.compile(JOIN)
    engine = orderbook.Engine(program, "interpreter")
    engine.count_updates()
    for relation, row in changes():
        engine.insert(relation, row)
    statistics = engine.statistics()
    assert statistics.updates == {"+r": 12, "+s": 12, "+t": 12}
    assert statistics.entries == engine.map_sizes()
    chosen, otherwise = (plan_text(plan(program.program, s)) for s in (statistics, mirrored(statistics)))
    assert chosen != otherwise


@pytest.mark.sampled(2)
def test_a_replanned_engine_goes_on_as_before() -> None:
    program = orderbook.compile(JOIN)
    late, early = engines = [orderbook.Engine(program, backend) for backend in ("numba", "interpreter")]
    events = list(changes())
    for place, (relation, row) in enumerate(events):
        if place == 15:
            late.replan(mirrored(late.statistics()))
        if place == 25:
            late.replan(late.statistics(), background=True).wait()
        for engine in engines:
            engine.insert(relation, row)
        assert contents(late, "sums") == contents(early, "sums")
    for relation, row in events:
        for engine in engines:
            engine.delete(relation, row)
    assert not any(late.map_sizes().values())


def test_many_prefixes_have_trees_in_place_of_dense_stores(monkeypatch: pytest.MonkeyPatch) -> None:
    # The interpreter walks over all rows at each event.
    most = 40
    monkeypatch.setattr(stores, "MOST_PREFIXES", most)
    program = orderbook.compile(LADDER + "CREATE VIEW cut AS " + DENSE["dense_vwap_by_symbol"])
    late, early = engines = [orderbook.Engine(program, backend) for backend in ("numba", "interpreter")]
    rows = [{"symbol": f"S{i % (most + 1)}", "price": f"{10 + i % 7}.5", "volume": i % 5} for i in range(100)]
    measured = {}
    for op in ("insert", "delete"):
        for place, row in enumerate(rows):
            for engine in engines:
                getattr(engine, op)("ladder", row)
            if op == "insert" and place in (most - 1, most):
                measured[place + 1] = early.statistics()
            if place in (60, 80):
                late.replan(measured[most + (place == 60)])
                assert contents(late, "cut") == contents(early, "cut")
        assert contents(late, "cut") == contents(early, "cut")
    assert not any(late.map_sizes().values())
    chosen = [plan_text(plan(program.program, s)) for s in (None, *measured.values())]
    assert chosen[0] == chosen[1] and "cells" in chosen[0]
    assert "cells" not in chosen[2] and "tree" in chosen[2]


def test_statistics_are_kept_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "statistics.json"
    with pytest.raises(SourceError, match="cannot read"):
        read_statistics(file)
    statistics = Statistics({"m1": 3}, {"+bids": 7}, {"m1[0]": 1.5})
    statistics.write(file)
    assert read_statistics(file) == statistics
    file.write_text('{"entries": {}, "updates": {}, "loops": {"x": "many"}}')
    with pytest.raises(SourceError, match="not statistics of orderbook replan"):
        read_statistics(file)


def test_statements_are_counted_and_timed() -> None:
    engine = orderbook.Engine(orderbook.compile(JOIN), "numba", measured=True)
    for relation, row in changes():
        engine.insert(relation, row)
    lines = engine.costs().splitlines()
    start = lines.index("  insert into r")
    ran = lines[start + 1 : lines.index("  delete from r")]
    assert ran and all(re.search(r" 12 x +[\d,]+ ns ", line) for line in ran)
    assert any(not re.search(r" x +0 ns ", line) for line in ran)
    assert all(" 0 x " in line for line in lines[lines.index("  delete from r") + 1 :][: len(ran)])
    # All statements are of the one view.
    runtime = engine.runtime
    assert isinstance(runtime, NumbaRuntime)
    times = view_nanoseconds(runtime.plan, runtime)
    assert times == {"sums": pytest.approx(sum(ns for _, ns in runtime.measures()), rel=0.01)}
    plain = orderbook.Engine(orderbook.compile(JOIN), "interpreter")
    for relation, row in changes():
        plain.insert(relation, row)
    assert contents(engine, "sums") == contents(plain, "sums")
    with pytest.raises(DataError, match="nothing is measured"):
        plain.costs()


def test_the_commands_measure_and_plan_by_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "sums.sql").write_text(JOIN)
    lines = [json.dumps({"stream": relation, "op": "+", "row": row}) for relation, row in changes()]
    (tmp_path / "x.ndjson").write_text("\n".join(lines))
    source, view = f"changes:{tmp_path / 'x.ndjson'}", str(tmp_path / "sums.sql")
    file = tmp_path / "statistics.json"
    config = tmp_path / "c.toml"
    config.write_text('[run]\nbackend = "interpreter"\n[engine]\nstatistics = "statistics.json"\n')
    assert status_of(["replan", source, "--view", view, "--config", str(config)]) == 0
    assert f"statistics written to {file}" in capsys.readouterr().out
    assert read_statistics(file).updates == {"+r": 12, "+s": 12, "+t": 12}
    assert status_of(["replay", source, "--view", view, "--config", str(config)]) == 0
    assert status_of(["explain", view, "--live", source, "--stage", "m3"]) == 2
    capsys.readouterr()
    assert status_of(["explain", view, "--live", source]) == 0
    shown = capsys.readouterr().out
    assert "insert into r" in shown and "sums: " in shown and " ns  sums_count[] +=" in shown
