"""A process of its own that answers one question about a run, which goes on beside it undisturbed.

Run as a program, `python -m orderbook.monitor.question_process`, it is that process: its standard input has
the pickled question. How a view is kept is asked here; what the run's log answers, in `log_questions`, which
needs the engine.
"""

import asyncio
import json
import os
import pickle
import sys
from asyncio.subprocess import DEVNULL, PIPE
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from orderbook.core.errors import DataError, OrderbookError
from orderbook.core.processors import give_way, step_aside
from orderbook.views.compilation import compile_source
from orderbook.views.program import ProgramSource

# Below the run's priority and that of what serves clients.
_NICE = 10
# Seconds for an answer, a little less than the page waits.
_MOST_SECONDS = 58.0


class Question(Protocol):
    """What is asked; `command` takes its time for the same."""

    command: ClassVar[str]

    def answer(self) -> dict[str, Any]:
        """In the process: what JSON has. Raises OrderbookError where there is no answer."""


async def answer_of(question: Question) -> dict[str, Any]:
    """The answer of another process. Raises DataError where there is none, or none in time."""
    # Strategies are found where the run finds them.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = (sys.executable, "-m", "orderbook.monitor.question_process")
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
    return json.loads(told)


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

    source: ProgramSource
    view: str
    command: ClassVar[str] = "explain"

    def answer(self) -> dict[str, Any]:
        """The texts of the stages and the overview, and a line for each map."""
        # The run, which asks, has no use for these.
        from orderbook.engine.plan.describe import map_text
        from orderbook.engine.plan.planner import plan
        from orderbook.operations.explain import STAGES, overview, part_of

        program = compile_source(self.source)
        part = part_of(program.program, self.view)
        planned = plan(part)
        return {
            **{stage: STAGES[stage](program, self.view) for stage in _SHOWN},
            "overview": overview(program, self.view),
            "maps": [map_text(planned, declaration.name, {}, {}, "about ") for declaration in part.maps],
        }


if __name__ == "__main__":
    sys.exit(main())
