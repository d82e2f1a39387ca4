"""What an engine keeps beside its maps: the time, and rows that checks, expiry and new views need.

Of relations fed with unchecked changes: the rows that a delete must find, and an insert must not. The
rows of base relations as they are now, wherever they are held, are what a new view is filled from;
`exchange` says which of them a program needs that takes the place of another, and which maps it takes
over.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from orderbook.core.changes import CHECKED, END_OF_EVENT, END_OF_MESSAGE, ChangeBatch, Dictionary
from orderbook.core.errors import DataError, Problems
from orderbook.engine.runtime.clock import Clock, Retention
from orderbook.engine.runtime.engine_state import EngineState
from orderbook.engine.runtime.interface import Runtime
from orderbook.engine.runtime.kept_rows import KeptRows, RowsCopy
from orderbook.engine.runtime.map_entries import Match, RowCounts, exact_values, matching, relations_to_fill
from orderbook.views.calculus import Rel, Var, relations
from orderbook.views.encoding.values import describe_row
from orderbook.views.m3 import MapDeclaration, Program
from orderbook.views.m3_link import maps_by_hand
from orderbook.views.program import CompiledProgram
from orderbook.views.types import CLOCK, Kind, Relation

_ENDS = END_OF_EVENT | END_OF_MESSAGE
_UNKNOWN, _CHECKED, _UNCHECKED = range(3)
# Batches up to this size are looked at change by change, which is quicker than by arrays.
_FEW = 16


@dataclass(frozen=True, slots=True)
class Refusal:
    """An event left out: what kind of mistake, and its one-line description."""

    kind: str
    detail: str


class BaseRows:
    """The multiset of rows of every relation whose changes nobody checked before.

    A relation is fed either with checked changes, which pass, or with unchecked ones, each of whose
    deletes must name a row that is there, whose rows stay within `max_rows`, and no two of which agree in
    all of the relation's `primary_key`.
    """

    def __init__(self, relations: Sequence[Relation], dictionary: Dictionary):
        self._relations = relations
        self._dictionary = dictionary
        self._empty()

    def _empty(self) -> None:
        """No rows, and no relation fed."""
        self._rows: list[dict[bytes, int]] = [{} for _ in self._relations]
        self._totals = [0] * len(self._relations)
        self._keys = [_KeysThere(relation) for relation in self._relations]
        self._fed = [_UNKNOWN] * len(self._relations)
        # Kinds of the relations that are fed with checked changes, and of a change that is skipped.
        self._trusted = {-1}

    def extend(self, relations: Sequence[Relation]) -> None:
        """Takes the relations of a program that begins with those known."""
        added = len(relations) - len(self._rows)
        self._relations = relations
        self._rows += [{} for _ in range(added)]
        self._totals += [0] * added
        self._keys += [_KeysThere(relation) for relation in relations[len(self._keys) :]]
        self._fed += [_UNKNOWN] * added

    def holds(self, index: int) -> bool:
        """Whether all rows of a relation are known: no checked change has been made to it."""
        return self._fed[index] != _CHECKED

    def rows(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        """A relation's rows, int64[n, width], and how often each stands, int64[n]."""
        held, width = self._rows[index], len(self._relations[index].columns)
        rows = np.frombuffer(b"".join(held), np.int64).reshape(len(held), width)
        return rows, np.fromiter(held.values(), np.int64, len(held))

    def copied(self) -> tuple[RowCounts, ...]:
        """A copy of the rows of every relation that has been fed."""
        known = [i for i, fed in enumerate(self._fed) if fed != _UNKNOWN]
        return tuple(RowCounts(i, *self.rows(i), checked=self._fed[i] == _CHECKED) for i in known)

    def restore(self, relations: Sequence[RowCounts], codes: NDArray[np.int64] | None) -> None:
        """Replaces all rows by a copy; `codes` as in Runtime.restore."""
        self._empty()
        for saved in relations:
            self._feed(saved.relation, _CHECKED if saved.checked else _UNCHECKED)
            held, size = self._rows[saved.relation], 8 * len(self._relations[saved.relation].columns)
            for rows, counts in saved.parts(self._relations[saved.relation], codes):
                data = rows.tobytes()
                keys = (data[at : at + size] for at in range(0, len(data), size))
                held.update(zip(keys, counts.tolist(), strict=True))
                self._keys[saved.relation].update(held)
                self._totals[saved.relation] += int(counts.sum())

    def trusts(self, batch: ChangeBatch) -> bool:
        """Whether all changes are checked ones of relations fed with checked changes only."""
        count = len(batch.flags)
        if count == 1 and batch.flags.item(0) & CHECKED and batch.kinds.item(0) in self._trusted:
            return True
        if count <= _FEW:
            for kind, flag in zip(batch.kinds.tolist(), batch.flags.tolist(), strict=True):
                if not flag & CHECKED or (kind >= 0 and not self._feed(kind >> 1, _CHECKED)):
                    return False
            return True
        if not np.bitwise_and.reduce(batch.flags) & CHECKED:
            return False
        changes = np.bincount((batch.kinds >> 1) + 1)[1:]
        return all(self._feed(index, _CHECKED) for index in np.flatnonzero(changes).tolist())

    def admit(self, batch: ChangeBatch) -> tuple[ChangeBatch, list[Refusal]]:
        """The batch with the changes of refused events skipped (kind -1), and why.

        Changes after the last end of an event are refused, since the rest of their event is not known.
        """
        kinds, flags = batch.kinds.tolist(), batch.flags.tolist()
        keys = _row_bytes(batch, [len(r.columns) for r in self._relations])
        admitted = batch.kinds.copy()
        refusals: list[Refusal] = []
        start = 0
        for end in (i + 1 for i, flag in enumerate(flags) if flag & _ENDS):
            for i in range(start, end):
                refusal = self._change(kinds[i], flags[i], keys[i], batch, i)
                if refusal:
                    self._undo(kinds[start:i], flags[start:i], keys[start:i])
                    admitted[start:end] = -1
                    refusals.append(refusal)
                    break
            start = end
        if start < len(kinds):
            admitted[start:] = -1
            detail = f"the last {len(kinds) - start} changes of the batch have no end of event; flag the last"
            refusals.append(Refusal("unfinished event", detail))
        return ChangeBatch(admitted, batch.flags, batch.values), refusals

    def _feed(self, index: int, how: int) -> bool:
        """Whether the relation is fed so; its first change decides."""
        if index >= len(self._fed):
            return False
        if self._fed[index] == _UNKNOWN:
            self._fed[index] = how
            if how == _CHECKED:
                self._trusted |= {2 * index, 2 * index + 1}
        return self._fed[index] == how

    def _change(self, kind: int, flag: int, key: bytes, batch: ChangeBatch, i: int) -> Refusal | None:
        if kind < 0:
            return None
        index = kind >> 1
        if index >= len(self._relations):
            detail = f"kind {kind} is of no relation of the program; translate kinds with its kinds_of"
            return Refusal("unknown relation", detail)
        relation = self._relations[index]
        if flag & CHECKED and self._feed(index, _CHECKED):
            return None
        if self._fed[index] == (_UNCHECKED if flag & CHECKED else _CHECKED):
            ways = ("by books", "row by row") if self._fed[index] == _CHECKED else ("row by row", "by books")
            detail = f"{relation.name} is fed {ways[0]}; it cannot be fed {ways[1]} as well"
            return Refusal("mixed feeding", detail)
        if kind & 1 and key not in self._rows[index]:
            row = describe_row(relation, batch.values[i].tolist(), self._dictionary)
            return Refusal("row not there", f"{relation.name}: deleted row is not there: {row}")
        if not kind & 1 and key in self._keys[index]:
            there = self._keys[index]
            row = describe_row(there.of, there.values(batch.values[i]), self._dictionary)
            detail = f"{relation.name}: a row with this PRIMARY KEY is there already: {row}; delete it before"
            return Refusal("duplicate key", detail)
        if not kind & 1 and self._totals[index] >= relation.max_rows:
            detail = f"{relation.name} already holds max_rows = {relation.max_rows} rows; declare more"
            return Refusal("too many rows", detail)
        self._feed(index, _UNCHECKED)
        self._add(index, key, -1 if kind & 1 else 1)
        return None

    def _undo(self, kinds: list[int], flags: list[int], keys: list[bytes]) -> None:
        # The last first, so that what stood under a key before an update stands there again.
        for kind, flag, key in zip(reversed(kinds), reversed(flags), reversed(keys), strict=True):
            if kind >= 0 and not flag & CHECKED:
                self._add(kind >> 1, key, 1 if kind & 1 else -1)

    def _add(self, index: int, key: bytes, change: int) -> None:
        rows = self._rows[index]
        count = rows.get(key, 0) + change
        if count:
            rows[key] = count
        else:
            del rows[key]
        self._totals[index] += change
        if change > 0:
            self._keys[index].add(key)
        else:
            self._keys[index].discard(key)


class _KeysThere:
    """The primary keys of a relation's rows, asked by rows as bytes; of none without a primary key.

    of: the relation with the columns of its key alone.
    """

    def __init__(self, relation: Relation) -> None:
        names = [column.name for column in relation.columns]
        self._places = [names.index(name) for name in relation.primary_key]
        self._keys: set[bytes] = set()
        self.of = replace(relation, columns=tuple(relation.columns[place] for place in self._places))

    def __contains__(self, row: bytes) -> bool:
        return bool(self._places) and self._key(row) in self._keys

    def add(self, row: bytes) -> None:
        """A row comes."""
        if self._places:
            self._keys.add(self._key(row))

    def discard(self, row: bytes) -> None:
        """A row goes."""
        if self._places:
            self._keys.discard(self._key(row))

    def update(self, rows: Iterable[bytes]) -> None:
        """Rows come."""
        if self._places:
            self._keys.update(map(self._key, rows))

    def values(self, row: NDArray[np.int64]) -> list[int]:
        """The key of a row, int64[width]."""
        return [int(value) for value in row[self._places]]

    def _key(self, row: bytes) -> bytes:
        return b"".join([row[8 * place : 8 * place + 8] for place in self._places])


def _row_bytes(batch: ChangeBatch, widths: list[int]) -> list[bytes]:
    """Each change's row as bytes, without the columns past its relation's."""
    data = np.ascontiguousarray(batch.values).tobytes()
    stride = batch.values.shape[1] * 8
    return [
        data[i * stride : i * stride + 8 * widths[kind >> 1]] if 0 <= kind < 2 * len(widths) else b""
        for i, kind in enumerate(batch.kinds.tolist())
    ]


# Rows int64[n, width], and how often each stands, int64[n].
Rows = tuple[np.ndarray, np.ndarray]
# So few that making them never keeps another thread waiting for long.
_CHUNK = 1 << 13


def rows_source(
    name: str, program: Program, runtime: Runtime, kept: KeptRows | None, checked: BaseRows | None
) -> Callable[[], Rows]:
    """What gives the rows of a relation now. Raises DataError where nobody holds them."""
    names = [r.name for r in program.relations]
    if name not in names:
        return lambda: (np.empty((0, 1), np.int64), np.empty(0, np.int64))
    index = names.index(name)
    if kept is not None:
        return partial(kept.rows, index)
    if checked is not None and checked.holds(index):
        return partial(checked.rows, index)
    for declaration in program.maps:
        places = _whole(declaration, name)
        if places is not None:
            return partial(_rows_of_map, runtime, declaration.name, places)
    raise not_kept(name)


def _rows_of_map(runtime: Runtime, name: str, places: list[int]) -> Rows:
    entries = runtime.entries(name)
    rows = np.ascontiguousarray(entries.keys[:, places])
    return rows, np.array(exact_values(entries.words), np.int64)


class RelationsCopy:
    """A copy of the rows of relations that is made in pieces: all as of the moment of the last piece.

    Kept rows are copied in pieces of about a millisecond; those that are held otherwise, in `whole`, at the
    end and at once.
    """

    def __init__(self, kept: Mapping[str, RowsCopy], whole: Mapping[str, Callable[[], Rows]]) -> None:
        self._kept, self._whole = kept, whole
        self._left = list(kept.values())
        self._found: dict[str, Rows] = {}

    def piece(self) -> bool:
        """Copies a piece, on the engine's thread between two changes; whether it was the last."""
        if self._left and self._left[0].piece():
            self._left.pop(0)
        if self._left:
            return False
        for copy in self._kept.values():
            copy.finish()
        self._found = {name: rows() for name, rows in self._whole.items()}
        return True

    def rows(self) -> dict[str, Rows]:
        """The rows by relation, after the last piece; in any thread."""
        return self._found | {name: copy.rows() for name, copy in self._kept.items()}


def not_kept(relation: str) -> DataError:
    return DataError(
        f"the rows of {relation} are not kept, so a view of them cannot be filled; "
        "start with Engine(keep_rows=True), or keep_rows = true in [engine]"
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


class HeldRows:
    """The clock; `checked` rows, which deletes are checked against, and `kept` rows, None where not kept."""

    def __init__(self, relations: Sequence[Relation], dictionary: Dictionary, check: bool, keep: bool):
        self.clock = Clock(relations)
        self.checked = BaseRows(relations, dictionary) if check else None
        self.kept = KeptRows(relations) if keep else None

    def extend(self, relations: Sequence[Relation]) -> None:
        """Takes the relations of a program that begins with those known."""
        for owner in (self.kept, self.checked, self.clock):
            if owner is not None:
                owner.extend(relations)

    def recorders(self) -> list[KeptRows | Retention]:
        """Those that are to be told of every change that has been applied."""
        expiring = [self.clock.retention] if self.clock.retention.relations else []
        return [*([] if self.kept is None else [self.kept]), *expiring]

    def admitted(self, changes: ChangeBatch, problems: Problems, where: str) -> ChangeBatch:
        """The changes without events that the checked rows refuse, which are counted in `problems`."""
        if self.checked is None or self.checked.trusts(changes):
            return changes
        admitted, refusals = self.checked.admit(changes)
        for refusal in refusals:
            problems.add(refusal.kind, where, refusal.detail)
        return admitted

    def rows_source(self, relation: str, program: Program, runtime: Runtime) -> Callable[[], Rows]:
        """What gives the rows of a relation, as `rows_of` of an engine. Raises DataError."""
        if relation == CLOCK:
            return self.clock.rows
        return rows_source(relation, program, runtime, self.kept, self.checked)

    def copy(self, sources: Mapping[str, Callable[[], Rows]], relations: Sequence[Relation]) -> RelationsCopy:
        """A copy, to be made in pieces, of relations that `sources` give the rows of."""
        index = {relation.name: place for place, relation in enumerate(relations)}
        own = [name for name in sources if name in index and name != CLOCK]
        kept = {} if self.kept is None else {name: self.kept.copy(index[name]) for name in own}
        return RelationsCopy(kept, {name: rows for name, rows in sources.items() if name not in kept})

    def require(self, state: EngineState) -> None:
        """Raises DataError where a state lacks rows that are to be kept."""
        for owner, saved, option in (
            (self.kept, state.kept, "keep_rows"),
            (self.checked, state.checked, "check_rows"),
        ):
            if owner is not None and saved is None:
                raise DataError(f"the state was saved without {option}; replay the stream")

    def restore(self, state: EngineState, codes: NDArray[np.int64] | None) -> None:
        """Replaces all rows and the time by those of a state; `codes` as in Runtime.restore."""
        self.clock.restore(state.now, state.expiring, codes)
        if self.checked is not None:
            self.checked.restore(state.checked or (), codes)
        if self.kept is not None:
            self.kept.restore(state.kept or (), codes)
