"""The order gateway of one venue: sends what a session says, follows the user stream, hands on reports.

Keys come from the environment and go nowhere else: not into reports, logs or errors. Reports go through the
run's queue, so that they are logged before strategies know of them.
"""

import asyncio
import logging
import secrets
import string
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, WebSocketException

from orderbook.configuration.configuration import Configuration
from orderbook.core.errors import SourceError
from orderbook.feeds.exchanges.credentials import BinanceFuturesKeys
from orderbook.feeds.live.http_requests import SignedRequests, is_loopback
from orderbook.run.pipeline import Pipeline
from orderbook.strategies.execution.binance_orders import SessionOptions
from orderbook.strategies.execution.binance_session import (
    BinanceSession,
    CloseStream,
    Command,
    OpenStream,
    Request,
)
from orderbook.strategies.execution.gateway_options import GatewayOptions, is_mainnet
from orderbook.strategies.execution.venue_account import VenueAccount
from orderbook.strategies.execution.venue_reports import ReportItem

_log = logging.getLogger(__name__)
# The websocket library would log addresses, which have the listen key.
_SILENT = logging.getLogger("orderbook.execution.silent")
_SILENT.setLevel(logging.CRITICAL)

_NAME = string.digits + string.ascii_lowercase
_LARGEST_MESSAGE = 1 << 20
# Seconds between our pings of the user stream, and those in which the venue is to answer a request.
_PING, _TIMEOUT = 20.0, 10.0
# Seconds in which open orders are cancelled at the end of a run.
_LEAVING = 10.0

PutReports = Callable[[ReportItem], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class GatewayState:
    """A gateway for people. unexplained: by symbol, what is held and nobody is known to have traded."""

    venue: str
    mode: str
    mainnet: bool
    ready: bool
    trouble: str | None
    connections: int
    reconciliations: int
    reconciled_seconds: float | None
    requests: int
    open_orders: int
    used: Mapping[str, tuple[int, int]]
    outside: Mapping[str, str]
    unexplained: Mapping[str, str]


class OrderGateway:
    """Orders of a run at one venue. `put` hands reports on; `clock` is the run's, ns."""

    def __init__(
        self,
        account: VenueAccount,
        options: GatewayOptions,
        keys: BinanceFuturesKeys,
        clock: Callable[[], int],
    ) -> None:
        self.account, self._options, self._keys, self._clock = account, options, keys, clock
        self._requests = SignedRequests(options.rest_url, _TIMEOUT)
        self.session = BinanceSession(
            account,
            SessionOptions(
                options.mode == "live",
                options.receive_seconds,
                options.cancel_seconds,
                options.reconcile_seconds,
            ),
            time.monotonic,
            lambda: time.time_ns() // 1_000_000,
            lambda: "".join(secrets.choice(_NAME) for _ in range(8)),
        )
        self._turned = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._stream: asyncio.Task[None] | None = None
        self._waiting: asyncio.Queue[ReportItem] = asyncio.Queue()

    async def run(self, put: PutReports) -> None:
        """Do what the session says, until cancelled."""
        account = self.account
        account.sending, account.asked = True, self._turned.set
        how = {"dry": "nothing is sent (dry run)", "live": "orders are sent"}[self._options.mode]
        money = ", FOR REAL MONEY" if is_mainnet(self._options.rest_url) else ""
        _log.warning("%s: %s to %s%s", account.venue, how, self._options.rest_url, money)
        handing = asyncio.create_task(self._hand_over(put))
        try:
            while not handing.done():
                self._turned.clear()
                self.session.wake()
                for command in self.session.commands():
                    self._do(command)
                if reports := self.session.take():
                    self._waiting.put_nowait(ReportItem(account.venue, self._clock(), reports))
                if account.outbox:
                    continue
                with suppress(TimeoutError):
                    async with asyncio.timeout(max(0.0, self.session.wake_at - time.monotonic())):
                        await self._turned.wait()
            handing.result()
        finally:
            account.sending, account.asked = False, lambda: None
            tasks = [handing, *self._tasks]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._requests.close()

    async def leave(self, applies: bool = True) -> None:
        """Cancel what is open at the end of a run, while `run` goes on; orders that may stay are said.

        applies: reports still change what the run knows.
        """
        session, account = self.session, self.account
        if self._options.mode == "live":
            session.leave()
            self._turned.set()
        deadline = time.monotonic() + _LEAVING
        while session.cancelling or (applies and account.incomplete()):
            if time.monotonic() > deadline:
                break
            await asyncio.sleep(0.02)
        # What was reported last comes to be applied.
        deadline = min(deadline, time.monotonic() + 1.0)
        while applies and any(account.open_orders()) and time.monotonic() < deadline:
            await asyncio.sleep(0.01)
        for client_id in session.cancelling:
            _log.warning("%s: order %s may still be open when the run ends", account.venue, client_id)

    def state(self) -> GatewayState:
        """How it stands."""
        session, account = self.session, self.account
        since = None if session.reconciled_at is None else time.monotonic() - session.reconciled_at
        unexplained = {symbol: account.unexplained(symbol) for symbol in account.symbols}
        return GatewayState(
            account.venue, self._options.mode, is_mainnet(self._options.rest_url), session.ready,
            session.trouble, session.connections, session.reconciliations, since, session.requests,
            sum(1 for _ in account.open_orders()), session.limits.used(),
            {symbol: f"{volume:f}" for symbol, volume in account.outside.items() if volume},
            {symbol: f"{volume:f}" for symbol, volume in unexplained.items() if volume},
        )  # fmt: skip

    async def _hand_over(self, put: PutReports) -> None:
        while True:
            await put(await self._waiting.get())

    def _do(self, command: Command) -> None:
        match command:
            case Request():
                self._begin(self._ask(command))
            case OpenStream(key):
                self._stream = self._begin(self._follow(key))
            case CloseStream():
                if self._stream is not None:
                    self._stream.cancel()

    def _begin(self, work: Any) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _ask(self, request: Request) -> None:
        keys = self._keys
        try:
            query = keys.query(request.params, request.signed)
            answer = await self._requests.request(request.method, request.path, query, keys.headers)
        except SourceError as error:
            self.session.failed(request.number, keys.hidden(str(error)))
        else:
            body = keys.hidden(answer.body.decode("utf-8", "replace")).encode()
            self.session.answered(request.number, answer.status, answer.headers, body)
        self._turned.set()

    async def _follow(self, key: str) -> None:
        """One user stream, from its opening to its end."""
        url, reason = self._options.stream_url, "closed"
        try:
            async with connect(
                f"{url}/ws/{key}",
                logger=_SILENT,
                compression=None,
                proxy=None if is_loopback(url) else True,
                max_size=_LARGEST_MESSAGE,
                ping_interval=_PING,
                ping_timeout=_PING,
                close_timeout=1,
            ) as stream:
                self.session.connected()
                self._turned.set()
                async for message in stream:
                    self.session.frame(message if isinstance(message, bytes) else message.encode())
                    self._turned.set()
        except asyncio.CancelledError:
            reason = "closed by the gateway"
            current = asyncio.current_task()
            if current is not None and self._stream is not current:
                raise
        except (OSError, WebSocketException, ConnectionClosed, TimeoutError) as error:
            reason = f"{type(error).__name__}: {error}"
        self.session.disconnected(self._keys.hidden(reason.replace(key, "…")))
        self._turned.set()


def keys_of(configuration: Configuration) -> dict[str, BinanceFuturesKeys]:
    """The keys of the gateways that the configuration asks for, by venue. Raises ConfigurationError."""
    return {
        venue: BinanceFuturesKeys.from_environment(venue)
        for venue, options in configuration.execution.items()
        if options.mode != "off"
    }


def gateways_of(
    configuration: Configuration,
    pipeline: Pipeline,
    keys: Mapping[str, BinanceFuturesKeys],
    clock: Callable[[], int],
) -> Sequence[OrderGateway]:
    """The order gateways of a run. Raises ConfigurationError for a venue that no feed brings."""
    found = []
    for venue, own in keys.items():
        account = pipeline.host.accounts.get(venue)
        if account is None:
            raise configuration.error(
                ("execution", venue),
                f"no feed of the run brings instruments of {venue}; add one, or leave it out",
            )
        found.append(OrderGateway(account, configuration.execution[venue], own, clock))
    if found and configuration.log.folder is None:
        _log.warning("orders are sent and there is no [log]: another run will know nothing of them")
    return found
