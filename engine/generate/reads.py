"""Text of single reads: look-ups, range sums and ends of trees, over the stores that a plan chose, and cuts.

Of a cut there is the function that searches it, and its use as a bound or as a sum.
"""

import re
from collections.abc import Iterable, Sequence

from orderbook.core.changes import NULL_CODE
from orderbook.engine.generate.expressions import STATE, ZERO, Code, as_wide, number, truth
from orderbook.engine.generate.module_text import (
    Emitter,
    Names,
    in_order,
    key_code,
    pivot_of,
    tree_word,
)
from orderbook.engine.generate.plan_reads import CutText
from orderbook.engine.maps.cuts import cut_imports, cut_source
from orderbook.engine.maps.dense import dense_cut_imports, dense_cut_source
from orderbook.engine.plan.steps import Cut, Extremum, Lookup, Range, RangeSum, Store
from orderbook.engine.plan.stores import layout_of
from orderbook.views.calculus import NEGATED, Apply, Cmp, Scalar, Var, scalar_variables
from orderbook.views.types import INT64_MAX

LOWEST, HIGHEST = f"({-INT64_MAX})", str(INT64_MAX)
# A condition over s0, s1, .., its parameters, and their values.
CutParts = tuple[str, tuple[str, ...], list[str]]


def cut_store(emitter: Emitter, cut: Cut) -> Store:
    return emitter.tree(cut.sums[0][1], cut.position)


def cut_sums(emitter: Emitter, cut: Cut, names: Names) -> str:
    """The variable that holds (found, key, sums) of a cut."""
    store = cut_store(emitter, cut)
    name, prefix, arguments = _parts(emitter, cut, names, store)
    return emitter.writer.once("cut", f"{name}({', '.join([emitter.handle(store), *prefix, *arguments])})")


def cut_bound(emitter: Emitter, cut: Cut, names: Names) -> str:
    """The variable that holds the outermost key within a cut."""
    store = cut_store(emitter, cut)
    name, prefix, arguments = _parts(emitter, cut, names, store)
    call = f"{name}_bound({', '.join([emitter.handle(store), *prefix, *arguments])})"
    return emitter.writer.once("bound", call)


def _parts(emitter: Emitter, cut: Cut, names: Names, store: Store) -> tuple[str, list[str], list[str]]:
    """The name of the cut's function, its prefix and its arguments."""
    condition = cut.condition
    if not cut.leading:
        condition = Cmp(NEGATED[condition.op], condition.left, condition.right)
    limit = _limit(emitter, cut, names, store)
    predicate, arguments, values = limit or _predicate(emitter, condition, cut, names, store)
    key = f"{store.name} {cut.descending} {cut.inclusive} {cut.leading} {predicate} {arguments}"
    if store.dense is not None:
        key = f"{key} {cut.limit}"
    name = emitter.plan.cut(key, lambda own: _function(own, store, cut, predicate, arguments))
    others = [i for i in range(len(store.key_types)) if i != store.ordered]
    prefix = [emitter.key(k, store.key_types[i], names) for k, i in zip(cut.prefix, others, strict=True)]
    return name, prefix, values


def _function(name: str, store: Store, cut: Cut, predicate: str, arguments: tuple[str, ...]) -> CutText:
    options = (len(store.prefix), store.layout)
    if store.dense is None:
        source = cut_source(name, *options, cut.descending, cut.inclusive, predicate, arguments)
        bound = _bound_source(name, store, cut, predicate, arguments)
        return CutText(name, source + bound, cut_imports(name, *options))
    summed = cut.sums[0][1]
    cursor = next(
        i
        for i, c in enumerate(store.dense.cursors)
        if (c.map, c.inclusive, c.limit) == (summed, cut.inclusive, cut.limit)
    )
    dense = (*options, store.dense.domain, len(store.dense.cursors))
    source = dense_cut_source(name, *dense, cursor, store.maps.index(summed), cut.inclusive)
    return CutText(name, source, dense_cut_imports(name, *dense))


def _limit(emitter: Emitter, cut: Cut, names: Names, store: Store) -> CutParts | None:
    """A linear condition on one sum as the greatest sum for which it holds, worked out beforehand."""
    if cut.limit is None:
        return None
    column = store.maps.index(cut.sums[0][1])
    limit = number(emitter.scalar(cut.limit, names))
    if store.layout[column] != "i":
        text = as_wide(limit)
    else:
        text = f"clamp({limit.text})" if limit.kind == "w" else limit.text
    return f"s{column} <= limit", ("limit",), [text]


def _predicate(emitter: Emitter, condition: Cmp, cut: Cut, names: Names, store: Store) -> CutParts:
    """Any condition on sums, evaluated at every place that the descent looks at."""
    inner = {v: Code(f"s{store.maps.index(m)}", emitter.map_type(m)) for v, m in cut.sums}
    sides: list[Scalar] = []
    given: dict[Var, Code] = {}
    for side in (condition.left, condition.right):
        used = dict.fromkeys(scalar_variables(side))
        known = [v for v in used if v not in inner]
        if isinstance(side, Var) or len(known) < len(used):
            given |= {v: names[v] for v in known}
            sides.append(side)
        else:
            # What is the same at all places is worked out once.
            whole = Var(f"side {len(sides)}")
            given[whole] = emitter.scalar(side, names)
            sides.append(whole)
    for i, (variable, code) in enumerate(given.items()):
        inner[variable] = Code(f"q{i}{code.kind}", code.type)
    predicate = truth(emitter.scalar(Apply(condition.op, tuple(sides)), inner))
    checked = (STATE,) if re.search(rf"\b{STATE}\b", predicate) else ()
    arguments = (*(inner[v].text for v in given), *checked)
    return predicate, arguments, [*(c.text for c in given.values()), *checked]


def _bound_source(name: str, store: Store, cut: Cut, predicate: str, arguments: tuple[str, ...]) -> str:
    """A function that gives the outermost key for which the cut's condition holds, as a bound.

    Between two keys of the tree the running sum does not change, so the bound is right for keys of
    any other map too. The run ends before `found`'s key; beyond the last key all of the tree counts.
    """
    prefix = [f"p{i}" for i in range(len(store.prefix))]
    columns = range(len(store.layout))
    used = [c for c in columns if f"s{c}" in predicate]
    call = f"{name}({', '.join(['O', *prefix, *arguments])})"
    none, everything = (HIGHEST, LOWEST) if cut.descending else (LOWEST, HIGHEST)
    onward, backward, step = ("above", "lowest", "+") if cut.descending else ("below", "highest", "-")
    own = ", ".join(["O", *prefix])
    lines = [
        "@jit()",
        f"def {name}_bound({', '.join(['O', *prefix, *arguments])}):",
        f"    run = {call}",
    ]
    at_zero = [f"    s{c} = {ZERO[store.layout[c]]}" for c in used]
    if cut.inclusive:
        lines += [
            *at_zero,
            f"    if not ({predicate}):",
            f"        bound = {none}",
            "    elif run[0]:",
            f"        bound = run[1] {step} 1",
            "    else:",
            f"        bound = {everything}",
        ]
    else:
        lines += [
            "    if run[0]:",
            f"        near = {store.name}_at_or_{onward}({own}, run[1] {step} 1)",
            f"        bound = near[1] if near[0] else {none}",
            "    else:",
        ]
        lines += [f"        s{c} = run[{2 + c}]" for c in used]
        lines += [
            f"        edge = {store.name}_{backward}({own})",
            f"        bound = {everything} if {predicate} else edge[1] if edge[0] else {none}",
        ]
    if cut.leading:
        lines.append("    return bound")
    else:
        # The condition holds beyond the run of its opposite; what is nothing there is all here.
        back = "-" if cut.descending else "+"
        lines.append(f"    return bound if bound in ({none}, {everything}) else bound {back} 1")
    return "\n\n\n" + "\n".join(lines) + "\n"


# Below it there is no key, not even NULL.
EVERY_LOW = f"({NULL_CODE})"


def lookup(emitter: Emitter, step: Lookup, names: Names) -> Code:
    """The entry of a map, 0 where there is none."""
    store = emitter.hashed(step.map) or emitter.plan.stores_of(step.map)[0]
    kind = emitter.map_type(step.map)
    column = store.maps.index(step.map)
    keys = [emitter.key(k, t, names) for k, t in zip(step.keys, store.key_types, strict=True)]
    return Code(entry_code(emitter, store, keys, column), kind)


def entry_code(emitter: Emitter, store: Store, keys: Sequence[str], column: int) -> str:
    """The value of the entry of a store at words of keys, 0 where there is none."""
    if store.ordered is not None or not keys:
        values = emitter.writer.once("values", emitter.call(store, "get", *in_order(keys, store)))
        return f"{values}[{column}]"
    w, place = emitter.writer, entry_value(store, keys, column)
    value = w.recall(place)
    if value is None:
        entry = w.once("entry", emitter.call(store, "find", *keys), store.name)
        read = f"{store.name}_value_{column}({entry}) if {entry} != 0 else {ZERO[store.layout[column]]}"
        value = w.once("value", read, store.name)
        w.remember(place, value, store.name)
    return value


def entry_value(store: Store, keys: Sequence[str], column: int) -> str:
    """By what a writer knows the value of an entry of a hashed store."""
    return f"{store.name}[{', '.join(keys)}].{column}"


def range_sum(emitter: Emitter, step: RangeSum, names: Names) -> Code:
    """The sum of a map over a range of its tree."""
    store, kind = emitter.tree(step.map, step.range.position), emitter.map_type(step.map)
    column = store.maps.index(step.map)
    prefix = prefix_words(emitter, store, step.keys, names)
    if step.range.everything:
        total = emitter.writer.once("total", emitter.call(store, "total", *prefix))
        return Code(f"{total}[{column}]", kind)
    if is_run(emitter, step):
        return Code(f"{cut_sums(emitter, step.range.cuts[0], names)}[{2 + column}]", kind)
    for read in (_beside_pivot, _between_runs):
        found = read(emitter, store, step, prefix, names)
        if found is not None:
            return Code(found, kind)
    low, high, inside = ends(emitter, step.range, names)
    if low == LOWEST and not store.nullable:
        low = EVERY_LOW
    sums = emitter.writer.once("sums", emitter.call(store, "range_sum", *prefix, low, high))
    if inside:
        return Code(f"({sums}[{column}] if {inside} else {ZERO[layout_of(kind)]})", kind)
    return Code(f"{sums}[{column}]", kind)


def _beside_pivot(
    emitter: Emitter, store: Store, step: RangeSum, prefix: list[str], names: Names
) -> str | None:
    """The sum of all keys on one side of a key that is looked at anyway; None for any other range."""
    found = pivot_of(store, step)
    if found is None or found[0] not in emitter.pivots:
        return None
    key = number(emitter.scalar(found[0].key, names))
    if key.kind != "i":
        return None
    sums = emitter.writer.once("around", emitter.call(store, "around", *prefix, key.text))
    column, count, op = store.maps.index(step.map), len(store.layout), found[1]
    side = f"{sums}[{column if op[0] == '<' else column + 2 * count}]"
    if len(op) == 1:
        return side
    at = f"{sums}[{column + count}]"
    if store.layout[column] == "W":
        return f"checked_add({side}, {at}, {STATE})"
    return f"({side} + {at})"


def _between_runs(
    emitter: Emitter, store: Store, step: RangeSum, prefix: list[str], names: Names
) -> str | None:
    """The sum of what one run of this tree has more than another, by what their descents pass; None for
    any other range."""
    within, column = step.range, store.maps.index(step.map)
    outer = [cut for cut in within.cuts if cut.leading]
    inner = [cut for cut in within.cuts if not cut.leading]
    if len(outer) != 1 or len(inner) != 1 or within.low or within.high or store.layout[column] == "d":
        return None
    keys = tuple(step.keys[i] for i in store.prefix)
    same = all(cut_store(emitter, cut) is store and cut.prefix == keys for cut in within.cuts)
    if not same or outer[0].descending != inner[0].descending:
        return None
    more, less = (cut_sums(emitter, cut, names) for cut in (outer[0], inner[0]))
    # A run ends before the key that it has found.
    further = "<" if outer[0].descending else ">"
    beyond = emitter.writer.once("beyond", f"not {more}[0] or {less}[0] and {more}[1] {further} {less}[1]")
    if store.layout[column] == "W":
        between = f"checked_subtract({more}[{2 + column}], {less}[{2 + column}], {STATE})"
    else:
        between = f"{more}[{2 + column}] - {less}[{2 + column}]"
    return emitter.writer.once("between", f"{between} if {beyond} else {ZERO[store.layout[column]]}")


def is_run(emitter: Emitter, step: RangeSum) -> bool:
    """Whether the descent that finds the cut passes all that is summed."""
    within, store = step.range, emitter.tree(step.map, step.range.position)
    if len(within.cuts) != 1 or within.low or within.high:
        return False
    cut, prefix = within.cuts[0], tuple(step.keys[i] for i in store.prefix)
    return cut_store(emitter, cut) is store and cut.leading and cut.prefix == prefix


def extremum(emitter: Emitter, step: Extremum, names: Names) -> tuple[str, Code]:
    """The condition that there is an end, and the key at it."""
    store = emitter.tree(step.map, step.range.position)
    prefix = prefix_words(emitter, store, step.keys, names)
    low, high, inside = ends(emitter, step.range, names)
    near, far = (high, low) if step.greatest else (low, high)
    search = emitter.call(store, "at_or_below" if step.greatest else "at_or_above", *prefix, near)
    end = emitter.writer.once("end", search)
    conditions = [f"{end}[0]", *([inside] if inside else [])]
    if far != HIGHEST:
        conditions.append(f"{end}[1] {'>=' if step.greatest else '<='} {far}")
    word = tree_word(f"{end}[1]", store)
    return " and ".join(conditions), key_code(word, store.key_types[step.range.position])


def prefix_words(emitter: Emitter, store: Store, keys: Sequence[Scalar], names: Names) -> list[str]:
    return [emitter.key(keys[i], store.key_types[i], names) for i in store.prefix]


def ends(emitter: Emitter, within: Range, names: Names) -> tuple[str, str, str]:
    """The lowest and highest word of a range, and the condition, or nothing, that leaves any key."""
    lows = [_bound(emitter, s, names) for s in within.low]
    highs = [_bound(emitter, s, names) for s in within.high]
    for cut in within.cuts:
        (lows if cut.descending == cut.leading else highs).append(cut_bound(emitter, cut, names))
    inside = _inside(emitter, within.low, within.high, names)
    return _outermost("max", lows, LOWEST), _outermost("min", highs, HIGHEST), inside


def _bound(emitter: Emitter, scalar: Scalar, names: Names) -> str:
    code = number(emitter.scalar(scalar, names))
    return f"clamp({code.text})" if code.kind == "w" else code.text


def _inside(emitter: Emitter, low: Iterable[Scalar], high: Iterable[Scalar], names: Names) -> str:
    """The condition under which bounds of 128 bits leave any key of 64; empty where that is sure."""
    limits = [(emitter.scalar(s, names), f"<= wide({HIGHEST})") for s in low]
    limits += [(emitter.scalar(s, names), f">= wide({LOWEST})") for s in high]
    return " and ".join(f"{c.text} {test}" for c, test in limits if c.kind == "w")


def _outermost(function: str, bounds: Sequence[str], default: str) -> str:
    if not bounds:
        return default
    return bounds[0] if len(bounds) == 1 else f"{function}({', '.join(bounds)})"
