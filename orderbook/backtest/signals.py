"""Which columns of views strategies go by: those that their reports compare with what the market did next."""

from collections.abc import Iterable, Mapping

from sqlglot import exp

from orderbook.backtest.samples import Signal
from orderbook.errors import ConfigurationError
from strategies.definition import StrategyDefinition
from strategies.strategy import watches_of
from views.compiler.binding.dialect import parse
from views.compiler.program import CompiledProgram
from views.compiler.types import Kind

_NUMBERS = (Kind.INTEGER, Kind.DECIMAL, Kind.DOUBLE)


def signals_of(definitions: Iterable[StrategyDefinition], program: CompiledProgram) -> tuple[Signal, ...]:
    """The signals of strategies, each once. Raises ConfigurationError for a `signal` that is no column."""
    columns = {
        view.name: [c.name for c in program.program.result(view.name).columns if c.type.kind in _NUMBERS]
        for view in program.views
    }
    found = (signal_of(definition, columns) for definition in definitions)
    return tuple(dict.fromkeys(signal for signal in found if signal is not None))


def signal_of(definition: StrategyDefinition, columns: Mapping[str, list[str]]) -> Signal | None:
    """The class's `signal`, else the first column of numbers that a condition of it names; None without one.

    columns: those of numbers, by view.
    """
    stated = definition.kind.signal
    if stated is not None:
        view, _, column = stated.partition(".")
        if column not in columns.get(view, ()):
            raise ConfigurationError(
                f"{definition.name}: signal = {stated!r}: no view has that column of numbers; "
                "give VIEW.COLUMN"
            )
        return Signal(view, column)
    for watch in watches_of(definition.kind):
        if watch.when is not None and watch.view in columns:
            (statement,) = parse(None, f"SELECT 1 WHERE {watch.when}")
            for named in statement.tree.find_all(exp.Column):
                if named.name.lower() in columns[watch.view]:
                    return Signal(watch.view, named.name.lower())
    return None
