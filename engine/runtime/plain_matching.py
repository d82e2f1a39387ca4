"""The matches of a row pattern as the standard defines them, for the interpreter: all are sought again.

From each row that may begin a match the automaton is followed by backtracking, the preferred way first.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from orderbook.core.changes import Word
from orderbook.views.calculus import Scalar, Var
from orderbook.views.m3 import Kept, RowPattern, kept_there, kept_value, row_there, row_value
from orderbook.views.pattern_automaton import END
from orderbook.views.types import Kind

Row = tuple[Word, ...]
# Of each thing that is kept: whether it is there, its value, and how many rows it is of.
_Held = tuple[tuple[bool, Word, int], ...]


def matches(
    pattern: RowPattern, rows: Iterable[Row], value: Callable[[Scalar, Mapping[Var, Word]], Word]
) -> Counter[Row]:
    """The matches among rows, as rows of their relation; how often each stands.

    value: of a scalar, where variables are the words of an environment.
    """
    partitions: dict[Row, list[Row]] = defaultdict(list)
    for row in rows:
        partitions[tuple(row[place] for place in pattern.partition)].append(row)
    found: Counter[Row] = Counter()
    for own in partitions.values():
        own.sort(key=lambda row: _place(pattern, row))
        found.update(_Matcher(pattern, own, value).found())
    return found


def _place(pattern: RowPattern, row: Row) -> list[tuple[bool, int | float]]:
    """What rows are ordered by, NULL last."""
    words = ((row[place], descending) for place, descending in pattern.order)
    return [
        (word is None, 0 if word is None else -word if descending else word) for word, descending in words
    ]


@dataclass(slots=True)
class _Matcher:
    pattern: RowPattern
    rows: Sequence[Row]
    value: Callable[[Scalar, Mapping[Var, Word]], Word]

    def found(self) -> Iterator[Row]:
        start = 0
        while start < len(self.rows):
            match = self._from(start)
            if match is None:
                start += 1
                continue
            end, kept = match
            yield self._shown(end, kept)
            start = start + 1 if self.pattern.overlapping else end + 1

    def _from(self, start: int) -> tuple[int, _Held] | None:
        """The last row of the match that begins at a row, and what it keeps."""
        nothing: _Held = ((False, 0, 0),) * len(self.pattern.kept)
        ways = [(position, start, nothing) for position in reversed(self.pattern.first)]
        tried = set()
        while ways:
            position, at, kept = ways.pop()
            if position == END:
                return at - 1, kept
            if at == len(self.rows) or (position, at, kept) in tried or not self._in_time(start, at):
                continue
            tried.add((position, at, kept))
            variable = self.pattern.variable_of[position]
            noted = self._noted(kept, variable, at)
            if self.value(self.pattern.conditions[variable], self._environment(at, noted)):
                ways += [(follows, at + 1, noted) for follows in reversed(self.pattern.follow[position])]
        return None

    def _in_time(self, start: int, at: int) -> bool:
        within, (place, descending) = self.pattern.within, self.pattern.order[0]
        if within is None or at == start:
            return True
        first, last = self.rows[start][place], self.rows[at][place]
        if first is None or last is None:
            return False
        return (first - last if descending else last - first) < within

    def _environment(self, at: int, kept: _Held) -> dict[Var, Word]:
        found: dict[Var, Word] = {}
        for back in range(self.pattern.back + 1):
            row = self.rows[at - back] if at >= back else (None,) * len(self.pattern.rows.columns)
            for place, word in enumerate(row):
                found[row_there(back, place)] = int(word is not None)
                found[row_value(back, place)] = 0 if word is None else word
        for place, (there, word, _) in enumerate(kept):
            found[kept_there(place)], found[kept_value(place)] = int(there), word
        return found

    def _noted(self, kept: _Held, variable: int, at: int) -> _Held:
        """What is kept once a row is one of a variable's."""
        row = self._environment(at, ())
        noted = []
        for own, (there, word, count) in zip(self.pattern.kept, kept, strict=True):
            if own.variables and variable not in own.variables:
                noted.append((there, word, count))
                continue
            valid, new = bool(self.value(own.valid, row)), self.value(own.value, row)
            if own.how == "variable":
                noted.append((True, variable, count + 1))
            elif own.how == "last" or (own.how == "first" and count == 0):
                noted.append((valid, new if valid else 0, count + 1))
            elif own.how == "first" or not valid:
                noted.append((there, word, count))
            else:
                noted.append((True, _combined(own, there, word, new), count + 1))
        return tuple(noted)

    def _shown(self, end: int, kept: _Held) -> Row:
        row = self._environment(end, kept)
        return tuple(
            self.value(c.scalar, row) if self.value(c.valid, row) else None for c in self.pattern.columns
        )


def _combined(kept: Kept, there: bool, held: Word, new: Word) -> Word:
    """What is kept of a value and another one; doubles are added in the order of rows."""
    assert held is not None and new is not None
    if kept.how == "count":
        return held + 1
    if kept.how == "sum":
        return (held if there else 0.0 if kept.type.kind is Kind.DOUBLE else 0) + new
    if not there:
        return new
    return min(held, new) if kept.how == "min" else max(held, new)
