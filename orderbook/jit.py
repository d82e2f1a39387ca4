"""How this project's functions are compiled."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from numba import njit, types
from numba.core import config


def jit(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """numba's `njit`, cached on disk, with less to compile.

    There is no wrapper for C, which nothing calls, and a call with a constant compiles what any other
    integer does, where numba makes a function of its own for each constant.
    """
    compiled = njit(cache=True, no_cfunc_wrapper=True, **options)

    def decorated(function: Callable[..., Any]) -> Any:
        dispatcher = compiled(function)
        if not config.DISABLE_JIT:
            dispatcher.get_call_template = _without_literals(dispatcher.get_call_template)
        return dispatcher

    return decorated


def _without_literals(template: Callable[..., Any]) -> Callable[..., Any]:
    def call_template(arguments: Sequence[types.Type], named: Mapping[str, types.Type]) -> Any:
        return template(
            tuple(types.unliteral(a) for a in arguments),
            {name: types.unliteral(a) for name, a in named.items()},
        )

    return call_template
