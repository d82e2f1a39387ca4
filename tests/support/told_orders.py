"""What is told of the orders of strategies in a pipeline, and all that is known of them by then."""

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from compiled_support import APART
from erratic_feed import flow

from orderbook.market.events import Flag
from orderbook.market.instruments import Instruments
from orderbook.run.pipeline import Pipeline
from orderbook.strategies.execution.account import OrderUpdate
from orderbook.strategies.execution.client import SavedAccount
from orderbook.strategies.execution.order_news import OrderNews
from orderbook.strategies.execution.venue_model import TradingOptions
from orderbook.strategies.gated_engine import GatedEngine
from orderbook.strategies.loop_desks import LoopDesks
from orderbook.strategies.runner import Runner
from orderbook.strategies.strategy import Strategy, StrategyDefinition
from orderbook.views.compilation import compile_views
from orderbook.views.library import packaged_views

KEPT = """
    CREATE VIEW all_orders AS SELECT * FROM orders;
    CREATE VIEW all_fills AS SELECT * FROM fills;
    CREATE VIEW all_positions AS SELECT * FROM positions;
"""
PROGRAM = compile_views([packaged_views() / "touch.sql", KEPT])


def exact(account: SavedAccount) -> Any:
    """What an account knows, in whatever order, and with whatever zeros."""
    known = sorted(account.known, key=lambda one: one[1].id)
    sums = account.traded, account.sent, Decimal(account.worth), Decimal(account.peak)
    return known, account.holdings, account.uncounted, account.ties, *sums


class Told:
    """A pipeline, and what was told of orders in it. late: it is told together, once it has happened."""

    def __init__(
        self, kind: type[Strategy], options: TradingOptions, backend: str, late: bool = False,
        beside: Sequence[type[Strategy]] = (), instruments: Instruments = APART,
    ) -> None:  # fmt: skip
        self.engine = GatedEngine(PROGRAM, backend)
        own = [StrategyDefinition(one) for one in (kind, *beside)]
        self.pipeline = Pipeline(self.engine, instruments, own, trading=options)
        self.engine.grows = False
        self.updates: dict[str, list[Any]] = {}
        self.pipeline.host.observe_orders(self._note, self._note_news if late else None)
        self.pipeline.start()

    def _note(self, runner: Runner, update: OrderUpdate) -> None:
        self.updates.setdefault(runner.identity, []).append((runner.now, update))

    def _note_news(self, runner: Runner, news: OrderNews) -> None:
        told = zip(news.news["now"].tolist(), news.updates(), strict=True)
        self.updates.setdefault(runner.identity, []).extend(told)

    def apply(self, part: np.ndarray) -> None:
        self.pipeline.apply(part, "message")

    @property
    def known(self) -> list[Any]:
        """What is so by now."""
        host = self.pipeline.host.save()
        money = {name: (one.counts, exact(one.account)) for name, one in host.runners.items()}
        rows = [
            sorted((tuple(map(str, row.values())), row.multiplicity) for row in self.engine[view].values())
            for view in ("all_orders", "all_fills", "all_positions")
        ]
        failures = [(one.strategy, str(one.error)) for one in self.pipeline.host.failures]
        strategies = [runner._strategy for runner in self.pipeline.host._runners]
        saw = [getattr(one, "known", None) for one in strategies]
        refused = [one.refusal for one in self.pipeline.host.summary()]
        return [self.updates, money, rows, failures, saw, refused]


@pytest.fixture(params=[0, 5])
def joins(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """After how many orders the loop sends those of a strategy."""

    def joined(desks: LoopDesks, runner: Runner, events: int) -> bool:
        return runner.alive and runner.orders >= request.param

    monkeypatch.setattr(LoopDesks, "_joins", joined)
    number: int = request.param
    return number


def parts_of(seed: int, feed: str, instruments: Instruments = APART) -> list[np.ndarray]:
    """Whole messages, in four parts."""
    events = flow(seed, 260, feed)
    events = events[events["instrument"] < len(instruments)]
    ends = np.flatnonzero(events["flags"] & int(Flag.LAST)) + 1
    return np.split(events, [ends[len(ends) * part // 4] for part in range(1, 4)])
