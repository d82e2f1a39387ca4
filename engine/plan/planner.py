"""From an M3 program to its physical plan: lowered statements, and the stores that their reads need."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from views.compiler.calculus import Var, scalar_variables
from views.compiler.intervals import Types
from views.compiler.m3 import MapDeclaration, Program, Result, Statement
from views.compiler.types import INT64_MAX, INT128_MAX, Kind, Type, unscaled

from .lower import Lowering
from .steps import (
    Aggregate,
    Lookup,
    Loop,
    Pipeline,
    Plan,
    RangeSum,
    ResultPlan,
    StatementPlan,
    Step,
    Store,
    TriggerPlan,
)


def plan(program: Program) -> Plan:
    """The plan of a program. Raises NotImplementedError for a form no step can evaluate."""
    relations = {r.name: r for r in program.relations}
    initial = tuple(_statement(program, s, {}) for s in program.initial)
    triggers = []
    for trigger in program.triggers:
        columns = relations[trigger.relation].columns
        event = {p: unscaled(c.type) for p, c in zip(trigger.parameters, columns, strict=True)}
        statements = _levelled([_statement(program, s, event) for s in trigger.statements])
        triggers.append(TriggerPlan(trigger.relation, trigger.insert, trigger.parameters, statements))
    results = tuple(_result(program, r) for r in program.results)
    access = _Access()
    for statement in [*initial, *(s for t in triggers for s in t.statements)]:
        access.read_all(statement.pipelines)
    for result in results:
        for _, pipelines in result.lets:
            access.read_all(pipelines)
        if result.result.multiplicity is not None:
            access.hashed[result.result.multiplicity].add(())
    groups = _groups(program, initial, triggers)
    stores = [s for g in groups for s in _stores(program, g, access)]
    return Plan(program, tuple(stores), initial, tuple(triggers), results)


def _statement(program: Program, statement: Statement, event: Mapping[Var, Type]) -> StatementPlan:
    types = Types(event)
    for key, kind in zip(statement.keys, program.map(statement.target).key_types, strict=True):
        if isinstance(key, Var):
            types.setdefault(key, kind)
    live = frozenset(v for k in statement.keys for v in scalar_variables(k)) - event.keys()
    pipelines = Lowering(program, types).poly(statement.value, frozenset(event), live)
    return StatementPlan(statement.target, statement.keys, statement.op, pipelines, statement.after, types)


def _levelled(statements: Sequence[StatementPlan]) -> tuple[StatementPlan, ...]:
    """Statements that read the state after, moved behind all that they read."""
    levels: dict[str, int] = {}
    found = []
    for statement in statements:
        if statement.after:
            level = 1 + max((levels.get(m, 0) for m in maps_read(statement.pipelines)), default=0)
            levels[statement.target] = max(level, levels.get(statement.target, 0))
            statement = replace(statement, level=level)
        found.append(statement)
    return tuple(sorted(found, key=lambda s: s.level))


def _result(program: Program, result: Result) -> ResultPlan:
    types = Types({k.variable: unscaled(k.type) for k in result.keys})
    lowering = Lowering(program, types)
    known = frozenset(types)
    lets: list[tuple[Var, tuple[Pipeline, ...]]] = []
    for variable, poly in result.lets:
        pipelines = lowering.poly(poly, known, frozenset())
        types[variable] = lowering.type_of(pipelines)
        lets.append((variable, pipelines))
        known |= {variable}
    return ResultPlan(result, tuple(lets), types)


@dataclass(slots=True)
class _Access:
    """How maps are read: slices and scans (by known positions), and trees (ordered position)."""

    hashed: defaultdict[str, set[tuple[int, ...]]] = field(default_factory=lambda: defaultdict(set))
    ordered: defaultdict[str, set[int]] = field(default_factory=lambda: defaultdict(set))

    def read_all(self, pipelines: Iterable[Pipeline]) -> None:
        for step in steps_of(pipelines):
            if isinstance(step, RangeSum):
                self.ordered[step.map].add(step.position)
                for cut in step.cuts:
                    for _, name in cut.sums:
                        self.ordered[name].add(cut.position)
            elif isinstance(step, Loop) and step.position is not None:
                self.ordered[step.map].add(step.position)
            elif isinstance(step, Loop):
                self.hashed[step.map].add(step.known if len(step.known) < len(step.keys) else ())


def steps_of(pipelines: Iterable[Pipeline]) -> Iterator[Step]:
    """All steps, those of nested aggregates included."""
    for pipeline in pipelines:
        for step in pipeline.steps:
            yield step
            if isinstance(step, Aggregate):
                yield from steps_of(step.pipelines)


def _groups(
    program: Program, initial: Iterable[StatementPlan], triggers: Iterable[TriggerPlan]
) -> list[list[MapDeclaration]]:
    """Maps that every trigger writes together, at one and the same key: they can share their entries."""
    writes: defaultdict[str, list[object]] = defaultdict(list)
    alone: set[str] = {s.target for s in initial}
    for number, trigger in enumerate(triggers):
        for statement in trigger.statements:
            if not statement.writes_one(trigger.parameters):
                alone.add(statement.target)
            writes[statement.target].append((number, statement.level, statement.op, statement.keys))
    groups: dict[object, list[MapDeclaration]] = {}
    for declaration in program.maps:
        signature: object = (
            declaration.name
            if declaration.name in alone
            or len({w[:1] for w in writes[declaration.name]}) != len(writes[declaration.name])  # type: ignore[index]
            else (declaration.key_types, tuple(writes[declaration.name]))
        )
        groups.setdefault(signature, []).append(declaration)
    return list(groups.values())


def maps_read(pipelines: Iterable[Pipeline]) -> Iterator[str]:
    for step in steps_of(pipelines):
        if isinstance(step, Lookup | RangeSum | Loop):
            yield step.map
        if isinstance(step, RangeSum):
            yield from (name for cut in step.cuts for _, name in cut.sums)


def _stores(program: Program, group: list[MapDeclaration], access: _Access) -> list[Store]:
    """The stores of a group: a hashed one for look-ups, slices and scans, a tree for every ordered key."""
    names = tuple(d.name for d in sorted(group, key=lambda d: d.type.kind is Kind.DOUBLE))
    key_types = group[0].key_types
    layout = "".join(layout_of(program.map(n).type) for n in names)
    if "d" in layout and "i" not in layout:
        layout += "i"
    slices = sorted({p for n in names for p in access.hashed.get(n, ())})
    positions = sorted({p for n in names for p in access.ordered.get(n, ())})
    stores = []
    if slices or not positions:
        stores.append(Store(names[0], names, key_types, layout, slices=tuple(p for p in slices if p)))
    for position in positions:
        prefix = tuple(i for i in range(len(key_types)) if i != position)
        stores.append(Store(f"{names[0]}_by_{position}", names, key_types, layout, prefix, position))
    return stores


def layout_of(kind: Type) -> str:
    """The value column of a map: 64 bits, 128 bits, 128 bits checked, or a compensated double."""
    if kind.kind is Kind.DOUBLE:
        return "d"
    bound = max(abs(kind.low), abs(kind.high))
    return "i" if bound <= INT64_MAX else "w" if bound <= INT128_MAX else "W"
