"""The statements of one trigger as text: what is written, in which order, and what need not be.

Level by level: values of what the event alone gives the keys of, loops, writes; then notes for watches. An
entry that was looked up is written where it is. What is added to one entry twice is added once, and what
follows from maps that the event has not changed is left as it is (unchanged.py).
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from functools import partial
from itertools import groupby
from typing import ClassVar

from orderbook.engine.generate.expressions import ZERO, Code, finite, held_as, look_slot
from orderbook.engine.generate.module_text import (
    Emitter,
    Names,
    Writer,
    empty,
    in_order,
)
from orderbook.engine.generate.pipelines import Sum, Thread, run, sums_of, threads
from orderbook.engine.generate.reads import entry_code, entry_value
from orderbook.engine.generate.state_layout import ACTIVE
from orderbook.engine.generate.unchanged import (
    ALWAYS,
    NEVER,
    Condition,
    Sources,
    deferrable,
    either,
)
from orderbook.engine.plan.steps import (
    Directory,
    StatementPlan,
    Store,
    maps_in_pipelines,
)
from orderbook.engine.plan.stores import layout_of
from orderbook.views.calculus import Scalar, Var


class Writes:
    """The statements of one trigger; notes rows of watched views that they may change.

    `imports` are lines that a module with such statements needs.
    """

    imports: ClassVar[str] = ""
    # Whether what is written of a map is added to its projections, too, rather than by their own statements.
    projects: ClassVar[bool] = True

    def __init__(
        self,
        emitter: Emitter,
        names: Mapping[Var, Code],
        follows: Mapping[str, Sources] | None = None,
        defers: bool = False,
    ):
        """follows: of each map that follows from others, those that the event writes.

        defers: whether what is added to one entry twice is added once.
        """
        self.emitter, self.names = emitter, dict(names)
        self.plan = emitter.plan
        self.touched: dict[tuple[int, tuple[str, ...] | None], Condition] = {}
        self._follows, self._defers = follows or {}, defers
        self._tested = {read for reads in self._follows.values() for read, zero in reads.items() if zero}
        # When what is written of a map is not what was there, and when one of both is 0.
        self._changed: dict[str, Condition] = {}
        self._crossed: dict[str, Condition] = {}
        self._deferred: dict[str, Code] = {}
        # Doubles that are written after their counts, and dropped then.
        self._settled: set[str] = set()

    def statements(self, statements: Sequence[StatementPlan]) -> None:
        """Writes statements, level by level, and then what they touch."""
        deferred = {} if not self._defers else deferrable(self.plan, statements, self.names)
        under: Condition = ALWAYS
        with ExitStack() as block:
            for number, level in groupby(statements, key=lambda s: s.level):
                own = [s for s in level if not self.plan.is_projected(s.target)]
                several = [s for s in own if not s.writes_one(self.names)]
                single = [s for s in own if s.writes_one(self.names)]
                for condition, some in self._by_condition(single):
                    if not some and not several:
                        continue
                    if condition != under:
                        block.close()
                        under = condition
                        if condition is not ALWAYS:
                            block.enter_context(self.emitter.writer.block(f"if {_holds(condition)}:"))
                    wanted = [Sum(s.pipelines, self.emitter.map_type(s.target), s.types) for s in some]
                    values: Sequence[Code | None] = sums_of(self.emitter, wanted, self.names)
                    if condition is ALWAYS:
                        values = self._with_loops(some, values, several)
                    here = [
                        (statement, self._added_up(statement, code, deferred.get(statement.target) == number))
                        for statement, code in zip(some, values, strict=True)
                        if code is not None
                    ]
                    self._write([(s, c) for s, c in here if c is not None], condition)
        for (view, keys), condition in self.touched.items():
            self._emit_touch(view, keys, condition)

    def _with_loops(
        self, single: Sequence[StatementPlan], values: Sequence[Code | None], several: Sequence[StatementPlan]
    ) -> list[Code | None]:
        """Writes the statements of a level that loop; the values of others that are still to be written.

        What is added to counts of doubles comes before what loops take away: the count of a row that stays
        would be 0 in between, and its sum be dropped.
        """
        again = self.emitter.again
        left: list[Code | None] = list(values)
        for together in (
            *self._fusable([s for s in several if id(s) not in again]),
            *([s] for s in several if id(s) in again),
        ):
            written = {s.target for s in together}
            for place, (statement, code) in enumerate(zip(single, left, strict=True)):
                counts = statement.rises and self.plan.counted_by(statement.target)
                if counts and code is not None and statement.op == "+=" and statement.target in written:
                    self._write([(statement, code)])
                    left[place] = None
            if id(together[0]) in again:
                self._call_again(together[0])
            else:
                self._loop_writes(together)
        return left

    def _call_again(self, statement: StatementPlan) -> None:
        """Calls the function of a statement that is written once for all triggers."""
        self.emitter.writer.line(f"{self.emitter.again[id(statement)]}(S)")
        self.emitter.writer.forget()
        self._changed[statement.target] = ALWAYS
        self._crossed.pop(statement.target, None)

    def _by_condition(
        self, single: Sequence[StatementPlan]
    ) -> Iterable[tuple[Condition, list[StatementPlan]]]:
        """Statements of a level by when there is anything for them to write; what is always written first."""
        by_entry: dict[object, Condition] = {}
        for statement in single:
            entry = self.plan.stores_of(statement.target)[0].name, statement.keys
            by_entry[entry] = either(by_entry.get(entry, NEVER), self._condition(statement))
        found: dict[Condition, list[StatementPlan]] = {ALWAYS: []}
        for statement in single:
            entry = self.plan.stores_of(statement.target)[0].name, statement.keys
            found.setdefault(by_entry[entry], []).append(statement)
        return found.items()

    def _condition(self, statement: StatementPlan) -> Condition:
        reads = self._follows.get(statement.target)
        if not reads:
            return ALWAYS
        found: Condition = NEVER
        for read, zero in reads.items():
            known = self._crossed if zero and read in self._crossed else self._changed
            found = either(found, known.get(read, ALWAYS))
        return found

    def _added_up(self, statement: StatementPlan, code: Code, later: bool) -> Code | None:
        """What is to be added, with what was to be added before; nothing if that is to be done later."""
        w, target = self.emitter.writer, statement.target
        if later:
            self._deferred[target] = code if _is_name(code) else _named(w, code)
            return None
        if target not in self._deferred:
            return code
        layout, total = layout_of(self.emitter.map_type(target)), w.fresh("sum")
        w.line(f"{total} = {held_as(self._deferred.pop(target), layout)} + {held_as(code, layout)}")
        return Code(total, code.type)

    def _write(self, values: Sequence[tuple[StatementPlan, Code]], condition: Condition = ALWAYS) -> None:
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
            function = "assign" if first.op == ":=" else "add"
            with ExitStack() as block:
                crossed = self._crossing(block, function, [s.target for s, _ in group], keys, codes)
                self._put_or_write(first.target, function, keys, codes)
                for variable, text in crossed.items():
                    w.line(f"{variable} = {text}")
            for statement, code in group:
                target = statement.target
                own = condition if function == "assign" else _unless_zero(code, codes[target])
                self._changed[target] = either(self._changed.get(target, NEVER), own)
                self._touch(target, keys, own)
                if function == "add":
                    self._touch_projections(target, keys, own)

    def _crossing(
        self,
        block: ExitStack,
        function: str,
        targets: Sequence[str],
        keys: Sequence[str],
        codes: Mapping[str, Code],
    ) -> dict[str, str]:
        """Variables of `_crossed`, for maps that others follow by being 0 or not, and what they become.

        That is known in `block`, where the entries are to be written.
        """
        w, found = self.emitter.writer, dict[str, str]()
        for target in targets:
            store = self.emitter.hashed(target)
            if target not in self._tested or target in self._changed or function != "add" or store is None:
                self._crossed.pop(target, None)
                continue
            column = store.maps.index(target)
            if len(store.layout) != len(store.maps) or store.layout[column] not in "iw":
                continue
            variable = w.fresh("crossed")
            if len(targets) == 1 and _is_sum(codes[target]):
                w.line(f"{variable} = 0")
                block.enter_context(w.block(f"if {codes[target].text} != 0:"))
            before = entry_code(self.emitter, store, keys, column)
            after = f"{before} + {held_as(codes[target], store.layout[column])}"
            found[variable] = f"1 if ({before} != 0) != ({after} != 0) else 0"
            self._crossed[target] = frozenset({variable})
        return found

    def _keys(self, target: str, keys: Sequence[Scalar], names: Names) -> list[str]:
        types = self.plan.map(target).key_types
        return [self.emitter.new_key(k, t, names) for k, t in zip(keys, types, strict=True)]

    def _put_or_write(
        self,
        target: str,
        function: str,
        keys: Sequence[str],
        codes: Mapping[str, Code],
        in_loop: bool = False,
    ) -> None:
        """Writes one entry, in a function of its own where all triggers share one; see `entry_write`."""
        if self.projects and function == "add" and self.plan.is_put(target):
            self._put(target, keys, codes[target])
        else:
            self.entry_write(target, function, keys, codes, in_loop)

    def _put(self, target: str, keys: Sequence[str], code: Code) -> None:
        w, layout = self.emitter.writer, layout_of(self.emitter.map_type(target))
        with w.block(f"if {code.text} != 0:") if _is_sum(code) else nullcontext():
            value = held_as(code, layout)
            if layout == "i":
                words = [value]
            else:
                name = w.once("value", value)
                words = [f"low_word({name})", f"high_word({name})"]
            w.line(f"put_{target}({', '.join(['S', *keys, *words])})")
        names = [target, *(p.name for p in self.plan.projections_of(target))]
        self._changed |= dict.fromkeys(names[1:], ALWAYS)
        names += [d.name for name in names for d in self.plan.directories_of(name)]
        w.forget({s.name for name in names for s in self.plan.stores_of(name)})

    def entry_write(
        self,
        target: str,
        function: str,
        keys: Sequence[str],
        codes: Mapping[str, Code],
        in_loop: bool = False,
    ) -> None:
        """Writes one entry in every store that holds it, counts it in the directories, adds to projections.

        In a loop, where other entries are written in turn, it is looked up each time.
        """
        w, emitter = self.emitter.writer, self.emitter
        stores, directories = self.plan.stores_of(target), self.plan.directories_of(target)
        size = emitter.call(stores[0], "size")
        before = w.fresh("size")
        known = self._written(stores, function, keys, codes)
        entries = {} if in_loop else self._looked_up(stores, keys)
        if directories:
            w.line(f"{before} = {size}")
        for store in stores:
            _, entry = entries.get(store.name, ("", None))
            self._store_write(store, function, keys, codes, entry)
        self._drop_uncounted(target, keys)
        if directories:
            with w.block(f"if {size} != {before}:"):
                for directory in directories:
                    self._directory_write(directory, keys, f"{size} - {before}")
        changed = [*stores, *(s for d in directories for s in self.plan.stores_of(d.name))]
        changed += self._counted_by(target)
        w.forget({store.name for store in changed})
        if self.projects and function == "add":
            self._projected_writes(keys, codes, in_loop)
        for place, (name, value) in known.items():
            w.remember(place, value, name)
        for name, (find, entry) in entries.items():
            w.remember(find, entry, name)

    def _projected_writes(self, keys: Sequence[str], codes: Mapping[str, Code], in_loop: bool) -> None:
        """Adds to the maps that are sums of those written."""
        for name, code in codes.items():
            for projection in self.plan.projections_of(name):
                own = [keys[i] for i in projection.positions]
                self._put_or_write(projection.name, "add", own, {projection.name: code}, in_loop)
                self._changed[projection.name] = ALWAYS

    def _looked_up(self, stores: Sequence[Store], keys: Sequence[str]) -> dict[str, tuple[str, str]]:
        """By store what looks an entry up, and the variable that holds it, where that was done."""
        found = {}
        for store in stores:
            if keys and store.ordered is None and len(store.layout) == len(store.maps):
                find = self.emitter.call(store, "find", *keys)
                entry = self.emitter.writer.recall(find)
                if entry is not None:
                    found[store.name] = find, entry
        return found

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
        alone = [store for store in self._counted_by(count) if self._settled.isdisjoint(store.maps)]
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
        counted = self.plan.counted_by(count)
        stores = dict.fromkeys(s for name in counted for s in self.plan.stores_of(name))
        return [s for s in stores if len(s.layout) > len(s.maps)]

    def _directory_write(self, directory: Directory, keys: Sequence[str], change: str) -> None:
        words = [keys[p] for p in directory.positions]
        for store in self.plan.stores_of(directory.name):
            self.emitter.writer.line(self.emitter.call(store, "add", *in_order(words, store), change))

    def _store_write(
        self,
        store: Store,
        function: str,
        keys: Sequence[str],
        codes: Mapping[str, Code],
        entry: str | None,
    ) -> None:
        values = [
            held_as(finite(codes[m]), c) if m in codes else ZERO[c]
            for m, c in zip(store.maps, store.layout, strict=False)
        ]
        if len(store.layout) > len(store.maps):
            self._double_write(store, function, keys, values)
            return
        if entry is None:
            call = self.emitter.call(store, function, *in_order(keys, store), *values)
        else:
            call = f"{entry} = {self.emitter.call(store, f'{function}_at', entry, *keys, *values)}"
        given = [codes[name] for name in store.maps if name in codes]
        if function == "add" and all(map(_is_sum, given)):
            # What is counted by conditions is most often 0.
            changed = " or ".join(f"{code.text} != 0" for code in given)
            with self.emitter.writer.block(f"if {changed}:"):
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
        count = self.plan.map(store.maps[0]).count
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
        written = {s.target for s in statements}
        counts = {name: self.plan.map(name).count for name in written}
        # A count that rises after it has fallen may be 0 in between, when what it counts stays.
        rising = {s.target for s in statements if s.rises or len(s.pipelines) > 1}
        both = rising & {s.target for s in statements if not s.rises}
        self._settled = {name for name, count in counts.items() if count in both}
        for statement in statements:
            # Doubles are written where their count is not 0.
            count = counts[statement.target] or ""
            after = count if count in written else ""
            self._changed[statement.target] = ALWAYS
            self._crossed.pop(statement.target, None)
            if statement.erased:
                sink = partial(self._loop_write, statement)
                run(emitter, threads(statement.erased, self.names, statement.types, sink))
            elif statement.op == ":=":
                self._clear(statement.target)
            sink = partial(self._loop_write, statement)
            running += threads(
                statement.pipelines, self.names, statement.types, sink, statement.target, after
            )
        emitter.writer.forget()
        run(emitter, running)
        emitter.writer.forget()
        self._settled = set()

    def _clear(self, target: str) -> None:
        names = [target, *(d.name for d in self.plan.directories_of(target))]
        for store in (s for name in names for s in self.plan.stores_of(name)):
            empty(self.emitter, store)
        self._touch(target, None)

    def _loop_write(self, statement: StatementPlan, value: Code, names: Names) -> None:
        keys = self._keys(statement.target, statement.keys, names)
        self._put_or_write(statement.target, "add", keys, {statement.target: value}, in_loop=True)
        self._touch(statement.target, keys, in_loop=True)
        self._touch_projections(statement.target, keys, in_loop=True)

    def _touch_projections(
        self, name: str, keys: Sequence[str], condition: Condition = ALWAYS, in_loop: bool = False
    ) -> None:
        """Notes the same of the maps that are written with a map."""
        for projection in self.plan.projections_of(name) if self.projects else ():
            self._touch(projection.name, [keys[i] for i in projection.positions], condition, in_loop)

    def _touch(
        self,
        name: str,
        keys: Sequence[str] | None,
        condition: Condition = ALWAYS,
        in_loop: bool = False,
    ) -> None:
        """Notes that rows of the views that read this map may have changed, on a condition."""
        for view, order in self.plan.rows_of(name):
            own = None if keys is None or order is None else tuple(keys[i] for i in order)
            if in_loop and own is not None:
                self._emit_touch(view, own)
            else:
                known = self.touched.get((view, own), NEVER)
                self.touched[view, own] = either(known, condition)

    def _emit_touch(self, view: int, keys: tuple[str, ...] | None, condition: Condition = ALWAYS) -> None:
        w = self.emitter.writer
        arguments = f", {', '.join(keys)}" if keys else ""
        flags = " or ".join(f"load(S, {look_slot(view, m)} + {ACTIVE}) != 0" for m in (False, True))
        flags = flags if condition is ALWAYS else f"({flags}) and ({_holds(condition)})"
        with w.block(f"if {flags}:"):
            w.line(f"touch_all_{view}(S)" if keys is None else f"touch_{view}(S{arguments})")

    def _fusable(self, statements: Sequence[StatementPlan]) -> Iterator[list[StatementPlan]]:
        """Runs of statements none of which reads what another of them writes, or drops with its count."""
        together: list[StatementPlan] = []
        for statement in statements:
            several = (*together, statement)
            written = {s.target for s in several}
            written |= {name for count in written for name in self.plan.counted_by(count)}
            written |= {p.name for name in written for p in self.plan.projections_of(name)}
            written |= {d.name for name in written for d in self.plan.directories_of(name)}
            read = {m for s in several for m in maps_in_pipelines((*s.pipelines, *s.erased))}
            if together and not written.isdisjoint(read):
                yield together
                together = []
            together.append(statement)
        if together:
            yield together


def _holds(condition: Condition) -> str:
    return " or ".join(f"{variable} != 0" for variable in sorted(condition or ()))


def _unless_zero(value: Code, held: Code) -> Condition:
    """When adding a value, which the variable `held` holds, changes anything."""
    if (
        value.kind not in "iw"
        or re.fullmatch(r"\(?-?[1-9]\d*\)?", value.text)
        or not held.text.isidentifier()
    ):
        return ALWAYS
    return frozenset({held.text})


def _is_sum(code: Code) -> bool:
    return re.fullmatch(r"sum_\d+", code.text) is not None


def _is_name(code: Code) -> bool:
    return re.fullmatch(r"\w+", code.text) is not None


def _named(writer: Writer, code: Code) -> Code:
    return Code(writer.once("value", finite(code).text), code.type)


def _zeros(store: Store) -> Iterable[str]:
    """The values of an entry that goes."""
    return [ZERO[column] for column in store.layout]
