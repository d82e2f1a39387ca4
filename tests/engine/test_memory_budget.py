"""A budget of bytes: views keep less where their maps would take more, and show the same rows."""

import json
import random
from pathlib import Path

import pytest
from oracle import Oracle, difference, ordered

import orderbook
from orderbook.command_line import status_of
from orderbook.core.errors import UserError
from orderbook.core.units import size_of, size_text
from orderbook.engine.plan.statistics import Statistics
from orderbook.engine.runtime.measures import within_budget
from orderbook.views.materialization import Materialization

# `pairs` has a row for nearly every a and c, from few rows of r and s.
SQL = """
CREATE STREAM r (a INTEGER NOT NULL, b INTEGER NOT NULL);
CREATE STREAM s (b INTEGER NOT NULL, c INTEGER NOT NULL);
CREATE VIEW pairs AS SELECT COUNT(*) AS pairs, SUM(d.n) AS n FROM
    (SELECT r.a, s.c, COUNT(*) AS n FROM r, s WHERE r.b < s.b GROUP BY r.a, s.c) d;
CREATE VIEW totals AS SELECT a, SUM(b) AS total FROM r GROUP BY a;
"""
KEPT = SQL.replace("VIEW pairs AS", "VIEW pairs WITH (materialize = full) AS")
ROWS = 250


def changes(seed: int = 5) -> list[tuple[str, dict[str, int]]]:
    generator = random.Random(seed)
    rows = []
    for i in range(ROWS):
        rows.append(("r", {"a": i, "b": generator.randrange(40)}))
        rows.append(("s", {"b": generator.randrange(10, 60), "c": i}))
    return rows


@pytest.fixture(scope="module")
def measured() -> tuple[Statistics, int]:
    """Statistics of the changes, and the bytes of all maps in full."""
    engine = orderbook.Engine(orderbook.compile(SQL), "numba")
    engine.count_updates()
    for relation, row in changes():
        engine.insert(relation, row)
    return engine.statistics(), engine.memory_bytes()


def test_a_program_is_kept_within_its_budget(measured: tuple[Statistics, int]) -> None:
    statistics, full = measured
    budget = full * 6 // 10
    engine = orderbook.Engine(orderbook.compile(SQL), "numba", statistics=statistics, memory_budget=budget)
    assert engine.budgeted is not None and engine.budgeted.lowered.keys() == {"pairs"}
    level = engine.program.level("pairs")
    assert level is not None and level < Materialization.FULL
    assert engine.program.level("totals") is Materialization.FULL
    assert f"instead of {size_text(engine.budgeted.before)}; pairs is kept at" in str(engine.budgeted)
    oracle = Oracle(SQL)
    for place, (relation, row) in enumerate(changes()):
        engine.insert(relation, row)
        oracle.insert(relation, tuple(row.values()))
        if place % 50 == 0:
            agrees(engine, oracle)
    agrees(engine, oracle)
    assert full > budget >= engine.budgeted.estimated >= engine.memory_bytes()
    assert sum(engine.view_bytes().values()) <= budget + len(engine.views)


def agrees(engine: orderbook.Engine, oracle: Oracle) -> None:
    for view in engine.views:
        wrong = difference(oracle.rows(view), ordered(engine.frame(view).rows()))
        assert wrong is None, f"{view}: {wrong}"


def test_a_budget_that_is_met_changes_nothing(measured: tuple[Statistics, int]) -> None:
    statistics, full = measured
    program = orderbook.compile(SQL)
    found = within_budget(program, 10 * full, statistics)
    assert found.program.m3 == program.m3 and not found.lowered
    assert full <= found.estimated == found.before <= 2 * full


def test_what_is_measured_of_a_map_follows_it_to_another_level(measured: tuple[Statistics, int]) -> None:
    statistics, full = measured
    found = within_budget(orderbook.compile(SQL), full * 6 // 10, statistics)
    assert found.statistics.updates == statistics.updates
    entries = {m.name: found.statistics.entries[m.name] for m in found.program.program.maps}
    assert all(n <= ROWS for n in entries.values()) and entries["totals_count"] == ROWS


def test_views_that_say_how_much_is_kept_stay(measured: tuple[Statistics, int]) -> None:
    statistics, full = measured
    assert orderbook.compile(KEPT).m3 == orderbook.compile(SQL).m3
    with pytest.raises(
        UserError, match=r"memory budget .*: no choice .* meets it; the least .* \(pairs full"
    ):
        within_budget(orderbook.compile(KEPT), full * 6 // 10, statistics)


def test_the_least_is_a_budget_that_can_be_met(measured: tuple[Statistics, int]) -> None:
    statistics, _ = measured
    program = orderbook.compile(SQL)
    with pytest.raises(UserError, match=r"the least is about [\d.]+ [KM]B") as caught:
        within_budget(program, "1 KB", statistics)
    least = str(caught.value).split("about ")[1].split(" (")[0]
    assert within_budget(program, int(1.01 * size_of(least)), statistics).estimated <= 1.01 * size_of(least)


def test_a_budget_does_not_guess(measured: tuple[Statistics, int]) -> None:
    statistics, _ = measured
    program = orderbook.compile(SQL)
    with pytest.raises(UserError, match="needs measured statistics to choose by: run orderbook replan"):
        orderbook.Engine(program, memory_budget="1 MB")
    with pytest.raises(UserError, match=r"do not have map pairs_.* run orderbook replan"):
        within_budget(program, "1 MB", Statistics())
    with pytest.raises(UserError, match="do not count changes"):
        within_budget(program, "1 MB", Statistics(statistics.entries, {}, statistics.loops))
    by_hand = orderbook.compile([SQL, "MAP extra[] INTEGER = 0;\nON + r(a, b) { extra[] += 1; }\n"])
    with pytest.raises(UserError, match="M3 written by hand"):
        within_budget(by_hand, "1 MB", Statistics({**statistics.entries, "extra": 1}, statistics.updates))


@pytest.mark.parametrize(
    ("text", "size"), [("512 MB", 512_000_000), ("1.5gb", 1_500_000_000), ("3 KB", 3000), ("7", 7)]
)
def test_sizes(text: str, size: int) -> None:
    assert size_of(text) == size
    assert size_of(size_text(size).removesuffix("bytes")) == size


def test_sizes_that_are_none() -> None:
    with pytest.raises(UserError, match="write a number and KB, MB or GB"):
        size_of("many")


def test_the_commands_keep_to_the_budget(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], measured: tuple[Statistics, int]
) -> None:
    (tmp_path / "pairs.sql").write_text(SQL)
    lines = [json.dumps({"stream": relation, "op": "+", "row": row}) for relation, row in changes()]
    (tmp_path / "x.ndjson").write_text("\n".join(lines))
    source = f"changes:{tmp_path / 'x.ndjson'}"
    config = tmp_path / "c.toml"
    engine = f'[engine]\nstatistics = "statistics.json"\nmemory_budget = "{measured[1] * 6 // 10_000} KB"\n'
    config.write_text(f'[run]\nviews = ["pairs.sql"]\nstrategies = []\n{engine}')
    assert status_of(["replay", source, "--config", str(config)]) == 2
    assert "run orderbook replan first" in capsys.readouterr().err
    assert status_of(["replan", source, "--config", str(config)]) == 0
    capsys.readouterr()
    assert status_of(["replay", source, "--config", str(config)]) == 0
    assert "; pairs is kept at " in capsys.readouterr().err
    assert status_of(["explain", "pairs", "--config", str(config)]) == 0
    shown = capsys.readouterr().out
    assert "memory budget" in shown and "pairs is kept at" in shown and " entries, about " in shown
