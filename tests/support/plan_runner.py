"""Runs hand-written M3 programs through the generated code and the interpreter, compared after every event.

A script, so that it can be run with NUMBA_DISABLE_JIT=1: `python tests/support/plan_runner.py [NAME ...]`.
"""

import random
import sys

from fuzz import InterpreterRuntime
from generated_runner import GeneratedRuntime, stream
from oracle import difference
from plan_programs import PROGRAMS, PlanProgram

from orderbook.views.m3_parse import parse


def check(entry: PlanProgram, seed: int, length: int) -> int:
    """Compares both runtimes on one stream; how many times they were compared."""
    program = parse(entry.text)[0]
    expected, found = InterpreterRuntime(program), GeneratedRuntime(program)
    compared = 0
    for event in stream(entry, program, random.Random(f"{entry.name} {seed}"), length):  # type: ignore[arg-type]
        for relation, insert, row in event:
            expected.change(relation, insert, row)
            found.change(relation, insert, row)
        wrong = difference(expected.rows("v"), found.rows("v"))
        assert wrong is None, f"{entry.name} after {event}: {wrong}"
        compared += 1
    return compared


def main() -> None:
    names = sys.argv[1:]
    for entry in PROGRAMS:
        if not names or entry.name in names:
            print(entry.name, sum(check(entry, seed, 40) for seed in range(3)), flush=True)


if __name__ == "__main__":
    main()
