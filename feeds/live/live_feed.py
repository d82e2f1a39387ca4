"""Live feeds: sessions over websockets, and batches of events for one consumer."""

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from math import inf
from types import TracebackType
from typing import Self

import msgspec
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidURI, WebSocketException

from orderbook.core.errors import DataError, SourceError
from orderbook.feeds.exchanges.credentials import Login
from orderbook.feeds.exchanges.exchange import Exchange, ExchangeOptions, exchange
from orderbook.feeds.live.frame_connection import FrameConnection
from orderbook.feeds.live.http_requests import (
    RefusedRequest,
    exchange_instruments,
    http_get,
    is_loopback,
    is_private,
)
from orderbook.feeds.live.session import Connect, Disconnect, Get, Send, Session
from orderbook.feeds.raw_log import InstrumentText, RawLog
from orderbook.feeds.source import FeedStatistics
from orderbook.market.events import Events
from orderbook.market.instruments import Instrument, Instruments

# Frames that may wait for the consumer before the websocket is no longer read.
MAXIMUM_WAITING = 65_536
_CLOSED, _TOO_BIG = "the connection was closed", 1009
# Between two looks at the reference data of an exchange that does not announce their changes.
LISTING_SECONDS = 300.0

# Of the websocket library, for connections that prove themselves: it would log what they send.
_SILENT = logging.getLogger("orderbook.feeds.silent")
_SILENT.setLevel(logging.CRITICAL)

_decode_listing = msgspec.msgpack.Decoder(list[InstrumentText]).decode

Record = Callable[[str, Sequence[Instrument]], RawLog]
# What happened, product or reason, data (frames: all that came together), receive time in ns.
_Item = tuple[str, str, Sequence[bytes], int]


class Shard:
    """One connection of a feed: a session, what waits for it, and the tasks that do what it says."""

    def __init__(
        self,
        session: Session,
        kind: type[Exchange],
        arrived: asyncio.Event,
        raw: RawLog | None,
        clock: Callable[[], int] = time.time_ns,
        login: Login | None = None,
    ) -> None:
        self.session = session
        self._login = login
        self._clock = clock
        self.waiting: deque[_Item] = deque()
        self._frames = 0
        self._kind = kind
        self._arrived = arrived
        self._raw = raw
        self._reading = asyncio.Event()
        self._turned = asyncio.Event()
        self._connection: FrameConnection | None = None
        self._group: asyncio.TaskGroup | None = None

    def put(self, kind: str, text: str = "", data: bytes = b"") -> None:
        """What happened now, for the consumer to hand to the session."""
        self.waiting.append((kind, text, (data,), self._clock()))
        self._arrived.set()

    def put_answer(self, product: str, data: bytes) -> None:
        """A snapshot, which passes the frames that wait: behind a flood of them it would be too old to fit.

        It counts as received with the oldest of them, so that receive times do not go back.
        """
        first = next((place for place, item in enumerate(self.waiting) if item[0] == "frames"), None)
        if first is None:
            self.put("answered", product, data)
        else:
            self.waiting.insert(first, ("answered", product, (data,), self.waiting[first][3]))
            self._arrived.set()

    def put_frames(self, frames: Sequence[bytes], receive_time: int) -> None:
        """Frames that were read at this time, ns, for the consumer to hand to the session."""
        self.waiting.append(("frames", "", frames, receive_time))
        self._frames += len(frames)
        self._arrived.set()

    def decode(self) -> None:
        """Hand what is waiting now to the session, and let its commands be done."""
        session, waiting = self.session, self.waiting
        # Frames that wait one behind the other, and when each was read.
        frames: list[bytes] = []
        times: list[int] = []
        for _ in range(len(waiting)):
            item = kind, text, data, receive_time = waiting.popleft()
            if kind == "frames" and self._raw is None and (not times or receive_time >= times[-1]):
                frames += data
                times += (receive_time,) * len(data)
                continue
            self._take_all(frames, times)
            if self._raw is not None:
                self._record(self._raw, item)
            if kind == "frames":
                self._take(data, receive_time)
            elif kind == "connected":
                session.connected(receive_time)
            elif kind == "disconnected":
                session.disconnected(text, receive_time)
            elif kind == "answered":
                session.answered(text, data[0], receive_time)
            elif kind == "relisted":
                session.relisted(_decode_listing(data[0]), receive_time)
            elif kind == "wake":
                session.wake(receive_time)
            else:
                session.failed(text, data[0].decode(), receive_time, float(kind.partition(" ")[2]))
        self._take_all(frames, times)
        if not self._reading.is_set():
            session.resumed()
            self._reading.set()
        self._turned.set()

    def _take_all(self, frames: list[bytes], times: list[int]) -> None:
        """Hand frames over that were read at these times, and forget them here."""
        if frames:
            self._frames -= len(frames)
            self.session.frames_of(frames, times)
            frames.clear()
            times.clear()

    def _take(self, frames: Sequence[bytes], receive_time: int) -> None:
        """Hand frames to the session; the recording is told of each just before, unless it is ignored."""
        session, raw = self.session, self._raw
        self._frames -= len(frames)
        if raw is None:
            session.frames(frames, receive_time)
            return
        for frame in frames:
            if not session.closing:
                raw.received(frame, receive_time)
            session.frames((frame,), receive_time)

    def _record(self, raw: RawLog, item: _Item) -> None:
        """Tell the recording what the session takes now, so that it replays in that very order."""
        session = self.session
        match item:
            case "connected", url, _, time:
                raw.connected(url, time)
            case "disconnected", reason, _, time:
                raw.disconnected(reason, time, session.end_reason)
            case "answered", product, data, time:
                raw.answered(session.snapshot_url(product), data[0], time)
            case "relisted", _, data, time:
                raw.relisted(_decode_listing(data[0]), time)

    async def run(self) -> None:
        """Do what the session says, until cancelled."""
        async with asyncio.TaskGroup() as self._group:
            while True:
                self._turned.clear()
                for command in self.session.commands():
                    await self._do(command)
                due = self.session.wake_at - time.monotonic()
                if due <= 0 and not self.waiting:
                    self.put("wake")
                # What waits is for the consumer to take first, however long that takes.
                limit = None if self.waiting or due == inf else due
                # Not wait_for, which loses a cancellation that comes together with what it waits for.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(limit):
                        await self._turned.wait()

    async def _do(self, command: Connect | Disconnect | Send | Get) -> None:
        assert self._group is not None
        match command:
            case Connect(url):
                self._group.create_task(self._connect(url))
            case Get(product, url):
                self._group.create_task(self._get(product, url))
            case Disconnect():
                if self._connection is not None:
                    self._connection.transport.abort()
            case Send(text):
                if self._raw is not None:
                    self._raw.sent(text, self._clock())
                if self._connection is not None:
                    login = self._login
                    with contextlib.suppress(ConnectionClosed):
                        await self._connection.send(
                            text if login is None else login.signed(text, self._clock())
                        )

    async def _connect(self, url: str) -> None:
        """One connection, from its opening to its end."""
        try:
            await self._log_in(url)
        except SourceError as error:
            self.put("disconnected", str(error))
            return
        try:
            async with connect(
                url,
                # It would show what is sent, where everything is logged.
                logger=_SILENT if self._login is not None else None,
                compression=None,
                proxy=None if is_loopback(url) else True,
                max_size=self._kind.largest_frame,
                ping_interval=None,
                create_connection=FrameConnection,
                close_timeout=1,
            ) as connection:
                assert isinstance(connection, FrameConnection)
                self._connection = connection
                connection.clock = self._clock
                self._reading.set()
                self.put("connected", url)
                connection.deliver(self.put_frames)
                reason = await self._receive(connection)
        except InvalidURI as error:
            raise SourceError(str(error)) from None
        except (OSError, WebSocketException, TimeoutError) as error:
            reason = f"{type(error).__name__}: {error}"
        finally:
            if self._connection is not None:
                # A closing handshake that was interrupted leaves it open.
                self._connection.transport.abort()
            self._connection = None
        self.put("disconnected", reason)

    async def _log_in(self, url: str) -> None:
        """Ask for what a connection needs to prove itself. Raises SourceError."""
        login = self._login
        if login is None:
            return
        if not is_private(url):
            raise SourceError(f"{url}: keys are sent over wss alone")
        if (asked := login.before(self._clock())) is not None:
            login.told(await http_get(asked.url, body=asked.body, headers=asked.headers))

    async def _receive(self, connection: FrameConnection) -> str:
        """Leave off reading while there is no room for more, until the connection ends; says why it did."""
        try:
            while True:
                await connection.delivered()
                if self._raw is None and self._frames < MAXIMUM_WAITING:
                    continue
                connection.transport.pause_reading()
                if self._raw is not None:
                    await self._raw.room()
                if self._frames >= MAXIMUM_WAITING:
                    self._reading.clear()
                    await self._reading.wait()
                connection.transport.resume_reading()
        except ConnectionClosed as error:
            if error.sent is not None and error.sent.code == _TOO_BIG:
                self.session.statistics.problems.add("oversized frame", self._kind.venue, str(error))
            return str(error) or _CLOSED

    async def _get(self, product: str, url: str) -> None:
        try:
            headers = None if self._login is None else self._login.headers(url, self._clock())
            data = await http_get(url, headers=headers)
        except RefusedRequest as error:
            self.put(f"failed {error.retry_after}", product, str(error).encode())
        except SourceError as error:
            self.put("failed 0", product, str(error).encode())
        else:
            self.put_answer(product, data)


class LiveFeed:
    """An endless feed of one exchange's products, over as many connections as the exchange's limits ask for.

        async with LiveFeed(Binance, instruments, range(len(instruments))) as feed:
            async for events in feed:
                ...

    Each `events` is EVENT[n], n > 0: everything that had arrived, in order of arrival on each connection,
    whole messages only; receive times are when frames were read from the socket. What goes wrong is the
    session's to care for. Where the consumer falls behind, sockets are no longer read.

    `record` gives each connection, by a name for it and its instruments, what its raw frames go to: the
    exchange's, or that of what it has beside, and a number. `clock` tells receive times, ns since 1970 UTC.

    Iterating raises SourceError where the exchange refuses the subscription. Leaving the context closes
    the feed; iteration then ends.
    """

    def __init__(
        self,
        kind: type[Exchange],
        instruments: Instruments,
        indexes: Sequence[int],
        options: ExchangeOptions | None = None,
        record: Record | None = None,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        options = options or ExchangeOptions()
        self.kind = kind
        self._options = options
        self._arrived = asyncio.Event()
        kinds = [(kind, kind.venue)]
        # Where another address is given, nobody knows that of what is told beside books.
        if kind.beside and options.url is None:
            kinds.append((exchange(kind.beside), kind.beside))
        self.shards = [
            Shard(
                Session(own, instruments, part, options, time.monotonic),
                own,
                self._arrived,
                None if record is None else record(name, [instruments[i] for i in part]),
                clock,
                own.login(options),
            )
            for own, called in kinds
            for name, part in _connections(called, indexes, own.products_per_connection)
        ]
        self._tasks: list[asyncio.Task[None]] = []
        self._known = {instruments[i].native_symbol: instruments[i] for i in indexes}
        self._listing: asyncio.Task[None] | None = None

    @property
    def statistics(self) -> FeedStatistics:
        """Of all connections together."""
        return FeedStatistics.total(shard.session.statistics for shard in self.shards)

    async def __aenter__(self) -> Self:
        for shard in self.shards:
            task = asyncio.create_task(shard.run())
            task.add_done_callback(lambda _: self._arrived.set())
            self._tasks.append(task)
        if not self.kind.announces:
            self._listing = asyncio.create_task(self._watch_listing())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections; iteration ends after what had arrived."""
        tasks = [*self._tasks, *([] if self._listing is None else [self._listing])]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _watch_listing(self) -> None:
        """Ask for reference data again and again, and hand on ticks and lots that have changed."""
        while True:
            await asyncio.sleep(LISTING_SECONDS)
            try:
                found = await exchange_instruments(self.kind, tuple(self._known), self._options.rest_url)
            except (SourceError, DataError) as error:
                self.shards[0].session.statistics.problems.add(
                    "no reference data", self.kind.venue, str(error)
                )
                continue
            changed = [one for one in found if _steps(self._known[one.native_symbol]) != _steps(one)]
            for shard in self.shards:
                own = [one for one in changed if one.native_symbol in shard.session.books]
                if own:
                    texts = [InstrumentText.of(one) for one in own]
                    shard.put("relisted", data=msgspec.msgpack.encode(texts))
            self._known.update((one.native_symbol, one) for one in changed)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Events:
        if not self._tasks:
            raise RuntimeError("enter the feed's context before iterating")
        while True:
            for shard in self.shards:
                if not shard.waiting:
                    continue
                shard.decode()
                session = shard.session
                if session.refusal is not None:
                    raise SourceError(f"{self.kind.venue}: {session.refusal}")
                events = session.take()
                if len(events):
                    return events
            if any(shard.waiting for shard in self.shards):
                continue
            ended = [task for task in self._tasks if task.done()]
            if ended:
                for task in ended:
                    if not task.cancelled():
                        _raise_first(task)
                raise StopAsyncIteration
            self._arrived.clear()
            await self._arrived.wait()


def _connections(name: str, indexes: Sequence[int], size: int) -> Iterator[tuple[str, Sequence[int]]]:
    """Parts of `size` instruments, each with the name of its connection."""
    for number, first in enumerate(range(0, len(indexes), size), 1):
        yield f"{name}.{number}", indexes[first : first + size]


def _steps(one: Instrument) -> tuple[Decimal, Decimal]:
    return one.tick, one.lot


def _raise_first(task: asyncio.Task[None]) -> None:
    """Raise what ended a task, alone where it was one of a group's."""
    error: BaseException | None = task.exception()
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if error is not None:
        raise error
