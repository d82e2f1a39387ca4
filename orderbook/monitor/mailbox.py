"""The run's end of the line to the monitor's server: the latest frame of each topic, and bounded letters."""

import asyncio
import logging
import socket
from collections import deque
from collections.abc import Sequence

from orderbook.monitor.letters import LENGTH, Command, Frame, Letter, packed, read_command
from orderbook.monitor.requests import Topic

# Bytes of letters that may wait for the server, and that are handed to the system at a time.
MOST_BYTES = 32 << 20
_TOGETHER = 64 << 10

_logger = logging.getLogger("orderbook.monitor")


class Mailbox:
    """Never makes the run wait and never holds more than MOST_BYTES of letters; one event loop owns it.

    Where the server is that far behind, `post` refuses. `lost`: the server has gone, and nothing is sent.
    """

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self.lost = False
        self._connection = connection
        self._frames: dict[Topic, Frame] = {}
        self._letters: deque[bytes] = deque()
        self._bytes = 0
        self._writing = memoryview(b"")
        self._read = bytearray()
        self._watched: asyncio.AbstractEventLoop | None = None

    def put(self, frame: Frame) -> None:
        """Replace the frame of a topic."""
        earlier = self._frames.get(frame.topic)
        self._frames[frame.topic] = frame if earlier is None else frame.after(earlier)

    def post(self, letter: Letter) -> bool:
        """Append a letter; False where there is no room for it."""
        data = packed(letter)
        if self._bytes + len(data) > MOST_BYTES:
            return False
        self._letters.append(data)
        self._bytes += len(data)
        return True

    def flush(self) -> None:
        """Send what the server takes now, and the rest as soon as it takes more."""
        try:
            while self._writing or self._gather():
                self._writing = self._writing[self._connection.send(self._writing) :]
        except BlockingIOError:
            self._watch()
            return
        except OSError:
            self._lose()
        self._unwatch()

    def receive(self) -> Sequence[Command]:
        """What the server has sent meanwhile, at most some dozens of KB."""
        if self.lost:
            return ()
        try:
            data = self._connection.recv(_TOGETHER)
        except BlockingIOError:
            return ()
        except OSError:
            data = b""
        if not data:
            self._lose()
        self._read += data
        found, at = [], 0
        while len(self._read) >= at + LENGTH:
            end = at + LENGTH + int.from_bytes(self._read[at : at + LENGTH], "big")
            if len(self._read) < end:
                break
            found.append(read_command(bytes(self._read[at + LENGTH : end])))
            at = end
        del self._read[:at]
        return found

    def close(self) -> None:
        """The run has ended, which the server takes from that."""
        self._unwatch()
        self.lost = True
        self._connection.close()

    def _gather(self) -> bool:
        """Take what waits, frames first, until it is worth a call of the system."""
        if self.lost:
            self._frames.clear()
            self._letters.clear()
            self._bytes = 0
        parts = [packed(frame) for frame in self._frames.values()]
        self._frames.clear()
        size = sum(map(len, parts))
        while self._letters and size < _TOGETHER:
            letter = self._letters.popleft()
            self._bytes -= len(letter)
            size += len(letter)
            parts.append(letter)
        self._writing = memoryview(b"".join(parts))
        return bool(parts)

    def _watch(self) -> None:
        if self._watched is None:
            self._watched = asyncio.get_running_loop()
            self._watched.add_writer(self._connection, self.flush)

    def _unwatch(self) -> None:
        if self._watched is not None:
            self._watched.remove_writer(self._connection)
            self._watched = None

    def _lose(self) -> None:
        _logger.error("the monitor's server has ended; the run goes on without it")
        self._writing = memoryview(b"")
        self.close()
