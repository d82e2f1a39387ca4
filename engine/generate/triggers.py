"""The generated module of a program: one function for each trigger, and the rows of its views."""

import keyword

from engine.plan.pivots import shared_pivots
from engine.plan.steps import Plan, TriggerPlan
from views.compiler.calculus import Var, scalar_variables, variable_set
from views.compiler.m3 import Statement
from views.compiler.m3_text.m3_print import statement_text
from views.compiler.types import Kind, unscaled
from views.scalars.patterns import Pattern

from .emitter import Names
from .module import ModuleText
from .rows import list_function, row_function, touch_functions
from .typed_code import Code, in_word
from .writes import Writes

RESERVED = (
    *("S", "load", "store", "row", "out", "wide", "min", "max", "abs", "float", "int"),
    *("clamp", "matches", "sum_doubles", "checked_finite", "checked_word", "key_word", "widened"),
    *("same_integer", "wide_null"),
    *("ordered_word", "last_below", "last_at_most", "calendar", "integers", "precise", "reals"),
)

# Statements of a trigger that is compiled into every loop that calls it: a call takes 3 ns, and to compile
# the trigger again takes a second for every twenty of them.
_INLINED = 8


def program_module(plan: Plan, texts: dict[str | Pattern, int], writes: type[Writes] = Writes) -> str:
    """The source of a program's module; `texts` collects its text constants, numbered.

    `writes` writes the statements of triggers: Writes, or MeasuredWrites for a module that measures.
    """
    module = ModuleText(plan, texts)
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
    program = module.plan.program
    m3 = next(t for t in program.triggers if (t.relation, t.insert) == (trigger.relation, trigger.insert))
    text = [f"One row of {trigger.relation}, its columns at address `row`.", ""]
    text += ["    " + statement_text(s).replace("\\", "\\\\") for s in m3.statements]
    used = {v for s in m3.statements for v in _variables(s)}
    apart = len(m3.statements) > _INLINED
    function = module.exported if apart else module.function
    with function(f"{trigger_name(trigger)}(S, row)", "\n".join([*text, "    "])) as emitter:
        names: Names = {}
        columns = program.relation(trigger.relation).columns
        for at, (parameter, column) in enumerate(zip(trigger.parameters, columns, strict=True)):
            if parameter in used:
                name, kind = safe(parameter.name), unscaled(column.type)
                read = "load_double" if kind.kind is Kind.DOUBLE else "load"
                emitter.writer.line(f"{name} = {read}(row, {at})")
                names[parameter] = Code(name, in_word(kind))
        emitter.pivots = shared_pivots(module.plan, trigger.statements, trigger.parameters)
        writes(emitter, names, module.layout).statements(trigger.statements)
        if apart:
            emitter.writer.line("return 0")


def safe(name: str) -> str:
    """A variable's name that is neither a keyword nor a name of the module."""
    return f"{name}_" if keyword.iskeyword(name) or name in RESERVED else name


def _variables(statement: Statement) -> set[Var]:
    return set(variable_set(statement.value)) | {v for k in statement.keys for v in scalar_variables(k)}
