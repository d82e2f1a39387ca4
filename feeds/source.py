"""What a source of market data is, what it has seen, and what went wrong with it.

Live feeds count in `FeedStatistics`. A `WatchedSource` is watched while it is read; its `Finding`s are what
makes a result incomplete: books that were lost, and input that could not be read. Every command collects
these findings, says them in its last lines and ends with status 1, unless they are allowed; a job's
manifest and its report keep them.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Protocol, TypeVar

import msgspec
import numpy as np

from orderbook.core.errors import Problems, visible
from orderbook.market.events import Action, BookState, Events, Flag, StateReason
from orderbook.market.instruments import Instruments


@dataclass(slots=True)
class FeedStatistics:
    """Counters since the feed was made; read them at any time. `problems` never stop a feed."""

    frames: int = 0  # websocket messages received
    bytes: int = 0  # their payload
    messages: int = 0  # those of a known type, whole
    malformed: int = 0  # those that could not be read or used
    events: int = 0  # events decoded
    checksums: int = 0  # books that were compared with the exchange's checksum, and equal
    gaps: int = 0  # books lost, for whatever reason but the connection's end
    resyncs: int = 0  # books rebuilt from a snapshot after their first
    reconnects: int = 0  # connections after the first
    stale_seconds: float = 0.0  # of all books together, from a book's loss until it was valid again
    problems: Problems = field(default_factory=Problems)

    @classmethod
    def total(cls, parts: Iterable["FeedStatistics"]) -> "FeedStatistics":
        """Those of several connections together."""
        total = cls()
        for part in parts:
            for one in fields(cls):
                if one.name != "problems":
                    setattr(total, one.name, getattr(total, one.name) + getattr(part, one.name))
            total.problems.extend(part.problems)
        return total


def counted(events: Events, counts: Counter[str], changes: str) -> Events:
    """EVENT[n] of a recorded feed of levels, added up in `counts`: messages that change its book, under the
    name `changes`, snapshots and trades."""
    action, flags = events["action"], events["flags"]
    diffs = (action == Action.LEVEL) & (flags & (Flag.LAST | Flag.SNAPSHOT) == Flag.LAST)
    valid = (action == Action.STATE) & (events["volume"] == BookState.VALID)
    counts[changes] += int(np.count_nonzero(diffs))
    counts["snapshots applied"] += int(np.count_nonzero(valid))
    counts["trades"] += int(np.count_nonzero(action == Action.TRADE))
    return events


Batch = TypeVar("Batch", covariant=True)


class Source(Protocol[Batch]):
    """A finite source, iterated in bounded memory; every iteration starts at the beginning.

    `problems` counts what was wrong and did not stop it, `counts` what else is worth reporting; both
    are complete after the iteration. Iteration raises SourceError where the input is truncated, after
    everything before the cut was given.
    """

    @property
    def name(self) -> str:
        """The source as KIND:PATH."""

    @property
    def problems(self) -> Problems: ...

    @property
    def counts(self) -> Counter[str]: ...

    @property
    def progress(self) -> float:
        """Fraction of the input read so far, 0 to 1."""

    def __iter__(self) -> Iterator[Batch]: ...


class EventSource(Source[Events], Protocol):
    """A source of EVENT batches that do not split messages; `instruments` is known from the start."""

    @property
    def instruments(self) -> Instruments: ...


_STATE = int(Action.STATE)
_VALID = int(BookState.VALID)
# Ends and pauses that belong to a session: they lose no book.
_IN_ORDER = {int(StateReason[name]) for name in ("NONE", "DISCONNECTED", "HALTED", "CLOSED", "AUCTION")}
_DISCONNECTED = int(StateReason.DISCONNECTED)
# Places that are named of each finding.
_NAMED = 5


class Finding(msgspec.Struct, frozen=True):
    """What is wrong, where, at how many places or how often, and what to do."""

    what: str
    where: tuple[str, ...]
    count: int
    todo: str

    def __str__(self) -> str:
        places = ", ".join(self.where[:_NAMED])
        more = f" and {len(self.where) - _NAMED:,} more" if len(self.where) > _NAMED else ""
        return visible(f"{self.what} ({self.count:,}): {places}{more}; {self.todo}")


class SourceWatch:
    """What a source gave: messages, the instruments that had events, and what became of their books.

    live: its books are followed, so that one which has not been synchronised, or whose connection has ended,
    is lost; a recording may end so, and one that tells of no book's state loses none.
    """

    def __init__(self, name: str, instruments: Instruments, live: bool = False) -> None:
        self.name, self.instruments, self.live = name, instruments, live
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self.messages = 0
        self._heard = np.zeros(len(self.instruments) + 1, bool)
        self._valid: set[int] = set()
        self._lost: dict[int, int] = {}
        self._tells = False

    def note(self, batch: Any) -> None:
        """Take in EVENT[n] of `instruments`, or changes of relations."""
        if not isinstance(batch, np.ndarray):
            messages = getattr(batch, "messages", None)
            self.messages += sum(change.last for change in batch) if messages is None else messages
            return
        # Compiled code, which who only names findings does without.
        from orderbook.feeds.event_scan import scan

        messages, states = scan(batch, self._heard)
        self.messages += messages
        if states:
            for event in batch[batch["action"] == _STATE]:
                self._note_state(int(event["instrument"]), int(event["volume"]), int(event["order_id"]))

    def _note_state(self, instrument: int, state: int, reason: int) -> None:
        if not 0 <= instrument < len(self.instruments):
            return
        self._tells = True
        if state == _VALID:
            self._valid.add(instrument)
            self._lost.pop(instrument, None)
        elif reason not in _IN_ORDER or (self.live and reason == _DISCONNECTED):
            self._lost[instrument] = reason

    def findings(self) -> Iterator[Finding]:
        """Books that were lost and not found again, and those that never were the exchange's."""
        lost: dict[int, list[str]] = {}
        for instrument, reason in sorted(self._lost.items()):
            if instrument in self._valid:
                lost.setdefault(reason, []).append(str(self.instruments[instrument]))
        for reason, names in lost.items():
            yield books_lost(_name_of(reason), names)
        never = [
            str(one)
            for place, one in enumerate(self.instruments)
            if place not in self._valid and (self.live or (self._tells and self._heard[place]))
        ]
        if never:
            todo = "let the run go on for longer" if self.live else "begin with a snapshot of it"
            todo += f", or see the problems of {self.name}"
            yield Finding("book never synchronised", tuple(never), len(never), todo)


class WatchedSource:
    """A source that is watched while it is read; everything else is the source's own."""

    def __init__(self, source: Any) -> None:
        self.source = source
        own = source.instruments if hasattr(source, "instruments") else Instruments(())
        self.watch = SourceWatch(source.name, own)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.source, name)

    def __iter__(self) -> Iterator[Any]:
        self.watch.clear()
        for batch in self.source:
            self.watch.note(batch)
            yield batch

    def findings(self) -> list[Finding]:
        """What makes the source's part of a result incomplete, once it has been read."""
        quiet = getattr(self.source, "may_be_empty", False)
        own = input_findings(self.name, self.watch.messages, self.source.problems, quiet)
        return [*self.watch.findings(), *own]


def watched(source: Any) -> WatchedSource:
    """The source, watched."""
    return source if isinstance(source, WatchedSource) else WatchedSource(source)


def _name_of(reason: int) -> str:
    return StateReason(reason).name.lower() if reason in set(StateReason) else f"reason {reason}"


def ends_in_order(reason: str) -> bool:
    """Whether a book that is not valid for this reason has been lost by nothing but the session's course."""
    return reason in map(_name_of, _IN_ORDER)


def books_lost(reason: str, names: Sequence[str]) -> Finding:
    """That books were lost for a reason and not found again."""
    todo = "views miss what came after: see the problems of its source, or give one without the gap"
    return Finding(f"book lost ({reason}) and not found again", tuple(names), len(names), todo)


def input_findings(name: str, messages: int, problems: Problems, quiet: bool = False) -> Iterator[Finding]:
    """That a source gave nothing, unless it may be `quiet`, or that most of it could not be used."""
    bad = problems.unusable
    if bad > messages:
        kinds = ", ".join(kind for kind, _ in problems.counts.most_common(2))
        todo = f"most of it could not be used ({kinds}): is it of this kind, and whole?"
        yield Finding(f"more problems than the {messages:,} messages", (name,), bad, todo)
    elif not messages and not quiet:
        todo = "is the file empty, or does its filter name what is not in it?"
        yield Finding("no message", (name,), 0, todo)
