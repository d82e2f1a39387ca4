"""A session, its log applied again with nobody called, and the backtest of its log: the same to the last
digit, however messages came together, and wherever processes were killed."""

from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from session_again import SIMULATIONS, STRATEGIES, Sessions, Told, received
from strategy_support import INSTRUMENTS, Market, Row, ask, bid, events, gone, state

from orderbook.durability.durable_run import DurableRun
from orderbook.engine.runtime.subscriptions import ViewEvent
from orderbook.market.events import BookState, Side
from orderbook.strategies.execution.account import Fill
from orderbook.strategies.execution.client import LoggedRequest
from orderbook.strategies.execution.venue_model import TradingOptions
from orderbook.strategies.execution.venue_reports import Opened, Ready, Report, ReportItem, Rules
from orderbook.strategies.strategy import Strategy, compiled, on_timer, on_view
from orderbook.views.library import packaged_views

MILLISECOND = 10**6
LATE = 'order_latency = "40ms"\nresponse_latency = "1ms"'
HELD = """
CREATE STRATEGY held WITH (min_life = '5ms') AS
SELECT venue, symbol, 'buy' AS side, bid AS price, 1 AS volume FROM touch WHERE venue = 'X';
"""
VALID = [state(BookState.VALID, index) for index in range(len(INSTRUMENTS))]


def check(expected: Told, found: Told) -> None:
    for name in dict.fromkeys(one["instance"] for one in expected.orders):
        for own, other in ((expected.orders, found.orders), (expected.fills, found.fills)):
            told, again = ([one for one in rows if one["instance"] == name] for rows in (own, other))
            assert again == told
    assert (len(found.orders), len(found.fills)) == (len(expected.orders), len(expected.fills))
    assert found.money() == expected.money()


def checked(
    sessions: Sessions,
    parts: Sequence[Sequence[Any]],
    folder: Path,
    every: int,
    known: Any = INSTRUMENTS,
) -> Told:
    """What became of the orders of a session, which is what its log has."""
    told = sessions.run(parts, known, every)
    check(told, sessions.again())
    check(told, sessions.backtested(folder))
    return told


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("simulation", "processes"), [("at once", 3), ("constant", 1), ("drawn", 4), ("margin", 2)]
)
@pytest.mark.parametrize("strategies", list(STRATEGIES))
def test_all_are_equal(
    tmp_path: Path, sample_seed: int, strategies: str, simulation: str, processes: int
) -> None:
    sessions = Sessions(tmp_path, STRATEGIES[strategies], SIMULATIONS[simulation])
    instruments, parts = received(sample_seed + processes, 1_500, processes)
    told = checked(sessions, parts, tmp_path / "job", 40, instruments)
    assert len(told.orders) > 200 and len(told.fills) > 20


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("seed", "simulation"), [(1, "drawn"), (4, "constant"), (7, "drawn")])
def test_a_log_that_ends_within_an_item_goes_on_from_there(
    tmp_path: Path, seed: int, simulation: str
) -> None:
    """Requests of the item stand in it, but not what strategies knew after it."""
    unlimited = SIMULATIONS[simulation].partition("[risk]")[0]
    sessions = Sessions(tmp_path, STRATEGIES["by symbol, SQL"], unlimited)
    instruments, (first, second) = received(seed, 700, 2)
    sessions.killed(first, instruments, Random(seed).randrange(1, 6_000))
    sessions.run([second], instruments)
    check(sessions.again(), sessions.backtested(tmp_path / "job"))


@pytest.mark.sampled(2)
def test_what_is_usual_is_known_after_a_crash(tmp_path: Path, sample_seed: int) -> None:
    sessions = Sessions(tmp_path, ["strategies.sobi:SobiBand"], SIMULATIONS["constant"])
    instruments, parts = received(sample_seed, 1_500, 3)
    # Books are not lost with a process, so that what it knew counts.
    told = checked(sessions, [parts[0], *(part[2:] for part in parts[1:])], tmp_path / "job", 40, instruments)
    assert len(told.orders) > 4


def item(*messages: tuple[int, Sequence[Row]]) -> np.ndarray:
    """Messages that are received together, each with its time, ms."""
    return np.concatenate([events(rows, time * MILLISECOND) for time, rows in messages])


BOOK = item((1, [bid(1, 100, 50), ask(2, 110, 50)]), (2, VALID))


class Asks(Strategy):
    """Asks for something at each change of the touch, and at each of its times."""

    @on_view("touch", fire="change")
    def moved(self, event: ViewEvent) -> None:
        """Python is called for a message that nobody waits for."""
        self.buy("AAA", "0.1", "0.5")

    @on_timer("10ms")
    def often(self) -> None:
        """Python is told of a message that somebody waits for."""
        self.buy("AAA", "0.1", "0.6")


@pytest.mark.parametrize("backend", ["interpreter", "numba"])
def test_a_request_is_logged_with_the_step_of_its_message(
    tmp_path: Path, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged: list[tuple[str | None, int]] = []

    def request(run: DurableRun, one: LoggedRequest) -> None:
        logged.append((one.price, one.step))

    monkeypatch.setattr(DurableRun, "request", request)
    quiet = [ask(50, 200, 1)]
    moves = item((11, quiet), (12, quiet), (13, [bid(3, 101, 5)]), (21, quiet), (31, [gone(Side.BID, 3)]))
    Sessions(tmp_path, ["test_session_again:Asks"], "", backend).run([[BOOK, moves]], INSTRUMENTS)
    # The second of BOOK starts the timer. Steps are two for each message.
    assert logged[1:] == [("0.6", 2), ("0.5", 6), ("0.6", 8), ("0.5", 10), ("0.6", 10)]


def test_what_min_life_holds_back_is_done_again_right_after_its_message(tmp_path: Path) -> None:
    moves = item(
        (10, [bid(3, 101, 5)]), (12, [bid(4, 102, 5)]), (16, [ask(50, 200, 1)]), (30, [ask(51, 200, 1)])
    )
    told = checked(Sessions(tmp_path, ["held"], "", sql=HELD), [[BOOK, moves]], tmp_path / "job", 9)
    assert [(one["ts"] // MILLISECOND, float(one["price"])) for one in told.orders[:3]] == [
        (2, 1.0), (10, 1.01), (16, 1.02),
    ]  # fmt: skip


class Follows(Strategy):
    """Rests at the best bid, and asks for another price only where it has not asked for that."""

    order: int = 0

    @on_view("touch", fire="change")
    @compiled
    def moved(self: Any, row: Any) -> None:
        """The touch has changed."""
        if self.order == 0:
            self.order = self.buy(self.lot, row.bid, post_only=True)
        elif self.open_price(self.order) != row.bid:
            self.modify(self.order, price=row.bid)


@pytest.mark.parametrize("every", [1, 9])
def test_the_price_that_was_asked_for_last_is_known_after_a_crash(tmp_path: Path, every: int) -> None:
    sessions = Sessions(tmp_path, ["test_session_again:Follows"], LATE)
    # One of another book tells that it rests.
    rests, asked = item((60, [ask(50, 200, 1)]), (70, VALID)), item((80, [bid(3, 101, 5)]))
    again = item((90, [bid(4, 101, 5)]), (200, [ask(52, 200, 1)]), (300, [ask(53, 200, 1)]))
    told = checked(sessions, [[BOOK, rests, asked], [again]], tmp_path / "job", every)
    assert [(float(one["price"]), one["status"]) for one in told.orders] == [
        (1.0, "sent"), (1.0, "resting"), (1.01, "resting"),
    ]  # fmt: skip


class Mistakes(Asks):
    """Asks for what cannot be, as is easily written."""

    @on_view("touch", fire="change")
    def moved(self, event: ViewEvent) -> None:
        """A second as a float, ids and a venue that are none, prices that are no numbers."""
        one: Any = self.buy("AAA", "0.1", "0.5")
        # What numpy counts is an id, too.
        self.modify(np.int64(one), price="0.4")  # type: ignore[arg-type]
        self.buy("AAA", "0.1", "0.5", good_until=self.now + 1e9)  # type: ignore[arg-type]
        self.buy("AAA", "0.1", "0.5", good_until=10**30)
        self.buy("AAA", "0.1", "0.5", oco=str(one))  # type: ignore[arg-type]
        self.buy("AAA", "0.1", "0.5", 5)  # type: ignore[arg-type]
        self.modify(one, price="low")
        self.modify(one, price=float("nan"))
        self.cancel(10**30)
        self.cancel(-1)


class Misses(Mistakes):
    """Cancels an order that it has not."""

    @on_view("touch", fire="change")
    def moved(self, event: ViewEvent) -> None:
        super().moved(event)
        self.cancel(None)  # type: ignore[arg-type]


def test_a_log_that_has_mistakes_is_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    moves = item((11, [bid(3, 101, 5)]), (13, [gone(Side.BID, 3)]))
    sessions = Sessions(tmp_path, ["test_session_again:Mistakes", "test_session_again:Misses"], LATE)
    told = checked(sessions, [[BOOK], [moves], [item((60, [ask(50, 200, 1)]))]], tmp_path / "job", 9)
    reasons = {one["reason"] for one in told.orders if one["instance"] == "Mistakes"}
    for words in ("good_until=1013000000.0; give ns", f"{10**30}; give ns", "oco=1 is no open order", "on 5"):
        assert any(words in str(reason) for reason in reasons)
    assert "Misses.moved raised OrderbookError: None is no order's id; give what buy or sell" in caplog.text


class Requested:
    """A log that keeps requests."""

    def __init__(self) -> None:
        self.kinds: list[str] = []

    def request(self, request: LoggedRequest) -> None:
        self.kinds.append(request.kind)


def test_an_order_at_a_venue_is_open_after_a_checkpoint() -> None:
    sql, book = (packaged_views() / "touch.sql").read_text(), [bid(1, 100, 50), ask(2, 110, 50)]
    markets = [Market(Follows, sql=sql, trading=TradingOptions(gateways=("X",))) for _ in range(2)]
    log = Requested()
    for number, market in enumerate(markets):
        market.host.log_to(log)
        if number:
            before = markets[0].host
            market.host.load(before.save(), range(len(INSTRUMENTS)))
            market.host.restore_states(before.take_states())
        else:
            ready: list[Report] = [Opened("s"), Rules("aaa", "0.01", "0.1"), Ready()]
            market.host.take(ReportItem("X", 1, ready))
        market.open(*book)
    assert log.kinds == ["order"]
    markets[1].send(bid(3, 101, 5))
    assert log.kinds == ["order", "modify"]


class Answers(Strategy):
    """Answers what it is told when it is about to end, and orders at its end."""

    def on_start(self) -> None:
        self.count = 0

    @on_timer("10ms")
    def often(self) -> None:
        """Takes once."""
        if not self.count:
            self.buy("AAA", "0.1")
        self.count += 1

    def on_fill(self, fill: Fill) -> None:
        """An order that never arrives."""
        self.sell("AAA", "0.1", "3")

    def on_stop(self) -> None:
        self.buy("AAA", "0.2", "0.5")


def test_what_is_asked_for_at_the_end_comes_after_what_was_told_before(tmp_path: Path) -> None:
    simulation = 'order_latency = "1ms"\nresponse_latency = "1s"'
    sessions = Sessions(tmp_path, ["test_session_again:Answers"], simulation)
    moves = item((15, [ask(50, 200, 1)]), (30, [ask(51, 200, 1)]))
    told = checked(sessions, [[BOOK, moves]], tmp_path / "job", 9)
    assert [(one["id"], one["status"]) for one in told.orders] == [
        (1, "sent"), (1, "filled"), (2, "sent"), (3, "sent"), (2, "cancelled"), (3, "cancelled"),
    ]  # fmt: skip
