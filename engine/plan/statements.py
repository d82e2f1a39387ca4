"""Lowers whole statements: those that loop and read what they write see it as it was before."""

from collections.abc import Mapping

from views.compiler.calculus import Apply, Scalar, Var, maps_read, scalar_variables
from views.compiler.intervals import Types
from views.compiler.m3 import Program, Statement
from views.compiler.types import Type

from .derived import Derived
from .lower import Lowering
from .steps import Gather, Loop, Pipeline, StatementPlan


def statement_plan(
    program: Program, derived: Derived, statement: Statement, event: Mapping[Var, Type], level: int
) -> StatementPlan:
    """The plan of a statement of a trigger with parameters `event`."""
    types = Types(event)
    for key, kind in zip(statement.keys, program.map(statement.target).key_types, strict=True):
        if isinstance(key, Var):
            types.setdefault(key, kind)
    used = dict.fromkeys(v for k in statement.keys for v in scalar_variables(k))
    free = tuple(v for v in used if v not in event)
    lowering = Lowering(program, derived, types)
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
