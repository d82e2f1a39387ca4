"""The rows of relations that books and strategies' surroundings feed, from a checkpoint of a run."""

from collections.abc import Callable, Mapping
from functools import cache

import numpy as np

from engine.changes import ChangeBatch
from engine.checkpoint.carried_over import FedRows
from engine.encoding import encode_row
from engine.relation_rows import Rows
from orderbook.book_relations import BookRelations
from orderbook.book_snapshot import BooksState
from orderbook.book_states import RELATION, SavedState, row_of
from orderbook.books import RELATIONS, Books
from orderbook.pipeline import Pipeline
from orderbook.problems import Problems
from views.compiler.types import Relation


def fed_rows(
    pipeline: Pipeline, books: BooksState | None, states: Mapping[int, SavedState]
) -> Mapping[str, FedRows]:
    """Rows of `bids`, `asks` and `book_states` as they were saved; of `trades` nobody knows them.

    books: those saved, None without any. states: rows of `book_states`, by this run's instruments.
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
        return lambda: None if name == "trades" else rows()[name]

    found = {name: FedRows(of(name), True) for name in RELATIONS if name in relations}
    if RELATION in relations and pipeline.shows_states:
        found[RELATION] = FedRows(lambda: _state_rows(pipeline, relations[RELATION], states), False)
    return found


def _book_rows(pipeline: Pipeline, saved: BooksState) -> Mapping[str, Rows]:
    """What the relations of books hold while the books are as they were saved."""
    engine, instruments = pipeline.engine, pipeline.instruments
    program = engine.program
    scratch = Books(instruments, engine.dictionary)
    fit = BookRelations(program.program, engine.dictionary, Problems(), engine.keeps_rows)
    found: dict[int, list[np.ndarray]] = {}
    for number, instrument in enumerate(saved.places(instruments)):
        for events in saved.events(number, instrument):
            _collect(found, fit.translate(scratch.apply(events)))
    _collect(found, fit.translate(scratch.flush()))
    rows = {}
    for index, relation in enumerate(program.relations):
        if relation.name in RELATIONS:
            width = len(relation.columns)
            parts = [part[:, :width] for part in found.get(2 * index, [])]
            joined = np.concatenate([np.empty((0, width), np.int64), *parts])
            rows[relation.name] = joined, np.ones(len(joined), np.int64)
    return rows


def _collect(found: dict[int, list[np.ndarray]], changes: ChangeBatch) -> None:
    """Takes in inserted rows by kind; a book that is made in an empty one deletes none."""
    for kind in np.unique(changes.kinds[changes.kinds >= 0]).tolist():
        found.setdefault(kind, []).append(changes.values[changes.kinds == kind])


def _state_rows(pipeline: Pipeline, relation: Relation, states: Mapping[int, SavedState]) -> Rows:
    dictionary = pipeline.engine.dictionary
    rows = [
        encode_row(relation, row_of(pipeline.instruments[index], state), dictionary)
        for index, state in states.items()
    ]
    width = len(relation.columns)
    return np.array(rows, np.int64).reshape(len(rows), width), np.ones(len(rows), np.int64)


def _nothing(relation: Relation) -> Rows:
    return np.empty((0, len(relation.columns)), np.int64), np.empty(0, np.int64)
