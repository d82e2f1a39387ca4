"""Functions that generated code calls by symbol, so that no caller compiles them again."""

from collections.abc import Callable
from typing import Any

from llvmlite import binding
from numba import cfunc, types
from numba.core import config

_alive: list[Any] = []


def exported(function: Callable[..., int]) -> Any:
    """Compile `function` (all int64) once, register it with LLVM and return how jitted code calls it.

    Division follows numpy: nothing is raised. The symbol holds the module's name, which holds the hash of the
    library.
    """
    if config.DISABLE_JIT:
        return function
    prototype = types.int64(*[types.int64] * function.__code__.co_argcount)
    compiled = cfunc(prototype, cache=True, error_model="numpy")(function)
    symbol = f"{function.__module__}_{function.__name__}"
    binding.add_symbol(symbol, compiled.address)
    _alive.append(compiled)
    return types.ExternalFunction(symbol, prototype)
