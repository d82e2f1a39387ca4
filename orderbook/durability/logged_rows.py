"""Rows of relations as the log of a run has them, for a view that is added to it.

A process of its own, `python -m orderbook.durability.logged_rows` with the pickled request as its input,
applies the log from its beginning to the item after which the run stands, and keeps all rows; the run goes on
meanwhile, and notes what it applies.
"""

import os
import pickle
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from orderbook.configuration.configuration import Configuration
from orderbook.core.changes import NULL_CODE, ChangeBatch
from orderbook.core.errors import DataError, OrderbookError
from orderbook.core.processors import end_with_parent, give_way, step_aside
from orderbook.engine.runtime.held_rows import Rows
from orderbook.market.book_relations import BOOK_EVENTS, QUOTES, TOLD_BY_STATES, filled_by_books
from orderbook.views.program import CompiledProgram
from orderbook.views.types import CLOCK, Kind, Relation

if TYPE_CHECKING:
    from orderbook.run.pipeline import Pipeline

_NICE = 5
_BEGINNING = "the log's beginning is gone (keep_log = true in [log] keeps it)"


class LoggingRun(Protocol):
    """A run with a log.

    program: without views that were added. applied: the stamp of the last item that is applied. applying:
    one is being applied. whole: the log has its beginning.
    """

    pipeline: "Pipeline"
    program: CompiledProgram
    applied: int
    applying: bool

    @property
    def whole(self) -> bool: ...


class LoggedRows:
    """What nobody holds of a run of this configuration, from its log; see PastRows."""

    def __init__(self, configuration: Configuration, run: LoggingRun) -> None:
        self._configuration, self._run = configuration, run

    def lacks(self, relation: str) -> str | None:
        """See PastRows: there is what has come to the engine from the beginning, or can come from now on as
        if it had. What is placed and inferred in rows of `book_events` books know from where a view first
        reads it, and states are told as they change.
        """
        program = self._run.program
        if not self._run.whole:
            return _BEGINNING
        declared = [one for one in program.relations if one.name == relation]
        if relation != CLOCK and any(trigger.relation == relation for trigger in program.program.triggers):
            return None
        if relation == CLOCK or not any(map(filled_by_books, declared)):
            return "the run's log does not have them"
        if relation in (BOOK_EVENTS, *TOLD_BY_STATES):
            return "books tell them from when a view first reads them, so that the log cannot fill it"
        return None

    def mark(self, relations: Sequence[str]) -> "Marked | None":
        """See PastRows; within an item it cannot be said how far the run is."""
        run = self._run
        if not run.whole:
            raise DataError(_BEGINNING)
        if run.applying or run.pipeline.message_open:
            return None
        books = run.pipeline.books
        quotes = next((one for one in run.pipeline.engine.program.relations if one.name == QUOTES), None)
        if books is not None and QUOTES in relations and quotes is not None and filled_by_books(quotes):
            books.go_on_with_quotes()
        return Marked(self._configuration, run.applied, run.pipeline)


class Marked:
    """The rows after the item of a stamp, of a run that stands there; see MarkedRows.

    Books number the rows of `quotes` that they tell from there on as the first ones, until `join`.
    """

    def __init__(self, configuration: Configuration, stamp: int, pipeline: "Pipeline") -> None:
        self._configuration, self._stamp, self._pipeline = configuration, stamp, pipeline
        self._relations = {one.name: one for one in pipeline.engine.program.relations}
        self._index = {name: index for index, name in enumerate(self._relations)}
        books = pipeline.books
        self._before = np.zeros(0, np.int64) if books is None else books.quotes_told
        # Rows of each book that come before those, int64[instruments].
        self._more = np.zeros(len(self._before), np.int64)

    def rows(self, relations: Sequence[str]) -> Mapping[str, Rows]:
        """See MarkedRows."""
        request = pickle.dumps(_Request(self._configuration, self._stamp, tuple(relations)))
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, "-m", "orderbook.durability.logged_rows"]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, env=environment,
        ) as process:  # fmt: skip
            step_aside(process.pid)
            told, _ = process.communicate(request)
        if process.returncode:
            why = told.decode("utf-8", "replace").strip() or "the process that reads it has failed"
            raise DataError(f"the rows of {', '.join(relations)} cannot be taken from the log: {why}")
        answer: _Answer = pickle.loads(told)
        codes = self._pipeline.engine.dictionary.encode_all(answer.strings)
        instruments = self._pipeline.instruments
        there = [answer.quotes.get((one.venue, one.symbol), 0) for one in instruments][: len(self._before)]
        self._more = np.array(there, np.int64) - self._before
        return {
            name: (_recoded(rows, self._relations[name], codes), counts)
            for name, (rows, counts) in answer.rows.items()
        }

    def counted(self, changes: ChangeBatch) -> ChangeBatch:
        """See MarkedRows."""
        own = np.flatnonzero(changes.kinds >> 1 == self._index.get(QUOTES, -1))
        if not self._more.any() or not len(own):
            return changes
        encode = self._pipeline.engine.dictionary.encode
        told = zip(self._pipeline.instruments, self._more.tolist(), strict=False)
        more = {(encode(one.venue), encode(one.symbol)): count for one, count in told}
        names = [column.name for column in self._relations[QUOTES].columns]
        venue, symbol, number = (names.index(name) for name in ("venue", "symbol", "id"))
        values = changes.values.copy()
        books = zip(values[own, venue].tolist(), values[own, symbol].tolist(), strict=True)
        values[own, number] += np.array([more.get(book, 0) for book in books], np.int64)
        return ChangeBatch(changes.kinds, changes.flags, values)

    def join(self) -> None:
        """See MarkedRows."""
        if (books := self._pipeline.books) is not None:
            books.count_quotes(self._more)


def _recoded(rows: NDArray[np.int64], relation: Relation, codes: NDArray[np.int64]) -> NDArray[np.int64]:
    rows = rows.copy()
    for place, column in enumerate(relation.columns):
        if column.type.kind is Kind.TEXT:
            there = rows[:, place] != NULL_CODE
            rows[there, place] = codes[rows[there, place]]
    return rows


@dataclass(frozen=True)
class _Request:
    """The rows of relations after the item of this stamp."""

    configuration: Configuration
    stamp: int
    relations: tuple[str, ...]

    def answer(self) -> "_Answer":
        """What the log tells. Raises OrderbookError where it does not."""
        from orderbook.durability.past_states import open_past_run

        past = open_past_run(self.configuration, None, keep_rows=True)
        past.apply_through(self.stamp)
        rows = {name: past.engine.rows_of(name) for name in self.relations}
        books, quotes = past.pipeline.books, dict[tuple[str, str], int]()
        if books is not None:
            told = zip(past.pipeline.instruments, books.quotes_told.tolist(), strict=False)
            quotes = {(one.venue, one.symbol): count for one, count in told}
        return _Answer(past.engine.dictionary.strings(), rows, quotes)


@dataclass(frozen=True)
class _Answer:
    """Strings by their codes, rows by relation, and how many of `quotes` each book (venue, symbol) told."""

    strings: Sequence[str]
    rows: Mapping[str, Rows]
    quotes: Mapping[tuple[str, str], int]


def main() -> int:
    """Write the answer, pickled, or why there is none; the exit code."""
    give_way(_NICE)
    end_with_parent()
    request: _Request = pickle.load(sys.stdin.buffer)
    try:
        answer = request.answer()
    except OrderbookError as error:
        print(error)
        return 1
    pickle.dump(answer, sys.stdout.buffer)
    return 0


if __name__ == "__main__":
    sys.exit(main())
