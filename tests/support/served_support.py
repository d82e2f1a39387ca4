"""A run with its doors in a thread, for clients that block."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
from monitor_support import Running, flow, running, valid_books
from samples import PATIENCE

from orderbook.configuration.options import FlightOptions, PostgresOptions
from orderbook.monitor.run_monitor import ServerProcess


class Served:
    """A run with its monitor in a thread; `put` applies events."""

    def __init__(self, run: Running, loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
        self.run, self._loop, self._stop = run, loop, stop
        self.url, self.flight_url = run.server.postgres_url or "", run.server.flight_url or ""

    def put(self, *items: Any) -> None:
        asyncio.run_coroutine_threadsafe(self.run.put(*items), self._loop).result(PATIENCE)

    def call(self, work: Callable[[], object]) -> None:
        """Does what only the run's thread may do."""

        async def go() -> None:
            work()

        asyncio.run_coroutine_threadsafe(go(), self._loop).result(PATIENCE)

    def connect(self, **options: Any) -> psycopg.Connection[Any]:
        return psycopg.connect(self.url, connect_timeout=int(PATIENCE), **options)

    def end(self) -> None:
        # Tests may have ended it before.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._stop.set)


@contextmanager
def served(
    postgres: dict[str, Any] | None = None, flight: dict[str, Any] | None = None, **options: Any
) -> Iterator[Served]:
    """postgres, flight: options of these doors, which are shut without."""
    ready = threading.Event()
    found: list[Served] = []
    doors: dict[str, Any] = {}
    if postgres is not None:
        doors["postgres"] = PostgresOptions(enabled=True, port=0, **postgres)
    if flight is not None:
        doors["flight"] = FlightOptions(enabled=True, port=0, **flight)

    async def go() -> None:
        # A process of its own: some of libpq's functions let no other thread of theirs run.
        async with running(server_kind=ServerProcess, **doors, **options) as run:
            await run.put(valid_books(), flow(400))
            stop = asyncio.Event()
            found.append(Served(run, asyncio.get_running_loop(), stop))
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: asyncio.run(go()))
    thread.start()
    try:
        assert ready.wait(PATIENCE)
        yield found[0]
    finally:
        if found:
            found[0].end()
        thread.join()
