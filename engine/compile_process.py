"""Compiling in a process of its own: nobody else waits for it, or for the interpreter that it keeps busy.

The process leaves compiled code in the cache that all processes share (maps/cache.py), and beside it the
program, by which the same request is answered the next time. It is `python -m engine.compile_process`.
"""

import os
import pickle
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from threading import BoundedSemaphore
from types import MappingProxyType
from typing import Any

from orderbook.dictionary import Dictionary
from orderbook.errors import CompileError, OrderbookError
from orderbook.process_limits import end_with_parent, limit_memory, limit_seconds
from orderbook.processors import give_way, step_aside
from orderbook.sizes import size_text
from views.compiler.program import CompiledProgram, ProgramSource

from .compile_request import BindRequest, CompileRequest, WorkLimits
from .maps.cache import code_folder
from .maps.cache_folder import Entry

# The process gives way to those that serve a feed.
_NICE = 5
# Processes that bind and compile what others have written, at a time.
_MOST_LIMITED = BoundedSemaphore(2)


def bound_elsewhere(request: BindRequest, limits: WorkLimits) -> ProgramSource:
    """The amended source. Raises what binding raises, and CompileError beyond the limits."""
    answer = _answer(request, limits)
    if isinstance(answer, Exception):
        raise answer
    source: ProgramSource = pickle.loads(answer)
    return source


def compiled_elsewhere(
    request: CompileRequest, dictionary: Dictionary, limits: WorkLimits | None = None
) -> CompiledProgram:
    """The program of a request, whose code is in the cache. Blocks, but leaves the interpreter alone.

    Raises what `CompileRequest.compiled` raises, and CompileError where the process ends without an answer.
    """
    entry, folder = Entry("program", request.key(), "pickle"), code_folder()
    known = folder.read(entry)
    if known is not None:
        try:
            return _program(pickle.loads(known), dictionary)
        except Exception as error:  # by whichever class is no longer what it was
            folder.spoilt(entry.file, f"cannot be used ({type(error).__name__}: {error})")
    answer = _answer(request, limits)
    if isinstance(answer, Exception):
        raise answer
    folder.write(entry, answer)
    return _program(pickle.loads(answer), dictionary)


def _answer(request: CompileRequest | BindRequest, limits: WorkLimits | None = None) -> bytes | Exception:
    with nullcontext() if limits is None else _MOST_LIMITED:
        return _told(request, limits)


def _told(request: CompileRequest | BindRequest, limits: WorkLimits | None) -> bytes | Exception:
    # Its own folder is not looked in for modules.
    command = [sys.executable, "-P", "-m", "engine.compile_process"]
    path = os.pathsep.join(p for p in (str(Path(__file__).parents[1]), *sys.path) if p)
    pipe = subprocess.PIPE
    environment = {**os.environ, "PYTHONPATH": path}
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, env=environment) as process:
        step_aside(process.pid)
        seconds = None if limits is None else limits.seconds
        try:
            out, told = process.communicate(pickle.dumps((limits, request)), seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            return CompileError(f"it takes longer than {seconds:g} s to compile; split it into views")
    try:
        found: bytes | Exception = pickle.loads(out)
    except (EOFError, pickle.UnpicklingError):
        how = f"ended by signal {-process.returncode}" if process.returncode < 0 else "failed"
        said = told.decode(errors="replace").strip().splitlines()
        why = f": {said[-1]}" if said and process.returncode > 0 else ""
        return CompileError(f"the process that compiles {how}{why}; nothing was changed, try again")
    if limits is not None and isinstance(found, bytes) and len(found) > limits.answer:
        return CompileError(f"it compiles to more than {size_text(limits.answer)}; split it into views")
    return found


def _program(packed: tuple[Any, ...], dictionary: Dictionary) -> CompiledProgram:
    catalog, views, program, m3, parameters, texts, levels = packed
    return CompiledProgram(
        catalog, views, program, m3, MappingProxyType(parameters), dictionary, texts, levels
    )


def main() -> None:
    """Answer the request on standard input."""
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    give_way(_NICE)
    end_with_parent()
    limits: WorkLimits | None
    request: CompileRequest | BindRequest
    answer: bytes | Exception
    limits, request = pickle.load(sys.stdin.buffer)
    try:
        if limits is not None:
            limit_seconds(limits.seconds)
            limit_memory(limits.memory)
        answer = request.answer()
    except OrderbookError as error:
        answer = error
    except MemoryError:
        answer = CompileError("it takes more memory to compile than it may; split it into views")
    except RecursionError:
        answer = CompileError("it is nested too deeply; split it into views")
    out.write(pickle.dumps(answer))
    out.close()


if __name__ == "__main__":
    main()
