"""The generated module of a set of watches: the driver loop, and a look at every watched view.

At the end of each event (or message) that touched a watched view, the rows touched are computed and
compared with what they were at the last look; the loop returns to Python only when a watch fires.
"""

from collections.abc import Sequence

from engine.changes import END_OF_EVENT, END_OF_MESSAGE
from engine.plan.steps import Plan
from engine.runtime import Watch
from views.scalars.patterns import Pattern

from .layout import DIRTY, FAILED, FIRED, FIRED_WORDS, row_words
from .looks import (
    Look,
    cache_imports,
    changes_applied,
    failed_function,
    keys_of,
    look_function,
    looks_function,
    refresh_function,
)
from .module import ModuleText
from .rows import row_function
from .triggers import trigger_name


def looks_of(plan: Plan, watches: Sequence[Watch]) -> tuple[Look, ...]:
    views = [r.result.name for r in plan.results]
    grouped: dict[tuple[int, bool], list[int]] = {}
    for number, watch in enumerate(watches):
        grouped.setdefault((views.index(watch.view), watch.per_message), []).append(number)
    return tuple(Look(v, m, tuple(numbers)) for (v, m), numbers in grouped.items())


def watch_module(
    plan: Plan, program_module: str, watches: Sequence[Watch], texts: dict[str | Pattern, int]
) -> str:
    """The source of the driver and looks; `program_module` is the name of the program's module."""
    module = ModuleText(plan, texts)
    looks = looks_of(plan, watches)
    for look in looks:
        row_function(
            module,
            look.view,
            [watches[n].condition for n in look.watches],
            f"watched_{int(look.per_message)}",
        )
        _refresh(module, look, watches)
        look_function(module, look, "quiet")
    with looks_function(module, looks, "quiet", "Looks at the touched rows; whether any watch fired."):
        module.writer.line(f"return load(S, {FIRED_WORDS}) != 0")
    failed_function(module)
    _driver(module, bool(looks))
    names = [trigger_name(t) for t in plan.triggers]
    imports = "from engine.generate.support import fire\n"
    imports += f"from {program_module} import {', '.join(names)}\n" if names else ""
    return module.text(imports + cache_imports(plan, looks, 1))


def _words(plan: Plan, look: Look) -> int:
    """Words of a row as a look keeps it: the row's, and one of bits for conditions."""
    return row_words(plan.results[look.view]) + 1


def _refresh(module: ModuleText, look: Look, watches: Sequence[Watch]) -> None:
    """Looks at one row, and fires what fires."""
    w, plan = module.writer, module.plan
    keys, words = keys_of(plan, look), _words(plan, look)
    edges = sum(
        1 << i for i, n in enumerate(look.watches) if watches[n].edge and watches[n].condition is not None
    )
    always = sum(1 << i for i, n in enumerate(look.watches) if watches[n].condition is None)

    def fired() -> None:
        w.line(f"before, now = load(old, {words - 1}), load(new, {words - 1})")
        w.line(f"firing = (now & ~{edges}) | (now & ~before & {edges}) | {always}")
        with w.block("if not quiet:"):
            for i, number in enumerate(look.watches):
                with w.block(f"if firing & {1 << i}:"):
                    w.line(f"fire(S, {number}, {keys}, {words}, old, new)")
                    record = f"load(S, {FIRED}) + 8 * (load(S, {FIRED_WORDS}) - {keys + 2 * words})"
                    if keys:
                        w.line(f"place = {record}")
                    for j in range(keys):
                        w.line(f"store(place, {j}, k{j})")

    row = f"watched_{int(look.per_message)}_{look.view}"
    says = "Looks at one row: fires the watches whose time has come, unless `quiet`."
    refresh_function(module, look, words, row, "quiet", says, fired)


def _driver(module: ModuleText, watched: bool) -> None:
    w = module.writer
    with module.function(
        "run(S, kinds, flags, values, start, stop)",
        "Applies changes start..stop; the index after the last, its complement where watches fired.",
        ", nogil=True",
    ):
        if watched:
            w.line(f"store(S, {FIRED_WORDS}, 0)")
        with changes_applied(module):
            if watched:
                ended = f"load(S, {DIRTY}) != 0 and flags[i] & {END_OF_EVENT | END_OF_MESSAGE}"
                fired = f"not failed(S) and look(S, flags[i] & {END_OF_MESSAGE} != 0, False)"
                with w.block(f"if {ended} and {fired}:"):
                    w.line("return ~(i + 1)")
        w.line(f"return {FAILED} if failed(S) else stop")
