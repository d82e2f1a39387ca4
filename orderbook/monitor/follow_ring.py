"""Continuous queries in the server: the last changes of each, from which clients resume."""

import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from orderbook.monitor.letters import Changes, CloseFollow, FollowEnded, OpenFollow, Snapshot, encoded
from orderbook.monitor.requests import Follow, version_of, wire_version

if TYPE_CHECKING:
    from orderbook.monitor.hub import Hub, Member

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

    def deliver(self, letter: Snapshot | Changes | FollowEnded) -> None:
        """Hand on what the run has given, in its order."""
        ring = self._rings.get(letter.follow)
        if ring is None:
            return
        if isinstance(letter, FollowEnded):
            del self._rings[letter.follow]
            for follower in ring.followers.values():
                follower.member.ended(follower.id, letter.error)
            return
        if isinstance(letter, Snapshot):
            self._snapshot(ring, letter)
            return
        ring.add(letter)
        for follower in ring.followers.values():
            if follower.live:
                self._tell(follower, letter)

    def _snapshot(self, ring: _Ring, letter: Snapshot) -> None:
        ring.since = letter.version if ring.since is None else ring.since
        ring.last = letter.version if ring.last is None else max(ring.last, letter.version)
        follower = ring.followers.get((letter.client, letter.id))
        if follower is not None and not follower.live:
            follower.live = True
            reset = b',"reset":true' if follower.reset else b""
            follower.member.enqueue(b'{"id":%d,%s%s}' % (follower.id, letter.body, reset))

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
