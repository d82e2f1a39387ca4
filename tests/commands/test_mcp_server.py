"""A client of the Model Context Protocol reads a run: its views, SQL, explain, and what is refused."""

import asyncio
import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
from command_line_support import Program, write
from command_line_support import orderbook as orderbook
from samples import PATIENCE

CONFIG = """
[run]
views = ["touch"]
strategies = []
backend = "interpreter"
[monitor]
port = 0
preview = false
[engine]
keep_rows = true
[log]
folder = "log"
[[feeds]]
kind = "simulated"
products = ["BTC-USD"]
events_per_second = 30
levels = 10
"""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of a run's monitor."""
    config = write(tmp_path_factory.mktemp("run") / "c.toml", CONFIG)
    command = [sys.executable, "-m", "orderbook.command_line", "serve", "--config", str(config)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        yield run.stdout.readline().split()[1]
        run.terminate()


def asked(url: str, *calls: tuple[str, dict[str, Any]]) -> tuple[list[Any], list[Any]]:
    """The tools, and what calls of them give: structures, or the text of an error."""
    from mcp import Client, StdioServerParameters

    async def go() -> tuple[list[Any], list[Any]]:
        command = ["-m", "orderbook.command_line", "mcp", "--url", url]
        async with Client(StdioServerParameters(command=sys.executable, args=command)) as client:
            tools = (await client.list_tools()).tools
            return tools, [await called(client, name, arguments) for name, arguments in calls]

    return asyncio.run(go())


async def called(client: Any, name: str, arguments: dict[str, Any]) -> Any:
    """What a tool gives: a structure, or the text of an error."""
    result = await client.call_tool(name, arguments)
    return result.content[0].text if result.is_error else result.structured_content


@pytest.mark.sampled(2)
def test_a_client_reads_views_and_asks_sql(url: str) -> None:
    # A run that has just begun has books in a moment.
    tools, (views, books, few, explained) = asked(
        url,
        ("views", {}),
        ("query", {"sql": "SELECT venue, symbol, COUNT(*) AS orders FROM bids GROUP BY ALL"}),
        ("query", {"sql": "SELECT * FROM range(2000) r(n)", "rows": 3}),
        ("explain", {"view": "touch"}),
    )
    assert [tool.name for tool in tools] == ["views", "query", "explain", "why"]
    assert all(tool.annotations.read_only_hint for tool in tools)
    assert {"bids", "asks", "touch"} <= views["tables"].keys()
    assert ["symbol", "text"] in [list(map(str.lower, one)) for one in views["tables"]["touch"]]
    assert isinstance(books, dict), books
    assert [name for name, _ in books["columns"]] == ["venue", "symbol", "orders"]
    assert len(books["version"]) == 3
    assert (few["rows"], few["count"], few["truncated"]) == ([[0], [1], [2]], 2000, True)
    assert "touch" in explained["sql"].lower() and explained["maps"]


@pytest.mark.sampled(2)
def test_nothing_is_changed_and_refusals_say_why(url: str) -> None:
    _, told = asked(
        url,
        ("query", {"sql": "DROP TABLE bids"}),
        ("query", {"sql": "SELECT * FROM read_csv('/etc/passwd')"}),
        ("query", {"sql": "SELECT * FROM nothing"}),
        ("query", {"sql": "SELECT 1", "rows": 1_000_000}),
        ("why", {"view": "touch", "version": [1]}),
        ("why", {"view": "touch", "version": [1, 0, 1]}),
        ("explain", {"view": "nothing"}),
    )
    says = ("SELECT", "read_csv", "nothing", "1,000", "stamp, switch, sequence", "log", "nothing")
    for text, expected in zip(told, says, strict=True):
        assert isinstance(text, str) and expected in text, (text, expected)


@pytest.mark.sampled(2)
def test_on_a_port_it_is_told_why_a_view_changed(url: str) -> None:
    from mcp import Client

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "orderbook.command_line", "mcp", "--url", url, "--port", str(port)]
    ends = time.monotonic() + PATIENCE

    async def go() -> str:
        async with Client(f"http://127.0.0.1:{port}/mcp") as client:
            while True:
                asks = await called(client, "query", {"sql": "SELECT COUNT(*) FROM touch"})
                told = await called(client, "why", {"view": "touch", "version": asks["version"]})
                # The log has an event a moment after the views, and not every event changes the view.
                if isinstance(told, dict) and "wrote touch_" in told["text"]:
                    return str(told["text"])
                assert time.monotonic() < ends, told

    with subprocess.Popen(command, stderr=subprocess.PIPE) as server:
        try:
            while True:
                with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                    break
                assert server.poll() is None and time.monotonic() < ends
                time.sleep(0.05)
            assert "changed" in asyncio.run(go())
            assert nothing_is_kept(port)
            assert sent(port, b"\0" * 100) == b"HTTP/1.1 400 Bad Request"
            head = b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nContent-Length: 2000000\r\n" % port
            accepts = b"Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n\r\n"
            assert sent(port, head + accepts).startswith(b"HTTP/1.1 413")
        finally:
            server.terminate()
            assert server.stderr is not None
            said = server.stderr.read()
    assert not said


def sent(port: int, data: bytes) -> bytes:
    """The first line of what is answered."""
    with (
        socket.create_connection(("127.0.0.1", port), PATIENCE) as connection,
        connection.makefile("rb") as file,
    ):
        connection.sendall(data)
        return file.readline().strip()


def nothing_is_kept(port: int) -> bool:
    """Whether whoever begins is given no session, which would be kept for it."""
    client = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "c", "version": "1"},
    }
    body = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": client}
    headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    request = Request(f"http://127.0.0.1:{port}/mcp", json.dumps(body).encode(), headers)
    with urlopen(request, timeout=PATIENCE) as answer:
        return "result" in json.load(answer) and "Mcp-Session-Id" not in answer.headers


def test_without_a_run_or_the_library(
    orderbook: Program, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _, (text,) = asked("http://127.0.0.1:1/", ("views", {}))
    assert "no answer from a monitor at http://127.0.0.1:1/" in text and "--url" in text
    assert orderbook("mcp", "--url", "no where").status == 2
    monkeypatch.setitem(sys.modules, "mcp.server.mcpserver", None)
    result = orderbook("mcp")
    assert result.status == 2 and "pip install 'orderbook[mcp]'" in result.err
