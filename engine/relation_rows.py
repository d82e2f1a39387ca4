"""The rows of base relations as they are now, wherever they are held: what a new view is filled from."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial

import numpy as np

from orderbook.errors import DataError
from views.compiler.calculus import Rel, Var
from views.compiler.m3 import MapDeclaration, Program

from .base_rows import BaseRows
from .changes import END_OF_EVENT, END_OF_MESSAGE, ChangeBatch
from .kept_rows import KeptRows, RowsCopy
from .map_entries import exact_values
from .runtime import Runtime

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
