"""The generated module of a program: one function for each trigger, and the rows of its views."""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass

from engine.plan.pivots import shared_pivots
from engine.plan.steps import TriggerPlan
from views.compiler.calculus import Var
from views.compiler.types import Kind, unscaled

from .emitter import Names
from .module import ModuleText
from .numbering import NumberedPlan
from .rows import list_function, row_function, touch_functions
from .typed_code import Code, in_word
from .writes import Writes

# Statements of a trigger that is compiled into every loop that calls it: a call takes 3 ns, and to compile
# the trigger again takes a second for every twenty of them.
_INLINED = 8


def program_module(plan: NumberedPlan, writes: type[Writes] = Writes) -> str:
    """The source of a program's module.

    `writes` writes the statements of triggers: Writes, or MeasuredWrites for a module that measures.
    """
    module = ModuleText(plan)
    for view in range(len(plan.results)):
        touch_functions(module, view)
    if plan.initial:
        with module.function("initialise(S)", "What maps hold before any event.") as emitter:
            Writes(emitter, {}, module.layout).statements(plan.initial)
    for trigger in plan.triggers:
        _trigger_function(module, trigger, writes)
    for view in range(len(plan.results)):
        row_function(module, view)
        list_function(module, view)
    return module.text(writes.imports)


def trigger_name(trigger: TriggerPlan) -> str:
    return f"{'insert' if trigger.insert else 'delete'}_{trigger.relation}"


def _trigger_function(module: ModuleText, trigger: TriggerPlan, writes: type[Writes]) -> None:
    used = set(_variables(trigger.statements))
    apart = len(trigger.statements) > _INLINED
    function = module.exported if apart else module.function
    says = "Applies one row, its columns at address `row`."
    with function(f"{trigger_name(trigger)}(S, row)", says) as emitter:
        names: Names = {}
        columns = module.plan.program.relation(trigger.relation).columns
        for at, (parameter, column) in enumerate(zip(trigger.parameters, columns, strict=True)):
            if parameter in used:
                kind = unscaled(column.type)
                read = "load_double" if kind.kind is Kind.DOUBLE else "load"
                emitter.writer.line(f"{parameter.name} = {read}(row, {at})")
                names[parameter] = Code(parameter.name, in_word(kind))
        emitter.pivots = shared_pivots(module.plan, trigger.statements, trigger.parameters)
        writes(emitter, names, module.layout).statements(trigger.statements)
        if apart:
            emitter.writer.line("return 0")


def _variables(part: object) -> Iterator[Var]:
    """All variables of statements, wherever they stand."""
    if isinstance(part, Var):
        yield part
    elif isinstance(part, tuple):
        for own in part:
            yield from _variables(own)
    elif is_dataclass(part):
        for own in fields(part):
            yield from _variables(getattr(part, own.name))
