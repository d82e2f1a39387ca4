"""A process of its own that answers one question about a run, which goes on beside it undisturbed.

Run as a program, it is that process: its standard input has the pickled question.
"""

import asyncio
import json
import os
import pickle
import sys
from asyncio.subprocess import DEVNULL, PIPE
from typing import Any, ClassVar, Protocol

from orderbook.errors import DataError, OrderbookError
from orderbook.processors import give_way, step_aside

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


if __name__ == "__main__":
    sys.exit(main())
