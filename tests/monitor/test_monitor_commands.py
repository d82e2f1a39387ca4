"""The commands that serve a monitor, and the one that looks at it in a terminal."""

import asyncio
import io
import json
import pickle
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest
from command_line_support import TOTALS, Program, write
from command_line_support import orderbook as orderbook
from monitor_support import client, flow, running, valid_books
from rich.console import Console
from samples import PATIENCE
from websockets.exceptions import ConnectionClosedOK
from websockets.sync.client import ClientConnection, connect

from orderbook.commands import top
from orderbook.commands.top import screen
from orderbook.configuration.configuration import load_configuration
from orderbook.monitor import questions
from orderbook.monitor.questions import CostQuestion, EventQuestion, Question

SMALL = """
[run]
views = ["totals.sql"]
strategies = []
backend = "interpreter"
allow_incomplete = true  # runs of a moment, which may end before their book is there
[[feeds]]
kind = "simulated"
products = ["BTC-USD"]
events_per_second = 100
"""


def test_serve_prints_where_and_shows_no_values(orderbook: Program, tmp_path: Path) -> None:
    write(tmp_path / "totals.sql", TOTALS)
    config = write(tmp_path / "my.toml", SMALL)
    shown = orderbook("serve", "--config", config, "--duration", 1)
    assert shown.status == 0
    first, *rest = shown.out.splitlines()
    assert re.fullmatch(r"monitor: http://127\.0\.0\.1:\d+/", first)
    assert any("summary" in line for line in rest)
    assert not any("callbacks" in line for line in rest)
    without = orderbook("run", "--config", config, "--duration", 0.5, "--no-monitor")
    assert without.status == 0
    assert "monitor" not in without.out


def test_a_wrong_rule_or_address_ends_the_run_with_its_reason(orderbook: Program, tmp_path: Path) -> None:
    write(tmp_path / "totals.sql", TOTALS)
    rule = '[alerts.r]\nview = "totals"\nwhen = "nothing > 1"\n'
    result = orderbook("run", "--config", write(tmp_path / "my.toml", f"{SMALL}{rule}"), "--duration", 1)
    assert result.status != 0
    assert "nothing" in result.err
    assert "no monitor at http://127.0.0.1:1/" in orderbook("top", "--url", "http://127.0.0.1:1/").err
    assert orderbook("top", "--url", "nowhere").status == 2


@pytest.mark.sampled(2)
def test_why_of_an_alert_is_what_the_log_says(
    orderbook: Program,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write(tmp_path / "totals.sql", TOTALS)
    rule = '[alerts.r]\nview = "totals"\nwhen = "orders % 2 = 0"\n[monitor]\nport = 0\npreview = false\n'
    log = f'[log]\nfolder = "{tmp_path}/log"\n'
    config = write(tmp_path / "my.toml", f"{SMALL}levels = 10\n{log}{rule}")
    command = [sys.executable, "-m", "orderbook.command_line", "serve", "--config", str(config)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        url = run.stdout.readline().split()[1].replace("http", "ws", 1)
        with connect(f"{url}ws", max_size=None) as socket:
            alerts: list[dict[str, Any]] = []
            request: dict[str, Any] | None = {"op": "subscribe", "topic": "notes"}
            while len(alerts) < 3:
                # A slow machine has notes of warnings, too.
                alerts += [n for n in asked(socket, request, "notes")["notes"] if n["kind"] == "alert"]
                request = None
            note = alerts[-1]
            assert note["view"] == "totals"
            told = asked(socket, {"op": "why", "view": "totals", "at": note["version"]}, "why")
        run.terminate()
    at = ",".join(map(str, note["version"]))
    assert told["text"] == orderbook("why", "totals", "--at", at, "--config", config).out
    assert f"totals at {at}" in told["text"]
    # What was held back while a book was lost is told at the STATE that ends it, which changes no row.
    assert re.search(r"\n[1-9]\d* rows? of totals changed|\nno event: what had been held back", told["text"])
    monkeypatch.setattr(questions, "give_way", lambda _: None)

    def here(question: Question) -> tuple[int, str]:
        asking = io.TextIOWrapper(io.BytesIO(pickle.dumps(question)))
        monkeypatch.setattr(sys, "stdin", asking)
        capsys.readouterr()
        return questions.main(), capsys.readouterr().out

    configuration = load_configuration(config)
    status, text = here(EventQuestion(configuration, "totals", (7, 0, 1)))
    assert (status, "no event has the version 7,0,1" in text) == (1, True)
    assert here(CostQuestion(configuration)) == (1, 'statements are measured with backend = "numba" alone\n')


def asked(socket: ClientConnection, request: dict[str, Any] | None, kind: str) -> dict[str, Any]:
    """The next message of a type that tells something, after a request."""
    if request is not None:
        socket.send(json.dumps({"id": 1 if kind == "notes" else 2, **request}))
    while True:
        message: dict[str, Any] = json.loads(socket.recv(timeout=PATIENCE))
        assert message["type"] != "error", message
        if message["type"] == kind and message.get("notes", [1]):
            return message


def test_top_shows_the_status() -> None:
    async def go() -> str:
        async with running() as run, client(run) as one:
            await run.put(valid_books(), flow(200))
            status = await one.ask(id=1, op="subscribe", topic="status")
        text = io.StringIO()
        notes = [{"kind": "order", "text": "a note\x1b[2J"}]
        Console(file=text, width=160).print(screen(json.loads(json.dumps(status)), notes))
        return text.getvalue()

    shown = asyncio.run(go())
    assert re.search(r"idle\s+valid synchronised|idle\s+valid", shown)
    assert re.search(r"depth\s+\d", shown)
    assert "order  a note" in shown
    assert "\x1b" not in shown


def test_top_says_that_what_it_shows_is_not_of_now(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that hangs, then one that is gone."""
    monkeypatch.setattr(top, "_SILENT", 0.05)
    status: dict[str, Any] = {"type": "status", "feeds": [], "strategies": []}
    status["engine"] = dict.fromkeys(("events", "events_per_second", "queue", "epoch", "bytes"), 0)
    status["engine"] |= {"to_views": None, "views": []}
    screens: list[str] = []

    class Screens:
        def update(self, shown: Any, refresh: bool) -> None:
            text = io.StringIO()
            Console(file=text, width=120).print(shown)
            screens.append(text.getvalue().splitlines()[0])

    class Socket:
        def __init__(self) -> None:
            self.frames = [json.dumps(status)]

        async def recv(self) -> str:
            if self.frames:
                return self.frames.pop()
            if len(screens) < 3:
                await asyncio.sleep(60)
            raise ConnectionClosedOK(None, None)

    asyncio.run(top._show(Socket(), cast(Any, Screens())))
    assert "not live" not in screens[0]
    assert "not live: no frames for" in screens[1]
    assert "not live: disconnected" in screens[-1]
