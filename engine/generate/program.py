"""The generated module of a program: one function for each trigger, and the rows of its views.

Of triggers the statements (writes.py), in functions that are compiled apart where they are many; of views the
function that computes a row, the one that lists them, and notes of what changed.
"""

import re
from collections.abc import Container, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter

from orderbook.core.recent import Recent
from orderbook.engine.generate.expressions import (
    STATE,
    Code,
    handle_slot,
    held_as,
    in_word,
    look_slot,
    number,
    truth,
)
from orderbook.engine.generate.module_text import (
    Emitter,
    ModuleText,
    Names,
    shared_pivots,
)
from orderbook.engine.generate.numbering import NumberedPlan
from orderbook.engine.generate.pipelines import Sum, sum_of
from orderbook.engine.generate.preconditions import ALWAYS, Precondition, preconditions_of
from orderbook.engine.generate.reads import lookup
from orderbook.engine.generate.shared_functions import again_functions, put_functions
from orderbook.engine.generate.state_layout import ACTIVE, COUNT, DIRTY, LIST, column_words, row_words
from orderbook.engine.generate.trigger_parts import (
    Owners,
    Turns,
    by_view,
    compiled_together,
    owners,
    when_called,
)
from orderbook.engine.generate.unchanged import Sources, following, sources
from orderbook.engine.generate.writes import Writes
from orderbook.engine.plan.steps import Lookup, ResultPlan, StatementPlan, TriggerPlan, UpdatePlan, variables
from orderbook.views.calculus import Var, scalar_variables
from orderbook.views.m3 import ResultColumn
from orderbook.views.types import Column, Kind, unscaled


def touch_functions(module: ModuleText, view: int) -> None:
    """`touch_<view>(S, keys..)` and `touch_all_<view>(S)`: notes for the next look at watched rows."""
    w, result = module.writer, module.plan.results[view].result
    keys = [f"k{i}" for i in range(len(result.keys))]
    with module.function(
        f"touch_{view}({', '.join(['S', *keys])})",
        "Notes for watches that a row may have changed.",
    ):
        for at in _looks(module, view):
            with w.block(f"if load(S, {at} + {ACTIVE}) != 0:"):
                w.line(f"store(S, {DIRTY}, 1)")
                # The changes of a message are most often of one row.
                w.line(f"last = last_key(S, {at} + {LIST}, {len(keys)})")
                others = [f"load(last, {i}) != {key}" for i, key in enumerate(keys)]
                new = f"({' or '.join(['last == 0', *others])})"
                with w.block(f"if {new} and load(S, {at} + {COUNT}) >= 0:"):
                    w.line(f"place = push_key(S, {at} + {LIST}, {len(keys)})")
                    for i, key in enumerate(keys):
                        w.line(f"store(place, {i}, {key})")
    with module.function(f"touch_all_{view}(S)", "Notes for watches that any row may have changed."):
        for at in _looks(module, view):
            with w.block(f"if load(S, {at} + {ACTIVE}) != 0:"):
                w.line(f"store(S, {DIRTY}, 1)")
                w.line(f"store(S, {at} + {COUNT}, -1)")


def _looks(module: ModuleText, view: int) -> list[str]:
    """Where the looks at a view lie in the state."""
    return [look_slot(view, per_message) for per_message in (False, True)]


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
        _row(emitter, result, keys)


def _row(emitter: Emitter, result: ResultPlan, keys: Sequence[str]) -> None:
    """Writes the row of the words of keys to `out`, and returns how often it stands."""
    w, names = emitter.writer, key_names(emitter, result, keys)
    count = _count(emitter, result, names)
    w.line(f"store(out, 0, {count})")
    if count != "1":
        with w.block(f"if {count} == 0:"):
            w.line("return 0")
    for variable, pipelines in result.lets:
        names[variable] = sum_of(emitter, Sum(pipelines, result.types[variable], result.types), names)
    at = 1
    for column in result.result.columns:
        at = row_column(emitter, column, names, at)
    w.line(f"return {count}")


# What a row reads of the state beside the entry that it stands for.
_ELSEWHERE = re.compile(r"\b(handle_[md]\d+|look_\d+_[01]|text_value|matches|python_\d+|cut\d+)\b")


def entry_rows_module(plan: NumberedPlan, view: int) -> str | None:
    """The source of `row_at(S, entry, out)`: the row that an entry, wherever it lies, stands for.

    None where rows are not made of the entries of one hashed store, and constants, alone.
    """
    module, result = ModuleText(plan), plan.results[view]
    held = None if result.result.multiplicity is None else plan.entries_of(result.result.multiplicity)
    if held is None or held.ordered is not None or not held.key_types:
        return None
    w = module.writer
    with module.function("row_at(S, entry, out)", "Writes a row to `out`; how often it stands.") as emitter:
        keys = [f"k{i}" for i in range(len(result.result.keys))]
        for i, key in enumerate(keys):
            w.line(f"{key} = {held.name}_key_{i}(entry)")
        # It is not looked for: here it is.
        w.remember(f"load({STATE}, {handle_slot(held.name)})", "0", "")
        types = zip(result.result.keys, held.key_types, strict=True)
        names = key_names(emitter, result, keys)
        words = [emitter.key(key.variable, kind, names) for key, kind in types]
        w.remember(emitter.call(held, "find", *words), "entry", held.name)
        _row(emitter, result, keys)
    return None if _ELSEWHERE.search(w.text()) else module.text(stores=[held])


def key_names(emitter: Emitter, result: ResultPlan, words: Sequence[str]) -> Names:
    """What the keys of a view's row hold, by their words."""
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


def row_column(emitter: Emitter, column: ResultColumn, names: Names, at: int) -> int:
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
        w.line(f"h = load(S, {handle_slot(held.name)})")
        w.line(f"entry = {held.name}_first(h)")
        with w.block("while entry != 0 and rows < limit:"):
            for i in range(count):
                w.line(f"store(out, {i}, {held.name}_key_{i}(entry))")
            with w.block(f"if row_{view}(S, out, out + {8 * count}) != 0:"):
                w.line("rows += 1")
                w.line(f"out += {8 * (count + row_words(result))}")
            w.line(f"entry = {held.name}_next_entry(h, entry)")
        w.line("return rows")


# Statements of a trigger that is compiled into every loop that calls it: a call takes 3 ns, and to compile
# the trigger again takes a second for every twenty of them.
_INLINED = 8
_ROWS = "Applies a row, its columns at address `row`; of an update it goes, and that at `new` comes."


def program_module(plan: NumberedPlan, writes: type[Writes] = Writes) -> str:
    """The source of a program's module.

    `writes` writes the statements of triggers: Writes, or MeasuredWrites for a module that measures.
    """
    module = ModuleText(plan)
    for view in range(len(plan.results)):
        touch_functions(module, view)
    if plan.initial:
        with module.function("initialise(S)", "What maps hold before any event.") as emitter:
            Writes(emitter, {}).statements(plan.initial)
    if writes is Writes:
        put_functions(module)
        again_functions(module)
    parts = _Parts(module, writes)
    for trigger in plan.triggers:
        parts.trigger(trigger)
    for update in plan.updates if writes is Writes else ():
        parts.update(update)
    if is_one_function(plan):
        _apply_function(module)
    for view in range(len(plan.results)):
        row_function(module, view)
        list_function(module, view)
    return module.text(writes.imports)


# Triggers of more than two relations, in a program of one view, are compiled as one function, with what their
# stores share.
_APART = 4


def is_one_function(plan: NumberedPlan) -> bool:
    """Whether triggers and updates are called by `apply`, rather than each by its own name."""
    return len(plan.results) == 1 and len(plan.triggers) > _APART


def trigger_functions(plan: NumberedPlan) -> Sequence[str]:
    """What a driver has to import to call triggers and updates."""
    return ["apply"] if is_one_function(plan) else _trigger_names(plan)


def trigger_call(plan: NumberedPlan, name: str, *rows: str) -> str:
    """The call of a trigger or update, of rows at addresses."""
    if not is_one_function(plan):
        return f"{name}({', '.join(('S', *rows))})"
    row, new = rows if len(rows) == 2 else (rows[0], "0")
    return f"apply(S, {_trigger_names(plan).index(name)}, {row}, {new})"


def _trigger_names(plan: NumberedPlan) -> list[str]:
    return [*map(trigger_name, plan.triggers), *map(update_name, plan.updates)]


def _apply_function(module: ModuleText) -> None:
    """`apply(S, which, row, new)`: the trigger or update of a number."""
    with module.exported("apply(S, which, row, new)", _ROWS) as emitter:
        w, word = emitter.writer, "if"
        for number, name in enumerate(_trigger_names(module.plan)):
            with w.block(f"{word} which == {number}:"):
                w.line(f"{name}(S, row, new)" if name.startswith("update") else f"{name}(S, row)")
            word = "elif"
        w.line("return 0")


# The parameters of a function that are addresses of rows, with those of the plan that their columns are.
Rows = Mapping[str, Sequence[Var]]


@dataclass(slots=True)
class _Parts:
    """Writes the functions of triggers and updates: one for each, or one that calls others."""

    module: ModuleText
    writes: type[Writes]
    _owners: Owners = field(init=False)
    _follows: Mapping[str, Sources] = field(init=False)
    # The names of parts, by what they are made of: an insert and a delete share some.
    _names: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        measured, plan = self.writes is not Writes, self.module.plan
        self._owners = {} if measured else owners(plan)
        self._follows = {} if measured else following(plan)

    def trigger(self, trigger: TriggerPlan) -> None:
        """A function of one row."""
        plan, rows, turns = self.module.plan, {"row": trigger.parameters}, [trigger.statements]
        parts: Sequence[Turns] = [turns]
        preconditions: Mapping[int, Precondition] = {}
        if self.writes is Writes:
            preconditions = preconditions_of(plan, trigger.statements, trigger.parameters, self._follows)
            parts = [
                [together]
                for (own,) in by_view(plan, turns, self._owners, preconditions)
                for together in compiled_together(plan, own, trigger.parameters)
            ]
        self._function(trigger_name(trigger), trigger.relation, rows, turns, parts, preconditions)

    def update(self, update: UpdatePlan) -> None:
        """A function of two rows, the old and the new one."""
        parts = by_view(self.module.plan, update.parts, self._owners, {})
        rows = {"row": update.old, "new": update.new}
        self._function(update_name(update), update.relation, rows, update.parts, parts, {})

    def _function(
        self,
        name: str,
        relation: str,
        rows: Rows,
        turns: Turns,
        parts: Sequence[Turns],
        preconditions: Mapping[int, Precondition],
    ) -> None:
        """A function of rows at addresses, which calls the functions of its parts where they are several.

        What has a precondition is a part by itself, called where that holds.
        """
        needed = when_called(parts, preconditions)
        inlined = sum(map(len, turns)) <= _INLINED or is_one_function(self.module.plan)
        if len(parts) < 2 and (inlined or needed == [ALWAYS]):
            self._written(name, relation, rows, turns, turns, inlined)
            return
        called = [self._part(relation, rows, turns, part) for part in parts]
        columns = self.module.plan.program.relation(relation).columns
        written = self.module.function if is_one_function(self.module.plan) else self.module.exported
        with written(_head(name, rows), _ROWS) as emitter:
            names: dict[Var, Code] = {}
            conditions = (c for precondition in needed for together in precondition for c in together)
            used = {v for condition in conditions for v in scalar_variables(condition)}
            for row, parameters in rows.items():
                _read_columns(emitter, row, list(zip(parameters, columns, strict=True)), used, names)
            for precondition, together in groupby(zip(needed, called, strict=True), key=itemgetter(0)):
                with ExitStack() as block:
                    if precondition != ALWAYS:
                        block.enter_context(
                            emitter.writer.block(f"if {_holds(emitter, precondition, names)}:")
                        )
                    for _, part in together:
                        emitter.writer.line(_head(part, rows))
            emitter.writer.line("return 0")

    def _part(self, relation: str, rows: Rows, turns: Turns, part: Turns) -> str:
        made_of = f"{relation} {rows} {[[_said(s) for s in turn] for turn in part]}"
        if made_of not in self._names:
            name = self._names[made_of] = f"part_{len(self._names)}"
            self._written(name, relation, rows, turns, part, is_one_function(self.module.plan))
        return self._names[made_of]

    def _written(
        self, name: str, relation: str, rows: Rows, turns: Turns, part: Turns, inlined: bool
    ) -> None:
        """The function of a part; of its maps those that follow from others know what each turn writes."""
        columns = self.module.plan.program.relation(relation).columns
        follows = [self._following(turn, statements) for turn, statements in zip(turns, part, strict=True)]
        head = _head(name, rows)

        def write() -> None:
            with (self.module.function if inlined else self.module.exported)(head, _ROWS) as emitter:
                self._body(emitter, columns, rows, part, follows)

        if self.writes is not Writes:
            write()
            return
        said = f"{head} {inlined} {columns} {rows} {follows} {bool(self._follows)} {list(map(len, part))}"
        said += f" {[self.module.again.get(id(s), '') for statements in part for s in statements]}"
        self.module.remembered(said, [s for statements in part for s in statements], write)

    def _following(self, turn: Sequence[StatementPlan], part: Sequence[StatementPlan]) -> dict[str, Sources]:
        """What maps of a part follow from that its turn writes; nothing where other parts write that, too."""
        own, places = {s.target for s in part}, set(map(id, part))
        shared = own & {s.target for s in turn if id(s) not in places}
        found = {n: f for n, f in sources(turn, self._follows).items() if n in own}
        return {n: f if shared.isdisjoint(f) else {} for n, f in found.items()}

    def _body(
        self,
        emitter: Emitter,
        columns: Sequence[Column],
        rows: Rows,
        part: Turns,
        follows: Sequence[Mapping[str, Sources]],
    ) -> None:
        """The statements of a part, turn after turn; they read the columns that they use."""
        names: dict[Var, Code] = {}
        used = set(variables(tuple(map(tuple, part))))
        for row, parameters in rows.items():
            _read_columns(emitter, row, list(zip(parameters, columns, strict=True)), used, names)
        event = [parameter for parameters in rows.values() for parameter in parameters]
        for statements, own in zip(part, follows, strict=True):
            emitter.pivots = shared_pivots(emitter.plan, statements, event)
            emitter.again = self.module.again
            self.writes(emitter, names, own, bool(self._follows)).statements(statements)
        emitter.writer.line("return 0")


def _holds(emitter: Emitter, precondition: Precondition, names: Names) -> str:
    """The condition under which a part is called; what needs no multiplication comes first."""
    sets = []
    for conditions in sorted(precondition, key=repr):
        texts = {truth(emitter.scalar(c, names)) for c in conditions}
        sets.append(" and ".join(sorted(texts, key=lambda text: ("wide" in text, len(text), text))))
    return " or ".join(f"({text})" for text in sets) or "False"


# What statements are, in full.
_SAID: Recent[int, tuple[StatementPlan, str]] = Recent(1 << 13)


def _said(statement: StatementPlan) -> str:
    known = _SAID.get(id(statement))
    if known is None:
        known = statement, repr(statement)
        _SAID.put(id(statement), known)
    return known[1]


def _head(name: str, rows: Rows) -> str:
    return f"{name}({', '.join(['S', *rows])})"


def _read_columns(
    emitter: Emitter,
    row: str,
    columns: Sequence[tuple[Var, Column]],
    used: Container[Var],
    names: dict[Var, Code],
) -> None:
    """Reads those columns of a row that are used, unless they have a name."""
    for at, (parameter, column) in enumerate(columns):
        if parameter in used and parameter not in names:
            kind = unscaled(column.type)
            read = "load_double" if kind.kind is Kind.DOUBLE else "load"
            emitter.writer.line(f"{parameter.name} = {read}({row}, {at})")
            names[parameter] = Code(parameter.name, in_word(kind))


def trigger_name(trigger: TriggerPlan) -> str:
    return f"{'insert' if trigger.insert else 'delete'}_{trigger.relation}"


def update_name(update: UpdatePlan) -> str:
    return f"update_{update.relation}"
