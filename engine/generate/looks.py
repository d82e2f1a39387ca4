"""What modules that look at views have in common: rows as they were, looks at those touched, the loop."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from engine.plan.steps import Plan

from .layout import CACHE, COUNT, DIRTY, ERROR, LIST, ROW, row_words
from .module import ModuleText
from .triggers import trigger_name


@dataclass(frozen=True, slots=True)
class Look:
    """The watches of one view at one granularity; `watches` are their numbers."""

    view: int
    per_message: bool
    watches: tuple[int, ...]


def tag_of(look: Look) -> str:
    """What the names of a look's functions end in."""
    return f"{look.view}_{int(look.per_message)}"


def cache_imports(plan: Plan, looks: Sequence[Look], more: int) -> str:
    """The stores of rows at the last look, which have `more` words than rows."""
    keyed = [look for look in looks if keys_of(plan, look)]
    return "".join(_cache_import(plan, look, row_words(plan.results[look.view]) + more) for look in keyed)


def _cache_import(plan: Plan, look: Look, words: int) -> str:
    name, keys = f"cache_{tag_of(look)}", keys_of(plan, look)
    used = ["find", "insert", "remove", "first", "next_entry", *(f"key_{i}" for i in range(keys))]
    return f"{name} = hashed({keys}, {'i' * words!r}, ())\n" + "".join(
        f"{name}_{u} = {name}.{u}\n" for u in used
    )


def keys_of(plan: Plan, look: Look) -> int:
    """How many keys the view has."""
    return len(plan.results[look.view].result.keys)


def refresh_function(
    module: ModuleText, look: Look, words: int, row: str, told: str, says: str, noted: Callable[[], None]
) -> None:
    """Compares a row with the last look; where it is another, does what `noted` writes, and keeps it.

    words: of a row as the look keeps it. row: the function that computes it. told: see `look_function`.
    """
    w = module.writer
    keys = [f"k{i}" for i in range(keys_of(module.plan, look))]
    tag, own = tag_of(look), ", ".join(keys)
    with module.function(f"refresh_{tag}({', '.join(['S', 'last', *keys, 'new', told])})", says):
        w.line(f"count = {row}({', '.join(['S', *keys, 'new'])})")
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
            noted()
            with w.block(f"for word in range({words}):"):
                w.line("store(old, word, load(new, word))")
        if keys:
            with w.block("if count == 0:"):
                w.line(f"cache_{tag}_remove(last, entry)")


def look_function(module: ModuleText, look: Look, told: str) -> None:
    """Refreshes the rows touched since the last look; every row where that is not known.

    told: what the function is told and hands on with every row.
    """
    w, plan, layout = module.writer, module.plan, module.layout
    count = keys_of(plan, look)
    at = layout.look(look.view, look.per_message)
    tag = tag_of(look)
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


@contextmanager
def looks_function(module: ModuleText, looks: Sequence[Look], told: str, says: str) -> Iterator[None]:
    """`look`, which looks at every view that was touched; what is written inside comes after."""
    w, layout = module.writer, module.layout
    with module.function(f"look(S, message_ends, {told})", says):
        w.line(f"store(S, {DIRTY}, 0)")
        for look in looks:
            call = f"look_{tag_of(look)}(S, {told})"
            if look.per_message:
                with w.block("if message_ends:"):
                    w.line(call)
                with w.block(f"elif load(S, {layout.look(look.view, True) + COUNT}) != 0:"):
                    w.line(f"store(S, {DIRTY}, 1)")
            else:
                w.line(call)
        yield


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
