"""Functions that generated code calls by symbol or by address, so that no caller compiles them again."""

import ctypes
from collections.abc import Callable
from types import ModuleType
from typing import Any

from llvmlite import binding, ir
from numba import types
from numba.core import config

from orderbook.jit import c_function

from .memory import WORD, primitive

_alive: list[Any] = []
# With the jit disabled: functions by what stands for their addresses.
_plain: dict[int, Callable[..., int]] = {}
_ARGUMENTS = 3
_PROTOTYPE = ctypes.PYFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * _ARGUMENTS)


def exported(function: Callable[..., int]) -> Any:
    """Compile `function` (all int64) once, register it with LLVM and return how jitted code calls it.

    Division follows numpy: nothing is raised. The symbol holds the module's name, which holds the hash of the
    library.
    """
    if config.DISABLE_JIT:
        return function
    prototype = types.int64(*[types.int64] * function.__code__.co_argcount)
    compiled = c_function(function, prototype)
    binding.add_symbol(_symbol(function.__module__, function.__name__), compiled.address)
    _alive.append(compiled)
    return types.ExternalFunction(_symbol(function.__module__, function.__name__), prototype)


def address_of(module: ModuleType, name: str) -> int:
    """Where an exported function of three arguments is, for `call` and `callable_at`."""
    if config.DISABLE_JIT:
        function = getattr(module, name)
        _plain[id(function)] = function
        return id(function)
    return int(binding.address_of_symbol(_symbol(module.__name__, name)))


def callable_at(address: int) -> Callable[[int, int, int], int]:
    """An exported function of three arguments, for Python."""
    return _plain[address] if config.DISABLE_JIT else _PROTOTYPE(address)


def _symbol(module: str, name: str) -> str:
    return f"{module}_{name}"


def _call(address: int, *arguments: int) -> int:
    return _plain[address](*arguments)


@primitive(_call)
def call(typing_context, address, first, second, third):
    """call(address, first, second, third) -> int64: calls the exported function at an address."""

    def generate(context, builder, signature, arguments):
        kind = ir.FunctionType(WORD, [WORD] * _ARGUMENTS)
        function = builder.inttoptr(arguments[0], kind.as_pointer())
        return builder.call(function, arguments[1:])

    return types.int64(*[types.int64] * (1 + _ARGUMENTS)), generate
