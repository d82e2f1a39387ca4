"""What makes a result incomplete: in the last lines, the status, a job's manifest and its report."""

import json
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
from command_line_support import Program, bid, change_stream, lobster, orderbook, write
from hypothesis import given
from hypothesis import strategies as st

from orderbook.core.errors import Problems
from orderbook.feeds.recording.parquet_record import RecordWriter
from orderbook.feeds.source import SourceWatch, input_findings
from orderbook.jobs.job import open_job
from orderbook.market.events import EVENT, Action, BookState, Flag, StateReason
from orderbook.market.synthetic_flow import synthetic_instruments
from orderbook.operations.summary import strategy_lines
from orderbook.run.findings import distinct, engine_findings, strategy_findings
from orderbook.strategies.execution.account import PositionSummary, StrategySummary

__all__ = ["orderbook"]

GOOD = ("34200.1,1,1,100,2239500,1", "34200.2,1,2,50,2239600,-1")
VALID, SYNCING, STALE = BookState.VALID, BookState.SYNCING, BookState.STALE
IN_ORDER = ("NONE", "DISCONNECTED", "HALTED", "CLOSED", "AUCTION")
BUYER = """
from orderbook import Strategy, on_view


class Buyer(Strategy):
    defaults = {"volume": 1}

    @on_view("totals", when="orders > 0")
    def buys(self, event):
        self.buy("AAA-USD", self.parameters["volume"])
"""
TOTALS = "CREATE VIEW totals AS SELECT symbol, COUNT(*) AS orders FROM bids GROUP BY symbol;\n"
CONFIG = '[run]\nbackend = "interpreter"\nviews = ["totals.sql"]\n'


def states(*steps: tuple[int, BookState, StateReason]) -> np.ndarray:
    """STATE events of instruments."""
    events = np.zeros(len(steps), EVENT)
    events["action"], events["flags"] = Action.STATE, int(Flag.LAST)
    events["instrument"], events["volume"], events["order_id"] = zip(*steps, strict=True)
    return events


def orders(*rows: tuple[int, int, int, int]) -> np.ndarray:
    """Orders (id, side, price, volume) that come."""
    events = np.zeros(len(rows), EVENT)
    events["action"], events["flags"] = Action.ADD, int(Flag.LAST)
    events["order_id"], events["side"], events["price"], events["volume"] = zip(*rows, strict=True)
    return events


def record(path: Path, *parts: np.ndarray) -> Path:
    with RecordWriter(path, synthetic_instruments(1)) as writer:
        for time, part in enumerate(parts, 1):
            part["receive_time"] = 10**9 * time
            writer.write(part)
    return path


FOUND = states((0, VALID, StateReason.SYNCHRONISED))
LOST = states((0, SYNCING, StateReason.GAP))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    write(tmp_path / "totals.sql", TOTALS)
    write(tmp_path / "buyer_of_incomplete.py", BUYER)
    write(tmp_path / "c.toml", CONFIG)
    return tmp_path


@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.sampled_from([VALID, SYNCING, STALE]), st.sampled_from(StateReason)),
        min_size=1,
    ),
    st.booleans(),
)
def test_a_book_is_lost_until_it_is_valid_again(
    steps: list[tuple[int, BookState, StateReason]], live: bool
) -> None:
    instruments = synthetic_instruments(3)
    watch = SourceWatch("x", instruments, live)
    for step in steps:
        watch.note(states(step))
    lost, never = set(), set()
    for place in range(3):
        own = [(state, reason) for where, state, reason in steps if where == place]
        valid = [n for n, (state, _) in enumerate(own) if state is VALID]
        in_order = set(IN_ORDER) - ({"DISCONNECTED"} if live else set())
        if not valid and (own or live):
            never.add(str(instruments[place]))
        elif valid and any(reason.name not in in_order for _, reason in own[valid[-1] + 1 :]):
            lost.add(str(instruments[place]))
    found = list(watch.findings())
    assert {name for one in found if "lost" in one.what for name in one.where} == lost
    assert {name for one in found if "never" in one.what for name in one.where} == never


def test_every_reason_that_there_will_be_loses_a_book_unless_it_is_in_order() -> None:
    for reason in StateReason:
        watch = SourceWatch("x", synthetic_instruments(1))
        watch.note(FOUND)
        watch.note(states((0, STALE, reason)))
        assert [one.what for one in watch.findings()] == (
            [] if reason.name in IN_ORDER else [f"book lost ({reason.name.lower()}) and not found again"]
        )


def test_input_most_of_which_is_wrong() -> None:
    problems = Problems()
    for _ in range(3):
        problems.add("malformed line", "f:1", "x")
    assert not list(input_findings("f", 3, problems))
    (found,) = input_findings("f", 2, problems)
    assert (found.count, found.where) == (3, ("f",)) and "malformed line" in found.todo
    (found,) = input_findings("f", 0, Problems())
    assert found.what == "no message"
    assert not list(input_findings("f", 0, Problems(), quiet=True))
    refused = Problems()
    refused.add("duplicate key", "after event 1", "x")
    assert not list(engine_findings(refused, Problems(), 2))
    assert [one.what for one in engine_findings(refused, Problems(), 1)] == ["most changes of rows refused"]
    raised = Problems()
    raised.add("callback raised", "v", "ZeroDivisionError")
    assert [one.what for one in engine_findings(Problems(), raised, 10**6)] == ["callback raised"]


def test_marks_and_disabled_strategies() -> None:
    def position(volume: int, mark: Decimal | None) -> PositionSummary:
        return PositionSummary("v", "A", Decimal(volume), Decimal(0), mark, mark)

    held = (position(1, None), position(0, None), position(1, Decimal(2)))
    one = StrategySummary("S", 0, 0, 0, 0, held, None)
    (found,) = strategy_findings([one])
    assert found.what == "mark missing of a position of S" and found.where == ("v:A",)
    failed = StrategySummary("S", 0, 0, 0, 0, (), "S.seen raised\x1b[2J")
    (found,) = distinct([*strategy_findings([failed])] * 2)
    assert "strategy disabled (1): S: S.seen raised\\x1b[2J" in str(found)


def test_a_summary_says_why_the_first_order_was_refused() -> None:
    one, other = (
        StrategySummary("S", 1, 2, 1, 0, (), None, refusal) for refusal in ((5, 1, "much"), (4, 2, "little"))
    )
    none = StrategySummary("S", 1, 2, 0, 0, (), None)
    for instances in ((one, other, none), (none, other, one), (other, none, one)):
        whole = instances[0].joined(instances[1]).joined(instances[2])
        assert list(strategy_lines(whole))[1:] == ["    refused first: little"]
    assert len(list(strategy_lines(none.joined(none)))) == 1


def test_a_summary_says_that_rows_asked_for_less_than_a_lot() -> None:
    own = StrategySummary("S", 1, 0, 0, 0, (), None, too_small=2)
    line = "    its rows ask for less than a lot, and so for nothing (4 times)"
    assert list(strategy_lines(own.joined(own)))[1:] == [line]
    assert len(list(strategy_lines(own.joined(StrategySummary("S", 1, 1, 0, 0, (), None))))) == 1


def test_a_summary_shows_money_with_eight_decimals() -> None:
    profit, small = Decimal("-0.00019552314108246456"), Decimal("-1e-12")
    positions = tuple(
        PositionSummary("v", "A", Decimal(1), Decimal(0), Decimal(2), one, currency="BTC", inverse=True)
        for one in (profit, small)
    )
    whole, *told = strategy_lines(StrategySummary("S", 1, 1, 0, 1, positions, None))
    assert whole.endswith("PnL -0.00019552 BTC")
    assert [line.rpartition(", ")[2] for line in told] == ["PnL -0.00019552 BTC", "PnL 0 BTC"]
    paid = StrategySummary("S", 1, 1, 0, 1, (replace(positions[0], funding=Decimal("-0.000048")),), None)
    assert list(strategy_lines(paid))[1].endswith("PnL -0.00019552 BTC, funding -0.000048")


def test_a_lost_book_is_told_by_every_command(orderbook: Program, folder: Path) -> None:
    source = record(folder / "lost.parquet", FOUND, orders((1, 0, 1000, 4), (2, 1, 1010, 4)), LOST)
    words = "book lost (gap) and not found again (1): SIM:AAA-USD"
    after = orders((2, 0, 1000, 4))
    whole = record(folder / "whole.parquet", FOUND, orders((1, 0, 1000, 4)), LOST, FOUND, after)
    config = ("--config", "c.toml")
    for command in (
        ("replay", source), ("run", "--feed", f"record:{source}", "--no-monitor"),
        ("backtest", source, "--out", "job"), ("replan", source), ("blocks", source, "--out", "blocks-of"),
    ):  # fmt: skip
        result = orderbook(*command, *config)
        assert result.status == 1, command
        assert words in result.out.splitlines()[-1], command
        assert "incomplete, 1 finding: book lost (gap)" in result.error_lines[-1]
        again = [str(one).replace("blocks-", "allowed-") for one in command]
        allowed = orderbook(*again, "--allow-incomplete", *config)
        assert allowed.status == 0 and words in allowed.out.splitlines()[-1], command
        good = [str(one).replace(str(source), str(whole)).replace("blocks-", "whole-") for one in command]
        found = orderbook(*good, *config)
        assert found.status == 0 and "incomplete" not in found.out, command
    write(folder / "c.toml", CONFIG + "allow_incomplete = true\n")
    assert orderbook("replay", source, *config).status == 0


def test_a_job_keeps_what_it_lacks(orderbook: Program, folder: Path) -> None:
    source = record(folder / "lost.parquet", FOUND, orders((1, 0, 1000, 4), (2, 1, 1010, 4)), LOST)
    named = ("--config", "c.toml", "--strategy", "buyer_of_incomplete:Buyer")
    for extra in ((), ("--set", "volume=1,2")):
        assert orderbook("backtest", source, *named, "--out", "job", *extra).status == 1
        (finding,) = [one for one in open_job("job").manifest.findings if one.what.startswith("book")]
        assert finding.where == ("SIM:AAA-USD",)
        page = Path("job/report.html").read_text()
        assert page.index('class="warning">Incomplete: book lost (gap)') < page.index("<section>")
        for command in (("report",), ("query", "SELECT * FROM fills")):
            result = orderbook(*command, "--job", "job")
            assert result.status == 0 and "the job is incomplete: book lost (gap)" in result.err


def test_malformed_and_empty_input(orderbook: Program, folder: Path) -> None:
    config = ("--config", "c.toml")
    messages = lobster(folder, (*GOOD, "nonsense", "34200.3,1,3,x,1,1", "again", "34200.4,,,"))
    result = orderbook("replay", messages, *config)
    assert result.status == 1 and "more problems than the 3 messages (4)" in result.out.splitlines()[-1]
    result = orderbook("replay", lobster(folder, (*GOOD, "nonsense")), *config)
    assert result.status == 1 and "book lost (malformed)" in result.out and "more problems" not in result.out
    rows = [bid(number, -1 if number else 5, 10) for number in range(4)]
    changes = change_stream(folder / "c.ndjson", [("bids", "+", row) for row in rows])
    result = orderbook("replay", changes, *config)
    assert result.status == 1 and "most changes of rows refused" in result.out
    (folder / "none.ndjson").write_text(json.dumps({"stream": "bids"}) + "\n")
    result = orderbook("replay", "changes:none.ndjson", *config)
    assert result.status == 1 and "incomplete: " in result.out


def test_a_position_without_a_price(orderbook: Program, folder: Path) -> None:
    placed, removed = orders((2, 1, 1010, 4), (1, 0, 1000, 4)), orders((2, 1, 1010, 4))
    removed["action"] = Action.DELETE
    source = record(folder / "gone.parquet", FOUND, placed, removed)
    result = orderbook("replay", source, "--config", "c.toml", "--strategy", "buyer_of_incomplete:Buyer")
    assert result.status == 1
    assert "mark missing of a position of Buyer (1): SIM:AAA-USD" in result.out.splitlines()[-1]
