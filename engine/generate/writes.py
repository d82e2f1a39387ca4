"""Text of the statements of a trigger: values read before, loops, writes, then what reads the state after."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import ClassVar

from engine.plan.steps import Directory, StatementPlan, Store, maps_read
from views.compiler.calculus import Scalar, Var

from .emitter import Emitter, Names, empty, in_order
from .layout import ACTIVE, Layout
from .pipelines import Sum, Thread, run, sums_of, threads
from .rows import row_keys
from .typed_code import ZERO, Code, finite, held_as


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
            if len(group) > 1:
                # Values are fixed before the first of them is written.
                group = [(s, Code(w.once("value", finite(c).text), c.type)) for s, c in group]
            codes = {s.target: c for s, c in group}
            self._entry_write(first.target, "assign" if first.op == ":=" else "add", keys, codes)
            for statement, _ in group:
                self._touch(statement.target, keys, in_loop=False)
        if values:
            w.forget()

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
        if directories:
            w.line(f"{before} = {size}")
        for store in stores:
            self._store_write(store, function, keys, codes)
        self._drop_uncounted(target, keys)
        if directories:
            with w.block(f"if {size} != {before}:"):
                for directory in directories:
                    self._directory_write(directory, keys, f"{size} - {before}")

    def _drop_uncounted(self, count: str, keys: Sequence[str]) -> None:
        """Drops the entries of doubles whose last row is gone: a change of 0.0 does not reach them."""
        counted = [m.name for m in self.plan.program.maps if m.count == count]
        stores = dict.fromkeys(s for name in counted for s in self.plan.stores_of(name))
        alone = [s for s in stores if len(s.layout) > len(s.maps)]
        if not alone:
            return
        counting = self.plan.stores_of(count)[0]
        held = self.emitter.call(counting, "get", *in_order(keys, counting))
        with self.emitter.writer.block(f"if {held}[{counting.maps.index(count)}] == 0:"):
            for store in alone:
                words = in_order(keys, store)
                self.emitter.writer.line(self.emitter.call(store, "assign", *words, *_zeros(store)))

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
        else:
            words = in_order(keys, store)
            self.emitter.writer.line(self.emitter.call(store, function, *words, *values))

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
        """Runs of statements none of which reads what another of them writes."""
        together: list[StatementPlan] = []
        for statement in statements:
            several = (*together, statement)
            written = {s.target for s in several}
            written |= {d.name for name in written for d in self.plan.directories_of(name)}
            read = {m for s in several for m in maps_read((*s.pipelines, *s.erased))}
            if together and not written.isdisjoint(read):
                yield together
                together = []
            together.append(statement)
        if together:
            yield together


def _zeros(store: Store) -> Iterable[str]:
    """The values of an entry that goes."""
    return [ZERO[column] for column in store.layout]
