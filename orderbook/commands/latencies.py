"""`orderbook latencies`: a file of latencies for `[simulation]`, by how long messages of recordings took."""

from collections.abc import Iterator, Sequence
from io import BytesIO
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from orderbook.core.errors import UserError
from orderbook.core.files import replace_file
from orderbook.core.summaries import told
from orderbook.core.units import delay, nanoseconds
from orderbook.feeds.merge import is_event_source
from orderbook.feeds.source_kinds import open_sources
from orderbook.market.events import Action, Events, Flag
from orderbook.strategies.execution.recorded_delays import order_delays

_SNAPSHOT = int(Flag.SNAPSHOT)
# Their times may be those of what they tell.
_APART = (int(Action.STATE), int(Action.INSTRUMENT))


def latencies(
    sources: Sequence[str], out: Path, every: str, order: float, response: float, least: str
) -> None:
    """Write COLUMNS of `recorded_delays`, a row for each `every` of the recordings, and print what they are.

    Raises UserError for sources without both times, and for a file that is no CSV or Parquet.
    """
    if out.suffix not in (".csv", ".parquet"):
        raise UserError(f"{out}: latencies are written to a .csv or .parquet file")
    step, sent, received = nanoseconds(every), [], []
    for batch in _batches(sources):
        plain = (batch["flags"] & _SNAPSHOT == 0) & (batch["exchange_time"] > 0)
        plain &= ~np.isin(batch["action"], _APART)
        times = batch["receive_time"][plain]
        # The last of each step in the batch is enough.
        last = np.flatnonzero(np.diff(times // step, append=-1))
        received.append(times[last])
        sent.append(batch["exchange_time"][plain][last])
    feed = np.concatenate([np.zeros(0, np.int64), *received]), np.concatenate([np.zeros(0, np.int64), *sent])
    if not len(feed[0]) or np.array_equal(*feed):
        raise UserError(f"{', '.join(sources)}: no times of both the exchange and the receiver")
    found = order_delays(*feed, step, (order, response), delay(least))
    columns = {"req_ts": found.requests, "exch_ts": found.takes, "resp_ts": found.answers}
    frame, data = pl.DataFrame(columns), BytesIO()
    frame.write_parquet(data) if out.suffix == ".parquet" else frame.write_csv(data)
    replace_file(out, data.getvalue())
    behind = found.clock_behind
    if behind:
        print(f"the receiver's clock is taken to be {behind / 1e6:,.3f} ms behind the exchange's")
    entry, back = found.takes - found.requests - behind, found.answers - found.takes + behind
    print(
        f"{out}: {len(frame):,} rows; from 5 to 95 % of orders {_range(entry)}, of responses {_range(back)}"
    )
    told(out=str(out), rows=len(frame), clock_behind_ns=behind)


def _range(delays: NDArray[np.int64]) -> str:
    low, middle, high = (one / 1e6 for one in np.quantile(delays, (0.05, 0.5, 0.95)))
    return f"{low:,.3f} to {high:,.3f} ms, median {middle:,.3f}"


def _batches(sources: Sequence[str]) -> Iterator[Events]:
    for source in open_sources(sources):
        if not is_event_source(source):
            raise UserError(f"{source.name}: changes of relations have no latencies")
        yield from source
