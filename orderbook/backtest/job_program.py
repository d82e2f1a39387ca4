"""The program of a backtest as tasks get it: its texts, compiled again once in each process."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engine.checkpoint.program_hash import program_hash
from orderbook.dictionary import Dictionary
from orderbook.errors import DataError
from orderbook.jobs.manifest import ProgramText
from views.compiler.maintenance.materialisation_level import Levels
from views.compiler.program import CompiledProgram, compile_texts

_compiled: dict[bytes, CompiledProgram] = {}


@dataclass(frozen=True, slots=True)
class JobProgram:
    """(file, SQL) of every text, parameters, how much is kept of views, and the compiled program's hash."""

    texts: tuple[tuple[str | None, str], ...]
    parameters: Mapping[str, Any]
    levels: Levels
    hash: bytes

    @classmethod
    def of(cls, program: CompiledProgram) -> "JobProgram":
        """What a program was compiled from."""
        texts = tuple((None if file is None else str(file), sql) for file, sql in program.texts)
        own = program_hash(program)
        _compiled.setdefault(own, program)
        return cls(texts, dict(program.parameters), program.levels, own)

    def compiled(self) -> CompiledProgram:
        """The program; tasks of one process share its dictionary. Raises DataError for another's hash."""
        if self.hash not in _compiled:
            program = compile_texts(list(self.texts), self.parameters, Dictionary(), self.levels)
            if program_hash(program) != self.hash:
                raise DataError("a worker compiles the views to another program; give it the same orderbook")
            _compiled[self.hash] = program
        return _compiled[self.hash]

    def manifest(self) -> ProgramText:
        """What the job's manifest says of it."""
        texts = tuple((file or "", sql) for file, sql in self.texts)
        return ProgramText(texts, {name: str(v) for name, v in self.parameters.items()}, self.hash.hex())


def forget() -> None:
    """Compile programs again at their next use, as a new process does."""
    _compiled.clear()
