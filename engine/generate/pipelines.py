"""Text of pipelines: steps nested where they branch or loop, with equal loops walked together.

What a loop does not change is computed before it; what two pipelines share is computed once.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from functools import partial

from orderbook.engine.generate.expressions import STATE, ZERO, Code, held_as, number, operand, product, truth
from orderbook.engine.generate.module_text import Emitter, Names, empty, in_order, key_code, tree_word
from orderbook.engine.generate.reads import cut_bound, ends, extremum, is_run, lookup, prefix_words, range_sum
from orderbook.engine.plan.steps import (
    Aggregate,
    Cut,
    Extremum,
    Filter,
    FirstKey,
    Gather,
    Lookup,
    Loop,
    Pipeline,
    RangeSum,
    Step,
    Store,
)
from orderbook.engine.plan.stores import layout_of
from orderbook.views.calculus import Apply, Scalar, Var, scalar_variables
from orderbook.views.intervals import exact
from orderbook.views.types import INT64_MAX, Type

Sink = Callable[[Code, Names], None]
Types = Mapping[Var, Type]


@dataclass(slots=True)
class Thread:
    """A pipeline on its way: its next step, what is bound so far, and where its value goes.

    writes: the map that it goes to; after: the one that is to be written before, if any is.
    """

    pipeline: Pipeline
    names: Names
    types: Types
    sink: Sink
    writes: str = ""
    after: str = ""
    at: int = 0

    @property
    def steps(self) -> tuple[Step, ...]:
        return self.pipeline.steps[self.at :]


@dataclass(frozen=True, slots=True)
class Sum:
    """A sum of pipelines that is wanted, as a value of type `kind`."""

    pipelines: tuple[Pipeline, ...]
    kind: Type
    types: Types


def threads(
    pipelines: Iterable[Pipeline], names: Names, types: Types, sink: Sink, writes: str = "", after: str = ""
) -> list[Thread]:
    return [Thread(p, dict(names), types, sink, writes, after) for p in pipelines]


def sum_of(emitter: Emitter, wanted: Sum, names: Names) -> Code:
    return sums_of(emitter, [wanted], names)[0]


def sums_of(emitter: Emitter, wanted: Sequence[Sum], names: Names) -> list[Code]:
    """Sums as variables, or as expressions where they need no branch; loops they share are walked once."""
    started: list[Thread] = []
    # A total is known to others only once it is complete.
    pending: dict[str, str] = {}
    codes = [_start_sum(emitter, w, names, started, pending) for w in wanted]
    run(emitter, started)
    for same, total in pending.items():
        emitter.writer.remember(same, total)
    return codes


def _start_sum(
    emitter: Emitter, wanted: Sum, names: Names, started: list[Thread], pending: dict[str, str]
) -> Code:
    layout, writer = layout_of(wanted.kind), emitter.writer
    if len(wanted.pipelines) == 1 and _straight(wanted.pipelines[0]):
        result: list[Code] = []
        run(emitter, threads(wanted.pipelines, names, wanted.types, lambda value, _: result.append(value)))
        text = _same_value(result[0], layout)
        # A choice named once is read often, also by choices that follow from it.
        return Code(writer.once("choice", text) if _chosen(wanted.pipelines[0]) else text, wanted.kind)
    same = signature(wanted.pipelines, names)
    total = writer.recall(same) or pending.get(same)
    if total is None:
        total = writer.fresh("sum")
        writer.line(f"{total} = {ZERO[layout]}")
        if layout == "d":
            writer.line(f"{total}_rest = 0.0")
        pending[same] = total
        started += threads(wanted.pipelines, names, wanted.types, partial(_add, emitter, total, layout))
    return Code(total, wanted.kind)


def _same_value(value: Code, layout: str) -> str:
    """The one value of a sum in the sum's layout: it may be NULL, which has a word in each."""
    if layout in "wW" and value.kind == "i":
        return f"widened({number(value).text})"
    return held_as(value, layout)


def _add(emitter: Emitter, total: str, layout: str, value: Code, names: Names) -> None:
    text = held_as(value, layout)
    if layout == "W":
        emitter.writer.line(f"{total} = checked_add({total}, {text}, {STATE})")
    elif layout == "d":
        rest = f"{total}_rest"
        emitter.writer.line(f"{total}, {rest} = sum_doubles({total}, {rest}, {text}, 0.0)")
    else:
        emitter.writer.line(f"{total} = {total} + {text}")


def _straight(pipeline: Pipeline) -> bool:
    return not any(isinstance(s, Filter | Loop | Extremum | FirstKey) for s in pipeline.steps)


def _chosen(pipeline: Pipeline) -> bool:
    return any(isinstance(v, Apply) and v.op == "if" for v in pipeline.values)


def signature(pipelines: tuple[Pipeline, ...], names: Names) -> str:
    """Equal for pipelines that compute the same from the same: bound variables are numbered."""
    texts = {v: c.text for v, c in names.items()}

    def described(part: object) -> object:
        if isinstance(part, Var):
            return texts.setdefault(part, f"#{len(texts)}")
        if isinstance(part, tuple):
            return tuple(map(described, part))
        if is_dataclass(part):
            return (type(part).__name__, *(described(getattr(part, f.name)) for f in fields(part)))
        return part

    return repr(described(pipelines))


def run(emitter: Emitter, running: Sequence[Thread]) -> None:
    """Emits the steps of pipelines and hands their values to their sinks."""
    branches: dict[str, list[Thread]] = {}
    loops: dict[str, list[Thread]] = {}
    ended: list[Thread] = []
    for thread in running:
        condition = _advance(emitter, thread)
        if condition is not None:
            branches.setdefault(condition, []).append(thread)
        elif thread.steps:
            loop = thread.steps[0]
            assert isinstance(loop, Loop)
            loops.setdefault(_loop_text(emitter, loop, thread.names), []).append(thread)
        elif thread.after:
            ended.append(thread)
        else:
            _end(thread)
    several, walked = _in_turn(branches), _in_turn(loops)
    for turn in (0, 1):
        for condition, together in several[turn].items():
            with emitter.writer.block(f"if {condition}:"):
                run(emitter, together)
        for together in walked[turn].values():
            _loop(emitter, together)
    for thread in ended:
        _end(thread)


_Groups = Mapping[str, list[Thread]]


def _in_turn(groups: _Groups) -> tuple[_Groups, _Groups]:
    """Groups, and then those of their threads that come after what stands in another group."""
    first, then = dict[str, list[Thread]](), dict[str, list[Thread]]()
    for text, together in groups.items():
        apart = [t for t in together if t.after and not any(t.after == o.writes for o in together)]
        if apart:
            then[text] = apart
        if rest := [t for t in together if t not in apart]:
            first[text] = rest
    return first, then


def _end(thread: Thread) -> None:
    thread.sink(product([operand("*", v, thread.names) for v in thread.pipeline.values]), thread.names)


def _advance(emitter: Emitter, thread: Thread) -> str | None:
    """Emits steps up to the next branch, whose condition is returned, or the next loop, or the end."""
    while thread.steps:
        step, names = thread.steps[0], thread.names
        if isinstance(step, Loop):
            return None
        thread.at += 1
        match step:
            case Filter(condition):
                return truth(emitter.scalar(condition, names))
            case Extremum():
                found, names[step.value] = extremum(emitter, step, names)
                return found
            case FirstKey():
                found, names[step.value] = _first_key(emitter, step, thread)
                return found
            case Lookup():
                names[step.value] = lookup(emitter, step, names)
            case RangeSum():
                names[step.value] = range_sum(emitter, step, names)
            case Aggregate(value, pipelines):
                names[value] = sum_of(emitter, Sum(pipelines, thread.types[value], thread.types), names)
            case Gather():
                _gather(emitter, step, thread)
    return None


def _gather(emitter: Emitter, step: Gather, thread: Thread) -> None:
    """Fills a scratch map anew."""
    kinds = emitter.plan.map(step.map).key_types
    stores = emitter.plan.stores_of(step.map)
    for store in stores:
        empty(emitter, store)

    def add(value: Code, names: Names) -> None:
        keys = [emitter.new_key(k, t, names) for k, t in zip(step.keys, kinds, strict=True)]
        for store in stores:
            # A map of doubles counts what was added, so that its entries stay.
            counted = ["1"] if len(store.layout) > len(store.maps) else []
            words = [*in_order(keys, store), held_as(value, store.layout[0]), *counted]
            emitter.writer.line(emitter.call(store, "add", *words))

    run(emitter, threads(step.pipelines, thread.names, thread.types, add))


def _first_key(emitter: Emitter, step: FirstKey, thread: Thread) -> tuple[str, Code]:
    """The condition that there is such a key, and the key."""
    store, names, writer = emitter.tree(step.map, step.range.position), dict(thread.names), emitter.writer
    for pipeline in step.pipelines:
        _hoist(emitter, pipeline.steps, names)
    prefix = prefix_words(emitter, store, step.keys, names)
    low, high, inside = ends(emitter, step.range, names)
    near, far, way = (high, low, "range_last") if step.greatest else (low, high, "range_first")
    onward = "range_previous" if step.greatest else "range_next"
    leaf, place, word, found = (writer.fresh(n) for n in ("leaf", "place", "word", "found"))
    writer.line(f"{word} = 0")
    writer.line(f"{found} = False")
    writer.line(f"{leaf}, {place} = {emitter.call(store, way, *prefix, near)}")
    if inside:
        writer.line(f"{leaf} = {leaf} if {inside} else 0")
    at, op = f"({leaf}, {place})", ">=" if step.greatest else "<="
    kind = store.key_types[step.range.position]
    with writer.block(f"while {leaf} != 0 and {store.name}_key_at{at} {op} {far}:"):
        writer.line(f"{word} = {tree_word(f'{store.name}_key_at{at}', store)}")
        code = key_code(word, kind)
        names[step.value] = Code(writer.once("key", code.text), code.type)
        total = sum_of(emitter, Sum(step.pipelines, exact(0, INT64_MAX), thread.types), names)
        with writer.block(f"if {total.text} != 0:"):
            writer.line(f"{found} = True")
            writer.line("break")
        writer.line(f"{leaf}, {place} = {store.name}_{onward}{at}")
    return found, key_code(word, kind)


def _loop_text(emitter: Emitter, step: Loop, names: Names) -> str:
    """Equal for loops over the same entries; what it computes is computed before the loop."""
    store = _store_of(emitter, step)
    known = [emitter.key(step.keys[i], store.key_types[i], names) for i in step.known]
    return f"{store.name} {step.known} {known} {ends(emitter, step.range, names) if step.range else ''}"


def _store_of(emitter: Emitter, step: Loop) -> Store:
    if step.range is not None:
        return emitter.tree(step.map, step.range.position)
    store = emitter.hashed(step.map)
    assert store is not None
    return store


def _loop(emitter: Emitter, together: Sequence[Thread]) -> None:
    """One loop for all threads that walk the same entries."""
    for thread in together:
        _hoist(emitter, thread.steps[1:], thread.names)
    step = together[0].steps[0]
    assert isinstance(step, Loop)
    store = _store_of(emitter, step)
    walk = _walk if step.range is None else _range_walk
    with walk(emitter, step, store, together[0].names) as (words, values):
        inside: dict[str, list[Thread]] = {}
        for thread in together:
            inside.setdefault(_enter(emitter, store, words, values, thread), []).append(thread)
        for turn in _in_turn(inside):
            for condition, entered in turn.items():
                with emitter.writer.block(f"if {condition}:"):
                    run(emitter, entered)


@contextmanager
def _walk(
    emitter: Emitter, step: Loop, store: Store, names: Names
) -> Iterator[tuple[dict[int, str], list[str]]]:
    """A loop over a slice or all entries: the words of the unknown keys, and the values."""
    writer, entry = emitter.writer, emitter.writer.fresh("entry")
    if step.known:
        number = store.slices.index(step.known)
        keys = [emitter.key(step.keys[i], store.key_types[i], names) for i in step.known]
        writer.line(f"{entry} = {emitter.call(store, f'slice_{number}_first', *keys)}")
        following = f"{store.name}_slice_{number}_next({entry})"
    else:
        writer.line(f"{entry} = {emitter.call(store, 'first')}")
        following = emitter.call(store, "next_entry", entry)
    with writer.block(f"while {entry} != 0:"):
        words = {i: f"{store.name}_key_{i}({entry})" for i in range(len(step.keys)) if i not in step.known}
        yield words, [f"{store.name}_value_{c}({entry})" for c in range(len(store.maps))]
        writer.line(f"{entry} = {following}")


@contextmanager
def _range_walk(
    emitter: Emitter, step: Loop, store: Store, names: Names
) -> Iterator[tuple[dict[int, str], list[str]]]:
    """A loop over a range of a tree: the word of its ordered key, and the values."""
    assert step.range is not None
    writer, position = emitter.writer, step.range.position
    prefix = prefix_words(emitter, store, step.keys, names)
    low, high, inside = ends(emitter, step.range, names)
    last = writer.once("high", high)
    leaf, place = writer.fresh("leaf"), writer.fresh("place")
    writer.line(f"{leaf}, {place} = {emitter.call(store, 'range_first', *prefix, low)}")
    if inside:
        writer.line(f"{leaf} = {leaf} if {inside} else 0")
    at = f"({leaf}, {place})"
    with writer.block(f"while {leaf} != 0 and {store.name}_key_at{at} <= {last}:"):
        words = {position: tree_word(f"{store.name}_key_at{at}", store)}
        yield words, [f"{store.name}_value_{c}_at{at}" for c in range(len(store.maps))]
        writer.line(f"{leaf}, {place} = {store.name}_range_next{at}")


def _enter(
    emitter: Emitter, store: Store, words: Mapping[int, str], values: Sequence[str], thread: Thread
) -> str:
    """Binds the keys and the value of one entry for a thread; the condition under which it goes on."""
    step, outer, conditions = thread.steps[0], thread.names, []
    assert isinstance(step, Loop)
    inner = dict(outer)
    for position, word in words.items():
        key, code = step.keys[position], key_code(word, store.key_types[position])
        assert isinstance(key, Var)
        if key in inner and key not in outer:
            conditions.append(f"{inner[key].text} == {code.text}")
        else:
            inner[key] = Code(emitter.writer.once("key", code.text), code.type)
    kind = emitter.map_type(step.map)
    inner[step.value] = Code(emitter.writer.once("value", values[store.maps.index(step.map)]), kind)
    conditions.append(f"{inner[step.value].text} != {'0.0' if layout_of(kind) == 'd' else '0'}")
    thread.names = inner
    thread.at += 1
    return " and ".join(conditions)


def _hoist(emitter: Emitter, steps: Iterable[Step], names: Names) -> None:
    """Computes reads, and limits of cuts, that depend on nothing that the steps before them bind."""
    for step in steps:
        match step:
            case Aggregate(_, pipelines) | Gather(_, _, pipelines) | FirstKey(pipelines=pipelines):
                for pipeline in pipelines:
                    _hoist(emitter, pipeline.steps, names)
            case Lookup() if _known(step.keys, names):
                lookup(emitter, step, names)
            case RangeSum() if is_run(emitter, step) or _known(_scalars_of(step), names):
                if _known(_scalars_of(step), names):
                    range_sum(emitter, step, names)
            case RangeSum() | Loop() | Extremum() if step.range is not None:
                for cut in step.range.cuts:
                    if _known(_cut_scalars(cut), names):
                        cut_bound(emitter, cut, names)


def _scalars_of(step: RangeSum) -> list[Scalar]:
    """What a range sum depends on."""
    within = step.range
    keys = [k for i, k in enumerate(step.keys) if i != within.position]
    return [*keys, *within.low, *within.high, *(s for cut in within.cuts for s in _cut_scalars(cut))]


def _cut_scalars(cut: Cut) -> list[Scalar]:
    """What a cut depends on."""
    sums = {v for v, _ in cut.sums}
    used = [v for s in (cut.condition.left, cut.condition.right) for v in scalar_variables(s)]
    return [*cut.prefix, *(v for v in used if v not in sums)]


def _known(scalars: Iterable[Scalar], names: Iterable[Var]) -> bool:
    known = set(names)
    return all(v in known for s in scalars for v in scalar_variables(s))
