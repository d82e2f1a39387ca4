"""A checkpoint of a run: its engine, books, strategies, and where in the log it stands.

The rows of relations that books and strategies' surroundings feed are made from it for a program that has
more of them.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from orderbook.core.changes import ChangeBatch
from orderbook.core.errors import OrderbookError, Problems
from orderbook.core.files import Files, Stored
from orderbook.engine.checkpoint import Checkpoint, CheckpointError, Sections, write_checkpoint
from orderbook.engine.log.segments import Position
from orderbook.engine.runtime import engine_state
from orderbook.engine.runtime.engine_state import Layout, layout_of, program_hash
from orderbook.engine.runtime.held_rows import Rows
from orderbook.engine.runtime.state_transfer import CarriedOver, FedRows, NotCarriedOver
from orderbook.feeds.raw_log import InstrumentText
from orderbook.market import books as book_snapshot
from orderbook.market.book_relations import (
    TOLD_BY_STATES,
    BookRelations,
    SavedState,
    filled_by_books,
    row_of,
)
from orderbook.market.books import RELATIONS, RESTING, Books, BooksState
from orderbook.market.instruments import Instrument
from orderbook.run.pipeline import Pipeline, SavedPipeline
from orderbook.strategies.host import SavedHost
from orderbook.views.encoding.rows import encode_row
from orderbook.views.program import CompiledProgram
from orderbook.views.types import Relation


def fed_rows(
    pipeline: Pipeline, books: BooksState | None, states: Mapping[int, SavedState]
) -> Mapping[str, FedRows]:
    """Rows of `bids`, `asks`, `book_states` and `instruments` as they were saved; nobody knows others.

    books: those saved, None without any. states: rows of `book_states` and `instruments`, by this run's
    instruments.
    """
    program = pipeline.engine.program
    relations = {relation.name: relation for relation in program.relations}

    @cache
    def rows() -> Mapping[str, Rows]:
        return {} if books is None else _book_rows(pipeline, books)

    def of(name: str) -> Callable[[], Rows | None]:
        if books is None:
            # There was nothing that could have fed it.
            return lambda: _nothing(relations[name])
        return lambda: rows()[name] if name in RESTING else None

    filled = [name for name in RELATIONS if name in relations and filled_by_books(relations[name])]
    found = {name: FedRows(of(name), True) for name in filled}
    for name in TOLD_BY_STATES:
        if name in relations and pipeline.shows_states(name):
            found[name] = FedRows(partial(_state_rows, pipeline, relations[name], states), False)
    return found


def _book_rows(pipeline: Pipeline, saved: BooksState) -> Mapping[str, Rows]:
    """What the relations of books hold while the books are as they were saved."""
    engine, instruments = pipeline.engine, pipeline.instruments
    program = engine.program
    scratch = Books(instruments, engine.dictionary)
    fit = BookRelations(program.program, engine.dictionary, Problems(), engine.keeps_rows)
    found: dict[int, list[NDArray[np.int64]]] = {}
    for number, instrument in enumerate(saved.places(instruments)):
        for events in saved.events(number, instrument):
            _collect(found, fit.translate(scratch.apply(events)))
    _collect(found, fit.translate(scratch.flush()))
    rows = {}
    for index, relation in enumerate(program.relations):
        if relation.name in RELATIONS and filled_by_books(relation):
            width = len(relation.columns)
            parts = [part[:, :width] for part in found.get(2 * index, [])]
            joined = np.concatenate([np.empty((0, width), np.int64), *parts])
            rows[relation.name] = joined, np.ones(len(joined), np.int64)
    return rows


def _collect(found: dict[int, list[NDArray[np.int64]]], changes: ChangeBatch) -> None:
    """Takes in inserted rows by kind; a book that is made in an empty one deletes none."""
    for kind in np.unique(changes.kinds[changes.kinds >= 0]).tolist():
        found.setdefault(kind, []).append(changes.values[changes.kinds == kind])


def _state_rows(pipeline: Pipeline, relation: Relation, states: Mapping[int, SavedState]) -> Rows:
    dictionary = pipeline.engine.dictionary
    told = (row_of(relation.name, pipeline.instruments[index], state) for index, state in states.items())
    rows = [encode_row(relation, row, dictionary) for row in told if row is not None]
    width = len(relation.columns)
    return np.array(rows, np.int64).reshape(len(rows), width), np.ones(len(rows), np.int64)


def _nothing(relation: Relation) -> Rows:
    return np.empty((0, len(relation.columns)), np.int64), np.empty(0, np.int64)


_logger = logging.getLogger("orderbook.recovery")


@dataclass(frozen=True, slots=True)
class RunCheckpoint:
    """What a checkpoint says beyond what the pipeline holds.

    position: where the log goes on. stamp: of the last item applied; every strategy had completed it.
    instruments: of the entries at that place of the log. states: what `on_save` gave last, by strategy.
    started: whether the strategies had been started, and not stopped.
    """

    position: Position
    stamp: int
    instruments: tuple[Instrument, ...]
    states: Mapping[str, bytes]
    started: bool
    path: Path | None = None


class _Run(msgspec.Struct, frozen=True):
    instruments: list[InstrumentText]
    states: dict[str, bytes]
    started: bool
    pipeline: SavedPipeline
    strategies: SavedHost


def save_checkpoint(
    folder: Path,
    pipeline: Pipeline,
    program: CompiledProgram,
    run: RunCheckpoint,
    *,
    keep: int,
    layout: Layout | None = None,
    files: Files | None = None,
) -> None:
    """Write a checkpoint between two items, for a run of a program; the last `keep` stay.

    Views that have been added to the running program are left out. Raises CheckpointError, and OtherProgram
    where a view of the program has been dropped.
    """
    state = pipeline.engine.save(program)
    values = _Run(
        [InstrumentText.of(one) for one in run.instruments],
        dict(run.states),
        run.started,
        pipeline.save(),
        pipeline.host.save(),
    )
    parts: dict[str, Sections] = {
        "run": {"values": msgspec.msgpack.encode(values)},
        "engine": engine_state.sections_of(state),
        "program": {"layout": msgspec.msgpack.encode(layout or layout_of(program))},
    }
    if pipeline.books is not None:
        parts["books"] = book_snapshot.sections_of(pipeline.books.save())
    write_checkpoint(
        folder, parts, program=state.program, position=run.position, stamp=run.stamp, keep=keep, files=files
    )


def load_checkpoint(found: Checkpoint, pipeline: Pipeline) -> RunCheckpoint:
    """Bring a fresh pipeline to a checkpoint.

    One of another program is made into one of the pipeline's: what both have goes on, views that are new are
    filled from rows. Raises NotCarriedOver where that cannot be, CheckpointError for one that cannot be taken
    up for any other reason; then the pipeline is of no more use.
    """
    try:
        return _load(found, pipeline)
    except FileNotFoundError:
        # Its run has removed it meanwhile.
        raise
    except NotCarriedOver as error:
        raise CheckpointError(found.path, str(error)) from error
    except Exception as error:
        what = str(error) if isinstance(error, OrderbookError) else f"{type(error).__name__}: {error}"
        raise CheckpointError(found.path, f"it cannot be gone on from: {what}") from error


def _load(found: Checkpoint, pipeline: Pipeline) -> RunCheckpoint:
    run = _run(found)
    instruments = tuple(text.instrument for text in run.instruments)
    known = {one: index for index, one in enumerate(pipeline.instruments)}
    indexes = [known[one] for one in instruments]
    pipeline.instruments.adopt(instruments)
    state, engine = engine_state.state_of(found.part("engine")), pipeline.engine
    books = book_snapshot.state_of(part) if (part := found.part("books")) else None
    views = None
    if state.program != program_hash(engine.program) or (engine.keeps_rows and state.kept is None):
        layout = msgspec.msgpack.decode(found.part("program")["layout"].bytes(), type=Layout)
        states = {indexes[index]: row for index, row in run.pipeline.states.items()}
        carried = engine.carried_over(state, layout, fed_rows(pipeline, books, states))
        state, views = carried.state, carried.alike
        _tell(found, pipeline, carried)
    engine.load(state)
    if pipeline.books is not None and books is not None:
        pipeline.books.load(books)
    lost = pipeline.load(run.pipeline, indexes, views)
    pipeline.host.load(run.strategies, indexes, views)
    if lost:
        _logger.warning("%d callbacks that waited were of subscriptions that are not there any more", lost)
    if views is not None:
        pipeline.catch_up_clock()
    position = Position(int(found.position))
    return RunCheckpoint(position, found.stamp, instruments, run.states, run.started, found.path)


def _tell(found: Checkpoint, pipeline: Pipeline, carried: CarriedOver) -> None:
    """Says what became of a checkpoint of another program."""
    filled = [view for view in pipeline.engine.views if view not in carried.alike]
    _logger.warning(
        "%s is of other views or parameters: books, orders, positions and what is the same go on; %s",
        found.path,
        f"filled from rows: {', '.join(filled)}" if filled else "nothing had to be filled",
    )
    if carried.dropped:
        _logger.warning("rows of %s are dropped, which no view declares any more", ", ".join(carried.dropped))


def states_of(found: Checkpoint) -> Mapping[str, bytes]:
    """What `on_save` of the strategies had given last. Raises CheckpointError."""
    return _run(found).states


def instruments_of(found: Checkpoint) -> tuple[Instrument, ...]:
    """The instruments of a checkpoint's books. Raises CheckpointError."""
    return tuple(text.instrument for text in _run(found).instruments)


def _run(found: Checkpoint) -> _Run:
    values: Stored = found.part("run")["values"]
    try:
        return msgspec.msgpack.decode(values.bytes(), type=_Run)
    except msgspec.DecodeError as error:
        raise CheckpointError(found.path, f"what it says of the run cannot be read: {error}") from error
