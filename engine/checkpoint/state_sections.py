"""The state of an engine as sections of a checkpoint, and back: small values in one, arrays in others."""

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise

import msgspec
import numpy as np

from engine.map_entries import MapColumn, MapRows
from engine.retention import ExpiringRows
from engine.row_counts import RowCounts

from .file import Content
from .state import EngineState
from .stored import Stored

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
