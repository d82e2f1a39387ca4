"""Conditions of subscriptions, evaluated on a row that has been read."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from engine.encoding import encode_value
from engine.interpreter import apply
from engine.live_view import ViewRow
from engine.runtime import Word
from orderbook.dictionary import Dictionary
from views.compiler.calculus import Apply, Const, Scalar, Var
from views.compiler.program import CompiledProgram
from views.compiler.types import Column
from views.compiler.watch_condition import bind_condition


def row_condition(program: CompiledProgram, view: str, when: str) -> Callable[[ViewRow], bool]:
    """Whether `when`, a condition of `Engine.subscribe`, holds of a row of the view."""
    result = program.program.result(view)
    own = tuple(replace(c, scalar=Var(c.name), valid=_valid(c.name)) for c in result.columns)
    plain = replace(program.program, results=(replace(result, columns=own),))
    condition = bind_condition(plain, view, when, program.parameters)
    columns = [Column(c.name, c.type) for c in result.columns]

    def holds(row: ViewRow) -> bool:
        environment: dict[Var, Word] = {}
        for column in columns:
            value = row[column.name]
            environment[Var(column.name)] = encode_value(column, value, program.dictionary)
            environment[_valid(column.name)] = int(value is not None)
        return bool(_evaluated(condition, environment, program.dictionary))

    return holds


def _valid(column: str) -> Var:
    return Var(f"{column} is not NULL")


def _evaluated(scalar: Scalar, environment: Mapping[Var, Word], dictionary: Dictionary) -> Word:
    match scalar:
        case Var():
            return environment[scalar]
        case Const(value):
            return dictionary.encode(value) if isinstance(value, str) else value
        case Apply("if", (condition, then, otherwise)):
            chosen = then if _evaluated(condition, environment, dictionary) else otherwise
            return _evaluated(chosen, environment, dictionary)
        case Apply(op, args):
            return apply(op, [_evaluated(a, environment, dictionary) for a in args])
    raise TypeError(scalar)
