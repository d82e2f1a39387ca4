"""`orderbook.backtest`: the job of the command, as frames, with its report."""

import sys
from pathlib import Path
from typing import Any

import pytest
from backtest_support import Follower, write_records

import orderbook
from orderbook.command_line import status_of
from orderbook.core.errors import UserError
from orderbook.jobs.job import open_job

SEEN = (
    "CREATE VIEW seen AS SELECT symbol, SUM(volume) AS volume, MAX(price) AS best FROM bids GROUP BY symbol"
)
PLAIN: dict[str, Any] = {"run.backend": "interpreter"}


@pytest.fixture(scope="module")
def flow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("flow")
    write_records(folder, 400, 2, 1, 5, apart=True)
    return folder


def test_it_is_the_commands_job_as_frames(flow: Path, tmp_path: Path) -> None:
    (tmp_path / "seen.sql").write_text(SEEN)
    (tmp_path / "c.toml").write_text('run = { backend = "interpreter" }\n')
    named = ["--strategy", "backtest_support:Follower", "--out", str(tmp_path / "command")]
    view = ["--view", str(tmp_path / "seen.sql"), "--config", str(tmp_path / "c.toml")]
    assert status_of(["backtest", str(flow), *view, *named]) == 0
    expected = open_job(tmp_path / "command")
    # SQL in place of a file, a class in place of its path.
    made = orderbook.backtest(flow, SEEN, Follower, options=PLAIN, out=tmp_path / "job")
    assert made.orders.rows() == expected.orders().rows() != []
    assert made.fills.rows() == expected.fills().rows() != []
    assert made.views["seen"].rows() == expected.history("seen").rows()
    assert made.view("seen").rows() == expected.view("seen").rows() != []
    for name in ("positions", "equity", "signals", "statistics"):
        assert getattr(made, name).rows() == expected.table(name).rows() != []
    assert made.sql("SELECT COUNT(*) FROM fills").item() == len(made.fills)
    assert made.report() == tmp_path / "job" / "report.html" and made.report().is_file()
    shown = made._repr_html_()
    assert shown.startswith('<iframe srcdoc="&lt;!doctype html&gt;') and "Follower" in repr(made)
    with pytest.raises(UserError, match="did you mean 'equity'"):
        made.table("equty")
    with pytest.raises(UserError, match="not a sweep"):
        _ = made.combinations


def test_views_over_what_strategies_keep_are_theirs(flow: Path, tmp_path: Path) -> None:
    """A file of strategies may have them, and a backtest shows its others."""
    helper = "CREATE VIEW held AS SELECT venue, symbol, volume FROM positions;"
    more = "CREATE VIEW flat AS SELECT venue, symbol FROM held WHERE volume = 0;"
    strategy = """CREATE STRATEGY once AS SELECT b.venue, b.symbol, 'buy' AS side, MAX(b.price) AS price,
        LEAST(1, 1 - COALESCE(MAX(h.volume), 0)) AS volume, 'ioc' AS kind
        FROM bids b LEFT JOIN held h USING (venue, symbol) GROUP BY b.venue, b.symbol;"""
    inline = strategy.replace("LEFT JOIN held h", "LEFT JOIN positions h")
    found = []
    for name, texts in (("apart", (helper, more, SEEN, ";", strategy)), ("inline", (inline, SEEN))):
        file = tmp_path / f"{name}.sql"
        file.write_text("\n".join(texts))
        for sweep in ({}, {"window": [1, 2]}):
            strategies = ["once", "strategies.order_flow:OrderFlow"] if sweep else []
            out = tmp_path / f"{name}{len(sweep)}"
            made = orderbook.backtest(flow, file, strategies, parameters=sweep, options=PLAIN, out=out)
            assert list(made.views) == ["seen"] and not made.views["seen"].is_empty()
            found.append(made.orders.filter(made.orders["strategy"].str.contains("once")).drop("strategy"))
    assert found[0].equals(found[2]) and found[1].equals(found[3]) and len(found[0]) > 0
    with pytest.raises(UserError, match=r"view held reads positions: .* the strategies' file"):
        orderbook.backtest(flow, helper, "strategies.order_flow:OrderFlow", options=PLAIN)


def test_views_call_functions_in_every_process(
    flow: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their module is beside the view's file, which is not where the processes are started."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "quarter_signals.py").write_text("def quartered(x):\n    return x / 4.0\n")
    query = "CREATE VIEW {} AS SELECT symbol, SUM({}) AS v FROM bids GROUP BY symbol;"
    function = "CREATE FUNCTION f(x DOUBLE) RETURNS DOUBLE LANGUAGE python AS 'quarter_signals:quartered';"
    files = [tmp_path / "called.sql", tmp_path / "plain.sql"]
    files[0].write_text(function + query.format("called", "f(price) * volume"))
    files[1].write_text(query.format("plain", "price::DOUBLE / 4 * volume"))
    made = orderbook.backtest(flow, files, options=PLAIN, out=tmp_path / "job")
    rows = {name: {(r[0], r[-1]) for r in made.view(name).rows()} for name in ("called", "plain")}
    assert rows["called"] == rows["plain"] != set()


def test_views_alone_and_sweeps(flow: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    alone = orderbook.backtest([str(flow)], [SEEN], options=PLAIN)
    with pytest.raises(UserError, match="no history of view 'sen'; did you mean 'seen'"):
        _ = alone.views["sen"]
    assert "sen" not in alone.views and list(alone.views) == ["seen"]
    assert alone.folder.parent == Path("backtests") and "<b>seen</b>" in alone._repr_html_()
    assert alone.orders.is_empty() and alone.equity.is_empty()
    with pytest.raises(UserError, match="no strategy was run"):
        alone.report()
    chosen = {"limit": [5_400, 5_500.5]}
    swept = orderbook.backtest(flow, SEEN, [Follower], parameters=chosen, options=PLAIN)
    assert swept.combinations.select("combination", "limit").rows() == [(1, 5_400.0), (2, 5_500.5)]

    class Inner(Follower):
        pass

    with pytest.raises(UserError, match="top of its module or notebook"):
        orderbook.backtest(flow, SEEN, Inner)


def test_patterns_are_found_in_rows_of_a_users_own(tmp_path: Path) -> None:
    prices = [5, 4, 3, 4, 5, 4, 4, 2, 3, 1, 6]
    lines = [f"2024-01-01 00:00:{at:02},a,{price}" for at, price in enumerate(prices)]
    (tmp_path / "ticks.csv").write_text("\n".join(["ts,symbol,price", *lines]))
    stream = "CREATE STREAM ticks (ts TIMESTAMP, symbol TEXT, price DOUBLE)"
    valley = """CREATE VIEW valleys AS SELECT * FROM ticks MATCH_RECOGNIZE (
        PARTITION BY symbol ORDER BY ts MEASURES a.price AS high, LAST(down.price) AS low, up.price AS last
        PATTERN (a down+ up+) DEFINE down AS price < PREV(price), up AS price > PREV(price))"""
    made = orderbook.backtest(
        f"rows:{tmp_path / 'ticks.csv'}", f"{stream};{valley}", options=PLAIN, out=tmp_path / "job"
    )
    assert sorted(made.view("valleys").rows()) == [("a", 4.0, 2.0, 3.0), ("a", 5.0, 3.0, 5.0)]
