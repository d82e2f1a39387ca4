"""Functions of users' modules as machine code: numba compiles them, and C calls them.

What C calls is a function of a few instructions around the user's: its result is in the range of its type,
and where it raises, that is noted with the arguments. Both are kept in the cache under names made of what the
user's function is made of.
"""

import hashlib
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from types import FunctionType
from typing import Any

from llvmlite import binding, ir
from numba import jit, types
from numba.core import config
from numba.core.dispatcher import Dispatcher
from numba.core.errors import NumbaError

from orderbook.core.code_cache import Entry
from orderbook.core.jit import MachineCode
from orderbook.core.native_code import loaded_text, python_callable
from orderbook.core.native_types import PURE
from orderbook.core.user_functions import (
    BOOLEAN,
    DOUBLE,
    INTEGER,
    RAISED,
    NotCompiledError,
    Signature,
    note_raised,
    plain,
)

_KINDS = {INTEGER: types.int64, DOUBLE: types.float64, BOOLEAN: types.boolean}
_WORDS = {**_KINDS, BOOLEAN: types.int64}
_LONG, _REAL, _BYTE, _STATUS = ir.IntType(64), ir.DoubleType(), ir.IntType(8), ir.IntType(32)
_IN_C = {INTEGER: _LONG, DOUBLE: _REAL, BOOLEAN: _LONG}


@dataclass(frozen=True, slots=True)
class CompiledFunction:
    """A function as C calls it, which generated code does by `symbol`, and Python.

    Its first argument is the address of the words in which it notes that it has raised: its number, then a
    word for each argument; booleans are 0 and 1.
    """

    symbol: str
    signature: types.Type
    call: Callable[..., int | float]

    @property
    def external(self) -> Any:
        """The function as modules of generated code name it."""
        return self.call if config.DISABLE_JIT else types.ExternalFunction(self.symbol, self.signature)


@cache
def compiled(function: Any, digest: str, number: int, signature: Signature) -> CompiledFunction:
    """The function of a digest; what it notes where it raises begins with the number.

    Raises NotCompiledError.
    """
    made_of = hashlib.sha256(f"{digest} {number} {signature}".encode()).hexdigest()
    symbol, inner = f"{PURE}{made_of[:32]}", f"user_{made_of[:32]}"
    words = [types.int64, *(_WORDS[letter] for letter in signature.parameters)]
    kind = _WORDS[signature.result](*words)
    own = plain(function)
    assert own is not None
    if config.DISABLE_JIT:
        return CompiledFunction(symbol, kind, _in_python(own, number, signature))
    options = function.targetoptions if isinstance(function, Dispatcher) else {"boundscheck": True}
    found = jit(**{**options, "nopython": True})(own)
    found._cache = _Kept(own, Entry("python", made_of, "nbc"))
    kinds = tuple(_KINDS[letter] for letter in signature.parameters)
    try:
        found.compile(kinds)
    except NumbaError as error:
        raise NotCompiledError(_said(error)) from None
    made = found.overloads[kinds]
    returned = made.signature.return_type
    _check(returned, signature.result)
    binding.add_symbol(inner, made.library.get_pointer_to_function(made.fndesc.llvm_func_name))
    address = loaded_text(symbol, str(_around(symbol, inner, number, signature, returned)))
    binding.add_symbol(symbol, address)
    _called.append(found)
    letters = "".join(INTEGER if letter == BOOLEAN else letter for letter in signature.parameters)
    result = INTEGER if signature.result == BOOLEAN else signature.result
    return CompiledFunction(symbol, kind, python_callable(address, INTEGER + letters, result))


# Their code is called by its address for as long as the process runs.
_called: list[Dispatcher] = []


class _Kept(MachineCode):
    """Machine code under a name of its own: numba's would be that of a file, as it is by now."""

    def __init__(self, function: FunctionType, entry: Entry) -> None:
        self._py_func, self._own = function, entry
        self.enable()

    def _entry(self) -> Entry | None:
        return self._own if self._enabled else None


def _check(returned: types.Type, result: str) -> None:
    """Raises NotCompiledError for a result that is not of the type declared."""
    if isinstance(returned, types.Optional | types.NoneType):
        raise NotCompiledError("it may return None; return NaN where a DOUBLE is NULL")
    numbers = (types.Integer, types.Boolean)
    taken = {DOUBLE: (types.Float, *numbers), INTEGER: numbers, BOOLEAN: types.Boolean}[result]
    if not isinstance(returned, taken) or returned == types.uint64:
        raise NotCompiledError(f"it returns {returned}")


def _around(symbol: str, inner: str, number: int, signature: Signature, returned: types.Type) -> ir.Module:
    """What C calls: calls numba's function, which takes a place for the result and one for an error."""
    module = ir.Module()
    place = _BYTE if isinstance(returned, types.Boolean) else _llvm_number(returned)
    given = [_BYTE if letter == BOOLEAN else _IN_C[letter] for letter in signature.parameters]
    pointers = [place.as_pointer(), _BYTE.as_pointer().as_pointer()]
    called = ir.Function(module, ir.FunctionType(_STATUS, [*pointers, *given]), inner)
    result = _IN_C[signature.result]
    arguments = [_LONG, *(_IN_C[letter] for letter in signature.parameters)]
    entry = ir.Function(module, ir.FunctionType(result, arguments), symbol)
    notes, *values = entry.args
    builder = ir.IRBuilder(entry.append_basic_block())
    out, error = builder.alloca(place), builder.alloca(_BYTE.as_pointer())
    in_numba = [
        builder.zext(builder.icmp_signed("!=", value, _LONG(0)), _BYTE) if letter == BOOLEAN else value
        for letter, value in zip(signature.parameters, values, strict=True)
    ]
    fine = builder.icmp_signed("==", builder.call(called, [out, error, *in_numba]), _STATUS(0))
    with builder.if_then(fine, likely=True):
        value = _converted(builder, builder.load(out), returned, signature.result)
        if signature.result == DOUBLE:
            value = builder.fadd(value, _REAL(0.0))
            builder.ret(builder.select(builder.fcmp_unordered("uno", value, value), _REAL(math.inf), value))
        else:
            above = builder.icmp_signed(">=", value, _LONG(signature.low))
            within = builder.and_(above, builder.icmp_signed("<=", value, _LONG(signature.high)))
            with builder.if_then(within, likely=True):
                builder.ret(value)
    words = builder.inttoptr(notes, _LONG.as_pointer())
    for at, word in enumerate((_LONG(number), *values)):
        builder.store(builder.bitcast(word, _LONG), builder.gep(words, [_LONG(at)]))
    builder.ret(_REAL(math.nan) if signature.result == DOUBLE else _LONG(RAISED))
    return module


def _llvm_number(kind: types.Type) -> ir.Type:
    if isinstance(kind, types.Integer):
        return ir.IntType(kind.bitwidth)
    return ir.FloatType() if kind.bitwidth == 32 else _REAL


def _converted(builder: ir.IRBuilder, value: ir.Value, kind: types.Type, result: str) -> ir.Value:
    """A number of numba's type as a double or an int64."""
    if isinstance(kind, types.Float):
        return value if kind.bitwidth == 64 else builder.fpext(value, _REAL)
    signed = isinstance(kind, types.Integer) and kind.signed
    if value.type != _LONG:
        value = builder.sext(value, _LONG) if signed else builder.zext(value, _LONG)
    return builder.sitofp(value, _REAL) if result == DOUBLE else value


_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def _said(error: NumbaError) -> str:
    """What an error says first beside where numba was, and of which line."""
    lines = [_COLOUR.sub("", line).strip() for line in str(error).splitlines()]
    said = [one for one in lines if one and not one.startswith(("Failed in ", "During: ", "- Resolution"))]
    where = next((one for one in lines if one.startswith('File "')), "")
    line = re.search(r"line (\d+)", where)
    what = said[0].rstrip(".:") if said else type(error).__name__
    return f"{what} (line {line[1]})" if line else what


def _in_python(function: FunctionType, number: int, signature: Signature) -> Callable[..., int | float]:
    """What C calls, uncompiled."""

    def call(place: int, *arguments: float) -> int | float:
        try:
            return signature.in_range(function(*signature.in_python(arguments)))
        except Exception:
            note_raised(place, number, arguments)
        return signature.raised

    return call
