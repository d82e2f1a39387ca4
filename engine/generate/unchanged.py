"""What a trigger need not compute: maps that follow from others, none of which its event has changed.

A map follows where every statement that writes it is the same `:=`, and where each trigger that writes an
entry that it reads writes its own entry, too. It then is what its statement says after every event, and a
trigger that leaves alone all that the statement reads has nothing to write. That is proved here of statements
alone, so it holds of M3 written by hand as well.
"""

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence

from orderbook.engine.generate.expressions import Code
from orderbook.engine.generate.pipelines import signature
from orderbook.engine.generate.plan_reads import PlanReads
from orderbook.engine.plan.steps import (
    Aggregate,
    Extremum,
    Filter,
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
from orderbook.views.calculus import Apply, Const, Scalar, Var
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
            keys = [k for k in statement.keys if isinstance(k, Var) and k in parameters]
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


def _nothing_of_nothing(pipeline: Pipeline) -> bool:
    """Whether a pipeline gives 0 while what it reads is empty."""
    nothing = set()
    for step in pipeline.steps:
        match step:
            case Loop() | Extremum():
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
    return all(
        s.level < own[0].level
        and tuple(s.keys[i] for i in places) == own[0].keys
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
        between = [s for s in statements if first.level < s.level <= second.level]
        if names.isdisjoint(m for s in between for m in maps_in_pipelines((*s.pipelines, *s.erased))):
            found[name] = first.level
    return found
