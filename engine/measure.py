"""What a running engine shows of its data: entries of maps, lengths of loops, changes of relations."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import combinations

import numpy as np

from views.compiler.m3 import Program

from .changes import ChangeBatch
from .plan.statistics import Statistics, loop_name
from .runtime import Runtime

# Maps with more keys are looped over in too many ways to measure all of them.
_MOST_KEYS = 6


class UpdateCounter:
    """Counts the changes of every relation; `kinds` as in a ChangeBatch."""

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()

    def record(self, batch: ChangeBatch) -> None:
        """Counts changes that have been applied."""
        kinds, counts = np.unique(batch.kinds[batch.kinds >= 0], return_counts=True)
        self._counts.update(dict(zip(kinds.tolist(), counts.tolist(), strict=True)))

    def updates(self, program: Program) -> dict[str, int]:
        """Inserts and deletes of every relation that changed, by `+name` and `-name`."""
        return {
            f"{'-' if kind & 1 else '+'}{program.relations[kind >> 1].name}": count
            for kind, count in sorted(self._counts.items())
        }


def statistics_of(program: Program, runtime: Runtime, updates: UpdateCounter | None) -> Statistics:
    """Statistics of the state now; the mean slices are over the keys that are there."""
    entries, loops = {}, {}
    for declaration in program.maps:
        keys = runtime.entries(declaration.name).keys
        entries[declaration.name] = len(keys)
        for known in _positions(len(declaration.keys)):
            slices = len(np.unique(keys[:, known], axis=0)) if known else 1
            loops[loop_name(declaration.name, known)] = len(keys) / max(slices, 1)
    return Statistics(entries, updates.updates(program) if updates else {}, loops)


def _positions(keys: int) -> Iterator[Sequence[int]]:
    """The sets of keys that may be known of a loop."""
    for size in range(keys) if keys <= _MOST_KEYS else (0,):
        yield from map(list, combinations(range(keys), size))
