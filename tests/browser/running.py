"""A run with its monitor, over the simulated exchange in a process of its own that can be stopped."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chromium import until
from websockets.sync.client import ClientConnection, connect

TOKEN = "a-token-for-tests"
PRODUCTS = "BTC-USD,ETH-USD,SOL-USD"
_CONFIGURATION = """
[run]
views = ["depth"]
strategies = []

[engine]
keep_rows = true

[log]
folder = "log"
sync = "never"

[monitor]
port = 0
preview = false
token = "{token}"

[[feeds]]
kind = "coinbase_full"
products = {products}
url = "{url}"
rest_url = "{rest_url}"
"""


@dataclass
class Running:
    """`url` is the page's. Both processes can be halted and let go on."""

    url: str
    run: subprocess.Popen[Any]
    exchange: subprocess.Popen[str]

    @contextmanager
    def client(self) -> Iterator["Client"]:
        """A websocket client beside the page."""
        with connect(self.url.replace("http", "ws", 1) + "ws", max_size=None) as connection:
            yield Client(connection)


class Client:
    """Asks and reads as any program would."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection
        self._number = 0

    def subscribe(self, **topic: Any) -> None:
        """Frames of a topic, to be read by `frames`."""
        self._send("subscribe", **topic)

    def frames(self, kind: str, seconds: float) -> Iterator[dict[str, Any]]:
        """Messages of a type that arrive within so many seconds."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            try:
                message = json.loads(self._connection.recv(timeout=left))
            except TimeoutError:
                return
            if message["type"] == kind:
                yield message

    def ask(self, operation: str, **fields: Any) -> dict[str, Any]:
        """The answer to a request; AssertionError where it is refused."""
        number = self._send(operation, **fields)
        while True:
            message: dict[str, Any] = json.loads(self._connection.recv(timeout=30))
            if message["id"] == number:
                assert message["type"] != "error", message
                return message

    def _send(self, operation: str, **fields: Any) -> int:
        self._number += 1
        self._connection.send(json.dumps({"id": self._number, "op": operation, **fields}))
        return self._number


@contextmanager
def running(folder: Path, rate: float = 600.0) -> Iterator[Running]:
    """A run that follows a simulated exchange of so many events a second, until the end of the block."""
    exchange = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "orderbook.feeds.live.simulated_exchange",
            "--products",
            PRODUCTS,
            "--events-per-second",
            str(rate),
            "--levels",
            "120",
            "--imbalance",
            "0.3",
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    processes: list[subprocess.Popen[Any]] = [exchange]
    try:
        assert exchange.stdout is not None
        url, rest_url, *_ = exchange.stdout.readline().split()
        configuration = folder / "config.toml"
        products = json.dumps(PRODUCTS.split(","))
        text = _CONFIGURATION.format(token=TOKEN, products=products, url=url, rest_url=rest_url)
        configuration.write_text(text)
        output = folder / "run.txt"
        with output.open("w") as file:
            command = [sys.executable, "-m", "orderbook.command_line", "run", "--config", str(configuration)]
            run = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT)
        processes.append(run)

        def served() -> str | None:
            if run.poll() is not None:
                raise RuntimeError(f"the run ended: {output.read_text()}")
            found = re.search(r"^monitor: (\S+)$", output.read_text(), re.MULTILINE)
            return found and found[1]

        yield Running(until(served, 90, what="the monitor is served"), run, exchange)
    finally:
        for process in processes:
            halt(process, False)
            process.kill()
            process.wait()


def halt(process: subprocess.Popen[Any], halted: bool) -> None:
    """Halt a process, or let it go on, as a machine that hangs would."""
    if process.poll() is None:
        os.kill(process.pid, signal.SIGSTOP if halted else signal.SIGCONT)
