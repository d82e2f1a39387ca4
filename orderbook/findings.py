"""What makes a result incomplete: books that were lost, input that could not be read, marks that are missing.

Every command collects these findings, says them in its last lines and ends with status 1, unless they are
allowed; a job's manifest and its report keep them.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec
import numpy as np

from orderbook.errors import OrderbookError
from orderbook.events import Action, BookState, Flag, StateReason
from orderbook.instruments import Instruments
from orderbook.outside_text import visible
from orderbook.problems import Problems
from strategies.summary import StrategySummary

_STATE, _LAST = int(Action.STATE), int(Flag.LAST)
_VALID = int(BookState.VALID)
# Ends and pauses that belong to a session: they lose no book.
_IN_ORDER = {
    int(StateReason[name]) for name in ("NONE", "DISCONNECTED", "HALTED", "CLOSED", "AUCTION")
}
_DISCONNECTED = int(StateReason.DISCONNECTED)
# Places that are named of each finding.
_NAMED = 5
# What an engine says of rows that it left out, one by one; anything else that it tells is a finding.
_OF_ROWS = (
    "row not there", "duplicate key", "too many rows", "row outside its declared range", "row refused",
    "unknown stream", "mixed feeding", "unfinished event", "unknown relation",
)  # fmt: skip


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


class IncompleteError(OrderbookError):
    """A result that is incomplete; status 1."""


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
            self.messages += sum(change.last for change in batch)
            return
        self.messages += int(np.count_nonzero(batch["flags"] & _LAST))
        if not self.live:
            own = batch["instrument"]
            self._heard[np.where((own >= 0) & (own < len(self.instruments)), own, -1)] = True
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


def engine_findings(rows: Problems, engine: Problems, changes: int) -> Iterator[Finding]:
    """What an engine left out: views, callbacks and ticks that raised, and rows where they are the most.

    rows, engine: problems of rows and of the engine. changes: of relations, that were applied.
    """
    refused: Counter[str] = Counter()
    for problems in (rows, engine):
        for kind, count in problems.counts.items():
            if kind in _OF_ROWS:
                refused[kind] += count
            else:
                places = tuple(problems.examples[kind])
                yield Finding(kind, places, count, "what it would have done is missing; mend it")
    if (bad := sum(refused.values())) and 2 * bad > changes:
        kinds = ", ".join(kind for kind, _ in refused.most_common(2))
        todo = "compare the source with the declarations"
        yield Finding("most changes of rows refused", (kinds,), bad, todo)


def strategy_findings(strategies: Iterable[StrategySummary]) -> Iterator[Finding]:
    """Strategies that were disabled, and positions that have no price."""
    for one in strategies:
        if one.failure:
            yield Finding("strategy disabled", (f"{one.name}: {one.failure}",), 1, "mend it and run again")
        unmarked = [f"{p.venue}:{p.symbol}" for p in one.positions if p.position and p.mark is None]
        if unmarked:
            todo = "its book has an empty side, so that profit is unknown; end where both sides have orders"
            yield Finding(f"mark missing of a position of {one.name}", tuple(unmarked), len(unmarked), todo)


def distinct(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Each once; books that several tell of, as by the source and the run, by the first."""
    found: list[Finding] = []
    told: set[str] = set()
    for one in dict.fromkeys(findings):
        if one.what.startswith("book "):
            places = tuple(place for place in one.where if place not in told)
            told.update(places)
            if not places:
                continue
            one = msgspec.structs.replace(one, where=places, count=len(places))
        found.append(one)
    return tuple(found)


def incomplete_lines(findings: Sequence[Finding]) -> list[str]:
    """The last lines of what a command prints: a line for each finding."""
    return [f"  incomplete: {finding}" for finding in findings]


def refuse_incomplete(findings: Sequence[Finding], allowed: bool) -> None:
    """Raises IncompleteError where there are findings that are not allowed."""
    if findings and not allowed:
        count = f"{len(findings)} finding{'' if len(findings) == 1 else 's'}"
        first = f"{findings[0]}" if len(findings) == 1 else "see the last lines of the summary"
        raise IncompleteError(f"incomplete, {count}: {first} (--allow-incomplete: status 0)")
