"""Strategies in SQL that read `orders`, `fills` and `positions` give in the loop what they give beside it.

The plain rules, called by Python in the interpreter, are the oracle of orders, of what is told of them, of
money and of the rows of the three relations.
"""

from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from erratic_feed import flow
from plain_orders import plain_strategies
from simulation_support import trading
from strategy_support import INSTRUMENTS

from orderbook.durability.run_checkpoint import RunCheckpoint, load_checkpoint, save_checkpoint
from orderbook.engine.checkpoint import newest_checkpoint
from orderbook.engine.log.segments import Position
from orderbook.engine.runtime.engine_state import program_hash
from orderbook.market.events import Flag
from orderbook.market.instruments import Instruments
from orderbook.run.pipeline import Pipeline
from orderbook.strategies.execution.account import OrderUpdate
from orderbook.strategies.execution.order_news import OrderNews
from orderbook.strategies.execution.relation_rows import DAY
from orderbook.strategies.execution.venue_model import TradingOptions
from orderbook.strategies.gated_engine import GatedEngine
from orderbook.strategies.loop_reasons import loop_notes
from orderbook.strategies.order_views import OrderView, strategies_of
from orderbook.strategies.runner import Runner
from orderbook.strategies.strategy import Strategy, StrategyDefinition, compiled, on_timer, on_view
from orderbook.views.compilation import compile_views
from orderbook.views.library import packaged_views
from orderbook.views.program import CompiledProgram

KEPT = """
    CREATE VIEW all_orders AS SELECT * FROM orders;
    CREATE VIEW all_fills AS SELECT * FROM fills;
    CREATE VIEW all_positions AS SELECT * FROM positions;
    CREATE VIEW as_post_only AS SELECT COUNT(*) AS n FROM orders WHERE reason LIKE '%post-only%';
"""
# What is held, is open and was filled decides what is asked for, of one symbol and of all.
SQL = {
    "position": """
        CREATE STRATEGY made WITH (refill, min_life = '5ms') AS
        SELECT t.venue, t.symbol, 'buy' AS side, t.bid AS price, 0.7 AS volume, 'post only' AS kind
        FROM touch t LEFT JOIN positions p ON p.venue = t.venue AND p.symbol = t.symbol
        WHERE COALESCE(p.volume, 0) < 2
        UNION ALL
        SELECT t.venue, t.symbol, 'sell' AS side, t.ask AS price, 0.5 + p.volume / 7 AS volume,
               'limit' AS kind
        FROM touch t JOIN positions p ON p.venue = t.venue AND p.symbol = t.symbol WHERE p.volume > 0.3;
    """,
    "orders and fills": """
        CREATE STRATEGY made WITH (max_requests = 60, refill) AS
        WITH open AS (SELECT venue, symbol, COUNT(*) AS n FROM orders WHERE status = 'resting' GROUP BY ALL),
             paid AS (SELECT symbol, SUM(fee) AS fees, COUNT(*) AS n FROM fills WHERE liquidity = 'taker'
                      GROUP BY symbol)
        SELECT t.venue, t.symbol, 'buy' AS side, 1 AS tag, t.bid - 0.01 * COALESCE(o.n, 0) AS price,
               1 + COALESCE(p.fees, 0) AS volume, 'limit' AS kind
        FROM touch t LEFT JOIN open o ON o.venue = t.venue AND o.symbol = t.symbol
        LEFT JOIN paid p ON p.symbol = t.symbol
        UNION ALL
        SELECT t.venue, t.symbol, 'sell' AS side, 2 AS tag, NULL AS price, 0.3 AS volume, 'limit' AS kind
        FROM touch t LEFT JOIN open o ON o.venue = t.venue AND o.symbol = t.symbol WHERE t.imbalance < 0;
    """,
    "all symbols": """
        CREATE STRATEGY made WITH (refill) AS
        SELECT t.venue, t.symbol, CASE WHEN t.imbalance > 0 THEN 'buy' ELSE 'sell' END AS side,
               CASE WHEN t.imbalance > 0 THEN t.ask ELSE t.bid END AS price, 0.4 AS volume, 'ioc' AS kind
        FROM touch t WHERE (SELECT COALESCE(SUM(ABS(volume)), 0) FROM positions) < 4;
        CREATE STRATEGY other AS
        SELECT t.venue, t.symbol, 'sell' AS side, t.ask AS price,
               1 + (SELECT COUNT(*) FROM fills) * 0.1 AS volume, 'limit' AS kind FROM touch t
        WHERE NOT EXISTS (SELECT 1 FROM orders o WHERE o.symbol = t.symbol AND o.reason IS NOT NULL
                          AND o.status = 'refused');
    """,
}
APART = Instruments([one for one in INSTRUMENTS if one.venue == INSTRUMENTS[0].venue])
D = Decimal
FEES = {"maker": D("-0.5"), "taker": D("7.5"), "venues": {"X": {"maker": D("1.25"), "taker": D("0.333")}}}
LIMITS = {
    "max_position": D("1.9"), "max_order_volume": D("1.2"), "max_notional": D(160),
    "max_orders_per_second": 90,
}  # fmt: skip
TIERED = {
    "bps": {
        "maker": 2, "taker": 5, "traded": D("0.5"),
        "tiers": [{"volume": D(1), "maker": D("-1"), "taker": D("4.5")},
                  {"volume": D(300), "maker": D("0.125"), "taker": 4},
                  {"volume": D(900), "maker": 0, "taker": D("3.3")}],
    },
    "lot": {"taker": D("0.01"), "unit": "lot",
            "tiers": [{"volume": D(200), "maker": D("0.003"), "taker": D("0.002")}]},
}  # fmt: skip
OPTIONS = {
    "at once": trading(fees=FEES),
    "late": trading(order_latency="3ms", response_latency="2ms", fees={"taker": D("0.015"), "unit": "lot"}),
    "drawn, limited": trading(
        LIMITS, order_latency=["0ms", "2ms", "9ms"], response_latency={"median": "3ms", "sigma": 1}, fees=FEES
    ),
}


class Takes(Strategy):
    """Is called by Python beside rules in SQL, and takes now and then."""

    partition_by = "symbol"

    def __init__(self) -> None:
        self.seen = 0

    @on_view("touch", fire="change")
    def moved(self, event: Any) -> None:
        self.seen += 1

    def on_trade(self, trade: Any) -> None:
        if self.seen % 3 == 0:
            self.buy(trade.symbol, self.instrument(trade.symbol).lot, trade.price, time_in_force="ioc")


class Told:
    """A pipeline, and what was told of orders in it. late: it is told together, once it has happened."""

    def __init__(
        self, program: CompiledProgram, strategies: Sequence[StrategyDefinition], options: TradingOptions,
        backend: str, late: bool = False,
    ) -> None:  # fmt: skip
        self.engine = GatedEngine(program, backend)
        self.pipeline = Pipeline(self.engine, APART, strategies, trading=options)
        self.engine.grows = False
        self.updates: dict[str, list[Any]] = {}
        self.pipeline.host.observe_orders(self._note, self._note_news if late else None)

    def _note(self, runner: Runner, update: OrderUpdate) -> None:
        self.updates.setdefault(runner.identity, []).append((runner.now, update))

    def _note_news(self, runner: Runner, news: OrderNews) -> None:
        told = zip(news.news["now"].tolist(), news.updates(), strict=True)
        self.updates.setdefault(runner.identity, []).extend(told)

    def apply(self, part: np.ndarray) -> Any:
        """What is so after some messages."""
        self.pipeline.apply(part, "message")
        host = self.pipeline.host.save()
        money = {name: (one.counts, one.account.holdings) for name, one in host.runners.items()}
        assert self.pipeline.host.failures == []
        rows = {
            name: self.rows(name) for name in ("all_orders", "all_fills", "all_positions", "as_post_only")
        }
        return self.updates, money, rows, self.engine.sequence

    def rows(self, view: str) -> list[Any]:
        """The rows of a view."""
        return sorted((tuple(map(str, row.values())), row.multiplicity) for row in self.engine[view].values())


def whole_messages(events: np.ndarray, parts: int) -> list[np.ndarray]:
    """Events in parts that end with messages."""
    ends = np.flatnonzero(events["flags"] & int(Flag.LAST)) + 1
    return np.split(events, [ends[len(ends) * part // parts] for part in range(1, parts)])


@pytest.fixture(scope="module", params=list(SQL))
def program(request: pytest.FixtureRequest) -> CompiledProgram:
    return compile_views([packaged_views() / "touch.sql", KEPT, SQL[request.param]])


FEEDS = ("orders", "levels")
# Options have one feed in turn, and the other when it is exhaustive.
FED = [
    pytest.param(options, feed, marks=[pytest.mark.exhaustive] * ((number + place) % 2))
    for number, options in enumerate(OPTIONS)
    for place, feed in enumerate(FEEDS)
]


@pytest.mark.sampled(6)
@pytest.mark.parametrize(("options", "feed"), FED)
def test_what_is_kept_of_orders_decides_in_the_loop_as_in_python(
    program: CompiledProgram,
    options: str,
    feed: str,
    sample_seed: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    noted, note = [0], OrderView.note

    def count(own: OrderView, event: Any) -> None:
        noted[0] += 1
        note(own, event)

    monkeypatch.setattr(OrderView, "note", count)
    events = flow(sample_seed + FEEDS.index(feed), 260, feed)
    parts = whole_messages(events[events["instrument"] < len(APART)], 4)
    plain = Told(program, plain_strategies(program), OPTIONS[options], "interpreter")
    made, noted[0] = Told(program, strategies_of(program), OPTIONS[options], "numba"), 0
    plain.pipeline.start()
    made.pipeline.start()
    for place, part in enumerate(parts):
        expected = plain.apply(part)
        assert made.apply(part) == expected
        if place == 1:
            position = Position(0)
            run = RunCheckpoint(position, 0, tuple(APART), made.pipeline.host.take_states(), True)
            save_checkpoint(tmp_path, made.pipeline, program, run, keep=1)
            made = Told(program, strategies_of(program), OPTIONS[options], "numba")
            found = newest_checkpoint(tmp_path, program_hash(program))
            assert found is not None
            made.pipeline.host.restore_states(load_checkpoint(found, made.pipeline).states)
            made.updates = {name: [*own] for name, own in plain.updates.items()}
    assert any(update.fills for own in plain.updates.values() for _, update in own)
    calls = sum(one.callbacks for one in plain.pipeline.host.summary())
    assert noted[0] < 0.7 * calls


def test_rules_that_python_looks_at_beside_the_loop_keep_the_numbers_of_their_orders() -> None:
    """At a message that Python went on with nobody asked for anything, and the next is looked at anew."""
    program = compile_views([packaged_views() / "touch.sql", KEPT, SQL["orders and fills"]])
    events = flow(6, 260, "levels")
    (half, _) = whole_messages(events[events["instrument"] < len(APART)], 2)
    beside, options = StrategyDefinition(Takes), OPTIONS["late"]
    plain = Told(program, [*plain_strategies(program), beside], options, "interpreter")
    late = Told(program, [*strategies_of(program), beside], options, "numba", late=True)
    for one in (plain, late):
        one.pipeline.start()
    assert late.apply(half) == plain.apply(half)


BY_THE_CLOCK = """
    CREATE VIEW printed AS
    SELECT symbol, COUNT(*) AS n FROM trades WHERE ts > NOW() - INTERVAL '1 second' GROUP BY symbol;
    CREATE STRATEGY made WITH (refill) AS
    SELECT t.venue, t.symbol, 'buy' AS side, 1 AS tag, t.bid AS price, 0.3 AS volume
    FROM touch t JOIN printed p ON p.symbol = t.symbol
    UNION ALL
    SELECT venue, symbol, 'sell' AS side, 2 AS tag, ask AS price, 0.2 AS volume FROM touch;
"""


def test_what_a_tick_changes_is_asked_for_at_the_tick(sample_seed: int) -> None:
    """Python applies ticks, between messages of the loop; so it does a start after a stop."""
    program = compile_views([packaged_views() / "touch.sql", BY_THE_CLOCK])
    events = flow(sample_seed, 300, "levels")
    events = events[events["instrument"] < len(APART)]
    for name in ("exchange_time", "receive_time"):
        events[name] *= 25
    parts = whole_messages(events, 2)
    for options in OPTIONS.values():
        plain = Told(program, plain_strategies(program), options, "interpreter")
        made = Told(program, strategies_of(program), options, "numba")
        for one in (plain, made):
            for part in parts:
                one.pipeline.start()
                one.pipeline.apply(part, "message")
                one.pipeline.host.stop()
        assert made.updates == plain.updates and plain.updates


@pytest.mark.parametrize("options", list(OPTIONS))
def test_rows_that_no_view_reads_are_events_too(options: str, sample_seed: int) -> None:
    """Where views may be added what strategies are told is kept, whoever reads it."""
    program = compile_views([packaged_views() / "touch.sql", SQL["position"]])
    events = flow(sample_seed, 200, "levels")
    made = Told(program, strategies_of(program), OPTIONS[options], "numba")
    plain = Told(program, plain_strategies(program), OPTIONS[options], "interpreter")
    for one in (plain, made):
        one.engine.grows = True
        one.pipeline.start()
        one.pipeline.apply(events[events["instrument"] < len(APART)], "message")
    assert (made.updates, made.engine.sequence) == (plain.updates, plain.engine.sequence)
    assert any(update.fills for own in plain.updates.values() for _, update in own)
    runner = made.pipeline.host._runners[0]
    assert runner.desk.row["relations"] != 0


LIMITED = {
    "three orders": """
        CREATE STRATEGY made WITH (refill) AS
        SELECT venue, symbol, 'buy' AS side, 1 AS tag, bid AS price, 0.3 + bid_volume / 10 AS volume
        FROM touch
        UNION ALL
        SELECT venue, symbol, 'buy' AS side, 2 AS tag, NULL AS price, 0.2 AS volume FROM touch
        WHERE imbalance > 0.2
        UNION ALL
        SELECT venue, symbol, 'sell' AS side, 3 AS tag, ask AS price, 0.3 AS volume FROM touch
        WHERE imbalance < 0.2;
    """,
    # What is open beside an order counts; and one so far away is worth more than what it reduces.
    "open beside": """
        CREATE STRATEGY made WITH (refill) AS
        SELECT venue, symbol, 'buy' AS side, 1 AS tag, bid AS price, 1 AS volume FROM touch
        UNION ALL
        SELECT venue, symbol, 'buy' AS side, 2 AS tag, bid - 0.5 AS price, 1 AS volume FROM touch
        UNION ALL
        SELECT venue, symbol, 'buy' AS side, 3 AS tag, NULL AS price, 1 AS volume FROM touch
        WHERE imbalance > 0.2
        UNION ALL
        SELECT venue, symbol, 'sell' AS side, 4 AS tag, ask + 300 AS price, 1 AS volume FROM touch;
    """,
}


@pytest.fixture(scope="module")
def limited() -> dict[str, CompiledProgram]:
    return {name: compile_views([packaged_views() / "touch.sql", sql]) for name, sql in LIMITED.items()}


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("orders", "limit", "value"),
    [("three orders", "max_order_volume", D("0.2")), ("three orders", "max_position", D("0.9")),
     ("three orders", "max_notional", D(95)), ("three orders", "max_orders_per_second", 2),
     ("three orders", "max_drawdown", D("0.004")),
     ("open beside", "max_position", D(2)), ("open beside", "max_notional", D(250))],
)  # fmt: skip
def test_limits_refuse_in_the_loop_what_they_refuse_in_python(
    limited: dict[str, CompiledProgram], orders: str, limit: str, value: Any, sample_seed: int
) -> None:
    program = limited[orders]
    events = flow(sample_seed, 200, "levels")
    events = events[events["instrument"] < len(APART)]
    # Long enough for the second in which orders count to pass, and in steps of which it is a multiple.
    for name in ("exchange_time", "receive_time"):
        events[name] *= 25
    options = trading({limit: value}, order_latency="75ms", response_latency="25ms")
    made = Told(program, strategies_of(program), options, "numba")
    plain = Told(program, plain_strategies(program), options, "interpreter")
    for one in (plain, made):
        one.pipeline.start()
        one.pipeline.apply(events, "message")
    assert made.updates == plain.updates
    told = {(name, update.new.id): update.new for name, own in plain.updates.items() for _, update in own}
    refused = [one for one in told.values() if limit in (one.reason or "")]
    assert refused and len(refused) < len(told)
    assert made.pipeline.host._runners[0].desk.row["limits"] != 0


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("feed", "unit"), [("orders", "bps"), ("levels", "bps"), ("levels", "lot")])
def test_tiers_of_fees_are_reached_in_the_loop_as_in_python(
    program: CompiledProgram, feed: str, unit: str, sample_seed: int, tmp_path: Path
) -> None:
    """Over months, through a checkpoint, and with the loop left in between."""
    events = flow(sample_seed, 260, feed)
    events = events[events["instrument"] < len(APART)]
    for name in ("exchange_time", "receive_time"):
        events[name] *= 100 * DAY // int(events["exchange_time"].max())
    options = trading({"max_drawdown": D(10_000)}, fees=TIERED[unit])
    plain = Told(program, plain_strategies(program), options, "interpreter")
    made = Told(program, strategies_of(program), options, "numba")
    plain.pipeline.start()
    made.pipeline.start()
    for place, part in enumerate(whole_messages(events, 4)):
        expected = plain.apply(part)
        assert made.apply(part) == expected
        if place == 1:
            states = made.pipeline.host.take_states()
            run = RunCheckpoint(Position(0), 0, tuple(APART), states, True)
            save_checkpoint(tmp_path, made.pipeline, program, run, keep=1)
            made = Told(program, strategies_of(program), options, "numba")
            found = newest_checkpoint(tmp_path, program_hash(program))
            assert found is not None
            made.pipeline.host.restore_states(load_checkpoint(found, made.pipeline).states)
            made.updates = {name: [*own] for name, own in plain.updates.items()}
    fills = [one for own in plain.updates.values() for _, update in own for one in update.fills]
    # Of one account several rates, so that tiers were reached; and the loop has told of them.
    rates = {
        (one.liquidity, round(one.fee / one.volume / (1 if unit == "lot" else one.price / 10_000), 3))
        for one in fills
    }
    assert len(rates) > len({liquidity for liquidity, _ in rates})
    assert any(runner.desk.row["tiers"] != 0 for runner in made.pipeline.host._runners)


class Noted(Strategy):
    """Has what leaves the loop, and what does not."""

    @on_view("touch", fire="change")
    @compiled
    def moved(self, row: Any) -> None:
        pass

    @on_view("touch", fire="change", every="1s")
    @compiled
    def now_and_then(self, row: Any) -> None:
        pass

    @on_view("touch", when="imbalance > 0.5")
    def leans(self, event: Any) -> None:
        pass

    @on_timer("1s")
    def second(self) -> None:
        pass


class Watching(Strategy):
    """Is told of what others hold."""

    @on_view("all_positions", fire="change")
    @compiled
    def held(self, row: Any) -> None:
        pass


class Filled(Strategy):
    """Is told of fills in Python."""

    @on_view("touch", fire="change")
    @compiled
    def moved(self, row: Any) -> None:
        pass

    def on_fill(self, fill: Any) -> None:
        pass


def test_what_leaves_the_loop_is_said_with_its_reason(program: CompiledProgram) -> None:
    made, *others = strategies_of(program)

    def notes(kind: Any, options: TradingOptions = OPTIONS["late"], beside: Any = ()) -> list[str]:
        own = kind if isinstance(kind, StrategyDefinition) else StrategyDefinition(kind)
        return loop_notes(program.program, own, beside, options)

    assert notes(made, OPTIONS["drawn, limited"], others) == [
        "made runs in the compiled loop; in a run with a log Python sends its orders"
    ]
    tiers = {"tiers": [{"volume": D(1000), "maker": D(1), "taker": D(2)}]}
    assert notes(made, trading(fees=tiers), others) == notes(made, OPTIONS["late"], others)
    assert notes(made, trading({"max_drawdown": D(5)}), others) == notes(made, OPTIONS["late"], others)
    (note,) = notes(made, beside=[StrategyDefinition(Watching)])
    assert "Watching.held watches all_positions, which reads positions" in note
    (first, *rest) = notes(Noted)
    assert first.startswith("Noted runs in the compiled loop")
    assert [line.partition(" is ")[0] for line in rest] == ["but leans", "but second"]
    (first, *rest) = notes(Filled)
    assert first.startswith("Filled runs in the compiled loop")
    assert rest == ["but on_fill is called by Python: it is not compiled"]
