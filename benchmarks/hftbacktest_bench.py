"""One schedule of orders over one capture, run here and in hftbacktest."""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from orderbook.feeds.files.binance_capture import BinanceCaptureSource
from orderbook.jobs.job import open_job
from orderbook.market.events import Flag
from orderbook.strategies.execution.recorded_delays import order_delays

from .hftbacktest_data import LATENCY, Market, Order, hftbacktest_rows, read_market
from .hftbacktest_fills import Fills, Theirs, fills_of, noted_fills, orders_of
from .hftbacktest_schedule import KINDS

LATENCY_MS = 10
# How many times as long as messages of the feed orders take, where latencies are recorded.
_SLOWER = 2.0
_CONFIGURATION = """
[run]
views = ["touch"]
strategies = ["benchmarks.hftbacktest_schedule:Scheduled"]
[simulation]
order_latency = {latency}
response_latency = {latency}
queue = "{queue}"
[strategies.scheduled]
volume = {volume}
life = {life}
"""


@dataclass(frozen=True)
class Case:
    """The order of messages, the queue model, lots of an order, how many moments it rests, and whether
    latencies are constant."""

    order: Order
    queue: str
    lots: int
    life: int
    recorded: bool = False

    def __str__(self) -> str:
        text = f"{self.order}, {self.queue}, {self.lots:,}, {self.life / 4:g} s"
        return f"{text}, recorded latency" if self.recorded else text


class Bench:
    """A capture, and a folder for what is made of it."""

    def __init__(self, path: Path, folder: Path, theirs: Theirs) -> None:
        self._path, self.folder, self._theirs = path, folder / path.stem, theirs
        self.folder.mkdir(parents=True, exist_ok=True)
        self._markets: dict[Order, Market] = {}

    def market(self, order: Order) -> Market:
        """The capture's events, which are files for both sides by then."""
        if order not in self._markets:
            market = self._markets[order] = read_market(self._path, order)
            market.write(self.folder / f"{order}.parquet")
            np.save(self.folder / f"{order}.npy", hftbacktest_rows(market))
        return self._markets[order]

    def configuration(self, case: Case) -> Path:
        """The configuration of a case."""
        path = self._place(case, "toml")
        volume = f"{self.market(case.order).instrument.lot * case.lots:f}"
        latency = f'{{ files = ["{self._latencies().name}"] }}' if case.recorded else f'"{LATENCY_MS}ms"'
        text = _CONFIGURATION.format(latency=latency, queue=case.queue, volume=volume, life=case.life)
        path.write_text(text)
        return path

    def ours(self, case: Case) -> tuple[np.ndarray, Fills]:
        """The orders of a case, and their fills here, by `orderbook backtest`."""
        market, folder = self.market(case.order), self._place(case, "job")
        command = Path(sys.executable).with_name("orderbook")
        subprocess.run(
            [
                command, "backtest", f"record:{self.folder / case.order}.parquet", "--config",
                self.configuration(case), "--granularity", "end", "--out", folder,
            ],
            check=True, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        job = open_job(folder)
        orders = orders_of(job, market.instrument)
        np.save(self._place(case, "orders.npy"), orders)
        return orders, fills_of(job, market.instrument, market.events)

    def theirs(self, case: Case, watch: bool = True) -> tuple[Fills, float]:
        """The fills of the same orders in hftbacktest, which `ours` has left, and CPU seconds of its run."""
        instrument = self.market(case.order).instrument
        fills = self._place(case, "fills.npy" if watch else "late.npy")
        seconds = self._theirs.run({
            "data": str(self.folder / f"{case.order}.npy"),
            "orders": str(self._place(case, "orders.npy")),
            "fills": str(fills), "tick": float(instrument.tick), "lot": float(instrument.lot),
            "latency": LATENCY_MS * 10**6,
            "latencies": str(self._latencies()) if case.recorded else None,
            "queue": case.queue, "life": case.life, "kinds": len(KINDS),
            "watch": watch,
        })  # fmt: skip
        return noted_fills(fills), seconds

    def _place(self, case: Case, suffix: str) -> Path:
        kind = "-recorded" if case.recorded else ""
        return self.folder / f"{case.order}-{case.queue}-{case.lots}-{case.life}{kind}.{suffix}"

    def _latencies(self) -> Path:
        """The file of latencies of orders, as hftbacktest takes it: of the capture's messages, by the clocks
        of `Market`."""
        path = self.folder / "latencies.npz"
        if not path.exists():
            events = np.concatenate([batch.copy() for batch in BinanceCaptureSource(self._path)])
            events = events[(events["exchange_time"] > 0) & (events["flags"] & Flag.SNAPSHOT == 0)]
            # The receiver's clock is behind.
            feed = events["receive_time"] - events["exchange_time"]
            received = events["exchange_time"] + feed - feed.min()
            found = order_delays(received, events["exchange_time"], 10**9, (_SLOWER, _SLOWER), 0)
            rows = np.zeros(len(found.requests), LATENCY)
            rows["req_ts"], rows["exch_ts"], rows["resp_ts"] = found[:3]
            np.savez(path, data=rows)
        return path
