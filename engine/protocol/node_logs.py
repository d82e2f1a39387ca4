"""The four logs of a node: what came, what it wrote, what was executed, what was sent.

All hold uncommitted things only. What a node keeps for good is the receive log and the send log, message by
message; the write log and the operation log follow from them and from the base state.

A Channel is one sender as its receiver sees it: which of its messages came, and which of them count.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from orderbook.engine.distribution.blocks import Block
from orderbook.engine.protocol.messages import BEGINNING, Address, Life, Marker, Moment, Produced, RowsMessage
from orderbook.engine.protocol.versioned_rows import CountedRuns, Runs, block, matrix, place

Numbered = RowsMessage | Marker


@dataclass(slots=True)
class Channel:
    """What came from one sender.

    settled: the number of its last committed marker. came: the life of every message above that. through:
    everything up to this number came. rows: by number, messages that hold uncommitted rows. markers: by
    epoch, those not committed. ended: where its last committed epoch ended. promises: by number above
    `settled`. promised: what it promised that holds. reached: the highest stamp it has sent or ended.
    lives: those that began after a restart, in order.
    """

    settled: int = 0
    came: dict[int, int] = field(default_factory=dict)
    through: int = 0
    rows: dict[int, RowsMessage] = field(default_factory=dict)
    markers: dict[int, Marker] = field(default_factory=dict)
    ended: int = BEGINNING[0]
    promises: dict[int, Moment] = field(default_factory=dict)
    promised: Moment = BEGINNING
    reached: int = BEGINNING[0]
    lives: list[Life] = field(default_factory=list)

    def begin(self, life: Life) -> list[RowsMessage]:
        """Notes the life of a message; of a new one, returns the rows of earlier lives that never counted."""
        if life.number == 0 or life in self.lives:
            return []
        self.lives = sorted([*self.lives, life])
        lost = {n for n, of in self.came.items() if self._stale(n, of)}
        if not lost:
            return []
        undone = [self.rows.pop(n) for n in sorted(lost & self.rows.keys())]
        self.came = {n: of for n, of in self.came.items() if n not in lost}
        self.markers = {e: m for e, m in self.markers.items() if m.number not in lost}
        self.promises = {n: p for n, p in self.promises.items() if n not in lost}
        self.through = min(self.through, min(lost) - 1)
        held = (p for n, p in self.promises.items() if n <= self.through)
        self.promised = max(held, default=(self.ended, -1, -1))
        return undone

    def accept(self, message: Numbered) -> bool:
        """Whether a message counts and is new; then it is noted."""
        number = message.number
        if number <= self.settled or number in self.came or self._stale(number, message.life.number):
            return False
        self.came[number] = message.life.number
        promise = (message.end, -1, -1) if isinstance(message, Marker) else message.promise
        sent = message.end if isinstance(message, Marker) else latest(message)
        self.reached = max(self.reached, sent)
        if promise is not None:
            self.promises[number] = promise
        while self.through + 1 in self.came:
            self.through += 1
            self.promised = max(self.promised, self.promises.get(self.through, BEGINNING))
        return True

    def _stale(self, number: int, life: int) -> bool:
        return any(later.number > life and number > later.after for later in self.lives)

    def closed(self, number: int) -> int:
        """Stamps below this were ended by the sender before it sent message `number`."""
        ends = (m.end for m in self.markers.values() if m.number < number)
        return max(ends, default=self.ended)

    def end_of(self, epoch: int) -> int | None:
        """Where the epoch ends, if everything the sender has sent of it came."""
        marker = self.markers.get(epoch)
        return marker.end if marker is not None and marker.number <= self.through else None

    def truncate(self, epoch: int) -> None:
        """Forgets what is committed with an epoch."""
        marker = self.markers.pop(epoch)
        self.settled, self.ended = marker.number, marker.end
        self.came = {n: life for n, life in self.came.items() if n > marker.number}
        self.promises = {n: p for n, p in self.promises.items() if n > marker.number}
        for number in [n for n, m in self.rows.items() if latest(m) < marker.end]:
            del self.rows[number]

    def __len__(self) -> int:
        return len(self.rows) + len(self.markers) + sum(n > self.through for n in self.came)


def latest(message: RowsMessage) -> int:
    """The highest stamp in a message; that of BEGINNING where it has no rows."""
    return max((int(b.versions["stamp"][-1]) for b in message.blocks), default=BEGINNING[0])


_M = TypeVar("_M", RowsMessage, Marker)


_FIRST = Life(0, 0)


class WriteLog:
    """Uncommitted rows by source, in order of versions, each with how often it was asserted less retracted.

    A count below zero is a change that was taken back before it came; it is no row.
    """

    def __init__(self) -> None:
        self._sources: dict[str, CountedRuns] = {}

    def add(self, source: str, rows: NDArray[np.int64], count: int) -> None:
        """Asserts rows, int64[n, width], in order, (count 1) or retracts them (count -1)."""
        if len(rows):
            self._sources.setdefault(source, CountedRuns()).add(rows, count)

    def between(self, first: Moment, end: Moment) -> list[Block]:
        """The rows at or after `first` and before `end`, a block for each source that has some."""
        found = ((source, self._sources[source].between(first, end)) for source in sorted(self._sources))
        return [block(source, rows) for source, rows in found if len(rows)]

    def first(self, start: Moment) -> Moment | None:
        """The first moment at or after `start` that has rows; None: there are none."""
        found = (runs.first(start) for runs in self._sources.values())
        return min((moment for moment in found if moment is not None), default=None)

    def truncate(self, end: Moment) -> None:
        """Forgets everything before `end`."""
        for runs in self._sources.values():
            runs.keep_from(end)

    def __len__(self) -> int:
        return sum(map(len, self._sources.values()))


class OperationLog:
    """What has been executed, and what came of it: changes of outputs and history of views, by version.

    head: the last exchange message executed (None: none since the base).
    """

    def __init__(self) -> None:
        self.head: Moment | None = None
        self.outputs: dict[str, Runs] = {}
        self.views: dict[str, Runs] = {}

    def record(self, first: Moment, produced: Produced) -> None:
        """Replaces what was produced at or after `first`; earlier rows of `produced` are known."""
        for log, blocks in ((self.outputs, produced.outputs), (self.views, produced.views)):
            for runs in log.values():
                runs.keep_before(first)
            for found in blocks:
                rows = matrix(found)
                log.setdefault(found.source, Runs()).extend(rows[place(rows, first) :])

    def truncate(self, end: Moment) -> None:
        """Forgets what was executed before `end`."""
        for runs in (*self.outputs.values(), *self.views.values()):
            runs.keep_from(end)
        if self.head is not None and self.head < end:
            self.head = None

    def __len__(self) -> int:
        return sum(map(len, (*self.outputs.values(), *self.views.values())))


class ReceiveLog:
    """What came from which sender: for duplicates, for counts, and to undo what a lost life sent."""

    def __init__(self, senders: Iterable[Address]) -> None:
        self.channels = {sender: Channel() for sender in senders}

    def end_of(self, epoch: int) -> int | None:
        """Where the epoch ends, if every sender has ended it and everything of it came."""
        end = None
        for channel in self.channels.values():
            end = channel.end_of(epoch)
            if end is None:
                return None
        return end

    def promised(self) -> Moment:
        """Nothing before this will come from any sender."""
        return min(channel.promised for channel in self.channels.values())

    def reached(self) -> Moment:
        """Every sender has sent or ended something that is not before this."""
        return min(channel.reached for channel in self.channels.values()), -1, -1

    def truncate(self, epoch: int) -> None:
        """Forgets what is committed with an epoch."""
        for channel in self.channels.values():
            channel.truncate(epoch)

    def __len__(self) -> int:
        return sum(len(c) for c in self.channels.values())

    def rows(self) -> dict[tuple[Address, int], RowsMessage]:
        """The messages with uncommitted rows, by sender and number."""
        return {(a, n): m for a, c in self.channels.items() for n, m in c.rows.items()}

    def save(self) -> dict[Address, dict[str, Any]]:
        """All but the messages as plain values."""
        names = [name for name in Channel.__slots__ if name != "rows"]
        return {a: {n: _copied(getattr(c, n)) for n in names} for a, c in self.channels.items()}

    def load(
        self, saved: Mapping[Address, Mapping[str, Any]], rows: Mapping[tuple[Address, int], RowsMessage]
    ) -> None:
        """Becomes what was saved, with those messages."""
        for sender, values in saved.items():
            self.channels[sender] = Channel(**{n: _copied(v) for n, v in values.items()})
        for (sender, number), message in rows.items():
            self.channels[sender].rows[number] = message


def _copied(value: Any) -> Any:
    return value.copy() if isinstance(value, dict | list) else value


class SendLog:
    """What was sent: messages until they are acknowledged, and changes of outputs until they are committed.

    resends: whether messages are kept; not, where what carries them delivers them again by itself.
    """

    def __init__(self, sender: Address, receivers: Iterable[Address], resends: bool) -> None:
        self.sender = sender
        self.numbers = dict.fromkeys(receivers, 0)
        self.messages: dict[Address, dict[int, Numbered]] = {r: {} for r in self.numbers}
        self.outputs: dict[str, Runs] = {}
        # Where numbering began again in this life, by receiver.
        self.begins: dict[Address, Life] = {}
        self._resends = resends

    def rows(self, receiver: Address, asserted: tuple[Block, ...] = (), **rest: Any) -> RowsMessage:
        """The next message to a receiver; see Rows."""
        number, life = self._next(receiver)
        return self._kept(RowsMessage(self.sender, receiver, life, number, asserted, **rest))

    def marker(self, receiver: Address, epoch: int, end: int) -> Marker:
        """The marker of an epoch to a receiver."""
        number, life = self._next(receiver)
        return self._kept(Marker(self.sender, receiver, life, number, epoch, end))

    def _next(self, receiver: Address) -> tuple[int, Life]:
        self.numbers[receiver] += 1
        return self.numbers[receiver], self.begins.get(receiver, _FIRST)

    def _kept(self, message: _M) -> _M:
        if self._resends:
            self.messages[message.receiver][message.number] = message
        return message

    def acknowledged(self, receiver: Address, through: int, life: int) -> None:
        """A receiver, which knows this life of the sender, has kept everything up to a number."""
        begin = self.begins.get(receiver, _FIRST)
        if life < begin.number:
            through = min(through, begin.after)
        kept = self.messages[receiver]
        for number in [n for n in kept if n <= through]:
            del kept[number]

    def unacknowledged(self, receiver: Address) -> Iterator[Numbered]:
        """What a receiver that has started again may lack, in the order it was sent."""
        yield from self.messages[receiver].values()

    def restart(self, life: int) -> None:
        """What is sent from now on is of a new life."""
        self.begins = {r: Life(life, n) for r, n in self.numbers.items()}

    def truncate(self, end: Moment) -> None:
        """Forgets the changes of outputs before `end`."""
        for runs in self.outputs.values():
            runs.keep_from(end)

    def __len__(self) -> int:
        return sum(map(len, self.messages.values())) + sum(map(len, self.outputs.values()))

    def kept(self) -> dict[tuple[Address, int], Numbered]:
        """The messages not acknowledged, by receiver and number."""
        return {(r, n): m for r, messages in self.messages.items() for n, m in messages.items()}

    def save(self) -> tuple[dict[Address, int], dict[Address, Life]]:
        """All but the messages and the outputs as plain values."""
        return dict(self.numbers), dict(self.begins)

    def load(
        self,
        saved: tuple[Mapping[Address, int], Mapping[Address, Life]],
        kept: Mapping[tuple[Address, int], Numbered],
        outputs: Iterable[Block],
    ) -> None:
        """Becomes what was saved, with those messages, and those changes of outputs."""
        self.numbers, self.begins = dict(saved[0]), dict(saved[1])
        for (receiver, number), message in kept.items():
            self.messages[receiver][number] = message
        for found in outputs:
            self.outputs.setdefault(found.source, Runs()).extend(matrix(found))
