"""Rows of views: the function that computes one, the one that lists them, and notes of what changed."""

from collections.abc import Sequence

from engine.plan.steps import Lookup, Pipeline, Plan, ResultPlan, maps_read
from views.compiler.calculus import Var
from views.compiler.m3 import ResultColumn
from views.compiler.types import Kind, unscaled

from .emitter import Emitter, Names
from .layout import ACTIVE, COUNT, DIRTY, LIST, column_words, row_words
from .module import ModuleText
from .pipelines import Sum, sum_of
from .reads import lookup
from .typed_code import Code, held_as, in_word, number, truth


def row_keys(plan: Plan, result: ResultPlan, name: str) -> list[tuple[int, ...] | None]:
    """How a written key of map `name` tells the view's row: positions of its keys; None: any row."""
    view_keys = [k.variable for k in result.result.keys]
    found: list[tuple[int, ...] | None] = []
    if result.result.multiplicity == name:
        found.append(tuple(range(len(view_keys))))
    names = {name, *(d.name for d in plan.directories_of(name))}
    for _, pipelines in result.lets:
        for pipeline in pipelines:
            for step in pipeline.steps:
                if isinstance(step, Lookup) and step.map == name and set(step.keys) == set(view_keys):
                    found.append(tuple(step.keys.index(k) for k in view_keys))
                elif not names.isdisjoint(maps_read([Pipeline((step,), ())])):
                    found.append(None)
    return [None] if None in found else list(dict.fromkeys(found))


def touch_functions(module: ModuleText, view: int) -> None:
    """`touch_<view>(S, keys..)` and `touch_all_<view>(S)`: notes for the next look at watched rows."""
    w, result = module.writer, module.plan.results[view].result
    keys = [f"k{i}" for i in range(len(result.keys))]
    with module.function(
        f"touch_{view}({', '.join(['S', *keys])})",
        "Notes for watches that a row may have changed.",
    ):
        for at in (module.layout.look(view, per_message) for per_message in (False, True)):
            with w.block(f"if load(S, {at + ACTIVE}) != 0:"):
                w.line(f"store(S, {DIRTY}, 1)")
                with w.block(f"if load(S, {at + COUNT}) >= 0:"):
                    w.line(f"place = push_key(S, {at + LIST}, {len(keys)})")
                    for i, key in enumerate(keys):
                        w.line(f"store(place, {i}, {key})")
    with module.function(f"touch_all_{view}(S)", "Notes for watches that any row may have changed."):
        for at in (module.layout.look(view, per_message) for per_message in (False, True)):
            with w.block(f"if load(S, {at + ACTIVE}) != 0:"):
                w.line(f"store(S, {DIRTY}, 1)")
                w.line(f"store(S, {at + COUNT}, -1)")


def row_function(module: ModuleText, view: int) -> None:
    """`row_<view>(S, keys, out)`: the row of the keys at an address, its words at another; how often it
    stands."""
    w, result = module.writer, module.plan.results[view]
    with module.exported(
        f"row_{view}(S, keys, out)", "A row, written to `out`; how often it stands."
    ) as emitter:
        keys = [f"k{i}" for i in range(len(result.result.keys))]
        for i, key in enumerate(keys):
            w.line(f"{key} = load(keys, {i})")
        names = _key_names(emitter, result, keys)
        count = _count(emitter, result, names)
        w.line(f"store(out, 0, {count})")
        if count != "1":
            with w.block(f"if {count} == 0:"):
                w.line("return 0")
        for variable, pipelines in result.lets:
            names[variable] = sum_of(emitter, Sum(pipelines, result.types[variable], result.types), names)
        at = 1
        for column in result.result.columns:
            at = _column(emitter, column, names, at)
        w.line(f"return {count}")


def _key_names(emitter: Emitter, result: ResultPlan, words: Sequence[str]) -> Names:
    names: Names = {}
    for key, word in zip(result.result.keys, words, strict=True):
        kind = in_word(unscaled(key.type))
        text = emitter.writer.once("key", f"bits_to_double(S, {word})") if kind.kind is Kind.DOUBLE else word
        names[key.variable] = Code(text, kind)
    return names


def _count(emitter: Emitter, result: ResultPlan, names: Names) -> str:
    """How often the row stands: 1 for the only row of a view, and for a group that is there."""
    if result.result.multiplicity is None:
        return "1"
    step = Lookup(Var("$count"), result.result.multiplicity, tuple(k.variable for k in result.result.keys))
    held = lookup(emitter, step, names)
    # Of a group only whether it is there: a count of 128 bits is not cut to 64.
    count = emitter.writer.once("count", held.text if result.result.grouped else held_as(held, "i"))
    return f"(1 if {count} != 0 else 0)" if result.result.grouped else count


def _column(emitter: Emitter, column: ResultColumn, names: Names, at: int) -> int:
    """Writes whether the column is there, and its value, from word `at` on; where the next one goes."""
    w = emitter.writer
    valid = truth(emitter.scalar(column.valid, names))
    w.line(f"store(out, {at}, 1 if {valid} else 0)")
    value = number(emitter.scalar(column.scalar, names))
    words = column_words(column.type)
    with w.block(f"if {valid}:"):
        if column.type.kind is Kind.DOUBLE:
            w.line(f"store_double(out, {at + 1}, {held_as(value, 'd')})")
        elif words == 2:
            wide_value = w.once("wide_value", held_as(value, "w"))
            w.line(f"store(out, {at + 1}, low_word({wide_value}))")
            w.line(f"store(out, {at + 2}, high_word({wide_value}))")
        else:
            w.line(f"store(out, {at + 1}, {held_as(value, 'i')})")
    with w.block("else:"):
        for i in range(words):
            w.line(f"store(out, {at + 1 + i}, 0)")
    return at + 1 + words


def list_function(module: ModuleText, view: int) -> None:
    """`rows_<view>(S, out, limit)`: keys and words of up to `limit` rows; how many were written."""
    w, result = module.writer, module.plan.results[view]
    name, count = result.result.multiplicity, len(result.result.keys)
    with module.function(
        f"rows_{view}(S, out, limit)",
        "Up to `limit` rows: keys, then words; how many.",
    ):
        if name is None:
            w.line(f"row_{view}(S, out, out)")
            w.line("return 1")
            return
        w.line("rows = 0")
        held = module.plan.entries_of(name)
        w.line(f"h = load(S, {module.layout.handles[held.name]})")
        w.line(f"entry = {held.name}_first(h)")
        with w.block("while entry != 0 and rows < limit:"):
            for i in range(count):
                w.line(f"store(out, {i}, {held.name}_key_{i}(entry))")
            with w.block(f"if row_{view}(S, out, out + {8 * count}) != 0:"):
                w.line("rows += 1")
                w.line(f"out += {8 * (count + row_words(result))}")
            w.line(f"entry = {held.name}_next_entry(h, entry)")
        w.line("return rows")
