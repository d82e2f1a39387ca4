"""Joins M3 written by hand to the program compiled from SQL."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from views.compiler.calculus import (
    MapRef,
    Var,
    maps_read,
    product,
    substitute,
    substitute_scalar,
    variable_set,
)
from views.compiler.m3 import Program, Result, Statement, Trigger
from views.compiler.maintenance.ordering import named, ordered_triggers
from views.compiler.rewriting.scoping import apart_from
from views.compiler.translation.translate import CalculusView, ViewColumn, ViewKey

from .m3_check import M3Check
from .m3_parse import Places, parse_placed

M3_TEXT = re.compile(r"(\s|--[^\n]*\n)*(STREAM|TABLE|MAP|INITIAL|ON|VIEW)\b")


def is_m3(file: str | None, text: str) -> bool:
    """Whether a text is M3: its file ends in .m3, or it begins as only M3 does."""
    return (file is not None and file.endswith(".m3")) or M3_TEXT.match(text) is not None


def maps_by_hand(texts: Iterable[tuple[str | None, str]]) -> frozenset[str]:
    """Names of the maps that the M3 among the texts declares."""
    parsed = [parse_placed(text, file)[0] for file, text in texts if is_m3(file, text)]
    return frozenset(m.name for program in parsed for m in program.maps)


def linked(program: Program, texts: Iterable[tuple[str | None, str]]) -> Program:
    """The program with the maps, triggers and views of M3 texts.

    A text may read every map declared before it and change its own. Raises SqlError with line and
    column for names that collide or are unknown, wrong numbers of keys, types that differ, and maps
    that depend on each other in a cycle.
    """
    for file, text in texts:
        own, places = parse_placed(text, file)
        _check(program, own, places)
        program = named(_joined(program, own))
    return program


def view_of(result: Result) -> CalculusView:
    """A view that M3 declares, as the calculus has it: over maps."""
    keys = tuple(k.variable for k in result.keys)
    rows = None if result.multiplicity is None else product(MapRef(result.multiplicity, keys))
    return CalculusView(
        result.name,
        tuple(ViewKey(k.variable, k.name, k.type) for k in result.keys),
        rows,
        result.grouped,
        result.lets,
        tuple(ViewColumn(c.name, c.type, c.scalar, c.valid) for c in result.columns),
    )


def _check(program: Program, own: Program, places: Places) -> None:
    check = M3Check(program, places)
    for relation in own.relations:
        check.relation(relation)
    for declaration in own.maps:
        check.map(declaration)
    for statement in own.initial:
        check.statement(statement, {})
    for trigger in own.triggers:
        check.trigger(trigger)
    for result in own.results:
        check.result(result)
    _check_acyclic([s for t in own.triggers for s in t.statements], places)


def _check_acyclic(statements: Sequence[Statement], places: Places) -> None:
    """Refuses maps whose maintenance reads each other; a map may read itself."""
    reads: dict[str, dict[str, Statement]] = {}
    for statement in statements:
        for name in sorted(maps_read(statement.value) - {statement.target}):
            reads.setdefault(statement.target, {}).setdefault(name, statement)
    done: set[str] = set()

    def follow(name: str, path: tuple[str, ...]) -> None:
        if name in path:
            cycle = (*path[path.index(name) :], name)
            raise places.error(
                f"maps depend on each other in a cycle: {' -> '.join(cycle)}; "
                "compute one of them from the event or from other maps",
                reads[cycle[0]][cycle[1]],
            )
        if name not in done:
            for read in reads.get(name, ()):
                follow(read, (*path, name))
            done.add(name)

    for name in list(reads):
        follow(name, ())


def _joined(program: Program, own: Program) -> Program:
    maps = (*program.maps, *own.maps)
    triggers = {(t.relation, t.insert): t for t in program.triggers}
    for trigger in own.triggers:
        place = (trigger.relation, trigger.insert)
        before = triggers.get(place, replace(trigger, statements=()))
        statements = tuple(_renamed(s, trigger, before) for s in trigger.statements)
        triggers[place] = replace(before, statements=(*before.statements, *statements))
    ordered = ordered_triggers(triggers.values(), {m.name: m.count for m in maps})
    initial = (*program.initial, *own.initial)
    return Program(program.relations, maps, initial, ordered, (*program.results, *own.results))


def _renamed(statement: Statement, trigger: Trigger, target: Trigger) -> Statement:
    """The statement with the parameters' names of another trigger of the same event."""
    names: Mapping[Var, Var] = dict(zip(trigger.parameters, target.parameters, strict=True))
    local = variable_set(statement.value) - set(names)
    names = {**names, **apart_from(local, set(target.parameters))}
    return replace(
        statement,
        keys=tuple(substitute_scalar(k, names) for k in statement.keys),
        value=substitute(statement.value, names),
    )
