"""How this project's functions are compiled, and how their machine code is kept.

numba's own cache trusts what lies in its folder: it unpickles it, and runs the code in it. Here machine code
is kept in the folder of generated modules, in entries that are verified before they are unpickled
(code_cache.py), and what cannot be read, written or used costs only that the function is compiled. An entry
depends on the text of the function's file and, other than numba's, on all that is compiled into it from
elsewhere: functions it calls, constants.
"""

import ctypes
import hashlib
import os
import pickle
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from itertools import count
from operator import itemgetter
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np
from numba import njit, types
from numba.core import config
from numba.core.bytecode import FunctionIdentity
from numba.core.caching import Cache
from numba.core.compiler import CompileResult
from numba.core.dispatcher import Dispatcher
from numba.core.imputils import lower_constant
from numba.core.registry import CPUDispatcher
from numba.core.serialize import dumps
from numba.experimental.function_type import lower_constant_dispatcher
from numba.extending import _Intrinsic, intrinsic

from orderbook.core.code_cache import Entry
from orderbook.core.generated_code import code_folder, is_published, source_digest
from orderbook.core.native_code import (
    BYTES,
    INTEGER,
    OBJECT,
    Form,
    native_address,
    native_callable,
    python_callable,
)
from orderbook.core.native_types import (
    Hole,
    NativeError,
    Number,
    Slot,
    hole_key,
    is_hole,
    is_pure,
    plain_function,
)

# The digest of a function's file as it was when the function was made.
_imported: dict[FunctionType, str | None] = {}
_CONSTANTS = (bool, int, float, complex, str, bytes, np.generic, np.dtype, types.Type, type(None))


def jit(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """A compiled function, cached on disk.

    Called from Python with integers and doubles it is compiled by `native`, where that takes it; with
    arrays, and where numba's code calls it, by numba: without a wrapper for C, which nothing calls, and not
    once for each constant that it is called with.
    """
    compiled = njit(no_cfunc_wrapper=True, **options)

    def decorated(function: Callable[..., Any]) -> Any:
        dispatcher = compiled(function)
        if not config.DISABLE_JIT:
            dispatcher._cache = MachineCode(dispatcher.py_func)
            dispatcher.get_call_template = _without_literals(dispatcher.get_call_template)
            dispatcher.__class__ = _Jitted
            dispatcher.natives, dispatcher.nogil = {}, bool(options.get("nogil"))
        return dispatcher

    return decorated


class _Jitted(CPUDispatcher):  # type: ignore[misc]
    """A dispatcher of numba that leaves calls with integers and doubles to native code."""

    def __call__(self, *arguments: Any) -> Any:
        kinds = tuple(map(type, arguments))
        found = self.natives.get(kinds)
        if found is None:
            found = self.natives[kinds] = self._compiled(kinds)
        return found(*arguments)

    def _compiled(self, kinds: tuple[type, ...]) -> Callable[..., Any]:
        if all(kind in _SCALARS for kind in kinds):
            form = form_of(self.py_func)
            with suppress(NativeError):
                return native_callable(self.py_func, [_SCALARS[k] for k in kinds], form, self.nogil)
        by_numba: Callable[..., Any] = super().__call__
        return by_numba


@lower_constant(types.Dispatcher)  # type: ignore[untyped-decorator]
def _dispatcher_constant(context: Any, builder: Any, kind: types.Type, dispatcher: Dispatcher) -> Any:
    """A called function as a value: without its address, which no call reads, and which no cache can keep."""
    if isinstance(dispatcher, _Jitted):
        return context.get_constant_null(kind)
    return lower_constant_dispatcher(context, builder, kind, dispatcher)


def _number_apart() -> None:
    """Functions of one name, and of arguments of the same types, get numbers that no other process gives.

    numba counts from 1 in each; of two symbols that are the same, in code that different processes kept,
    the linker takes whichever comes first.
    """
    FunctionIdentity._unique_ids = count(int.from_bytes(os.urandom(7)))


_number_apart()
os.register_at_fork(after_in_child=_number_apart)


def resolved(function: Callable[..., Any], *arguments: Any) -> Callable[..., Any]:
    """Calls a compiled function, and gives what is called with such arguments without a look at types."""
    function(*arguments)
    natives: dict[tuple[type, ...], Callable[..., Any]] = getattr(function, "natives", {})
    return natives.get(tuple(map(type, arguments)), function)


_SCALARS = {int: types.int64, float: types.float64}


def slot(value: int) -> int:
    """A constant of a generated module that is no part of its functions' machine code; see Slot."""
    return Slot(value)


def number(value: int) -> int:
    """A slot that holds a user's number."""
    return Number(value)


def primitive(fallback: Callable[..., Any], **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Decorate a numba intrinsic; with the jit disabled the name means `fallback` instead."""
    if config.DISABLE_JIT:
        return lambda _: fallback
    return lambda function: intrinsic(**options)(function) if options else intrinsic(function)


def exported(function: Callable[..., Any]) -> Any:
    """Compiles a function of int64 once, by `native`, and gives how compiled code calls it."""
    if config.DISABLE_JIT:
        return function
    assert isinstance(function, FunctionType)
    _imported[function] = source_digest(function.__code__.co_filename)
    arguments = [types.int64] * function.__code__.co_argcount
    symbol, _, _ = native_address(function, arguments, form_of(function))
    return types.ExternalFunction(symbol, types.int64(*arguments))


def entry_address(function: Any, arguments: int) -> int:
    """The address by which compiled code calls a function of so many int64, which gives one."""
    own = plain_function(function)
    assert own is not None
    _, address, _ = native_address(own, [types.int64] * arguments, form_of(own))
    return address


def called_with(
    arguments: str, result: str = INTEGER, *, nogil: bool = False
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Compiles a function of int64, by `native`, for Python; what compiled code calls is `exported`.

    arguments: a letter each, "i" an integer, "o" an object, of which the function is given the address.
    result: "i", or "y" for bytes; nogil: other threads run meanwhile; see `python_callable`.
    """

    def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
        if config.DISABLE_JIT:

            def plain(*given: Any) -> Any:
                pairs = zip(arguments, given, strict=True)
                found = function(*(id(one) if letter == OBJECT else one for letter, one in pairs))
                if result == BYTES:
                    place, size = (ctypes.c_int64 * 2).from_address(found)
                    return ctypes.string_at(place, size)
                return int(found)

            return plain
        assert isinstance(function, FunctionType)
        _imported[function] = source_digest(function.__code__.co_filename)
        _, address, _ = native_address(function, [types.int64] * len(arguments), form_of(function))
        return python_callable(address, arguments, result, nogil)

    return decorated


class MachineCode(Cache):  # type: ignore[misc]
    """The machine code of one function, by signature and processor: an entry of the cache folder."""

    def __init__(self, function: FunctionType) -> None:
        # numba's `_index_key` reads the name.
        self._py_func = function
        # The file may be replaced while the process runs.
        _imported[function] = source_digest(function.__code__.co_filename)
        self.enable()

    @property
    def cache_path(self) -> str:
        """The folder that holds it."""
        return str(code_folder().path)

    def load_overload(self, signature: Any, target_context: Any) -> CompileResult | None:
        """What was compiled for a signature; None where it was not, or cannot be used any more."""
        target_context.refresh()
        if (entry := self._entry()) is None:
            return None
        reduced = self._kept(entry).get(self._index_key(signature, target_context.codegen()))
        if reduced is None:
            return None
        try:
            return CompileResult._rebuild(target_context, *pickle.loads(reduced))
        except Exception as error:  # by whichever of its parts: pickled classes, LLVM, the dynamic linker
            code_folder().spoilt(entry.file, f"cannot be used ({type(error).__name__}: {error})")
            return None

    def save_overload(self, signature: Any, result: CompileResult) -> None:
        """Keep what was compiled, beside what is kept for other signatures."""
        entry = self._entry()
        fixed = not result.library.has_dynamic_globals and all(one.can_cache for one in result.lifted)
        if entry is None or not fixed:
            return
        kept = self._kept(entry) | {self._index_key(signature, result.codegen): dumps(result._reduce())}
        code_folder().write(entry, dumps(kept))

    def flush(self) -> None:
        """Forget what is kept: numba compiles anew."""
        if (entry := self._entry()) is not None:
            code_folder().write(entry, dumps({}))

    def _entry(self) -> Entry | None:
        digest = dependence(self._py_func)
        if not self._enabled or digest is None:
            return None
        function = self._py_func
        line = function.__code__.co_firstlineno
        return Entry(f"{function.__module__}.{function.__qualname__}-{line}", digest, "nbc")

    def _kept(self, entry: Entry) -> dict[Any, bytes]:
        if (data := code_folder().read(entry)) is None:
            return {}
        try:
            return dict(pickle.loads(data))
        except Exception as error:
            code_folder().spoilt(entry.file, f"cannot be read ({type(error).__name__}: {error})")
            return {}


def dependence(function: FunctionType) -> str | None:
    """64 hex digits over all that code of a function is made of; None where its text is not known."""
    form = form_of(function)
    if form is None:
        return None
    return hashlib.sha256(f"{form.digest} {list(map(hole_key, form.holes))}".encode()).hexdigest()


def form_of(function: FunctionType) -> Form | None:
    """What the machine code of a function is made of; None where its text is not known.

    That is the text of its file (of functions of generated modules their code, whatever they are called and
    call other things), values of globals and closures that are constants, and the same of all compiled
    functions that are reached from it. Slots, and functions compiled apart, are holes.
    """
    reached = {function: 0}
    holes: dict[str, Hole] = {}
    numbers: dict[str, int] = {}
    said = [f"{sys.implementation.cache_tag} {int(config.OPT)}"]
    for one in (order := [function]):
        text, parts = _made_of(one)
        if text is None:
            return None
        said.append(text)
        for part in parts:
            if isinstance(part, str):
                said.append(part)
            elif isinstance(part, FunctionType):
                if part not in reached:
                    reached[part] = len(order)
                    order.append(part)
                said.append(f"function {reached[part]}")
            else:
                key = hole_key(part)
                holes.setdefault(key, part)
                typed = "" if isinstance(part, Slot) else f" {part.sig} {is_pure(part)}"
                said.append(f"hole {numbers.setdefault(key, len(numbers))}{typed}")
    digest = hashlib.sha256("\n".join(said).encode()).hexdigest()
    return Form(digest, tuple(holes.values()))


@cache
def _made_of(function: FunctionType) -> tuple[str | None, tuple[str | FunctionType | Hole, ...]]:
    """Its text, and what it names: constants in text, compiled functions, holes.

    In their order in a function of a generated module, whose names mean nothing; else by their names.
    """
    code = function.__code__
    if is_published(code.co_filename):
        return repr(_content(code)), tuple(part for _, part in _named(function, code.co_names, {}))
    file = _imported[function] if function in _imported else source_digest(code.co_filename)
    closure = zip(code.co_freevars, (c.cell_contents for c in function.__closure__ or ()), strict=True)
    named = sorted(_named(function, sorted(_names(code)), dict(closure)), key=itemgetter(0))
    parts: list[str | FunctionType | Hole] = []
    for name, part in named:
        parts += (name, part)
    return file and f"{file} {function.__qualname__}", tuple(parts)


def _named(
    function: FunctionType, names: Sequence[str], closure: Mapping[str, object]
) -> Iterator[tuple[str, str | FunctionType | Hole]]:
    """Names of a function that are not its own, and what they stand for; the name itself where it is none."""
    space = function.__globals__
    for name in names:
        if name not in space:
            yield name, name
            continue
        value = space[name]
        yield name, _part(value)
        if isinstance(value, ModuleType):
            yield name, value.__name__
            yield from ((f"{name}.{own}", _part(getattr(value, own))) for own in names if hasattr(value, own))
    yield from ((name, _part(value)) for name, value in closure.items())


def _part(value: object) -> str | FunctionType | Hole:
    if isinstance(value, Dispatcher):
        function: FunctionType = value.py_func
        return function
    if is_hole(value):
        return value
    return str(_text(value))


def _content(code: CodeType) -> tuple[Any, ...]:
    """What a function does, wherever it stands and whatever its variables are called."""
    constants = tuple(_content(c) if isinstance(c, CodeType) else c for c in code.co_consts)
    documented = constants[:1] if constants and isinstance(constants[0], str) else ()
    return code.co_code, constants[len(documented) :], len(code.co_names), code.co_nlocals, code.co_argcount


def _names(code: CodeType) -> set[str]:
    inner = (constant for constant in code.co_consts if isinstance(constant, CodeType))
    return set(code.co_names).union(*map(_names, inner))


def _text(value: object) -> str | None:
    """A value that is compiled in, as text that another process writes alike; None: it is none."""
    if isinstance(value, tuple):
        return f"({', '.join(str(_text(item)) for item in value)})"
    if isinstance(value, _Intrinsic):
        value = value._defn
    if isinstance(value, FunctionType):
        # What an intrinsic was made for, as the layout of a record.
        cells = (cell.cell_contents for cell in value.__closure__ or ())
        own = [str(_text(one)) for one in cells if isinstance(one, _CONSTANTS)]
        return " ".join((f"{value.__module__}.{value.__qualname__}", *own))
    if isinstance(value, np.ndarray):
        return f"{value.dtype} {value.shape} {hashlib.sha256(value.tobytes()).hexdigest()}"
    return f"{type(value).__name__} {value!r}" if isinstance(value, _CONSTANTS) else None


def _without_literals(template: Callable[..., Any]) -> Callable[..., Any]:
    def call_template(arguments: Sequence[types.Type], named: Mapping[str, types.Type]) -> Any:
        return template(
            tuple(types.unliteral(a) for a in arguments),
            {name: types.unliteral(a) for name, a in named.items()},
        )

    return call_template
