"""The generated module of a subscription's condition: a function of a row as it lies in memory."""

from engine.plan.steps import Plan
from views.compiler.binding.watch_condition import column_there
from views.compiler.calculus import Scalar, Var
from views.compiler.intervals import exact
from views.compiler.m3 import Result
from views.compiler.types import DOUBLE, Kind, unscaled
from views.scalars.patterns import Pattern

from .emitter import Names
from .layout import column_words
from .module import ModuleText
from .typed_code import Code, in_word, truth


def condition_module(
    plan: Plan, result: Result, condition: Scalar, texts: dict[str | Pattern, int]
) -> str:
    """The source of `holds(S, row, nothing)`: 1 where the condition holds of a row of the view, else 0."""
    module = ModuleText(plan, texts)
    says = f"Whether a condition holds of a row of {result.name}."
    with module.exported("holds(S, row, nothing)", says) as emitter:
        holds = truth(emitter.scalar(condition, _columns(result)))
        module.writer.line(f"return 1 if {holds} else 0")
    return module.text(stores=())


def _columns(result: Result) -> Names:
    """The columns of a row at the address `row`."""
    names: Names = {}
    at = 1
    for column in result.columns:
        names[column_there(column.name)] = Code(f"load(row, {at})", exact(0, 1))
        own, words = Var(column.name), column_words(column.type)
        if column.type.kind is Kind.DOUBLE:
            names[own] = Code(f"load_double(row, {at + 1})", DOUBLE)
        elif words == 2:
            text = f"words_to_wide(load(row, {at + 1}), load(row, {at + 2}))"
            names[own] = Code(text, unscaled(column.type))
        else:
            names[own] = Code(f"load(row, {at + 1})", in_word(unscaled(column.type)))
        at += 1 + words
    return names
