"""Appending to the durable log on this machine's disk, per sync policy, and opening and reading it again."""

import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from orderbook.engine.log.log import Log, SyncPolicy
from orderbook.engine.log.segments import Record
from orderbook.market.events import EVENT

from .measure import Options, same, table

_BATCH = 4096
_IDENTITY = b"benchmark"


def log(options: Options) -> None:
    """Wall time, since it is the disk that is measured; batches of 4,096 events of 64 bytes."""
    batches = 50 if options.quick else 400
    events = [Record(1, n, 0, n, bytes(EVENT.itemsize)) for n in range(_BATCH)]
    shapes: dict[str, Sequence[Record]] = {
        "a record a batch": [Record(1, 0, 0, 0, bytes(_BATCH * EVENT.itemsize))],
        "a record an event": events,
    }
    rows = []
    for policy in ("batch", "100ms", "never"):
        for shape, records in shapes.items():
            runs = [_run(SyncPolicy.parse(policy), records, batches) for _ in range(options.runs)]
            steps = [statistics.median(run[step] for run in runs) for step in range(5)]
            rate = _BATCH * batches / steps[0] / 1e6
            size = batches * _BATCH * EVENT.itemsize / 1e6
            others = [f"{1e3 * seconds:.2f}" for seconds in steps[1:3]]
            speeds = [f"{size / seconds:.0f}" for seconds in steps[3:]]
            rows.append((f"{policy}, {shape}", f"{rate:.2f}", *others, *speeds))
    columns = ("", "M events/s", "append, p50 ms", "p99 ms", "open, MB/s", "read, MB/s")
    title = f"The durable log, {batches} batches of {_BATCH} events: medians of {options.runs} runs"
    table(title, columns, rows)


def _run(policy: SyncPolicy, records: Sequence[Record], batches: int) -> list[float]:
    """Seconds of all appends and the close; of an append at p50 and p99; of opening; of reading."""
    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".log-benchmark-") as folder:
        path = Path(folder)
        written = Log.open(path, _IDENTITY, policy=policy)
        single = [_seconds(lambda: written.append_all(records)) for _ in range(batches)]
        closing = _seconds(written.close)
        opened: list[Log] = []
        opening = _seconds(lambda: opened.append(Log.open(path, _IDENTITY, policy=policy)))
        found: list[int] = []
        reading = _seconds(lambda: found.append(sum(1 for _ in opened[0].read())))
        same("records of the log", found[0], batches * len(records))
        opened[0].close()
    cuts = statistics.quantiles(single, n=100)
    return [sum(single) + closing, cuts[49], cuts[98], opening, reading]


def _seconds(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start
