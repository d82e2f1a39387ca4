"""Who has asked for what, in the server: topics and their latest frames, shared by all clients.

So are continuous queries: of each the last changes are kept, from which clients resume.
"""

import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol

from orderbook.monitor.history import History
from orderbook.monitor.messages import (
    KEPT_ITEMS,
    Alive,
    Answer,
    Changes,
    Close,
    CloseFollow,
    Command,
    Follow,
    FollowEnded,
    FollowSnapshot,
    Leave,
    Open,
    OpenFollow,
    Refused,
    RunMessage,
    Topic,
    TopicFrame,
    encoded,
    trades_encoded,
    version_of,
    wire_version,
)

Version = tuple[int, int, int]

# What is kept of changes for clients that come back, bytes and messages, and for how long after the last.
RING_BYTES = 8 << 20
RING_MESSAGES = 20_000
GRACE_SECONDS = 60.0
# Different continuous queries of all clients together.
MOST_FOLLOWS = 64
_PROGRESS_SECONDS = 1.0


@dataclass(slots=True)
class _Follower:
    """One client's continuous query; `live` once it has its snapshot or has resumed."""

    member: "Member"
    id: int
    progress: bool
    live: bool = False
    reset: bool = False
    told: float = 0.0


@dataclass(slots=True)
class _Ring:
    """The changes after version `since`, up to `last`; both None before the first snapshot."""

    followers: dict[tuple[int, int], _Follower] = field(default_factory=dict)
    changes: deque[Changes] = field(default_factory=deque)
    size: int = 0
    since: Version | None = None
    last: Version | None = None
    left: float = 0.0

    def add(self, changes: Changes) -> None:
        self.last = changes.version
        if changes.body:
            self.changes.append(changes)
            self.size += len(changes.body)
        while self.size > RING_BYTES or len(self.changes) > RING_MESSAGES:
            oldest = self.changes.popleft()
            self.size -= len(oldest.body)
            self.since = oldest.version

    def reaches(self, version: Version) -> bool:
        """Whether every change after this version is here."""
        return self.since is not None and self.last is not None and self.since <= version <= self.last


class FollowRings:
    """All continuous queries, shared by the clients that ask for the same."""

    def __init__(self, hub: "Hub") -> None:
        self._hub = hub
        self._rings: dict[str, _Ring] = {}

    def open(self, member: "Member", request: Follow, name: str) -> str | None:
        """Give a client a continuous query; why not, where that cannot be."""
        if name not in self._rings and len(self._rings) >= MOST_FOLLOWS:
            self.expire(all_unused=True)
            if len(self._rings) >= MOST_FOLLOWS:
                return f"clients follow {MOST_FOLLOWS} different queries already; follow one of theirs"
        ring = self._rings.setdefault(name, _Ring())
        follower = _Follower(member, request.id, request.progress)
        ring.followers[member.number, request.id] = follower
        after = None if request.after is None else version_of(request.after)
        if after is not None and ring.reaches(after):
            self._resume(ring, follower, after)
            return None
        follower.reset = after is not None
        self._hub.send(OpenFollow(name, member.number, request))
        return None

    def close(self, member: "Member", number: int) -> None:
        """End a client's continuous query."""
        for ring in self._rings.values():
            if ring.followers.pop((member.number, number), None) is not None:
                ring.left = time.monotonic()

    def leave(self, member: "Member") -> None:
        """A client has gone."""
        for ring in self._rings.values():
            for key in [key for key in ring.followers if key[0] == member.number]:
                del ring.followers[key]
                ring.left = time.monotonic()

    def expire(self, all_unused: bool = False) -> None:
        """End what nobody has followed for GRACE_SECONDS."""
        now = time.monotonic()
        for name, ring in list(self._rings.items()):
            if not ring.followers and (all_unused or now - ring.left > GRACE_SECONDS):
                del self._rings[name]
                self._hub.send(CloseFollow(name))

    def deliver(self, message: FollowSnapshot | Changes | FollowEnded) -> None:
        """Hand on what the run has given, in its order."""
        ring = self._rings.get(message.follow)
        if ring is None:
            return
        if isinstance(message, FollowEnded):
            del self._rings[message.follow]
            for follower in ring.followers.values():
                follower.member.ended(follower.id, message.error)
            return
        if isinstance(message, FollowSnapshot):
            self._snapshot(ring, message)
            return
        ring.add(message)
        for follower in ring.followers.values():
            if follower.live:
                self._tell(follower, message)

    def _snapshot(self, ring: _Ring, message: FollowSnapshot) -> None:
        ring.since = message.version if ring.since is None else ring.since
        ring.last = message.version if ring.last is None else max(ring.last, message.version)
        follower = ring.followers.get((message.client, message.id))
        if follower is not None and not follower.live:
            follower.live = True
            reset = b',"reset":true' if follower.reset else b""
            follower.member.enqueue(b'{"id":%d,%s%s}' % (follower.id, message.body, reset))

    def _resume(self, ring: _Ring, follower: _Follower, after: Version) -> None:
        follower.live = True
        follower.member.enqueue(
            encoded({"id": follower.id, "type": "resumed", "version": wire_version(after)})
        )
        for changes in ring.changes:
            if changes.version > after:
                self._tell(follower, changes)

    def _tell(self, follower: _Follower, changes: Changes) -> None:
        if changes.body:
            follower.member.enqueue(b'{"id":%d,%s}' % (follower.id, changes.body))
        now = time.monotonic()
        if follower.progress and not changes.body and now - follower.told >= _PROGRESS_SECONDS:
            follower.told = now
            version = wire_version(changes.version)
            follower.member.enqueue(encoded({"id": follower.id, "type": "progress", "version": version}))


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

    def take(self, frame: TopicFrame) -> None:
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
    """Topics, continuous queries, clients, and the past in so many bytes.

    `send` reaches the run; `room` waits until it takes more.
    """

    def __init__(
        self, send: Callable[[Command], object], room: Callable[[], Awaitable[object]], history: int = 0
    ) -> None:
        self.send, self.room, self.history = send, room, History(history)
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

    def deliver(self, message: TopicFrame | RunMessage) -> None:
        """Hand on what the run has given."""
        self._heard = time.monotonic()
        late, self._late = self._late, []
        for member, topic in late:
            member.touched(topic)
        match message:
            case TopicFrame():
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
            case FollowSnapshot() | Changes() | FollowEnded():
                self.follows.deliver(message)
            case Alive():
                pass
            case _:
                self.history.take(message)
