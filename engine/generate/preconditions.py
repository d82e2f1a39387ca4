"""When a trigger has something to do: conditions on the event's row without which nothing of a part changes.

A nested aggregate is taken out of a map as it was and put back as it is. Where conditions on the row keep the
row out of all that the aggregate reads, both are the same, and so is what follows from maps that have not
changed (unchanged.py). So a part of a trigger is left out where the row does not satisfy what one of its
statements needs. That is proved of statements alone.
"""

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from orderbook.engine.generate.expressions import Code
from orderbook.engine.generate.pipelines import signature
from orderbook.engine.plan.steps import (
    Filter,
    Pipeline,
    Plan,
    StatementPlan,
    maps_in_pipelines,
)
from orderbook.views.calculus import Const, Scalar, Var, scalar_variables
from orderbook.views.types import INTEGER

# Conditions of which all of one set have to hold; there is always something to do where one is empty.
Precondition = frozenset[frozenset[Scalar]]
ALWAYS: Precondition = frozenset({frozenset()})
NEVER: Precondition = frozenset()
# More sets than this cost more than they save.
_MOST_SETS = 6


def either(preconditions: Iterable[Precondition]) -> Precondition:
    """When one of several has something to do; sets that others of them imply are left out."""
    every = {conditions for precondition in preconditions for conditions in precondition}
    least = frozenset(one for one in every if not any(other < one for other in every))
    return least if len(least) <= _MOST_SETS else ALWAYS


def preconditions_of(
    plan: Plan, statements: Sequence[StatementPlan], row: Sequence[Var], follows: Container[str]
) -> dict[int, Precondition]:
    """The precondition of each of a trigger's statements, by its `id`.

    follows: maps that follow from others.
    """
    known = _Preconditions(plan, statements, row, follows)
    return {id(s): known.of_statement(s) for s in statements}


@dataclass(slots=True)
class _Preconditions:
    plan: Plan
    statements: Sequence[StatementPlan]
    row: Sequence[Var]
    follows: Container[str]
    _written: dict[str, list[StatementPlan]] = field(init=False)
    # The pipelines that are taken out before and put back after.
    _again: frozenset["_Place"] = field(init=False)
    _of_maps: dict[str, Precondition] = field(default_factory=dict)
    _scratch: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        self._written, self._scratch = {}, self.plan.scratch
        for statement in self.statements:
            self._written.setdefault(statement.target, []).append(statement)
        self._again = frozenset(place for own in self._written.values() for place in _put_back(own, self.row))

    def of_statement(self, statement: StatementPlan) -> Precondition:
        if statement.op == ":=":
            if statement.target not in self.follows:
                return ALWAYS
            return self._of_reads(statement.pipelines)
        return either(
            self._of_pipeline(pipeline, (id(statement), place) in self._again)
            for place, pipeline in enumerate(statement.pipelines)
        )

    def _of_pipeline(self, pipeline: Pipeline, again: bool) -> Precondition:
        """When a pipeline adds something that its counterpart does not take away, where it has one."""
        needed = frozenset(
            step.condition
            for step in pipeline.steps
            if isinstance(step, Filter) and {*scalar_variables(step.condition)} <= {*self.row}
        )
        precondition = self._of_reads((pipeline,)) if again else ALWAYS
        return either([frozenset(conditions | needed for conditions in precondition)])

    def _of_reads(self, pipelines: tuple[Pipeline, ...]) -> Precondition:
        return either(self._of_map(name) for name in dict.fromkeys(maps_in_pipelines(pipelines)))

    def _of_map(self, name: str) -> Precondition:
        """When an entry of a map may change."""
        if name not in self._of_maps:
            # What a map's own change depends on is not proved by it.
            self._of_maps[name] = ALWAYS
            source = next((d.source for d in self.plan.directories if d.name == name), None)
            if source is not None:
                counted = {m for s in self.plan.stores_of(source) for m in s.maps}
                self._of_maps[name] = either(map(self._of_map, sorted(counted)))
            elif name not in self._scratch:
                self._of_maps[name] = either(map(self.of_statement, self._written.get(name, ())))
        return self._of_maps[name]


# A statement by its `id`, and the place of a pipeline among its own.
_Place = tuple[int, int]


def _put_back(statements: Sequence[StatementPlan], row: Sequence[Var]) -> Iterator[_Place]:
    """The pipelines of one map's statements that are subtracted before the event and added after it."""
    names = {v: Code(f"row {i}", INTEGER) for i, v in enumerate(row)}
    added = [s for s in statements if s.op == "+="]
    before: dict[str, list[_Place]] = {}
    for statement in added:
        for place, pipeline in enumerate(statement.pipelines):
            taken = None if statement.after else _negated(pipeline)
            if taken is not None:
                before.setdefault(_said(statement, taken, names), []).append((id(statement), place))
    for statement in added:
        for place, pipeline in enumerate(statement.pipelines):
            if statement.after and (same := before.get(_said(statement, pipeline, names))):
                yield from ((id(statement), place), same.pop())


def _negated(pipeline: Pipeline) -> Pipeline | None:
    """What a pipeline takes away; None where it does not."""
    minus = Const(-1)
    if minus not in pipeline.values:
        return None
    place = pipeline.values.index(minus)
    return Pipeline(pipeline.steps, (*pipeline.values[:place], *pipeline.values[place + 1 :]))


def _said(statement: StatementPlan, pipeline: Pipeline, names: dict[Var, Code]) -> str:
    """Equal for pipelines that add the same to the same entries."""
    values = pipeline.values or (Const(1),)
    return signature((Pipeline(pipeline.steps, (*values, *statement.keys)),), names)
