"""The metrics of a durable log and its checkpoints."""

import time
from collections.abc import Iterator
from pathlib import Path

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from orderbook.durable import DurableRun
from orderbook.live_run import LiveRun
from orderbook.past import checkpoints_of


def log_families(durable: DurableRun, live: LiveRun) -> Iterator[Metric]:
    """The families of a run that keeps a log."""
    log = durable.log
    for name, help_text, value in (
        ("log_bytes", "Bytes of all segments of the log.", log.bytes),
        ("log_segments", "Segments of the log.", log.segments),
        ("log_end_bytes", "Position at which the log ends, from its very beginning.", log.end),
        ("log_lag_bytes", "Bytes at its end that a power failure would take.", log.end - log.durable),
    ):
        yield GaugeMetricFamily(f"orderbook_{name}", help_text, value)
    yield CounterMetricFamily(
        "orderbook_checkpoints", "Checkpoints written by this process.", live.checkpoints
    )
    yield CounterMetricFamily(
        "orderbook_checkpoint_failures",
        "Checkpoints that could not be written; the run goes on with its log.",
        live.checkpoints_failed,
    )
    yield GaugeMetricFamily(
        "orderbook_checkpoint_duration_seconds",
        "How long the last checkpoint of this process took; the engine waits for it.",
        live.checkpoint_seconds,
    )
    newest = _newest(checkpoints_of(log.folder))
    if newest is not None:
        size, written = newest
        # Of one that this process has written, by a clock that nobody sets.
        own = live.checkpointed
        yield GaugeMetricFamily("orderbook_checkpoint_bytes", "Size of the newest checkpoint.", size)
        yield GaugeMetricFamily(
            "orderbook_checkpoint_age_seconds",
            "Time since the newest checkpoint was written.",
            max(0.0, time.time() - written if own is None else time.monotonic() - own),
        )


def _newest(folder: Path) -> tuple[int, float] | None:
    """Size in bytes and time of the newest checkpoint file, which may go while it is looked for."""
    try:
        path = max(folder.glob("checkpoint-*.state"), default=None)
        if path is None:
            return None
        found = path.stat()
    except OSError:
        return None
    return found.st_size, found.st_mtime
