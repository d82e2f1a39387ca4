"""Hostile clients at each door: an honest one gets right answers all the same, and memory is bounded."""

import json
import select
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from decimal import Decimal
from typing import Any
from urllib.error import URLError

import psycopg
import pytest
from monitor_support import flow
from paths import PROJECT
from pyarrow import ArrowException, flight
from samples import PATIENCE
from served_support import Served, served
from websockets.exceptions import WebSocketException
from websockets.sync.client import connect

from benchmarks.doors_clients import Mcp
from orderbook.core.processors import memory_of
from orderbook.monitor import flight_relay, postgres_server

Rows = list[tuple[Any, ...]]
# Two of each kind: half-open, garbage, never reading, opening and closing, largest queries, stalled.
CLIENTS = 12
# Bytes by which the process of all doors may grow: what waits for these clients, and what gRPC keeps.
GROWTH = 300 << 20
SQL = "SELECT symbol, orders, best FROM depth ORDER BY symbol"


@pytest.fixture(scope="module")
def one() -> Iterator[Served]:
    with served(postgres={}, flight={}) as found:
        yield found


@pytest.fixture(scope="module")
def mcp(one: Served) -> Iterator[str]:
    """The address of a server of the Model Context Protocol beside the run."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    page = f"http://127.0.0.1:{one.run.server.port}/"
    command = [sys.executable, "-m", "orderbook.command_line", "mcp", "--url", page, "--port", str(port)]
    with subprocess.Popen(command) as serving:
        address = f"http://127.0.0.1:{port}/mcp"
        until_it_works(lambda: Mcp(address).honest())
        yield address
        serving.kill()


def until_it_works(work: Callable[[], Any]) -> Any:
    """What it gives, once there is a place for it. Raises what it raises for too long."""
    until = time.monotonic() + PATIENCE
    while True:
        try:
            return work()
        except (OSError, URLError, ArrowException, WebSocketException, psycopg.OperationalError):
            if time.monotonic() > until:
                raise
            time.sleep(0.1)


def address_of(one: Served, door: str, mcp: str) -> str:
    page = f"ws://127.0.0.1:{one.run.server.port}/ws"
    return {"postgres": one.url, "flight": one.flight_url, "mcp": mcp, "page": page}[door]


def read(one: Served, door: str, mcp: str) -> Rows:
    """`depth` through a door, by a client that comes for it."""
    url = address_of(one, door, mcp)
    if door == "postgres":
        with one.connect() as connection:
            return connection.execute(SQL).fetchall()
    if door == "flight":
        with flight.connect(url) as client:
            wait = flight.FlightCallOptions(timeout=PATIENCE)
            table = client.do_get(flight.Ticket(json.dumps({"sql": SQL}).encode()), wait).read_all()
            return [tuple(row.values()) for row in table.to_pylist()]
    if door == "page":
        with connect(url, open_timeout=PATIENCE) as line:
            line.send(json.dumps({"op": "sql", "id": 1, "sql": SQL}))
            while (said := json.loads(line.recv(PATIENCE))).get("id") != 1:
                pass
        if said["type"] == "error":
            raise ConnectionError(said["error"])
        rows = said["rows"]
    else:
        client = Mcp(url)
        content = json.loads(client._call(client._session(), SQL))["result"]
        if "structuredContent" not in content:
            raise ConnectionError(content)
        rows = content["structuredContent"]["rows"]
    return [(symbol, orders, Decimal(best)) for symbol, orders, best in rows]


@contextmanager
def attacked(door: str, url: str) -> Iterator[subprocess.Popen[bytes]]:
    """Hostile clients at a door."""
    command = [sys.executable, "-m", "benchmarks.doors_clients", door, url, str(CLIENTS)]
    with subprocess.Popen(command, cwd=PROJECT, stdout=subprocess.PIPE) as attacking:
        try:
            assert attacking.stdout is not None and attacking.stdout.readline() == b"ready\n"
            yield attacking
        finally:
            attacking.kill()


def right(one: Served) -> Rows:
    return one.run.engine.frame("depth").select("symbol", "orders", "best").sort("symbol").rows()


@pytest.mark.sampled(4)
@pytest.mark.parametrize("door", ["postgres", "flight", "mcp", "page"])
def test_an_honest_client_is_answered_rightly(one: Served, mcp: str, door: str) -> None:
    server = one.run.server.pid
    assert until_it_works(lambda: read(one, door, mcp)) == right(one)
    before = memory_of(server)
    with attacked(door, address_of(one, door, mcp)):
        for number in range(3):
            events = flow(60)
            events["order_id"] += (number + 1) << 32
            one.put(events)
            assert until_it_works(lambda: read(one, door, mcp)) == right(one)
            assert memory_of(server) < before + GROWTH
    # Nothing is left of them.
    assert until_it_works(lambda: read(one, door, mcp)) == right(one)


@pytest.mark.parametrize(
    ("door", "most"),
    [("postgres", postgres_server.MOST_CONNECTIONS), ("flight", flight_relay.MOST_CONNECTIONS)],
)
def test_more_connections_than_there_are_places_for(one: Served, mcp: str, door: str, most: int) -> None:
    host, port = address_of(one, door, mcp).rpartition("@")[2].split("//")[-1].split("/")[0].split(":")
    with ExitStack() as closed:
        held = closed.enter_context(one.connect(autocommit=True)) if door == "postgres" else None
        connected = (socket.create_connection((host, int(port)), PATIENCE) for _ in range(most + 20))
        lines = [closed.enter_context(line) for line in connected]
        # Those beyond are closed at once, while others still may say who they are.
        assert all(map(_is_closed, lines[-20:]))
        other = lines[most - 20]
        assert not select.select([other], [], [], 0)[0] or other.recv(1, socket.MSG_PEEK)
        # Who was let in before is answered.
        if held is not None:
            assert held.execute(SQL).fetchall() == right(one)
    assert until_it_works(lambda: read(one, door, mcp)) == right(one)


def _is_closed(line: socket.socket) -> bool:
    line.settimeout(PATIENCE)
    try:
        return not line.recv(1)
    except ConnectionError:
        return True
