"""What is kept of an instance of a strategy: state, runner in a checkpoint, rows of relations, failure."""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

from orderbook.engine.runtime.engine import Engine
from orderbook.strategies.clock import SavedClock
from orderbook.strategies.compiled import CompiledMethods
from orderbook.strategies.execution.account import Fill, Order, OrderUpdate, Position, row_of
from orderbook.strategies.execution.client import SavedAccount
from orderbook.strategies.gated_engine import GatedEngine
from orderbook.strategies.strategy import Strategy

# Of what `on_save` gives; it is logged after every message that a strategy is called for.
MOST_STATE_BYTES = 4 << 20

_logger = logging.getLogger("orderbook.strategies")


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a strategy was disabled: in which method, by what, and the traceback as text."""

    strategy: str
    method: str
    error: Exception
    traceback: str

    def __str__(self) -> str:
        return f"{self.strategy}.{self.method} raised {type(self.error).__name__}: {self.error}"


class SavedRunner(msgspec.Struct, frozen=True):
    """A runner in a checkpoint: callbacks, orders, refused and fills so far, what its client knows, its
    clock, whether it had been started, and not stopped, at what prices its compiled methods have asked for
    open orders, 1e-8, and its first order that was refused and how often its positions were closed, as of
    StrategySummary."""

    failed: bool
    counts: tuple[int, int, int, int]
    account: SavedAccount
    clock: SavedClock
    started: bool = True
    asked: dict[int, int] = {}
    refusal: tuple[int, int, str] | None = None
    liquidations: int = 0


def identity_of(strategy: str, key: str | None) -> str:
    """What tells an instance of a strategy from others; `key`: what it is partitioned by."""
    return strategy if key is None else f"{strategy}[{key}]"


class KeptStates:
    """Takes and hands back the states of one instance, told from others by its `identity`.

    compiled: has the fields that are its state, where its class has no methods of its own for that.
    """

    def __init__(self, identity: str, kind: type[Strategy], compiled: CompiledMethods | None) -> None:
        self._identity = identity
        self._saves = None if kind.on_save is not Strategy.on_save else compiled
        self._loads = None if kind.on_load is not Strategy.on_load else compiled
        # Why what `on_save` gave last was not taken.
        self._unsaved = ""

    def take(self, strategy: Strategy) -> bytes | None:
        """What `on_save` gives. Where it raises, or gives what cannot be kept, the log says so once, and the
        state before stays the last."""
        try:
            state = strategy.on_save()
            if self._saves is not None:
                state = self._saves.save()
            kept = None if state is None else _bytes_of(state)
        except Exception as error:
            self.keep_before(f"on_save raised {type(error).__name__}: {error}")
            return None
        if isinstance(kept, str):
            self.keep_before(kept)
            return None
        self._unsaved = ""
        return kept

    def keep_before(self, problem: str) -> None:
        """What `on_save` gave cannot be kept; said once until something else is wrong."""
        if problem != self._unsaved:
            self._unsaved = problem
            _logger.error(
                "%s: its state is not saved: %s; a restart would go on from the state saved before",
                self._identity, problem,
            )  # fmt: skip

    def load(self, strategy: Strategy, state: bytes) -> None:
        """Hands it what was kept; raises what `on_load` does."""
        if self._loads is not None:
            self._loads.load(state)
        else:
            strategy.on_load(state)


def _bytes_of(state: object) -> bytes | str:
    """A state that is kept, or why it cannot be."""
    if not isinstance(state, bytes | bytearray | memoryview):
        return (
            f"on_save gave {type(state).__name__}, not bytes; encode it, such as with "
            "json.dumps(...).encode(), or msgspec.msgpack.encode(...)"
        )
    found = bytes(state)
    if len(found) > MOST_STATE_BYTES:
        return f"on_save gave {len(found):,} bytes, and the most is {MOST_STATE_BYTES:,}"
    return found


class KeptRows:
    """The rows of `orders`, `fills` and `positions` of a strategy, where Python brings them into the engine.

    own_name: what its SQL calls it, None: by its name. held: called with each new row of `positions`, before
    the engine has it.
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
