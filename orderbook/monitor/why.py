"""What an event of the run's past did: `orderbook why` of the run's log, by a process of its own.

Run as a program, it is that process: its standard input has the pickled configuration, view and version.
"""

import asyncio
import os
import pickle
import sys
from asyncio.subprocess import DEVNULL, PIPE

from engine.subscriptions import Version
from orderbook.configuration import Configuration
from orderbook.errors import DataError, OrderbookError
from orderbook.past_states import open_past_run
from orderbook.why import Explanation, why_text

# Below the run's priority and that of what serves clients.
_NICE = 10
# Seconds for an answer, a little less than the page waits.
MOST_SECONDS = 58.0


async def why(configuration: Configuration, view: str, version: Version) -> str:
    """What `orderbook why` prints. Raises DataError where there is no log, or with what that refuses."""
    if configuration.log.folder is None:
        raise DataError(
            "this run keeps no log, so that no event of its past can be explained; set folder in [log]"
        )
    # Strategies are found where the run finds them.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = (sys.executable, "-m", "orderbook.monitor.why")
    process = await asyncio.create_subprocess_exec(
        *command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, env=environment
    )
    try:
        async with asyncio.timeout(MOST_SECONDS):
            told, _ = await process.communicate(pickle.dumps((configuration, view, version)))
    except TimeoutError:
        at = ",".join(map(str, version))
        raise DataError(
            f"not explained within {MOST_SECONDS:.0f} s; `orderbook why {view} --at {at}` takes its time"
        ) from None
    finally:
        if process.returncode is None:
            process.kill()
    text = told.decode()
    if process.returncode:
        raise DataError(text.strip() or "the process that explains events has failed")
    return text


def main() -> int:
    """Print the answer, or why there is none; the exit code."""
    os.nice(_NICE)
    configuration, view, version = pickle.load(sys.stdin.buffer)
    try:
        past = open_past_run(configuration, version)
        text = why_text(Explanation(past, view, version).found(), past.engine.program)
    except OrderbookError as error:
        print(error)
        return 1
    print(text, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
