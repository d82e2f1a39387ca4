"""The generated module of a program's driver: the loop over changes, and what both of its kinds share."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from engine.changes import END_OF_EVENT, END_OF_MESSAGE

from .layout import DIRTY, ERROR, FAILED, FIRED_WORDS
from .module import ModuleText
from .numbering import NumberedPlan
from .triggers import trigger_name


def driver_module(plan: NumberedPlan, program_module: str) -> str:
    """The source of `run`; `program_module` is the name of the program's module.

    At the end of each event (or message) that touched a watched view, the loop looks at it, and returns to
    Python where a watch fires.
    """
    module = ModuleText(plan)
    failed_function(module)
    w = module.writer
    with module.function(
        "run(S, kinds, flags, values, start, stop)",
        "Applies changes start..stop; the index after the last, its complement where watches fired.",
        ", nogil=True",
    ):
        w.line(f"store(S, {FIRED_WORDS}, 0)")
        with changes_applied(module):
            ended = f"load(S, {DIRTY}) != 0 and flags[i] & {END_OF_EVENT | END_OF_MESSAGE}"
            fired = f"not failed(S) and look(S, flags[i] & {END_OF_MESSAGE} != 0)"
            with w.block(f"if {ended} and {fired}:"):
                w.line("return ~(i + 1)")
        w.line(f"return {FAILED} if failed(S) else stop")
    return module.text("from engine.generate.support import look\n" + trigger_imports(plan, program_module))


def trigger_imports(plan: NumberedPlan, program_module: str, more: Sequence[str] = ()) -> str:
    """Imports triggers, and more, of the program's module."""
    names = [*(trigger_name(t) for t in plan.triggers), *more]
    return f"from {program_module} import {', '.join(names)}\n" if names else ""


def failed_function(module: ModuleText) -> None:
    """`failed(S)`, which the driver asks."""
    w = module.writer
    with module.function("failed(S)", "Whether a product or a sum overflowed 128 bits."):
        with w.block(f"if load(S, {ERROR}) != 0:"):
            w.line("return True")
        for held in module.plan.stores:
            if "W" in held.layout:
                with w.block(f"if {held.name}_error(load(S, {module.layout.handles[held.name]})) != 0:"):
                    w.line("return True")
        w.line("return False")


@contextmanager
def changes_applied(module: ModuleText) -> Iterator[None]:
    """The loop that calls the trigger of every change i; what is written inside comes after it."""
    w, plan = module.writer, module.plan
    names = [r.name for r in plan.program.relations]
    w.line("stride = 8 * values.shape[1]")
    w.line("row = values.ctypes.data + start * stride")
    with w.block("for i in range(start, stop):"):
        w.line("kind = kinds[i]")
        word = "if"
        for trigger in plan.triggers:
            kind = 2 * names.index(trigger.relation) + (not trigger.insert)
            with w.block(f"{word} kind == {kind}:"):
                w.line(f"{trigger_name(trigger)}(S, row)")
            word = "elif"
        w.line("row += stride")
        yield
