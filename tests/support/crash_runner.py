"""Processes to be killed: each recovers, then receives, logs and applies generated flow until it dies.

    python tests/support/crash_runner.py

forks one for each line of its input, a list in JSON: FOLDER, POLICY, SEED; it prints the process, and how it
ended. A process writes a line to FOLDER/calls for every call of the strategy, and one that begins with
"process" at its start, with the stamp that strategies had completed. `check_all` compares all processes with
a replay of it.
"""

import gc
import itertools
import json
import os
import sys
import time
import traceback
from pathlib import Path
from random import Random
from typing import Any

from durable_support import INSTRUMENTS, Trader, clean_replay, items, pipeline, rows

from orderbook.durability import journal
from orderbook.durability.durable_run import DurableRun
from orderbook.durability.journal import Asked, Completed
from orderbook.engine.checkpoint import newest_checkpoint
from orderbook.engine.log.log import Log, SyncPolicy
from orderbook.engine.runtime.engine_state import program_hash
from orderbook.run.event_queue import HybridClock, Stamped

HOUR = 3600 * 10**9


def main(folder: Path, policy: str, seed: int) -> None:
    """Run until killed."""
    output = os.open(folder / "calls", os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def note(call: object) -> None:
        os.write(output, (json.dumps(call, default=str) + "\n").encode())

    run = recovered(folder, policy, note)
    run.start()
    for number in itertools.count(run.clock.last % 1000):
        for item in items(seed + number, 200):
            stamped = Stamped(run.clock.stamp(), 0, item, True)
            run.accept([stamped])
            run.apply(stamped)
        run.checkpoint()


def recovered(folder: Path, policy: str, note: object = None) -> DurableRun:
    """A run that has recovered; `note` is called with its start and with every call of the strategy."""
    fresh = pipeline()
    log = Log.open(folder, journal.IDENTITY, policy=SyncPolicy.parse(policy), segment_bytes=1 << 18)
    program, checkpoints = program_hash(fresh.engine.program), folder / "checkpoints"
    # Nobody trusts the clock of a machine that crashes.
    clock = HybridClock(JumpingWall(), time.monotonic_ns)
    run = DurableRun(fresh, log, checkpoints, clock=clock, keep_log=True)
    if callable(note):
        entries = (journal.entry_of(record) for _, record in log.read())
        note(["process", max((e.stamp for e in entries if isinstance(e, Completed)), default=-1)])
        Trader._note = lambda self, *call: note(call)  # type: ignore[method-assign]
    run.recover(newest_checkpoint(checkpoints, program))
    return run


class JumpingWall:
    """A wall clock that is wrong by up to an hour when a process starts, and is set now and then."""

    def __init__(self) -> None:
        self._random = Random()
        self._wrong = self._random.randrange(-HOUR, HOUR)

    def __call__(self) -> int:
        if self._random.random() < 0.01:
            self._wrong = self._random.randrange(-HOUR, HOUR)
        return time.time_ns() + self._wrong


def check_all(folder: Path, policy: str) -> int:
    """Compares what all processes did with a replay of the log; how many calls that were."""
    run = recovered(folder, policy)
    entries = [journal.entry_of(record) for _, record in run.log.read()]
    clean, calls, stamps = clean_replay(entries)
    assert rows(run.pipeline) == rows(clean)
    received = [e.stamp for e in entries if isinstance(e, Stamped)]
    assert received == sorted(set(received))
    asked = [(e.request.strategy, e.request.kind, e.request.id) for e in entries if isinstance(e, Asked)]
    assert len(set(asked)) == len(asked)
    orders = [r for r in asked if r[1] == "order"]
    assert len(orders) == sum(summary.orders for summary in clean.host.summary())
    texts = [json.loads(json.dumps(call, default=str)) for call in calls]
    made = 0
    for lines in _processes(folder):
        begun: Any = lines[0][1]
        expected = [text for text, stamp in zip(texts, stamps, strict=True) if stamp > begun]
        assert lines[1:] == expected[: len(lines) - 1]
        made += len(lines) - 1
    run.log.close()
    return made


def _processes(folder: Path) -> list[list[list[object]]]:
    """The lines of each process; the last one of each may be cut off by the kill, never another."""
    found: list[list[list[object]]] = []
    for line in (folder / "calls").read_text().splitlines():
        value = json.loads(line)
        if value[0] == "process":
            found.append([])
        found[-1].append(value)
    return found


def serve() -> None:
    """Importing and compiling take longer than most processes live."""
    assert pipeline() and len(INSTRUMENTS)
    gc.freeze()
    for line in sys.stdin:
        folder, policy, seed = json.loads(line)
        child = os.fork()
        if not child:
            try:
                main(Path(folder), policy, seed)
            except BaseException:
                traceback.print_exc()
            os._exit(1)
        print(child, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    serve()
