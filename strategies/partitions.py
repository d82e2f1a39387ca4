"""Strategies with `partition_by`: an instance for each symbol or venue, told of its own rows."""

from collections.abc import Sequence

from engine.engine import Engine
from engine.live_view import Key
from engine.subscriptions import ViewEvent
from orderbook.errors import ConfigurationError
from orderbook.instruments import Instruments
from strategies.definition import StrategyDefinition
from strategies.own_rows import key_place
from strategies.runner import Runner
from strategies.strategy import ViewWatch, watches_of


def keys_of(definition: StrategyDefinition, instruments: Instruments) -> Sequence[str | None]:
    """What the instances of a strategy are for, by name; (None,) is one for everything."""
    column = definition.partition_by
    if column is None:
        return (None,)
    return sorted({one.symbol if column == "symbol" else one.venue for one in instruments})


def subscribe_by_key(engine: Engine, definition: StrategyDefinition, runners: Sequence[Runner]) -> None:
    """Subscribe once for all instances of a strategy, and hand each the events of its own rows.

    Raises ConfigurationError as `Runner.subscribe` does, and for a view without the column among its keys.
    """
    column = definition.partition_by
    if column is None or not runners:
        return
    by_key = {runner.key: runner for runner in runners}
    for watch in watches_of(definition.kind):
        place = key_place(engine, watch.view, column) if watch.view in engine.views else 0
        if place is None:
            raise ConfigurationError(
                f"{definition.name}.{watch.method}: partition_by = {column!r}, but the rows of view "
                f"{watch.view} are not told apart by one {column}; group by it, or leave partition_by out"
            )

        def deliver(event: ViewEvent, watch: ViewWatch = watch, place: int = place) -> None:
            runner = by_key.get(str(event.key[place]))
            if runner is not None:
                runner.on_view(watch, event)

        def ignores(key: Key, watch: ViewWatch = watch, place: int = place) -> bool:
            runner = by_key.get(str(key[place]))
            return runner is None or runner.clock.ignores(watch, key)

        runners[0].subscribed(watch, deliver, ignores if watch.every else None)
