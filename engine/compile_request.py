"""What a process that compiles is asked, and what it does."""

import hashlib
import pickle
import platform
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path

from orderbook.dictionary import Dictionary
from orderbook.errors import DataError
from views.compiler.program import CompiledProgram, ProgramSource, compile_source

from .backends import start_runtime
from .exchange import exchange
from .maps.cache import library_hash
from .plan.describe import Cost, statement_cost
from .plan.planner import plan
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
    amend: Callable[[ProgramSource], ProgramSource]

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
    """A program that is to take the place of another. cost: see WorkLimits."""

    old: ProgramSource
    new: ProgramSource
    setting: Setting
    cost: Cost | None = None

    def compiled(self) -> CompiledProgram:
        """The new program, its code and all that the exchange calls in the cache of compiled code.

        Raises SqlError, and DataError where rows that it needs are not there, before any code is compiled.
        """
        words, own = Dictionary(), self.setting
        old, new = compile_source(self.old, words), compile_source(self.new, words)
        matches, _ = exchange(old, new, own.known)
        self._check_cost(old, new)
        if not own.compiles:
            return new
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

    def answer(self) -> bytes:
        """A program without its dictionary, which is the receiver's. Raises what `compiled` raises."""
        p = self.compiled()
        return pickle.dumps((p.catalog, p.views, p.program, p.m3, dict(p.parameters), p.texts, p.levels))

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
        said = [(s.texts, sorted(s.parameters.items()), s.levels) for s in (self.old, self.new)]
        own = self.setting
        rest = (own.before, own.statistics, own.measured, sorted(own.known), own.watched, own.compiles)
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
