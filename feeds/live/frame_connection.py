"""A websocket connection that hands over together all messages that one read of the socket brought.

Messages in one unmasked frame, which nearly all are, are cut out of what was read by compiled code; control
frames, fragments and whatever is wrong go through the protocol object of `websockets`, which answers pings,
closes, and refuses what is too big. Source: RFC 6455, section 5.2, "Base Framing Protocol".
"""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from websockets.asyncio.client import ClientConnection
from websockets.frames import Frame, Opcode
from websockets.protocol import State

from orderbook.core.jit import called_with
from orderbook.feeds.wire.bytes_memory import byte
from orderbook.market.block_memory import store

# First bytes of a message in one frame, FIN set.
_TEXT, _BINARY = _WHOLE = (0x81, 0x82)
# Second bytes that say that bytes of length follow; above them the frame is masked.
_SHORT, _LONG = 126, 127
_LENGTH_BYTES = {_SHORT: 2, _LONG: 8}
# The beginning of a frame of at most so many bytes is kept until the rest of it comes.
_KEPT = 1 << 16
_HEAD_END = b"\r\n\r\n"


# Where bytes objects begin: CPython, Include/cpython/bytesobject.h.
_BYTES_AT = bytes.__basicsize__ - 1
# Messages that are cut out in one call.
_MOST = 1 << 10


@called_with("oiiii")
def _whole_messages(data: int, start: int, size: int, largest: int, places: int) -> int:
    """Cuts whole messages, in one unmasked frame and of at most `largest` bytes, out of data[start:size].

    Where each begins and ends goes to int64[2 _MOST]; how many there were before something else, or _MOST.
    """
    at, found = data + _BYTES_AT, 0
    while size - start >= 2 and found < _MOST:
        opcode, length, first = byte(at + start), byte(at + start + 1), start + 2
        if (opcode != _TEXT and opcode != _BINARY) or length > _LONG:
            return found
        if length >= _SHORT:
            more = 2 if length == _SHORT else 8
            if first + more > size:
                return found
            length = 0
            for place in range(more):
                # A length beyond 2^40 stays beyond what is taken.
                length = min(length, 1 << 40) << 8 | byte(at + first + place)
            first += more
        if length > largest or length > size - first:
            return found
        start = first + length
        store(places + 16 * found, first)
        store(places + 16 * found + 8, start)
        found += 1
    return found


class FrameConnection(ClientConnection):
    """For `websockets.connect(create_connection=…)` without extensions; `deliver` replaces `recv`.

    `clock` tells when something was read, ns since 1970 UTC.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.clock: Callable[[], int] = time.time_ns
        self._messages: list[bytes] = []
        self._parts: list[bytes] = []
        self._put: Callable[[list[bytes], int], object] | None = None
        self._arrived = asyncio.Event()
        # The end of what has come of the answer to the handshake; None once that is whole.
        self._head: bytes | None = b""
        places = np.empty(2 * _MOST, np.int64)
        self._places, self._places_at = memoryview(places), int(places.ctypes.data)  # type: ignore[arg-type]
        # The beginning of a frame, and how many bytes of another the protocol object still has to get.
        self._rest = b""
        self._owed = 0

    def deliver(self, put: Callable[[list[bytes], int], object]) -> None:
        """Call `put` with the messages that have come, and from now on with those of each read of the socket.

        Its second argument is when they were read, ns since 1970 UTC.
        """
        self._put = put
        self._hand_over(self.clock())

    async def delivered(self) -> None:
        """Wait until `put` has been called again; raises ConnectionClosed when the connection has ended."""
        await self._arrived.wait()
        if self.connection_lost_waiter.done():
            raise self.close_exc
        self._arrived.clear()

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        read_at = self.clock()
        if self._rest:
            data, self._rest = self._rest + data, b""
        while data:
            if self._head is not None:
                data = self._answer(data)
            elif self.protocol.state is not State.OPEN:
                super().data_received(data)
                break
            elif self._owed:
                part, data = data[: self._owed], data[self._owed :]
                self._owed -= len(part)
                super().data_received(part)
            else:
                data = self._cut(data)
        self._hand_over(read_at)

    def process_event(self, event: Any) -> None:
        """Take what the protocol object has read."""
        if isinstance(event, Frame) and event.opcode in (Opcode.TEXT, Opcode.BINARY, Opcode.CONT):
            self._parts.append(bytes(event.data))
            if event.fin:
                self._messages.append(b"".join(self._parts))
                self._parts.clear()
        else:
            super().process_event(event)

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.Protocol."""
        super().connection_lost(exc)
        self._arrived.set()

    def _hand_over(self, read_at: int) -> None:
        if self._messages and self._put is not None:
            messages, self._messages = self._messages, []
            self._put(messages, read_at)
            self._arrived.set()

    def _answer(self, data: bytes) -> bytes:
        """Hand on the answer to the handshake; what comes after it."""
        assert self._head is not None
        seen = self._head + data
        place = seen.find(_HEAD_END)
        end = len(data) if place < 0 else place + len(_HEAD_END) - len(self._head)
        self._head = seen[1 - len(_HEAD_END) :] if place < 0 else None
        super().data_received(data[:end])
        return data[end:]

    def _cut(self, data: bytes) -> bytes:
        """Take the messages at the beginning; what begins with another frame, owed to the protocol object."""
        size, largest = len(data), self.protocol.max_message_size or len(data)
        start, plain = 0, True
        # A message in several frames has nothing but control frames between them.
        while plain and self.protocol.current_size is None:
            found = _whole_messages(data, start, size, largest, self._places_at)
            ends = self._places[: 2 * found].tolist()
            self._messages += [data[first:end] for first, end in zip(ends[::2], ends[1::2], strict=True)]
            start = ends[-1] if ends else start
            plain = found == _MOST
        if size - start >= 2:
            length, first = data[start + 1], start + 2
            if length >= _SHORT:
                first += _LENGTH_BYTES.get(length, 0)
                length = int.from_bytes(data[start + 2 : first], "big")
            end = first + length
            plain = data[start] in _WHOLE and self.protocol.current_size is None
            plain = plain and length <= largest and data[start + 1] <= _LONG
            if first <= size and not (plain and end - start <= _KEPT):
                self._owed = end - start
                return data[start:]
        self._rest = data[start:]
        return b""
