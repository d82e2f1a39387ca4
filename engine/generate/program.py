"""The generated module of a program: one function for each trigger, and the rows of its views.

Of a trigger's statements: values read before, loops, writes, then what reads the state after. Of views: the
function that computes a row, the one that lists them, and notes of what changed.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import fields, is_dataclass
from functools import partial
from itertools import groupby
from typing import ClassVar

from orderbook.engine.generate.expressions import ZERO, Code, finite, held_as, in_word, number, truth
from orderbook.engine.generate.module_text import (
    Emitter,
    ModuleText,
    Names,
    Writer,
    empty,
    in_order,
    shared_pivots,
)
from orderbook.engine.generate.numbering import NumberedPlan
from orderbook.engine.generate.pipelines import Sum, Thread, run, sum_of, sums_of, threads
from orderbook.engine.generate.reads import entry_value, lookup
from orderbook.engine.generate.state_layout import ACTIVE, COUNT, DIRTY, LIST, Layout, column_words, row_words
from orderbook.engine.plan.steps import (
    Directory,
    Gather,
    Lookup,
    Loop,
    Plan,
    ResultPlan,
    StatementPlan,
    Store,
    TriggerPlan,
    maps_in_pipelines,
    reads_in_pipelines,
    steps_of,
)
from orderbook.views.calculus import Scalar, Var
from orderbook.views.m3 import ResultColumn
from orderbook.views.types import Kind, unscaled


def row_keys(plan: Plan, result: ResultPlan, name: str) -> list[tuple[int, ...] | None]:
    """How a written key of map `name` tells the view's row: positions of its keys; None: any row.

    A row that reads a map at all of its own keys, whatever else, is not changed by other entries.
    """
    view_keys = [k.variable for k in result.result.keys]
    found: list[tuple[int, ...] | None] = []
    if result.result.multiplicity == name:
        found.append(tuple(range(len(view_keys))))
    places: dict[str, Sequence[int]] = {d.name: d.positions for d in plan.directories_of(name)}
    places[name] = range(len(plan.program.map(name).keys))
    for read, keys in reads_in_pipelines(p for _, pipelines in result.lets for p in pipelines):
        if read in places:
            at = dict(zip(keys, places[read], strict=True))
            found.append(tuple(at[k] for k in view_keys) if at.keys() >= {*view_keys} else None)
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
                    w.line(f"place = key_place(S, {at + LIST}, {len(keys)})")
                    for i, key in enumerate(keys):
                        w.line(f"store(place, {i}, {key})")
                    w.line(f"note_key(S, {at + LIST}, {len(keys)})")
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


class Writes:
    """The statements of one trigger; notes rows of watched views that they may change.

    `imports` are lines that a module with such statements needs.
    """

    imports: ClassVar[str] = ""

    def __init__(self, emitter: Emitter, names: Mapping[Var, Code], layout: Layout):
        self.emitter, self.names, self.layout = emitter, dict(names), layout
        self.plan = emitter.plan
        self.touched: dict[tuple[int, tuple[str, ...] | None], None] = {}

    def statements(self, statements: Sequence[StatementPlan]) -> None:
        """Writes statements, level by level, and then what they touch."""
        for _, level in groupby(statements, key=lambda s: s.level):
            own = list(level)
            single = [s for s in own if s.writes_one(self.names)]
            wanted = [Sum(s.pipelines, self.emitter.map_type(s.target), s.types) for s in single]
            values = sums_of(self.emitter, wanted, self.names)
            for together in self._fusable([s for s in own if not s.writes_one(self.names)]):
                self._loop_writes(together)
            self._write(list(zip(single, values, strict=True)))
        for view, keys in self.touched:
            self._emit_touch(view, keys)

    def _write(self, values: Sequence[tuple[StatementPlan, Code]]) -> None:
        """Writes values at keys that the event gives: all maps of a store in one call."""
        w = self.emitter.writer
        by_store: dict[object, list[tuple[StatementPlan, Code]]] = {}
        earlier: list[object] = []
        for statement, code in values:
            entry = (self.plan.stores_of(statement.target)[0].name, statement.keys)
            # A map that is written twice at one key is written in two calls.
            times = earlier.count((statement.target, statement.keys))
            earlier.append((statement.target, statement.keys))
            by_store.setdefault((*entry, times), []).append((statement, code))
        for group in by_store.values():
            first = group[0][0]
            keys = self._keys(first.target, first.keys, self.names)
            # Values are fixed before the first of them is written.
            codes = {s.target: c if _is_name(c) else _named(w, c) for s, c in group}
            self._entry_write(first.target, "assign" if first.op == ":=" else "add", keys, codes)
            for statement, _ in group:
                self._touch(statement.target, keys, in_loop=False)

    def _keys(self, target: str, keys: Sequence[Scalar], names: Names) -> list[str]:
        types = self.plan.program.map(target).key_types
        return [self.emitter.new_key(k, t, names) for k, t in zip(keys, types, strict=True)]

    def _entry_write(
        self, target: str, function: str, keys: Sequence[str], codes: Mapping[str, Code]
    ) -> None:
        """Writes one entry in every store that holds it, and counts it in the directories."""
        w, emitter = self.emitter.writer, self.emitter
        stores, directories = self.plan.stores_of(target), self.plan.directories_of(target)
        size = emitter.call(stores[0], "size")
        before = w.fresh("size")
        known = self._written(stores, function, keys, codes)
        if directories:
            w.line(f"{before} = {size}")
        for store in stores:
            self._store_write(store, function, keys, codes)
        self._drop_uncounted(target, keys)
        if directories:
            with w.block(f"if {size} != {before}:"):
                for directory in directories:
                    self._directory_write(directory, keys, f"{size} - {before}")
        changed = [*stores, *(s for d in directories for s in self.plan.stores_of(d.name))]
        changed += self._counted_by(target)
        w.forget({store.name for store in changed})
        for place, (name, value) in known.items():
            w.remember(place, value, name)

    def _written(
        self, stores: Sequence[Store], function: str, keys: Sequence[str], codes: Mapping[str, Code]
    ) -> dict[str, tuple[str, str]]:
        """Values of a hashed entry that are known once it is written, as expressions, and its store."""
        w, found = self.emitter.writer, dict[str, tuple[str, str]]()
        for store in stores:
            if store.ordered is not None or not keys or not set(store.layout) <= {*"iw"}:
                continue
            for column, (name, layout) in enumerate(zip(store.maps, store.layout, strict=True)):
                place = entry_value(store, keys, column)
                held = w.recall(place)
                if name not in codes:
                    after = None if function == "assign" else held
                elif function == "assign":
                    after = held_as(codes[name], layout)
                else:
                    after = held and f"({held} + {held_as(codes[name], layout)})"
                if after:
                    found[place] = store.name, after
        return found

    def _drop_uncounted(self, count: str, keys: Sequence[str]) -> None:
        """Drops the entries of doubles whose last row is gone: a change of 0.0 does not reach them."""
        alone = self._counted_by(count)
        if not alone:
            return
        counting = self.plan.stores_of(count)[0]
        held = self.emitter.call(counting, "get", *in_order(keys, counting))
        with self.emitter.writer.block(f"if {held}[{counting.maps.index(count)}] == 0:"):
            for store in alone:
                words = in_order(keys, store)
                self.emitter.writer.line(self.emitter.call(store, "assign", *words, *_zeros(store)))

    def _counted_by(self, count: str) -> list[Store]:
        """The stores of doubles whose entries go with those of a map that counts rows."""
        counted = [m.name for m in self.plan.program.maps if m.count == count]
        stores = dict.fromkeys(s for name in counted for s in self.plan.stores_of(name))
        return [s for s in stores if len(s.layout) > len(s.maps)]

    def _directory_write(self, directory: Directory, keys: Sequence[str], change: str) -> None:
        words = [keys[p] for p in directory.positions]
        for store in self.plan.stores_of(directory.name):
            self.emitter.writer.line(self.emitter.call(store, "add", *in_order(words, store), change))

    def _store_write(
        self, store: Store, function: str, keys: Sequence[str], codes: Mapping[str, Code]
    ) -> None:
        values = [
            held_as(finite(codes[m]), c) if m in codes else ZERO[c]
            for m, c in zip(store.maps, store.layout, strict=False)
        ]
        if len(store.layout) > len(store.maps):
            self._double_write(store, function, keys, values)
            return
        call = self.emitter.call(store, function, *in_order(keys, store), *values)
        given = [codes[name].text for name in store.maps if name in codes]
        if function == "add" and len(given) == 1 and re.fullmatch(r"sum_\d+", given[0]):
            # What is counted by conditions is most often 0.
            with self.emitter.writer.block(f"if {given[0]} != 0:"):
                self.emitter.writer.line(call)
        else:
            self.emitter.writer.line(call)

    def _double_write(self, store: Store, function: str, keys: Sequence[str], values: list[str]) -> None:
        """Maps of doubles without what counts them: entries are there while another map counts rows."""
        w, emitter, words = self.emitter.writer, self.emitter, in_order(keys, store)
        if function == "assign":
            held = [w.once("value", value) for value in values]
            there = " or ".join(f"{value} != 0.0" for value in held)
            w.line(emitter.call(store, "assign", *words, *held, f"1 if {there} else 0"))
            return
        count = self.plan.program.map(store.maps[0]).count
        there = f"{emitter.call(store, 'get', *words)}[{len(store.maps)}]"
        if count is None:
            w.line(emitter.call(store, "add", *words, *values, f"1 - {there}"))
            return
        counting = self.plan.stores_of(count)[0]
        rows = emitter.call(counting, "get", *in_order(keys, counting))
        with w.block(f"if {rows}[{counting.maps.index(count)}] == 0:"):
            w.line(emitter.call(store, "assign", *words, *_zeros(store)))
        with w.block("else:"):
            w.line(emitter.call(store, "add", *words, *values, f"1 - {there}"))

    def _loop_writes(self, statements: Sequence[StatementPlan]) -> None:
        """Writes at every key that the loops of statements bind; loops they share are walked once."""
        emitter, running = self.emitter, list[Thread]()
        for statement in statements:
            if statement.erased:
                sink = partial(self._loop_write, statement)
                run(emitter, threads(statement.erased, self.names, statement.types, sink))
            elif statement.op == ":=":
                self._clear(statement.target)
            sink = partial(self._loop_write, statement)
            running += threads(statement.pipelines, self.names, statement.types, sink)
        emitter.writer.forget()
        run(emitter, running)
        emitter.writer.forget()

    def _clear(self, target: str) -> None:
        names = [target, *(d.name for d in self.plan.directories_of(target))]
        for store in (s for name in names for s in self.plan.stores_of(name)):
            empty(self.emitter, store)
        self._touch(target, None, in_loop=False)

    def _loop_write(self, statement: StatementPlan, value: Code, names: Names) -> None:
        keys = self._keys(statement.target, statement.keys, names)
        self._entry_write(statement.target, "add", keys, {statement.target: value})
        self._touch(statement.target, keys, in_loop=True)

    def _touch(self, name: str, keys: Sequence[str] | None, in_loop: bool) -> None:
        """Notes that rows of the views that read this map may have changed."""
        for view, result in enumerate(self.plan.results):
            for order in row_keys(self.plan, result, name):
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

    def _fusable(self, statements: Sequence[StatementPlan]) -> Iterator[list[StatementPlan]]:
        """Runs of statements none of which reads what another of them writes, or drops with its count."""
        counted = [(m.name, m.count) for m in self.plan.program.maps if m.count]
        together: list[StatementPlan] = []
        for statement in statements:
            several = (*together, statement)
            written = {s.target for s in several}
            written |= {name for name, count in counted if count in written}
            written |= {d.name for name in written for d in self.plan.directories_of(name)}
            read = {m for s in several for m in maps_in_pipelines((*s.pipelines, *s.erased))}
            if together and not written.isdisjoint(read):
                yield together
                together = []
            together.append(statement)
        if together:
            yield together


def _is_name(code: Code) -> bool:
    return re.fullmatch(r"\w+", code.text) is not None


def _named(writer: Writer, code: Code) -> Code:
    return Code(writer.once("value", finite(code).text), code.type)


def _zeros(store: Store) -> Iterable[str]:
    """The values of an entry that goes."""
    return [ZERO[column] for column in store.layout]


# Statements of a trigger that is compiled into every loop that calls it: a call takes 3 ns, and to compile
# the trigger again takes a second for every twenty of them.
_INLINED = 8
# Statements that only look up and search are functions of their own, so many in each, where a trigger has
# more than twice as many: what is compiled together takes longer than its parts, and of a program that is
# edited only the parts that changed are compiled.
_TOGETHER = 6
_ROW = "Applies one row, its columns at address `row`."


def program_module(plan: NumberedPlan, writes: type[Writes] = Writes) -> str:
    """The source of a program's module.

    `writes` writes the statements of triggers: Writes, or MeasuredWrites for a module that measures.
    """
    module = ModuleText(plan)
    for view in range(len(plan.results)):
        touch_functions(module, view)
    if plan.initial:
        with module.function("initialise(S)", "What maps hold before any event.") as emitter:
            Writes(emitter, {}, module.layout).statements(plan.initial)
    shared: dict[str, str] = {}
    for trigger in plan.triggers:
        parts = _parts(module, trigger, shared) if writes is Writes else []
        if len(parts) > 1:
            with module.exported(f"{trigger_name(trigger)}(S, row)", _ROW) as emitter:
                for name in parts:
                    emitter.writer.line(f"{name}(S, row)")
                emitter.writer.line("return 0")
        else:
            function = module.exported if len(trigger.statements) > _INLINED else module.function
            _statements_function(module, function, trigger_name(trigger), trigger, trigger.statements, writes)
    for view in range(len(plan.results)):
        row_function(module, view)
        list_function(module, view)
    return module.text(writes.imports)


def trigger_name(trigger: TriggerPlan) -> str:
    return f"{'insert' if trigger.insert else 'delete'}_{trigger.relation}"


def _statements_function(
    module: ModuleText,
    function: Callable[[str, str], AbstractContextManager[Emitter]],
    name: str,
    trigger: TriggerPlan,
    statements: Sequence[StatementPlan],
    writes: type[Writes],
) -> None:
    """A function of statements of a trigger; it reads the columns that they use."""
    with function(f"{name}(S, row)", _ROW) as emitter:
        used, names = set(_variables(tuple(statements))), dict[Var, Code]()
        columns = module.plan.program.relation(trigger.relation).columns
        for at, (parameter, column) in enumerate(zip(trigger.parameters, columns, strict=True)):
            if parameter in used:
                kind = unscaled(column.type)
                read = "load_double" if kind.kind is Kind.DOUBLE else "load"
                emitter.writer.line(f"{parameter.name} = {read}(row, {at})")
                names[parameter] = Code(parameter.name, in_word(kind))
        emitter.pivots = shared_pivots(module.plan, statements, trigger.parameters)
        writes(emitter, names, module.layout).statements(statements)
        emitter.writer.line("return 0")


def _parts(module: ModuleText, trigger: TriggerPlan, shared: dict[str, str]) -> list[str]:
    """Writes the functions that a trigger consists of, and names them in order; one: it is not divided.

    shared: the names of those that other triggers have, too, by what they are made of.
    """
    divided: list[Sequence[StatementPlan]] = [[]]
    for _, level in groupby(trigger.statements, key=lambda s: s.level):
        own = list(level)
        apart = list(_apart(module.plan, trigger, own))
        taken = {id(s) for together in apart for s in together}
        divided[-1] = [*divided[-1], *(s for s in own if id(s) not in taken)]
        divided += [*apart, []] if apart else []
    divided = [statements for statements in divided if statements]
    if len(divided) == 1:
        return [trigger_name(trigger)]
    names = []
    for statements in divided:
        same = f"{trigger.relation} {trigger.parameters} {statements}"
        if same not in shared:
            shared[same] = f"part_{len(shared)}"
            _statements_function(module, module.exported, shared[same], trigger, statements, Writes)
        names.append(shared[same])
    return names


def _apart(
    plan: Plan, trigger: TriggerPlan, level: Sequence[StatementPlan]
) -> Iterator[Sequence[StatementPlan]]:
    """Statements of a level to be written in functions of their own, where none writes what one reads."""
    written = {d.name for s in level for d in plan.directories_of(s.target)} | {s.target for s in level}
    written |= {m.name for m in plan.program.maps if m.count in written}
    if not written.isdisjoint(m for s in level for m in maps_in_pipelines((*s.pipelines, *s.erased))):
        return
    # Entries of doubles go with what counts them, so these are written in their order.
    counted = {name for m in plan.program.maps if m.count for name in (m.name, m.count)}
    by_store: dict[str, list[StatementPlan]] = {}
    for statement in level:
        walks = any(isinstance(s, Loop | Gather) for s in steps_of(statement.pipelines))
        if statement.writes_one(trigger.parameters) and not walks and statement.target not in counted:
            by_store.setdefault(plan.stores_of(statement.target)[0].name, []).append(statement)
    if sum(map(len, by_store.values())) <= 2 * _TOGETHER:
        return
    together: list[StatementPlan] = []
    for statements in by_store.values():
        together += statements
        if len(together) >= _TOGETHER:
            yield together
            together = []
    if together:
        yield together


def _variables(part: object) -> Iterator[Var]:
    """All variables of statements, wherever they stand."""
    if isinstance(part, Var):
        yield part
    elif isinstance(part, tuple):
        for own in part:
            yield from _variables(own)
    elif is_dataclass(part):
        for own in fields(part):
            yield from _variables(getattr(part, own.name))
