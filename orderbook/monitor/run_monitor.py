"""The monitor of one run: everything that it shows, put together, and its server.

The server is a process of its own, so that no client can keep the run's interpreter busy.
"""

import asyncio
import json
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from typing import Any

from orderbook.alerts.run_alerts import RunAlerts
from orderbook.configuration.configuration import Configuration
from orderbook.configuration.options import FlightOptions, MonitorOptions, PostgresOptions
from orderbook.core.errors import OrderbookError
from orderbook.core.processors import step_aside
from orderbook.engine.runtime.live_view import LiveView
from orderbook.monitor.alerts import Alerts, Notes, NotesTopic, noted_warnings
from orderbook.monitor.book_topic import BookTopics, StrategyOrders, TradeTape
from orderbook.monitor.continuous_queries import Followed, Follows, Replacing
from orderbook.monitor.history_recorder import HistoryRecorder
from orderbook.monitor.messages import Ask, CloseFollow, Command, Leave, OpenFollow, is_followed
from orderbook.monitor.operations import Operations
from orderbook.monitor.publisher import Mailbox, Publisher, Share
from orderbook.monitor.status_topic import EngineHealth, FeedHealth, InstrumentsTopic, StatusTopic
from orderbook.monitor.view_topic import ViewTopic
from orderbook.run.feed_runs import FeedRun
from orderbook.run.live_run import LiveRun
from orderbook.run.order_gateway import OrderGateway
from orderbook.run.pipeline import Pipeline

# Ports that are tried from the configured one on.
_PORTS = 20
# Connections that wait to be accepted.
_BACKLOG = 128
_SEND_BUFFER = 128 << 10
# Bytes on the line to the server; more waits in the run.
_LINE_BUFFER = 1 << 20
# Seconds in which clients are told that the run has ended.
_ENDING_SECONDS = 3.0
# Seconds in which a halt is answered, and between two looks at what is open.
_HALTING_SECONDS, _LOOK_SECONDS = 5.0, 0.02


_NO_POSTGRES, _NO_FLIGHT = PostgresOptions(), FlightOptions()


class ServerProcess:
    """Listens at once; serves after `start`. Raises OrderbookError where no port can be had."""

    def __init__(
        self,
        options: MonitorOptions,
        postgres: PostgresOptions = _NO_POSTGRES,
        flight: FlightOptions = _NO_FLIGHT,
        listening: socket.socket | None = None,
    ) -> None:
        """listening: what clients of the page connect to already."""
        self._options, self._postgres, self._flight = options, postgres, flight
        self._socket = listening or listening_for(options)
        self.host, self.port = options.host, int(self._socket.getsockname()[1])
        self._for_postgres: socket.socket | None = None
        if postgres.enabled:
            told = "clients of PostgreSQL", "postgres", "--no-postgres"
            self._for_postgres = _listening(postgres.host, postgres.port, *told)
            self._postgres_port = int(self._for_postgres.getsockname()[1])
        self._for_flight: socket.socket | None = None
        if flight.enabled:
            told = "clients of Arrow Flight", "flight", "--no-flight"
            self._for_flight = _listening(flight.host, flight.port, *told)
            self._flight_port = int(self._for_flight.getsockname()[1])
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """The page's address."""
        return f"http://{_in_url(self.host)}:{self.port}/"

    @property
    def postgres_url(self) -> str | None:
        """Where clients of PostgreSQL connect to; None where they cannot."""
        if self._for_postgres is None:
            return None
        host, port = _in_url(self._postgres.host), self._postgres_port
        return f"postgresql://{self._postgres.user}@{host}:{port}/orderbook"

    @property
    def flight_url(self) -> str | None:
        """Where clients of Arrow Flight connect to; None where they cannot."""
        if self._for_flight is None:
            return None
        scheme = "grpc" if self._flight.certificate is None else "grpc+tls"
        return f"{scheme}://{_in_url(self._flight.host)}:{self._flight_port}"

    @property
    def pid(self) -> int:
        """The process, once it is started."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> socket.socket:
        """Serve from now on; gives the run's end of the line, at whose close the process ends."""
        own, theirs = socket.socketpair()
        own.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _LINE_BUFFER)
        others = [self._for_postgres, self._for_flight]
        with self._socket, theirs, others[0] or nullcontext(), others[1] or nullcontext():
            ends = self._socket.fileno(), theirs.fileno()
            postgres, flight = (-1 if one is None else one.fileno() for one in others)
            self._process = subprocess.Popen(
                [sys.executable, "-m", "orderbook.monitor.server", *map(str, ends)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                pass_fds=[one for one in (*ends, postgres, flight) if one >= 0],
                # Ctrl-C is for the run, which ends this.
                start_new_session=True,
            )
        step_aside(self._process.pid)
        assert self._process.stdin is not None
        # A process that ends at once is noticed at the line.
        with suppress(BrokenPipeError), self._process.stdin as pipe:
            options = self._options
            access = {"host": options.host, "token": options.token, "origin": options.origin}
            told = {
                "access": access,
                "history": options.history_bytes,
                "postgres": None if postgres < 0 else self._postgres.told(postgres),
                "flight": None if flight < 0 else self._flight.told(flight),
            }
            pipe.write(json.dumps(told).encode())
        return own

    def close(self) -> None:
        """Wait until clients know that the run has ended."""
        if self._process is None:
            self._socket.close()
            for one in (self._for_postgres, self._for_flight):
                if one is not None:
                    one.close()
            return
        try:
            self._process.wait(_ENDING_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def listening_for(options: MonitorOptions) -> socket.socket:
    """What clients of the page connect to. Raises OrderbookError where no port can be had."""
    return _listening(options.host, options.port, "the monitor", "monitor", "--no-monitor")


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _listening(host: str, port: int, what: str, section: str, without: str) -> socket.socket:
    problem: Exception | None = None
    for tried in range(port, min(port + _PORTS, 65536)) if port else [0]:
        try:
            family, *_, address = socket.getaddrinfo(host, tried, type=socket.SOCK_STREAM)[0]
            server = socket.create_server(address[:2], family=family, backlog=_BACKLOG)
        except (OSError, UnicodeError) as error:
            problem = error
            continue
        # What the system holds for a client that is slow is old when it gets there.
        server.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
        return server
    raise OrderbookError(
        f"{what} cannot be served at {host}:{port}: {problem}; choose another {section}.port or "
        f"{section}.host, or {without}"
    ) from problem


class RunMonitor:
    """Shows a run, and `alerts`, those of its configuration.

    `notes` and `orders` are told of what strategies do.
    """

    def __init__(
        self,
        configuration: Configuration,
        pipeline: Pipeline,
        runs: Sequence[FeedRun],
        alerts: RunAlerts | None = None,
        *,
        door: Callable[[], socket.socket | None] | None = None,
    ) -> None:
        """door: gives, as it is served, what clients connect to already, if anything."""
        self._door = door
        self._configuration, self._pipeline, self._runs = configuration, pipeline, runs
        self._run_alerts = alerts
        self.notes = Notes(lambda: pipeline.time)
        # Pages count by the ticks and lots of the beginning.
        shown = tuple(pipeline.instruments)
        self.orders = StrategyOrders(shown, pipeline.host.places)
        self._tape = TradeTape(len(pipeline.instruments))
        self._alerts = Alerts(pipeline.engine, self.notes, lambda: pipeline.time, alerts)
        self.gateways: Sequence[OrderGateway] = ()

    @contextmanager
    def serving(self, live: LiveRun) -> Iterator[tuple[ServerProcess, Publisher]]:
        """Serve meanwhile; `Publisher.publish` is to run in the run's event loop.

        Raises OrderbookError where no port can be had.
        """
        options = self._configuration
        # Compiles what measures maps and reads books, for which the run would else wait.
        self._warm_up()
        listening = None if self._door is None else self._door()
        server = ServerProcess(options.monitor, options.postgres, options.flight, listening)
        mailbox = Mailbox(server.start())
        publisher = self._publisher(live, mailbox, Share(lambda: live.queue.waited))
        live.watch_items(self._tape.note)
        try:
            with noted_warnings(self.notes):
                yield server, publisher
        finally:
            live.watch_items(None)
            publisher.close()
            self._operations.close()
            mailbox.close()
            server.close()

    def _publisher(self, live: LiveRun, mailbox: Mailbox, share: Share) -> Publisher:
        pipeline, engine = self._pipeline, self._pipeline.engine
        feeds = FeedHealth(pipeline, live, self._runs)
        health = EngineHealth(pipeline, live, is_followed)
        recorder = HistoryRecorder(pipeline, self._tape, self.orders, is_followed, mailbox.post)
        books = BookTopics(pipeline, self._tape, self.orders, recorder.look)
        publisher = Publisher(
            mailbox,
            {
                "book": books.open,
                "view": lambda topic: ViewTopic(topic, engine),
                "status": lambda topic: StatusTopic(
                    topic, pipeline, health, feeds, self._alerts.newest, lambda: self.gateways
                ),
                "notes": lambda topic: NotesTopic(topic, self.notes),
                "instruments": lambda topic: InstrumentsTopic(
                    topic, pipeline, self.orders.instruments, self._runs, feeds.labels
                ),
            },
            self._perform,
            share,
        )

        replacing = Replacing(engine)
        publisher.add("replacing", replacing, lambda _: None)
        publisher.add("feeds", feeds, lambda _: None)
        publisher.add("history", recorder, lambda _: None)

        def add_follow(name: str, followed: Followed) -> None:
            publisher.add(("follow", name), followed, lambda error: self._follows.failed(name, error))

        self._follows = Follows(
            engine,
            mailbox,
            replacing,
            add_follow,
            lambda name: publisher.remove(("follow", name)),
            self._configuration.queries,
        )
        self._operations = Operations(
            self._configuration, engine, mailbox, self._alerts, replacing, lambda: live.queue.waited,
            lambda halted, reason: self._halt(live, halted, reason), self._run_alerts,
        )  # fmt: skip
        return publisher

    async def _halt(self, live: LiveRun, halted: bool, reason: str) -> dict[str, Any]:
        """Pulls or releases the kill switch; answers once that is done, or after some seconds, with what is
        still open."""
        host = self._pipeline.host
        before = host.open_orders()
        live.halt(halted, reason)
        for _ in range(round(_HALTING_SECONDS / _LOOK_SECONDS)):
            if (host.halted is not None) is halted and not (halted and host.open_orders()):
                break
            await asyncio.sleep(_LOOK_SECONDS)
        return {
            "type": "halt", "halted": host.halted is not None, "reason": host.halted, "open_before": before,
            "open": host.open_orders(), "gateways": [one.account.venue for one in self.gateways],
        }  # fmt: skip

    def _perform(self, command: Command) -> None:
        match command:
            case Ask():
                self._operations.ask(command)
            case Leave():
                self._operations.leave(command.client)
            case OpenFollow():
                self._follows.open(command.follow, command.client, command.request)
            case CloseFollow():
                self._follows.close(command.follow)

    def _warm_up(self) -> None:
        engine, books = self._pipeline.engine, self._pipeline.books
        self._tape.warm_up()
        # A view that is followed later is then watched without a wait.
        engine.warm_up()
        engine.view_bytes()
        for name in engine.views:
            view: LiveView = engine[name]
            view.row_words()
        if books is not None:
            books.best(0)
