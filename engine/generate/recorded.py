"""The generated module that records: a driver loop, and a look that notes every row that became another.

As the module of watches (watches.py), but what changed goes to a list of its own for each view, with the
index of the change, and the loop goes on.
"""

from collections.abc import Sequence

from engine.changes import END_OF_EVENT, END_OF_MESSAGE
from engine.plan.steps import Plan
from views.scalars.patterns import Pattern

from .layout import CACHE, COUNT, DIRTY, FAILED, LIST, RECORDS, row_words
from .looks import (
    Look,
    cache_imports,
    changes_applied,
    failed_function,
    keys_of,
    look_function,
    looks_function,
    refresh_function,
    tag_of,
)
from .module import ModuleText
from .triggers import trigger_name

_IMPORTS = "from engine.maps.memory import calloc, memory_move, release\n"
_FIRST_WORDS = 1 << 12


def record_module(
    plan: Plan, program_module: str, looks: Sequence[Look], texts: dict[str | Pattern, int]
) -> str:
    """The source of the driver and looks; `program_module` is the name of the program's module."""
    module = ModuleText(plan, texts)
    _append(module)
    for look in looks:
        _refresh(module, look)
        look_function(module, look, "index")
        _unlook(module, look)
    with looks_function(module, looks, "index", "Looks at the touched rows after change `index`."):
        pass
    failed_function(module)
    _driver(module)
    names = [trigger_name(t) for t in plan.triggers]
    names += [f"row_{view}" for view in dict.fromkeys(look.view for look in looks)]
    imports = f"{_IMPORTS}from {program_module} import {', '.join(names)}\n" if names else _IMPORTS
    return module.text(imports + cache_imports(plan, looks, 0))


def _append(module: ModuleText) -> None:
    w = module.writer
    with module.function("append(held, words)", "The address for `words` more words of a list, which grows."):
        w.line("used = load(held, 1)")
        with w.block("if used + words > load(held, 2):"):
            w.line(f"capacity = max({_FIRST_WORDS}, 2 * (used + words))")
            w.line("grown = calloc(capacity, 8)")
            w.line("memory_move(grown, load(held, 0), 8 * used)")
            w.line("release(load(held, 0))")
            w.line("store(held, 0, grown)")
            w.line("store(held, 2, capacity)")
        w.line("store(held, 1, used + words)")
        w.line("return load(held, 0) + 8 * used")


def _refresh(module: ModuleText, look: Look) -> None:
    """Looks at one row, and records what it was and is if it has become another."""
    w, keys = module.writer, keys_of(module.plan, look)
    words = row_words(module.plan.results[look.view])
    at = module.layout.look(look.view, look.per_message)

    def recorded() -> None:
        with w.block("if index >= 0:"):
            w.line(f"place = append(load(S, {at + RECORDS}), {1 + keys + 2 * words})")
            w.line("store(place, 0, index)")
            for i in range(keys):
                w.line(f"store(place, {1 + i}, k{i})")
            with w.block(f"for word in range({words}):"):
                w.line(f"store(place, {1 + keys} + word, load(old, word))")
                w.line(f"store(place, {1 + keys + words} + word, load(new, word))")

    says = "Looks at one row; records what it was and is, unless `index` is below 0."
    refresh_function(module, look, words, f"row_{look.view}", "index", says, recorded)


def _unlook(module: ModuleText, look: Look) -> None:
    """Makes rows those of the last look, and touches them, so that the next look sees them again."""
    w, plan = module.writer, module.plan
    count, words = keys_of(plan, look), row_words(plan.results[look.view])
    tag = tag_of(look)
    at = module.layout.look(look.view, look.per_message)
    with module.function(
        f"unlook_{tag}(S, rows, count)", "Takes back the last look at rows: keys, and rows as they were."
    ):
        w.line(f"last = load(S, {at + CACHE})")
        with w.block("for _ in range(count):"):
            if count:
                own = ", ".join(f"load(rows, {i})" for i in range(count))
                w.line(f"entry = cache_{tag}_find(last, {own})")
                with w.block("if entry == 0:"):
                    w.line(f"entry = cache_{tag}_insert(last, {own})")
                w.line(f"old = entry + {8 * count}")
            else:
                w.line("old = last")
            with w.block(f"for word in range({words}):"):
                w.line(f"store(old, word, load(rows, {count} + word))")
            if count:
                with w.block("if load(old, 0) == 0:"):
                    w.line(f"cache_{tag}_remove(last, entry)")
            w.line(f"store(S, {DIRTY}, 1)")
            with w.block(f"if load(S, {at + COUNT}) >= 0:"):
                w.line(f"place = push_key(S, {at + LIST}, {count})")
                for i in range(count):
                    w.line(f"store(place, {i}, load(rows, {i}))")
            w.line(f"rows += {8 * (count + words)}")


def _driver(module: ModuleText) -> None:
    w = module.writer
    with module.function(
        "run(S, kinds, flags, values, start, stop)",
        "Applies changes start..stop; the index after the last.",
        ", nogil=True",
    ):
        with changes_applied(module):
            ended = f"load(S, {DIRTY}) != 0 and flags[i] & {END_OF_EVENT | END_OF_MESSAGE}"
            with w.block(f"if {ended} and not failed(S):"):
                w.line(f"look(S, flags[i] & {END_OF_MESSAGE} != 0, i)")
        w.line(f"return {FAILED} if failed(S) else stop")
