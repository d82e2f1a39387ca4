"""Which maps of two programs hold the same, whatever they are called: by their canonical definitions."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from views.compiler.calculus import ZERO, relations
from views.compiler.m3 import MapDeclaration, Program
from views.compiler.rewriting.canonical import canonical


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


def relations_to_fill(program: Program, matches: Mapping[str, Match]) -> frozenset[str]:
    """The relations that the maps without a match are made of."""
    return frozenset(name for m in program.maps if m.name not in matches for name in relations(m.definition))
