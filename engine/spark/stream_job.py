"""A stream on Spark from its logs to its job's folder, begun or gone on with."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession

from engine.spark.streaming import start_query, wait
from orderbook.backtest.tasks import JobSettings
from orderbook.errors import OrderbookError
from orderbook.streaming.end_requests import request_end
from orderbook.streaming.job import checkpoint, ended, start_stream
from orderbook.streaming.plan import CHAIN, plan_of
from orderbook.streaming.sink import StreamSink, node_name

# Tasks of a level on one machine: each has a state store of its own, which costs more than it helps beyond.
_MOST_TASKS = 64


def run_job(
    session: SparkSession,
    job: JobSettings,
    logs: Sequence[str],
    *,
    once: bool,
    log_limit: int = 0,
    chain: int = CHAIN,
    files: int = 16,
    told: Callable[[str], None] = lambda _: None,
) -> StreamSink:
    """Runs a stream until it is stopped, with `once` until its logs are read; `told` is given lines.

    Raises UserError for what cannot be, OrderbookError where it fails; the manifest then says so.
    """
    settings, folders = start_stream(job, logs, log_limit, chain)
    plan = plan_of(settings)
    for note in plan.distribution.notes:
        told(f"  {note}")
    folder = Path(job.folder)
    sink = StreamSink(folder, [node_name(node) for node in plan.shown], partial(request_end, folders))
    session.conf.set("spark.sql.shuffle.partitions", str(max(1, min(job.partitions, _MOST_TASKS))))
    query = start_query(session, settings, folders, sink, checkpoint(settings), once, files)
    try:
        wait(query)
    except OrderbookError as error:
        ended(folder, str(error))
        raise
    except BaseException:
        query.stop()
        ended(folder)
        raise
    ended(folder)
    return sink
