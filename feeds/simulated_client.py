"""One client of the simulated exchange: what it asked for and what waits to be sent to it."""

from collections.abc import Iterator

import msgspec
from websockets.asyncio.server import ServerConnection
from websockets.protocol import State

CHANNELS = ("full", "heartbeat")
# Bytes that may wait for one client before it is dropped.
CLIENT_BUFFER = 16 * 2**20

_encode = msgspec.json.Encoder().encode


class SubscriptionRequest(msgspec.Struct):
    """A client's message; a channel is a name, or an object with its own products."""

    type: str
    product_ids: list[str] = []
    channels: list[str | dict[str, str | list[str]]] = []

    def wanted(self) -> Iterator[tuple[str, str]]:
        """(channel, product) pairs."""
        for channel in self.channels:
            name = channel if isinstance(channel, str) else str(channel.get("name"))
            own = None if isinstance(channel, str) else channel.get("product_ids")
            for product in own if isinstance(own, list) else self.product_ids:
                yield name, product


class Client:
    """A connection, what it subscribed to, and how much waits to be sent to it."""

    def __init__(self, connection: ServerConnection) -> None:
        self.connection = connection
        self.products: dict[str, set[str]] = {channel: set() for channel in CHANNELS}
        self.stalled = False

    def write(self, frames: list[bytes]) -> bool:
        """Send text frames in one write; False where the client's buffer is full."""
        connection = self.connection
        if not frames or self.stalled or connection.state is not State.OPEN:
            return True
        connection.transport.write(b"".join(frames))
        return self.waiting <= CLIENT_BUFFER

    @property
    def waiting(self) -> int:
        """Bytes that wait to be sent."""
        return self.connection.transport.get_write_buffer_size()

    def subscriptions(self) -> bytes:
        """The acknowledgement that names everything it is subscribed to now."""
        channels = [
            {"name": name, "product_ids": sorted(ids)} for name, ids in self.products.items() if ids
        ]
        return _encode({"type": "subscriptions", "channels": channels})


def text_frame(payload: bytes) -> bytes:
    """An unmasked, unfragmented websocket text frame (RFC 6455, section 5.2)."""
    length = len(payload)
    if length < 126:
        return bytes((0x81, length)) + payload
    if length < 65536:
        return b"\x81\x7e" + length.to_bytes(2, "big") + payload
    return b"\x81\x7f" + length.to_bytes(8, "big") + payload
