"""A state taken out of the parts of an engine, and put into those of another, of any program.

An engine that has had views added gives a state as the engine of the program before would have it. A
state of one program becomes one of another: what both hold is taken over, the rest is filled from rows.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from orderbook.core.errors import DataError, Problems
from orderbook.engine.runtime.engine_state import EngineState, Layout, codes_of, layout_of, program_hash
from orderbook.engine.runtime.held_rows import HeldRows, Rows, inserts
from orderbook.engine.runtime.interface import Runtime
from orderbook.engine.runtime.map_entries import (
    ExpiringRows,
    MapColumn,
    MapRows,
    Match,
    RowCounts,
    exact_values,
    matched_together,
    matching,
    recode,
    relations_to_fill,
    text_columns,
)
from orderbook.engine.runtime.measures import maps_of
from orderbook.views.calculus import relations
from orderbook.views.m3_link import maps_by_hand
from orderbook.views.program import CompiledProgram
from orderbook.views.types import CLOCK, Kind


class OtherProgram(DataError):
    """A state lacks something that the other program has."""


def state_for(state: EngineState, program: CompiledProgram, other: CompiledProgram) -> EngineState:
    """A state of `program` as one of `other`, all of whose views are in it; arrays are shared.

    Raises OtherProgram where a view of `other` has been dropped.
    """
    digest = program_hash(other)
    if state.program == digest:
        return state
    by_hand = maps_by_hand(program.texts) & maps_by_hand(other.texts)
    matches = matching(program.program, other.program, by_hand)
    count = len(other.relations)
    if any(m.name not in matches for m in other.program.maps) or program.relations[:count] != other.relations:
        raise OtherProgram("views that the state is wanted for have been dropped; add them again")
    return replace(
        state,
        program=digest,
        maps=tuple(part for rows in state.maps for part in renamed(rows, matches)),
        checked=None if state.checked is None else tuple(r for r in state.checked if r.relation < count),
        kept=None if state.kept is None else tuple(r for r in state.kept if r.relation < count),
        expiring=tuple(e for e in state.expiring if e.relation < count),
    )


def renamed(rows: MapRows, matches: Mapping[str, Match]) -> Iterator[MapRows]:
    """The maps that have a match, by the names and in the order of keys of the other program."""
    found: defaultdict[tuple[int, ...], list[MapColumn]] = defaultdict(list)
    own = {column.name: column for column in rows.maps}
    for name, match in matches.items():
        if match.name in own:
            found[match.places].append(replace(own[match.name], name=name))
    for places, columns in found.items():
        yield MapRows(rows.rows, tuple(rows.keys[place] for place in places), tuple(columns))


@dataclass(frozen=True, slots=True)
class FedRows:
    """The rows of a relation that something else than streams feeds.

    rows: gives them as the new program has them; None: nobody knows them. checked: its changes are.
    """

    rows: Callable[[], Rows | None]
    checked: bool


class NotCarriedOver(DataError):
    """A state that cannot be made into one of another program, and what to do."""


@dataclass(frozen=True, slots=True)
class CarriedOver:
    """A state of the new program, the views that show what they showed, and relations that it has not."""

    state: EngineState
    alike: frozenset[str]
    dropped: tuple[str, ...]


def carried_over(
    state: EngineState,
    layout: Layout,
    program: CompiledProgram,
    start: Callable[[], Runtime],
    keeps: bool,
    others: Mapping[str, FedRows],
) -> CarriedOver:
    """Makes a state whose program had this layout into one of `program`.

    start: makes an empty runtime of it. keeps: it keeps the rows of all relations. others: rows of relations
    that are fed from elsewhere. Raises NotCarriedOver where a relation is declared otherwise, or the rows are
    not known that a new view, or keeping all rows, needs.
    """
    own = layout_of(program)
    _check_declarations(layout, program)
    codes = codes_of(program.dictionary, state.strings)
    source = _Rows(state, layout, program, codes, others)
    matches = matched_together(program.program, layout.matches(own))
    needed = sorted(relations_to_fill(program.program, matches))
    rows = {name: source.known(name) for name in needed}
    unknown = frozenset(name for name, found in rows.items() if found is None)
    if unknown:
        raise _not_filled(program, matches, unknown)
    filled = _filled(program, start, {name: found for name, found in rows.items() if found is not None})
    maps = tuple(part for held in state.maps for part in _recoded(held, matches, program, codes))
    names = [relation.name for relation in program.relations]
    made = EngineState(
        program=program_hash(program),
        sequence=state.sequence,
        stamp=state.stamp,
        switch=state.switch,
        now=state.now,
        maps=(*maps, *_without(filled, matches)),
        checked=None if state.checked is None else tuple(source.checked()),
        kept=tuple(source.kept()) if keeps else None,
        expiring=tuple(source.expiring()),
        strings=program.dictionary.strings(),
        problems=state.problems,
        examples=state.examples,
    )
    dropped = tuple(one.name for one in layout.relations if one.name not in names)
    return CarriedOver(made, layout.alike(own), dropped)


def _check_declarations(layout: Layout, program: CompiledProgram) -> None:
    before = {one.name: one for one in layout.relations}
    for relation in program.relations:
        change = before[relation.name].change(relation) if relation.name in before else None
        if change is not None:
            raise NotCarriedOver(
                f"{relation.name} is declared otherwise than in the run before: {change}; declare it as it "
                "was, or give the log another folder to begin anew"
            )


def _not_filled(
    program: CompiledProgram, matches: Mapping[str, Match], unknown: frozenset[str]
) -> NotCarriedOver:
    """The views that read relations whose rows nobody kept."""
    lacking = {
        m.name
        for m in program.program.maps
        if m.name not in matches
        and any(program.program.made_of(r) & unknown for r in relations(m.definition))
    }
    views = [r.name for r in program.program.results if maps_of(program.program, r.name) & lacking]
    which = f"view{'s' * (len(views) > 1)} {', '.join(views)}"
    return NotCarriedOver(
        f"{which} cannot be filled: the rows of {', '.join(sorted(unknown))} were not kept, and the "
        f"beginning of the log, which had them, is gone; go on without {which} as before, or give the log "
        "another folder to begin anew; from then on, keep_log = true in [log] or keep_rows = true in "
        "[engine] keeps them"
    )


def _filled(
    program: CompiledProgram, start: Callable[[], Runtime], rows: Mapping[str, Rows]
) -> tuple[MapRows, ...]:
    """All maps of a program as these rows alone make them; those that need no other rows are right."""
    runtime = start()
    try:
        runtime.fill(inserts(rows, program.program))
        return runtime.copied()
    finally:
        runtime.close()


def _without(maps: Sequence[MapRows], matches: Mapping[str, Match]) -> Iterator[MapRows]:
    for rows in maps:
        columns = tuple(column for column in rows.maps if column.name not in matches)
        if columns:
            yield replace(rows, maps=columns)


def _recoded(
    held: MapRows, matches: Mapping[str, Match], program: CompiledProgram, codes: NDArray[np.int64] | None
) -> Iterator[MapRows]:
    """The maps that have a match, as the program calls them, with its codes of strings."""
    for part in renamed(held, matches):
        types = program.program.map(part.maps[0].name).key_types
        texts = [part.keys[place] for place, kind in enumerate(types) if kind.kind is Kind.TEXT]
        if codes is None or not texts:
            yield part
            continue
        rows = np.array(part.rows[:])
        recode(rows, texts, codes)
        yield replace(part, rows=rows)


class _Rows:
    """The rows of relations in a state, encoded as another program has them."""

    def __init__(
        self,
        state: EngineState,
        layout: Layout,
        program: CompiledProgram,
        codes: NDArray[np.int64] | None,
        others: Mapping[str, FedRows],
    ) -> None:
        self._state, self._layout, self._program = state, layout, program
        self._codes, self._others = codes, others
        self._before = {one.name: place for place, one in enumerate(layout.relations)}
        self._found: dict[str, Rows | None] = {}

    def known(self, name: str) -> Rows | None:
        """The rows of a relation and how often each stands; None where nobody knows them."""
        if name not in self._found:
            self._found[name] = self._rows(name)
        return self._found[name]

    def checked(self) -> Iterator[RowCounts]:
        """What is known of the relations whose deletes are checked."""
        saved = {one.relation: one for one in self._state.checked or ()}
        for index, relation in enumerate(self._program.relations):
            held = saved.get(self._before.get(relation.name, -1))
            other = self._others.get(relation.name)
            if other is not None and not other.checked:
                rows = other.rows()
                if rows is not None and len(rows[0]):
                    yield RowCounts(index, *rows)
            elif held is not None and held.checked:
                yield replace(held, relation=index)
            elif held is not None:
                yield self._encoded(held, index)

    def kept(self) -> Iterator[RowCounts]:
        """The rows of all relations. Raises NotCarriedOver where some are not known."""
        unknown = [r.name for r in self._program.relations if self.known(r.name) is None]
        if unknown:
            raise NotCarriedOver(
                f"keep_rows is set now, and the rows of {', '.join(unknown)} were not kept before; go on "
                "without it, or give the log another folder to begin anew"
            )
        for index, relation in enumerate(self._program.relations):
            rows = self.known(relation.name)
            if rows is not None and len(rows[0]):
                yield RowCounts(index, *rows)

    def expiring(self) -> Iterator[ExpiringRows]:
        """The rows of relations with RETAIN that have not expired."""
        names = [relation.name for relation in self._program.relations]
        for one in self._state.expiring:
            name = self._layout.relations[one.relation].name
            if name in names:
                yield self._expiring(one, names.index(name))

    def _rows(self, name: str) -> Rows | None:
        state, place, names = self._state, self._before.get(name), [r.name for r in self._program.relations]
        width = len(self._program.relations[names.index(name)].columns)
        nothing = np.empty((0, width), np.int64), np.empty(0, np.int64)
        if name == CLOCK:
            ticks = [] if state.now is None else [state.now]
            return np.array(ticks, np.int64).reshape(-1, 1), np.ones(len(ticks), np.int64)
        if place is None:
            return nothing
        if state.kept is not None:
            held = next((one for one in state.kept if one.relation == place), None)
            return nothing if held is None else self._counted(held, names.index(name))
        held = next((one for one in state.checked or () if one.relation == place), None)
        if held is not None and not held.checked:
            return self._counted(held, names.index(name))
        if name in self._others:
            found = self._others[name].rows()
            return self._of_map(name) if found is None else found
        if held is None and state.checked is not None:
            # Nothing has been fed to it.
            return nothing
        return self._of_map(name)

    def _of_map(self, name: str) -> Rows | None:
        """From a map that counts the relation's whole rows."""
        relation = next(one for one in self._program.relations if one.name == name)
        found = self._layout.rows_of(relation)
        if found is None:
            return None
        map_name, places = found
        for held in self._state.maps:
            for column in held.maps:
                if column.name == map_name:
                    return self._map_rows(held, column, places, text_columns(relation))
        return None

    def _map_rows(
        self, held: MapRows, column: MapColumn, places: Sequence[int], texts: Sequence[int]
    ) -> Rows:
        entries = held.entries(column, held.rows[:])
        rows = np.ascontiguousarray(entries.keys[:, list(places)])
        recode(rows, texts, self._codes)
        return rows, np.array(exact_values(entries.words), np.int64)

    def _encoded(self, held: RowCounts, index: int) -> RowCounts:
        rows, counts = self._counted(held, index)
        return RowCounts(index, rows, counts, held.checked)

    def _counted(self, held: RowCounts, index: int) -> Rows:
        rows, counts = np.array(held.rows[:]), held.counts[:]
        recode(rows, text_columns(self._program.relations[index]), self._codes)
        return rows, counts

    def _expiring(self, one: ExpiringRows, index: int) -> ExpiringRows:
        texts = text_columns(self._program.relations[index])

        def encoded(rows: NDArray[np.int64]) -> NDArray[np.int64]:
            made = np.array(rows)
            recode(made, texts, self._codes)
            return made

        deleted = self._encoded(one.deleted, index)
        return ExpiringRows(index, tuple(map(encoded, one.segments)), encoded(one.fresh), deleted)


def saved_state(
    program: CompiledProgram,
    runtime: Runtime,
    rows: HeldRows,
    at: tuple[int, int | None, int],
    problems: Problems,
) -> EngineState:
    """A copy of all that an engine holds between two messages; `at`: its sequence, stamp and switch."""
    sequence, stamp, switch = at
    return EngineState(
        program=program_hash(program),
        sequence=sequence,
        stamp=stamp,
        switch=switch,
        now=rows.clock.now,
        maps=runtime.copied(),
        checked=rows.store.checked_rows() if rows.store.checks else None,
        kept=rows.store.kept_rows() if rows.store.keeps else None,
        expiring=rows.store.expiring_rows(),
        # After the maps, so that every code in them is among the strings.
        strings=program.dictionary.strings(),
        problems=dict(problems.counts),
        examples={kind: list(found) for kind, found in problems.examples.items()},
    )


def restore_state(
    state: EngineState, program: CompiledProgram, runtime: Runtime, rows: HeldRows, problems: Problems
) -> None:
    """Puts a state into the parts of an engine.

    Raises DataError, and changes nothing, where it does not fit.
    """
    if state.program != program_hash(program):
        raise DataError("the state is of another program; replay the stream from its beginning")
    rows.require(state)
    codes = codes_of(program.dictionary, state.strings)
    runtime.restore(state.maps, codes)
    rows.restore(state, codes)
    problems.clear()
    problems.counts.update(state.problems)
    problems.examples.update({kind: list(found) for kind, found in state.examples.items()})
