"""Rows of relations as the log of a run has them, for a view that is added to it.

A process of its own, `python -m orderbook.durability.logged_rows` with the pickled request as its input,
applies the log from its beginning to the item after which the run stands, and keeps all rows; the run goes on
meanwhile, and notes what it applies.
"""

import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from orderbook.configuration.configuration import Configuration
from orderbook.core.changes import NULL_CODE, Dictionary
from orderbook.core.errors import DataError, OrderbookError
from orderbook.core.processors import end_with_parent, give_way, step_aside
from orderbook.engine.runtime.held_rows import Rows
from orderbook.market.book_relations import BOOK_EVENTS, QUOTES, TOLD_BY_STATES, filled_by_books
from orderbook.views.program import CompiledProgram
from orderbook.views.types import CLOCK, Kind, Relation

if TYPE_CHECKING:
    from orderbook.run.pipeline import Pipeline

_NICE = 5


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

    def gives(self, relation: str) -> bool:
        """See PastRows: what has come to the engine from the beginning, or can come from now on as if it
        had. Books number `quotes` and `book_events` from where a view first reads them.
        """
        program = self._run.program
        if not self._run.whole or relation == CLOCK:
            return False
        if any(trigger.relation == relation for trigger in program.program.triggers):
            return True
        declared = [one for one in program.relations if one.name == relation and filled_by_books(one)]
        return bool(declared) and relation not in (QUOTES, BOOK_EVENTS, *TOLD_BY_STATES)

    def mark(self) -> Callable[[Sequence[str]], Mapping[str, Rows]] | None:
        """See PastRows; within an item it cannot be said how far the run is."""
        run = self._run
        if not run.whole:
            raise DataError("the log's beginning has gone meanwhile; keep_log = true in [log] keeps it")
        if run.applying:
            return None
        engine = run.pipeline.engine
        relations = {one.name: one for one in engine.program.relations}
        return partial(_read, self._configuration, run.applied, engine.dictionary, relations)


def _read(
    configuration: Configuration,
    stamp: int,
    dictionary: Dictionary,
    relations: Mapping[str, Relation],
    names: Sequence[str],
) -> Mapping[str, Rows]:
    request = pickle.dumps(_Request(configuration, stamp, tuple(names)))
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
        raise DataError(f"the rows of {', '.join(names)} cannot be taken from the log: {why}")
    strings, found = pickle.loads(told)
    codes = dictionary.encode_all(strings)
    return {name: (_recoded(rows, relations[name], codes), counts) for name, (rows, counts) in found.items()}


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

    def answer(self) -> tuple[tuple[str, ...], dict[str, Rows]]:
        """The strings by their codes, and the rows. Raises OrderbookError where the log does not tell."""
        from orderbook.durability.past_states import open_past_run

        past = open_past_run(self.configuration, None, keep_rows=True)
        past.apply_through(self.stamp)
        rows = {name: past.engine.rows_of(name) for name in self.relations}
        return past.engine.dictionary.strings(), rows


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
