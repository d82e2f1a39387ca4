"""The runtimes an engine can run on."""

from typing import TYPE_CHECKING, Literal, get_args

from orderbook.dictionary import Dictionary
from orderbook.errors import UserError
from views.compiler.m3 import Program

from .runtime import Runtime

if TYPE_CHECKING:
    from .plan.statistics import Statistics

Backend = Literal["numba", "interpreter"]


def start_runtime(
    program: Program,
    words: Dictionary,
    backend: str,
    statistics: "Statistics | None" = None,
    measured: bool = False,
) -> Runtime:
    """A runtime with empty maps; `statistics` are what its plan is chosen by, where it has one.

    words: the dictionary whose codes its values have. `measured` is for NumbaRuntime alone. Raises UserError
    for a backend that is none.
    """
    if backend == "interpreter":
        from .interpreter_runtime import InterpreterRuntime

        return InterpreterRuntime(program, words)
    if backend == "numba":
        from .numba_runtime import NumbaRuntime

        return NumbaRuntime(program, words, statistics, measured)
    raise UserError(f"backend {backend!r}; give one of {', '.join(get_args(Backend))}")
