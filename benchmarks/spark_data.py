"""Files for benchmarks on Spark, and the core time of this process with all that it has started."""

import os
from pathlib import Path

import numpy as np

from orderbook.feeds.recording.parquet_record import RecordWriter
from orderbook.market.instruments import Instruments
from orderbook.market.synthetic_flow import START, generate, synthetic_instruments

DAY = 24 * 3600 * 10**9


def write_days(
    folder: Path, events: int, symbols: int, days: int, seed: int, *, apart: bool = True, resting: int = 400
) -> int:
    """Generated flow as records, one for each day or, `apart`, for each symbol and day; events written.

    Every day begins with the snapshots of its symbols; `resting` is how many orders a book has.
    """
    folder.mkdir(parents=True, exist_ok=True)
    instruments = synthetic_instruments(symbols)
    written = 0
    for day in range(days):
        groups = [[one] for one in instruments] if apart else [list(instruments)]
        names = [f"{group[0].symbol}-{day}" if apart else f"day-{day}" for group in groups]
        paths = [folder / f"{name}.parquet" for name in names]
        writers = [RecordWriter(path, Instruments(own)) for path, own in zip(paths, groups, strict=True)]
        flow = generate(
            events // days, symbols, 100, seed + day, resting=resting, imbalance=0.5, start=START + day * DAY
        )
        for batch in flow:
            for index, writer in enumerate(writers):
                writer.write(_only(batch, index) if apart else batch)
            written += len(batch)
        for writer in writers:
            writer.close()
    return written


def _only(batch: np.ndarray, index: int) -> np.ndarray:
    own = batch.take(np.flatnonzero(batch["instrument"] == index))
    own["instrument"] = 0
    return own


def core_seconds() -> float:
    """Core time so far, in seconds, of this process and of what it has started and what that has (Linux)."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        parents[int(name)] = int(fields[1])
        ticks[int(name)] = sum(map(int, fields[11:15]))  # its own, and of children that have ended
    own = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in own} - own:
        own |= more
    return sum(ticks[pid] for pid in own if pid in ticks) / os.sysconf("SC_CLK_TCK")
