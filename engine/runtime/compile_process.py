"""Compiling in a process of its own: nobody else waits for it, or for the interpreter that it keeps busy.

The requests say what the process is asked, and do it there. A process answers one of them; whoever has asked
once has the next process begin at once, so that it has imported all before it is needed, and has what runs
now. It leaves compiled code in the cache that all processes share (core/code_cache.py), and beside it the
program: the same request is answered by it the next time.
"""

import atexit
import hashlib
import os
import pickle
import platform
import select
import subprocess
import sys
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import version
from threading import BoundedSemaphore, Lock
from types import MappingProxyType
from typing import Any

from orderbook.core.changes import Dictionary
from orderbook.core.code_cache import Entry
from orderbook.core.errors import CompileError, DataError, OrderbookError
from orderbook.core.generated_code import PACKAGE, code_folder, library_hash
from orderbook.core.processors import end_with_parent, give_way, limit_memory, limit_seconds, step_aside
from orderbook.core.units import size_text
from orderbook.engine.plan.describe import Cost, statement_cost
from orderbook.engine.plan.planner import plan
from orderbook.engine.plan.statistics import Statistics
from orderbook.engine.runtime.held_rows import hand_over
from orderbook.engine.runtime.program_start import rehearse, start_runtime
from orderbook.engine.runtime.subscriptions import watch_of
from orderbook.views.program import Amend, CompiledProgram, ProgramSource

# The packages whose text makes a program of SQL, and code of a program.
_PACKAGES = (".", "engine", "views")


@dataclass(frozen=True, slots=True)
class Watched:
    """A subscription, as `watch_of` takes it."""

    view: str
    when: str | None
    per_message: bool
    edge: bool


@dataclass(frozen=True, slots=True)
class WorkLimits:
    """What a process may take that binds or compiles SQL which others have written.

    seconds: of the clock and of its processor. memory: bytes. answer: bytes of what it made. cost: the most
    that a new statement may cost an event, None for any.
    """

    seconds: float
    memory: int
    answer: int = 8 << 20
    cost: Cost | None = None


@dataclass(frozen=True, slots=True)
class BindRequest:
    """A source that is to be amended."""

    source: ProgramSource
    amend: Amend

    def answer(self) -> bytes:
        """The amended source. Raises what binding raises."""
        return pickle.dumps(self.amend(self.source))


@dataclass(frozen=True, slots=True)
class Setting:
    """What of an engine decides how another program is compiled for it.

    before, statistics: what its plan and the other program's are chosen by. known: the relations whose rows
    are there. watched: its subscriptions. compiles: whether its runtimes are compiled code.
    """

    before: Statistics | None
    statistics: Statistics | None
    measured: bool
    known: frozenset[str]
    watched: tuple[Watched, ...]
    compiles: bool = True


@dataclass(frozen=True, slots=True)
class CompileRequest:
    """A program that is to take the place of another. cost: see WorkLimits.

    running: what `packed` gives of the other one, where it has been compiled.
    """

    old: ProgramSource
    new: ProgramSource
    setting: Setting
    cost: Cost | None = None
    running: tuple[Any, ...] | None = None

    def compiled(self) -> CompiledProgram:
        """The new program, its code and all that the exchange calls in the cache of compiled code.

        Raises SqlError, and DataError where rows that it needs are not there, before any code is compiled.
        """
        own, dictionary = self.setting, _dictionary
        old = _last if _last is not None and _last.source == self.old else None
        if old is None and self.running is not None:
            old = _program(self.running, self.old, dictionary)
        elif old is None:
            old = self.old.compiled(dictionary)
        new = old if self.new is self.old else self.new.compiled(dictionary)
        matches, _ = hand_over(old, new, own.known)
        self._check_cost(old, new)
        if not own.compiles:
            return new
        there = {result.name for result in new.program.results}
        watches = [
            watch_of(new, w.view, w.when, w.per_message, w.edge) for w in own.watched if w.view in there
        ]
        by = {id(old): own.before, id(new): own.statistics}
        rehearse(
            lambda program: start_runtime(
                program.program, dictionary, "numba", by[id(program)], own.measured
            ),
            old,
            new,
            matches,
            watches,
        )
        return new

    def rehearse(self) -> None:
        """Does what a request will do whose old program is the new one of this."""
        global _last
        same = replace(self, old=self.new, cost=None, running=None)
        with suppress(Exception):
            _last = same.compiled()

    def answer(self) -> bytes:
        """What the receiver does not have of the program. Raises what `compiled` raises."""
        return pickle.dumps(packed(self.compiled()))

    def _check_cost(self, old: CompiledProgram, new: CompiledProgram) -> None:
        """Raises DataError where keeping what is new takes longer for an event than it may."""
        if self.cost is None:
            return
        there = {declaration.name for declaration in old.program.maps}
        made = plan(new.program, self.setting.statistics)
        for trigger in made.triggers:
            for statement in trigger.statements:
                cost = Cost.CONSTANT if statement.target in there else statement_cost(made, statement)
                if cost > self.cost:
                    event = f"{'+' if trigger.insert else '-'} {trigger.relation}"
                    raise DataError(
                        f"to keep this takes {cost} for each event {event}, more than a client may take; "
                        "add it as a view, with the token, or make it narrower"
                    )

    def key(self) -> str:
        """32 hex digits that tell it from all others, for this state of the project."""
        said = [
            (s.texts, sorted(s.parameters.items()), s.levels, s.catalog.functions)
            for s in (self.old, self.new)
        ]
        own = self.setting
        rest = (own.before, own.statistics, own.measured, sorted(own.known), own.watched, own.compiles)
        return hashlib.sha256(f"{project_hash()} {said!r} {rest!r}".encode()).hexdigest()[:32]


# Of this process: the dictionary of its programs, and the one that it has rehearsed.
_dictionary = Dictionary()
_last: CompiledProgram | None = None


def packed(program: CompiledProgram) -> tuple[Any, ...]:
    """A program without what its source says, and without its dictionary."""
    return program.catalog, program.views, program.program


@cache
def project_hash() -> str:
    """64 hex digits over the project's source, and the versions of what reads SQL and runs it."""
    versions = (library_hash(), platform.python_version(), version("sqlglot"))
    digest = hashlib.sha256(repr(versions).encode())
    # `**` goes through no link, which the packages are in a checkout.
    for path in sorted({p for package in _PACKAGES for p in (PACKAGE / package).glob("**/*.py")}):
        digest.update(str(path.relative_to(PACKAGE)).encode() + path.read_bytes())
    return digest.hexdigest()


# The process gives way to those that serve a feed.
_NICE = 5
# Processes that bind and compile what others have written, at a time.
_MOST_LIMITED = BoundedSemaphore(2)


class Spares:
    """Processes that are asked, one of them started before it is needed."""

    def __init__(self) -> None:
        self._lock = Lock()
        # With what it was started by.
        self._spare: tuple[object, subprocess.Popen[bytes]] | None = None

    def process(self) -> "subprocess.Popen[bytes]":
        """One that reads a request: the spare one, if it would be started the same way now, or a new one."""
        how = self._how()
        with self._lock:
            spare, self._spare = self._spare, None
        if spare is not None:
            if spare[0] == how and spare[1].poll() is None:
                return spare[1]
            _end(spare[1])
        return self._started(*how)

    def prepare(self, request: CompileRequest) -> None:
        """Starts a spare one, where there is none, which rehearses with the program that the request made."""
        how = self._how()
        with self._lock:
            if self._spare is not None:
                return
            process = self._started(*how)
            self._spare = how, process
        assert process.stdin is not None
        with suppress(OSError):
            process.stdin.write(_framed(replace(request, running=None)))
            process.stdin.flush()

    def end(self) -> None:
        """Ends the spare one."""
        with self._lock:
            spare, self._spare = self._spare, None
        if spare is not None:
            _end(spare[1])

    def _how(self) -> tuple[list[str], dict[str, str]]:
        # Its own folder is not looked in for modules.
        command = [sys.executable, "-P", "-c", f"from {__name__} import main; main()"]
        path = os.pathsep.join(p for p in (str(PACKAGE.parent), *sys.path) if p)
        return command, {**os.environ, "PYTHONPATH": path}

    def _started(self, command: list[str], environment: dict[str, str]) -> "subprocess.Popen[bytes]":
        pipe = subprocess.PIPE
        return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, env=environment)


def _end(process: "subprocess.Popen[bytes]") -> None:
    """It reads no request, and ends."""
    process.kill()
    process.communicate()


_spares = Spares()
atexit.register(_spares.end)
# Seconds after which a process that nobody asks ends.
_MOST_IDLE = 900.0


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
            return _program(pickle.loads(known), request.new, dictionary)
        except Exception as error:  # by whichever class is no longer what it was
            folder.spoilt(entry.file, f"cannot be used ({type(error).__name__}: {error})")
    answer = _answer(request, limits)
    if isinstance(answer, Exception):
        raise answer
    folder.write(entry, answer)
    return _program(pickle.loads(answer), request.new, dictionary)


def _answer(request: CompileRequest | BindRequest, limits: WorkLimits | None = None) -> bytes | Exception:
    with nullcontext() if limits is None else _MOST_LIMITED:
        return _told(request, limits)


def _told(request: CompileRequest | BindRequest, limits: WorkLimits | None) -> bytes | Exception:
    with _spares.process() as process:
        step_aside(process.pid)
        seconds = None if limits is None else limits.seconds
        try:
            out, told = process.communicate(_framed((limits, request)), seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            return CompileError(f"it takes longer than {seconds:g} s to compile; split it into views")
    if isinstance(request, CompileRequest):
        _spares.prepare(request)
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


def _program(packed: tuple[Any, ...], source: ProgramSource, dictionary: Dictionary) -> CompiledProgram:
    catalog, views, program = packed
    parameters, texts = MappingProxyType(dict(source.parameters)), source.texts
    return CompiledProgram(
        catalog, views, program, parameters, dictionary, texts, source.levels, source.compiler
    )


def _framed(value: object) -> bytes:
    data = pickle.dumps(value)
    return len(data).to_bytes(8, "little") + data


def _received() -> Any:
    """What comes next on standard input; None where nobody asks any more."""
    if not select.select([0], [], [], _MOST_IDLE)[0]:
        return None
    data = bytearray()
    wanted = 8
    while len(data) < wanted:
        part = os.read(0, wanted - len(data))
        if not part:
            return None
        data += part
        if wanted == len(data) == 8:
            wanted += int.from_bytes(data, "little")
    return pickle.loads(memoryview(data)[8:])


def main() -> None:
    """Answer the request on standard input."""
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    give_way(_NICE)
    end_with_parent()
    limits: WorkLimits | None
    request: CompileRequest | BindRequest
    answer: bytes | Exception
    asked = _received()
    if isinstance(asked, CompileRequest):
        asked.rehearse()
        asked = _received()
    if asked is None:
        return
    limits, request = asked
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
