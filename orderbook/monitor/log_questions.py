"""Questions that the run's log answers, by a process of its own: what an event did, and what views cost.

Run as a program, it is that process: its standard input has the pickled configuration and question.
"""

import asyncio
import json
import os
import pickle
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE
from dataclasses import dataclass
from typing import Any

from engine.measures_text import view_nanoseconds
from engine.numba_runtime import NumbaRuntime
from engine.subscriptions import Version
from orderbook.configuration import Configuration
from orderbook.errors import DataError, OrderbookError, UserError
from orderbook.past_states import LAST, open_past_run
from orderbook.processors import give_way
from orderbook.why import Explanation, why_text

# Below the run's priority and that of what serves clients.
_NICE = 10
# Seconds for an answer, a little less than the page waits.
MOST_SECONDS = 58.0
# Costs are measured on at least so much of the log, from the checkpoint before.
_SAMPLE_NANOSECONDS = 30 * 10**9


@dataclass(frozen=True, slots=True)
class EventQuestion:
    """What the event of a version did to a view."""

    view: str
    version: Version


@dataclass(frozen=True, slots=True)
class CostQuestion:
    """What every view and statement costs an event, on what came in the last half minute or more."""


Question = EventQuestion | CostQuestion


async def answer_of(configuration: Configuration, question: Question) -> dict[str, Any]:
    """`text`, and of costs `events` and `views`. Raises DataError where there is no log, or no answer."""
    if configuration.log.folder is None:
        raise DataError("this run keeps no log, which would answer that; set folder in [log]")
    # Strategies are found where the run finds them.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = (sys.executable, "-m", "orderbook.monitor.log_questions")
    process = await asyncio.create_subprocess_exec(
        *command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, env=environment
    )
    try:
        async with asyncio.timeout(MOST_SECONDS):
            told, _ = await process.communicate(pickle.dumps((configuration, question)))
    except TimeoutError:
        raise DataError(f"no answer within {MOST_SECONDS:.0f} s; `orderbook why` takes its time") from None
    finally:
        if process.returncode is None:
            process.kill()
    if process.returncode:
        raise DataError(told.decode().strip() or "the process that reads the log has failed")
    return json.loads(told)


def main() -> int:
    """Print the answer, or why there is none; the exit code."""
    give_way(_NICE)
    configuration, question = pickle.load(sys.stdin.buffer)
    try:
        match question:
            case EventQuestion():
                answer = _event(configuration, question)
            case CostQuestion():
                answer = _costs(configuration)
    except OrderbookError as error:
        print(error)
        return 1
    json.dump(answer, sys.stdout)
    return 0


def _event(configuration: Configuration, question: EventQuestion) -> dict[str, Any]:
    past = open_past_run(configuration, question.version)
    found = Explanation(past, question.view, question.version).found()
    return {"text": why_text(found, past.engine.program)}


def _costs(configuration: Configuration) -> dict[str, Any]:
    """Events applied, ns for one of them by view, and `Engine.costs`."""
    if configuration.run.backend != "numba":
        raise DataError('statements are measured with backend = "numba" alone')
    sample = (time.time_ns() - _SAMPLE_NANOSECONDS, LAST, LAST)
    try:
        past = open_past_run(configuration, sample, measured=True)
    except UserError:
        # The run is younger than that, or keeps no older checkpoint.
        past = open_past_run(configuration, None, measured=True)
    pipeline, runtime = past.pipeline, past.engine.runtime
    assert isinstance(runtime, NumbaRuntime)
    before = pipeline.events + pipeline.changes
    past.go_to((LAST, LAST, LAST))
    events = pipeline.events + pipeline.changes - before
    spent = view_nanoseconds(runtime.plan, runtime)
    views = {view: round(elapsed / max(events, 1), 1) for view, elapsed in spent.items()}
    return {"events": events, "views": views, "text": past.engine.costs()}


if __name__ == "__main__":
    # Under its own name, as questions are pickled.
    from orderbook.monitor import log_questions

    sys.exit(log_questions.main())
