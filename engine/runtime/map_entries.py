"""Entries of maps and rows of relations as arrays: how they go to another runtime, and into a checkpoint.

Which maps of two programs hold the same is found by their canonical definitions, whatever they are
called. Rows of a relation stand with how often each occurs, in arrays that outlive what they were copied
from.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from orderbook.core.changes import NULL_CODE
from orderbook.core.files import ArrayRows
from orderbook.views.calculus import ZERO, maps_read, relations
from orderbook.views.m3 import MapDeclaration, Program
from orderbook.views.names import canonical
from orderbook.views.types import Kind, Relation, Type


@dataclass(frozen=True, slots=True)
class Match:
    """The map `name` of another program; `places` gives for each own key its place among that map's."""

    name: str
    places: tuple[int, ...]


def matching(old: Program, new: Program, by_hand: Collection[str] = ()) -> dict[str, Match]:
    """For every map of `new` that `old` has too, by name: which it is there.

    `by_hand` are maps of both that hold what their statements make of them, whatever their definitions.
    """
    known: dict[object, tuple[str, tuple[int, ...]]] = {}
    for declaration in old.maps:
        if declaration.name not in by_hand:
            form, places = definition_form(declaration)
            known.setdefault(form, (declaration.name, places))
    found = {}
    for declaration in new.maps:
        if declaration.name in by_hand:
            found[declaration.name] = Match(declaration.name, tuple(range(len(declaration.keys))))
            continue
        form, places = definition_form(declaration)
        if form in known:
            name, old_places = known.pop(form)
            by_own = dict(zip(places, old_places, strict=True))
            found[declaration.name] = Match(name, tuple(by_own[i] for i in range(len(places))))
    return found


def definition_form(declaration: MapDeclaration) -> tuple[object, tuple[int, ...]]:
    """What a map holds, the same for equal maps, and where its canonical keys are among its own."""
    kind = declaration.type.kind
    if declaration.definition == ZERO:
        # Only the name says what it holds.
        return (kind, declaration.name, declaration.key_types), tuple(range(len(declaration.keys)))
    form, places = canonical(declaration.keys, declaration.definition)
    return (kind, form), places


def rounded_together(program: Program) -> list[frozenset[str]]:
    """Maps of doubles with those that statements make of them; each map in one set at most.

    A rank by a sum of doubles, and what a condition on it counts, follow the sum as it was rounded. Added up
    in another order it may be rounded otherwise, so that they are taken over, or filled anew, with it.
    """
    filled = {m.name for m in program.maps if m.definition != ZERO}
    doubles = {m.name for m in program.maps if m.type.kind is Kind.DOUBLE} & filled
    if not doubles:
        return []
    sets: dict[str, set[str]] = {}
    for statement in (s for t in program.triggers for s in t.statements if s.target in filled):
        read = maps_read(statement.value) & doubles - {statement.target}
        if not read:
            continue
        joined = {statement.target, *read}.union(*(sets.get(m, ()) for m in (statement.target, *read)))
        sets |= dict.fromkeys(joined, joined)
    return list({id(found): frozenset(found) for found in sets.values()}.values())


def matched_together(program: Program, matches: Mapping[str, Match]) -> dict[str, Match]:
    """The matches of a program's maps, but for those that are rounded together with one that has none."""
    apart = [found for found in rounded_together(program) if not found <= matches.keys()]
    return {name: match for name, match in matches.items() if not any(name in found for found in apart)}


def relations_to_fill(program: Program, matches: Mapping[str, Match]) -> frozenset[str]:
    """The relations that the maps without a match are made of."""
    read = {name for m in program.maps if m.name not in matches for name in relations(m.definition)}
    return frozenset(name for one in read for name in program.made_of(one))


# Rows are read in parts of this many, so that nothing is held twice.
PART = 1 << 16


@dataclass(frozen=True, slots=True)
class Entries:
    """`n` entries of a map, each key once.

    keys: int64[n, k], encoded as in a ChangeBatch.
    words: int64[n, m], m >= 2: an exact value as two's complement in words of 64 bits, the lowest first;
        a double as the bits of m doubles whose exact sum it is, the largest first.
    """

    keys: NDArray[np.int64]
    words: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.keys)

    def with_keys(self, places: Sequence[int]) -> "Entries":
        """The entries with key column `places[i]` as column i."""
        return Entries(np.ascontiguousarray(self.keys[:, list(places)]), self.words)


@dataclass(frozen=True, slots=True)
class MapColumn:
    """Where a map's words are in the rows of a MapRows: `count` columns from `at` on, of doubles or not."""

    name: str
    at: int
    count: int
    double: bool


@dataclass(frozen=True, slots=True)
class MapRows:
    """The entries of maps that have their keys in common, a row for each key.

    rows: int64[n, width], here or in a file; other columns than those named below mean nothing.
    keys: for each key the column it is in, encoded as in Entries.
    maps: the maps' words as in Entries, but a single one is an int64. A map whose words are all 0 in a row
        has no entry there.
    """

    rows: ArrayRows
    keys: tuple[int, ...]
    maps: tuple[MapColumn, ...]

    def __len__(self) -> int:
        return len(self.rows)

    def entries(self, column: MapColumn, rows: NDArray[np.int64]) -> Entries:
        """The entries of one of the maps in some of the rows, int64[n, width], copied."""
        words = np.empty((len(rows), max(2, column.count)), np.int64)
        words[:, : column.count] = rows[:, column.at : column.at + column.count]
        if column.count == 1:
            words[:, 1] = words[:, 0] >> 63
        there = (words.view(np.float64) if column.double else words).any(axis=1)
        return Entries(np.ascontiguousarray(rows[there][:, list(self.keys)]), words[there])

    def parts(self, codes: NDArray[np.int64] | None, types: Sequence[Type]) -> Iterator[dict[str, Entries]]:
        """Every map's entries in parts of `parts_of`, TEXT keys recoded; `types` are those of the keys."""
        texts = [i for i, kind in enumerate(types) if kind.kind is Kind.TEXT]
        for rows in parts_of(self.rows):
            found = {c.name: self.entries(c, rows) for c in self.maps}
            for entries in found.values():
                recode(entries.keys, texts, codes)
            yield found


def parts_of(rows: ArrayRows) -> Iterator[NDArray[np.int64]]:
    """All rows in parts, int64[n, width] or int64[n]."""
    for start in range(0, len(rows), PART):
        yield rows[start : start + PART]


def recode(rows: NDArray[np.int64], columns: Sequence[int], codes: NDArray[np.int64] | None) -> None:
    """Replaces dictionary codes in columns of int64[n, width] by `codes[code]`; None: all stay."""
    if codes is None:
        return
    for column in columns:
        there = rows[:, column] != NULL_CODE
        rows[there, column] = codes[rows[there, column]]


def exact_words(values: Sequence[int]) -> NDArray[np.int64]:
    """Exact values as words, int64[n, m], as many as the largest needs, 2 at least."""
    count = max([2, *(v.bit_length() // 64 + 1 for v in values)])
    data = b"".join(v.to_bytes(8 * count, "little", signed=True) for v in values)
    return np.frombuffer(data, np.int64).reshape(len(values), count)


def exact_values(words: NDArray[np.int64]) -> list[int]:
    """The values of `exact_words`, of int64[n, m]."""
    size = 8 * words.shape[1]
    data = np.ascontiguousarray(words).tobytes()
    return [int.from_bytes(data[at : at + size], "little", signed=True) for at in range(0, len(data), size)]


def double_words(values: Sequence[Fraction]) -> NDArray[np.int64]:
    """Sums of doubles as the bits of the doubles that add up to them, exactly: int64[n, m]."""
    parts = [_parts(value) for value in values]
    found = np.zeros((len(parts), max([2, *map(len, parts)])))
    for row, own in enumerate(parts):
        found[row, : len(own)] = own
    return found.view(np.int64)


def _parts(value: Fraction) -> list[float]:
    parts = []
    while value:
        nearest = float(value)
        parts.append(nearest)
        value -= Fraction(nearest)
        if nearest == 0.0:
            break
    return parts


def double_values(words: NDArray[np.int64]) -> list[Fraction]:
    """The values of `double_words`, of int64[n, m]."""
    return [
        sum(map(Fraction, row), Fraction(0)) for row in np.ascontiguousarray(words).view(np.float64).tolist()
    ]


@dataclass(frozen=True, slots=True)
class RowCounts:
    """A multiset of rows.

    relation: its index in `program.relations`. rows: int64[n, width], encoded as in a ChangeBatch. counts:
    int64[n]. checked: whether the relation is fed with checked changes only.
    """

    relation: int
    rows: ArrayRows
    counts: ArrayRows
    checked: bool = False

    def parts(
        self, relation: Relation, codes: NDArray[np.int64] | None
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Rows, int64[n, width], and counts, int64[n], in parts, TEXT columns recoded (see `recode`)."""
        texts = text_columns(relation)
        for part, counts in zip(parts_of(self.rows), parts_of(self.counts), strict=True):
            rows = part.copy()
            recode(rows, texts, codes)
            yield rows, counts


@dataclass(frozen=True, slots=True)
class ExpiringRows:
    """The rows of a relation, by its index, that have not expired.

    segments: int64[n, width] each, in the order in which they are looked at. fresh: int64[n, width], rows
    in no segment yet. deleted: rows that were deleted before, and how often.
    """

    relation: int
    segments: tuple[NDArray[np.int64], ...]
    fresh: NDArray[np.int64]
    deleted: RowCounts


def text_columns(relation: Relation) -> list[int]:
    """The places of a relation's TEXT columns."""
    return [i for i, column in enumerate(relation.columns) if column.type.kind is Kind.TEXT]
