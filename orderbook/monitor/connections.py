"""The connections of the monitor's server, bounded below what its application sees."""

import asyncio
from asyncio.transports import BaseTransport
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

# TCP connections together, and seconds in which one must have sent its first request.
MOST_CONNECTIONS = 128
REQUEST_SECONDS = 10.0
# Parts of one websocket message.
_MOST_PARTS = 64
# Seconds in which a client has to take the reason why it is let go.
_CLOSING_SECONDS = 2.0


class BoundedHttp(H11Protocol):
    """Connections above the bound, and those that never ask for anything, are closed."""

    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: BaseTransport) -> None:
        """See asyncio.Protocol."""
        super().connection_made(transport)  # type: ignore[arg-type]
        if len(self.connections) > MOST_CONNECTIONS:
            self.transport.abort()
            return
        self._late = self.loop.call_later(REQUEST_SECONDS, self._give_up)

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.Protocol."""
        if self._late is not None:
            self._late.cancel()
        super().connection_lost(exc)

    def _give_up(self) -> None:
        # What was upgraded to a websocket belongs to another protocol now.
        if self.cycle is None and self in self.connections:
            self.transport.abort()


class BoundedWebSocket(WebSocketsSansIOProtocol):
    """A message of many parts ends the connection: empty parts count for nothing in its size.

    A connection that is over is broken off where the client does not take what was sent to it.
    """

    def on_task_complete(self, task: asyncio.Task[None]) -> None:
        """See WebSocketsSansIOProtocol."""
        super().on_task_complete(task)
        self.loop.call_later(_CLOSING_SECONDS, self.transport.abort)

    def keepalive_timeout(self) -> None:
        """See WebSocketsSansIOProtocol."""
        super().keepalive_timeout()
        self.loop.call_later(_CLOSING_SECONDS, self.transport.abort)

    def handle_cont(self, event: Any) -> None:
        """See WebSocketsSansIOProtocol."""
        if len(self.frames) >= _MOST_PARTS:
            self._fail(1009, f"a message of more than {_MOST_PARTS} parts")
            return
        super().handle_cont(event)

    def send_receive_event_to_app(self) -> None:
        """See WebSocketsSansIOProtocol, which would log text that is none."""
        try:
            if self.curr_msg_data_type == "text":
                b"".join(self.frames).decode()
        except UnicodeDecodeError:
            self._fail(1007, "text that is not UTF-8")
            return
        super().send_receive_event_to_app()

    def _fail(self, code: int, reason: str) -> None:
        self.conn.fail(code, reason)
        self.handle_parser_exception()
