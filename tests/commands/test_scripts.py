"""What scripts read of the program: rows on standard output, summaries as JSON, completion, one address."""

import asyncio
import csv
import io
import json
import os
import shlex
import subprocess
import sys
from decimal import Decimal
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from command_line_support import Program, orderbook
from monitor_support import flow, running, valid_books
from paths import PROJECT
from samples import PATIENCE

import orderbook as door
from orderbook.commands.asking import socket_address
from orderbook.commands.query import remote_query
from orderbook.core.errors import UserError

__all__ = ["orderbook"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("scripts")


@pytest.fixture
def job(orderbook: Program, folder: Path) -> Path:
    if not (folder / "job").exists():
        flow = folder / "flow.parquet"
        made = orderbook(
            "generate", "--events", 2000, "--symbols", 2, "--levels", 20, "--out", flow, "--json"
        )
        told = json.loads(made.out)
        assert told == {
            "command": "generate", "status": 0, "out": str(flow), "events": 2000, "symbols": 2,
            "bytes": flow.stat().st_size,
        }  # fmt: skip
        view = folder / "mine.sql"
        view.write_text(
            "CREATE VIEW mine AS SELECT symbol, MAX(ts) AS last, MAX(price) AS best, COUNT(*) AS n, "
            "AVG(CASE WHEN volume < 0 THEN price END) AS nothing FROM bids GROUP BY symbol"
        )
        done = orderbook("--json", "backtest", flow, "--view", view, "--out", folder / "job")
        told = json.loads(done.out)
        assert (told["command"], told["status"], told["job"]) == ("backtest", 0, str(folder / "job"))
        assert told["events"] == 2000 and told["incomplete"] == [] and told["views"]["mine"]["rows"] > 2
        assert "summary of" in done.err
    return folder / "job"


def exact(text: str) -> Any:
    return json.loads(text, parse_float=Decimal)


def test_rows_are_printed_for_scripts(orderbook: Program, job: Path) -> None:
    asked = ("query", "--job", job, "SELECT * FROM mine ORDER BY symbol")
    rows = exact(orderbook(*asked, "--format", "json").out)
    assert [row["symbol"] for row in rows] == ["AAA-USD", "AAB-USD"]
    assert list(rows[0]) == ["symbol", "last", "best", "n", "nothing"]
    assert isinstance(rows[0]["best"], Decimal) and rows[0]["nothing"] is None
    assert len(rows[0]["last"]) == len("2026-01-05T14:30:00.000000000Z") and rows[0]["last"].endswith("Z")
    lines = list(csv.DictReader(io.StringIO(orderbook(*asked, "--format", "csv").out)))
    for line, row in zip(lines, rows, strict=True):
        assert (line["symbol"], Decimal(line["best"]), int(line["n"])) == (
            row["symbol"],
            row["best"],
            row["n"],
        )
        assert line["last"] + "Z" == row["last"] and line["nothing"] == ""
    whole = exact(orderbook(*asked, "--json").out)
    assert whole == {"command": "query", "status": 0, "rows": rows}
    table = orderbook(*asked, "--format", "table").out
    assert table == orderbook(*asked).out and "2 rows" in table
    many = ("query", "--job", job, "SELECT range AS n, [range] AS l FROM range(1000)")
    assert exact(orderbook(*many, "--format", "json").out)[999] == {"n": 999, "l": [999]}
    assert orderbook(*many, "--format", "csv").out.splitlines()[1000] == "999,[999]"


def test_what_is_wrong_is_told_to_scripts(orderbook: Program, job: Path) -> None:
    done = orderbook("query", "--job", job, "SELECT nope FROM mine", "--json")
    told = json.loads(done.out)
    assert done.status == told["status"] == 2
    assert told["errors"] == [line.removeprefix("orderbook: ") for line in done.error_lines]
    refused = orderbook("query", "--job", job, "SELECT 1", "--format", "json", "--out", job / "x.csv")
    assert refused.status == 2 and "--format" in refused.err
    assert orderbook("query", "--job", job, "SELECT 1", "--format", "xml").status == 2


def test_every_command_of_a_day_has_a_summary(orderbook: Program, job: Path) -> None:
    flow, view = job.parent / "flow.parquet", job.parent / "mine.sql"
    told = json.loads(orderbook("replay", flow, "--view", view, "--json").out)
    assert (told["events"], told["views"]) == (2000, {"mine": {"rows": 2}})
    told = json.loads(orderbook("explain", view, "--json").out)
    assert told["view"] == "mine" and told["text"].startswith("view mine\n")
    told = json.loads(orderbook("check", "--json").out)
    assert told["fine"] and "view sobi: fine" in told["checks"]
    told = json.loads(orderbook("compare", job, job, "--json").out)
    assert told["status"] == 2 and "strateg" in told["errors"][0]


@pytest.mark.parametrize(
    "url",
    ["http://h:8799/", "http://h:8799", "h:8799", "h:8799/", "ws://h:8799", "ws://h:8799/", "ws://h:8799/ws"],
)
def test_an_address_has_one_form(url: str) -> None:
    assert socket_address(url) == "ws://h:8799/ws"
    assert socket_address(url, "a b") == "ws://h:8799/ws?token=a%20b"


def test_addresses_behind_proxies_and_those_that_are_none() -> None:
    assert socket_address("https://h/books/") == "wss://h/books/ws"
    assert socket_address("http://[::1]:1/?token=x") == "ws://[::1]:1/ws?token=x"
    for wrong in ("", "ftp://h:1", "http://", "h:port", "h:99999", "a b:1"):
        with pytest.raises(UserError, match="--url"):
            socket_address(wrong)


def test_a_monitor_gives_the_types_of_a_job() -> None:
    async def go() -> None:
        async with running() as run:
            await run.put(valid_books(), flow(200))
            for url in (run.url, run.url.removeprefix("ws://").removesuffix("/ws")):
                sql = "SELECT *, 1.5::DOUBLE AS d FROM depth ORDER BY symbol"
                frame = await asyncio.to_thread(remote_query, url, sql)
                own = run.engine.frame("depth").sort("symbol")
                assert frame.drop("d").rows() == own.rows()
                assert frame.schema["best"] == own.schema["best"]
                many = await asyncio.to_thread(remote_query, url, "SELECT range AS n FROM range(5000)")
                assert many["n"].to_list() == list(range(5000))

    asyncio.run(asyncio.wait_for(go(), PATIENCE))


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete_commands_and_options(shell: str) -> None:
    def program(*arguments: str, **told: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "orderbook.command_line", *arguments],
            capture_output=True, text=True, timeout=PATIENCE, env={**os.environ, **told},
        )  # fmt: skip
        return done.stdout

    # Without it typer looks for the shell among the processes above, which a test may not have.
    named = {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    assert "orderbook" in program("--show-completion", shell, **named)
    for line, expected in (("orderbook rep", "replay"), ("orderbook query --fo", "--format")):
        words = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split()) - 1), "_TYPER_COMPLETE_ARGS": line}
        shown = program(
            _ORDERBOOK_COMPLETE=f"complete_{shell}", **words, _TYPER_COMPLETE_FISH_ACTION="get-args"
        )
        assert expected in shown


@pytest.mark.sampled(2)
def test_the_document_is_true(orderbook: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = (PROJECT / "docs" / "scripts.md").read_text()
    shown = [line.removeprefix("$ orderbook ") for line in text.splitlines() if line.startswith("$ ")]
    assert len(shown) == 5
    for line in shown:
        done = orderbook(*shlex.split(line))
        assert done.status == 0, done.err
        if "json" in line:
            assert json.loads(done.out)


def test_types_and_representations() -> None:
    assert files(door).joinpath("py.typed").is_file()
    program = door.compile("CREATE VIEW d AS SELECT symbol, COUNT(*) AS n FROM bids GROUP BY symbol")
    engine = door.Engine(program, backend="interpreter")
    for symbol in ("A<b>", *map(str, range(29))):
        engine.insert("bids", {"ts": 1, "venue": "X", "symbol": symbol, "id": 7, "broker_id": 0, "volume": 1,
                               "price": 2})  # fmt: skip
    assert repr(program) == "<CompiledProgram: d; 1 maps>"
    assert repr(engine) == "<Engine on interpreter: d 30 rows; 30 events>"
    assert repr(engine["d"]) == "<view d(symbol, n): 30 rows>"
    assert repr(engine["d"]["A<b>"]) == "d(symbol='A<b>', n=1)"
    html = engine["d"]._repr_html_()
    assert "view d: 30 rows, 10 of them shown" in html and html.count("<tr>") >= 10 and "A<b>" not in html
    assert "<td>symbol</td><td>symbol, n</td><td>30</td>" in engine._repr_html_()
