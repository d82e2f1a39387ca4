"""Saves engines of catalogue views at a random event; new ones go on from there as the old ones do.

A script, so that it can be run with NUMBA_DISABLE_JIT=1, when generated modules are plain Python:

    python tests/support/checkpoint_runner.py --every 1 --seed 0 [NAME ...]
"""

import argparse
import itertools
import math
import random
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

from backends import BACKENDS
from fuzz import Change
from generated_runner import stream
from views_catalogue import CATALOGUE, Entry

from orderbook.engine.checkpoint import newest_checkpoint, write_checkpoint
from orderbook.engine.runtime.engine import Engine
from orderbook.engine.runtime.engine_state import program_hash, sections_of, state_of
from orderbook.views.compilation import compile_views
from orderbook.views.program import CompiledProgram


def through_file(engine: Engine, other: Engine) -> None:
    """Saves one engine in a file and loads it into another, which may encode strings otherwise."""
    program = program_hash(engine.program)
    with tempfile.TemporaryDirectory() as folder:
        sections = {"engine": sections_of(engine.save())}
        write_checkpoint(Path(folder), sections, program=program, position=7, stamp=8)
        found = newest_checkpoint(Path(folder), program_hash(other.program))
        assert found is not None and (found.position, found.stamp) == (7, 8)
        other.load(state_of(found.part("engine")))


def contents(engine: Engine) -> dict[Any, Any]:
    """Every view's rows by key: how often, and the columns."""
    return {
        view: {key: (row.multiplicity, *row.items()) for key, row in engine[view].items()}
        for view in engine.views
    }


def same(left: object, right: object) -> bool:
    """Equal, doubles but for what their order of adding rounds."""
    if isinstance(left, float) and isinstance(right, float):
        return math.isclose(left, right, rel_tol=1e-12, abs_tol=1e-9)
    if isinstance(left, tuple) and isinstance(right, tuple):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(left[k], right[k]) for k in left)
    return left == right


def play(engine: Engine, program: CompiledProgram, event: list[Change]) -> None:
    for relation, insert, row in event:
        names = [c.name for c in program.program.relation(relation).columns]
        (engine.insert if insert else engine.delete)(relation, dict(zip(names, row, strict=True)))


def check(entry: Entry, seed: int, length: int) -> int:
    """Compares on one stream, from each backend to each; how many times views were compared."""
    program, again = (compile_views(entry.sql, dict(entry.parameters)) for _ in range(2))
    again.dictionary.encode("a string that shifts all codes")
    generator = random.Random(f"{entry.name} {seed}")
    events = stream(entry, program.program, generator, length)
    cut = generator.randrange(len(events) + 1)
    compared = 0
    for before, after in itertools.product(BACKENDS, BACKENDS):
        whole, resumed = Engine(program, before), Engine(again, after)
        for event in events[:cut]:
            play(whole, program, event)
        through_file(whole, resumed)
        for event in [[], *events[cut:]]:
            for engine in (whole, resumed):
                play(engine, program, event)
            expected, found = contents(whole), contents(resumed)
            assert same(expected, found), f"{before} to {after} after {event}: {expected} is {found}"
            compared += 1
        if "DOUBLE" not in program.m3:
            sizes = [engine.map_sizes() for engine in (whole, resumed)]
            assert all(bool(sizes[0][m.name]) == bool(sizes[1][m.name]) for m in program.program.maps)
    return compared


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--every", type=int, default=1, help="one view in so many")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--length", type=int, default=14)
    options = parser.parse_args()
    failed = compared = 0
    entries = [e for e in CATALOGUE if not options.names or e.name in options.names][:: options.every]
    for entry in entries:
        try:
            compared += check(entry, options.seed, options.length)
        except Exception:
            failed += 1
            print(f"{entry.name}:", traceback.format_exc(limit=-3), file=sys.stderr)
    print(f"{len(entries) - failed} passed, {failed} failed, {compared} comparisons")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
