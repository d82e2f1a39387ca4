"""Bad input: each kind gives one clear error and the right status, and nothing before it is lost."""

import json
from pathlib import Path

import pytest
from command_line_support import (
    NO_STRATEGIES,
    TOTALS,
    Program,
    Result,
    bid,
    change_stream,
    lobster,
    orderbook,
    write,
)

__all__ = ["orderbook"]

GOOD = ("34200.1,1,1,100,2239500,1", "34200.2,1,2,50,2239600,-1")
SHOWN = "ABC bid_volume=100 ask_volume=50 bid_orders=1 ask_orders=1"


def one_error(result: Result, status: int, *words: str) -> None:
    """One line on standard error that has all the words, and no traceback."""
    assert result.status == status
    assert len(result.error_lines) == 1, result.err
    assert result.error_lines[0].startswith("orderbook: ")
    for word in words:
        assert word in result.error_lines[0], result.err
    assert "Traceback" not in result.out + result.err


@pytest.mark.parametrize(
    ("sql", "position", "words"),
    [
        ("CREATE VIEW broken AS\nSELECT SUM(volume AS v FROM bids", "2:", ("syntax error",)),
        (
            "SELECT symbol,\n  SUM(volum) AS v FROM bids GROUP BY symbol",
            "2:7",
            ("volum", "did you mean volume"),
        ),
        ("SELECT symbol,\n RANDOM() AS r FROM bids", "2:2", ("RANDOM is not supported", "as a column")),
        ("SELECT SUM(volume) AS v\nFROM bidz", "2:6", ("unknown relation bidz", "bids")),
    ],
    ids=["broken SQL", "unknown column", "unsupported construct", "unknown relation"],
)
@pytest.mark.parametrize("command", ["run", "replay", "explain", "check"])
def test_sql(
    orderbook: Program, tmp_path: Path, command: str, sql: str, position: str, words: tuple[str, ...]
) -> None:
    view = write(tmp_path / "bad.sql", sql)
    source = lobster(tmp_path, GOOD)
    config = write(tmp_path / "c.toml", '[run]\nviews = ["bad.sql"]\nstrategies = []\n')
    arguments = {
        "run": ("--view", view, "--duration", 1),
        "replay": (source, "--view", view),
        "explain": (view,),
        "check": ("--config", config),
    }[command]
    one_error(orderbook(command, *arguments), 2, f"{view}:{position}", *words)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[run\nviews = []", ("c.toml:1:", "TOML")),
        (
            "[run]\nbackend = 'numba'\nview = ['sobi']",
            ("c.toml:3: run.view: unknown key; did you mean 'views'?",),
        ),
        ("[parameters]\nkk = 0.5", ("c.toml:2: parameters.kk: nothing uses it; did you mean 'k'?",)),
        ("[run]\nviews = ['sobbi']", ("c.toml:2: run.views", "did you mean 'sobi'?")),
        ("[run]\nstrategies = ['strategies.sobi:Sobbi']", ("no class 'Sobbi'", "did you mean 'Sobi'?")),
        ("[[feeds]]\nkind = 'simulatd'", ("c.toml:2: feeds[0].kind", "simulated")),
    ],
    ids=["bad TOML", "unknown key", "unknown parameter", "unknown view", "unknown strategy", "unknown feed"],
)
@pytest.mark.parametrize("command", ["run", "check"])
def test_configuration(
    orderbook: Program, tmp_path: Path, command: str, text: str, words: tuple[str, ...]
) -> None:
    one_error(orderbook(command, "--config", write(tmp_path / "c.toml", text)), 2, *words)


def test_every_mistake_of_a_configuration_has_a_line(orderbook: Program, tmp_path: Path) -> None:
    config = write(tmp_path / "c.toml", "[run]\nview = []\nbackend = 'gpu'\n")
    result = orderbook("run", "--config", config)
    assert result.status == 2
    assert [line.split(": ")[1].removeprefix(f"{tmp_path}/") for line in result.error_lines] == [
        "c.toml:2",
        "c.toml:3",
    ]


@pytest.mark.parametrize(
    "arguments",
    [
        ("replay", "{}/missing.csv"),
        ("run", "--feed", "lobster:{}/missing_message_1.csv"),
        ("run", "--config", "{}/missing.toml"),
        ("replay", "changes:{}/missing.ndjson"),
        ("explain", "{}/missing.sql"),
    ],
)
def test_missing_file(orderbook: Program, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    one_error(orderbook(*(argument.format(tmp_path) for argument in arguments)), 2, f"{tmp_path}/missing")


@pytest.mark.parametrize("command", ["replay", "run"])
def test_truncated_file(orderbook: Program, tmp_path: Path, command: str) -> None:
    messages = lobster(tmp_path, GOOD)
    messages.write_text(messages.read_text() + "34200.3,1,3,7")
    source = (f"lobster:{messages}",) if command == "replay" else ("--feed", f"lobster:{messages}")
    result = orderbook(command, *source, "--view", "depth")
    one_error(result, 2, str(messages), "truncated after line 3", "everything before it was read")
    assert SHOWN in result.out


def test_a_truncated_source_does_not_end_the_others(orderbook: Program, tmp_path: Path) -> None:
    cut = change_stream(tmp_path / "cut.ndjson", [("bids", "+", bid(1, 5, 10))])
    cut.write_text(cut.read_text() + '{"stream": "bids", "op"')
    whole = change_stream(tmp_path / "whole.ndjson", [("bids", "+", bid(i, 5, 10)) for i in (2, 3)])
    result = orderbook("replay", cut, whole, "--view", write(tmp_path / "totals.sql", TOTALS))
    one_error(result, 2, str(cut), "truncated")
    assert "X-USD volume=15 orders=3" in result.out


def test_malformed_frame(orderbook: Program, tmp_path: Path) -> None:
    messages = lobster(tmp_path, (GOOD[0], "this is no message", GOOD[1]))
    result = orderbook("replay", messages, "--view", "depth")
    # Without the book's own file the book is not the exchange's from there on.
    one_error(result, 1, "incomplete", "book lost (malformed) and not found again", "nasdaq:ABC")
    assert f"1 x malformed message: {messages.name}:2: this is no message" in result.out
    assert orderbook("replay", messages, "--view", "depth", "--allow-incomplete").status == 0
    assert SHOWN in result.out


def test_negative_volume_of_an_order(orderbook: Program, tmp_path: Path) -> None:
    record = tmp_path / "negative.parquet"
    _write_record_with_negative_volume(record)
    result = orderbook("replay", record, "--view", write(tmp_path / "totals.sql", TOTALS))
    assert (result.status, result.error_lines) == (0, [])
    assert "problems of books: bad volume 1" in result.out
    assert "AAA-USD volume=9 orders=2" in result.out


def _write_record_with_negative_volume(path: Path) -> None:
    import numpy as np

    from orderbook.feeds.recording.parquet_record import RecordWriter
    from orderbook.market.events import EVENT, Action, Flag, Side
    from orderbook.market.synthetic_flow import synthetic_instruments

    events = np.zeros(3, EVENT)
    events["action"], events["side"], events["flags"] = Action.ADD, Side.BID, int(Flag.LAST)
    events["order_id"], events["price"], events["volume"] = (1, 2, 3), 1000, (4, -5, 5)
    with RecordWriter(path, synthetic_instruments(1)) as writer:
        writer.write(events)


def test_negative_volume_in_a_change_stream(orderbook: Program, tmp_path: Path) -> None:
    rows = [bid(1, 4, 10), bid(2, -5, 10), bid(3, 5, 10)]
    source = change_stream(tmp_path / "c.ndjson", [("bids", "+", row) for row in rows])
    result = orderbook("replay", source, "--view", write(tmp_path / "totals.sql", TOTALS))
    assert (result.status, result.error_lines) == (0, [])
    assert (
        "1 x row refused" in result.out
        and f"{source}:2: bids.volume: -5 is outside the declared range" in result.out
    )
    assert "X-USD volume=9 orders=2" in result.out


def test_changes_that_contradict_the_state_or_the_program(orderbook: Program, tmp_path: Path) -> None:
    changes = [
        ("bids", "+", bid(1, 4, 10)),
        ("bids", "-", bid(2, 4, 10)),
        ("bidz", "+", bid(3, 4, 10)),
        ("bids", "+", bid(4, 5, 10)),
    ]
    source = change_stream(tmp_path / "c.ndjson", changes)
    result = orderbook("replay", source, "--view", write(tmp_path / "totals.sql", TOTALS))
    assert (result.status, result.error_lines) == (0, [])
    assert "1 x row not there: " in result.out
    assert f"1 x unknown stream: changes:{source}:3: 'bidz'; did you mean 'bids'?" in result.out
    assert "X-USD volume=9 orders=2" in result.out


RAISING = """
from orderbook import Strategy, on_view


class Raising(Strategy):
    @on_view("depth", when="bid_orders > 1")
    def deep(self, event):
        raise RuntimeError("no such thing")


class Steady(Strategy):
    @on_view("depth", when="bid_orders > 1")
    def deep(self, event):
        self.buy(event.new.symbol, 10)
"""


def test_a_strategy_that_raises(orderbook: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "raising_of_test.py", RAISING)
    messages = lobster(
        tmp_path, (*GOOD, "34200.3,1,3,30,2239400,1", "34200.4,3,3,30,2239400,1", "34200.5,1,4,3,2239400,1")
    )
    names = ("--strategy", "raising_of_test:Raising", "--strategy", "raising_of_test:Steady")
    result = orderbook("replay", messages, "--view", "depth", *names)
    assert result.status == 1 and "incomplete: strategy disabled (1): Raising: Raising.deep" in result.out
    assert orderbook("replay", messages, "--view", "depth", *names, "--allow-incomplete").status == 0
    assert result.err.count("Traceback") == 1
    assert "Raising.deep raised RuntimeError: no such thing; it is disabled" in result.err
    assert 'raising_of_test.py", line 8' in result.err
    assert "strategy Raising: callbacks 1, orders 0" in result.out
    assert "disabled: Raising.deep raised RuntimeError: no such thing" in result.out
    assert "strategy Steady: callbacks 2, orders 2, fills 2" in result.out
    assert "nasdaq:ABC position 20" in result.out
    assert "bid_orders=2" in result.out


def test_a_subscription_that_does_not_fit(
    orderbook: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(
        tmp_path / "unfit_of_test.py", RAISING.replace("bid_orders", "bid_ordres").replace("Raising", "Unfit")
    )
    config = write(tmp_path / "c.toml", '[run]\nviews = ["depth"]\nstrategies = ["unfit_of_test:Unfit"]\n')
    one_error(
        orderbook("check", "--config", config),
        2,
        "Unfit.deep, on view depth",
        "1:1",
        "bid_ordres",
        "bid_orders",
    )


def test_a_relation_that_books_cannot_fill(orderbook: Program, tmp_path: Path) -> None:
    view = write(
        tmp_path / "own.sql",
        "CREATE STREAM bids (t TIMESTAMP NOT NULL, price DECIMAL(18, 8) NOT NULL);"
        "CREATE VIEW own AS SELECT COUNT(*) AS n FROM bids;",
    )
    result = orderbook("replay", lobster(tmp_path, GOOD), "--view", view)
    one_error(result, 2, "bids.t is declared, but order books have no such column")


@pytest.mark.parametrize("out", ["x.csv", "nowhere/x.ndjson", "nowhere/x.parquet"])
def test_out_that_cannot_be_written(orderbook: Program, tmp_path: Path, out: str) -> None:
    result = orderbook("replay", lobster(tmp_path, GOOD), "--view", "depth", "--out", tmp_path / out)
    one_error(result, 2, out)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--events", "-1"), ("events must be at least 0",)),
        (("--levels", "2"), ("levels must be at least 10",)),
        (("--out", "x.csv"), (".parquet",)),
    ],
)
def test_generate(
    orderbook: Program, tmp_path: Path, arguments: tuple[str, ...], words: tuple[str, ...]
) -> None:
    out = () if "--out" in arguments else ("--out", tmp_path / "x.parquet")
    one_error(orderbook("generate", *arguments, *out), 2, *words)
    assert list(tmp_path.iterdir()) == []


def test_debug_adds_the_traceback(orderbook: Program, tmp_path: Path) -> None:
    result = orderbook("replay", tmp_path / "missing.csv", "--debug")
    assert result.status == 2
    assert "Traceback" in result.err and result.error_lines[-1].startswith("orderbook: ")


def test_two_live_feeds_of_one_instrument(orderbook: Program, tmp_path: Path) -> None:
    config = write(tmp_path / "c.toml", NO_STRATEGIES)
    feeds = ("--feed", "simulated:BTC-USD", "--feed", "simulated:BTC-USD,ETH-USD")
    one_error(orderbook("run", "--config", config, *feeds), 2, "both bring simulated:BTC-USD")


def test_a_line_of_json_that_is_no_change(orderbook: Program, tmp_path: Path) -> None:
    source = change_stream(tmp_path / "c.ndjson", [("bids", "+", bid(1, 4, 10))])
    good = source.read_text()
    source.write_text(
        good
        + json.dumps({"stream": "bids", "op": "*", "row": {}})
        + "\n"
        + good.replace('"id": 1', '"id": 2')
    )
    result = orderbook("replay", source, "--view", write(tmp_path / "totals.sql", TOTALS))
    assert (result.status, result.error_lines) == (0, [])
    assert "1 x malformed change: c.ndjson:2:" in result.out
    assert "X-USD volume=8 orders=2" in result.out


@pytest.mark.sampled(2)
def test_check_says_fine_only_where_all_is(
    orderbook: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    write(
        tmp_path / "checked_here.py",
        "from orderbook import Strategy, on_view\n\n\n"
        "class Divides(Strategy):\n    partition_by = 'symbol'\n\n"
        "    def __init__(self):\n        1 / 0\n\n"
        "    @on_view('touch', when='bid > :least')\n    def seen(self, event):\n        pass\n",
    )
    write(tmp_path / "empty.parquet", "nothing")
    text = """
[run]
views = ["depth"]
strategies = ["checked_here:Divides"]
[strategies.divides]
least = 1
[alerts.far]
view = "depth"
when = "nothing > 1"
[[feeds]]
kind = "file"
path = "{}"
[[feeds]]
kind = "file"
path = "{}"
"""
    flow, other = tmp_path / "flow.parquet", tmp_path / "gone.parquet"
    assert orderbook("generate", "--events", 100, "--out", flow).status == 0
    result = orderbook("check", "--config", write(tmp_path / "c.toml", text.format(other, "empty.parquet")))
    assert (result.status, result.out) == (2, "")
    assert len(result.error_lines) == 2 and "gone.parquet" in result.err and "empty.parquet" in result.err
    text = text.replace('path = "{}"', 'path = "flow.parquet"', 1)
    text = text.replace('[[feeds]]\nkind = "file"\npath = "{}"\n', "")
    config = write(tmp_path / "c.toml", text)
    result = orderbook("check", "--config", config)
    assert (result.status, result.out) == (2, "")
    assert "strategy Divides[AAA-USD].__init__ raised ZeroDivisionError" in result.err
    text = text.replace("checked_here:Divides", "strategies.order_flow:OrderFlow")
    write(config, text.replace("divides", "order_flow"))
    result = orderbook("check", "--config", config)
    one_error(result, 2, "c.toml:6: strategies.order_flow.least: OrderFlow has")
    write(config, text.replace("[strategies.divides]\nleast = 1\n", ""))
    one_error(orderbook("check", "--config", config), 2, "alerts.far: ", "nothing")


def test_a_typo_in_a_table_of_a_strategy_stops_every_command(
    orderbook: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config = write(tmp_path / "c.toml", "[strategies.sobi]\nthreshhold = 2\n")
    flow = tmp_path / "flow.parquet"
    assert orderbook("generate", "--events", 100, "--out", flow).status == 0
    words = ("c.toml:2: strategies.sobi.threshhold: Sobi has no such parameter; did you mean 'threshold'?",)
    named = ("--strategy", "strategies.sobi:Sobi")
    for command in (
        ("run", "--duration", "0.1"), ("check",), ("replay", flow), ("backtest", flow, *named),
        ("backtest", flow, *named, "--set", "volume=1,2"),
        # Also where another one runs.
        ("replay", flow, "--view", "depth"),
    ):  # fmt: skip
        one_error(orderbook(*command, "--config", config), 2, *words)
    result = orderbook("backtest", flow, *named, "--set", "threshhold=1")
    one_error(result, 2, "did you mean 'threshold'?")
    write(config, "[parameters]\nzzz = 1\n")
    result = orderbook("replay", flow, "--view", "depth", "--config", config)
    one_error(result, 2, "c.toml:2: parameters.zzz: nothing")
    # Of another view that ships: the configuration is for several runs.
    write(config, "[parameters]\nk = 0.5\n")
    assert orderbook("replay", flow, "--view", "depth", "--config", config).status == 0


def test_a_mistyped_exchange_is_told_of_exchanges(orderbook: Program, tmp_path: Path) -> None:
    words = ("no exchange and no kind of file is called 'krakn'", "did you mean 'kraken'?", "okx", "lobster")
    one_error(orderbook("run", "--feed", "krakn:BTC/USD"), 2, *words)
    config = write(tmp_path / "c.toml", "feeds = ['krakn:BTC/USD']\n")
    one_error(orderbook("check", "--config", config), 2, "c.toml:1: feeds[0]:", *words)
    one_error(orderbook("replay", "lobstr:x.csv"), 2, "did you mean 'lobster'?", "dbn")
    one_error(orderbook("replay", "kraken:BTC/USD"), 2, "kraken is an exchange", "run --feed kraken:BTC/USD")
