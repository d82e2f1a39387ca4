"""From the run's thread to the server's: the latest frame of each topic, and a bounded list of letters."""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock

import msgspec

from orderbook.monitor.requests import Topic

# Bytes of ordered letters that may wait for the server's thread.
MOST_BYTES = 32 << 20
# Items of each kind that are kept for clients which have not had them: trades, fills, notes.
KEPT_ITEMS = 500

_encode = msgspec.json.Encoder(decimal_format="string").encode


def encoded(message: object) -> bytes:
    """JSON text of a message."""
    return _encode(message)


def body_of(message: Mapping[str, object]) -> bytes:
    """JSON text of an object without its braces, to which a client's `id` is added."""
    return _encode(message)[1:-1]


@dataclass(frozen=True, slots=True)
class Frame:
    """A topic as it is now: `body` as of `body_of`, and what has happened since the frame before, encoded."""

    topic: Topic
    body: bytes
    items: Mapping[str, Sequence[bytes]] = field(default_factory=dict)

    def after(self, earlier: "Frame") -> "Frame":
        """This frame with what the earlier one, which nobody has taken, had to tell."""
        items = {n: [*earlier.items.get(n, ()), *new][-KEPT_ITEMS:] for n, new in self.items.items()}
        return Frame(self.topic, self.body, items)


@dataclass(frozen=True, slots=True)
class Refused:
    """A topic that there is not, or not any more."""

    topic: Topic
    error: str


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a client's request."""

    client: int
    id: int
    body: bytes


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All rows of a followed view, for one client."""

    follow: str
    client: int
    id: int
    version: tuple[int, int, int]
    body: bytes


@dataclass(frozen=True, slots=True)
class Changes:
    """What has changed in a followed view up to a version; `body` empty: nothing."""

    follow: str
    version: tuple[int, int, int]
    body: bytes


@dataclass(frozen=True, slots=True)
class FollowEnded:
    """A continuous query that there is not, or not any more."""

    follow: str
    error: str


Letter = Refused | Answer | Snapshot | Changes | FollowEnded


class Mailbox:
    """Never makes the run's thread wait and never holds more than MOST_BYTES.

    Where the server's thread is that far behind, `post` refuses.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._frames: dict[Topic, Frame] = {}
        self._letters: deque[Letter] = deque()
        self._bytes = 0
        self._wake: Callable[[], object] = lambda: None
        self._woken = False

    def connect(self, loop: asyncio.AbstractEventLoop, wake: Callable[[], None]) -> None:
        """`wake` is called in the server's loop when something has come."""
        self._wake = lambda: loop.call_soon_threadsafe(wake)

    def disconnect(self) -> None:
        """Nobody takes anything any more."""
        with self._lock:
            self._wake = lambda: None

    def put(self, frame: Frame) -> None:
        """Replace the frame of a topic."""
        with self._lock:
            earlier = self._frames.get(frame.topic)
            self._frames[frame.topic] = frame if earlier is None else frame.after(earlier)

    def post(self, letter: Letter) -> bool:
        """Append a letter; False where there is no room for it."""
        size = _size(letter)
        with self._lock:
            if self._bytes + size > MOST_BYTES:
                return False
            self._letters.append(letter)
            self._bytes += size
        return True

    def flush(self) -> None:
        """Wake the server's thread, once, where something waits for it."""
        with self._lock:
            if self._woken or not (self._frames or self._letters):
                return
            self._woken = True
            wake = self._wake
        try:
            wake()
        except RuntimeError:
            # The server's loop has ended.
            self.disconnect()

    def take(self) -> tuple[list[Frame], list[Letter]]:
        """Everything that waits."""
        with self._lock:
            frames, letters = list(self._frames.values()), list(self._letters)
            self._frames.clear()
            self._letters.clear()
            self._bytes = 0
            self._woken = False
        return frames, letters


def _size(letter: Letter) -> int:
    return 200 + (len(letter.error) if isinstance(letter, Refused | FollowEnded) else len(letter.body))
