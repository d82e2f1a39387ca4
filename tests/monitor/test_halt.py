"""The kill switch, from a websocket client and from the command line: what it does, and who may use it."""

import asyncio
from typing import Any

import pytest
from monitor_support import SYMBOL, Running, client, flow, running, trade, valid_books

from orderbook.commands.halt import halt
from orderbook.configuration.options import MonitorOptions
from orderbook.core.errors import SourceError
from orderbook.strategies.strategy import Strategy, StrategyDefinition

TOKEN = "a-token-of-sixteen"


class Rester(Strategy):
    """Places an order far from the market at every trade."""

    def on_trade(self, trade: Any) -> None:
        self.buy(SYMBOL, 20, "50.00")


_STRATEGIES = [StrategyDefinition(Rester)]


async def _with_orders(run: Running) -> None:
    await run.put(valid_books(), flow(200), trade(10_000, 10), trade(10_000, 10))
    assert run.pipeline.host.open_orders() >= 2


def test_everything_is_cancelled_until_it_is_released() -> None:
    async def go() -> None:
        async with running(strategies=_STRATEGIES) as run, client(run) as one:
            await _with_orders(run)
            count = run.pipeline.host.open_orders()
            answer = await one.ask(id=1, op="halt", reason="a test")
            assert answer == {
                "id": 1, "type": "halt", "halted": True, "reason": "a test", "open_before": count, "open": 0,
                "gateways": [],
            }  # fmt: skip
            refused = run.pipeline.host.summary()[0].refused
            await run.put(trade(10_000, 10))
            assert run.pipeline.host.summary()[0].refused == refused + 1
            assert (await one.ask(id=2, op="subscribe", topic="status"))["type"] != "error"
            status = await one.take(type="status", halted="a test")
            assert status["gateways"] == []
            assert (await one.ask(id=3, op="halt", halted=False))["halted"] is False
            await run.put(trade(10_000, 10))
            assert run.pipeline.host.open_orders() == 1

    asyncio.run(go())


def test_it_needs_the_token_where_there_is_one(capsys: pytest.CaptureFixture[str]) -> None:
    async def go() -> None:
        options = MonitorOptions(port=0, token=TOKEN)
        async with running(options, strategies=_STRATEGIES) as run:
            await _with_orders(run)
            url = f"http://127.0.0.1:{run.server.port}/"
            with pytest.raises(SourceError, match="not halted: the token is another one"):
                await asyncio.to_thread(halt, url, "", False, "")
            assert run.pipeline.host.halted is None
            await asyncio.to_thread(halt, url, TOKEN, False, "enough")
            assert run.pipeline.host.halted == "enough" and not run.pipeline.host.open_orders()
            await asyncio.to_thread(halt, url, TOKEN, True, "")
            assert run.pipeline.host.halted is None

    asyncio.run(go())
    shown = capsys.readouterr().out.splitlines()
    assert "open orders cancelled (all simulated); none is taken any more" in shown[0]
    assert shown[1] == "released: orders are taken again"


def test_a_run_that_is_not_there_is_not_said_to_be_halted() -> None:
    with pytest.raises(SourceError, match="nothing is known to be halted"):
        halt("http://127.0.0.1:9/", "", False, "")
