"""Questions about a run: how a view is kept, what an event did to it, what views cost.

Each is answered by a process of its own, `python -m orderbook.monitor.questions` with the pickled question as
its input, so that the run goes on undisturbed. What an answer needs is imported there.
"""

import asyncio
import json
import os
import pickle
import sys
from asyncio.subprocess import DEVNULL, PIPE
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from orderbook.core.errors import DataError, OrderbookError, UserError
from orderbook.core.processors import give_way, step_aside

if TYPE_CHECKING:
    from orderbook.configuration.configuration import Configuration
    from orderbook.engine.runtime.subscriptions import Version
    from orderbook.views.program import ProgramSource

# As what serves clients, one of whom waits: lower, it gets next to nothing beside others that are busy.
_NICE = 5
# Seconds for an answer, a little less than the page waits.
_MOST_SECONDS = 118.0


class Question(Protocol):
    """What is asked; `command` takes its time for the same."""

    command: ClassVar[str]

    def answer(self) -> dict[str, Any]:
        """In the process: what JSON has. Raises OrderbookError where there is no answer."""


async def answer_of(question: Question) -> dict[str, Any]:
    """The answer of another process. Raises DataError where there is none, or none in time."""
    # Strategies are found where the run finds them.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = (sys.executable, "-m", "orderbook.monitor.questions")
    process = await asyncio.create_subprocess_exec(
        *command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, env=environment
    )
    step_aside(process.pid)
    try:
        async with asyncio.timeout(_MOST_SECONDS):
            told, _ = await process.communicate(pickle.dumps(question))
    except TimeoutError:
        raise DataError(
            f"no answer within {_MOST_SECONDS:.0f} s; `orderbook {question.command}` takes its time"
        ) from None
    finally:
        if process.returncode is None:
            process.kill()
    if process.returncode:
        raise DataError(told.decode().strip() or f"the process that answers {question.command} has failed")
    answer: dict[str, Any] = json.loads(told)
    return answer


def main() -> int:
    """Print the answer, or why there is none; the exit code."""
    give_way(_NICE)
    question: Question = pickle.load(sys.stdin.buffer)
    try:
        answer = question.answer()
    except OrderbookError as error:
        print(error)
        return 1
    json.dump(answer, sys.stdout)
    return 0


_SHOWN = ("sql", "calculus", "m3", "plan")


@dataclass(frozen=True, slots=True)
class ExplainQuestion:
    """The stages of a view of the program that `source` compiles to."""

    source: "ProgramSource"
    view: str
    command: ClassVar[str] = "explain"

    def answer(self) -> dict[str, Any]:
        """The texts of the stages and the overview, and a line for each map and column of the lineage."""
        from orderbook.operations.explain import STAGES
        from orderbook.operations.overview import overview
        from orderbook.views.compilation import compile_source
        from orderbook.views.lineage import lineage_lines

        program = compile_source(self.source)
        found = overview(program, self.view)
        return {
            **{stage: STAGES[stage](program, self.view) for stage in _SHOWN},
            "overview": found.text(),
            "lineage": [] if found.lineage is None else list(lineage_lines(found.lineage)),
            "maps": [one.text for one in found.maps],
        }


# Costs are measured on at least so much of the log, from the checkpoint before.
_SAMPLE_NANOSECONDS = 30 * 10**9


@dataclass(frozen=True)
class LogQuestion:
    """About the log of a run of this configuration. Raises DataError where it keeps none."""

    configuration: "Configuration"

    def __post_init__(self) -> None:
        if self.configuration.log.folder is None:
            raise DataError("this run keeps no log, which would answer that; set folder in [log]")


@dataclass(frozen=True)
class EventQuestion(LogQuestion):
    """What the event of a version did to a view."""

    view: str
    version: "Version"
    command: ClassVar[str] = "why"

    def answer(self) -> dict[str, Any]:
        """`text`. Raises OrderbookError where the log has no such event."""
        from orderbook.durability.past_states import open_past_run
        from orderbook.operations.why import Explanation, why_text

        past = open_past_run(self.configuration, self.version)
        found = Explanation(past, self.view, self.version).found()
        return {"text": why_text(found, past.engine.program)}


@dataclass(frozen=True)
class CostQuestion(LogQuestion):
    """What every view and statement costs an event, on what came in the last half minute or more.

    stamp: the newest of the run.
    """

    stamp: int = 0
    command: ClassVar[str] = "explain --live"

    def answer(self) -> dict[str, Any]:
        """Events applied, ns for one of them by view, and `Engine.costs` as `text`."""
        from orderbook.durability.past_states import LAST, open_past_run
        from orderbook.engine.runtime.measures import view_nanoseconds
        from orderbook.engine.runtime.numba_runtime import NumbaRuntime

        if self.configuration.run.backend != "numba":
            raise DataError('statements are measured with backend = "numba" alone')
        sample = (self.stamp - _SAMPLE_NANOSECONDS, LAST, LAST)
        try:
            past = open_past_run(self.configuration, sample, measured=True)
        except UserError:
            # The run is younger than that, or keeps no older checkpoint.
            past = open_past_run(self.configuration, None, measured=True)
        pipeline, runtime = past.pipeline, past.engine.runtime
        assert isinstance(runtime, NumbaRuntime)
        before = pipeline.events + pipeline.changes
        past.go_to((LAST, LAST, LAST))
        events = pipeline.events + pipeline.changes - before
        spent = view_nanoseconds(runtime.plan, runtime)
        views = {view: round(elapsed / max(events, 1), 1) for view, elapsed in spent.items()}
        return {"events": events, "views": views, "text": past.engine.costs()}


if __name__ == "__main__":
    sys.exit(main())
