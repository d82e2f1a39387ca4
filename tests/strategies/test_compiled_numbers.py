"""Numbers in compiled methods: exact as in Python, rounded where they are doubles, and no field overflows."""

from collections.abc import Mapping
from decimal import Decimal as D
from typing import Any, ClassVar

import pytest
from compiled_support import APART, OPTIONS, PROGRAM, in_python  # noqa: F401
from erratic_feed import flow
from strategy_support import INSTRUMENTS

from orderbook import Strategy, compiled, on_view
from orderbook.run.pipeline import Pipeline
from orderbook.strategies.execution.account import OrderUpdate
from orderbook.strategies.gated_engine import GatedEngine
from orderbook.strategies.kept_states import Failure
from orderbook.strategies.runner import Runner
from orderbook.strategies.strategy import StrategyDefinition


class Holding(Strategy):
    partition_by = "symbol"

    @on_view("touch", fire="change")
    @compiled
    def moved(self: Any, row: Any) -> None:
        if row.multiplicity != 0 and row.has_imbalance:
            self.hold(3 * self.lot if row.imbalance > 0.2 else -2 * self.lot if row.imbalance < -0.2 else 0)


class PlainHolding(Strategy):
    partition_by = "symbol"

    @on_view("touch", fire="change")
    def moved(self, event: Any) -> None:
        row = event.new
        if row is not None and row.imbalance is not None:
            lot = self.instrument(row.symbol, row.venue).lot
            target = 3 if row.imbalance > 0.2 else -2 if row.imbalance < -0.2 else 0
            # A target may be a float.
            self.hold(row.symbol, float(target * lot) if target > 0 else target * lot, row.venue)


class Exact(Strategy):
    partition_by = "symbol"

    @on_view("touch", fire="change")
    @compiled
    def moved(self: Any, row: Any) -> None:
        if row.multiplicity != 0 and row.has_imbalance:
            order = self.buy(3 * self.lot, row.bid - self.tick)
            self.modify(order, price=row.bid)
            self.sell(self.lot, row.ask, ioc=True)


class Doubles(Strategy):
    """The same in doubles, which are next to these numbers."""

    partition_by = "symbol"
    part: float = 1 / 49

    @on_view("touch", fire="change")
    @compiled
    def moved(self: Any, row: Any) -> None:
        if row.multiplicity != 0 and row.has_imbalance:
            order = self.buy(3 * self.lot * self.part * 49.0, (row.bid - self.tick) * self.part * 49.0)
            self.modify(order, price=row.bid * self.part * 49.0)
            self.sell(self.lot * self.part * 49.0, row.ask * self.part * 49.0, ioc=True)


@pytest.mark.parametrize("options", ["at once", "late"])
def test_doubles_that_orders_are_sent_with_are_rounded(options: str) -> None:
    own = told_of(Doubles, options)
    assert own == told_of(Exact, options)
    assert len(own[0]) > 20 and not any(update.new.status == "refused" for _, update in own[0])


class Summing(Strategy):
    """Sums what is bid until no field holds it, and orders meanwhile."""

    partition_by = "symbol"
    micro: int = 0
    total: int = 0

    @on_view("touch", fire="change")
    @compiled
    def moved(self: Any, row: Any) -> None:
        if row.multiplicity != 0 and row.has_imbalance:
            weights = row.bid_volume + row.ask_volume
            self.micro = (row.bid * row.ask_volume + row.ask * row.bid_volume) // weights
            self.total += row.bid * row.bid_volume // 4
            if self.micro * 2 > row.bid + row.ask:
                self.buy(self.lot)
            else:
                self.sell(self.lot)


class SummingApart(Summing):
    """Python calls its method."""


class PlainSumming(Strategy):
    partition_by = "symbol"
    micro, total = 0, 0

    @on_view("touch", fire="change")
    def moved(self, event: Any) -> None:
        row = event.new
        if row is not None and row.imbalance is not None:
            bid, bid_volume, ask, ask_volume = (
                int(one * 10**8) for one in (row.bid, row.bid_volume, row.ask, row.ask_volume)
            )
            self.micro = (bid * ask_volume + ask * bid_volume) // (bid_volume + ask_volume)
            self.total += bid * bid_volume // 4
            if self.total >= 2**63:
                raise OverflowError
            lot = self.instrument(row.symbol, row.venue).lot
            (self.buy if self.micro * 2 > bid + ask else self.sell)(row.symbol, lot)


def told_of(kind: type[Strategy], options: str) -> tuple[list[Any], list[Any], list[Failure]]:
    """What a strategy was told of its orders, in an order of no meaning; its counts of them; its failures."""
    definition = StrategyDefinition(kind, label="s")
    pipeline = Pipeline(GatedEngine(PROGRAM, "numba"), APART, [definition], trading=OPTIONS[options])
    pipeline.engine.grows = False
    updates: list[Any] = []

    def note(runner: Runner, update: OrderUpdate) -> None:
        updates.append((runner.now, update))

    pipeline.host.observe_orders(note)
    pipeline.start()
    pipeline.apply(flow(4, 300, "levels"), "message")
    counts = [one.counts[1:] for one in pipeline.host.save().runners.values()]
    pipeline.finish()
    return sorted(updates, key=str), counts, list(pipeline.host.failures)


class Sized(Strategy):
    """Sizes, prices and thresholds as doubles, in the units of relations."""

    defaults: ClassVar[Mapping[str, Any]] = {"size": 0.3, "most": 2.0, "off": 0.02}
    partition_by = "symbol"

    @on_view("touch", fire="change")
    def moved(self, event: Any) -> None:
        row, own = event.new, self.parameters
        if row is not None and row.imbalance is not None and self.position(row.symbol) < own["most"]:
            self.buy(row.symbol, own["size"], row.bid - D(str(own["off"])), row.venue)
            self.sell(row.symbol, own["size"], venue=row.venue)


class SizedCompiled(Strategy):
    """The same, compiled: as a Decimal, by a factor, and beside an amount that is made a double."""

    defaults: ClassVar[Mapping[str, Any]] = {"size": D("0.3"), "most": 2.0, "off": 0.02}
    partition_by = "symbol"
    scale: float = 1e8

    @on_view("touch", fire="change")
    @compiled
    def moved(self: Any, row: Any) -> None:
        if row.multiplicity != 0 and row.has_imbalance and self.position * 1e-8 < self.most:
            self.buy(self.size, row.bid - round(self.off * 1e8))
            self.sell(round(0.3 * self.scale))


@pytest.mark.parametrize("options", ["at once", "late"])
def test_doubles_of_either_form_are_the_same_amounts(options: str) -> None:
    own = told_of(SizedCompiled, options)
    assert own == told_of(Sized, options)
    assert len(own[0]) > 20 and any(update.fills for _, update in own[0]) and not own[2]


@pytest.mark.parametrize("options", ["at once", "late"])
def test_a_position_is_held_as_in_python(options: str) -> None:
    own = told_of(Holding, options)
    assert own == told_of(PlainHolding, options)
    assert len(own[0]) > 20 and not own[2]


@pytest.mark.parametrize("options", ["at once", "late"])
def test_integers_are_those_of_python_and_what_no_field_holds_disables(
    options: str,
    in_python: list[str],  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found, called = [], []
    for kind in (PlainSumming, Summing, SummingApart):
        in_python.clear()
        monkeypatch.setattr(Runner, "runs_in_loop", kind is Summing)
        told, counts, failures = told_of(kind, options)
        found.append((told, counts, [(one.strategy, one.method, type(one.error)) for one in failures]))
        if kind is not PlainSumming:
            errors = {str(one.error).partition(":")[0] for one in failures}
            line = Summing.moved.__code__.co_firstlineno + 6
            assert errors == {f"line {line}"}
        called.append(len(in_python))
    # Where a book is not valid Python calls the one, too.
    assert 0 == called[0] < 4 * called[1] < called[2]
    # The number of an order that was asked for with the failure is taken.
    assert found[0][::2] == found[1][::2] and found[1] == found[2]
    assert len(found[0][0]) > 20 and found[0][2]


def test_integers_divided_by_zero_are_zero() -> None:
    class Divides(Strategy):
        n: int = 1
        rest: int = 1

        @on_view("touch", fire="change")
        @compiled
        def moved(self: Any, row: Any) -> None:
            self.n = row.bid // (self.n - self.n)
            self.rest = row.bid % (self.rest - self.rest)

    pipeline = Pipeline(GatedEngine(PROGRAM, "numba"), INSTRUMENTS, [StrategyDefinition(Divides)])
    pipeline.start()
    pipeline.apply(flow(1, 60, "levels"), "message")
    (runner,) = pipeline.host._runners
    assert runner.callbacks > 0 and (runner._strategy.n, runner._strategy.rest) == (0, 0)  # type: ignore[union-attr]
