"""The generated module of a program: one function for each trigger, and the rows of its views."""

import keyword
from collections.abc import Mapping, Sequence
from itertools import groupby

from engine.plan.steps import Plan, StatementPlan, Store, TriggerPlan
from views.compiler.calculus import Scalar, Var, scalar_variables, variable_set
from views.compiler.m3 import Statement
from views.compiler.m3_print import statement_text
from views.compiler.types import Kind, unscaled

from .layout import ACTIVE, Layout
from .module import ModuleText
from .pipelines import Emitter
from .rows import list_function, row_function, row_keys, touch_functions
from .scalars import ZERO, Code, held_as, without_boolean

RESERVED = ("S", "load", "store", "row", "out", "wide", "min", "max", "float", "int")


def program_module(plan: Plan, texts: dict[str, int]) -> str:
    """The source of a program's module; `texts` collects its text constants, numbered."""
    module = ModuleText(plan, texts)
    for view in range(len(plan.results)):
        touch_functions(module, view)
    if plan.initial:
        with module.function("initialise(S)", "What maps hold before any event.") as emitter:
            _Body(emitter, {}, module.layout).statements(plan.initial)
    for trigger in plan.triggers:
        _trigger_function(module, trigger)
    for view in range(len(plan.results)):
        row_function(module, view, ())
        list_function(module, view)
    return module.text()


def trigger_name(trigger: TriggerPlan) -> str:
    return f"{'insert' if trigger.insert else 'delete'}_{trigger.relation}"


def _trigger_function(module: ModuleText, trigger: TriggerPlan) -> None:
    program = module.plan.program
    m3 = next(t for t in program.triggers if (t.relation, t.insert) == (trigger.relation, trigger.insert))
    text = [f"One row of {trigger.relation}, its columns at address `row`.", ""]
    text += ["    " + statement_text(s).replace("\\", "\\\\") for s in m3.statements]
    used = {v for s in m3.statements for v in _variables(s)}
    with module.function(f"{trigger_name(trigger)}(S, row)", "\n".join([*text, "    "])) as emitter:
        names: dict[Var, Code] = {}
        columns = program.relation(trigger.relation).columns
        for at, (parameter, column) in enumerate(zip(trigger.parameters, columns, strict=True)):
            if parameter in used:
                name, kind = safe(parameter.name), unscaled(column.type)
                read = "load_double" if kind.kind is Kind.DOUBLE else "load"
                emitter.writer.line(f"{name} = {read}(row, {at})")
                names[parameter] = Code(name, without_boolean(kind))
        _Body(emitter, names, module.layout).statements(trigger.statements)


def safe(name: str) -> str:
    """A variable's name that is neither a keyword nor a name of the module."""
    return f"{name}_" if keyword.iskeyword(name) or name in RESERVED else name


def _variables(statement: Statement) -> set[Var]:
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
            by_store.setdefault(self.emitter.plan.stores_of(statement.target)[0].name, []).append(
                (statement, code)
            )
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

    def _store_write(
        self, store: Store, function: str, keys: Sequence[str], codes: Mapping[str, Code]
    ) -> None:
        order = _ordered(keys, store)
        values = [
            held_as(codes[m], c) if m in codes else ZERO[c]
            for m, c in zip(store.maps, store.layout, strict=False)
        ]
        if len(store.layout) > len(store.maps):
            self._double_write(store, function, order, values)
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
