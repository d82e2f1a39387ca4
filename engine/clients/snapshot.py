"""Rows of views and relations at one moment: copied on the engine's thread, made tables in any other."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from engine.relation_rows import RelationsCopy
from engine.subscriptions import Version
from engine.view_copy import ViewCopy
from orderbook.dictionary import Dictionary
from orderbook.errors import DataError
from views.compiler.m3 import Result
from views.compiler.types import Relation

from .encoded_rows import EncodedRows

if TYPE_CHECKING:
    from engine.engine import Engine


# Copies a piece on the engine's thread when there is time for it; whether it was the last.
Pace = Callable[[Callable[[], bool]], Awaitable[bool]]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What an engine held after one event.

    views: by name, how rows are read, and what gives int64[n, words of the key and of the row]. relations:
    by name, the declaration; their rows are in `copied`.
    """

    version: Version
    views: Mapping[str, tuple[Result, Callable[[], np.ndarray]]]
    relations: Mapping[str, Relation]
    copied: RelationsCopy
    dictionary: Dictionary

    def encoded(self) -> EncodedRows:
        """All rows as they are encoded; may be called in any thread."""
        rows = self.copied.rows()
        views = {name: (result, own()) for name, (result, own) in self.views.items()}
        return EncodedRows(views, {name: (one, rows[name]) for name, one in self.relations.items()})

    def tables(self) -> dict[str, pa.Table]:
        """All rows by name, each as often as it stands; may be called in any thread.

        Types are those of `table_schema`. Raises DataError for a value of more than 38 digits.
        """
        return self.encoded().tables(self.dictionary)


def snapshot(engine: "Engine", names: Iterable[str]) -> Snapshot:
    """Copies what the views and relations of these names hold after the last event applied.

    On the engine's thread. Raises DataError for a relation whose rows are not kept, saying what to do.
    """
    names = tuple(names)
    copy = _copy(engine, names)
    while not copy.piece():
        pass
    return _taken(engine, names, copy, {})


async def _in_turn(piece: Callable[[], bool]) -> bool:
    """A piece at once, and then whatever else the loop has to do."""
    if piece():
        return True
    await asyncio.sleep(0)
    return False


async def snapshot_between(engine: "Engine", names: Iterable[str], pace: Pace = _in_turn) -> Snapshot:
    """`snapshot` that is copied piece by piece, between what the loop does besides.

    In the loop of the engine's thread; `pace` says when. All is as of the moment of the last piece.
    """
    names = tuple(names)
    while True:
        views = {name: own for name in names if name in engine.views and (own := engine[name].copy())}
        for own in views.values():
            await asyncio.to_thread(own.prepare)
        if not any(own.stale for own in views.values()):
            # Of the maps of the program that has the views.
            copy = _copy(engine, names)
            # Where others copy the same view already, it is copied at once.
            views = {name: own for name, own in views.items() if own.begin()}
            try:
                if (taken := await _copied(engine, names, copy, views, pace)) is not None:
                    return taken
            finally:
                for own in views.values():
                    own.end()


async def _copied(
    engine: "Engine", names: Iterable[str], copy: RelationsCopy, views: Mapping[str, ViewCopy], pace: Pace
) -> Snapshot | None:
    """Copies all, relations last; None where there is another program before that is done."""
    program = engine.program
    taken: list[Snapshot] = []

    def stale() -> bool:
        return engine.program is not program or any(one.stale for one in views.values())

    def last() -> bool:
        if stale():
            return True
        if not copy.piece():
            return False
        for own in views.values():
            own.finish()
        taken.append(_taken(engine, names, copy, views))
        return True

    for own in views.values():
        while not await pace(lambda piece=own.piece: stale() or piece()):  # type: ignore[misc]
            pass
    while not await pace(last):
        pass
    return taken[0] if taken else None


def _copy(engine: "Engine", names: Iterable[str]) -> RelationsCopy:
    wanted = [name for name in names if name not in engine.views]
    for name in wanted:
        _check_kept(engine, name)
    return engine.copy_rows(wanted)


def _taken(
    engine: "Engine", names: Iterable[str], copied: RelationsCopy, views: Mapping[str, ViewCopy]
) -> Snapshot:
    declared = {relation.name: relation for relation in engine.program.relations}
    relations = {name: declared[name] for name in names if name in declared}
    found: dict[str, tuple[Result, Callable[[], np.ndarray]]] = {}
    for name in names:
        if name not in declared:
            view, own = engine[name], views.get(name)
            found[name] = view.layout.result, _given(view.row_words()) if own is None else own.rows
    return Snapshot(engine.version, found, relations, copied, engine.dictionary)


def _given(rows: np.ndarray) -> Callable[[], np.ndarray]:
    return lambda: rows


def _check_kept(engine: "Engine", relation: str) -> None:
    try:
        engine.rows_source(relation)
    except DataError:
        raise DataError(
            f"the rows of {relation} are not kept, so they cannot be queried; query a view "
            f"({', '.join(engine.views) or 'there is none'}), or what a view's definition says of "
            f"{relation}, or start with Engine(keep_rows=True), or keep_rows = true in [engine]"
        ) from None
