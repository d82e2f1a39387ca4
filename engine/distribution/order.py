"""Whether what a program shows depends on the order of changes, or just on the rows that are there."""

from collections.abc import Iterator, Mapping, Sequence

from engine.plan.steps import Aggregate, Gather, Loop, Pipeline, Plan, steps_of
from views.compiler.calculus import Var
from views.compiler.intervals import scalar_type
from views.compiler.types import Kind, Type


def depends_on_order(plan: Plan) -> str | None:
    """Why results depend on the order of changes; None: they do not.

    Sums of doubles do, by their rounding: those that maps keep, and those over the entries of a map, whose
    order in memory is that of their coming. Sums of exact numbers, extremes and ranks do not. Of maps whose
    statements were written by hand nothing is known here.
    """
    for declaration in plan.program.maps:
        if declaration.type.kind is Kind.DOUBLE:
            return f"{declaration.name} sums doubles, which round by their order"
    for trigger in plan.triggers:
        for statement in trigger.statements:
            pipelines = _all((*statement.erased, *statement.pipelines))
            if any(_sums_doubles(pipeline, statement.types) for pipeline in pipelines):
                return f"{statement.target} is made of sums of doubles, which round by their order"
    for result in plan.results:
        pipelines = _all([pipeline for _, let in result.lets for pipeline in let])
        if any(_sums_doubles(pipeline, result.types) for pipeline in pipelines):
            return f"{result.result.name} shows sums of doubles, which round by their order"
    return None


def _all(pipelines: Sequence[Pipeline]) -> Iterator[Pipeline]:
    """Pipelines with those inside them, at any depth."""
    yield from pipelines
    for step in steps_of(pipelines):
        if isinstance(step, Aggregate | Gather):
            yield from step.pipelines


def _sums_doubles(pipeline: Pipeline, types: Mapping[Var, Type]) -> bool:
    """Whether doubles are added up over the entries of a map."""
    loops = any(isinstance(step, Loop) for step in pipeline.steps)
    return loops and any(scalar_type(value, types).kind is Kind.DOUBLE for value in pipeline.values)
