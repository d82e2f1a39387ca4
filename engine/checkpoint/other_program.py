"""A state of an engine that has had views added, as the engine of the program before would have it."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace

from engine.map_entries import MapColumn, MapRows
from engine.map_matching import Match, matching
from orderbook.errors import DataError
from views.compiler.m3_text.m3_link import maps_by_hand
from views.compiler.program import CompiledProgram

from .program_hash import program_hash
from .state import EngineState


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
