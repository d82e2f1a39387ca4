"""The four logs of a node: what came, what it wrote, what was executed, what was sent.

All hold uncommitted things only. What a node keeps for good is the receive log and the send log, message by
message; the write log and the operation log follow from them and from the base state.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

import numpy as np

from engine.distribution.block import Block

from .channels import Channel, Numbered
from .messages import Address, Life, Marker, Moment, Rows
from .operators import Produced
from .rows import block, matrix, place
from .runs import CountedRuns, Runs

_M = TypeVar("_M", Rows, Marker)


_FIRST = Life(0, 0)


class WriteLog:
    """Uncommitted rows by source, in order of versions, each with how often it was asserted less retracted.

    A count below zero is a change that was taken back before it came; it is no row.
    """

    def __init__(self) -> None:
        self._sources: dict[str, CountedRuns] = {}

    def add(self, source: str, rows: np.ndarray, count: int) -> None:
        """Asserts rows, in order, (count 1) or retracts them (count -1)."""
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

    def rows(self) -> dict[tuple[Address, int], Rows]:
        """The messages with uncommitted rows, by sender and number."""
        return {(a, n): m for a, c in self.channels.items() for n, m in c.rows.items()}

    def save(self) -> dict[Address, dict[str, Any]]:
        """All but the messages as plain values."""
        names = [name for name in Channel.__slots__ if name != "rows"]
        return {a: {n: _copied(getattr(c, n)) for n in names} for a, c in self.channels.items()}

    def load(
        self, saved: Mapping[Address, Mapping[str, Any]], rows: Mapping[tuple[Address, int], Rows]
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

    def rows(self, receiver: Address, asserted: tuple[Block, ...] = (), **rest: Any) -> Rows:
        """The next message to a receiver; see Rows."""
        number, life = self._next(receiver)
        return self._kept(Rows(self.sender, receiver, life, number, asserted, **rest))

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
