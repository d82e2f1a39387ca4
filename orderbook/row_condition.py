"""Conditions of subscriptions, evaluated on a row that has been read."""

from functools import lru_cache

from engine.live_view import ViewRow, words_of
from engine.runtime import Word
from engine.scalar_values import scalar_value
from views.compiler.binding.watch_condition import bind_condition, column_there
from views.compiler.calculus import Scalar, Var
from views.compiler.program import CompiledProgram


class RowCondition:
    """A condition of `Engine.subscribe` on rows of a view, bound once for each program."""

    def __init__(self, view: str, when: str) -> None:
        self._view, self._when = view, when
        self._program: CompiledProgram | None = None
        self._condition: Scalar | None = None

    def holds(self, program: CompiledProgram, row: ViewRow) -> bool:
        """As the program at hand has the view, which may change as views come and go."""
        if program is not self._program:
            self._condition = bind_condition(program.program, self._view, self._when, program.parameters)
            self._program = program
        return condition_holds(program, self._condition, row)


def condition_holds(program: CompiledProgram, condition: Scalar | None, row: ViewRow) -> bool:
    """Whether a condition that is bound, as `Watch` has it (None: always), holds of a row of its view."""
    held = words_of(row)
    if condition is None or held is None:
        return True
    environment: dict[Var, Word] = {}
    for name, word in zip(row, held.columns, strict=True):
        value, there = _variables(name)
        environment[value], environment[there] = word, int(word is not None)
    return bool(scalar_value(condition, environment, program.dictionary))


@lru_cache(1 << 12)
def _variables(column: str) -> tuple[Var, Var]:
    """What stands for a column in a condition, and for whether it is not NULL."""
    return Var(column), column_there(column)
