"""`binance_account` on loopback: REST with keys and signatures, the user stream."""

import asyncio
import json
import logging
import time
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from binance_account import BinanceAccount
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

# Of the server itself, which would log the addresses that it is asked for.
_QUIET = logging.getLogger("binance_server")
_QUIET.setLevel(logging.CRITICAL)


class BinanceServer:
    """Serves an account meanwhile. lose_answers: how many answers to orders are lost after they were done."""

    def __init__(self, account: BinanceAccount | None = None) -> None:
        self.account = account or BinanceAccount(lambda: time.time_ns() // 1_000_000)
        self.lose_answers = 0
        self.queries: list[str] = []
        self._told = 0
        self._streams: set[ServerConnection] = set()

    @property
    def rest_url(self) -> str:
        return f"http://127.0.0.1:{self._rest.sockets[0].getsockname()[1]}"

    @property
    def stream_url(self) -> str:
        return f"ws://127.0.0.1:{self._stream.sockets[0].getsockname()[1]}"

    async def __aenter__(self) -> Self:
        self._rest = await asyncio.start_server(self._serve_rest, "127.0.0.1", 0)
        self._stream = await serve(self._serve_stream, "127.0.0.1", 0, compression=None, logger=_QUIET)
        self._telling = asyncio.create_task(self._tell())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._telling.cancel()
        self._rest.close()
        self._stream.close()
        await self._stream.wait_closed()

    async def drop_streams(self) -> None:
        """The user streams end."""
        for stream in list(self._streams):
            stream.transport.abort()

    async def _serve_rest(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                line, *fields = head.decode().split("\r\n")
                method, target, _ = line.split(" ")
                headers = {n.lower(): v.strip() for n, _, v in (f.partition(":") for f in fields) if n}
                await reader.readexactly(int(headers.get("content-length", 0)))
                parts = urlsplit(target)
                self.queries.append(parts.query)
                status, extra, body = self.account.http(method, parts.path, parts.query, headers)
                if self.lose_answers and (method, parts.path) == ("POST", "/fapi/v1/order"):
                    self.lose_answers -= 1
                    return
                own = "".join(f"{name}: {value}\r\n" for name, value in extra.items())
                writer.write(
                    f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\n{own}"
                    f"Content-Length: {len(body)}\r\n\r\n".encode()
                    + body
                )
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _serve_stream(self, stream: ServerConnection) -> None:
        assert stream.request is not None
        if stream.request.path != f"/ws/{self.account.listen_key}":
            await stream.close()
            return
        self._streams.add(stream)
        await stream.wait_closed()
        self._streams.discard(stream)

    async def _tell(self) -> None:
        while True:
            await asyncio.sleep(0.005)
            self.account.pass_time()
            messages, self._told = self.account.sent[self._told :], len(self.account.sent)
            for message in messages:
                for stream in list(self._streams):
                    try:
                        await stream.send(json.dumps(message))
                    except ConnectionClosed:
                        self._streams.discard(stream)
