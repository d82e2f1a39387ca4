"""Machine code of what `native` compiles: optimised, kept in the cache, loaded, called."""

import ctypes
import hashlib
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from types import FunctionType
from typing import Any

from llvmlite import binding, ir
from numba import types

from orderbook.core.code_cache import Entry
from orderbook.core.generated_code import code_folder
from orderbook.core.native import NativeModule

_C_TYPES: dict[types.Type, Any] = {types.int64: ctypes.c_int64, types.float64: ctypes.c_double}
# One compiles at a time.
_lock = threading.RLock()


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


def _object_code(module: ir.Module) -> bytes:
    """The machine code of a module, optimised as a whole."""
    machine = _target_machine()
    parsed = binding.parse_assembly(str(module))
    # Loops here are over few words, where vectors cost more than they save.
    options = binding.create_pipeline_tuning_options(speed_level=2)
    options.loop_vectorization = options.slp_vectorization = False
    builder = binding.create_pass_builder(machine, options)
    builder.getModulePassManager().run(parsed, builder)
    made: bytes = machine.emit_object(parsed)
    return made


def native_address(
    function: FunctionType, symbol: str, arguments: Sequence[types.Type], digest: str | None
) -> tuple[int, types.Type]:
    """Where the machine code of a function is, and what it returns; it is registered with LLVM by `symbol`.

    digest: over all that it is made of, None: it is not kept. Raises NativeError where it cannot be compiled.
    """
    with _lock:
        code, kind = _code(function, symbol, arguments, digest)
        engine = _engine()
        engine.add_object_file(binding.ObjectFileRef.from_data(code))
        engine.finalize_object()
        address = int(engine.get_function_address(symbol))
        binding.add_symbol(symbol, address)
        return address, kind


_KINDS = {kind.name: kind for kind in (types.int64, types.float64, types.boolean, types.none)}


def _code(
    function: FunctionType, symbol: str, arguments: Sequence[types.Type], digest: str | None
) -> tuple[bytes, types.Type]:
    entry = None
    if digest is not None:
        names = " ".join(kind.name for kind in arguments)
        own = hashlib.sha256(f"{digest} {symbol} {names} {_processor()}".encode()).hexdigest()
        label = f"{function.__module__}.{function.__qualname__}-{function.__code__.co_firstlineno}"
        entry = Entry(label, own, "obj")
        kept = code_folder().read(entry)
        if kept is not None:
            counts.read += 1
            name, _, code = kept.partition(b"\n")
            return code, _KINDS[name.decode()]
    counts.made += 1
    module = NativeModule()
    kind = module.add(function, symbol, arguments)
    code = _object_code(module.module)
    if entry is not None:
        code_folder().write(entry, kind.name.encode() + b"\n" + code)
    return code, kind


def native_callable(
    function: FunctionType, arguments: Sequence[types.Type], digest: str | None, nogil: bool
) -> Callable[..., Any]:
    """A function of integers and doubles, compiled, for Python. Raises NativeError."""
    names = "_".join(kind.name for kind in arguments)
    symbol = f"{function.__module__}_{function.__name__}_{function.__code__.co_firstlineno}_of_{names}"
    address, kind = native_address(function, symbol, arguments, digest)
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
