"""Whether strategies run apart, an instance in the task of its symbol, or as one task."""

from collections.abc import Sequence

from engine.distribution.distribute import distribute
from orderbook.backtest.layout import SYMBOL, by_symbol
from strategies.definition import StrategyDefinition
from views.compiler.program import CompiledProgram


def why_together(
    strategies: Sequence[StrategyDefinition], program: CompiledProgram, partitions: int
) -> str | None:
    """Why strategies see more than one symbol at once; None: they can run apart, or there are none.

    program: has the views that they see.
    """
    for strategy in strategies:
        if strategy.partition_by is None:
            return f"{strategy.name} has no partition_by"
        if strategy.partition_by != SYMBOL:
            return f"tasks are by symbol, and {strategy.name} is partitioned by {strategy.partition_by}"
    if strategies:
        stages = distribute(program.program, partitions=partitions, key=SYMBOL).stages
        if not all(by_symbol(program.program, stage) for stage in stages):
            return "a view that they see needs rows of several symbols"
    return None


def strategies_note(why: str | None) -> str:
    """A line that says how strategies run."""
    if why is None:
        return "strategies run in the tasks of their symbols"
    return f"strategies run as one task over all sources: {why}"
