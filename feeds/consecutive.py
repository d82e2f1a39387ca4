"""The rule that joins a snapshot to a stream of consecutively numbered messages.

Hold messages from the moment of subscribing, get a snapshot, drop what it already contains, apply the
rest; from then on every number must be the previous one plus one. Source: Coinbase Exchange
documentation, "Full Channel".
"""

from collections import deque
from collections.abc import Iterable
from enum import Enum
from typing import Generic, TypeVar

Message = TypeVar("Message")
MAXIMUM_HELD = 100_000


class Arrival(Enum):
    """What to do with a message."""

    APPLY = "apply"        # it is the next one of a book that is whole
    HELD = "held"          # kept until a snapshot comes
    CONTAINED = "contained"  # the snapshot already contains it
    LATE = "late"          # its number was passed: a repeat, or out of order; not kept
    GAP = "gap"            # numbers are missing before it; kept, and a new snapshot is needed


class ConsecutiveSequence(Generic[Message]):
    """One product's place in its sequence.

    The held messages are always consecutive and end at `last`, so a snapshot fits if its number is at
    least `last` less their count. At most MAXIMUM_HELD are kept, the newest.
    """

    __slots__ = ("_contained", "_held", "last", "synchronised")

    def __init__(self) -> None:
        self._held: deque[Message] = deque(maxlen=MAXIMUM_HELD)
        self.reset()

    def reset(self) -> None:
        """Forget everything: the connection is new."""
        self._held.clear()
        self._contained = -1
        self.last: int | None = None
        self.synchronised = False

    @property
    def needs_snapshot(self) -> bool:
        """Whether the stream has shown its place and no snapshot was joined to it yet."""
        return self.last is not None and not self.synchronised

    def arrive(self, sequence: int, message: Message) -> Arrival:
        """Place a message with this number."""
        last = self.last
        if last is not None and sequence <= last:
            return Arrival.LATE if sequence > self._contained else Arrival.CONTAINED
        gap = last is not None and sequence != last + 1
        self.last = sequence
        if gap:
            self.hold(())
        elif self.synchronised:
            return Arrival.APPLY
        self._held.append(message)
        return Arrival.GAP if gap else Arrival.HELD

    def miss(self, sequence: int) -> bool:
        """The stream has passed this number without a usable message; True where that is a gap."""
        gap = self.last is not None and sequence > self.last
        if gap or self.last is None:
            self.last = sequence
            self.hold(())
        return gap

    def hold(self, messages: Iterable[Message]) -> None:
        """The book is lost: keep only these, which end at `last`, for the next snapshot."""
        self.synchronised = False
        self._held.clear()
        self._held.extend(messages)

    def fits(self, sequence: int) -> bool:
        """Whether a snapshot with this number can be joined: no message is missing after it."""
        return self.last is None or sequence >= self.last - len(self._held)

    def join(self, sequence: int) -> list[Message]:
        """Join a snapshot that fits: the messages to apply to it, in order."""
        last = sequence if self.last is None else self.last
        messages = list(self._held)[len(self._held) - max(0, last - sequence) :]
        self._held.clear()
        self._contained = sequence
        self.last = max(last, sequence)
        self.synchronised = True
        return messages
