"""From an M3 program to its physical plan: lowered statements, and the stores that their reads need.

Whole statements are lowered here: those that loop and read what they write see it as it was before.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic, Self, TypeVar, cast

from orderbook.core.recent import Recent
from orderbook.engine.plan.computed_keys import with_computed_keys
from orderbook.engine.plan.lower import Lowering
from orderbook.engine.plan.projections import projections
from orderbook.engine.plan.restrictions import Derived
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
from orderbook.engine.plan.stores import Access, fewer_apart, key_of, levels, sharing, stores_for
from orderbook.engine.plan.updates import Update, updates
from orderbook.views.calculus import Apply, Scalar, Var, maps_read, scalar_variables
from orderbook.views.intervals import Types
from orderbook.views.m3 import MapDeclaration, Program, Result, Statement
from orderbook.views.types import Relation, Type, unscaled

Lowered = TypeVar("Lowered", StatementPlan, ResultPlan)


@dataclass(frozen=True, slots=True)
class _Planned(Generic[Lowered]):
    """What was lowered, and of what: the maps that it reads, and names of directories that it asked for."""

    plan: Lowered
    relations: Mapping[str, Relation]
    maps: Mapping[str, MapDeclaration | None]
    directories: Mapping[tuple[str, tuple[int, ...]], str]

    def holds(self, derived: Derived) -> bool:
        """Whether it is the same in another program, which then has its directories."""
        return (
            all(derived.declared.get(name) == declaration for name, declaration in self.maps.items())
            and self.relations == derived.relations
            and all(derived.directory(*asked) == name for asked, name in self.directories.items())
        )


# More than a program of some hundred views has.
_PLANNED: Recent[object, _Planned[StatementPlan] | _Planned[ResultPlan]] = Recent(1 << 13)


def _remembered(derived: Derived, of: object, maps: Iterable[str], lower: Callable[[], Lowered]) -> Lowered:
    """What is lowered `of` something that reads these maps, or was in a program before."""
    if derived.statistics is not None:
        return lower()
    known = cast("_Planned[Lowered] | None", _PLANNED.get(of))
    if known is not None and known.holds(derived):
        return known.plan
    scratches, before = derived.scratches, derived.asked
    derived.asked = set()
    found = lower()
    # Names of scratch maps are numbers in their program.
    if derived.scratches == scratches:
        read = {name: derived.declared.get(name) for name in maps}
        named = {asked: derived.directory(*asked) for asked in list(derived.asked)}
        planned = _Planned(found, derived.relations, read, named)
        _PLANNED.put(of, planned)
    derived.asked |= before
    return found


@dataclass(frozen=True, slots=True)
class Event:
    """What an event knows: its parameters with their types, and by which of them its rows are found."""

    types: Mapping[Var, Type]
    rows: tuple[frozenset[Var], ...] = ()

    @classmethod
    def of(cls, relation: Relation, *rows: Sequence[Var]) -> Self:
        """One or more rows of a relation."""
        types = {v: unscaled(c.type) for row in rows for v, c in zip(row, relation.columns, strict=True)}
        return cls(types, tuple(key for row in rows if (key := key_of(relation, row))))


def statement_plan(
    derived: Derived, statement: Statement, event: Event, level: int, at: object
) -> StatementPlan:
    """The plan of a statement of a trigger.

    at: tells it from equal ones, of which each is an object of its own.
    """
    of = statement, tuple(event.types.items()), event.rows, level, at
    maps = maps_read(statement.value) | {statement.target}
    return _remembered(derived, of, maps, lambda: _statement_plan(derived, statement, event, level))


def _statement_plan(derived: Derived, statement: Statement, of: Event, level: int) -> StatementPlan:
    event = of.types
    types = Types(event)
    for key, kind in zip(statement.keys, derived.declared[statement.target].key_types, strict=True):
        if isinstance(key, Var):
            types.setdefault(key, kind)
    used = dict.fromkeys(v for k in statement.keys for v in scalar_variables(k))
    free = tuple(v for v in used if v not in event)
    lowering = Lowering(derived, types, of.rows)
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
    added = [lowering.type_of((pipeline,)) for pipeline in pipelines]
    rises = all(kind.exact and kind.low >= 0 for kind in added)
    return StatementPlan(
        statement.target,
        statement.keys,
        statement.op,
        pipelines,
        statement.after,
        types,
        level,
        erased,
        rises,
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
    program = with_computed_keys(program)
    groups = sharing(program)
    found = _plan(program, groups, statistics)
    apart = fewer_apart(program, groups, found.walked_to_a_cut)
    return found if apart == groups else _plan(program, apart, statistics)


def _plan(program: Program, groups: Sequence[list[MapDeclaration]], statistics: Statistics | None) -> Plan:
    leaders = {d.name: g[0].name for g in groups for d in g}
    relations = {r.name: r for r in program.relations}
    derived = Derived(program.map_names, relations, leaders, statistics)
    initial = tuple(statement_plan(derived, s, Event({}), 0, i) for i, s in enumerate(program.initial))
    triggers = []
    for trigger in program.triggers:
        event = Event.of(relations[trigger.relation], trigger.parameters)
        statements = _statements(derived, trigger.statements, event, (trigger.relation, trigger.insert))
        triggers.append(TriggerPlan(trigger.relation, trigger.insert, trigger.parameters, statements))
    shared = [{d.name for d in g} for g in groups if len(g) > 1]
    found = list(updates(program, shared))
    changes = tuple(_update(program, derived, u, shared) for u in found)
    results = tuple(_result(derived, r) for r in program.all_results)
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
    return Plan(
        *(whole, tuple(stores), initial, tuple(triggers), results),
        *(directories, changes, projections(program, found)),
    )


def _update(
    program: Program, derived: Derived, update: Update, shared: Sequence[Collection[str]]
) -> UpdatePlan:
    event = Event.of(program.relation(update.relation), update.old, update.new)
    parts = tuple(
        _statements(derived, own, event, (update.relation, "update", i), shared)
        for i, own in enumerate(update.parts)
    )
    return UpdatePlan(update.relation, update.old, update.new, update.same, parts)


def _statements(
    derived: Derived,
    statements: Sequence[Statement],
    event: Event,
    at: object,
    shared: Sequence[Collection[str]] = (),
) -> tuple[StatementPlan, ...]:
    """Statements that read the state after are moved behind all that they read; see `levels`."""
    seen: Counter[Statement] = Counter()
    planned = []
    for statement, level in zip(statements, levels(statements, shared), strict=True):
        planned.append(statement_plan(derived, statement, event, level, (at, seen[statement])))
        seen[statement] += 1
    return tuple(sorted(planned, key=lambda s: s.level))


def _result(derived: Derived, result: Result) -> ResultPlan:
    maps = frozenset(m for _, poly in result.lets for m in maps_read(poly))
    return _remembered(derived, result, maps, lambda: _result_plan(derived, result))


def _result_plan(derived: Derived, result: Result) -> ResultPlan:
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
