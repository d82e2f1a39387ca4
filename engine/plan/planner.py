"""From an M3 program to its physical plan: lowered statements, and the stores that their reads need.

Whole statements are lowered here: those that loop and read what they write see it as it was before.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from orderbook.engine.plan.lower import Derived, Lowering
from orderbook.engine.plan.statistics import Statistics
from orderbook.engine.plan.steps import (
    Gather,
    Loop,
    Pipeline,
    Plan,
    ResultPlan,
    StatementPlan,
    TriggerPlan,
    UpdatePlan,
)
from orderbook.engine.plan.stores import Access, fewer_apart, levels, sharing, stores_for
from orderbook.engine.plan.updates import Update, updates
from orderbook.views.calculus import Apply, Scalar, Var, maps_read, scalar_variables
from orderbook.views.intervals import Types
from orderbook.views.m3 import MapDeclaration, Program, Result, Statement
from orderbook.views.types import Type, unscaled


def statement_plan(
    derived: Derived, statement: Statement, event: Mapping[Var, Type], level: int
) -> StatementPlan:
    """The plan of a statement of a trigger with parameters `event`."""
    types = Types(event)
    for key, kind in zip(statement.keys, derived.declared[statement.target].key_types, strict=True):
        if isinstance(key, Var):
            types.setdefault(key, kind)
    used = dict.fromkeys(v for k in statement.keys for v in scalar_variables(k))
    free = tuple(v for v in used if v not in event)
    lowering = Lowering(derived, types)
    pipelines = lowering.poly(statement.value, frozenset(event), frozenset(free))
    erased: tuple[Pipeline, ...] = ()
    if free:
        own = statement.target in maps_read(statement.value)
        first = _gathered(lowering, free, pipelines) if own else None
        if first is not None:
            pipelines = (_entries(lowering, first),)
        if statement.op == ":=" and (own or len(free) < len(statement.keys)):
            erased = (_erasing(lowering, statement, frozenset(event), first),)
        elif first is not None:
            pipelines = (Pipeline((first, *pipelines[0].steps), pipelines[0].values),)
    return StatementPlan(
        statement.target, statement.keys, statement.op, pipelines, statement.after, types, level, erased
    )


def _gathered(lowering: Lowering, keys: tuple[Var, ...], pipelines: tuple[Pipeline, ...]) -> Gather:
    kinds = [lowering.types[v] for v in keys]
    return Gather(lowering.derived.scratch(kinds, lowering.type_of(pipelines)), keys, pipelines)


def _entries(lowering: Lowering, gather: Gather) -> Pipeline:
    """Every binding that was gathered, with its value."""
    value = lowering.value_variable(lowering.derived.maps[gather.map].type)
    return Pipeline((Loop(value, gather.map, gather.keys, ()),), (value,))


def _erasing(
    lowering: Lowering, statement: Statement, event: frozenset[Var], first: Gather | None
) -> Pipeline:
    """What takes the target's entries away that agree with the known keys, after `first`."""
    known: list[int] = []
    free: list[Var] = []
    for place, key in enumerate(statement.keys):
        if isinstance(key, Var) and key not in event:
            free.append(key)
        else:
            known.append(place)
    keys: tuple[Scalar, ...] = statement.keys
    value = lowering.value_variable(lowering.maps[statement.target])
    held = Pipeline((Loop(value, statement.target, keys, tuple(known)),), (value,))
    old = _gathered(lowering, tuple(dict.fromkeys(free)), (held,))
    entries = _entries(lowering, old)
    steps = (*([first] if first else []), old, *entries.steps)
    return Pipeline(steps, (Apply("neg", (entries.values[0],)),))


def plan(program: Program, statistics: Statistics | None = None) -> Plan:
    """The plan of a program; orders of loops and dense stores are chosen by `statistics` where they know.

    A map that is walked to a cut has entries of its own where those that it would share are more.
    """
    groups = sharing(program)
    found = _plan(program, groups, statistics)
    apart = fewer_apart(program, groups, found.walked_to_a_cut)
    return found if apart == groups else _plan(program, apart, statistics)


def _plan(program: Program, groups: Sequence[list[MapDeclaration]], statistics: Statistics | None) -> Plan:
    leaders = {d.name: g[0].name for g in groups for d in g}
    relations = {r.name: r for r in program.relations}
    derived = Derived(program.map_names, relations, leaders, statistics)
    initial = tuple(statement_plan(derived, s, {}, 0) for s in program.initial)
    triggers = []
    for trigger in program.triggers:
        columns = relations[trigger.relation].columns
        event = {p: unscaled(c.type) for p, c in zip(trigger.parameters, columns, strict=True)}
        statements = _statements(derived, trigger.statements, event)
        triggers.append(TriggerPlan(trigger.relation, trigger.insert, trigger.parameters, statements))
    shared = [{d.name for d in g} for g in groups if len(g) > 1]
    changes = tuple(_update(program, derived, u, shared) for u in updates(program, shared))
    results = tuple(_result(derived, r) for r in program.results)
    access = Access()
    of_updates = (s for u in changes for part in u.parts for s in part)
    for statement in [*initial, *(s for t in triggers for s in t.statements), *of_updates]:
        access.read_all((*statement.erased, *statement.pipelines))
    for result in results:
        for _, pipelines in result.lets:
            access.read_all(pipelines)
        if result.result.multiplicity is not None:
            access.hashed[result.result.multiplicity].add(())
    groups = [*groups, *([m] for m in derived.maps.values())]
    whole = replace(program, maps=(*program.maps, *derived.maps.values()))
    types = {m.name: m.type for m in whole.maps}
    stores = [s for g in groups for s in stores_for(types, relations, g, access, statistics)]
    directories = tuple(derived.directories.values())
    return Plan(whole, tuple(stores), initial, tuple(triggers), results, directories, changes)


def _update(
    program: Program, derived: Derived, update: Update, shared: Sequence[Collection[str]]
) -> UpdatePlan:
    columns = program.relation(update.relation).columns
    event = {
        v: unscaled(c.type) for row in (update.old, update.new) for v, c in zip(row, columns, strict=True)
    }
    parts = tuple(_statements(derived, own, event, shared) for own in update.parts)
    return UpdatePlan(update.relation, update.old, update.new, update.same, parts)


def _statements(
    derived: Derived,
    statements: Sequence[Statement],
    event: Mapping[Var, Type],
    shared: Sequence[Collection[str]] = (),
) -> tuple[StatementPlan, ...]:
    """Statements that read the state after are moved behind all that they read; see `levels`."""
    planned = [
        statement_plan(derived, s, event, level)
        for s, level in zip(statements, levels(statements, shared), strict=True)
    ]
    return tuple(sorted(planned, key=lambda s: s.level))


def _result(derived: Derived, result: Result) -> ResultPlan:
    types = Types({k.variable: unscaled(k.type) for k in result.keys})
    lowering = Lowering(derived, types)
    known = frozenset(types)
    lets: list[tuple[Var, tuple[Pipeline, ...]]] = []
    for variable, poly in result.lets:
        pipelines = lowering.poly(poly, known, frozenset())
        types[variable] = lowering.type_of(pipelines)
        lets.append((variable, pipelines))
        known |= {variable}
    return ResultPlan(result, tuple(lets), types)
