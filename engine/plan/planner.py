"""From an M3 program to its physical plan: lowered statements, and the stores that their reads need."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from views.compiler.calculus import Var
from views.compiler.intervals import Types
from views.compiler.m3 import Program, Result, Statement
from views.compiler.types import Type, unscaled

from .derived import Derived
from .lower import Lowering
from .statements import statement_plan
from .statistics import Statistics
from .steps import Pipeline, Plan, ResultPlan, StatementPlan, TriggerPlan
from .steps import maps_read as maps_read
from .stores import Access, levels, sharing, stores_for
from .stores import layout_of as layout_of


def plan(program: Program, statistics: Statistics | None = None) -> Plan:
    """The plan of a program; orders of loops and dense stores are chosen by `statistics` where they know."""
    groups = sharing(program)
    leaders = {d.name: g[0].name for g in groups for d in g}
    derived = Derived({m.name: m for m in program.maps}, leaders, statistics)
    relations = {r.name: r for r in program.relations}
    initial = tuple(statement_plan(program, derived, s, {}, 0) for s in program.initial)
    triggers = []
    for trigger in program.triggers:
        columns = relations[trigger.relation].columns
        event = {p: unscaled(c.type) for p, c in zip(trigger.parameters, columns, strict=True)}
        statements = _statements(program, derived, trigger.statements, event)
        triggers.append(TriggerPlan(trigger.relation, trigger.insert, trigger.parameters, statements))
    results = tuple(_result(program, derived, r) for r in program.results)
    access = Access()
    for statement in [*initial, *(s for t in triggers for s in t.statements)]:
        access.read_all((*statement.erased, *statement.pipelines))
    for result in results:
        for _, pipelines in result.lets:
            access.read_all(pipelines)
        if result.result.multiplicity is not None:
            access.hashed[result.result.multiplicity].add(())
    groups += [[m] for m in derived.maps.values()]
    whole = replace(program, maps=(*program.maps, *derived.maps.values()))
    types = {m.name: m.type for m in whole.maps}
    stores = [s for g in groups for s in stores_for(types, relations, g, access, statistics)]
    return Plan(whole, tuple(stores), initial, tuple(triggers), results, tuple(derived.directories.values()))


def _statements(
    program: Program, derived: Derived, statements: Sequence[Statement], event: Mapping[Var, Type]
) -> tuple[StatementPlan, ...]:
    """Statements that read the state after are moved behind all that they read."""
    planned = [
        statement_plan(program, derived, s, event, level)
        for s, level in zip(statements, levels(statements), strict=True)
    ]
    return tuple(sorted(planned, key=lambda s: s.level))


def _result(program: Program, derived: Derived, result: Result) -> ResultPlan:
    types = Types({k.variable: unscaled(k.type) for k in result.keys})
    lowering = Lowering(program, derived, types)
    known = frozenset(types)
    lets: list[tuple[Var, tuple[Pipeline, ...]]] = []
    for variable, poly in result.lets:
        pipelines = lowering.poly(poly, known, frozenset())
        types[variable] = lowering.type_of(pipelines)
        lets.append((variable, pipelines))
        known |= {variable}
    return ResultPlan(result, tuple(lets), types)
