"""The state of an engine as a value, which `Engine.save` gives and `Engine.load` takes, and as sections.

Every array is a copy, or is never written again, so that a state can be written to a file while the
engine goes on. What is derived from maps (indexes, sums of trees, cursors, directories) is made anew. In
a checkpoint small values are in one section, arrays in others.

Which program a state belongs to is told by a hash of all that says what its maps and rows hold. What its
maps, relations and views mean is told by its layout, by which another program takes them over: a map or
view is known by a digest of what it holds, whatever it is called, so that it is found again in a program
that has it too, also one that another version of the compiler made.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

import msgspec
import numpy as np
from numpy.typing import NDArray

from orderbook.core.changes import Dictionary
from orderbook.core.files import Content, Stored
from orderbook.engine.runtime.map_entries import ExpiringRows, MapColumn, MapRows, Match, RowCounts
from orderbook.views.calculus import ZERO, Poly, Rel, Var
from orderbook.views.m3 import MapDeclaration, Result, poly_text, program_text, result_text
from orderbook.views.m3_link import is_m3, maps_by_hand
from orderbook.views.names import canonical
from orderbook.views.program import CompiledProgram
from orderbook.views.types import Kind, Relation

# Of EngineState: another one makes every older checkpoint one of another program.
STATE_FORMAT = 1


def program_hash(program: CompiledProgram) -> bytes:
    """32 bytes, equal for programs that hold the same in the same way.

    Of the M3 text (maps, triggers, views, declared relations in their order, with intervals, max_rows and
    RETAIN), the parameters, and the format of states. Where SQL stands and where streams come from
    (SOURCE) do not count, nor comments and layout, which no M3 has.
    """
    digest = hashlib.sha256()
    for part in _parts(program):
        data = part.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.digest()


def _parts(program: CompiledProgram) -> Iterator[str]:
    yield f"state {STATE_FORMAT}"
    relations = tuple(replace(r, source=None) for r in program.program.relations)
    yield program_text(replace(program.program, relations=relations))
    for name, value in sorted(program.parameters.items()):
        yield f"{name} {type(value).__name__} {value!r}"


@dataclass(frozen=True, slots=True)
class EngineState:
    """An engine between two messages.

    program: its `program_hash`. sequence: events applied. stamp, switch: of the last, see `Engine.at`.
    now: the clock's time, None before the first tick. strings: the dictionary by code; codes in all else
    are places in it. maps: every map once. checked, kept: the rows that `check_rows` and `keep_rows` keep,
    None without. expiring: rows with RETAIN. problems: how often each kind occurred; examples: places of
    the first.
    """

    program: bytes
    sequence: int
    stamp: int | None
    switch: int
    now: int | None
    maps: tuple[MapRows, ...]
    checked: tuple[RowCounts, ...] | None
    kept: tuple[RowCounts, ...] | None
    expiring: tuple[ExpiringRows, ...]
    strings: Sequence[str]
    problems: Mapping[str, int]
    examples: Mapping[str, Sequence[str]]


def codes_of(dictionary: Dictionary, strings: Sequence[str]) -> NDArray[np.int64] | None:
    """For each code in a state what it is in a dictionary, int64[n], new ones given out; None: all stay."""
    codes = dictionary.encode_all(strings)
    return None if np.array_equal(codes, np.arange(len(codes))) else codes


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


_MAP, _CHECKED, _KEPT, _EXPIRING = "map", "checked", "kept", "expiring"


class _Map(msgspec.Struct, frozen=True):
    keys: tuple[int, ...]
    maps: tuple[tuple[str, int, int, bool], ...]


class _Rows(msgspec.Struct, frozen=True):
    relation: int
    checked: bool


class _Expiring(msgspec.Struct, frozen=True):
    """`lengths` are of the segments, which one array holds."""

    relation: int
    lengths: tuple[int, ...]


class _Values(msgspec.Struct, frozen=True):
    program: bytes
    sequence: int
    stamp: int | None
    switch: int
    now: int | None
    problems: dict[str, int]
    examples: dict[str, list[str]]
    maps: list[_Map]
    checked: list[_Rows] | None
    kept: list[_Rows] | None
    expiring: list[_Expiring]


def sections_of(state: EngineState) -> dict[str, Content]:
    """The sections of a state; arrays are not copied."""
    values = _Values(
        program=state.program,
        sequence=state.sequence,
        stamp=state.stamp,
        switch=state.switch,
        now=state.now,
        problems=dict(state.problems),
        examples={kind: list(found) for kind, found in state.examples.items()},
        maps=[_Map(m.keys, tuple((c.name, c.at, c.count, c.double) for c in m.maps)) for m in state.maps],
        checked=_described(state.checked),
        kept=_described(state.kept),
        expiring=[_Expiring(e.relation, tuple(map(len, e.segments))) for e in state.expiring],
    )
    texts = [s.encode("utf-8", "surrogatepass") for s in state.strings]
    found: dict[str, Content] = {
        "values": msgspec.msgpack.encode(values),
        "string lengths": np.fromiter(map(len, texts), np.int64, len(texts)),
        "strings": b"".join(texts),
    }
    for i, rows in enumerate(state.maps):
        found[f"{_MAP} {i}"] = rows.rows[:]
    for name, relations in ((_CHECKED, state.checked), (_KEPT, state.kept)):
        for i, counts in enumerate(relations or ()):
            _put(found, f"{name} {i}", counts)
    for i, expiring in enumerate(state.expiring):
        found[f"{_EXPIRING} {i} segments"] = [expiring.fresh[:0], *expiring.segments]
        found[f"{_EXPIRING} {i} fresh"] = expiring.fresh
        _put(found, f"{_EXPIRING} {i} deleted", expiring.deleted)
    return found


def state_of(sections: Mapping[str, Stored]) -> EngineState:
    """The state whose sections these are; the rows of maps are read from the file when they are used."""
    values = msgspec.msgpack.decode(sections["values"].bytes(), type=_Values)
    maps = [
        MapRows(sections[f"{_MAP} {i}"], m.keys, tuple(MapColumn(*c) for c in m.maps))
        for i, m in enumerate(values.maps)
    ]
    return EngineState(
        program=values.program,
        sequence=values.sequence,
        stamp=values.stamp,
        switch=values.switch,
        now=values.now,
        maps=tuple(maps),
        checked=_relations(sections, _CHECKED, values.checked),
        kept=_relations(sections, _KEPT, values.kept),
        expiring=tuple(_expiring(sections, i, e) for i, e in enumerate(values.expiring)),
        strings=_strings(sections),
        problems=values.problems,
        examples=values.examples,
    )


def _described(relations: Sequence[RowCounts] | None) -> list[_Rows] | None:
    return None if relations is None else [_Rows(r.relation, r.checked) for r in relations]


def _put(found: dict[str, Content], name: str, counts: RowCounts) -> None:
    found[f"{name} rows"], found[f"{name} counts"] = counts.rows[:], counts.counts[:]


def _counts(sections: Mapping[str, Stored], name: str, relation: int, checked: bool = False) -> RowCounts:
    return RowCounts(relation, sections[f"{name} rows"], sections[f"{name} counts"], checked)


def _relations(
    sections: Mapping[str, Stored], name: str, described: Sequence[_Rows] | None
) -> tuple[RowCounts, ...] | None:
    if described is None:
        return None
    return tuple(_counts(sections, f"{name} {i}", r.relation, r.checked) for i, r in enumerate(described))


def _expiring(sections: Mapping[str, Stored], number: int, described: _Expiring) -> ExpiringRows:
    name = f"{_EXPIRING} {number}"
    whole = sections[f"{name} segments"][:]
    ends = accumulate(described.lengths, initial=0)
    segments = tuple(whole[start:end] for start, end in pairwise(ends))
    deleted = _counts(sections, f"{name} deleted", described.relation)
    return ExpiringRows(described.relation, segments, sections[f"{name} fresh"][:], deleted)


def _strings(sections: Mapping[str, Stored]) -> list[str]:
    data, lengths = sections["strings"].bytes(), sections["string lengths"][:].tolist()
    ends = accumulate(lengths, initial=0)
    return [data[start:end].decode("utf-8", "surrogatepass") for start, end in pairwise(ends)]
