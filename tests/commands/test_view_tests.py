"""`orderbook test`: tests of views pass where they should, and say what is otherwise where they fail."""

import json
from pathlib import Path

import pytest
from command_line_support import Program, orderbook, write
from paths import PROJECT

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
