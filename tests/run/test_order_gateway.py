"""A run with an order gateway on loopback: relations, log, restart, kill switch, and what is secret."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from binance_server import BinanceServer
from gateway_network import NATIVE, SYMBOL, VENUE
from live_run_support import Given

from orderbook.backtesting.run import LocalExecutor, backtest
from orderbook.backtesting.sources import source_specs
from orderbook.backtesting.tasks import JobProgram, JobSettings
from orderbook.commands.run import Shown
from orderbook.configuration.configuration import Configuration, load_configuration
from orderbook.core.errors import ConfigurationError, DataError
from orderbook.durability.durable_run import DurableRun, open_past
from orderbook.engine.distribution.stage_runner import Granularity
from orderbook.feeds.exchanges.credentials import BinanceFuturesKeys
from orderbook.jobs.job import open_job
from orderbook.market.events import EVENT, Action, BookState, Flag, Side
from orderbook.market.instruments import FINEST, Instrument, Instruments
from orderbook.run.assembly import Assembly
from orderbook.run.display import QuietDisplay
from orderbook.run.live_run import LiveRun
from orderbook.run.order_gateway import OrderGateway, gateways_of, keys_of
from orderbook.run.pipeline import Pipeline
from orderbook.strategies.execution.account import row_of
from orderbook.strategies.execution.venue_reports import HaltItem, ReportItem
from orderbook.strategies.gated_engine import GatedEngine
from orderbook.strategies.strategy import Strategy, StrategyDefinition
from orderbook.views.compilation import compile_views

SQL = """
CREATE VIEW my_orders AS SELECT strategy, id, venue, status, volume, price, filled, reason FROM orders;
CREATE VIEW my_fills AS SELECT strategy, order_id, price, volume, fee, liquidity, COUNT(*) AS n FROM fills
GROUP BY strategy, order_id, price, volume, fee, liquidity;
CREATE VIEW my_positions AS SELECT strategy, venue, symbol, volume, fees FROM positions;
"""
OTHER = "kraken"


def _instruments() -> Instruments:
    tick, lot = Decimal("0.10"), Decimal("0.001")
    return Instruments(
        [
            Instrument(VENUE, SYMBOL, NATIVE, tick, lot, FINEST, FINEST),
            Instrument(OTHER, "BTC-USD", "XBT/USD", tick, lot, FINEST, FINEST),
        ]
    )


class Asker(Strategy):
    """Does what the script of a test has for the trade at hand, which a restart and a backtest find again."""

    script: ClassVar[list[Sequence[Callable[["Asker"], object]]]] = []

    def __init__(self) -> None:
        self.count = 0

    def on_trade(self, trade: Any) -> None:
        for action in Asker.script[self.count]:
            action(self)
        self.count += 1

    def on_save(self) -> bytes:
        return str(self.count).encode()

    def on_load(self, state: bytes) -> None:
        self.count = int(state)


def _message(*events: tuple[int, Action, Side, int, int]) -> np.ndarray:
    """Books of both venues, or a trade that wakes strategies."""
    found = np.zeros(len(events), EVENT)
    for row, (instrument, action, side, price, volume) in zip(found, events, strict=True):
        row["instrument"], row["action"], row["side"] = instrument, action, side
        row["price"], row["volume"], row["flags"] = price, volume, Flag.LAST
    return found


_BOOKS = [(index, Action.STATE, Side.NONE, 0, BookState.VALID) for index in range(2)] + [
    (index, Action.LEVEL, side, price * 10**8, 5 * 10**8)
    for index in range(2)
    for side, price in ((Side.BID, 50_000), (Side.ASK, 50_001))
]
_WAKE = (1, Action.TRADE, Side.BID, 50_000 * 10**8, 10**5)


@dataclass
class Process:
    """One process of the run."""

    live: LiveRun
    pipeline: Pipeline
    gateway: OrderGateway

    def ask(self, *what: Callable[[Asker], object]) -> None:
        """Lets the strategy do something."""
        Asker.script.append(what)
        event = _message(_WAKE)
        event["receive_time"] = self.live.time()
        self.live.take(event)

    async def until(self, holds: Callable[[], object], what: str) -> None:
        """Waits for something."""
        for _ in range(1000):
            if holds():
                return
            await asyncio.sleep(0.01)
        raise AssertionError(f"{what}: {self.orders}, {self.gateway.state()}")

    @property
    def orders(self) -> dict[int, Any]:
        return {key[1]: row for key, row in self.rows("my_orders").items()}

    def rows(self, view: str) -> dict[Any, Any]:
        return {key: tuple(row[name] for name in row) for key, row in self.pipeline.engine[view].items()}

    def status(self, number: int) -> str:
        found = [row for key, row in self.pipeline.engine["my_orders"].items() if key[1] == number]
        return found[0].status if found else ""


def _configured(server: BinanceServer, folder: Path, **more: object) -> Configuration:
    own = {"mode": "live", "rest_url": server.rest_url, "stream_url": server.stream_url, **more}
    options = {f"execution.{VENUE}.{name}": value for name, value in own.items()}
    log = {"log.folder": str(folder), "log.sync": "never", "log.keep_log": True}
    return load_configuration(None, {**log, **options})


def _pipeline(known: Instruments, configuration: Configuration) -> Pipeline:
    engine = GatedEngine(compile_views(SQL), "interpreter")
    return Pipeline(engine, known, [StrategyDefinition(Asker)], trading=configuration.live_trading)


@asynccontextmanager
async def process(
    server: BinanceServer,
    folder: Path,
    crashes: bool = False,
    noted: tuple[list[dict[str, Any]], list[dict[str, Any]]] | None = None,
    **options: object,
) -> AsyncIterator[Process]:
    """A process, from its log to its end; or it just stops."""
    configuration = _configured(server, folder, **options)
    keys = {VENUE: BinanceFuturesKeys("the-key", "the-secret")}
    program = compile_views(SQL)
    with open_past(configuration, program, _instruments()) as past:
        pipeline, durable = past.recovered(lambda known: _pipeline(known, configuration))
        assert isinstance(durable, DurableRun)
        feed = Given([])
        feed.instruments, feed.indexes = _instruments(), np.arange(2, dtype=np.int32)
        live = LiveRun(configuration, pipeline, durable, [feed])
        (gateway,) = gateways_of(configuration, pipeline, keys, live.time)
        if noted is not None:
            orders, fills = noted

            def note(_: Any, update: Any) -> None:
                orders.append(row_of(update.new))
                fills.extend(map(row_of, update.fills))

            pipeline.host.observe_orders(note)
        live.start()
        live.take(_message(*_BOOKS))

        async def put(item: ReportItem) -> None:
            live.take(item)

        running = asyncio.create_task(gateway.run(put))
        own = Process(live, pipeline, gateway)
        try:
            await own.until(
                lambda: gateway.session.ready and not pipeline.host.accounts[VENUE].problem, "ready"
            )
            yield own
            if not crashes:
                await gateway.leave()
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
        if not crashes:
            live.finish()


def test_a_run_its_crash_and_its_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    Asker.script.clear()
    noted: tuple[list[dict[str, Any]], list[dict[str, Any]]] = ([], [])

    async def go() -> None:
        async with AsyncExitStack() as stack:
            server = await stack.enter_async_context(BinanceServer())
            venue = server.account
            async with process(server, tmp_path / "log", True, noted) as own:
                own.ask(
                    lambda s: s.buy(SYMBOL, "0.010", "49990.00", venue=VENUE, post_only=True),
                    lambda s: s.sell(SYMBOL, "0.004", venue=VENUE),
                    # Where there is no gateway, orders are simulated.
                    lambda s: s.buy("BTC-USD", "0.5"),
                )
                await own.until(lambda: own.status(1) == "resting" and own.status(2) == "filled", "placed")
                assert own.status(3) == "filled"
                own.ask(lambda s: s.modify(1, price="49991.00"))
                await own.until(
                    lambda: venue.open(NATIVE) and venue.open(NATIVE)[0].price == 49991, "modified"
                )
                server.lose_answers = 1
                own.ask(lambda s: s.buy(SYMBOL, "0.020", "49980.00", venue=VENUE))
                await own.until(lambda: own.status(4) == "resting", "found again")
                before = list(own.orders)
            # While nobody looks an order is filled, and another is cancelled by hand.
            first, _, second = venue.orders.values()
            venue.execute(first, Decimal("0.006"), first.price, True)
            venue.cancel(second)
            async with process(server, tmp_path / "log", False, noted) as own:
                await own.until(lambda: own.status(4) == "cancelled", "cancelled by hand")
                assert sorted(own.orders) == sorted(before)
                (held,) = [v for k, v in own.pipeline.engine["my_positions"].items() if k[1] == VENUE]
                assert held.volume == venue.positions[NATIVE] == Decimal("0.002")
                assert held.fees == sum(trade.fee for trade in venue.trades)
                assert own.gateway.state().unexplained == {}
            assert not venue.open(NATIVE), "an orderly end cancels what is open"
            assert all(count == 1 for count in venue.placed.values())
            assert [s for s in (q.partition("&signature=")[2] for q in server.queries) if s]
            last = {row["id"]: row["status"] for row in noted[0]}
            assert last == {1: "cancelled", 2: "filled", 3: "filled", 4: "cancelled"}
            _check_backtest(tmp_path / "log", _configured(server, tmp_path / "log"), *noted)
            _check_secrets(tmp_path / "log", server, caplog.text)

    asyncio.run(go())


def _check_backtest(
    folder: Path, configuration: Configuration, orders: list[dict[str, Any]], fills: list[dict[str, Any]]
) -> None:
    """A backtest of the log, to which the venue says nothing more, gives the run's orders and fills."""
    program = JobProgram.of(compile_views(SQL))
    settings = JobSettings(
        program, str(folder.parent / "job"), (), Granularity("message"),
        (("test_order_gateway:Asker", {}),), program, 1, "interpreter", 10**9,
        trading=configuration.live_trading,
    )  # fmt: skip
    backtest(settings, source_specs([f"log:{folder}"]), LocalExecutor(), "numba")
    job = open_job(folder.parent / "job")
    for found, expected in ((job.order_changes(), orders), (job.fills(), fills)):
        names = [name for name in expected[0] if name != "ts"]
        assert found.select(names).to_dicts() == [{name: row[name] for name in names} for row in expected]


def _check_secrets(folder: Path, server: BinanceServer, log: str) -> None:
    signatures = [query.partition("&signature=")[2] for query in server.queries]
    kept = b"".join(file.read_bytes() for file in folder.rglob("*") if file.is_file())
    for secret in ("the-key", "the-secret", server.account.listen_key, *filter(None, signatures)):
        assert secret.encode() not in kept and secret not in log


def test_the_switch_the_stream_and_a_dry_run(tmp_path: Path) -> None:
    Asker.script.clear()

    async def go() -> None:
        async with BinanceServer() as server:
            venue = server.account
            async with process(server, tmp_path / "log") as own:
                own.ask(
                    lambda s: s.buy(SYMBOL, "0.010", "49990.00", venue=VENUE),
                    lambda s: s.sell(SYMBOL, "0.010", "50100.00", venue=VENUE),
                    lambda s: s.buy("BTC-USD", "0.5", "40000"),
                )
                await own.until(lambda: len(venue.open(NATIVE)) == 2, "open")
                own.live.take(HaltItem(own.live.time(), True, "by hand"))
                assert own.status(3) == "cancelled"
                await own.until(lambda: not venue.open(NATIVE), "halted")
                await own.until(lambda: own.status(1) == own.status(2) == "cancelled", "told")
                own.ask(lambda s: s.buy(SYMBOL, "0.010", "49990.00", venue=VENUE))
                assert own.status(4) == "refused"
            async with process(server, tmp_path / "log") as own:
                assert own.pipeline.host.halted == "by hand", "a restart does not release it"
                own.live.take(HaltItem(own.live.time(), False))
                own.ask(lambda s: s.buy(SYMBOL, "0.010", "49990.00", venue=VENUE))
                await own.until(lambda: own.status(5) == "resting", "released")
                await server.drop_streams()
                await own.until(lambda: own.gateway.session.connections == 2, "connected again")
                await own.until(lambda: own.gateway.session.ready, "ready again")
            Asker.script.clear()
            placed = sum(venue.placed.values())
            async with process(server, tmp_path / "dry", mode="dry") as own:
                own.ask(lambda s: s.buy(SYMBOL, "0.010", "49990.00", venue=VENUE))
                await own.until(lambda: own.status(1) == "refused", "dry")
            assert sum(venue.placed.values()) == placed

    asyncio.run(go())


@contextmanager
def _refused(what: str) -> Any:
    with pytest.raises(ConfigurationError, match=what):
        yield


def test_mainnet_needs_an_address_and_a_second_switch() -> None:
    key = f"execution.{VENUE}"
    assert load_configuration().execution == {}
    with _refused("as orders there cost money"):
        load_configuration(None, {f"{key}.rest_url": "https://fapi.binance.com"})
    with _refused("as orders there cost money"):
        load_configuration(None, {f"{key}.stream_url": "wss://fstream.binance.com/private"})
    with _refused("https or wss"):
        load_configuration(None, {f"{key}.rest_url": "http://demo-fapi.binance.com"})
    with _refused("a venue with an order gateway"):
        load_configuration(None, {"execution.kraken.mode": "live"})
    found = load_configuration(
        None, {f"{key}.real_money": True, f"{key}.rest_url": "https://fapi.binance.com"}
    )
    assert found.live_trading.gateways == (), "it is still off"
    on = load_configuration(None, {f"{key}.mode": "dry"})
    assert on.live_trading.gateways == (VENUE,) and on.trading.gateways == ()


def test_keys_are_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in BinanceFuturesKeys.VARIABLES:
        monkeypatch.delenv(name, raising=False)
    configuration = load_configuration(None, {f"execution.{VENUE}.mode": "dry"})
    with _refused("set BINANCE_FUTURES_API_KEY, BINANCE_FUTURES_API_SECRET in the environment"):
        keys_of(configuration)
    assert keys_of(load_configuration()) == {}


class Rester(Strategy):
    """Has one order rest, whenever one is taken."""

    def __init__(self) -> None:
        self.rests = False

    def on_trade(self, trade: Any) -> None:
        if not self.rests:
            self.rests = True
            self.buy(SYMBOL, "0.010", "49990.00", venue=VENUE, post_only=True)

    def on_order_update(self, order: Any) -> None:
        self.rests = order.status in ("sent", "resting")


class _Open(Given):
    """A feed that goes on until it is cancelled."""

    async def follow(self, put: Any) -> None:
        await put(_message(*_BOOKS))
        while True:
            await asyncio.sleep(0.02)
            event = _message(_WAKE)
            event["receive_time"] = self.clock()
            await put(event)


@pytest.mark.parametrize("fails", [False, True])
def test_a_run_that_ends_or_fails_leaves_no_order(
    fails: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def go() -> None:
        async with BinanceServer() as server:
            configuration = _configured(server, tmp_path / "log")
            program = compile_views(SQL)
            with open_past(configuration, program, _instruments()) as past:
                engine = GatedEngine(program, "interpreter")
                pipeline, durable = past.recovered(
                    lambda known: Pipeline(
                        engine, known, [StrategyDefinition(Rester)], trading=configuration.live_trading
                    )
                )
                feed = _Open([])
                feed.instruments, feed.indexes = _instruments(), np.arange(2, dtype=np.int32)
                assembly = Assembly(configuration, (), program, (), ())
                shown = Shown(configuration, assembly, pipeline, durable, [feed], QuietDisplay())
                keys = {VENUE: BinanceFuturesKeys("the-key", "the-secret")}
                gateways = gateways_of(configuration, pipeline, keys, shown.clock)
                shown.trade_through(gateways)
                running = asyncio.create_task(shown.run())
                for _ in range(1000):
                    await asyncio.sleep(0.01)
                    if server.account.open(NATIVE):
                        break
                families = {family.name: family for family in shown._metrics.collect()}
                (ready,) = families["orderbook_gateway_ready"].samples
                assert (ready.labels, ready.value) == ({"venue": VENUE}, 1)
                if fails:

                    def fail(*_: object) -> None:
                        raise DataError("the engine has failed")

                    monkeypatch.setattr(pipeline, "apply_stamped", fail)
                else:
                    shown._live.queue.close()
                await running
                assert [str(error) for error in shown.errors] == (["the engine has failed"] if fails else [])
            assert len(server.account.orders) == 1 and not server.account.open(NATIVE)
            if not fails:
                rows = [row.status for row in engine["my_orders"].values()]
                assert rows.count("cancelled") == 1 and set(rows) <= {"cancelled", "refused"}

    asyncio.run(go())


def test_a_signature_is_the_documented_one() -> None:
    """Binance documentation of USD-M Futures, "SIGNED Endpoint Examples for POST /fapi/v1/order"."""
    keys = BinanceFuturesKeys(
        "dbefbc809e3e83c283a984c3a1459732ea7db1360ca80c5c2c8867408d28cc83",
        "2b5eb11e18796d12d88f13dc27dbbd02c2cc51ff7059765ed9821957d82bb4d9",
    )
    params = {
        "symbol": "BTCUSDT", "side": "BUY", "type": "LIMIT", "quantity": "1", "price": "9000",
        "timeInForce": "GTC", "recvWindow": "5000", "timestamp": "1591702613943",
    }  # fmt: skip
    signature = "3c661234138461fcc7a7d8746c6558c9842d4e10870d2ecbedf7777cad694af9"
    assert keys.query(params, True).endswith(f"&timestamp=1591702613943&signature={signature}")
    assert "signature" not in keys.query(params, False)
    assert keys.hidden(f"bad key {keys.headers['X-MBX-APIKEY']}") == "bad key …"
