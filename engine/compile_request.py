"""What a process that compiles is asked, and what it does."""

import hashlib
import platform
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path

from orderbook.dictionary import Dictionary
from views.compiler.program import CompiledProgram, ProgramSource, compile_source

from .backends import start_runtime
from .exchange import exchange
from .maps.cache import library_hash
from .plan.statistics import Statistics
from .rehearsal import rehearse
from .watches import watch_of

# The packages whose text makes a program of SQL, and code of a program.
_PACKAGES = ("engine", "orderbook", "views")


@dataclass(frozen=True, slots=True)
class Watched:
    """A subscription, as `watch_of` takes it."""

    view: str
    when: str | None
    per_message: bool
    edge: bool


@dataclass(frozen=True, slots=True)
class Setting:
    """What of an engine decides how another program is compiled for it.

    before, statistics: what its plan and the other program's are chosen by. known: the relations whose rows
    are there. watched: its subscriptions.
    """

    before: Statistics | None
    statistics: Statistics | None
    measured: bool
    known: frozenset[str]
    watched: tuple[Watched, ...]


@dataclass(frozen=True, slots=True)
class CompileRequest:
    """A program that is to take the place of another."""

    old: ProgramSource
    new: ProgramSource
    setting: Setting

    def compiled(self) -> CompiledProgram:
        """The new program, its code and all that the exchange calls in the cache of compiled code.

        Raises SqlError, and DataError where rows that it needs are not there, before any code is compiled.
        """
        words, own = Dictionary(), self.setting
        old, new = compile_source(self.old, words), compile_source(self.new, words)
        matches, _ = exchange(old, new, own.known)
        there = {result.name for result in new.program.results}
        watches = [
            watch_of(new, w.view, w.when, w.per_message, w.edge) for w in own.watched if w.view in there
        ]
        by = {id(old): own.before, id(new): own.statistics}
        rehearse(
            lambda program: start_runtime(program.program, words, "numba", by[id(program)], own.measured),
            old,
            new,
            matches,
            watches,
        )
        return new

    def key(self) -> str:
        """32 hex digits that tell it from all others, for this state of the project."""
        said = [(s.texts, sorted(s.parameters.items()), s.levels) for s in (self.old, self.new)]
        own = self.setting
        rest = (own.before, own.statistics, own.measured, sorted(own.known), own.watched)
        return hashlib.sha256(f"{project_hash()} {said!r} {rest!r}".encode()).hexdigest()[:32]


@cache
def project_hash() -> str:
    """64 hex digits over the project's source, and the versions of what reads SQL and runs it."""
    versions = (library_hash(), platform.python_version(), version("sqlglot"))
    digest = hashlib.sha256(repr(versions).encode())
    root = Path(__file__).parents[1]
    for path in sorted(p for package in _PACKAGES for p in (root / package).glob("**/*.py")):
        digest.update(str(path.relative_to(root)).encode() + path.read_bytes())
    return digest.hexdigest()
