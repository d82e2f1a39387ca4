"""A monitor on a free port, over a small engine that tests feed by hand or from generated flow."""

import asyncio
import json
import socket
import threading
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from typing import Any

import numpy as np
import pytest
from samples import PATIENCE
from websockets.asyncio.client import ClientConnection, connect

from orderbook.configuration.configuration import load_configuration
from orderbook.configuration.options import FlightOptions, MonitorOptions, PostgresOptions, QueryOptions
from orderbook.core.errors import Problems
from orderbook.engine.runtime.program_start import Backend
from orderbook.market.events import EVENT, Action, BookState, Flag, Side
from orderbook.market.synthetic_flow import generate, synthetic_instruments
from orderbook.monitor import run_monitor
from orderbook.monitor.publisher import Mailbox
from orderbook.monitor.run_monitor import RunMonitor, ServerProcess
from orderbook.monitor.server import FlightAccess, MonitorServer, PostgresAccess
from orderbook.operations.access import Access
from orderbook.run.feed_runs import FeedReport, FeedRun, Put
from orderbook.run.live_run import LiveRun
from orderbook.run.pipeline import Pipeline
from orderbook.strategies.gated_engine import GatedEngine
from orderbook.strategies.strategy import StrategyDefinition
from orderbook.views.compilation import compile_views

INSTRUMENTS = synthetic_instruments(2)
SYMBOL, VENUE = INSTRUMENTS[0].symbol, INSTRUMENTS[0].venue
SQL = """
CREATE STREAM quotes (symbol TEXT NOT NULL, volume DECIMAL(10, 2) NOT NULL);
CREATE VIEW totals AS SELECT symbol, SUM(volume) AS volume, COUNT(*) AS n FROM quotes GROUP BY symbol;
CREATE VIEW kept AS SELECT symbol, volume FROM quotes;
CREATE VIEW depth AS
SELECT symbol, COUNT(*) AS orders, MAX(price) AS best FROM bids GROUP BY symbol;
"""


class Idle(FeedRun):
    """A feed whose items tests put."""

    live = True
    name = "idle"
    instruments = INSTRUMENTS

    def __init__(self) -> None:
        self.indexes = np.arange(len(INSTRUMENTS), dtype=np.int32)
        self.items: asyncio.Queue[Any] = asyncio.Queue()

    async def follow(self, put: Put) -> None:
        while (item := await self.items.get()) is not None:
            await put(item)

    def report(self) -> FeedReport:
        return FeedReport(self.name, {"events": 1}, Problems())


class ServerThread(ServerProcess):
    """The server in a thread of the test's process, where its limits can be changed and its state read."""

    def start(self) -> socket.socket:
        own, theirs = socket.socketpair()
        access = Access(self._options.host, self._options.token, self._options.origin)
        postgres = None
        if self._for_postgres is not None:
            postgres = PostgresAccess(**self._postgres.told(self._for_postgres.detach()))
        flight = None
        if self._for_flight is not None:
            flight = FlightAccess(**self._flight.told(self._for_flight.detach()))
        self.served = MonitorServer(
            access, self._socket, theirs, postgres, flight, self._options.history_bytes
        )
        self.runner = asyncio.Runner()
        self.loop = self.runner.get_loop()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()
        while not hasattr(self.served, "hub"):
            time.sleep(0.001)
        return own

    def _serve(self) -> None:
        with self.runner:
            self.runner.run(self.served.serve())

    def close(self) -> None:
        self._thread.join()


class Running:
    """A run under way in the test's loop, and its monitor."""

    def __init__(
        self,
        options: MonitorOptions,
        strategies: Sequence[StrategyDefinition] = (),
        queries: QueryOptions | None = None,
        backend: Backend = "interpreter",
        postgres: PostgresOptions | None = None,
        flight: FlightOptions | None = None,
    ) -> None:
        changed = {
            "monitor": options,
            "queries": queries or QueryOptions(),
            "postgres": postgres or PostgresOptions(),
            "flight": flight or FlightOptions(),
        }
        configuration = load_configuration(None, {}).model_copy(update=changed)
        self.engine = GatedEngine(compile_views(SQL), backend)
        self.pipeline = Pipeline(self.engine, INSTRUMENTS, strategies)
        self.feed = Idle()
        self.monitor = RunMonitor(configuration, self.pipeline, [self.feed])
        self.engine.observe(fill=self.monitor.orders.fill)
        self.live = LiveRun(configuration, self.pipeline, None, [self.feed])
        # A ServerProcess where a test asks for one.
        self.server: Any
        self.mailbox: Mailbox

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.server.port}/ws"

    async def put(self, *items: np.ndarray) -> None:
        """Apply events."""
        applied = self.pipeline.events
        for item in items:
            self.feed.items.put_nowait(item)
            applied += len(item)
        while self.pipeline.events < applied:
            await asyncio.sleep(0)


@asynccontextmanager
async def running(
    options: MonitorOptions | None = None,
    strategies: Sequence[StrategyDefinition] = (),
    server_kind: type[ServerProcess] = ServerThread,
    queries: QueryOptions | None = None,
    backend: Backend = "interpreter",
    postgres: PostgresOptions | None = None,
    flight: FlightOptions | None = None,
) -> AsyncIterator[Running]:
    run = Running(options or MonitorOptions(port=0), strategies, queries, backend, postgres, flight)
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        patch.setattr(run_monitor, "ServerProcess", server_kind)
        server, publisher = stack.enter_context(run.monitor.serving(run.live))
        run.server, run.mailbox = server, publisher._mailbox
        run.live.start()
        parts = (run.live.follow_all(), run.live.consume(), publisher.publish())
        tasks = [asyncio.create_task(part) for part in parts]
        try:
            yield run
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


class Client:
    """A client that keeps what it has received."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.taken: list[dict[str, Any]] = []

    async def send(self, **message: Any) -> None:
        await self.socket.send(json.dumps(message))

    async def take(self, **wanted: Any) -> dict[str, Any]:
        """The next message with these fields; others are kept."""
        async with asyncio.timeout(PATIENCE):
            while True:
                message: dict[str, Any] = json.loads(await self.socket.recv())
                self.taken.append(message)
                if wanted.items() <= message.items():
                    return message

    async def ask(self, **message: Any) -> dict[str, Any]:
        """Send a request, and take its answer."""
        await self.send(**message)
        return await self.take(id=message["id"])


@asynccontextmanager
async def client(run: Running, **options: Any) -> AsyncIterator[Client]:
    async with connect(run.url, max_size=None, compression=None, **options) as socket:
        yield Client(socket)


def valid_books() -> np.ndarray:
    """Events by which all books become valid."""
    states = np.zeros(len(INSTRUMENTS), EVENT)
    states["instrument"], states["action"] = range(len(INSTRUMENTS)), Action.STATE
    states["side"], states["volume"], states["flags"] = Side.NONE, BookState.VALID, Flag.LAST
    return states


def flow(events: int, seed: int = 1) -> np.ndarray:
    """Generated flow of whole messages, from empty books on."""
    made = next(generate(events, len(INSTRUMENTS), 20, seed, batch=events))
    return made[: np.flatnonzero(made["flags"] & int(Flag.LAST))[-1] + 1]


def trade(ticks: int, lots: int, side: Side = Side.BID, instrument: int = 0) -> np.ndarray:
    """A trade."""
    event = np.zeros(1, EVENT)
    event["instrument"], event["action"], event["side"] = instrument, Action.TRADE, side
    event["price"], event["volume"], event["flags"] = ticks, lots, Flag.LAST
    event["exchange_time"] = event["receive_time"] = 1_767_623_400_000_000_000
    return event
