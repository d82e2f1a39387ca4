"""Live feeds: a websocket that is kept alive, its snapshots, and batches of events for one consumer."""

import asyncio
import logging
import random
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from types import TracebackType
from typing import Protocol, Self

import numpy as np
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidURI, WebSocketException

from feeds.http_get import http_get, is_loopback
from feeds.statistics import FeedStatistics
from orderbook.errors import SourceError

# Frames that may wait for the consumer before the websocket is no longer read.
MAXIMUM_WAITING = 65_536
# Frames that websockets keeps before ours; more than one read of the socket brings.
_QUEUED_FRAMES = 4096
# Seconds before another connection, and before a snapshot (so that the stream is ahead of it).
_FIRST_DELAY, _FIRST_SNAPSHOT_DELAY, _LONGEST_DELAY = 0.1, 0.05, 30.0
_SNAPSHOTS_AT_ONCE = 4
# Silence is found in several checks, so that one long pause of this program does not count as silence.
_CHECKS_OF_SILENCE = 4

_log = logging.getLogger(__name__)


class Decoder(Protocol):
    """What an exchange's protocol means; it does no I/O and never raises for bad data."""

    @property
    def statistics(self) -> FeedStatistics: ...

    @property
    def subscribed(self) -> bool:
        """Whether the exchange has acknowledged the subscription of this connection."""

    @property
    def refusal(self) -> str | None:
        """Why the exchange refused the subscription, None where it did not."""

    def connected(self, receive_time: int) -> None: ...

    def disconnected(self, receive_time: int) -> None: ...

    def frame(self, data: bytes, receive_time: int) -> None: ...

    def snapshot(self, product: str, data: bytes, receive_time: int) -> bool: ...

    def needs_snapshot(self, product: str) -> bool: ...

    def take(self) -> np.ndarray: ...


class Backoff:
    """Delays that double from `first` to `longest` seconds, each shortened at random by up to a half."""

    def __init__(self, first: float, longest: float) -> None:
        self._first, self._longest = first, longest
        self._random = random.Random()
        self.reset()

    def reset(self) -> None:
        self._next = self._first

    def delay(self) -> float:
        """Seconds to wait now."""
        delay = self._next
        self._next = min(self._longest, delay * 2)
        return delay * self._random.uniform(0.5, 1.0)


_Item = tuple[str, str, bytes, int]  # what happened, product, data, receive time in ns


class LiveFeed(ABC):
    """An endless feed of one venue's products; an exchange's own feed says what to send and to ask for.

        async with CoinbaseFullFeed(instruments) as feed:
            async for events in feed:
                ...

    Each `events` is EVENT[n], n > 0: everything that had arrived, in order of arrival, whole messages
    only; receive times are when frames were read from the socket. A connection that breaks, or is
    silent for `silence` seconds, is made again after a growing delay; the books are stale until then, and
    syncing until their new snapshots. Where the consumer falls behind, the socket is no longer read.

    Iterating raises SourceError where the exchange refuses the subscription. Leaving the context closes
    the feed; iteration then ends.
    """

    def __init__(self, url: str, products: Sequence[str], decoder: Decoder, silence: float) -> None:
        self.url = url
        self.products = tuple(products)
        self._decoder = decoder
        self._silence = silence
        self._waiting: deque[_Item] = deque()
        self._arrived = asyncio.Event()
        self._reading = asyncio.Event()
        self._snapshots_wanted = asyncio.Event()
        self._snapshots_asked: set[str] = set()
        self._snapshot_delays = {p: Backoff(_FIRST_SNAPSHOT_DELAY, _LONGEST_DELAY) for p in self.products}
        self._snapshot_slots = asyncio.Semaphore(_SNAPSHOTS_AT_ONCE)
        self._heard = 0.0
        self._connections = 0
        self._task: asyncio.Task[None] | None = None

    @abstractmethod
    def subscription(self) -> Sequence[str]:
        """The messages that subscribe to all products."""

    @abstractmethod
    def snapshot_url(self, product: str) -> str:
        """Where a GET answers with a product's snapshot."""

    @property
    def statistics(self) -> FeedStatistics:
        return self._decoder.statistics

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run())
        self._task.add_done_callback(lambda _: self._arrived.set())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection; iteration ends after what had arrived."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> np.ndarray:
        if self._task is None:
            raise RuntimeError("enter the feed's context before iterating")
        while True:
            if self._waiting:
                events = self._decode()
                if self._decoder.refusal is not None and not self._decoder.subscribed:
                    raise SourceError(f"{self.url}: {self._decoder.refusal}")
                if len(events):
                    return events
            elif self._task.done():
                if not self._task.cancelled():
                    self._task.result()
                raise StopAsyncIteration
            else:
                self._arrived.clear()
                await self._arrived.wait()

    def _decode(self) -> np.ndarray:
        """Decode what is waiting now."""
        decoder = self._decoder
        for _ in range(len(self._waiting)):
            kind, product, data, receive_time = self._waiting.popleft()
            if kind == "frame":
                decoder.frame(data, receive_time)
            elif kind == "connected":
                decoder.connected(receive_time)
            elif kind == "disconnected":
                decoder.disconnected(receive_time)
            else:
                self._snapshots_asked.discard(product)
                if decoder.needs_snapshot(product) and decoder.snapshot(product, data, receive_time):
                    self._snapshot_delays[product].reset()
        self._reading.set()
        if any(map(decoder.needs_snapshot, self.products)):
            self._snapshots_wanted.set()
        return decoder.take()

    def _put(self, kind: str, product: str = "", data: bytes = b"") -> None:
        self._waiting.append((kind, product, data, time.time_ns()))
        self._arrived.set()

    async def _run(self) -> None:
        """Keep a connection, until cancelled."""
        backoff = Backoff(_FIRST_DELAY, _LONGEST_DELAY)
        while True:
            start = time.monotonic()
            try:
                problem = await self._connect()
            except InvalidURI as error:
                raise SourceError(str(error)) from None
            except (OSError, WebSocketException) as error:
                problem = f"{type(error).__name__}: {error}"
            if time.monotonic() - start > _LONGEST_DELAY:
                backoff.reset()
            delay = backoff.delay()
            self.statistics.problems.add("disconnected", self.url, problem)
            _log.warning("%s: %s; connecting again in %.1f s", self.url, problem, delay)
            await asyncio.sleep(delay)

    async def _connect(self) -> str:
        """One connection, from its opening to its end; says why it ended."""
        async with connect(
            self.url,
            compression=None,
            proxy=None if is_loopback(self.url) else True,
            max_queue=_QUEUED_FRAMES,
            ping_interval=None,
            close_timeout=1,
        ) as connection:
            self.statistics.reconnects += self._connections > 0
            self._connections += 1
            self._reading.set()
            self._put("connected")
            try:
                async with asyncio.TaskGroup() as group:
                    companions = [
                        group.create_task(self._watch(connection)),
                        group.create_task(self._get_snapshots()),
                    ]
                    try:
                        return await self._receive(connection)
                    finally:
                        for companion in companions:
                            companion.cancel()
            finally:
                self._snapshots_asked.clear()
                self._put("disconnected")

    async def _receive(self, connection: ClientConnection) -> str:
        """Subscribe and take frames until the connection ends; says why it did."""
        try:
            for message in self.subscription():
                await connection.send(message)
            while True:
                # Returns without suspending while frames of the same read are left.
                self._put("frame", data=await connection.recv(decode=False))
                self._heard = time.monotonic()
                if len(self._waiting) >= MAXIMUM_WAITING:
                    self._reading.clear()
                    await self._reading.wait()
        except ConnectionClosed as error:
            return str(error)

    async def _watch(self, connection: ClientConnection) -> None:
        """Break a connection on which nothing arrives though it is read."""
        quiet = 0
        while quiet < _CHECKS_OF_SILENCE:
            heard = self._heard
            await asyncio.sleep(self._silence / _CHECKS_OF_SILENCE)
            quiet = quiet + 1 if self._heard == heard and self._reading.is_set() else 0
        self.statistics.problems.add("silence", self.url, f"no frame for {self._silence:g} s")
        connection.transport.abort()

    async def _get_snapshots(self) -> None:
        """Ask for a snapshot of every product that needs one."""
        async with asyncio.TaskGroup() as group:
            while True:
                for product in self.products:
                    if product not in self._snapshots_asked and self._decoder.needs_snapshot(product):
                        self._snapshots_asked.add(product)
                        group.create_task(self._get_snapshot(product))
                await self._snapshots_wanted.wait()
                self._snapshots_wanted.clear()

    async def _get_snapshot(self, product: str) -> None:
        await asyncio.sleep(self._snapshot_delays[product].delay())
        try:
            async with self._snapshot_slots:
                data = await http_get(self.snapshot_url(product))
        except SourceError as error:
            self.statistics.problems.add("no snapshot", product, str(error))
            self._snapshots_asked.discard(product)
            self._snapshots_wanted.set()
        else:
            self._put("snapshot", product, data)
