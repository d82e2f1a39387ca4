"""Everything that runs when a program takes the place of another, called once without data.

In one process this compiles what the cache of compiled code lacks, in another it loads what is there: whoever
does the same afterwards, with data and in a hurry, waits for neither.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from views.compiler.program import CompiledProgram

from .changes import CHECKED, END_OF_EVENT, END_OF_MESSAGE, ChangeBatch
from .map_matching import Match
from .runtime import Runtime, Watch


def warm_up(runtime: Runtime, program: CompiledProgram, watches: Sequence[Watch]) -> None:
    """Changes with these watches, with one of each view, and without any; lists of rows."""
    nothing = ChangeBatch(
        np.array([-1], np.int16),
        np.array([CHECKED | END_OF_EVENT | END_OF_MESSAGE], np.uint8),
        np.zeros((1, 1), np.int64),
    )
    each = [Watch(result.name, None, True, False) for result in program.program.results]
    for own in (watches, each, ()):
        runtime.watch(own)
        runtime.apply(nothing, 0)
    for result in program.program.results:
        list(runtime.rows(result.name))


def rehearse(
    start: Callable[[CompiledProgram], Runtime],
    old: CompiledProgram,
    new: CompiledProgram,
    matches: Mapping[str, Match],
    watches: Sequence[Watch],
) -> None:
    """All that becomes of a runtime of `new` beside one of `old`, on runtimes of their own."""
    before, after = start(old), start(new)
    try:
        warm_up(after, new, watches)
        for result in new.program.results:
            after.row(result.name, tuple(0 for _ in result.keys))
        after.map_bytes()
        after.map_sizes()
        after.memory_bytes()
        after.copied()
        after.adopt(before, matches)
    finally:
        before.close()
        after.close()
