"""Saves engines of some views and goes on with others, which must be as if they had always run.

A script, so that it can be run with NUMBA_DISABLE_JIT=1, when generated modules are plain Python:

    python tests/support/program_change_runner.py --seed 0 --count 20 --backends numba,interpreter
"""

import argparse
import random
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any, cast

import msgspec
from checkpoint_runner import contents, play, same
from generated_runner import stream
from views_catalogue import CATALOGUE, Entry

from orderbook.engine.checkpoint import Sections, checkpoints, write_checkpoint
from orderbook.engine.runtime.engine import Engine
from orderbook.engine.runtime.engine_state import Layout, layout_of, sections_of, state_of
from orderbook.engine.runtime.program_start import Backend
from orderbook.views.compilation import compile_views
from orderbook.views.program import CompiledProgram

LEVELS = ("full", "full", "first", "none")


def prelude(entry: Entry) -> str:
    return entry.sql.partition("CREATE VIEW")[0]


def own_text(entry: Entry) -> str:
    return entry.sql.removeprefix(prelude(entry))


PRELUDE = prelude(CATALOGUE[0])
ENTRIES = [entry for entry in CATALOGUE if prelude(entry) == PRELUDE]


def chosen(generator: random.Random) -> list[Entry]:
    """Some entries without names or parameters in common."""
    found: list[Entry] = []
    for entry in generator.sample(ENTRIES, generator.randrange(1, 4)):
        if not any(entry.parameters.keys() & other.parameters.keys() for other in found):
            found.append(entry)
    return found


def program_of(entries: list[Entry], generator: random.Random) -> CompiledProgram:
    parameters = {name: value for entry in entries for name, value in entry.parameters.items()}
    sql = PRELUDE + ";\n".join(own_text(entry).strip().rstrip(";") for entry in entries)
    return compile_views(sql, parameters, materialize=generator.choice(LEVELS))


def taken_over(before: Engine, after: Engine) -> list[str]:
    """Loads what one engine saves, through a file, into one of another program; the views that go on."""
    with tempfile.TemporaryDirectory() as folder:
        layout = msgspec.msgpack.encode(layout_of(before.program))
        parts: dict[str, Sections] = {"engine": sections_of(before.save()), "program": {"layout": layout}}
        write_checkpoint(Path(folder), parts, program=b"", position=0, stamp=0)
        (found,) = checkpoints(Path(folder))
        saved = msgspec.msgpack.decode(found.part("program")["layout"].bytes(), type=Layout)
        carried = after.carried_over(state_of(found.part("engine")), saved, {})
        after.load(carried.state)
    return sorted(carried.alike)


def check(seed: int, before: Backend, after: Backend, length: int = 16) -> int:
    """Compares on one stream and one pair of programs; how many views went on."""
    generator = random.Random(f"programs {seed}")
    first = chosen(generator)
    kept = [entry for entry in first if generator.random() < 0.5]
    taken = {name for entry in kept for name in entry.parameters}
    new = [entry for entry in chosen(generator) if not taken & entry.parameters.keys()]
    second = list({entry.name: entry for entry in [*kept, *new]}.values())
    one, other, again = (program_of(part, generator) for part in (first, second, second))
    again.dictionary.encode("a string that shifts all codes")
    # Both read of all that either reads, so that new views have rows to be filled from.
    events = [
        event
        for program, part in ((one, first), (other, second))
        for entry in part
        for event in stream(entry, program.program, generator, length)
    ]
    generator.shuffle(events)
    cut = generator.randrange(len(events) + 1)
    old, never = Engine(one, before), Engine(other, after)
    for event in events[:cut]:
        applied(old, one, event)
        applied(never, other, event)
    resumed = Engine(again, after)
    alike = taken_over(old, resumed)
    for event in [[], *events[cut:]]:
        refused = [applied(engine, program, event) for engine, program in ((never, other), (resumed, again))]
        assert refused[0] == refused[1], (event, refused)
        expected, found = contents(never), contents(resumed)
        assert same(expected, found), f"after {event}: {expected} is {found}"
    for relation in other.relations:
        rows = [sorted_rows(engine, relation.name) for engine in (never, resumed)]
        assert rows[0] == rows[1], relation.name
    return len(alike)


def applied(engine: Engine, program: CompiledProgram, event: list[Any]) -> list[str]:
    """What was refused: streams are mixed, so that some delete what is not there."""
    refused = []
    for change in event:
        try:
            play(engine, program, [change])
        except Exception as error:
            refused.append(str(error))
    return refused


def sorted_rows(engine: Engine, relation: str) -> list[Any]:
    rows, counts = engine.rows_of(relation)
    columns = engine.program.program.relation(relation).columns
    texts = [i for i, c in enumerate(columns) if c.type.kind.value == "TEXT"]
    found = []
    for row, count in zip(rows.tolist(), counts.tolist(), strict=True):
        for i in texts:
            row[i] = str(engine.dictionary.decode(row[i])) if row[i] >= 0 else "NULL"
        found.append((row, count))
    return sorted(found, key=str)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=10)
    parser.add_argument("--backends", default="interpreter,interpreter")
    options = parser.parse_args()
    before, after = cast(list[Backend], options.backends.split(","))
    failed = alike = 0
    for seed in range(options.seed, options.seed + options.count):
        try:
            alike += check(seed, before, after)
        except Exception:
            failed += 1
            print(f"{seed}:", traceback.format_exc(limit=-3)[-3000:], file=sys.stderr)
    print(f"{options.count - failed} passed, {failed} failed, {alike} views went on")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
