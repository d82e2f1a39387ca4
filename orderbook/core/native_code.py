"""Machine code of what `native` compiles: optimised, kept in the cache, loaded, called.

Python calls it as a builtin function around an address, at some 50 ns a call where ctypes takes ten times as
long. What converts the arguments is a small function of CPython's C API, one for each signature, kept as
other machine code is. Source: CPython documentation, "Common Object Structures" (METH_FASTCALL), "Integer
Objects".
"""

import ctypes
import hashlib
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import FunctionType
from typing import Any

from llvmlite import binding, ir
from numba import types
from numba.core import config

from orderbook.core.code_cache import Entry
from orderbook.core.generated_code import code_folder, is_published
from orderbook.core.native import NativeModule
from orderbook.core.native_types import SLOT_BASE, Hole, Slot, hole_symbol
from orderbook.core.step_times import step_times

_WORD, _REAL, _BYTE = ir.IntType(64), ir.DoubleType(), ir.IntType(8)
_OBJECT = _BYTE.as_pointer()
_FASTCALL = 0x80
INTEGER, DOUBLE, OBJECT, BOOLEAN, BYTES = "i", "d", "o", "b", "y"
_API = {
    "PyLong_AsLongLong": ir.FunctionType(_WORD, [_OBJECT]),
    "PyFloat_AsDouble": ir.FunctionType(_REAL, [_OBJECT]),
    "PyLong_FromLongLong": ir.FunctionType(_OBJECT, [_WORD]),
    "PyFloat_FromDouble": ir.FunctionType(_OBJECT, [_REAL]),
    "PyBool_FromLong": ir.FunctionType(_OBJECT, [_WORD]),
    "PyBytes_FromStringAndSize": ir.FunctionType(_OBJECT, [_OBJECT, _WORD]),
    "PyErr_Occurred": ir.FunctionType(_OBJECT, []),
    "PyErr_BadArgument": ir.FunctionType(ir.IntType(32), []),
    "PyEval_SaveThread": ir.FunctionType(_OBJECT, []),
    "PyEval_RestoreThread": ir.FunctionType(ir.VoidType(), [_OBJECT]),
}
_TYPES = {INTEGER: _WORD, DOUBLE: _REAL, OBJECT: _WORD, BOOLEAN: _WORD, BYTES: _WORD}
_RESULTS = {INTEGER: "PyLong_FromLongLong", DOUBLE: "PyFloat_FromDouble", BOOLEAN: "PyBool_FromLong"}


# One compiles at a time.
_lock = threading.RLock()
# By symbol. A function whose digest is not known is told from others by its number, so it stays.
_loaded: dict[str, tuple[FunctionType, int, types.Type]] = {}


@dataclass(frozen=True, slots=True)
class Form:
    """What machine code is made of: a digest over all but what is left open, and that, in order."""

    digest: str
    holes: tuple[Hole, ...] = ()


@dataclass(slots=True)
class CodeCounts:
    """Functions whose code this process has read from the cache, and made."""

    read: int = 0
    made: int = 0


counts = CodeCounts()


class _Method(ctypes.Structure):
    """CPython's PyMethodDef."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


# Builtin functions point to them for as long as the process runs.
_methods: list[_Method] = []


@cache
def _target_machine() -> binding.TargetMachine:
    """The machine that this process runs on."""
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    target = binding.Target.from_default_triple()
    cpu, features, level = _made_for()
    return target.create_target_machine(
        cpu=cpu, features=features, opt=level, reloc="static", codemodel="jitdefault", jit=True
    )


@cache
def _made_for() -> tuple[str, str, int]:
    """The processor, its features, and the level of optimisation, which is numba's up to 2."""
    return binding.get_host_cpu_name(), binding.get_host_cpu_features().flatten(), min(int(config.OPT), 2)


@cache
def _engine() -> binding.ExecutionEngine:
    return binding.create_mcjit_compiler(binding.parse_assembly(""), _target_machine())


def _object_code(text: str) -> bytes:
    """The machine code of a module of LLVM, optimised as a whole."""
    machine = _target_machine()
    parsed = binding.parse_assembly(text)
    # Loops here are over few words, where vectors cost more than they save.
    options = binding.create_pipeline_tuning_options(speed_level=_made_for()[2])
    options.loop_vectorization = options.slp_vectorization = False
    builder = binding.create_pass_builder(machine, options)
    builder.getModulePassManager().run(parsed, builder)
    made: bytes = machine.emit_object(parsed)
    return made


def native_address(
    function: FunctionType,
    arguments: Sequence[types.Type],
    form: Form | None,
    methods: Mapping[str, Any] | None = None,
) -> tuple[str, int, types.Type]:
    """The symbol by which a function's machine code is registered with LLVM, where it is, what it returns.

    form: what it is made of, None: it is not kept. The symbol is made of it, so that functions made of
    the same are one. methods: what `record.name(…)` calls, with the record as its first argument. Raises
    NativeError where it cannot be compiled.
    """
    with _lock:
        names = " ".join(kind.name for kind in arguments)
        made_of = _hash(f"{form.digest if form else id(function)} {names} {_made_for()}")
        holes = [_linked(hole) for hole in form.holes] if form else []
        symbol = _symbol(_hash(f"{made_of} {holes}") if holes else made_of)
        if symbol not in _loaded:
            code, kind = _code(function, made_of, arguments, form, methods)
            code = code.replace(_symbol(made_of).encode(), symbol.encode())
            for number, hole in enumerate(holes):
                code = code.replace(hole_symbol(number).encode(), hole.encode())
            with step_times.step("linking"):
                engine = _engine()
                engine.add_object_file(binding.ObjectFileRef.from_data(code))
                engine.finalize_object()
                address = int(engine.get_function_address(symbol))
                binding.add_symbol(symbol, address)
            _loaded[symbol] = function, address, kind
        return symbol, *_loaded[symbol][1:]


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _symbol(made_of: str) -> str:
    return f"native_{made_of[:32]}"


@cache
def _linked(hole: Hole) -> str:
    """The symbol that takes the place of a hole."""
    if not isinstance(hole, Slot):
        return str(hole.symbol)
    symbol = f"number_{hole + SLOT_BASE:032x}"
    binding.add_symbol(symbol, hole + SLOT_BASE)
    return symbol


_KINDS = {kind.name: kind for kind in (types.int64, types.float64, types.boolean, types.none)}


def _code(
    function: FunctionType,
    made_of: str,
    arguments: Sequence[types.Type],
    form: Form | None,
    methods: Mapping[str, Any] | None,
) -> tuple[bytes, types.Type]:
    """Machine code with its holes, and what it returns."""
    entry = None
    if form is not None:
        entry = Entry("native", made_of, "obj")
        kept = code_folder().read(entry)
        if kept is not None:
            counts.read += 1
            name, _, code = kept.partition(b"\n")
            return code, _KINDS[name.decode()]
    if not counts.made and not is_published(function.__code__.co_filename) and sys.stderr.isatty():
        # Books, orders and feeds take ten seconds and more, before a command can say anything.
        print(f"first start: compiling, once, what is then kept in {code_folder().path}", file=sys.stderr)
    counts.made += 1
    module = NativeModule(methods, form.holes if form else ())
    with step_times.step("types and LLVM"):
        kind = module.add(function, _symbol(made_of), arguments)
        text = str(module.module)
    with step_times.step("machine code"):
        code = _object_code(text)
    if entry is not None:
        code_folder().write(entry, kind.name.encode() + b"\n" + code)
    return code, kind


_LETTERS = {types.int64: INTEGER, types.float64: DOUBLE, types.boolean: BOOLEAN, types.none: INTEGER}


def native_callable(
    function: FunctionType, arguments: Sequence[types.Type], form: Form | None, nogil: bool
) -> Callable[..., Any]:
    """A function of integers and doubles, compiled, for Python. Raises NativeError."""
    _, address, kind = native_address(function, arguments, form)
    called = python_callable(address, "".join(_LETTERS[a] for a in arguments), _LETTERS[kind], nogil)
    if kind == types.none:

        def nothing(*values: Any) -> None:
            called(*values)

        return nothing
    return called


def python_callable(
    address: int, arguments: str, result: str = INTEGER, nogil: bool = False
) -> Callable[..., Any]:
    """The function of C at an address, for Python.

    arguments: a letter each, "i" an int64, "d" a double, "o" any object, of which the function gets the
        address. result: "i", "d", "b", an int64 that becomes a bool, or "y", the address of two words, which
        say where bytes lie and how many. nogil: other threads run meanwhile.
    It raises OverflowError for an integer beyond int64, TypeError for another type or number of arguments.
    """
    method = _Method(b"native", _converter(arguments, result, nogil), _FASTCALL, None)
    _methods.append(method)
    create = ctypes.pythonapi.PyCFunction_NewEx
    create.restype, create.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p]
    made: Callable[..., Any] = create(ctypes.addressof(method), address, None)
    return made


@cache
def _converter(arguments: str, result: str, nogil: bool) -> int:
    """The address of what converts arguments, calls the address that is its own object, and converts back."""
    for name in _API:
        binding.add_symbol(name, ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value)
    text = str(_module(arguments, result, nogil))
    symbol = f"call_{_hash(text)[:32]}"
    return loaded_text(symbol, text.replace("python_call", symbol))


def _module(arguments: str, result: str, nogil: bool) -> ir.Module:
    module = ir.Module()
    api = {name: ir.Function(module, kind, name) for name, kind in _API.items()}
    kind = ir.FunctionType(_OBJECT, [_OBJECT, _OBJECT.as_pointer(), _WORD])
    entry = ir.Function(module, kind, "python_call")
    own, given, count = entry.args
    builder = ir.IRBuilder(entry.append_basic_block())
    with builder.if_then(builder.icmp_signed("!=", count, _WORD(len(arguments))), likely=False):
        builder.call(api["PyErr_BadArgument"], [])
        builder.ret(_OBJECT(None))
    address = builder.call(api["PyLong_AsLongLong"], [own])
    values, doubtful = [], ir.IntType(1)(0)
    for place, letter in enumerate(arguments):
        held = builder.load(builder.gep(given, [_WORD(place)]))
        if letter == OBJECT:
            values.append(builder.ptrtoint(held, _WORD))
            continue
        if letter == DOUBLE:
            value = builder.call(api["PyFloat_AsDouble"], [held])
            odd = builder.fcmp_ordered("==", value, _REAL(-1.0))
        else:
            value = builder.call(api["PyLong_AsLongLong"], [held])
            odd = builder.icmp_signed("==", value, _WORD(-1))
        values.append(value)
        doubtful = builder.or_(doubtful, odd)
    with builder.if_then(doubtful, likely=False):
        raised = builder.call(api["PyErr_Occurred"], [])
        with builder.if_then(builder.icmp_unsigned("!=", raised, _OBJECT(None)), likely=False):
            builder.ret(_OBJECT(None))
    called = ir.FunctionType(_TYPES[result], [_TYPES[letter] for letter in arguments])
    thread = builder.call(api["PyEval_SaveThread"], []) if nogil else None
    value = builder.call(builder.inttoptr(address, called.as_pointer()), values)
    if thread is not None:
        builder.call(api["PyEval_RestoreThread"], [thread])
    if result == BYTES:
        at = builder.inttoptr(value, _WORD.as_pointer())
        place = builder.inttoptr(builder.load(at), _OBJECT)
        size = builder.load(builder.gep(at, [_WORD(1)]))
        builder.ret(builder.call(api["PyBytes_FromStringAndSize"], [place, size]))
    else:
        builder.ret(builder.call(api[_RESULTS[result]], [value]))
    return module


def loaded_text(symbol: str, text: str) -> int:
    """Where the function is whose module of LLVM, in text, has it by this symbol, which names its content."""
    with _lock:
        entry = Entry("native-text", _hash(f"{text} {_made_for()}"), "obj")
        code = code_folder().read(entry)
        if code is None:
            code = _object_code(text)
            code_folder().write(entry, code)
        engine = _engine()
        engine.add_object_file(binding.ObjectFileRef.from_data(code))
        engine.finalize_object()
        return int(engine.get_function_address(symbol))
