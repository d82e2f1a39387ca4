"""The generated module of a program: its stores, one function a trigger, and the rows of its views."""

import keyword
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby

from engine.plan.planner import maps_read
from engine.plan.steps import Lookup, Plan, ResultPlan, StatementPlan, Store, TriggerPlan
from views.compiler.calculus import Scalar, Var, scalar_variables, variable_set
from views.compiler.m3_print import statement_text
from views.compiler.types import Kind, Type, unscaled

from .layout import ACTIVE, COUNT, DIRTY, LIST, TEXTS, Layout, column_words, layout_for, row_words
from .pipelines import Emitter
from .scalars import Code, held_as, number, truth
from .writer import Writer

HEAD = '''\
"""Generated from an M3 program: its stores, a function for every trigger, and the rows of its views."""

from engine.generate.support import bits_to_double, clamp, divide, double_bits, floor_divide, push_key
from engine.maps.int128 import (
    checked_add, checked_multiply, high_word, low_word, wide, wide_product, wide_to_double, words_to_wide,
)
from engine.maps.memory import load, load_double, store, store_double
from engine.maps.shapes import hashed, ordered
from numba import njit

TEXTS = %d
''' % TEXTS

HASHED = ("find", "add", "assign", "get", "clear", "first", "next_entry", "create", "destroy")
ORDERED = (
    "add", "assign", "get", "clear", "total", "range_sum", "range_first", "range_next", "key_at",
    "lowest", "highest", "at_or_above", "at_or_below", "create", "destroy",
)


def safe(name: str) -> str:
    """A variable's name that is neither a keyword nor a name of the module."""
    return f"{name}_" if keyword.iskeyword(name) or name in ("S", "load", "store", "row", "out", "wide", "min", "max") else name


def trigger_name(trigger: TriggerPlan) -> str:
    return f"{'insert' if trigger.insert else 'delete'}_{trigger.relation}"


def program_module(plan: Plan, texts: dict[str, int]) -> str:
    """The source of a program's module; `texts` collects its text constants, numbered."""
    layout = layout_for(plan)
    functions = Writer()
    cuts: dict[str, tuple[str, str, tuple[str, ...]]] = {}
    for number_of, result in enumerate(plan.results):
        _touch(functions, plan, layout, number_of, result)
    if plan.initial:
        _function(functions, "initialise(S)", "What maps hold before any event.", plan, layout, texts, cuts,
                  lambda e: _Body(e, {}, layout).statements(plan.initial))
    for trigger in plan.triggers:
        _trigger(functions, plan, layout, texts, cuts, trigger)
    for number_of, result in enumerate(plan.results):
        row_function(functions, plan, layout, texts, cuts, number_of, result, ())
        _rows(functions, plan, layout, number_of, result)
    return HEAD + imports(plan.stores) + cut_text(cuts.values()) + "\n\n" + functions.text()


def cut_text(cuts: Iterable[tuple[str, str, tuple[str, ...]]]) -> str:
    """The functions of cut searches, after what they import."""
    found = list(cuts)
    imports = list(dict.fromkeys(line for _, _, lines in found for line in lines))
    return "\n".join(imports) + "\n\n\n" + "\n\n".join(source for _, source, _ in found)


def imports(stores: Sequence[Store]) -> str:
    lines = []
    for s in stores:
        if s.ordered is None:
            lines.append(f"# {', '.join(s.maps)}")
            lines.append(f"{s.name} = hashed({len(s.key_types)}, {s.layout!r}, {s.slices!r})")
            names = [n for n in HASHED if s.key_types or n not in ("find",)]
            names += [f"value_{i}" for i in range(len(s.layout))] if s.key_types else []
            names += [f"key_{i}" for i in range(len(s.key_types))]
            names += [f"slice_{i}_{w}" for i in range(len(s.slices)) for w in ("first", "next")]
        else:
            lines.append(f"# {', '.join(s.maps)}, in the order of key {s.ordered}")
            lines.append(f"{s.name} = ordered({len(s.prefix)}, {s.layout!r})")
            names = [*ORDERED, *(f"value_{i}_at" for i in range(len(s.layout)))]
        lines += [f"{s.name}_{n} = {s.name}.{n}" for n in names]
    return "\n".join(lines) + "\n"


def _function(w: Writer, head: str, doc: str, plan: Plan, layout: Layout, texts: dict[str, int],
              cuts: dict, body) -> None:  # type: ignore[type-arg, no-untyped-def]
    w.line("@njit(cache=True, error_model='numpy')")
    with w.block(f"def {head}:"):
        w.line(f'"""{doc}"""')
        body(Emitter(plan, w, layout.handles, texts, cuts))
    w.line("")
    w.line("")


def _trigger(w: Writer, plan: Plan, layout: Layout, texts: dict[str, int], cuts: dict,  # type: ignore[type-arg]
             trigger: TriggerPlan) -> None:
    relation = plan.program.relation(trigger.relation)
    m3 = next(t for t in plan.program.triggers if (t.relation, t.insert) == (trigger.relation, trigger.insert))
    doc = "\n".join(["One row of " + trigger.relation + ", its columns at address `row`.", ""]
                    + ["    " + statement_text(s).replace("\\", "\\\\") for s in m3.statements] + ["    "])

    def body(emitter: Emitter) -> None:
        names: dict[Var, Code] = {}
        used = {v for s in m3.statements for v in _statement_variables(s)}
        for at, (parameter, column) in enumerate(zip(trigger.parameters, relation.columns, strict=True)):
            if parameter in used:
                kind = unscaled(column.type)
                read = "load_double" if kind.kind is Kind.DOUBLE else "load"
                w.line(f"{safe(parameter.name)} = {read}(row, {at})")
                names[parameter] = Code(safe(parameter.name), _as_number(kind))
        _Body(emitter, names, layout).statements(trigger.statements)

    _function(w, f"{trigger_name(trigger)}(S, row)", doc, plan, layout, texts, cuts, body)


def _as_number(kind: Type) -> Type:
    return Type(Kind.INTEGER, 0, 0, 1) if kind.kind is Kind.BOOLEAN else kind


def _statement_variables(statement) -> set[Var]:  # type: ignore[no-untyped-def]
    return set(variable_set(statement.value)) | {v for k in statement.keys for v in scalar_variables(k)}


class _Body:
    """The statements of one trigger: values read before, loops, writes, then what reads the state after."""

    def __init__(self, emitter: Emitter, names: Mapping[Var, Code], layout: Layout):
        self.emitter, self.names, self.layout = emitter, dict(names), layout
        self.touched: dict[tuple[int, tuple[str, ...] | None], None] = {}

    def statements(self, statements: Sequence[StatementPlan]) -> None:
        before = [s for s in statements if not s.after]
        after = [s for s in statements if s.after]
        pending = [(s, self._value(s)) for s in before if s.writes_one(self.names)]
        for statement in before:
            if not statement.writes_one(self.names):
                self._loop_write(statement)
        self._write(pending)
        for _, level in groupby(after, key=lambda s: s.level):
            own = list(level)
            pending = [(s, self._value(s)) for s in own if s.writes_one(self.names)]
            for statement in own:
                if not statement.writes_one(self.names):
                    self._loop_write(statement)
            self._write(pending)
        for view, keys in self.touched:
            self._emit_touch(view, keys)

    def _value(self, statement: StatementPlan) -> Code:
        self.emitter.types = statement.types
        kind = self.emitter.map_type(statement.target)
        return self.emitter.sum(statement.pipelines, self.names, kind)

    def _write(self, values: Sequence[tuple[StatementPlan, Code]]) -> None:
        """Writes values at keys that the event gives: all maps of a store in one call."""
        w = self.emitter.writer
        by_store: dict[str, list[tuple[StatementPlan, Code]]] = {}
        for statement, code in values:
            by_store.setdefault(self.emitter.plan.stores_of(statement.target)[0].name, []).append((statement, code))
        for group in by_store.values():
            first = group[0][0]
            keys = self._keys(first.target, first.keys, self.names)
            if len(group) > 1:
                # Values are fixed before the first of them is written.
                group = [(s, Code(w.once("value", c.text), c.type)) for s, c in group]
            codes = {s.target: c for s, c in group}
            for store in self.emitter.plan.stores_of(first.target):
                self._store_write(store, "assign" if first.op == ":=" else "add", keys, codes)
            for statement, _ in group:
                self._touch(statement.target, keys, in_loop=False)
        if values:
            w.forget()

    def _keys(self, target: str, keys: Sequence[Scalar], names: dict[Var, Code]) -> list[str]:
        types = self.emitter.plan.program.map(target).key_types
        return [self.emitter.key(k, t, names) for k, t in zip(keys, types, strict=True)]

    def _store_write(self, store: Store, function: str, keys: Sequence[str], codes: Mapping[str, Code]) -> None:
        order = keys if store.ordered is None else [keys[i] for i in (*store.prefix, store.ordered)]
        zero = {"i": "0", "w": "wide(0)", "W": "wide(0)", "d": "0.0"}
        values = [
            held_as(codes[m], c) if m in codes else zero[c] for m, c in zip(store.maps, store.layout, strict=False)
        ]
        if len(store.layout) > len(store.maps):
            self._double_write(store, function, list(order), values)
        else:
            self.emitter.writer.line(self.emitter.call(store, function, *order, *values))

    def _double_write(self, store: Store, function: str, keys: list[str], values: list[str]) -> None:
        """A map of doubles alone: its entry is there while its rows are counted by another map."""
        w, emitter = self.emitter.writer, self.emitter
        if function == "assign":
            value = w.once("value", values[0])
            w.line(emitter.call(store, "assign", *keys, value, f"1 if {value} != 0.0 else 0"))
            return
        count = emitter.plan.program.map(store.maps[0]).count
        there = f"{emitter.call(store, 'get', *keys)}[1]"
        if count is None:
            w.line(emitter.call(store, "add", *keys, *values, f"1 - {there}"))
            return
        counting = emitter.plan.stores_of(count)[0]
        own = keys if store.ordered is None else _unordered(keys, store)
        rows = f"{emitter.call(counting, 'get', *_ordered(own, counting))}[{counting.maps.index(count)}]"
        with w.block(f"if {rows} == 0:"):
            w.line(emitter.call(store, "assign", *keys, "0.0", "0"))
        with w.block("else:"):
            w.line(emitter.call(store, "add", *keys, *values, f"1 - {there}"))

    def _loop_write(self, statement: StatementPlan) -> None:
        """Writes at every key that the statement's loops bind."""
        emitter = self.emitter
        emitter.types = statement.types
        stores = emitter.plan.stores_of(statement.target)
        if statement.op == ":=":
            for store in stores:
                emitter.writer.line(emitter.call(store, "clear"))
            self._touch(statement.target, None, in_loop=False)

        def write(value: Code, names: dict[Var, Code]) -> None:
            keys = self._keys(statement.target, statement.keys, names)
            for store in stores:
                self._store_write(store, "add", keys, {statement.target: value})
            self._touch(statement.target, keys, in_loop=True)

        for pipeline in statement.pipelines:
            emitter.pipeline(pipeline, self.names, write)
        emitter.writer.forget()

    def _touch(self, name: str, keys: Sequence[str] | None, in_loop: bool) -> None:
        """Notes that rows of the views that read this map may have changed."""
        for view, result in enumerate(self.emitter.plan.results):
            for order in row_keys(result, name):
                own = None if keys is None or order is None else tuple(keys[i] for i in order)
                if in_loop and own is not None:
                    self._emit_touch(view, own)
                else:
                    self.touched[view, own] = None

    def _emit_touch(self, view: int, keys: tuple[str, ...] | None) -> None:
        w = self.emitter.writer
        arguments = f", {', '.join(keys)}" if keys else ""
        flags = " or ".join(f"load(S, {self.layout.look(view, m) + ACTIVE}) != 0" for m in (False, True))
        with w.block(f"if {flags}:"):
            w.line(f"touch_all_{view}(S)" if keys is None else f"touch_{view}(S{arguments})")


def _ordered(keys: Sequence[str], store: Store) -> list[str]:
    return list(keys) if store.ordered is None else [keys[i] for i in (*store.prefix, store.ordered)]


def _unordered(keys: Sequence[str], store: Store) -> list[str]:
    order = (*store.prefix, store.ordered)
    return [keys[order.index(i)] for i in range(len(keys))]


def row_keys(result: ResultPlan, name: str) -> list[tuple[int, ...] | None]:
    """How a written key of map `name` tells the view's row: positions of its keys; None: any row."""
    view_keys = [k.variable for k in result.result.keys]
    found: list[tuple[int, ...] | None] = []
    if result.result.multiplicity == name:
        found.append(tuple(range(len(view_keys))))
    for _, pipelines in result.lets:
        for pipeline in pipelines:
            for step in pipeline.steps:
                if isinstance(step, Lookup) and step.map == name and set(step.keys) == set(view_keys):
                    found.append(tuple(step.keys.index(k) for k in view_keys))
                elif name in maps_read([type(pipeline)((step,), ())]):
                    found.append(None)
    return [None] if None in found else list(dict.fromkeys(found))


def _touch(w: Writer, plan: Plan, layout: Layout, view: int, result: ResultPlan) -> None:
    keys = [f"k{i}" for i in range(len(result.result.keys))]
    for head, words in ((f"touch_{view}({', '.join(['S', *keys])})", keys), (f"touch_all_{view}(S)", None)):
        w.line("@njit(cache=True, error_model='numpy')")
        with w.block(f"def {head}:"):
            w.line(f'"""Notes for its watches that {"a row" if words is not None else "any row"} of '
                   f'{result.result.name} may have changed."""')
            for per_message in (False, True):
                at = layout.look(view, per_message)
                with w.block(f"if load(S, {at + ACTIVE}) != 0:"):
                    w.line(f"store(S, {DIRTY}, 1)")
                    if words is None:
                        w.line(f"store(S, {at + COUNT}, -1)")
                        continue
                    with w.block(f"if load(S, {at + COUNT}) >= 0:"):
                        w.line(f"place = push_key(S, {at + LIST}, {len(keys)})")
                        for i, key in enumerate(keys):
                            w.line(f"store(place, {i}, {key})")
        w.line("")
        w.line("")


def row_function(
    w: Writer, plan: Plan, layout: Layout, texts: dict[str, int], cuts: dict, view: int,  # type: ignore[type-arg]
    result: ResultPlan, conditions: Sequence[Scalar | None], prefix: str = "row",
) -> None:
    """`row_<view>(S, keys.., out)`: writes the row's words to `out` and returns how often it stands.

    With conditions, one more word holds a bit for each that holds.
    """
    keys = [f"k{i}" for i in range(len(result.result.keys))]

    def body(emitter: Emitter) -> None:
        emitter.types = result.types
        names: dict[Var, Code] = {}
        for key, word in zip(result.result.keys, keys, strict=True):
            kind = _as_number(unscaled(key.type))
            text = w.once("key", f"bits_to_double(S, {word})") if kind.kind is Kind.DOUBLE else word
            names[key.variable] = Code(text, kind)
        if result.result.multiplicity is None:
            count = "1"
        else:
            lookup = Lookup(Var("$count"), result.result.multiplicity, tuple(k.variable for k in result.result.keys))
            count = w.once("count", emitter.lookup(lookup, names).text)
        if result.result.grouped and count != "1":
            count = f"(1 if {count} != 0 else 0)"
        w.line(f"store(out, 0, {count})")
        if count != "1":
            with w.block(f"if {count} == 0:"):
                w.line("return 0")
        for variable, pipelines in result.lets:
            names[variable] = emitter.sum(pipelines, names, result.types[variable])
        at = 1
        for column in result.result.columns:
            at = _column(emitter, column, names, at)
        if conditions:
            bits = [_bit(emitter, c, names, i) for i, c in enumerate(conditions)]
            w.line(f"store(out, {at}, {' | '.join(bits)})")
        w.line(f"return {count}")

    _function(w, f"{prefix}_{view}({', '.join(['S', *keys, 'out'])})",
              f"A row of {result.result.name}, written to `out`; how often it stands.", plan, layout, texts, cuts, body)


def _bit(emitter: Emitter, condition: Scalar | None, names: dict[Var, Code], number_of: int) -> str:
    holds = "True" if condition is None else truth(emitter.scalar(condition, names))
    return f"({1 << number_of} if {holds} else 0)"


def _column(emitter: Emitter, column, names: dict[Var, Code], at: int) -> int:  # type: ignore[no-untyped-def]
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


def _rows(w: Writer, plan: Plan, layout: Layout, view: int, result: ResultPlan) -> None:
    """`rows_<view>(S, out, limit)`: keys and words of up to `limit` rows; how many were written."""
    name, count = result.result.multiplicity, len(result.result.keys)
    stride = count + row_words(result)
    w.line("@njit(cache=True, error_model='numpy')")
    with w.block(f"def rows_{view}(S, out, limit):"):
        w.line(f'"""Up to `limit` rows of {result.result.name}: keys, then words; how many there are."""')
        if name is None:
            w.line(f"row_{view}(S, out)")
            w.line("return 1")
        else:
            store = next(s for s in plan.stores_of(name) if s.ordered is None)
            w.line(f"h = load(S, {layout.handles[store.name]})")
            w.line("rows = 0")
            w.line(f"entry = {store.name}_first(h)")
            with w.block("while entry != 0 and rows < limit:"):
                keys = [f"{store.name}_key_{i}(entry)" for i in range(count)]
                for i, key in enumerate(keys):
                    w.line(f"store(out, {i}, {key})")
                call = ", ".join(["S", *keys, f"out + {8 * count}"])
                with w.block(f"if row_{view}({call}) != 0:"):
                    w.line("rows += 1")
                    w.line(f"out += {8 * stride}")
                w.line(f"entry = {store.name}_next_entry(h, entry)")
            w.line("return rows")
    w.line("")
    w.line("")
