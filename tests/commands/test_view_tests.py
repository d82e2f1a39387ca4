"""`orderbook test`: tests of views pass where they should, and say what is otherwise where they fail."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from command_line_support import Program, orderbook, write
from paths import PROJECT
from pyspark.sql import SparkSession

from orderbook.configuration.configuration import load_configuration
from orderbook.operations.view_tests import HistoryRow, RowChange, ViewTests, read_tests

__all__ = ["orderbook"]

VIEW = """
CREATE VIEW bid_depth AS SELECT symbol, SUM(volume) AS volume FROM bids GROUP BY symbol;
CREATE VIEW ask_depth AS SELECT symbol, SUM(volume) AS volume FROM asks GROUP BY symbol;
CREATE VIEW pressure AS
SELECT b.symbol, (b.volume - a.volume) / (b.volume + a.volume) AS imbalance
FROM bid_depth b JOIN ask_depth a ON a.symbol = b.symbol;
CREATE VIEW recent AS SELECT symbol, SUM(volume) * :k AS volume, MAX(ts) AS last FROM trades
WHERE ts > NOW() - INTERVAL '1 minute' GROUP BY symbol;
CREATE VIEW sizes AS SELECT symbol, volume FROM bids;
"""
PASSING = """
- test: bids outweigh asks, until these grow
  view: pressure
  given:
    bids: [{symbol: AAA, price: 10, volume: 30}, {symbol: AAA, price: 9.5, volume: 30}]
    asks: {symbol: AAA, price: 11, volume: 20}
  steps:
    - expect: {pressure: [{symbol: AAA, imbalance: 0.5}]}
    - insert: {asks: {symbol: NO, price: 1, volume: 7}}
    - update: {asks: {where: {symbol: AAA}, set: {volume: 180}}}
    - expect: {pressure: {imbalance: -0.5}}
    - delete: {bids: {price: 9.5}}
    - expect: {pressure: {symbol: AAA, imbalance: -0.7143}}
    - delete: {bids: {symbol: AAA}}
  expect: {pressure: []}
  expect_events:
    pressure:
      - {old: {imbalance: 0.5}, new: {imbalance: -0.5}}
      - {new: {symbol: AAA}}
      - {old: {symbol: AAA, imbalance: -0.7143}, new: null}

- test: trades leave after a minute
  view: recent
  set: {k: 2}
  steps:
    - tick: 2026-01-05T14:30:00Z
    - insert: {trades: {symbol: A, ts: 2026-01-05T14:29:30Z, volume: 1}}
    - insert: {trades: {symbol: A, ts: 2026-01-05T14:30:00Z, volume: 2}}
    - expect: {recent: {symbol: A, volume: 6, last: 2026-01-05T14:30:00Z}}
    - tick: 2026-01-05T14:30:45Z
    - expect: {recent: {volume: 4}}
    - tick: 2026-01-05T14:31:45Z
    - expect: {recent: []}

- test: rows stand as often as they occur
  view: sizes
  given: {bids: [{symbol: A, volume: 1}, {symbol: A, volume: 1}, {symbol: B, volume: 1}]}
  expect: {sizes: [{volume: 1}, {symbol: A}, {symbol: A, volume: 1}]}
"""
FAILING = """
- test: wrong on purpose
  view: sizes
  given: {bids: [{symbol: A, volume: 1}, {symbol: B, volume: 2.5}]}
  steps:
    - insert: {bids: {symbol: C, volume: 3}}
  expect: {sizes: [{symbol: A, volume: 1}, {symbol: B, volume: 2}]}
  expect_events: {sizes: [{new: {symbol: D}}]}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path / "mine.sql", VIEW)
    return tmp_path


def test_what_is_expected_passes_on_both_backends(orderbook: Program, folder: Path) -> None:
    write(folder / "mine.test.yaml", PASSING)
    done = orderbook("test", folder)
    assert done.status == 0, done.out + done.err
    assert done.out.count("passed  ") == 3 and "3 passed, 0 failed" in done.out
    told = json.loads(orderbook("test", folder / "mine.test.yaml", "-k", "trades", "--json").out)
    assert (told["passed"], told["failed"]) == (1, 0)
    assert [one["backend"] for one in told["tests"]] == ["interpreter", "numba"]


def test_what_is_otherwise_is_shown_row_by_row(orderbook: Program, folder: Path) -> None:
    file = write(folder / "mine.test.yaml", FAILING)
    done = orderbook("test", folder, "--backend", "interpreter")
    assert done.status == 1 and "1 of 1 tests failed" in done.err
    assert done.out.splitlines()[:-1] == [
        f"FAILED  {file}:2  wrong on purpose",
        f"  view sizes at the end, {file}:2:",
        "    expected    symbol=B volume=2",
        "    is there    symbol=B volume=2.5",
        "    is there    symbol=C volume=3",
        f"  event 1 of view sizes, {file}:2:",
        "    expected    new symbol=D",
        "    is there    old no row, new symbol=C volume=3",
    ]


KINDS = """
- test: values of all kinds, of declared relations
  view: kinds
  given:
    r: [{id: 1, at: 2026-01-05T14:30:00.123456789Z, d: 1.25, x: 0.5, b: true, s: a}, {id: 2, s: b}]
    names: {s: a, name: x}
  steps:
    - expect: {kinds: [{name: x, d: 1.25, x: 0.5, b: true, at: 2026-01-05T14:30:00.123456789Z}]}
    - insert: {names: {s: b}}
    - expect: {kinds: [{s: a}, {s: b, name: null, d: null, x: null, b: null, at: null}]}
    - update: {r: {where: {id: 2}, set: {d: -0.01}}}
    - delete: {r: {id: 1}}
  expect: {kinds: {s: b, d: -0.01}, counts: {s: b, n: 1, total: -0.01}}
  expect_events:
    kinds: [{old: null, new: {s: b, d: null}}, {old: {d: null}}, {new: {d: -0.01}}, {old: {s: a}, new: null}]
    counts: [{old: {total: null}, new: {total: -0.01}}, {old: {s: a}, new: null}]
"""
KINDS_SQL = """
CREATE STREAM r (id BIGINT PRIMARY KEY, at TIMESTAMP, d DECIMAL(9, 2), x DOUBLE, b BOOLEAN, s TEXT NOT NULL);
CREATE STREAM names (s TEXT NOT NULL, name TEXT);
CREATE VIEW kinds AS SELECT r.id, r.s, names.name, r.d, r.x, r.b, r.at FROM r JOIN names ON names.s = r.s;
CREATE VIEW counts AS SELECT s, COUNT(*) AS n, SUM(d) AS total FROM r GROUP BY s;
"""


@pytest.mark.spark
def test_spark_runs_tests_where_it_is_asked_for(
    orderbook: Program, folder: Path, spark: SparkSession
) -> None:
    write(folder / "mine.test.yaml", PASSING)
    write(folder / "kinds.sql", KINDS_SQL)
    write(folder / "kinds.test.yaml", KINDS)
    write(folder / "failing.test.yaml", FAILING)
    config = write(folder / "c.toml", '[run]\nbackend = "interpreter"\n')
    done = orderbook("test", folder, "--config", config, "--backend", "interpreter", "--spark", "--json")
    told = json.loads(done.out)
    assert (told["passed"], told["failed"]) == (4, 1), done.err
    by_test: dict[str, list[dict[str, Any]]] = {}
    for one in told["tests"]:
        by_test.setdefault(one["test"], []).append(one)
    assert all([one["backend"] for one in own] == ["interpreter", "spark"] for own in by_test.values())
    skipped = {name: own[1]["skipped"] for name, own in by_test.items() if own[1]["skipped"]}
    assert list(skipped) == ["trades leave after a minute"] and "NOW()" in str(skipped)
    # What is otherwise is told alike.
    plain, on_spark = (one["differences"] for one in by_test["wrong on purpose"])
    assert plain == on_spark != []


def test_a_runtime_that_gives_other_histories_fails(folder: Path) -> None:
    file = write(folder / "kinds.test.yaml", KINDS)
    write(folder / "kinds.sql", KINDS_SQL)
    (test,) = read_tests(file)
    tests = ViewTests(load_configuration(None))
    asked: list[object] = []

    def nothing(
        program: object, views: Sequence[str], changes: Sequence[RowChange]
    ) -> dict[str, list[HistoryRow]]:
        asked.extend((list(views), [(one.number, one.relation, one.insert) for one in changes]))
        return {view: [] for view in views}

    outcome = tests.run_elsewhere(test, "nowhere", nothing)
    assert asked == [
        ["kinds", "counts"],
        [(1, "r", True), (2, "r", True), (3, "names", True), (4, "names", True), (5, "r", False),
         (5, "r", True), (6, "r", False)],
    ]  # fmt: skip
    assert sum("expected" in line for line in outcome.lines) == 11, outcome.lines
    assert not tests.run(test, "interpreter").lines


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("- test: a\n  view: nope\n  expect: {nope: []}", ":1: no view is named 'nope'"),
        ("- test: a\n  view: sizes", ":1: nothing is expected"),
        ("- test: a\n  view: sizes\n  expects: {}", ":1: a test has no 'expects'; did you mean 'expect'"),
        ("- test: a\n  view: sizes\n  steps:\n  - insert: {nope: {a: 1}}", ":4: no relation is named 'nope'"),
        ("- test: a\n  view: sizes\n  steps:\n  - insert: {bids: {symbl: A}}", ":4: bids has no 'symbl'"),
        ("- test: a\n  view: sizes\n  steps:\n  - delete: {bids: {symbol: A}}", ":4: 0 rows of bids"),
        ("- test: a\n  view: sizes\n  steps:\n  - jump: 1", ":4: a step is one of"),
        ("- test: a\n  view: sizes\n  steps:\n  - insert: {bids: {symbol: 1}}", ":4: "),
        ("- test: a\n  view: sizes\n  expect: {sizes: {symbol: 5}}", None),
        ("- test: a\n view", ":2: no YAML"),
        ("test: a", "a list of tests"),
    ],
)  # fmt: skip
def test_a_wrong_test_is_one_line_with_its_place(
    orderbook: Program, folder: Path, text: str, said: str | None
) -> None:
    file = write(folder / "mine.test.yaml", text)
    done = orderbook("test", file, "--backend", "interpreter")
    assert done.status == (1 if said is None else 2), done.out
    assert len(done.error_lines) == 1
    assert said is None or f"{file}{said}" in done.err or said in done.err


def test_the_document_shows_tests_that_pass(orderbook: Program, folder: Path) -> None:
    text = (PROJECT / "docs" / "testing-views.md").read_text()
    block = text.split("```yaml\n")[1].split("```")[0]
    write(folder / "mine.test.yaml", block)
    done = orderbook("test", folder, "--backend", "interpreter")
    assert done.status == 0 and "2 passed" in done.out, done.out + done.err
