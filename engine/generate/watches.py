"""The generated module of a set of watches: the driver loop, and a look at every watched view.

At the end of each event (or message) that touched a watched view, the rows touched are computed and
compared with what they were at the last look; the loop returns to Python only when a watch fires.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from engine.changes import END_OF_EVENT, END_OF_MESSAGE
from engine.plan.steps import Plan
from engine.runtime import Watch
from views.scalars.patterns import Pattern

from .layout import CACHE, COUNT, DIRTY, ERROR, FAILED, FIRED, FIRED_WORDS, LIST, ROW, row_words
from .module import ModuleText
from .rows import row_function
from .triggers import trigger_name


@dataclass(frozen=True, slots=True)
class Look:
    """The watches of one view at one granularity; `watches` are their numbers."""

    view: int
    per_message: bool
    watches: tuple[int, ...]


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
        look_function(module, look)
    _look_all(module, looks)
    failed_function(module)
    _driver(module, bool(looks))
    names = [trigger_name(t) for t in plan.triggers]
    imports = "from engine.generate.support import fire\n"
    imports += f"from {program_module} import {', '.join(names)}\n" if names else ""
    return module.text(imports + cache_imports(plan, looks, 1))


def cache_imports(plan: Plan, looks: Sequence[Look], more: int) -> str:
    """The stores of rows at the last look, which have `more` words than rows."""
    keyed = [look for look in looks if keys_of(plan, look)]
    return "".join(_cache_import(plan, look, row_words(plan.results[look.view]) + more) for look in keyed)


def _cache_import(plan: Plan, look: Look, words: int) -> str:
    name, keys = f"cache_{look.view}_{int(look.per_message)}", keys_of(plan, look)
    used = ["find", "insert", "remove", "first", "next_entry", *(f"key_{i}" for i in range(keys))]
    return f"{name} = hashed({keys}, {'i' * words!r}, ())\n" + "".join(
        f"{name}_{u} = {name}.{u}\n" for u in used
    )


def keys_of(plan: Plan, look: Look) -> int:
    """How many keys the view has."""
    return len(plan.results[look.view].result.keys)


def _words(plan: Plan, look: Look) -> int:
    """Words of a row as a look keeps it: the row's, and one of bits for conditions."""
    return row_words(plan.results[look.view]) + 1


def _refresh(module: ModuleText, look: Look, watches: Sequence[Watch]) -> None:
    """Compares one row with the last look, fires what fires, and keeps the new one."""
    w, plan = module.writer, module.plan
    keys = [f"k{i}" for i in range(keys_of(plan, look))]
    words = _words(plan, look)
    tag = f"{look.view}_{int(look.per_message)}"
    edges = sum(
        1 << i for i, n in enumerate(look.watches) if watches[n].edge and watches[n].condition is not None
    )
    always = sum(1 << i for i, n in enumerate(look.watches) if watches[n].condition is None)
    own = ", ".join(keys)
    with module.function(
        f"refresh_{tag}({', '.join(['S', 'last', *keys, 'new', 'quiet'])})",
        "Looks at one row: fires the watches whose time has come, unless `quiet`.",
    ):
        arguments = ", ".join(["S", *keys, "new"])
        w.line(f"count = watched_{int(look.per_message)}_{look.view}({arguments})")
        if keys:
            w.line(f"entry = cache_{tag}_find(last, {own})")
            with w.block("if entry == 0:"):
                with w.block("if count == 0:"):
                    w.line("return")
                w.line(f"entry = cache_{tag}_insert(last, {own})")
                with w.block(f"for word in range({words}):"):
                    w.line(f"store(entry, {len(keys)} + word, 0)")
            w.line(f"old = entry + {8 * len(keys)}")
        else:
            w.line("old = last")
        with w.block("if count == 0:"), w.block(f"for word in range({words}):"):
            w.line("store(new, word, 0)")
        w.line("changed = False")
        with w.block(f"for word in range({words}):"):
            w.line("changed = changed or load(new, word) != load(old, word)")
        with w.block("if changed:"):
            w.line(f"before, now = load(old, {words - 1}), load(new, {words - 1})")
            w.line(f"firing = (now & ~{edges}) | (now & ~before & {edges}) | {always}")
            with w.block("if not quiet:"):
                for i, number in enumerate(look.watches):
                    with w.block(f"if firing & {1 << i}:"):
                        w.line(f"fire(S, {number}, {len(keys)}, {words}, old, new)")
                        record = f"load(S, {FIRED}) + 8 * (load(S, {FIRED_WORDS}) - {len(keys) + 2 * words})"
                        if keys:
                            w.line(f"place = {record}")
                        for j, key in enumerate(keys):
                            w.line(f"store(place, {j}, {key})")
            with w.block(f"for word in range({words}):"):
                w.line("store(old, word, load(new, word))")
        if keys:
            with w.block("if count == 0:"):
                w.line(f"cache_{tag}_remove(last, entry)")


def look_function(module: ModuleText, look: Look, told: str = "quiet") -> None:
    """Refreshes the rows touched since the last look; every row where that is not known.

    told: what the function is told and hands on with every row.
    """
    w, plan, layout = module.writer, module.plan, module.layout
    count = keys_of(plan, look)
    at = layout.look(look.view, look.per_message)
    tag = f"{look.view}_{int(look.per_message)}"
    result = plan.results[look.view].result
    with module.function(f"look_{tag}(S, {told})", f"Looks at the rows of {result.name} that were touched."):
        w.line(f"last = load(S, {at + CACHE})")
        w.line(f"touched = load(S, {at + COUNT})")
        w.line(f"new = load(S, {at + ROW})")
        if count and result.multiplicity is not None:
            store = next(s for s in plan.stores_of(result.multiplicity) if s.ordered is None)
            with w.block("if touched < 0:"):
                w.line(f"store(S, {at + COUNT}, 0)")
                for first, following, key in (
                    (
                        f"{store.name}_first(load(S, {layout.handles[store.name]}))",
                        f"{store.name}_next_entry(load(S, {layout.handles[store.name]}), entry)",
                        store.name,
                    ),
                    (f"cache_{tag}_first(last)", f"cache_{tag}_next_entry(last, entry)", f"cache_{tag}"),
                ):
                    w.line(f"entry = {first}")
                    with w.block("while entry != 0:"):
                        w.line(f"place = push_key(S, {at + LIST}, {count})")
                        for i in range(count):
                            w.line(f"store(place, {i}, {key}_key_{i}(entry))")
                        w.line(f"entry = {following}")
                w.line(f"touched = load(S, {at + COUNT})")
            w.line(f"place = load(S, {at + LIST})")
            with w.block("for _ in range(touched):"):
                keys = ", ".join(f"load(place, {i})" for i in range(count))
                w.line(f"refresh_{tag}(S, last, {keys}, new, {told})")
                w.line(f"place += {8 * count}")
        else:
            with w.block("if touched != 0:"):
                w.line(f"refresh_{tag}(S, last, new, {told})")
        w.line(f"store(S, {at + COUNT}, 0)")


def _look_all(module: ModuleText, looks: Sequence[Look]) -> None:
    w, layout = module.writer, module.layout
    with module.function(
        "look(S, message_ends, quiet)", "Looks at the touched rows; whether any watch fired."
    ):
        w.line(f"store(S, {DIRTY}, 0)")
        for look in looks:
            call = f"look_{look.view}_{int(look.per_message)}(S, quiet)"
            if look.per_message:
                with w.block("if message_ends:"):
                    w.line(call)
                with w.block(f"elif load(S, {layout.look(look.view, True) + COUNT}) != 0:"):
                    w.line(f"store(S, {DIRTY}, 1)")
            else:
                w.line(call)
        w.line(f"return load(S, {FIRED_WORDS}) != 0")


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
