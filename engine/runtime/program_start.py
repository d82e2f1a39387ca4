"""Starting a program on one of the runtimes of an engine, and compiling ahead what it will call.

The rehearsal calls once, without data, everything that runs when a program takes the place of another: in
one process this compiles what the cache of compiled code lacks, in another it loads what is there.
Whoever does the same afterwards, with data and in a hurry, waits for neither.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from orderbook.core.changes import CHECKED, END_OF_EVENT, END_OF_MESSAGE, ChangeBatch, Dictionary
from orderbook.core.errors import UserError
from orderbook.engine.runtime.interface import Runtime, Watch
from orderbook.engine.runtime.map_entries import Match
from orderbook.views.m3 import Program
from orderbook.views.program import CompiledProgram

if TYPE_CHECKING:
    from orderbook.engine.plan.statistics import Statistics

Backend = Literal["numba", "interpreter"]


def start_runtime(
    program: Program,
    dictionary: Dictionary,
    backend: str,
    statistics: "Statistics | None" = None,
    measured: bool = False,
) -> Runtime:
    """A runtime with empty maps; `statistics` are what its plan is chosen by, where it has one.

    words: the dictionary whose codes its values have. `measured` is for NumbaRuntime alone. Raises UserError
    for a backend that is none.
    """
    if backend == "interpreter":
        from orderbook.engine.runtime.interpreter import InterpreterRuntime

        return InterpreterRuntime(program, dictionary)
    if backend == "numba":
        from orderbook.engine.runtime.numba_runtime import NumbaRuntime

        return NumbaRuntime(program, dictionary, statistics, measured)
    raise UserError(f"backend {backend!r}; give one of {', '.join(get_args(Backend))}")


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
