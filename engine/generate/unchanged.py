"""What a trigger need not compute: maps that follow from others, none of which its event has changed.

A map follows where every statement that writes it is the same `:=`, and where each trigger that writes an
entry that it reads writes its own entry, too. It then is what its statement says after every event, and a
trigger that leaves alone all that the statement reads has nothing to write. That is proved here of statements
alone, so it holds of M3 written by hand as well. A key may be computed of the event's row, as the span of
time that it lies in, where pipelines bind the same for themselves.
"""

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from functools import reduce
from typing import Any

from orderbook.engine.generate.expressions import Code
from orderbook.engine.generate.pipelines import signature
from orderbook.engine.generate.plan_reads import PlanReads
from orderbook.engine.plan.steps import (
    Aggregate,
    Extremum,
    Filter,
    FirstKey,
    Gather,
    Lookup,
    Loop,
    Pipeline,
    Plan,
    RangeSum,
    StatementPlan,
    TriggerPlan,
    maps_in_pipelines,
    reads_in_pipelines,
    steps_of,
    variables,
)
from orderbook.views.calculus import Apply, Const, Scalar, Var, scalar_variables
from orderbook.views.types import Kind

# Variables that say that something is to be done, if one of them is not 0; None: it always is.
Condition = frozenset[str] | None
ALWAYS: Condition = None
NEVER: Condition = frozenset()
# Of each map that a following map reads, whether it matters only if an entry is 0.
Sources = Mapping[str, bool]


def following(plan: Plan) -> dict[str, Sources]:
    """The maps that follow from others, and which."""
    found: dict[str, Sources] = {}
    for name in dict.fromkeys(s.target for t in plan.triggers for s in t.statements):
        statement = _one_definition(plan, name)
        if statement is not None and _kept(plan, name, statement):
            found[name] = {
                read: _asks_for_zero(statement.pipelines, read)
                for read in dict.fromkeys(maps_in_pipelines(statement.pipelines))
            }
    return found


def sources(statements: Iterable[StatementPlan], follows: Mapping[str, Sources]) -> dict[str, Sources]:
    """What maps follow from that a trigger's statements write; nothing where one must be written anyway."""
    written = {s.target for s in statements}
    return {name: {r: zero for r, zero in own.items() if r in written} for name, own in follows.items()}


def _one_definition(plan: Plan, name: str) -> StatementPlan | None:
    """A statement of all that write a map, where they are the same but for the names of keys."""
    found: dict[str, StatementPlan] = {}
    own = plan.program.map(name)
    started = any(s.target == name for s in plan.initial)
    for parameters, statements in ((), plan.initial), *((t.parameters, t.statements) for t in plan.triggers):
        for statement in statements:
            if statement.target != name:
                continue
            statement = _over_keys(statement, parameters)
            keys = [k for k in statement.keys if isinstance(k, Var) and (k in parameters or k in _COMPUTED)]
            if statement.op != ":=" or statement.erased or len({*keys}) < len(statement.keys):
                return None
            if not {*variables(statement.pipelines)}.isdisjoint({*parameters} - {*keys}):
                return None
            names = {k: Code(f"key {i}", t) for i, (k, t) in enumerate(zip(keys, own.key_types, strict=True))}
            found[signature(statement.pipelines, names)] = statement
    if len(found) != 1 or own.count is not None:
        return None
    (statement,) = found.values()
    return statement if started or all(map(_nothing_of_nothing, statement.pipelines)) else None


# What computed keys are called, by their places.
_COMPUTED = tuple(Var(f"$key_{i}") for i in range(64))


def _over_keys(statement: StatementPlan, parameters: Sequence[Var]) -> StatementPlan:
    """A statement with variables for keys computed of the row, and for what its pipelines bind to them."""
    computed: dict[Scalar, Var] = {
        k: v for k, v in zip(statement.keys, _COMPUTED, strict=False) if not isinstance(k, Var)
    }
    if not computed:
        return statement
    pipelines = []
    for pipeline in statement.pipelines:
        bound = {v: computed[s] for v, s in _computed_of(pipeline, parameters).items() if s in computed}
        steps = tuple(s for s in pipeline.steps if not (isinstance(s, Aggregate) and s.value in bound))
        pipelines.append(_renamed(Pipeline(steps, pipeline.values), bound))
    keys = tuple(computed.get(k, k) for k in statement.keys)
    return replace(statement, keys=keys, pipelines=tuple(pipelines))


def _computed_of(pipeline: Pipeline, parameters: Container[Var]) -> dict[Var, Scalar]:
    """The variables that a pipeline binds to a scalar of the row, and which."""
    found = {}
    for step in pipeline.steps:
        if isinstance(step, Aggregate) and len(step.pipelines) == 1 and not step.pipelines[0].steps:
            scalar = reduce(lambda a, b: Apply("*", (a, b)), step.pipelines[0].values or (Const(1),))
            if all(v in parameters for v in scalar_variables(scalar)):
                found[step.value] = scalar
    return found


def _renamed(part: Any, names: Mapping[Var, Var]) -> Any:
    """A part of a plan with other names for variables."""
    if isinstance(part, Var):
        return names.get(part, part)
    if isinstance(part, tuple):
        return tuple(_renamed(own, names) for own in part)
    if not is_dataclass(part) or isinstance(part, type):
        return part
    return replace(part, **{f.name: _renamed(getattr(part, f.name), names) for f in fields(part)})


def _written_keys(statement: StatementPlan, parameters: Container[Var]) -> tuple[Scalar, ...]:
    """The keys that a statement writes, by the row where every pipeline binds them to the same of it."""
    bound = [_computed_of(pipeline, parameters) for pipeline in statement.pipelines]
    found = []
    for key in statement.keys:
        scalars = {own.get(key, key) for own in bound} if isinstance(key, Var) else {key}
        found.append(scalars.pop() if len(scalars) == 1 else key)
    return tuple(found)


def _nothing_of_nothing(pipeline: Pipeline) -> bool:
    """Whether a pipeline gives 0 while what it reads is empty."""
    nothing = set()
    for step in pipeline.steps:
        match step:
            case Loop() | Extremum() | FirstKey():
                return True
            case Lookup(value) | RangeSum(value):
                nothing.add(value)
            case Aggregate(value, pipelines) if all(map(_nothing_of_nothing, pipelines)):
                nothing.add(value)
            case Filter(Apply("<>", (Var() as value, Const(0)))) if value in nothing:
                return True
    return not nothing.isdisjoint(v for v in pipeline.values if isinstance(v, Var))


def _kept(plan: Plan, name: str, statement: StatementPlan) -> bool:
    """Whether every trigger that changes what a map's entry reads writes that entry after it."""
    reads = list(reads_in_pipelines(statement.pipelines))
    held = plan.program.map_names
    derived = {d.name for d in plan.directories}
    if not reads or any(isinstance(s, Gather) for s in steps_of(statement.pipelines)):
        return False
    for read, keys in reads:
        own = held[read]
        inexact = own.count is not None or own.type.kind is Kind.DOUBLE
        if read in derived or inexact or not {*statement.keys} <= {*keys} or read == name:
            return False
    if any(s.target in {read for read, _ in reads} for s in plan.initial) and statement not in plan.initial:
        return False
    return all(
        _written_after(trigger, name, read, [keys.index(k) for k in statement.keys])
        for trigger in plan.triggers
        for read, keys in reads
    )


def _written_after(trigger: TriggerPlan, name: str, read: str, places: Sequence[int]) -> bool:
    """Whether a trigger that writes `read` then writes the entry of `name` that its keys at `places` tell."""
    changes = [s for s in trigger.statements if s.target == read]
    own = [s for s in trigger.statements if s.target == name]
    if not changes:
        return True
    if len(own) != 1 or not own[0].after:
        return False
    written = {id(s): _written_keys(s, trigger.parameters) for s in changes}
    return all(
        s.level < own[0].level
        and tuple(written[id(s)][i] for i in places) == own[0].keys
        and (s.op == "+=" or bool(s.erased) or s.writes_one(trigger.parameters) or not places)
        for s in changes
    )


def _asks_for_zero(pipelines: Iterable[Pipeline], name: str) -> bool:
    """Whether of all entries of a map that pipelines read it only matters if they are 0."""
    pipelines = tuple(pipelines)
    times = Counter(variables(pipelines))
    tested = {
        step.condition.args[0]
        for step in steps_of(pipelines)
        if isinstance(step, Filter)
        and isinstance(step.condition, Apply)
        and step.condition.op in ("<>", "=")
        and step.condition.args[1:] == (Const(0),)
    }

    def only_tested(value: Scalar) -> bool:
        return value in tested and isinstance(value, Var) and times[value] == 2

    asked = 0
    for step in steps_of(pipelines):
        match step:
            case Lookup(value, read) if read == name:
                asked += only_tested(value)
            case Aggregate(value, (Pipeline((Lookup(inner, read),), (own,)),)) if read == name:
                asked += inner == own and times[inner] == 2 and only_tested(value)
    return asked == sum(read == name for read, _ in reads_in_pipelines(pipelines))


def either(one: Condition, other: Condition) -> Condition:
    return None if one is None or other is None else one | other


def deferrable(
    plan: PlanReads, statements: Sequence[StatementPlan], parameters: Container[Var]
) -> dict[str, int]:
    """The maps to whose entry a trigger adds twice, and the level whose sum is added with the second one.

    Nothing reads the map in between.
    """
    found = {}
    for name in dict.fromkeys(s.target for s in statements):
        own = [s for s in statements if s.target == name]
        if len(own) != 2 or any(s.op != "+=" or not s.writes_one(parameters) for s in own):
            continue
        first, second = own
        exact = all({*s.layout} <= {*"iw"} for s in plan.stores_of(name))
        if not exact or plan.counted_by(name) or first.keys != second.keys or first.level >= second.level:
            continue
        names = {name, *(d.name for d in plan.directories_of(name))}
        names |= {p.name for p in plan.projections_of(name)}
        between = [s for s in statements if first.level < s.level <= second.level]
        if names.isdisjoint(m for s in between for m in maps_in_pipelines((*s.pipelines, *s.erased))):
            found[name] = first.level
    return found
