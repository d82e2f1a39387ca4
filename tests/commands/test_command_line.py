"""The program from end to end, on small data."""

import itertools
import json
import os
import re
import signal
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import polars as pl
import pytest
from command_line_support import (
    FAST_FEED,
    NO_STRATEGIES,
    TOTALS,
    EndsOnce,
    Program,
    bid,
    books_valid,
    change_stream,
    ends_once,
    lobster,
    orderbook,
    write,
)
from samples import PATIENCE

from orderbook.operations.explain import STAGES
from orderbook.run.pipeline import Pipeline

__all__ = ["ends_once", "orderbook"]

COMMANDS = ("run", "replay", "explain", "check", "generate", "inject")
MESSAGES = (
    "34200.1,1,1,100,2239500,1",
    "34200.2,1,2,50,2239600,-1",
    "34200.3,1,3,30,2239400,1",
    "34200.4,2,1,40,2239500,1",
    "34200.5,4,1,10,2239500,1",
    "34200.6,3,3,30,2239400,1",
)


def number(text: str, name: str) -> int:
    """The number behind a name in a summary."""
    found = re.search(rf"{name} +([\d,]+)", text)
    assert found, f"no {name} in {text}"
    return int(found[1].replace(",", ""))


def test_help_names_every_command_and_loads_nothing_heavy() -> None:
    heavy = ("numba", "polars", "pyarrow", "sqlglot", "duckdb", "websockets", "pydantic")
    code = (
        "import sys; from orderbook.command_line import status_of; status_of(['--help']);"
        f"print('LOADED', [m for m in {heavy} if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE, check=True
    )
    assert all(command in done.stdout for command in COMMANDS)
    assert "LOADED []" in done.stdout


def test_version(orderbook: Program) -> None:
    result = orderbook("--version")
    assert (result.status, result.err) == (0, "")
    assert re.fullmatch(r"orderbook (\d+\.\d+.*|.*not installed)\n", result.out.replace(",", ""))


@pytest.mark.parametrize("arguments", [(), ("nonsense",), ("run", "--nonsense"), ("replay",), ("explain",)])
def test_bad_usage_is_one_line_and_status_2(orderbook: Program, arguments: tuple[str, ...]) -> None:
    result = orderbook(*arguments)
    assert result.status == 2
    assert len(result.error_lines) == 1
    assert result.error_lines[0].startswith("orderbook: ")


def test_the_default_run_shows_values_callbacks_and_orders(
    orderbook: Program, ends_once: EndsOnce, tmp_path: Path
) -> None:
    def traded(pipeline: Pipeline, messages: int) -> bool:
        (sobi,) = pipeline.host.summary()
        there = books_valid(pipeline) and len(pipeline.engine["sobi"]) == 3
        return there and bool(sobi.fills) and messages > 1_000

    ends_once(traded)
    config = write(tmp_path / "fast.toml", FAST_FEED.format(imbalance=0.3))
    done = orderbook("run", "--config", config, "--duration", PATIENCE)
    assert done.status == 0, done.err
    values, _, summary = done.out.partition("\nsummary of")
    assert re.search(r"sobi BTC-USD bid_vwap=[\d.]+ ask_vwap=[\d.]+ ratio=0\.\d+ pressure=[\d.]+", values)
    assert re.search(r"callback sobi (BTC|ETH|SOL)-USD bid_vwap=", values)
    assert re.search(r"order Sobi 1: (buy|sell) [\d.]+ (BTC|ETH|SOL)-USD at market, filled [\d.]+", values)
    assert number(summary, "events") > 1_000
    assert number(summary, "messages") > 1_000
    for latency in ("frame to views", "frame to callback"):
        assert re.search(rf"{latency}: p50 .+, p90 .+, p99 .+, max .+ \(of [\d,]+\)", summary)
    assert "view sobi: 3 rows" in summary
    assert number(summary, "callbacks") > 0 and number(summary, "orders") > 0 and number(summary, "fills") > 0
    assert re.search(r"position -?[\d.]+, mark [\d.]+, PnL -?[\d.]+ USD$", summary, re.MULTILINE)
    assert re.search(r"strategy Sobi: .+, PnL -?[\d.]+ USD$", summary, re.MULTILINE)
    assert re.search(r"feed simulated:BTC-USD\S* frames [\d,]+, messages [\d,]+, events [\d,]+\n", summary)
    assert re.search(r"exchange to receipt: p50 .+, p99 .+ \(by both clocks, of [\d,]+\)", summary)
    assert re.search(r"queue +at most [\d,]+ of 65,536 events", summary)
    assert "problems" not in summary


def test_the_same_on_a_balanced_book_stays_silent(
    orderbook: Program, ends_once: EndsOnce, tmp_path: Path
) -> None:
    def under_way(pipeline: Pipeline, messages: int) -> bool:
        return books_valid(pipeline) and len(pipeline.engine["sobi"]) == 3 and messages > 5_000

    ends_once(under_way)
    config = write(tmp_path / "balanced.toml", FAST_FEED.format(imbalance=0))
    result = orderbook("run", "--config", config, "--duration", PATIENCE)
    assert result.status == 0
    assert number(result.out, "events") > 1_000
    assert "view sobi: 3 rows" in result.out
    assert "strategy Sobi: callbacks 0, orders 0, fills 0" in result.out
    assert "frame to callback: no callback" in result.out
    assert "callback sobi" not in result.out and "order Sobi" not in result.out


@pytest.mark.sampled(2)
@pytest.mark.parametrize("number_sent", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_run_with_its_summary(number_sent: signal.Signals) -> None:
    # It may come before every book has been synchronised.
    command = [sys.executable, "-m", "orderbook.command_line", "run", "--view", "depth", "--allow-incomplete"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None and running.stderr is not None
        assert running.stdout.readline().startswith("monitor: http://127.0.0.1:")
        # Which books are there first, and after how many lines, is the machine's affair.
        lines = itertools.islice(running.stdout, 60)
        assert any(re.search(r"\d events, .* depth \w+-USD bid_volume=", line) for line in lines)
        running.send_signal(number_sent)
        rest, errors = running.stdout.read(), running.stderr.read()
        assert running.wait(PATIENCE) == 0
    assert "summary of" in rest and re.search(r"view depth: [1-3] row", rest)
    assert "Traceback" not in errors


def test_ctrl_c_ends_a_replay_with_its_summary_and_status_1(
    orderbook: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = change_stream(tmp_path / "rows.ndjson", [("bids", "+", bid(i, 1, 2)) for i in range(9_000)])
    view = write(tmp_path / "totals.sql", TOTALS)
    apply, calls = Pipeline.apply, []

    def interrupting(self: Pipeline, *arguments: object) -> None:
        apply(self, *arguments)  # type: ignore[arg-type]
        calls.append(self)
        if len(calls) == 2:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(Pipeline, "apply", interrupting)
    result = orderbook("replay", source, "--view", view, "--out", tmp_path / "out.ndjson")
    assert result.status == 1
    assert result.error_lines == [
        line for line in result.error_lines if line.startswith("orderbook: interrupted")
    ]
    assert len(result.error_lines) == 1
    assert number(result.out, "changes") == 2 * 4_096
    assert len((tmp_path / "out.ndjson").read_text().splitlines()) == 2 * 4_096


def test_one_line_starts_a_file_as_a_feed(orderbook: Program, tmp_path: Path) -> None:
    messages = lobster(tmp_path, MESSAGES)
    result = orderbook("run", "--feed", f"lobster:{messages}", "--view", "depth")
    assert result.status == 0, result.err
    assert number(result.out, "events") == 8
    assert "ABC bid_volume=50 ask_volume=50 bid_orders=1 ask_orders=1 imbalance=0" in result.out
    assert "frame to" not in result.out


def test_replay_of_lobster(orderbook: Program, tmp_path: Path) -> None:
    result = orderbook("replay", lobster(tmp_path, MESSAGES), "--view", "depth")
    assert result.status == 0, result.err
    assert "view depth: 1 row" in result.out
    assert "ABC bid_volume=50 ask_volume=50 bid_orders=1 ask_orders=1 imbalance=0" in result.out


def test_replay_of_a_binance_capture(orderbook: Program, shared_data: Path, tmp_path: Path) -> None:
    config = write(tmp_path / "c.toml", NO_STRATEGIES)
    capture = shared_data / "hftbacktest" / "spot_btcusdt_20240808.gz"
    result = orderbook("replay", f"binance:{capture}", "--view", "depth", "--config", config)
    assert result.status == 0, result.err
    assert number(result.out, "diffs applied") > 3_000
    assert re.search(
        r"BTC-USDT bid_volume=[\d.]+ ask_volume=[\d.]+ bid_orders=1209 ask_orders=2196", result.out
    )


@pytest.mark.sampled(2)
def test_generate_then_replay_the_record(orderbook: Program, tmp_path: Path) -> None:
    record = tmp_path / "flow.parquet"
    options = ("--events", 20_000, "--symbols", 3, "--levels", 50, "--seed", 7)
    made = orderbook("generate", *options, "--out", record)
    assert (made.status, made.err) == (0, "")
    assert "20,000 events of 3 symbols" in made.out
    result = orderbook("replay", record, "--view", "depth", "--view", "sobi")
    assert result.status == 0, result.err
    assert number(result.out, "events") == 20_000
    assert "view depth: 3 rows" in result.out and "view sobi: 3 rows" in result.out
    # What was asked for, and not what the default runs beside it.
    assert "strategy" not in result.out
    result = orderbook("replay", record, "--strategy", "strategies.sobi:Sobi")
    assert result.status == 0
    assert "strategy Sobi: callbacks" in result.out and "view sobi: 3 rows" in result.out
    own = write(tmp_path / "own.toml", "[run]\nviews = ['depth']\n")
    result = orderbook("replay", record, "--config", own)
    assert "view depth: 3 rows" in result.out and "sobi" not in result.out.lower()
    again = orderbook("generate", *options, "--out", tmp_path / "again.parquet")
    assert again.status == 0
    assert pl.read_parquet(record).equals(pl.read_parquet(tmp_path / "again.parquet"))


def test_replay_of_a_change_stream_feeds_streams_of_its_own(orderbook: Program, tmp_path: Path) -> None:
    view = write(
        tmp_path / "spend.sql",
        "CREATE STREAM sale (shop TEXT NOT NULL, amount DECIMAL(9, 2) NOT NULL);"
        "CREATE VIEW spend AS SELECT shop, SUM(amount) AS total, COUNT(*) AS sales FROM sale GROUP BY shop;",
    )
    rows = [("a", "1.50"), ("b", 2), ("a", 0.25)]
    changes = [("sale", "+", {"shop": shop, "amount": amount}) for shop, amount in rows]
    source = change_stream(tmp_path / "sales.ndjson", [*changes, ("sale", "-", {"shop": "b", "amount": 2})])
    result = orderbook("replay", source, "--view", view)
    assert result.status == 0, result.err
    assert "view spend: 1 row\n    a total=1.75 sales=2\n" in result.out
    assert number(result.out, "changes") == 4


def test_views_call_functions_of_a_module_beside_their_file(
    orderbook: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    write(tmp_path / "sale_signals.py", "def taxed(x, rate):\n    return x * (1.0 + rate)\n")
    view = write(
        tmp_path / "taxed.sql",
        "CREATE STREAM sale (shop TEXT NOT NULL, amount DOUBLE NOT NULL);"
        "CREATE FUNCTION taxed(x DOUBLE, rate DOUBLE) RETURNS DOUBLE LANGUAGE python AS 'sale_signals:taxed';"
        "CREATE PARAMETER rate DEFAULT 0.5;"
        "CREATE VIEW taxed AS SELECT shop, SUM(taxed(amount, :rate)) AS total FROM sale GROUP BY shop;",
    )
    rows = [("a", 2.0), ("b", 3.0), ("a", 1.0)]
    changes = [("sale", "+", {"shop": shop, "amount": amount}) for shop, amount in rows]
    source = change_stream(tmp_path / "sales.ndjson", changes)
    result = orderbook("replay", source, "--view", view)
    assert result.status == 0, result.err
    assert "a total=4.5\n" in result.out and "b total=4.5\n" in result.out
    write(tmp_path / "interpreted.toml", '[run]\nbackend = "interpreter"\n')
    assert orderbook("replay", source, "--view", view, "--config", tmp_path / "interpreted.toml").status == 0
    shown = orderbook("explain", view, "--stage", "m3")
    assert "call('sale_signals:taxed#" in shown.out, shown.err
    broken = write(tmp_path / "broken.sql", view.read_text().replace(":taxed'", ":untaxed'"))
    told = orderbook("replay", source, "--view", broken)
    assert told.status == 2
    place = broken.read_text().index("'sale_signals") + 1
    assert f"broken.sql:1:{place}: sale_signals:untaxed: untaxed is not there in sale_signals" in told.err


def test_sources_are_merged_in_order_of_time(orderbook: Program, tmp_path: Path) -> None:
    """The join sees a row of the one source between two of the other."""
    view = write(
        tmp_path / "seen.sql",
        "CREATE STREAM a (ts TIMESTAMP NOT NULL, x INTEGER NOT NULL);"
        "CREATE STREAM b (ts TIMESTAMP NOT NULL, y INTEGER NOT NULL);"
        "CREATE VIEW seen AS SELECT COUNT(*) AS pairs, SUM(x * y) AS product FROM a, b;",
    )
    one = change_stream(tmp_path / "1.ndjson", [("a", "+", {"ts": t, "x": t}) for t in (1, 3, 5)])
    two = change_stream(tmp_path / "2.ndjson", [("b", "+", {"ts": t, "y": 10 * t}) for t in (2, 3, 4)])
    out = tmp_path / "events.ndjson"
    assert orderbook("replay", one, two, "--view", view, "--out", out).status == 0
    events = [json.loads(line) for line in out.read_text().splitlines()]
    assert [(event["ts"], event["row"]["pairs"], event["row"]["product"]) for event in events] == [
        (0, 0, None),
        (2, 1, 20),
        (3, 2, 80),
        (3, 4, 200),
        (4, 6, 360),
        (5, 9, 810),
    ]


@pytest.mark.parametrize("ending", [".ndjson", ".parquet"])
def test_out_has_every_view_event(orderbook: Program, tmp_path: Path, ending: str) -> None:
    view = write(tmp_path / "totals.sql", TOTALS)
    rows = [bid(1, "0.5", 10), bid(2, "0.25", 11), bid(3, 7, 9, "Y-USD")]
    changes = [("bids", "+", row) for row in rows] + [("bids", "-", row) for row in rows]
    out = tmp_path / f"events{ending}"
    result = orderbook("replay", change_stream(tmp_path / "c.ndjson", changes), "--view", view, "--out", out)
    assert result.status == 0, result.err
    if ending == ".parquet":
        frame = pl.read_parquet(out)
        assert frame["view"].unique().to_list() == ["totals"]
        found = list(
            zip(
                frame["ts"].to_physical(),
                map(json.loads, frame["key"]),
                frame["volume"],
                frame["orders"],
                strict=True,
            )
        )
    else:
        lines = [json.loads(line, parse_float=Decimal) for line in out.read_text().splitlines()]
        values = [line["row"] or {} for line in lines]
        found = [
            (line["ts"], line["key"], row.get("volume"), row.get("orders"))
            for line, row in zip(lines, values, strict=True)
        ]
    x, y = {"symbol": "X-USD"}, {"symbol": "Y-USD"}
    assert found == [
        (1, x, Decimal("0.5"), 1),
        (2, x, Decimal("0.75"), 2),
        (3, y, 7, 1),
        (1, x, Decimal("0.25"), 1),
        (2, x, None, None),
        (3, y, None, None),
    ]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("stage", list(STAGES))
def test_explain_shows_each_stage(orderbook: Program, stage: str) -> None:
    result = orderbook("explain", "sobi", "--stage", stage, "--set", "k=0.125")
    assert (result.status, result.err) == (0, "")
    expected = {
        "sql": ("VIEW sobi", "0.125 * ("),
        "calculus": ("VIEW sobi[", "EXISTS[", "bids("),
        "m3": ("ON + bids(", "ON - asks(", "VIEW sobi["),
        "plan": ("ON + bids: O(log n)", "tree "),
        "python": ("def ", "jit("),
        "spark": ("1 stage over", "partitioned by symbol"),
    }[stage]
    assert all(text in result.out for text in expected)


def test_explain_says_where_the_seconds_of_a_start_go(orderbook: Program) -> None:
    result = orderbook("explain", "sobi", "--timings", "--set", "k=0.125")
    assert (result.status, result.err) == (0, "")
    seconds = {n: float(s) for n, s in re.findall(r"^  (\S.*?) {2,}([0-9.]+)$", result.out, re.MULTILINE)}
    assert {"Python and imports", "SQL bound", "deltas and maps", "plan", "functions in Python"} <= set(
        seconds
    )
    # Each is rounded to milliseconds.
    assert abs(sum(seconds.values()) - 2 * seconds["total"]) < 0.0006 * (len(seconds) + 1)
    assert re.search(r"functions were compiled, [0-9,]+ read from ", result.out)
    refused = orderbook("explain", "sobi", "--timings", "--stage", "m3")
    assert refused.status == 2 and "--timings takes neither" in refused.err


def test_explain_names_the_other_views_of_a_file(orderbook: Program, tmp_path: Path) -> None:
    views = "".join(
        f"CREATE VIEW {name} AS SELECT COUNT(*) AS n FROM bids;" for name in ("least", "mine", "most")
    )
    last, own = write(tmp_path / "several.sql", views), write(tmp_path / "mine.sql", views)
    for given, shown, others in ((last, "most", ("least", "mine")), (own, "mine", ("least", "most"))):
        result = orderbook("explain", given)
        assert result.out.startswith(f"view {shown}\n")
        named = ", ".join(f"{given}:{name}" for name in others)
        assert f"the file has other views: {named}\n" in result.out
        for name in others:
            one = orderbook("explain", f"{given}:{name}").out
            assert one.startswith(f"view {name}\n") and "other views" not in one
    wrong = orderbook("explain", f"{own}:leest")
    assert wrong.status == 2 and "no view is named 'leest'; did you mean 'least'?" in wrong.err


def test_explain_shows_all_strategies_of_a_file(orderbook: Program, tmp_path: Path) -> None:
    of = "SELECT venue, symbol, '{}' AS side, {} AS price, 1 AS volume FROM touch;"
    file = write(
        tmp_path / "pair.sql",
        f"CREATE STRATEGY lower AS {of.format('buy', 'bid')} CREATE VIEW few AS SELECT 1 AS n;"
        f"CREATE STRATEGY upper AS {of.format('sell', 'ask')}",
    )
    both = orderbook("explain", file).out
    first, second = (orderbook("explain", f"{file}:{name}").out for name in ("lower", "upper"))
    assert "upper runs in the compiled loop" in second
    named = f"the file has other views: {file}:few\n"
    assert both.replace(named, "") == f"{first}\n{second}" and named in both
    told = json.loads(orderbook("explain", file, "--json").out)
    assert told["view"] == "upper" and list(told["strategies"]) == ["lower", "upper"]
    assert told["strategies"]["upper"]["columns"] == told["columns"]
    one = orderbook("explain", file, "--stage", "m3").out
    assert one == orderbook("explain", f"{file}:upper", "--stage", "m3").out


def test_explain_gives_a_cost_for_every_statement(orderbook: Program) -> None:
    result = orderbook("explain", "sobi")
    assert result.status == 0
    for event in ("insert into bids", "delete from bids", "insert into asks", "delete from asks"):
        assert f"{event}: O(log n)" in result.out
    assert "no statement scans a map" in result.out
    m3 = orderbook("explain", "sobi", "--stage", "m3").out
    statements = [
        line for line in m3.splitlines() if line.startswith("  ") and re.search(r"\] (\+=|:=) ", line)
    ]
    of_triggers, of_updates = result.out.split("  update of bids")
    costs = re.findall(r"^    O\(.+\) +\w+\[", of_triggers, re.MULTILINE)
    assert len(costs) == len(statements) > 10 and "O(log n)" in of_updates


@pytest.mark.sampled(4)
@pytest.mark.parametrize("view", ["sobi", "market/markouts", "surveillance/spoofing", "resilience"])
def test_explain_tells_scripts_all_that_its_text_says(orderbook: Program, view: str) -> None:
    told = json.loads(orderbook("explain", view, "--json").out)
    text = told["text"]
    said: list[str] = []
    for column in told["columns"]:
        said.append(f"  {column['name']} {column['type']}{' or NULL' * column['nullable']}")
        assert f"  {column['name']}: " in text.partition("what columns derive from:")[2]
    assert list(told["lineage"]["fields"]) == [column["name"] for column in told["columns"]]
    assert f"  reads {', '.join(told['lineage']['inputs'])}\n" in text
    said += [f"  {one['text']}" for one in told["maps"]]
    classes = ["O(1)", "O(log n)", "O(log n + rows)", "O(groups * log n)", "O(slice)", "O(n)", "O(n * m)"]
    worst: dict[str, str] = {}
    for event in told["events"]:
        named = {"insert": "insert into", "delete": "delete from", "update": "update of"}[event["event"]]
        keys = " (not of keys)" * (event["event"] == "update")
        said.append(f"  {named} {event['relation']}{keys}: {event['cost']}")
        for one in event["statements"]:
            said.append(f"    {one['cost']:<9} {one['map']}[{', '.join(one['keys'])}] {one['op']}")
            worst[one["map"]] = max(one["cost"], worst.get(one["map"], "O(1)"), key=classes.index)
        assert event["cost"] == max((s["cost"] for s in event["statements"]), key=classes.index)
    said.append(f"  reading a row: {told['row_cost']}")
    said += [f"warning: {line}" for line in told["warnings"]]
    said += [f"declare: {line}" for line in told["declarations"]]
    by, why = told["threads"]["by"], told["threads"]["why_one"]
    said.append(f"threads: one, {why}" if by is None else f"threads: several, by {by}")
    lines = text.splitlines()
    assert [line for line in lines if line in said] == said
    assert {one["name"]: one["cost"] for one in told["maps"]} == worst
    assert told["cost"] == max((e["cost"] for e in told["events"]), key=classes.index)


def test_explain_warns_of_scans_and_takes_files(orderbook: Program, tmp_path: Path) -> None:
    view = write(
        tmp_path / "spread.sql", "SELECT COUNT(*) AS n FROM bids b, asks a WHERE b.volume * a.volume > 3"
    )
    result = orderbook("explain", view)
    assert result.status == 0
    assert "view spread" in result.out and "O(n)" in result.out
    assert "warning: " in result.out and "scans" in result.out


def test_check_says_what_is_fine(orderbook: Program) -> None:
    result = orderbook("check")
    assert (result.status, result.err) == (0, "")
    for line in (
        "configuration by default: fine",
        "view sobi: fine",
        "view depth: fine, not of this run",
        "feed simulated: fine",
    ):
        assert line in result.out.splitlines()
    assert "strategy Sobi: fine, subscribed to sobi when pressure > :threshold" in result.out
