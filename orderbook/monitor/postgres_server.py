"""What listens for clients of PostgreSQL in the monitor's server: connections before they are sessions.

TLS, passwords, and requests to cancel, which come on a connection of their own, are settled here.
"""

import asyncio
import base64
import binascii
import hashlib
import hmac
import logging
import secrets
import socket
import ssl
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from orderbook.monitor.hub import Hub
from orderbook.monitor.postgres_session import PostgresSession, read_message
from orderbook.monitor.postgres_wire import (
    CANCEL_REQUEST,
    GSS_REQUEST,
    MOST_STARTUP,
    PROTOCOL_3,
    PROTOCOL_3_END,
    SSL_REQUEST,
    Fields,
    ProtocolError,
    Startup,
    failure,
    int32,
    message,
    read_startup,
    text,
)

# Connections together, clients of all kinds, and seconds in which a connection must be a session.
MOST_CONNECTIONS, MOST_CLIENTS, STARTUP_SECONDS = 128, 64, 10.0
# What encryption and the like is asked for before a session begins, at most.
_MOST_REQUESTS = 4

_logger = logging.getLogger("orderbook.monitor")


@dataclass(frozen=True, slots=True)
class Login:
    """Who is let in: a user with this password; an empty one lets everybody in."""

    user: str
    password: str


class ScramProblem(Exception):
    """A password that is another one, or a message that SCRAM has not."""


class ScramServer:
    """The server's side of SCRAM-SHA-256 without channel binding (RFC 5802, RFC 7677), for one connection.

    The name in SCRAM's messages counts for nothing, as in PostgreSQL: libpq leaves it empty.
    """

    MECHANISM, ITERATIONS = "SCRAM-SHA-256", 4096

    def __init__(self, password: str) -> None:
        self._salt, self._nonce = secrets.token_bytes(16), secrets.token_urlsafe(18)
        # What SASLprep (RFC 4013) does to a password of ASCII, as the configuration asks for, is nothing.
        salted = hashlib.pbkdf2_hmac("sha256", password.encode(), self._salt, self.ITERATIONS)
        self._client_key = hmac.digest(salted, b"Client Key", "sha256")
        self._server_key = hmac.digest(salted, b"Server Key", "sha256")
        self._said, self._header = b"", b""

    def challenge(self, first: bytes) -> bytes:
        """What answers the client's first message. Raises ScramProblem."""
        binding, _, rest = first.partition(b",")
        authorised, _, bare = rest.partition(b",")
        if binding not in (b"n", b"y") or authorised[:2] not in (b"", b"a="):
            raise ScramProblem
        nonce = next((part[2:] for part in bare.split(b",") if part.startswith(b"r=")), b"")
        if not nonce or bare[:2] == b"m=":
            raise ScramProblem
        self._full_nonce = nonce + self._nonce.encode()
        said = b"r=%b,s=%b,i=%d" % (self._full_nonce, base64.b64encode(self._salt), self.ITERATIONS)
        self._header = b"%b,%b," % (binding, authorised)
        self._said = bare + b"," + said
        return said

    def proof(self, final: bytes) -> bytes:
        """What answers the client's last message, once it has shown the password. Raises ScramProblem."""
        without, _, proof = final.rpartition(b",p=")
        fields = dict(part.split(b"=", 1) for part in without.split(b",") if b"=" in part)
        said = self._said + b"," + without
        signature = hmac.digest(hashlib.sha256(self._client_key).digest(), said, "sha256")
        try:
            given, header = base64.b64decode(proof, validate=True), base64.b64decode(fields.get(b"c", b""))
        except binascii.Error:
            raise ScramProblem from None
        shown = bytes(a ^ b for a, b in zip(given, signature, strict=False))
        known = hmac.compare_digest(shown, self._client_key) and len(given) == len(signature)
        if not known or header != self._header or fields.get(b"r") != self._full_nonce:
            raise ScramProblem
        return b"v=" + base64.b64encode(hmac.digest(self._server_key, said, "sha256"))


class PostgresListener:
    """Serves clients of PostgreSQL through the hub that all clients share.

    numbers: gives each client a number. tls: what a connection is encrypted by; None where it cannot be.
    """

    def __init__(self, hub: Hub, numbers: Iterator[int], login: Login, tls: ssl.SSLContext | None) -> None:
        self._hub, self._numbers, self._login, self._tls = hub, numbers, login, tls
        self._sessions: dict[int, PostgresSession] = {}
        self._connections = 0

    async def serve(self, listening: socket.socket) -> None:
        """Until it is cancelled."""
        async with await asyncio.start_server(self._connected, sock=listening, limit=1 << 16) as server:
            await server.serve_forever()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections += 1
        try:
            if self._connections <= MOST_CONNECTIONS:
                await self._served(reader, writer)
        except ProtocolError as error:
            with suppress(OSError):
                writer.write(failure("08P01", str(error), "FATAL"))
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            pass
        except Exception:
            _logger.exception("a connection of a client of PostgreSQL has failed")
        finally:
            self._connections -= 1
            writer.close()

    async def _served(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(STARTUP_SECONDS):
            startup = await self._startup(reader, writer)
            if startup is None or not await self._admitted(startup, reader, writer):
                return
        if len(self._hub.members) >= MOST_CLIENTS:
            writer.write(failure("53300", f"{MOST_CLIENTS} clients already; try again later", "FATAL"))
            return
        session = PostgresSession(next(self._numbers), reader, writer, self._hub)
        self._sessions[session.number] = session
        try:
            await session.serve()
        finally:
            del self._sessions[session.number]

    async def _admitted(
        self, startup: Startup, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        """Whether the client may begin a session; it is told."""
        if startup.code != PROTOCOL_3:
            # The version that is spoken, and the options that are not known.
            unknown = [name for name in startup.parameters if name.startswith("_pq_.")]
            writer.write(message(b"v", int32(PROTOCOL_3), int32(len(unknown)), *map(text, unknown)))
        user = startup.parameters.get("user", "")
        if self._login.password:
            try:
                await self._authenticate(reader, writer)
                known = user == self._login.user
            except ScramProblem:
                known = False
            if not known:
                writer.write(
                    failure("28P01", f'password authentication failed for user "{user[:64]}"', "FATAL")
                )
                await writer.drain()
                return False
        writer.write(message(b"R", int32(0)))
        return True

    async def _authenticate(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Raises ScramProblem where the client does not know the password."""
        scram = await asyncio.to_thread(ScramServer, self._login.password)
        writer.write(message(b"R", int32(10), text(ScramServer.MECHANISM), b"\0"))
        await writer.drain()
        first = Fields(await self._password(reader))
        if first.text() != ScramServer.MECHANISM:
            raise ScramProblem
        writer.write(message(b"R", int32(11), scram.challenge(first.value() or b"")))
        await writer.drain()
        writer.write(message(b"R", int32(12), scram.proof(await self._password(reader))))

    async def _password(self, reader: asyncio.StreamReader) -> bytes:
        kind, body = await read_message(reader)
        if kind != b"p":
            raise ProtocolError("a password was expected")
        return body

    async def _startup(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Startup | None:
        """The first message of a session; None where there is none."""
        for _ in range(_MOST_REQUESTS):
            size = int.from_bytes(await reader.readexactly(4), "big")
            if not 8 <= size <= MOST_STARTUP:
                raise ProtocolError(
                    "no client of PostgreSQL: the first message has no length that it could have"
                )
            startup = read_startup(await reader.readexactly(size - 4))
            if startup.code == SSL_REQUEST and self._tls is not None:
                writer.write(b"S")
                await writer.drain()
                await writer.start_tls(self._tls)
            elif startup.code in (SSL_REQUEST, GSS_REQUEST):
                writer.write(b"N")
                await writer.drain()
            elif startup.code == CANCEL_REQUEST:
                session = self._sessions.get(startup.process)
                if session is not None and hmac.compare_digest(session.secret, startup.secret):
                    session.cancel()
                return None
            elif PROTOCOL_3 <= startup.code < PROTOCOL_3_END:
                return startup
            else:
                raise ProtocolError(
                    f"protocol {startup.code >> 16}.{startup.code & 0xFFFF} is not spoken; 3.0 is"
                )
        raise ProtocolError("too many requests before the session begins")
