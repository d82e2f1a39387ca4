"""Backtests of compiled methods write the rows of orders and fills of the same rules in Python."""

from pathlib import Path
from typing import Any

import pytest
from backtest_support import write_records

import orderbook
from orderbook import Strategy, compiled, on_view
from orderbook.jobs.job import open_job
from orderbook.strategies.runner import Runner

LATE = {"simulation.order_latency": "3ms", "simulation.response_latency": "2ms"}


class Better(Strategy):
    """Betters both sides, and takes what is displayed now and then."""

    partition_by = "symbol"
    seen: int = 0

    @on_view("touch", fire="change", every="1ms")
    @compiled
    def looked(self: Any, row: Any) -> None:
        if row.multiplicity == 0 or not row.has_bid or not row.has_ask:
            return
        self.seen += 1
        for side in range(2):
            order = self.open_order(side)
            price = row.ask - self.tick if side == 0 else row.bid + self.tick
            if order == 0 and side == 0:
                self.buy(2 * self.lot, price)
            elif order == 0:
                self.sell(2 * self.lot, price, post_only=True)
            elif self.open_price(order) != price:
                self.modify(order, price=price)
        if self.seen % 5 == 0:
            self.sell(3 * self.lot, row.bid, ioc=True)
        if self.seen % 7 == 0:
            self.buy(self.lot)
        if self.seen % 9 == 0:
            self.cancel(self.open_order(1))
        if self.seen % 11 == 0:
            self.buy(self.lot + 1)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("options", [{}, LATE], ids=["at once", "late"])
def test_the_rows_of_the_loop_are_those_of_python(
    options: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_records(tmp_path / "flow", 1_500, 2, 1, 5, apart=True)
    fees = {"simulation.fees.maker": -1, "simulation.fees.taker": 4}
    found = []
    for name in ("loop", "python"):
        if name == "python":
            monkeypatch.setattr(Runner, "runs_in_loop", False)
        result = orderbook.backtest(
            tmp_path / "flow", strategies=Better, options={**options, **fees}, out=tmp_path / name
        )
        job = open_job(tmp_path / name)
        fills = job.fills()
        assert set(fills["liquidity"]) == {"maker", "taker"} and {1, 2, 3} <= set(fills["place"])
        assert {"refused", "resting", "filled", "cancelled"} <= set(job.order_changes()["status"])
        tables = (job.order_changes(), fills, job.table("market"), result.statistics)
        found.append([table.rows() for table in tables])
    assert found[0] == found[1]
