"""MATCH_RECOGNIZE by plain backtracking over patterns that are built of Python values: its oracle.

A pattern gives the ways in which it can be matched from a row on, the preferred one first; the first way is
the match. It knows no automaton, no SQL and no state: all rows are looked at again.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

Row = dict[str, Any]
# The variable and the place of each row of a match so far.
History = tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class So:
    """What a condition or measure may ask about, at the last row of a history."""

    rows: Sequence[Row]
    history: History

    def __getitem__(self, column: str) -> Any:
        return self.rows[self.history[-1][1]][column]

    def prev(self, column: str, back: int = 1) -> Any:
        place = self.history[-1][1] - back
        return self.rows[place][column] if place >= 0 else None

    def of(self, column: str, variable: str | None = None) -> list[Any]:
        """The column of all rows of a variable, or of all."""
        return [self.rows[place][column] for name, place in self.history if variable in (None, name)]

    def first(self, column: str, variable: str | None = None) -> Any:
        return next(iter(self.of(column, variable)), None)

    def last(self, column: str, variable: str | None = None) -> Any:
        return next(reversed(self.of(column, variable)), None)

    def known(self, column: str, variable: str | None = None) -> list[Any]:
        return [value for value in self.of(column, variable) if value is not None]

    def sum(self, column: str, variable: str | None = None) -> Any:
        known = self.known(column, variable)
        return sum(known) if known else None


Condition = Callable[[So], bool | None]
Ways = Iterator[History]
Pattern = Callable[[Sequence[Row], "dict[str, Condition]", History, int], Ways]


def one(name: str) -> Pattern:
    def ways(rows: Sequence[Row], define: dict[str, Condition], history: History, start: int) -> Ways:
        place = start + len(history)
        if place < len(rows):
            longer = (*history, (name, place))
            if name not in define or define[name](So(rows, longer)):
                yield longer

    return ways


def then(*parts: Pattern) -> Pattern:
    def ways(rows: Sequence[Row], define: dict[str, Condition], history: History, start: int) -> Ways:
        def rest(place: int, history: History) -> Ways:
            if place == len(parts):
                yield history
                return
            for longer in parts[place](rows, define, history, start):
                yield from rest(place + 1, longer)

        yield from rest(0, history)

    return ways


def either(*parts: Pattern) -> Pattern:
    def ways(rows: Sequence[Row], define: dict[str, Condition], history: History, start: int) -> Ways:
        for part in parts:
            yield from part(rows, define, history, start)

    return ways


def times(part: Pattern, least: int, most: int | None = None, greedy: bool = True) -> Pattern:
    def ways(rows: Sequence[Row], define: dict[str, Condition], history: History, start: int) -> Ways:
        def rest(count: int, history: History) -> Ways:
            def more() -> Ways:
                if most is None or count < most:
                    for longer in part(rows, define, history, start):
                        if len(longer) > len(history):
                            yield from rest(count + 1, longer)

            enough = iter([history] if count >= least else [])
            for one_way in (more(), enough) if greedy else (enough, more()):
                yield from one_way

        yield from rest(0, history)

    return ways


def matches(
    rows: Sequence[Row],
    pattern: Pattern,
    define: dict[str, Condition],
    measures: Callable[[So], tuple[Any, ...]],
    *,
    overlapping: bool = False,
) -> list[tuple[Any, ...]]:
    """The measures of the matches among the rows of one partition, in their order."""
    found, start = [], 0
    while start < len(rows):
        match = next(pattern(rows, define, (), start), None)
        if match:
            found.append(measures(So(rows, match)))
        start += len(match) if match and not overlapping else 1
    return found
