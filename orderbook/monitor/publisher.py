"""The run's side of the monitor: frames of what is asked for, made between two items of the run.

What the monitor spends of the run's time is measured and has a share of it; what is left is the run's. At the
run's end of the line to the server wait the latest frame of each topic and a bounded number of bytes of other
messages; the run never waits.
"""

import asyncio
import logging
import socket
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol

from orderbook.core.errors import OrderbookError
from orderbook.monitor.messages import (
    LENGTH,
    Alive,
    Close,
    Command,
    Logged,
    Open,
    Refused,
    RunMessage,
    Topic,
    TopicFrame,
    packed,
    read_command,
)

# Of the CPU time that the run uses, and of the time in which it waits for something to do.
BUSY_SHARE = 0.02
IDLE_SHARE = 0.5
# Seconds of work that may be saved up, unless said otherwise, and that may be owed.
_SAVED, _OWED = 0.02, 2.0


class Share:
    """A budget of CPU seconds that fills with time and is spent by what the monitor does.

    `spent` is all of them so far. waited: seconds for which the run has waited for events so far. clock and
    own are those of time and of the calling thread's CPU, in seconds. busy, idle: of the CPU time that the
    run uses, and of the time in which it waits. saved: seconds of work that may be saved up.
    """

    def __init__(
        self,
        waited: Callable[[], float],
        clock: Callable[[], float] = time.perf_counter,
        own: Callable[[], float] = time.thread_time,
        *,
        busy: float = BUSY_SHARE,
        idle: float = IDLE_SHARE,
        saved: float = _SAVED,
    ) -> None:
        self._waited, self._clock, self._own = waited, clock, own
        self._busy, self._idle, self._saved = busy, idle, saved
        self._credit = saved
        # CPU seconds so far, and until they were last counted.
        self.spent = self._counted = 0.0
        self._seen = clock(), own(), waited()

    @property
    def credit(self) -> float:
        """Seconds that may be spent; below 0 they are owed."""
        return self._credit

    @property
    def left(self) -> bool:
        """Whether there is something to spend."""
        return self._credit > 0

    def fill(self) -> None:
        """Count the time that has gone by, in the run's thread."""
        now, own, waited = self._clock(), self._own(), self._waited()
        elapsed, used = now - self._seen[0], own - self._seen[1]
        # Where others have the processor, a run that waits has less time left than it seems.
        idle = max(0.0, min(waited - self._seen[2], elapsed - used))
        self._credit += self._busy * max(0.0, used - self.spent + self._counted) + self._idle * idle
        self._credit = min(self._saved, max(self._credit, -_OWED))
        self._seen, self._counted = (now, own, waited), self.spent

    @contextmanager
    def spending(self) -> Iterator[None]:
        """What is done here is spent."""
        start = self._own()
        try:
            yield
        finally:
            seconds = self._own() - start
            self._credit -= seconds
            self.spent += seconds


# Bytes of messages that may wait for the server, and that are handed to the system at a time.
MOST_BYTES = 32 << 20
_TOGETHER = 64 << 10

_logger = logging.getLogger("orderbook.monitor")


class Mailbox:
    """Never makes the run wait and never holds more than MOST_BYTES of messages; one event loop owns it.

    Where the server is that far behind, `post` refuses. `lost`: the server has gone, and nothing is sent.
    """

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self.lost = False
        self._connection = connection
        self._frames: dict[Topic, TopicFrame] = {}
        self._messages: deque[bytes] = deque()
        self._bytes = 0
        self._writing = memoryview(b"")
        self._read = bytearray()
        self._watched: asyncio.AbstractEventLoop | None = None

    def put(self, frame: TopicFrame) -> None:
        """Replace the frame of a topic."""
        earlier = self._frames.get(frame.topic)
        self._frames[frame.topic] = frame if earlier is None else frame.after(earlier)

    def post(self, message: RunMessage) -> bool:
        """Append a message; False where there is no room for it."""
        data = packed(message)
        if self._bytes + len(data) > MOST_BYTES:
            return False
        self._messages.append(data)
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
            self._messages.clear()
            self._bytes = 0
        parts = [packed(frame) for frame in self._frames.values()]
        self._frames.clear()
        size = sum(map(len, parts))
        while self._messages and size < _TOGETHER:
            message = self._messages.popleft()
            self._bytes -= len(message)
            size += len(message)
            parts.append(message)
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


# Seconds between two frames of a topic.
FRAME_SECONDS = 0.05
# Seconds between two signs of life.
_ALIVE_SECONDS = 0.5


class TopicSource(Protocol):
    """What makes the frames of one topic."""

    def frame(self) -> TopicFrame | None:
        """The topic now; None where nothing is new. Raises OrderbookError where it is gone."""

    def close(self) -> None:
        """Nobody asks any more."""


Failed = Callable[[OrderbookError], object]


class Publisher:
    """Serves commands and topics in the run's event loop, within its share of the time.

    sources: for every kind of topic what opens one; it raises OrderbookError for a topic that there is not.
    perform: does what clients ask besides topics.
    """

    def __init__(
        self,
        mailbox: Mailbox,
        sources: Mapping[str, Callable[[Topic], TopicSource]],
        perform: Callable[[Command], object],
        share: Share,
    ) -> None:
        self._mailbox, self._sources, self._perform = mailbox, sources, perform
        self.share = share
        self._commands: deque[Command] = deque()
        # In the order in which their turn comes.
        self._turns: dict[Hashable, tuple[TopicSource, Failed]] = {}
        # Those of which nobody has had a frame yet.
        self._opened: dict[Hashable, None] = {}
        self._told_at = 0.0

    async def publish(self) -> None:
        """Serve until cancelled."""
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            due = max(due + FRAME_SECONDS, loop.time())
            await asyncio.sleep(due - loop.time())
            try:
                self.step()
            except Exception:
                # A defect here must not end the run.
                _logger.exception("the monitor could not make its frames")
                await asyncio.sleep(1.0)

    def step(self) -> None:
        """Serve what fits into the share."""
        self.share.fill()
        if self._mailbox.lost:
            return
        with self.share.spending():
            self._exchange()
        turns = deque(self._turns)
        # By turns, so that whoever asks for ever more does not keep the frames of others waiting. For the
        # first frame of what was opened somebody waits; another one of the rest has time.
        while (turns or self._commands or self._opened) and self.share.left:
            with self.share.spending():
                if self._opened and not self._commands:
                    self._turn(next(iter(self._opened)))
                if turns:
                    self._turn(turns.popleft())
                if self._commands:
                    self._serve(self._commands.popleft())
        with self.share.spending():
            self._mailbox.flush()

    def add(self, key: Hashable, source: TopicSource, failed: Failed) -> None:
        """Give a source its turns; `failed` is told what ends it."""
        self.remove(key)
        self._turns[key] = source, failed

    def remove(self, key: Hashable) -> None:
        """A source has no turns any more."""
        self._opened.pop(key, None)
        if (held := self._turns.pop(key, None)) is not None:
            held[0].close()

    def close(self) -> None:
        """Forget everything."""
        for key in list(self._turns):
            self.remove(key)

    def _exchange(self) -> None:
        """Say that the run goes on, and take commands; while some wait, others do in the server."""
        if (now := time.monotonic()) - self._told_at >= _ALIVE_SECONDS:
            self._told_at = now
            self._mailbox.post(Alive())
        if not self._commands:
            self._commands.extend(self._mailbox.receive())

    def _serve(self, command: Command) -> None:
        match command:
            case Logged():
                _logger.log(command.level, "%s", command.text)
            case Open():
                self._open(command.topic)
            case Close():
                self.remove(command.topic)
            case _:
                self._perform(command)

    def _open(self, topic: Topic) -> None:
        def refused(error: OrderbookError) -> None:
            self._mailbox.post(Refused(topic, str(error)))

        try:
            self.add(topic, self._sources[topic.kind](topic), refused)
            self._opened[topic] = None
        except OrderbookError as error:
            refused(error)

    def _turn(self, key: Hashable) -> None:
        """One source's turn; its next comes after all others'."""
        self._opened.pop(key, None)
        held = self._turns.pop(key, None)
        if held is None:
            return
        self._turns[key] = held
        source, failed = held
        try:
            frame = source.frame()
        except OrderbookError as error:
            self.remove(key)
            failed(error)
            return
        if frame is not None:
            self._mailbox.put(frame)
