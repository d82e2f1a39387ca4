"""The commands that serve a monitor, and the one that looks at it in a terminal."""

import asyncio
import io
import json
import re
from pathlib import Path

from command_line_support import TOTALS, Program, write
from command_line_support import orderbook as orderbook
from monitor_support import client, flow, running, valid_books
from rich.console import Console

from orderbook.commands.top import screen

SMALL = """
[run]
views = ["totals.sql"]
strategies = []
backend = "interpreter"
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
    rule = '[[monitor.alerts]]\nname = "r"\nview = "totals"\nwhen = "nothing > 1"\n'
    result = orderbook("run", "--config", write(tmp_path / "my.toml", f"{SMALL}{rule}"), "--duration", 1)
    assert result.status != 0
    assert "nothing" in result.err
    assert "no monitor at http://127.0.0.1:1/" in orderbook("top", "--url", "http://127.0.0.1:1/").err
    assert orderbook("top", "--url", "nowhere").status == 2


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
