"""Messages between those that can matter to orders and clocks are passed over: with the same outcome as where
every message is told to everyone."""

from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from erratic_feed import flow
from everywhere_support import Erratic, ErraticTogether
from simulation_support import trading
from strategy_support import INSTRUMENTS

from orderbook.durability.run_checkpoint import RunCheckpoint, load_checkpoint, save_checkpoint
from orderbook.engine.checkpoint import newest_checkpoint
from orderbook.engine.log.segments import Position
from orderbook.engine.runtime.engine_state import program_hash
from orderbook.market.events import Flag
from orderbook.run.pipeline import Pipeline
from orderbook.strategies.execution.account import OrderUpdate
from orderbook.strategies.execution.venue_model import TradingOptions
from orderbook.strategies.gated_engine import GatedEngine
from orderbook.strategies.strategy import PartitionBy, Strategy, StrategyDefinition, on_timer, on_view
from orderbook.views.compilation import compile_views
from orderbook.views.library import packaged_views

PROGRAM = compile_views([packaged_views() / f"{name}.sql" for name in ("touch", "micro_price")])
OPTIONS = {
    "at once": trading(),
    "late": trading(
        order_latency=["0ms", "2ms", "9ms"], response_latency={"median": "3ms", "sigma": 1},
        feed_latency="1ms", queue="proportional", fees={"maker": -1, "taker": 4},
    ),
    "careful": trading({"max_position": 40, "max_drawdown": 3}, response_latency="4ms"),
}  # fmt: skip


class Patient(Strategy):
    """Has orders rest at the best prices and behind, and waits."""

    partition_by = "symbol"
    told: ClassVar[list[Any]] = []

    def on_book_state(self, state: Any) -> None:
        one = self.instrument(state.symbol, state.venue)
        for side, price, lots in ((self.buy, 9_998, 90), (self.buy, 9_999, 40), (self.sell, 10_001, 60)):
            side(state.symbol, lots * one.lot, price * one.tick, state.venue)

    def on_order_update(self, order: Any) -> None:
        Patient.told.append((self.now, order))


def outcome(kinds: list[type[Strategy]], options: TradingOptions, parts: list[np.ndarray]) -> Any:
    """What strategies were told and what became of their orders."""
    pipeline = Pipeline(
        GatedEngine(PROGRAM, "interpreter"), INSTRUMENTS,
        [StrategyDefinition(kind, {"volume": 1}) for kind in kinds], trading=options,
    )  # fmt: skip
    updates: list[Any] = []

    def note(runner: Any, update: OrderUpdate) -> None:
        updates.append((runner.identity, runner.now, update))

    pipeline.host.observe_orders(note)
    Patient.told.clear()
    pipeline.start()
    for part in parts:
        pipeline.apply(part, "message")
    saved = pipeline.host.save()
    pipeline.finish()
    assert pipeline.host.failures == []
    views = {view: sorted(map(repr, pipeline.engine[view].items())) for view in pipeline.engine.views}
    states = [getattr(runner._strategy, "state", None) for runner in pipeline.host._runners]
    clocks = {name: (one.clock, one.counts, one.account.holdings) for name, one in saved.runners.items()}
    return updates, list(Patient.told), states, pipeline.host.summary(), views, clocks


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("name", "feed"), [("at once", "prints"), ("late", "orders"), ("late", "levels"), ("careful", "levels")]
)
def test_what_is_passed_over_matters_to_nobody(
    name: str, feed: str, sample_seed: int, sample_count: int
) -> None:
    groups: list[list[type[Strategy]]] = [[Patient], [Erratic, ErraticTogether]]
    for seed in range(sample_seed, sample_seed + max(1, sample_count // 50)):
        events = flow(seed, 130, feed)
        ends = np.flatnonzero(events["flags"] & int(Flag.LAST)) + 1
        for kinds in groups:
            plain = outcome(kinds, OPTIONS[name], np.split(events, ends[:-1]))
            assert any(update.fills for *_, update in plain[0])
            assert outcome(kinds, OPTIONS[name], np.split(events, [50 + seed % 200])) == plain


class Clocked(Strategy):
    """Tells everything that it is told and when, and orders by nothing else."""

    partition_by: ClassVar[PartitionBy | None] = "symbol"
    told: ClassVar[list[Any]] = []

    def note(self, *what: object) -> None:
        Clocked.told.append((type(self).__name__, self.partition, self.now, what))

    @on_timer("5ms")
    def tick(self) -> None:
        self.note("timer")

    @on_view("touch", fire="change", every="20ms")
    def touched(self, event: Any) -> None:
        self.note("touch", event.key, event.new and event.new.bid)

    def on_trade(self, trade: Any) -> None:
        self.note(trade)
        one = self.instrument(trade.symbol, trade.venue)
        (self.buy if trade.volume > one.lot else self.sell)(trade.symbol, one.lot, trade.price, trade.venue)

    def on_order_update(self, order: Any) -> None:
        self.note(order, self.position(order.symbol))

    def on_stop(self) -> None:
        self.note("stop")


class OfVenue(Clocked):
    """The same for each venue."""

    partition_by = "venue"


def test_a_run_goes_on_alike_from_a_checkpoint(tmp_path: Path, sample_seed: int) -> None:
    """Timers, orders and the ends of partitions, too, where the clock is ahead of the next message."""
    events = flow(sample_seed, 150, "orders")
    ends = (np.flatnonzero(events["flags"] & int(Flag.LAST)) + 1).tolist()
    kinds = [StrategyDefinition(kind) for kind in (Clocked, OfVenue)]

    def begun() -> Pipeline:
        engine = GatedEngine(PROGRAM, "interpreter")
        return Pipeline(engine, INSTRUMENTS, kinds, trading=OPTIONS["late"])

    def told(pipeline: Pipeline, part: np.ndarray) -> list[Any]:
        Clocked.told.clear()
        pipeline.apply(part)
        return list(Clocked.told)

    whole, heard = begun(), 0
    whole.start()
    for start, end in pairwise([0, *ends[9::9], len(events)]):
        if start:
            position = Position(start)
            run = RunCheckpoint(position, start, tuple(INSTRUMENTS), {}, True)
            save_checkpoint(tmp_path, whole, whole.engine.program, run, keep=1)
            again = begun()
            found = newest_checkpoint(tmp_path, program_hash(PROGRAM))
            assert found is not None
            load_checkpoint(found, again)
            expected = told(whole, events[start:end])
            assert told(again, events[start:end]) == expected
            heard += bool(expected)
            assert again.host.summary() == whole.host.summary()
            Clocked.told.clear()
            again.finish()
            stopped = list(Clocked.told)
        else:
            told(whole, events[start:end])
    assert heard > 10
    Clocked.told.clear()
    whole.finish()
    assert Clocked.told == stopped and {row[2] for row in stopped if row[3] == ("stop",)}
