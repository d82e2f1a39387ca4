"""The rule that joins a snapshot to a stream of numbered messages, and finds what is missing in it.

Hold messages from the moment of subscribing, get a snapshot, drop what it contains, apply the rest; from
then on each message must follow the one before. Sources: Coinbase Exchange documentation, "Full Channel";
Binance documentation, "How to manage a local order book correctly", of Spot (U, u) and of USD-M Futures
(U, u, pu); Bitstamp documentation, "Live full order book".
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

import msgspec

Message = TypeVar("Message")
# Messages held while there is no snapshot; with more, the oldest go and an older snapshot does not fit.
MAXIMUM_HELD = 100_000
# So many messages in a row that were passed already are a stream that began again, not repeats.
LATE_IN_A_ROW = 8


class Arrival(Enum):
    """What to do with a message."""

    APPLY = "apply"          # it is the next one of a book that is whole
    HELD = "held"            # kept until a snapshot comes
    CONTAINED = "contained"  # the snapshot contains it
    LATE = "late"            # its number was passed: a repeat, or out of order; not kept
    GAP = "gap"              # messages are missing before it; kept, and a new snapshot is needed
    RESET = "reset"          # the numbers began again; kept, and a new snapshot is needed


class Span(msgspec.Struct, Generic[Message], frozen=True):
    """A message that brings a book from just before `first` to `last`.

    `previous` is the `last` of the message before where the exchange says it, else None.
    """

    first: int
    last: int
    previous: int | None
    message: Message


@dataclass(frozen=True, slots=True)
class JoinRule:
    """How numbers relate.

    consecutive: each message begins where the one before ended, so that a missing one shows. Otherwise the
        numbers only order messages: what is lost does not show, and a number that falls ends the order.
    overlapping: a snapshot contains messages before its number, and the first applied may begin before it
        and must reach it (Binance futures: U <= L <= u); else the first begins after it at the latest.
    """

    consecutive: bool = True
    overlapping: bool = False

    def contains(self, snapshot: int, span: Span[Message]) -> bool:
        """Whether a snapshot with this number has all of a message."""
        return span.last < snapshot if self.overlapping else span.last <= snapshot

    def joins(self, snapshot: int, span: Span[Message]) -> bool:
        """Whether a message that the snapshot does not contain can be the first after it."""
        if not self.consecutive or span.previous == snapshot:
            return True
        return span.first <= (snapshot if self.overlapping else snapshot + 1)

    def follows(self, last: int, span: Span[Message]) -> bool:
        """Whether a message comes right after one that ended at `last`."""
        if not self.consecutive:
            return span.last >= last
        return span.first == last + 1 if span.previous is None else span.previous == last


class SnapshotJoin(Generic[Message]):
    """One book's place in its stream of messages; `synchronised` once a snapshot was joined to it."""

    __slots__ = ("_arrived", "_fresh", "_held", "_late", "_restarted", "_rule", "_snapshot", "synchronised")

    def __init__(self, rule: JoinRule) -> None:
        self._rule = rule
        # Each follows the one before, and the last ends at _arrived.
        self._held: deque[Span[Message]] = deque(maxlen=MAXIMUM_HELD)
        self._arrived: int | None = None
        self._snapshot: int | None = None
        self._late = 0
        # The numbers began again, and no snapshot has been joined since.
        self._restarted = False
        self.synchronised = False
        # No message has been applied since the snapshot.
        self._fresh = False

    def reset(self) -> None:
        """Forget everything: the connection is new."""
        self._arrived = None
        self._late = 0
        self._restarted = False
        self.lose()

    @property
    def last(self) -> int | None:
        """The greatest number known, of a message or snapshot."""
        if self._snapshot is None or self._arrived is None:
            return self._snapshot if self._arrived is None else self._arrived
        return max(self._arrived, self._snapshot)

    def arrive(self, span: Span[Message]) -> Arrival:
        """Place a message."""
        rule, arrived = self._rule, self._arrived
        if arrived is not None and (span.last <= arrived if rule.consecutive else span.last < arrived):
            if rule.consecutive and self._passed():
                return Arrival.LATE
            return self._restart(span.last, (span,), Arrival.RESET)
        self._late = 0
        follows = arrived is None or rule.follows(arrived, span)
        if self._fresh and self._snapshot is not None:
            if rule.contains(self._snapshot, span):
                self._arrived = span.last
                return Arrival.CONTAINED
            self._fresh = False
            follows = rule.joins(self._snapshot, span)
        if not follows:
            return self._restart(span.last, (span,), Arrival.GAP)
        self._arrived = span.last
        if self.synchronised:
            return Arrival.APPLY
        self._held.append(span)
        return Arrival.HELD

    def miss(self, number: int) -> Arrival:
        """The stream has reached this number, and there is no message that could be used."""
        arrived = self._arrived
        if arrived is not None and number < arrived:
            return Arrival.LATE if self._passed() else self._restart(number, (), Arrival.RESET)
        self._late = 0
        if number == arrived or (self._fresh and self._snapshot is not None and number <= self._snapshot):
            self._arrived = number
            return Arrival.CONTAINED
        known = self.last is not None
        return self._restart(number, (), Arrival.GAP if known else Arrival.HELD)

    def behind(self, number: int) -> bool:
        """Whether the stream, at this number, has not come up to the snapshot that was joined to it."""
        return self._fresh and self._snapshot is not None and number < self._snapshot

    def begin_again(self, number: int) -> None:
        """The numbers have begun again, although they never fell: a new snapshot is needed."""
        self._restart(number, (), Arrival.RESET)

    def lose(self, spans: Iterable[Span[Message]] = ()) -> None:
        """The book cannot be trusted: keep only these, which end at the last, for the next snapshot."""
        self.synchronised = self._fresh = False
        self._snapshot = None
        self._held.clear()
        self._held.extend(spans)

    def join(self, snapshot: int) -> list[Span[Message]] | None:
        """Join a snapshot: the messages to apply to it, in order; None where one between is missing.

        Where numbers are not consecutive, a snapshot from before all that is held does not fit: what came
        between is not known. Nor does one ahead of numbers that began again: it may be of those before.
        """
        rule = self._rule
        if self._restarted and self._arrived is not None and snapshot > self._arrived:
            return None
        newer = [span for span in self._held if not rule.contains(snapshot, span)]
        begins_before = len(newer) < len(self._held)
        if newer and not (rule.joins(snapshot, newer[0]) if rule.consecutive else begins_before):
            return None
        if not newer and self._arrived is not None and snapshot < self._arrived:
            return None
        self._held.clear()
        self._restarted = False
        self._snapshot = snapshot
        self._fresh = not newer
        self.synchronised = True
        return newer

    def _passed(self) -> bool:
        """Counts a message that was passed already; False where there were too many in a row."""
        self._late += 1
        return self._late < LATE_IN_A_ROW

    def _restart(self, number: int, spans: Iterable[Span[Message]], arrival: Arrival) -> Arrival:
        self._late = 0
        # Moments, which are not consecutive, are of one clock for snapshots and messages.
        self._restarted = arrival is Arrival.RESET and self._rule.consecutive
        self._arrived = number
        self.lose(spans)
        return arrival
