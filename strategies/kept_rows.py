"""The rows of `orders`, `fills` and `positions` of a strategy, where Python brings them into the engine."""

from collections.abc import Callable, Iterable
from typing import Any

from orderbook.engine.runtime.engine import Engine
from orderbook.strategies.execution.account import Fill, Order, OrderUpdate, Position, row_of
from orderbook.strategies.gated_engine import GatedEngine


class KeptRows:
    """The rows of one strategy, told as they change; `own_name`: what its SQL calls it, None: by its name.

    held: called with each new row of `positions`, before the engine has it.
    """

    def __init__(
        self, engine: Engine, strategy: str, own_name: str | None, held: Callable[[Position], object]
    ) -> None:
        self._engine, self._strategy, self._own_name, self._held = engine, strategy, own_name, held
        # By venue and symbol.
        self.positions: dict[tuple[str, str], Position] = {}

    def go_on(self, positions: Iterable[Position]) -> None:
        """These are the rows of `positions`."""
        self.positions = {(one.venue, one.symbol): one for one in positions}

    def publish(self, update: OrderUpdate) -> None:
        """Brings a change of an order, and its fills, into the relations."""
        engine = self._engine
        if self._takes("orders"):
            if update.old is None:
                engine.insert("orders", self._row(update.new))
            else:
                engine.update("orders", self._row(update.old), self._row(update.new))
        for fill in update.fills if update.fills and self._takes("fills") else ():
            engine.insert("fills", self._row(fill))
        for fill in update.fills if update.fills and self._takes("positions") else ():
            self._hold(fill)

    def _takes(self, relation: str) -> bool:
        return not isinstance(self._engine, GatedEngine) or self._engine.takes(relation)

    def _hold(self, fill: Fill) -> None:
        """Brings a fill into the relation `positions`."""
        engine, key = self._engine, (fill.venue, fill.symbol)
        old = self.positions.get(key)
        new = self.positions[key] = (old or Position(self._strategy, *key)).after(fill)
        self._held(new)
        if old is None:
            engine.insert("positions", self._row(new))
        else:
            engine.update("positions", self._row(old), self._row(new))

    def _row(self, value: Order | Fill | Position) -> dict[str, Any]:
        """Its row in a relation, under the name that the SQL of a strategy sees."""
        row = row_of(value)
        return row if self._own_name is None else {**row, "strategy": self._own_name}
