"""Functions of users' modules: their types, what they are made of, and what they note where they raise.

What one is made of is its own code, that of compiled functions that it calls, and the constants that they
name: by a digest of these its machine code is kept (compiled_functions.py). A module is imported once in a
process, so that an edit of its file is seen by the next one. Nothing here needs numba.
"""

import ctypes
import hashlib
import math
import struct
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

INTEGER, DOUBLE, BOOLEAN = "i", "d", "b"
MOST_PARAMETERS = 16
# What an integer or a boolean is where the function has raised. A double is then NaN, and infinity where the
# function gave none: no result is one of them.
RAISED = -(2**63)
_WORD, _REAL = struct.Struct("=q"), struct.Struct("=d")


class NotCompiledError(Exception):
    """What numba does not compile, or a result of another type; the message says which."""


@dataclass(frozen=True, slots=True)
class Signature:
    """The types of a function: a letter for each parameter, "i", "d" or "b", and for the result.

    low, high: what an integer of the result lies in.
    """

    parameters: str
    result: str
    low: int
    high: int

    @property
    def raised(self) -> float:
        """What is given where the function has raised."""
        return math.nan if self.result == DOUBLE else RAISED

    def in_python(self, arguments: Sequence[float]) -> list[int | float | bool]:
        """Arguments as a function of Python takes them."""
        kinds: Mapping[str, Callable[[Any], Any]] = {INTEGER: int, DOUBLE: float, BOOLEAN: bool}
        return [kinds[letter](one) for letter, one in zip(self.parameters, arguments, strict=True)]

    def in_range(self, value: Any) -> int | float:
        """What a function of Python gives, as C has it. Raises OverflowError beyond the declared type."""
        if self.result == DOUBLE:
            return float(value) + 0.0 if value == value else math.inf
        word = int(value)
        if not self.low <= word <= self.high:
            raise OverflowError(f"{word} is beyond the type that is declared")
        return word

    def noted(self, words: Sequence[int]) -> list[int | float | bool]:
        """The arguments of the call that has raised, from the words that `note_raised` wrote."""
        values = [
            _REAL.unpack(_WORD.pack(word))[0] if letter == DOUBLE else word
            for letter, word in zip(self.parameters, words[1:], strict=False)
        ]
        return self.in_python(values)


def note_raised(place: int, number: int, arguments: Sequence[float]) -> None:
    """Notes that a function has raised: its number, then a word for each argument, at an address."""
    words = [_WORD.unpack(_REAL.pack(one))[0] if isinstance(one, float) else one for one in arguments]
    for at, word in enumerate((number, *words)):
        ctypes.c_int64.from_address(place + 8 * at).value = word


def plain(function: Any) -> FunctionType | None:
    """The function of Python that was given, compiled by numba or not; None for something else."""
    own = function.py_func if _is_compiled(function) else function
    return own if isinstance(own, FunctionType) else None


def _is_compiled(value: Any) -> bool:
    """Whether it is a dispatcher of numba."""
    return hasattr(value, "py_func") and hasattr(value, "targetoptions")


def digest_of(function: Any) -> str:
    """64 hex digits over what a function is made of, as it is in this process."""
    order: list[Any] = [function]
    said = [sys.implementation.cache_tag or ""]
    for one in order:
        own = plain(one)
        assert own is not None
        options = sorted(one.targetoptions.items()) if _is_compiled(one) else ()
        said.append(f"{_content(own.__code__)} {own.__defaults__!r} {options!r}")
        for name, value in _named(own):
            if _is_compiled(value):
                if value not in order:
                    order.append(value)
                said.append(f"{name} is {order.index(value)}")
            else:
                said.append(f"{name} is {_text(value)}")
    return hashlib.sha256("\n".join(said).encode()).hexdigest()


def _content(code: CodeType) -> str:
    constants = [_content(c) if isinstance(c, CodeType) else _text(c) for c in code.co_consts]
    shape = code.co_argcount, code.co_varnames, code.co_freevars, code.co_names
    return f"{code.co_code!r} {code.co_exceptiontable!r} {constants} {shape}"


def _named(function: FunctionType) -> list[tuple[str, Any]]:
    """What the names of a function stand for that are not its own; of modules what it reads of them."""
    code, space = function.__code__, function.__globals__
    names = sorted(_names(code))
    found: list[tuple[str, Any]] = []
    for name in names:
        value = space.get(name)
        found.append((name, value))
        if isinstance(value, ModuleType):
            found += [(f"{name}.{own}", getattr(value, own)) for own in names if hasattr(value, own)]
    cells = function.__closure__ or ()
    return found + [(n, c.cell_contents) for n, c in zip(code.co_freevars, cells, strict=True)]


def _names(code: CodeType) -> set[str]:
    inner = (constant for constant in code.co_consts if isinstance(constant, CodeType))
    return set(code.co_names).union(*map(_names, inner))


def _text(value: object) -> str:
    """A value as text that another process writes alike."""
    if isinstance(value, tuple):
        return f"({', '.join(map(_text, value))})"
    if isinstance(value, frozenset):
        return f"{{{', '.join(sorted(map(_text, value)))}}}"
    if isinstance(value, np.ndarray):
        return f"{value.dtype} {value.shape} {hashlib.sha256(value.tobytes()).hexdigest()}"
    if isinstance(value, ModuleType):
        return f"module {value.__name__}"
    if isinstance(value, BuiltinFunctionType | FunctionType | type | np.ufunc):
        return f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', value.__name__)}"
    return f"{type(value).__name__} {value!r}"
