"""What one event did to the maps of a view: the statements that ran, and the entries they read and wrote."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from fractions import Fraction

from engine.changes import ChangeBatch
from engine.encoding import unpack
from engine.interpreter import Environment, Interpreter, Number
from engine.interpreter_runtime import InterpreterRuntime
from engine.runtime import Runtime, Word
from orderbook.dictionary import Dictionary
from views.compiler.calculus import Scalar
from views.compiler.m3 import Program, Statement

Key = tuple[Word, ...]
Value = int | Fraction


@dataclass(slots=True)
class StatementTrace:
    """A statement that ran: entries read, by map and key, and written, before and after (0: none)."""

    statement: Statement
    reads: dict[tuple[str, Key], Number] = field(default_factory=dict)
    writes: dict[Key, tuple[Value, Value]] = field(default_factory=dict)


@dataclass(slots=True)
class ChangeTrace:
    """One changed row, by relation, and the statements that ran for it, in their order."""

    relation: str
    insert: bool
    row: Key
    statements: list[StatementTrace] = field(default_factory=list)


class TracingInterpreter(Interpreter):
    """Notes what each statement reads and writes in `statements`."""

    statements: list[StatementTrace]
    _at: StatementTrace | None = None

    def __init__(self, program: Program, dictionary: Dictionary):
        self.statements = []
        super().__init__(program, dictionary)
        self.statements.clear()

    def _evaluate(self, statement: Statement, event: Environment) -> dict[Key, Value]:
        self._at = StatementTrace(statement)
        self.statements.append(self._at)
        changes = super()._evaluate(statement, event)
        held = self.exact_entries(statement.target)
        for key, change in changes.items():
            if change:
                self._at.writes[key] = (held.get(key, 0), held.get(key, 0) + change)
        self._at = None
        return changes

    def _assign(self, statement: Statement, event: Environment) -> None:
        before = dict(self.exact_entries(statement.target))
        super()._assign(statement, event)
        after = self.exact_entries(statement.target)
        changed = [k for k in {**before, **after} if before.get(k, 0) != after.get(k, 0)]
        self.statements[-1].writes = {k: (before.get(k, 0), after.get(k, 0)) for k in changed}

    def _entries(
        self, name: str, keys: tuple[Scalar, ...], environment: Environment
    ) -> Iterator[tuple[Environment, Number]]:
        at = self._at
        for bound, value in super()._entries(name, keys, environment):
            if at is not None:
                at.reads[name, tuple(self._scalar(key, bound) for key in keys)] = value
            yield bound, value


def trace(
    program: Program, dictionary: Dictionary, held: Runtime, changes: ChangeBatch, maps: Collection[str]
) -> list[ChangeTrace]:
    """Applies one event's changes to a copy of what a runtime holds, and notes what they do to these maps.

    Several statements of a trigger that add to one entry read it as it was before them all.
    """
    interpreter = TracingInterpreter(program, dictionary)
    InterpreterRuntime(program, dictionary, interpreter).restore(held.copied(), None)
    found = []
    for kind, codes in zip(changes.kinds.tolist(), changes.values.tolist(), strict=True):
        if kind < 0:
            continue
        relation = program.relations[kind >> 1]
        change = ChangeTrace(relation.name, not kind & 1, unpack(relation, codes))
        interpreter.statements.clear()
        interpreter.change(change.relation, change.insert, change.row)
        change.statements = [one for one in interpreter.statements if one.statement.target in maps]
        found.append(change)
    return found
