"""The generated module of a program: one function for each trigger, and the rows of its views.

Of triggers the statements (writes.py), in functions that are compiled apart where they are many; of views the
function that computes a row, the one that lists them, and notes of what changed.
"""

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import groupby

from orderbook.engine.generate.expressions import Code, held_as, in_word, number, truth
from orderbook.engine.generate.module_text import (
    Emitter,
    ModuleText,
    Names,
    shared_pivots,
)
from orderbook.engine.generate.numbering import NumberedPlan
from orderbook.engine.generate.pipelines import Sum, sum_of
from orderbook.engine.generate.reads import lookup
from orderbook.engine.generate.state_layout import ACTIVE, COUNT, DIRTY, LIST, column_words, row_words
from orderbook.engine.generate.unchanged import (
    Sources,
    following,
    sources,
)
from orderbook.engine.generate.writes import Writes
from orderbook.engine.plan.steps import (
    Gather,
    Lookup,
    Loop,
    Plan,
    ResultPlan,
    StatementPlan,
    TriggerPlan,
    UpdatePlan,
    maps_in_pipelines,
    steps_of,
    variables,
)
from orderbook.views.calculus import Var
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


# Statements of a trigger that is compiled into every loop that calls it: a call takes 3 ns, and to compile
# the trigger again takes a second for every twenty of them.
_INLINED = 8
# Statements that only look up and search are functions of their own, so many in each, where a trigger has
# more than twice as many: what is compiled together takes longer than its parts, and of a program that is
# edited only the parts that changed are compiled.
_TOGETHER = 6
_ROW = "Applies one row, its columns at address `row`."
_ROWS = "Takes the row at address `row` out, and puts the one at `new` in."


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
    follows = following(plan) if writes is Writes else {}
    for trigger in plan.triggers:
        parts = _parts(module, trigger, shared) if writes is Writes else []
        if len(parts) > 1:
            with module.exported(f"{trigger_name(trigger)}(S, row)", _ROW) as emitter:
                for name in parts:
                    emitter.writer.line(f"{name}(S, row)")
                emitter.writer.line("return 0")
        else:
            function = module.exported if len(trigger.statements) > _INLINED else module.function
            own = {name: sources(trigger, name, follows) for name in follows}
            _statements_function(
                module, function, trigger_name(trigger), trigger, trigger.statements, writes, own
            )
    for update in plan.updates if writes is Writes else ():
        _update_function(module, update, follows)
    for view in range(len(plan.results)):
        row_function(module, view)
        list_function(module, view)
    return module.text(writes.imports)


def _update_function(module: ModuleText, update: UpdatePlan, follows: Mapping[str, Sources]) -> None:
    """A function of two rows, the old and the new one."""
    count = sum(map(len, update.parts))
    function = module.exported if count > _INLINED else module.function
    with function(f"{update_name(update)}(S, row, new)", _ROWS) as emitter:
        names: dict[Var, Code] = {}
        columns = module.plan.program.relation(update.relation).columns
        used = set(variables(update.parts))
        for row, parameters in (("row", update.old), ("new", update.new)):
            _read_columns(emitter, row, list(zip(parameters, columns, strict=True)), used, names)
        for statements in update.parts:
            trigger = TriggerPlan(update.relation, True, (*update.old, *update.new), statements)
            own = {name: sources(trigger, name, follows) for name in follows}
            emitter.pivots = shared_pivots(module.plan, statements, trigger.parameters)
            Writes(emitter, names, module.layout, own).statements(statements)
        emitter.writer.line("return 0")


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


def _statements_function(
    module: ModuleText,
    function: Callable[[str, str], AbstractContextManager[Emitter]],
    name: str,
    trigger: TriggerPlan,
    statements: Sequence[StatementPlan],
    writes: type[Writes],
    follows: Mapping[str, Sources] | None = None,
) -> None:
    """A function of statements of a trigger; it reads the columns that they use."""
    with function(f"{name}(S, row)", _ROW) as emitter:
        names: dict[Var, Code] = {}
        columns = module.plan.program.relation(trigger.relation).columns
        called = list(zip(trigger.parameters, columns, strict=True))
        _read_columns(emitter, "row", called, set(variables(tuple(statements))), names)
        emitter.pivots = shared_pivots(module.plan, statements, trigger.parameters)
        writes(emitter, names, module.layout, follows).statements(statements)
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
