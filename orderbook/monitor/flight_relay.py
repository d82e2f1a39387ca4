"""What stands before gRPC: connections of clients of Arrow Flight, bounded and ended from here.

gRPC's server has threads, no bound on connections, and nothing by which one connection could be ended. So it
listens at a socket that nobody else reaches, and this hands on the bytes of each connection, from a socket of
its own whose name gRPC tells, by which calls belong to connections.
"""

import asyncio
import socket
import ssl
import time
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Protocol

# Connections together, and seconds in which a connection must have made a call that is let in.
MOST_CONNECTIONS, STARTUP_SECONDS = 128, 10.0
# Seconds in which a client must take something.
PATIENCE_SECONDS = 20.0
_CHUNK_BYTES = 256 << 10
# What a client may send between two calls, bytes; more for what it gets, and for each second.
_ALLOWED_BYTES, _OF_WHAT_IT_GETS, _A_SECOND = 256 << 10, 16, 100
_LOOK_SECONDS = 1.0


class Caller(Protocol):
    """Who makes the calls of one connection."""

    # Whether it has made a call that was let in, and how many it has begun.
    admitted: bool
    begun: int

    def stalls(self, now: float) -> float:
        """Seconds for which a call has waited until the client takes what it was given."""

    def leave(self) -> None:
        """The connection is closed: nothing is kept for it."""


class Door(Protocol):
    """What calls go to. `path`: of the socket where it listens; others may be made beside that."""

    path: Path

    def caller(self, name: str) -> Caller:
        """Of a connection that comes from the socket of this name."""


class Relay:
    """Hands connections on to a door. tls: what they are encrypted by; None where they are not."""

    def __init__(self, door: Door, tls: ssl.SSLContext | None) -> None:
        self._door, self._tls = door, tls
        self._names = count(1)
        self._connections: set[_Connection] = set()
        # With those that are not yet handed on.
        self._count = 0

    async def serve(self, listening: socket.socket) -> None:
        """Until it is cancelled; then all connections are broken off."""
        handshake = None if self._tls is None else STARTUP_SECONDS
        server = await asyncio.start_server(
            self._connected,
            sock=listening,
            limit=_CHUNK_BYTES,
            ssl=self._tls,
            ssl_handshake_timeout=handshake,
        )
        try:
            async with server:
                while True:
                    await asyncio.sleep(_LOOK_SECONDS)
                    for one in list(self._connections):
                        one.look()
        finally:
            for one in list(self._connections):
                one.end()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._count += 1
        try:
            if self._count <= MOST_CONNECTIONS:
                await self._handed_on(reader, writer)
        finally:
            self._count -= 1
            writer.transport.abort()

    async def _handed_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        name = f"c{next(self._names)}"
        own = self._door.path.with_name(name)
        try:
            inner = await _joined(self._door.path, own)
        except OSError:
            return
        connection = _Connection(self._door.caller(name), (reader, writer), inner)
        self._connections.add(connection)
        try:
            await connection.carry()
        finally:
            self._connections.discard(connection)
            own.unlink(missing_ok=True)


Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def _joined(path: Path, own: Path) -> Stream:
    inner = socket.socket(socket.AF_UNIX)
    try:
        inner.setblocking(False)
        inner.bind(str(own))
        await asyncio.get_running_loop().sock_connect(inner, str(path))
        return await asyncio.open_unix_connection(sock=inner, limit=_CHUNK_BYTES)
    except BaseException:
        inner.close()
        own.unlink(missing_ok=True)
        raise


class _Connection:
    def __init__(self, caller: Caller, outer: Stream, inner: Stream) -> None:
        self._caller, self._outer, self._inner = caller, outer, inner
        self._since = self._counted = time.monotonic()
        self._allowed, self._begun = float(_ALLOWED_BYTES), 0

    async def carry(self) -> None:
        """Hands on what both sides send, until one of them closes or is broken off."""
        ways = [asyncio.ensure_future(way) for way in (self._inward(), self._outward())]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            self.end()
            await asyncio.gather(*ways, return_exceptions=True)

    def look(self) -> None:
        """Breaks off a client that never was let in, or takes nothing."""
        now = time.monotonic()
        late = not self._caller.admitted and now - self._since > STARTUP_SECONDS
        if late or self._caller.stalls(now) > PATIENCE_SECONDS:
            self.end()

    def end(self) -> None:
        """Breaks the connection off."""
        for _, writer in (self._outer, self._inner):
            writer.transport.abort()
        self._caller.leave()

    async def _inward(self) -> None:
        reader, writer = self._outer[0], self._inner[1]
        with suppress(OSError, TimeoutError):
            while (data := await reader.read(_CHUNK_BYTES)) and self._may_send(len(data)):
                writer.write(data)
                await _drained(writer)

    async def _outward(self) -> None:
        reader, writer = self._inner[0], self._outer[1]
        with suppress(OSError, TimeoutError):
            while data := await reader.read(_CHUNK_BYTES):
                self._allowed += len(data) / _OF_WHAT_IT_GETS
                writer.write(data)
                await _drained(writer)

    def _may_send(self, nbytes: int) -> bool:
        """Whether so much is what a client has to send: it reads, so its requests are small."""
        now = time.monotonic()
        self._allowed += (now - self._counted) * _A_SECOND
        self._counted = now
        if self._begun != self._caller.begun:
            self._begun, self._allowed = self._caller.begun, float(_ALLOWED_BYTES)
        self._allowed = min(self._allowed, _ALLOWED_BYTES) - nbytes
        return self._allowed >= 0


async def _drained(writer: asyncio.StreamWriter) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        await writer.drain()
