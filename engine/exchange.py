"""What a program takes over from the one that it replaces, and what it is filled from."""

from collections.abc import Collection

from views.compiler.calculus import relations
from views.compiler.m3_text.m3_link import maps_by_hand
from views.compiler.program import CompiledProgram
from views.compiler.types import Kind

from .map_matching import Match, matching, relations_to_fill
from .relation_rows import not_kept


def exchange(
    old: CompiledProgram, new: CompiledProgram, known: Collection[str]
) -> tuple[dict[str, Match], frozenset[str]]:
    """The maps that a program takes over from another, and the relations that the others are filled from.

    known: the relations of the old program whose rows are there. Raises DataError where others are needed.
    """
    by_hand = maps_by_hand(old.texts) & maps_by_hand(new.texts)
    matches = matching(old.program, new.program, by_hand)
    needed = relations_to_fill(new.program, matches)
    unknown = {r.name for r in old.relations} - set(known)
    for name in sorted(needed & unknown):
        raise not_kept(name)
    for declaration in new.program.maps:
        # What is filled anew is the same, but for the rounding of doubles and M3 written by hand.
        same = declaration.type.kind is not Kind.DOUBLE and declaration.name not in by_hand
        if same and matches and relations(declaration.definition) <= needed:
            matches.pop(declaration.name, None)
    return matches, needed
