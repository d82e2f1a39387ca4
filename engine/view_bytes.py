"""Which maps a view needs, and what of theirs it answers for: bytes, or time."""

from collections import Counter
from collections.abc import Mapping

from views.compiler.calculus import maps_read
from views.compiler.m3 import Program


def maps_of(program: Program, view: str) -> frozenset[str]:
    """The maps that a view is read from, and those that keep them fresh."""
    result = program.result(view)
    statements = [*program.initial, *(s for t in program.triggers for s in t.statements)]
    needed: set[str] = set()
    found = {name for _, poly in result.lets for name in maps_read(poly)}
    found |= {result.multiplicity} if result.multiplicity else set()
    while found - needed:
        needed |= found
        found = {name for s in statements if s.target in needed for name in maps_read(s.value)}
        found |= {m.count for m in program.maps if m.name in needed and m.count}
    return frozenset(needed)


def shared_by_views(program: Program, of_maps: Mapping[str, int]) -> dict[str, int]:
    """What falls to every view; what a map has is shared evenly by the views that need it, rounded up."""
    needed = {result.name: maps_of(program, result.name) for result in program.results}
    sharers = Counter(name for maps in needed.values() for name in maps)
    return {view: sum(-(-of_maps[name] // sharers[name]) for name in maps) for view, maps in needed.items()}
