"""What makes a run's result incomplete beside its sources: views that raised, rows refused, missing marks.

Every command collects these findings, with those of its sources, says them in its last lines and ends with
status 1, unless they are allowed; a job's manifest and its report keep them.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from orderbook.core.errors import OrderbookError, Problems
from orderbook.feeds.source import Finding
from orderbook.strategies.execution.account import StrategySummary

# What an engine says of rows that it left out, one by one; anything else that it tells is a finding.
_OF_ROWS = (
    "row not there", "duplicate key", "too many rows", "row outside its declared range", "row refused",
    "unknown stream", "mixed feeding", "unfinished event", "unknown relation",
)  # fmt: skip


class IncompleteError(OrderbookError):
    """A result that is incomplete; status 1."""


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
