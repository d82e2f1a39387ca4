"""Text of single reads: look-ups, range sums and ends of trees, over the stores that a plan chose."""

from collections.abc import Iterable, Sequence

from engine.maps.header import LOWEST as NULL_WORD
from engine.plan.pivots import pivot_of
from engine.plan.steps import Extremum, Lookup, Range, RangeSum, Store
from engine.plan.stores import layout_of
from views.compiler.calculus import Scalar

from .cut_text import HIGHEST, LOWEST, cut_bound, cut_store, cut_sums
from .emitter import Emitter, Names, in_order, key_code, tree_word
from .typed_code import STATE, ZERO, Code, number

# Below it there is no key, not even NULL.
EVERY_LOW = f"({NULL_WORD})"


def lookup(emitter: Emitter, step: Lookup, names: Names) -> Code:
    """The entry of a map, 0 where there is none."""
    store = emitter.hashed(step.map) or emitter.plan.stores_of(step.map)[0]
    kind = emitter.map_type(step.map)
    column = store.maps.index(step.map)
    keys = [emitter.key(k, t, names) for k, t in zip(step.keys, store.key_types, strict=True)]
    if store.ordered is None and keys:
        entry = emitter.writer.once("entry", emitter.call(store, "find", *keys))
        read = f"{store.name}_value_{column}({entry}) if {entry} != 0 else {ZERO[layout_of(kind)]}"
        return Code(emitter.writer.once("value", read), kind)
    values = emitter.writer.once("values", emitter.call(store, "get", *in_order(keys, store)))
    return Code(f"{values}[{column}]", kind)


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
    beside = _beside_pivot(emitter, store, step, prefix, names)
    if beside is not None:
        return Code(beside, kind)
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
