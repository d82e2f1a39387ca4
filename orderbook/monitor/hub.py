"""Who has asked for what, in the server: topics and their latest frames, shared by all clients."""

import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol

from orderbook.monitor.follow_ring import FollowRings
from orderbook.monitor.letters import (
    KEPT_ITEMS,
    Alive,
    Answer,
    Changes,
    Close,
    Command,
    FollowEnded,
    Frame,
    Leave,
    Letter,
    Open,
    Refused,
    Snapshot,
    trades_encoded,
)
from orderbook.monitor.requests import Topic

# Different topics of all clients together, each of which the run makes frames of.
MOST_TOPICS = 256
# Seconds of silence after which the run may hang, and its last frames are told to nobody as if they were new.
SILENT_SECONDS = 1.5


class Member(Protocol):
    """A client as the hub sees it."""

    number: int
    # Whether the run has had a request of it.
    has_asked: bool

    def touched(self, topic: Topic) -> None:
        """A topic has a new frame."""

    def enqueue(self, message: bytes) -> None:
        """Something that must arrive, in this order."""

    def dropped(self, topic: Topic, error: str) -> None:
        """A topic that there is not any more."""

    def ended(self, number: int, error: str) -> None:
        """A continuous query that there is not any more, by the id of its subscription."""

    def answered(self, answer: Answer) -> None:
        """The answer to a request."""


@dataclass(slots=True)
class _TopicState:
    """The latest frame of a topic, numbered from 1, and items by the number of the frame that had them."""

    members: dict[int, Member] = field(default_factory=dict)
    body: bytes = b""
    number: int = 0
    items: dict[str, deque[tuple[int, bytes]]] = field(default_factory=dict)
    composed: dict[int, bytes] = field(default_factory=dict)

    def take(self, frame: Frame) -> None:
        self.number += 1
        self.body = frame.body
        self.composed.clear()
        items = dict(frame.items)
        if frame.trades is not None:
            items["trades"] = trades_encoded(frame.trades)
        for name, new in items.items():
            kept = self.items.setdefault(name, deque(maxlen=KEPT_ITEMS))
            kept.extend((self.number, item) for item in new)

    def message(self, seen: int) -> bytes:
        """The frame, without its first brace, for a client that has had the frame `seen`, 0 for none."""
        if (made := self.composed.get(seen)) is None:
            parts = [self.body]
            for name, kept in self.items.items():
                new = b",".join(item for number, item in kept if number > seen)
                parts.append(b',"%s":[%s]' % (name.encode(), new))
            made = self.composed[seen] = b"".join(parts) + b"}"
        return made


class Hub:
    """Topics, continuous queries and clients. `send` reaches the run; `room` waits until it takes more."""

    def __init__(self, send: Callable[[Command], object], room: Callable[[], Awaitable[object]]) -> None:
        self.send, self.room = send, room
        self._topics: dict[Topic, _TopicState] = {}
        self.members: dict[int, Member] = {}
        self.follows = FollowRings(self)
        self._heard = time.monotonic()
        # Who is to have the latest frame once the run is heard of.
        self._late: list[tuple[Member, Topic]] = []

    @property
    def silence(self) -> float:
        """Seconds since anything came from the run."""
        return time.monotonic() - self._heard

    def open(self, member: Member, topic: Topic) -> str | None:
        """Give a client the frames of a topic; why not, where that cannot be."""
        state = self._topics.get(topic)
        if state is None:
            if len(self._topics) >= MOST_TOPICS:
                return f"clients ask for {MOST_TOPICS} different topics already; ask for one of theirs"
            state = self._topics[topic] = _TopicState()
            self.send(Open(topic))
        state.members[member.number] = member
        if state.number and self.silence < SILENT_SECONDS:
            member.touched(topic)
        elif state.number:
            self._late.append((member, topic))
        return None

    def close(self, member: Member, topic: Topic) -> None:
        """A client asks for a topic no more."""
        state = self._topics.get(topic)
        if state is None:
            return
        state.members.pop(member.number, None)
        if not state.members:
            del self._topics[topic]
            self.send(Close(topic))

    def leave(self, member: Member) -> None:
        """A client has gone."""
        self.members.pop(member.number, None)
        for topic in [t for t, state in self._topics.items() if member.number in state.members]:
            self.close(member, topic)
        self.follows.leave(member)
        if member.has_asked:
            self.send(Leave(member.number))

    def message(self, topic: Topic, seen: int) -> tuple[int, bytes] | None:
        """The number of the latest frame and its text, as `_TopicState.message`; None where there is none."""
        state = self._topics.get(topic)
        if state is None or state.number <= seen:
            return None
        return state.number, state.message(seen)

    def deliver(self, message: Frame | Letter) -> None:
        """Hand on what the run has given."""
        self._heard = time.monotonic()
        late, self._late = self._late, []
        for member, topic in late:
            member.touched(topic)
        match message:
            case Frame():
                if (state := self._topics.get(message.topic)) is not None:
                    state.take(message)
                    for member in state.members.values():
                        member.touched(message.topic)
            case Answer():
                if (asking := self.members.get(message.client)) is not None:
                    asking.answered(message)
            case Refused():
                gone = self._topics.pop(message.topic, None)
                for member in [] if gone is None else list(gone.members.values()):
                    member.dropped(message.topic, message.error)
            case Snapshot() | Changes() | FollowEnded():
                self.follows.deliver(message)
            case Alive():
                pass
