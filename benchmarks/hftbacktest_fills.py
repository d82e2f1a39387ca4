"""Fills of one schedule here and in hftbacktest, side by side."""

import json
import subprocess
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from orderbook.jobs.job import Job
from orderbook.market.instruments import Instrument

from .hftbacktest_schedule import KINDS

_THEIRS = Path(__file__).parent / "hftbacktest_theirs.py"


class Fill(NamedTuple):
    """An execution: at the exchange's time in ns, in ticks and lots."""

    time: int
    ticks: int
    lots: int


# By order, in the order of time.
Fills = Mapping[int, Sequence[Fill]]


def orders_of(job: Job, instrument: Instrument) -> np.ndarray:
    """The orders of a job as they were sent, as `hftbacktest_theirs` takes them."""
    rows = []
    for row in _rows(job.order_changes()):
        if row["status"] == "sent":
            price = 0 if row["price"] is None else row["price"]
            side = 1 if row["side"] == "buy" else -1
            ticks, lots = _in_steps(instrument, price, row["volume"])
            rows.append((row["ts"], row["id"], side, ticks, lots, (row["id"] - 1) % len(KINDS)))
    found = np.array(rows, np.int64)
    return found[np.argsort(found[:, 1])]


def _in_steps(instrument: Instrument, price: Decimal | int, volume: Decimal) -> tuple[int, int]:
    """A price and a volume in the steps in which orders are sent, as hftbacktest counts them."""
    return round(price / instrument.tick), round(volume / instrument.lot)


def fills_of(job: Job, instrument: Instrument, events: np.ndarray) -> Fills:
    """The fills of a job. A resting order's have the receive time of their message, which is looked up."""
    sent = dict(zip(events["receive_time"].tolist(), events["exchange_time"].tolist(), strict=True))
    found = defaultdict(list)
    for row in _rows(job.fills()):
        time = row["ts"] if row["liquidity"] == "taker" else sent[row["ts"]]
        fill = Fill(time, *_in_steps(instrument, row["price"], row["volume"]))
        found[row["order_id"]].append(fill)
    return found


def _rows(frame: pl.DataFrame) -> Iterator[dict[str, Any]]:
    """Rows by column, times in ns."""
    return frame.with_columns(pl.col("ts").dt.timestamp("ns")).iter_rows(named=True)


class Theirs:
    """hftbacktest in a process of its own; a context manager."""

    def __init__(self, python: str) -> None:
        self._process = subprocess.Popen(
            [python, "-P", str(_THEIRS)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __enter__(self) -> "Theirs":
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def run(self, request: Mapping[str, Any]) -> float:
        """CPU seconds of a run. Raises RuntimeError for what went wrong in it."""
        assert self._process.stdin is not None and self._process.stdout is not None
        print(json.dumps(request), file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        answer = json.loads(line) if line else {"error": "hftbacktest's process ended"}
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return float(answer["seconds"])


def noted_fills(path: Path) -> Fills:
    """The fills that a run of hftbacktest wrote."""
    found = defaultdict(list)
    for order, time, ticks, lots in np.load(path).tolist():
        found[order].append(Fill(time, ticks, lots))
    return found


@dataclass(frozen=True)
class Comparison:
    """Orders by what became of them on either side; `later`: by how much (ns) a fill is later here than
    there, of orders filled on both sides whose last fill has another time."""

    orders: int
    counts: Counter[str]
    later: list[int]
    lots: tuple[int, int]


def compare(orders: np.ndarray, ours: Fills, theirs: Fills) -> Comparison:
    """Compare the fills of every order: their lots, prices and times."""
    counts: Counter[str] = Counter()
    later = []
    for order in orders[:, 1].tolist():
        here, there = ours.get(order, ()), theirs.get(order, ())
        counts[_kind(here, there)] += 1
        if here and there and here[-1].time != there[-1].time:
            later.append(here[-1].time - there[-1].time)
    ids = orders[:, 1].tolist()
    total = [sum(fill.lots for order in ids for fill in fills.get(order, ())) for fills in (ours, theirs)]
    return Comparison(len(orders), counts, later, (total[0], total[1]))


def _kind(here: Sequence[Fill], there: Sequence[Fill]) -> str:
    """How the fills of an order agree."""
    if not here and not there:
        return "none"
    if not here or not there:
        return "only ours" if here else "only theirs"
    if sum(fill.lots for fill in here) != sum(fill.lots for fill in there):
        return "other lots"
    if here[-1].ticks != there[-1].ticks:
        return "other price"
    return "same" if here[-1].time == there[-1].time else "other time"
