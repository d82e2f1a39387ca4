"""Machine code of what `native` compiles: optimised, kept in the cache, loaded, called."""

import ctypes
import hashlib
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from types import FunctionType
from typing import Any

from llvmlite import binding
from numba import types

from orderbook.core.code_cache import Entry
from orderbook.core.generated_code import code_folder
from orderbook.core.native import NativeModule
from orderbook.core.step_times import step_times

_C_TYPES: dict[types.Type, Any] = {types.int64: ctypes.c_int64, types.float64: ctypes.c_double}
# One compiles at a time.
_lock = threading.RLock()
# By symbol. A function whose digest is not known is told from others by its number, so it stays.
_loaded: dict[str, tuple[FunctionType, int, types.Type]] = {}


@dataclass(slots=True)
class CodeCounts:
    """Functions whose code this process has read from the cache, and made."""

    read: int = 0
    made: int = 0


counts = CodeCounts()


@cache
def _target_machine() -> binding.TargetMachine:
    """The machine that this process runs on."""
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    target = binding.Target.from_default_triple()
    cpu, features = _processor()
    return target.create_target_machine(
        cpu=cpu, features=features, opt=2, reloc="static", codemodel="jitdefault", jit=True
    )


@cache
def _processor() -> tuple[str, str]:
    return binding.get_host_cpu_name(), binding.get_host_cpu_features().flatten()


@cache
def _engine() -> binding.ExecutionEngine:
    return binding.create_mcjit_compiler(binding.parse_assembly(""), _target_machine())


def _object_code(text: str) -> bytes:
    """The machine code of a module of LLVM, optimised as a whole."""
    machine = _target_machine()
    parsed = binding.parse_assembly(text)
    # Loops here are over few words, where vectors cost more than they save.
    options = binding.create_pipeline_tuning_options(speed_level=2)
    options.loop_vectorization = options.slp_vectorization = False
    builder = binding.create_pass_builder(machine, options)
    builder.getModulePassManager().run(parsed, builder)
    made: bytes = machine.emit_object(parsed)
    return made


def native_address(
    function: FunctionType, arguments: Sequence[types.Type], digest: str | None
) -> tuple[str, int, types.Type]:
    """The symbol by which a function's machine code is registered with LLVM, where it is, what it returns.

    digest: over all that it is made of, None: it is not kept. The symbol is made of it, so that functions
    that are made of the same are one. Raises NativeError where it cannot be compiled.
    """
    with _lock:
        names = " ".join(kind.name for kind in arguments)
        own = hashlib.sha256(f"{digest or id(function)} {names} {_processor()}".encode()).hexdigest()
        symbol = f"{function.__name__}_{own[:32]}"
        if symbol not in _loaded:
            code, kind = _code(function, symbol, arguments, own if digest else None)
            with step_times.step("linking"):
                engine = _engine()
                engine.add_object_file(binding.ObjectFileRef.from_data(code))
                engine.finalize_object()
                address = int(engine.get_function_address(symbol))
                binding.add_symbol(symbol, address)
            _loaded[symbol] = function, address, kind
        return symbol, *_loaded[symbol][1:]


_KINDS = {kind.name: kind for kind in (types.int64, types.float64, types.boolean, types.none)}


def _code(
    function: FunctionType, symbol: str, arguments: Sequence[types.Type], digest: str | None
) -> tuple[bytes, types.Type]:
    entry = None
    if digest is not None:
        entry = Entry(f"native-{function.__name__}", digest, "obj")
        kept = code_folder().read(entry)
        if kept is not None:
            counts.read += 1
            name, _, code = kept.partition(b"\n")
            return code, _KINDS[name.decode()]
    counts.made += 1
    module = NativeModule()
    with step_times.step("types and LLVM"):
        kind = module.add(function, symbol, arguments)
        text = str(module.module)
    with step_times.step("machine code"):
        code = _object_code(text)
    if entry is not None:
        code_folder().write(entry, kind.name.encode() + b"\n" + code)
    return code, kind


def native_callable(
    function: FunctionType, arguments: Sequence[types.Type], digest: str | None, nogil: bool
) -> Callable[..., Any]:
    """A function of integers and doubles, compiled, for Python. Raises NativeError."""
    _, address, kind = native_address(function, arguments, digest)
    result = _C_TYPES.get(kind, ctypes.c_int64)
    prototype = (ctypes.CFUNCTYPE if nogil else ctypes.PYFUNCTYPE)(result, *[_C_TYPES[a] for a in arguments])
    called = prototype(address)
    if kind == types.boolean:
        return lambda *values: bool(called(*values))
    if kind == types.none:

        def nothing(*values: Any) -> None:
            called(*values)

        return nothing
    return called
