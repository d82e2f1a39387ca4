"""The generated module of a subscription's condition: a function of a row as it lies in memory."""

from views.compiler.calculus import Scalar, Var
from views.compiler.intervals import exact
from views.compiler.m3 import Result
from views.compiler.types import DOUBLE, Kind, unscaled

from .emitter import Names
from .layout import column_words
from .module import ModuleText
from .numbering import NumberedPlan
from .typed_code import Code, in_word, truth


def condition_module(plan: NumberedPlan, view: int, condition: Scalar) -> str:
    """The source of `holds(S, row, nothing)`: 1 where the condition holds of a row of a view, else 0.

    condition: as `Numbering.condition` makes it, over the view's columns.
    """
    module = ModuleText(plan)
    with module.exported("holds(S, row, nothing)", "Whether a condition holds of a row.") as emitter:
        holds = truth(emitter.scalar(condition, _columns(plan.results[view].result)))
        module.writer.line(f"return 1 if {holds} else 0")
    return module.text(stores=())


def _columns(result: Result) -> Names:
    """The columns of a row at the address `row`."""
    names: Names = {}
    at = 1
    for number, column in enumerate(result.columns):
        names[Var(f"t{number}")] = Code(f"load(row, {at})", exact(0, 1))
        own, words = Var(f"c{number}"), column_words(column.type)
        if column.type.kind is Kind.DOUBLE:
            names[own] = Code(f"load_double(row, {at + 1})", DOUBLE)
        elif words == 2:
            text = f"words_to_wide(load(row, {at + 1}), load(row, {at + 2}))"
            names[own] = Code(text, unscaled(column.type))
        else:
            names[own] = Code(f"load(row, {at + 1})", in_word(unscaled(column.type)))
        at += 1 + words
    return names
