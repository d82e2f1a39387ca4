"""Who has asked for what, in the server's thread: topics and their latest frames, shared by all clients."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from orderbook.monitor.follow_ring import FollowRings
from orderbook.monitor.mailbox import KEPT_ITEMS, Answer, Frame, Mailbox, Refused
from orderbook.monitor.requests import AnyRequest, Follow, Topic

# Different topics of all clients together, each of which the run's thread makes frames of.
MOST_TOPICS = 256


@dataclass(frozen=True, slots=True)
class Open:
    """Somebody asks for a topic."""

    topic: Topic


@dataclass(frozen=True, slots=True)
class Close:
    """Nobody asks for a topic any more."""

    topic: Topic


@dataclass(frozen=True, slots=True)
class Ask:
    """A client's request, which the run's thread answers."""

    client: int
    request: AnyRequest


@dataclass(frozen=True, slots=True)
class OpenFollow:
    """A client follows a view or SQL, whose name is `follow`; it is to have a snapshot."""

    follow: str
    client: int
    request: Follow


@dataclass(frozen=True, slots=True)
class CloseFollow:
    """Nobody has followed this for a while."""

    follow: str


Command = Open | Close | Ask | OpenFollow | CloseFollow


class Member(Protocol):
    """A client as the hub sees it."""

    number: int

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
        for name, new in frame.items.items():
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
    """Topics, continuous queries and clients. The server's thread owns it; `send` reaches the run's."""

    def __init__(self, mailbox: Mailbox, send: Callable[[Command], object]) -> None:
        self._mailbox, self.send = mailbox, send
        self._topics: dict[Topic, _TopicState] = {}
        self.members: dict[int, Member] = {}
        self.follows = FollowRings(self)

    def open(self, member: Member, topic: Topic) -> str | None:
        """Give a client the frames of a topic; why not, where that cannot be."""
        state = self._topics.get(topic)
        if state is None:
            if len(self._topics) >= MOST_TOPICS:
                return f"clients ask for {MOST_TOPICS} different topics already; ask for one of theirs"
            state = self._topics[topic] = _TopicState()
            self.send(Open(topic))
        state.members[member.number] = member
        if state.number:
            member.touched(topic)
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

    def message(self, topic: Topic, seen: int) -> tuple[int, bytes] | None:
        """The number of the latest frame and its text, as `_TopicState.message`; None where there is none."""
        state = self._topics.get(topic)
        if state is None or state.number <= seen:
            return None
        return state.number, state.message(seen)

    def deliver(self) -> None:
        """Hand on what the run's thread has given."""
        frames, letters = self._mailbox.take()
        for frame in frames:
            state = self._topics.get(frame.topic)
            if state is not None:
                state.take(frame)
                for member in state.members.values():
                    member.touched(frame.topic)
        for letter in letters:
            if isinstance(letter, Answer):
                if (asking := self.members.get(letter.client)) is not None:
                    asking.answered(letter)
            elif isinstance(letter, Refused):
                state = self._topics.pop(letter.topic, None)
                for member in [] if state is None else list(state.members.values()):
                    member.dropped(letter.topic, letter.error)
            else:
                self.follows.deliver(letter)
