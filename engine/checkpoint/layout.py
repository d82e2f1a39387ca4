"""What the maps, relations and views of a state mean, in a checkpoint: by it another program takes them over.

A map or view is known by a digest of what it holds, whatever it is called, so that it is found again in a
program that has it too, also one that another version of the compiler made.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence

import msgspec

from engine.map_matching import Match
from views.compiler.calculus import ZERO, Poly, Rel, Var
from views.compiler.m3 import MapDeclaration, Result
from views.compiler.m3_text.m3_link import is_m3, maps_by_hand
from views.compiler.m3_text.m3_print import poly_text, result_text
from views.compiler.program import CompiledProgram
from views.compiler.rewriting.canonical import canonical
from views.compiler.types import Kind, Relation

_NAME = re.compile(r"\w+")


class SavedColumn(msgspec.Struct, frozen=True):
    """A column: its kind, decimal places, and the range that its values are in."""

    name: str
    kind: str
    scale: int
    low: int
    high: int
    nullable: bool


class SavedRelation(msgspec.Struct, frozen=True):
    """A relation as it was declared; see `Relation`."""

    name: str
    columns: tuple[SavedColumn, ...]
    max_rows: int
    primary_key: tuple[str, ...] = ()
    retain: int | None = None
    retain_by: str | None = None

    def change(self, now: Relation) -> str | None:
        """How a declaration takes less than this one, so that rows of then may not be rows of now."""
        own, theirs = [c.name for c in self.columns], [c.name for c in now.columns]
        if own != theirs:
            return f"its columns were {', '.join(own)}"
        for before, after in zip(self.columns, now.columns, strict=True):
            kind = after.type
            if (before.kind, before.scale) != (kind.kind.value, kind.scale):
                scale = f" of scale {before.scale}" if before.scale else ""
                return f"{before.name} was {before.kind}{scale}"
            if before.nullable and not after.nullable:
                return f"{before.name} took NULL"
            numeric = kind.kind not in (Kind.TEXT, Kind.DOUBLE)
            if numeric and (before.low < kind.low or before.high > kind.high):
                return f"{before.name} took more values"
        if now.max_rows < self.max_rows:
            return f"it took max_rows = {self.max_rows} rows"
        if (self.retain, self.retain_by) != (now.retain, now.retain_by):
            return "it had another RETAIN"
        if now.primary_key and now.primary_key != self.primary_key:
            return "it had another PRIMARY KEY"
        return None


class SavedMap(msgspec.Struct, frozen=True):
    """A map: what it holds, and where the keys of the canonical definition are among its own."""

    name: str
    digest: bytes
    places: tuple[int, ...]


class Layout(msgspec.Struct, frozen=True):
    """Relations in their order, maps, and views by what they show."""

    relations: tuple[SavedRelation, ...]
    maps: tuple[SavedMap, ...]
    views: dict[str, bytes]

    def matches(self, other: "Layout") -> dict[str, Match]:
        """For every map of another layout that this one has too, by name: which it is here."""
        known = {one.digest: one for one in reversed(self.maps)}
        found = {}
        for one in other.maps:
            if one.digest in known:
                own = known.pop(one.digest)
                by_own = dict(zip(one.places, own.places, strict=True))
                found[one.name] = Match(own.name, tuple(by_own[i] for i in range(len(one.places))))
        return found

    def alike(self, other: "Layout") -> frozenset[str]:
        """The views of another layout that show the same here."""
        return frozenset(name for name, digest in other.views.items() if self.views.get(name) == digest)

    def rows_of(self, relation: Relation) -> tuple[str, tuple[int, ...]] | None:
        """A map that counts a relation's whole rows, and where its columns are among the map's keys."""
        columns = tuple(Var(column.name) for column in relation.columns)
        digest, places = _digest(columns, Poly(((Rel(relation.name, columns),),)), Kind.INTEGER)
        for one in self.maps:
            if one.digest == digest:
                by_column = dict(zip(places, one.places, strict=True))
                return one.name, tuple(by_column[i] for i in range(len(columns)))
        return None


def layout_of(program: CompiledProgram) -> Layout:
    """The layout of a program's states."""
    maps = tuple(_saved_maps(program))
    digests = {one.name: f"{one.digest.hex()}{one.places}" for one in maps}
    relations = tuple(_saved_relation(relation) for relation in program.relations)
    views = {result.name: _view_digest(result, digests) for result in program.program.results}
    return Layout(relations, maps, views)


def _saved_relation(relation: Relation) -> SavedRelation:
    columns = tuple(
        SavedColumn(c.name, c.type.kind.value, c.type.scale, c.type.low, c.type.high, c.nullable)
        for c in relation.columns
    )
    key, by = relation.primary_key, relation.retain_by
    return SavedRelation(relation.name, columns, relation.max_rows, tuple(key), relation.retain, by)


def _saved_maps(program: CompiledProgram) -> Sequence[SavedMap]:
    by_hand = maps_by_hand(program.texts)
    # What M3 written by hand holds is what its statements make of it, all of them.
    written = [text for file, text in program.texts if is_m3(file, text)]
    return [_saved_map(m, written if m.name in by_hand else []) for m in program.program.maps]


def _saved_map(declaration: MapDeclaration, written: Sequence[str]) -> SavedMap:
    if written or declaration.definition == ZERO:
        places = tuple(range(len(declaration.keys)))
        return SavedMap(declaration.name, _hash(f"{declaration.name} {list(written)}"), places)
    digest, places = _digest(declaration.keys, declaration.definition, declaration.type.kind)
    return SavedMap(declaration.name, digest, places)


def _digest(keys: Sequence[Var], definition: Poly, kind: Kind) -> tuple[bytes, tuple[int, ...]]:
    """What a map holds, the same for equal maps, and where its canonical keys are among its own."""
    (form_keys, form), places = canonical(keys, definition)
    names = " ".join(key.name for key in form_keys)
    # Exact maps are of integers, whatever scale they are read with.
    return _hash(f"{kind is Kind.DOUBLE} {names}: {poly_text(form)}"), places


def _view_digest(result: Result, maps: Mapping[str, str]) -> bytes:
    """Of a view's text, its maps named by what they hold."""
    return _hash(_NAME.sub(lambda found: maps.get(found[0], found[0]), result_text(result)))


def _hash(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
