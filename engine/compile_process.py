"""Compiling in a process of its own: nobody else waits for it, or for the interpreter that it keeps busy.

The process leaves compiled code in the cache that all processes share (maps/cache.py), and beside it the
program, by which the same request is answered the next time. It is `python -m engine.compile_process`.
"""

import os
import pickle
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import MappingProxyType
from typing import Any, NoReturn

from orderbook.dictionary import Dictionary
from orderbook.errors import CompileError, OrderbookError
from orderbook.processors import give_way
from views.compiler.program import CompiledProgram

from .compile_request import CompileRequest
from .maps.cache import code_folder
from .maps.cache_folder import Entry

# The process gives way to those that serve a feed.
_NICE = 5


def compiled_elsewhere(request: CompileRequest, dictionary: Dictionary) -> CompiledProgram:
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
    answer = _answer(request)
    if isinstance(answer, Exception):
        raise answer
    folder.write(entry, answer)
    return _program(pickle.loads(answer), dictionary)


def _answer(request: CompileRequest) -> bytes | Exception:
    # Its own folder is not looked in for modules.
    command = [sys.executable, "-P", "-m", "engine.compile_process"]
    path = os.pathsep.join(p for p in (str(Path(__file__).parents[1]), *sys.path) if p)
    pipe = subprocess.PIPE
    environment = {**os.environ, "PYTHONPATH": path}
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, env=environment) as process:
        out, told = process.communicate(pickle.dumps(request))
    try:
        found: bytes | Exception = pickle.loads(out)
    except (EOFError, pickle.UnpicklingError):
        how = f"ended by signal {-process.returncode}" if process.returncode < 0 else "failed"
        said = told.decode(errors="replace").strip().splitlines()
        why = f": {said[-1]}" if said and process.returncode > 0 else ""
        return CompileError(f"the process that compiles {how}{why}; nothing was changed, try again")
    return found


def _packed(program: CompiledProgram) -> bytes:
    """A program without its dictionary, which is the receiver's."""
    p = program
    return pickle.dumps((p.catalog, p.views, p.program, p.m3, dict(p.parameters), p.texts, p.levels))


def _program(packed: tuple[Any, ...], dictionary: Dictionary) -> CompiledProgram:
    catalog, views, program, m3, parameters, texts, levels = packed
    return CompiledProgram(
        catalog, views, program, m3, MappingProxyType(parameters), dictionary, texts, levels
    )


def _end_with(parent: int) -> NoReturn:
    """Nobody waits for the answer when the process that asked is gone."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def main() -> None:
    """Answer the request on standard input."""
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    give_way(_NICE)
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    request: CompileRequest = pickle.load(sys.stdin.buffer)
    answer: bytes | Exception
    try:
        answer = _packed(request.compiled())
    except OrderbookError as error:
        answer = error
    out.write(pickle.dumps(answer))
    out.close()


if __name__ == "__main__":
    main()
