"""Conditions of subscriptions, evaluated on a row that has been read."""

from collections.abc import Callable

from engine.encoding import encode_value
from engine.live_view import ViewRow
from engine.runtime import Word
from engine.scalar_values import scalar_value
from views.compiler.binding.watch_condition import bind_condition, column_there
from views.compiler.calculus import Var
from views.compiler.program import CompiledProgram
from views.compiler.types import Column


def row_condition(program: CompiledProgram, view: str, when: str) -> Callable[[ViewRow], bool]:
    """Whether `when`, a condition of `Engine.subscribe`, holds of a row of the view."""
    result = program.program.result(view)
    condition = bind_condition(program.program, view, when, program.parameters)
    columns = [Column(c.name, c.type) for c in result.columns]

    def holds(row: ViewRow) -> bool:
        environment: dict[Var, Word] = {}
        for column in columns:
            value = row[column.name]
            environment[Var(column.name)] = encode_value(column, value, program.dictionary)
            environment[column_there(column.name)] = int(value is not None)
        return bool(scalar_value(condition, environment, program.dictionary))

    return holds
