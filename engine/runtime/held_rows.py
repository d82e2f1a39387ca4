"""What an engine keeps beside its maps: the time, and the rows of relations.

Time is data: a tick replaces the one row of `clock`, and deletes the rows that expire with it.

The rows of base relations as they are now, wherever they are held, are what a new view is filled from;
`hand_over` says which of them a program needs that takes the place of another, and which maps it takes
over.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from orderbook.core.changes import CHECKED, END_OF_EVENT, END_OF_MESSAGE, ChangeBatch, Dictionary
from orderbook.core.errors import DataError
from orderbook.engine.runtime.engine_state import EngineState
from orderbook.engine.runtime.interface import Runtime
from orderbook.engine.runtime.map_entries import (
    Match,
    exact_values,
    matched_together,
    matching,
    relations_to_fill,
    rounded_together,
)
from orderbook.engine.runtime.relation_store import RelationStore, RowsCopy
from orderbook.views.calculus import Rel, Var, relations
from orderbook.views.m3 import MapDeclaration, Program
from orderbook.views.m3_link import maps_by_hand
from orderbook.views.program import CompiledProgram
from orderbook.views.types import CLOCK, Kind, Relation

# Rows int64[n, width], and how often each stands, int64[n].
Rows = tuple[NDArray[np.int64], NDArray[np.int64]]
# So few that making them never keeps another thread waiting for long.
_CHUNK = 1 << 13


def rows_source(name: str, program: Program, runtime: Runtime, store: RelationStore) -> Callable[[], Rows]:
    """What gives the rows of a relation now. Raises DataError where nobody holds them."""
    names = [r.name for r in program.relations]
    if name not in names:
        return lambda: (np.empty((0, 1), np.int64), np.empty(0, np.int64))
    index = names.index(name)
    if store.holds(index):
        return partial(store.rows, index)
    for declaration in program.maps:
        places = _whole(declaration, name)
        if places is not None:
            return partial(_rows_of_map, runtime, declaration.name, places)
    raise not_kept(name)


def _rows_of_map(runtime: Runtime, name: str, places: list[int]) -> Rows:
    entries = runtime.entries(name)
    rows = np.ascontiguousarray(entries.keys[:, places])
    return rows, np.array(exact_values(entries.words), np.int64)


class MarkedRows(Protocol):
    """Rows as they were at one moment, in any thread."""

    def rows(self, relations: Sequence[str]) -> Mapping[str, Rows]:
        """The rows of relations. Raises DataError."""

    def counted(self, changes: ChangeBatch) -> ChangeBatch:
        """Changes since that moment, the numbers of whose rows go on from those of `rows`, read before."""

    def join(self) -> None:
        """What comes from now on has such numbers by itself. On the engine's thread."""


class PastRows(Protocol):
    """Gives rows of relations that nobody holds, as the log of a run does."""

    def lacks(self, relation: str) -> str | None:
        """Why it does not have those of a relation; None where it has."""

    def mark(self, relations: Sequence[str]) -> MarkedRows | None:
        """The rows of relations as they are now, of which changes are noted; None: not between these
        messages."""


class RelationsCopy:
    """A copy of the rows of relations that is made in pieces: all as of the moment of the last piece.

    Kept rows are copied in pieces of about a millisecond; those that are held otherwise, in `whole`, at the
    end and at once. The rows of `noted`, which nobody holds, are those that `past` gives of that moment.
    """

    def __init__(
        self,
        kept: Mapping[str, RowsCopy],
        whole: Mapping[str, Callable[[], Rows]],
        past: PastRows | None = None,
        noted: Sequence[str] = (),
    ) -> None:
        self._kept, self._whole, self._past, self.noted = kept, whole, past, tuple(noted)
        self._left = list(kept.values())
        self._found: dict[str, Rows] = {}
        self._read: MarkedRows | None = None

    def piece(self) -> bool:
        """Copies a piece, on the engine's thread between two changes; whether it was the last."""
        if self._left and self._left[0].piece():
            self._left.pop(0)
        if self._left:
            return False
        if self.noted and self._past is not None:
            self._read = self._past.mark(self.noted)
            if self._read is None:
                return False
        for copy in self._kept.values():
            copy.finish()
        self._found = {name: rows() for name, rows in self._whole.items()}
        return True

    def rows(self) -> dict[str, Rows]:
        """The rows by relation, after the last piece; in any thread. Raises DataError where `past` fails."""
        noted = {} if self._read is None else self._read.rows(self.noted)
        return {**self._found, **{name: copy.rows() for name, copy in self._kept.items()}, **noted}

    def counted(self, changes: ChangeBatch) -> ChangeBatch:
        """See MarkedRows, after `rows`."""
        return changes if self._read is None else self._read.counted(changes)

    def join(self) -> None:
        """See MarkedRows."""
        if self._read is not None:
            self._read.join()


def not_kept(relation: str, past: PastRows | None = None) -> DataError:
    """What cannot be filled, and what to do; past: what gives rows in the background."""
    rows = f"the rows of {relation} are not kept"
    if past is None:
        return DataError(
            f"{rows}, so a view of them cannot be filled; start with Engine(keep_rows=True), or keep_rows = "
            "true in [engine]; a run fills it from a log that has its beginning (keep_log = true in [log])"
        )
    if (why := past.lacks(relation)) is None:
        return DataError(f"{rows}; add the view with background=True, which fills it from the run's log")
    return DataError(
        f"{rows}, and {why}; give the view to the run at its start, or start it with keep_rows = true in "
        "[engine]"
    )


def _whole(declaration: MapDeclaration, relation: str) -> list[int] | None:
    """Where a map that counts a relation's whole rows has each column among its keys."""
    match declaration.definition.terms:
        case ((Rel(name, args),),) if name == relation:
            columns = [a for a in args if isinstance(a, Var)]
            if len(set(columns)) == len(args) and set(columns) == set(declaration.keys):
                return [declaration.keys.index(c) for c in columns]
    return None


def inserts(relations: Mapping[str, Rows], program: Program) -> Iterator[ChangeBatch]:
    """The rows of relations as changes, each an event of its own; a negative count is of deletes."""
    names = [r.name for r in program.relations]
    for name, (rows, counts) in relations.items():
        if not len(rows):
            continue
        places = np.repeat(np.arange(len(rows)), np.abs(counts))
        kinds = (2 * names.index(name) + (counts < 0)).astype(np.int16)
        for start in range(0, len(places), _CHUNK):
            chosen = places[start : start + _CHUNK]
            flags = np.full(len(chosen), END_OF_EVENT | END_OF_MESSAGE, np.uint8)
            yield ChangeBatch(kinds[chosen], flags, np.ascontiguousarray(rows[chosen]))


def hand_over(
    old: CompiledProgram, new: CompiledProgram, known: Collection[str], past: PastRows | None = None
) -> tuple[dict[str, Match], frozenset[str]]:
    """The maps that a program takes over from another, and the relations that the others are filled from.

    known: the relations of the old program whose rows are there, also by `past`. Raises DataError where
    others are needed.
    """
    by_hand = maps_by_hand(old.texts) & maps_by_hand(new.texts)
    matches = matched_together(new.program, matching(old.program, new.program, by_hand))
    needed = relations_to_fill(new.program, matches)
    unknown = {r.name for r in old.relations} - set(known)
    for name in sorted(needed & unknown):
        raise not_kept(name, past)
    rounded = frozenset[str]().union(*rounded_together(new.program))
    for declaration in new.program.maps:
        # What is filled anew is the same, but for the rounding of doubles and M3 written by hand.
        same = declaration.type.kind is not Kind.DOUBLE and declaration.name not in rounded | by_hand
        if same and matches and relations(declaration.definition) <= needed:
            matches.pop(declaration.name, None)
    return matches, needed


class Clock:
    """Time as views see it: the last tick, in ns since 1970 UTC; None before the first.

    store: the rows of relations, of which a tick deletes those that expire.
    """

    def __init__(self, relations: Sequence[Relation], store: RelationStore):
        self.now: int | None = None
        self._store = store
        self._index = next((i for i, r in enumerate(relations) if r.name == CLOCK), None)

    def extend(self, relations: Sequence[Relation]) -> None:
        """Takes the relations of a program that begins with those known."""
        self._index = next((i for i, r in enumerate(relations) if r.name == CLOCK), None)

    def rows(self) -> Rows:
        """The rows of `clock`, int64[n, 1], and how often each stands."""
        shown = [] if self.now is None else [self.now]
        return np.array(shown, np.int64).reshape(-1, 1), np.ones(len(shown), np.int64)

    def tick(self, now: int) -> Iterator[ChangeBatch]:
        """The events of a tick, one message: the row replaced, then the rows that expire deleted.

        Nothing where the clock shows `now` already. Raises DataError for a time before that.
        """
        if not isinstance(now, int) or isinstance(now, bool):
            raise DataError(f"tick: {now!r} is not a time; give an int, ns since 1970 UTC")
        if self.now is not None and now <= self.now:
            if now < self.now:
                raise DataError(f"tick: {now} is before the clock's {self.now}; time does not go back")
            return
        before, self.now = self.now, now
        expired = self._store.expired(now)
        last = END_OF_EVENT | (0 if expired else END_OF_MESSAGE)
        if self._index is not None:
            rows = [[now]] if before is None else [[before], [now]]
            kinds = np.array([2 * self._index + 1, 2 * self._index][-len(rows) :], np.int16)
            flags = np.full(len(rows), CHECKED, np.uint8)
            flags[-1] |= last
            yield ChangeBatch(kinds, flags, np.array(rows, np.int64))
        for place, (index, rows_gone) in enumerate(expired):
            flags = np.full(len(rows_gone), CHECKED * self._store.believes(index), np.uint8)
            flags[-1] |= END_OF_EVENT | (END_OF_MESSAGE if place == len(expired) - 1 else 0)
            yield ChangeBatch(np.full(len(rows_gone), 2 * index + 1, np.int16), flags, rows_gone)


class HeldRows:
    """The clock, and the rows of relations: those that are checked, and with `keep` all."""

    def __init__(self, relations: Sequence[Relation], dictionary: Dictionary, check: bool, keep: bool):
        self.store = RelationStore(relations, dictionary, check, keep)
        self.clock = Clock(relations, self.store)

    def extend(self, relations: Sequence[Relation]) -> None:
        """Takes the relations of a program that begins with those known."""
        self.store.extend(relations)
        self.clock.extend(relations)

    def rows_source(self, relation: str, program: Program, runtime: Runtime) -> Callable[[], Rows]:
        """What gives the rows of a relation, as `rows_of` of an engine. Raises DataError."""
        if relation == CLOCK:
            return self.clock.rows
        return rows_source(relation, program, runtime, self.store)

    def copy(
        self,
        sources: Mapping[str, Callable[[], Rows]],
        relations: Sequence[Relation],
        past: PastRows | None = None,
        noted: Sequence[str] = (),
    ) -> RelationsCopy:
        """A copy, to be made in pieces, of relations that `sources` or `past` (`noted`) give the rows of."""
        index = {relation.name: place for place, relation in enumerate(relations)}
        own = [n for n in sources if n in index and n != CLOCK and self.store.holds(index[n])]
        kept = {name: self.store.copy(index[name]) for name in own}
        whole = {name: rows for name, rows in sources.items() if name not in kept}
        return RelationsCopy(kept, whole, past, noted)

    def require(self, state: EngineState) -> None:
        """Raises DataError where a state lacks rows that are to be kept."""
        for wanted, saved, option in (
            (self.store.keeps, state.kept, "keep_rows"),
            (self.store.checks, state.checked, "check_rows"),
        ):
            if wanted and saved is None:
                raise DataError(f"the state was saved without {option}; replay the stream")

    def restore(self, state: EngineState, codes: NDArray[np.int64] | None) -> None:
        """Replaces all rows and the time by those of a state; `codes` as in Runtime.restore."""
        self.clock.now = state.now
        self.store.restore(state.checked or (), state.kept or (), state.expiring, codes)
