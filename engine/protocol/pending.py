"""Writes that a node knows of and has not seen: what it waits for, so that others pass (Cumulus' bypass)."""

from dataclasses import dataclass, field

from .messages import Address, Moment, Notice


@dataclass(slots=True)
class _Write:
    notice: Notice
    # Whether its switch has said whom it comes through, not only somebody that it came.
    known: bool = False
    answered: set[Address] = field(default_factory=set)

    @property
    def complete(self) -> bool:
        return self.known and self.answered.issuperset(self.notice.awaits)


class PendingWrites:
    """Dispatches of switches that are known and not executed."""

    def __init__(self) -> None:
        self._writes: dict[tuple[int, int], _Write] = {}

    def expect(self, notice: Notice) -> None:
        """A switch's notice has come."""
        write = self._write(notice)
        write.notice, write.known = notice, True

    def answer(self, sender: Address, notice: Notice) -> None:
        """A sender has sent all that a dispatch changes there."""
        self._write(notice).answered.add(sender)

    def _write(self, notice: Notice) -> _Write:
        return self._writes.setdefault((notice.switch, notice.number), _Write(notice))

    def blocked(self) -> Moment | None:
        """The first moment that must wait; None: none must."""
        return min((w.notice.first for w in self._writes.values() if not w.complete), default=None)

    def executed(self, end: Moment) -> tuple[Notice, ...]:
        """Complete dispatches before `end`, which need no further attention."""
        done = [k for k, w in self._writes.items() if w.complete and w.notice.last < end]
        return tuple(self._writes.pop(k).notice for k in done)

    def truncate(self, end: Moment) -> None:
        """Forgets dispatches before `end`, whether or not they were answered."""
        self._writes = {k: w for k, w in self._writes.items() if w.notice.last >= end}

    def __len__(self) -> int:
        return len(self._writes)

    def save(self) -> list[tuple[Notice, bool, set[Address]]]:
        return [(w.notice, w.known, set(w.answered)) for w in self._writes.values()]

    def load(self, saved: list[tuple[Notice, bool, set[Address]]]) -> None:
        for notice, known, answered in saved:
            self._writes[notice.switch, notice.number] = _Write(notice, known, set(answered))
