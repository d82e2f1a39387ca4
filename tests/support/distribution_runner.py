"""Runs stages of catalogue views through generated modules; without numba's compiler as plain Python.

Started as a program by a test, with NUMBA_DISABLE_JIT=1, the number of distributions and a seed.
"""

import random
import sys

import numpy as np
from block_distribution import blocks_of, coded, histories
from fuzz import Step, changes, program_of
from views_catalogue import CATALOGUE, Entry

from orderbook.core.changes import Dictionary
from orderbook.engine.distribution.distribute import COMPUTE, distribute
from orderbook.views.m3 import Program


def check(entry: Entry, program: Program, chosen: random.Random) -> bool:
    """Compares histories with those of one partition; False where a random choice makes one stage."""
    read = sorted({t.relation for t in program.triggers})
    keys = sorted({c.name for name in read for c in program.relation(name).columns})
    if not keys:
        return False
    partitions, key = chosen.choice((2, 3)), chosen.choice(keys)
    found = distribute(program, partitions=partitions, key=key, compute=chosen.choice(COMPUTE))
    if len(found.stages) == 1:
        return False
    dictionary = Dictionary()
    events = changes([_step(entry, program, chosen, read) for _ in range(14)], 1)
    blocks = blocks_of(program, coded(program, dictionary, events))
    expected = histories(distribute(program, partitions=1), dictionary, blocks, 1, "interpreter")
    assert histories(found, dictionary, blocks, partitions, "numba") == expected, (
        entry.name,
        partitions,
        key,
    )
    return True


def _step(entry: Entry, program: Program, chosen: random.Random, read: list[str]) -> Step:
    name = chosen.choice(read)
    row = tuple(chosen.choice(entry.domain(name, c.name)) for c in program.relation(name).columns)
    kind = chosen.choice(("insert", "insert", "copy", "update", "delete"))
    return kind, name, row, chosen.randrange(16)


# On some streams its list is refused where one partition looks at it.
CHOICES = [entry for entry in CATALOGUE if entry.name != "values_listed_of_all"]


def main(count: int, seed: int) -> None:
    # Arithmetic of machine words wraps in hashes; plain numpy warns of it.
    np.seterr(over="ignore")
    chosen, done = random.Random(seed), 0
    while done < count:
        entry = chosen.choice(CHOICES)
        done += check(entry, program_of(entry), chosen)
    print(f"{done} passed")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
