"""Latencies that were measured, as hftbacktest's `IntpOrderLatency` takes them: in files, and as tables.

A row is a request: when it was sent (`req_ts`, by the strategy's clock), when the exchange took it
(`exch_ts`, by the exchange's) and when its answer came (`resp_ts`), ns since 1970. Between two rows a delay
is on the line through both, in doubles and cut to ns as there; before the first and from the last on it is
theirs.
"""

from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import BadZipFile

import numpy as np
import polars as pl
from numpy.typing import NDArray

from orderbook.core.errors import ConfigurationError

COLUMNS = ("req_ts", "exch_ts", "resp_ts")
# Times within 146 years of 1970, so that no difference leaves 64 bits.
_MOST = 1 << 62


class DelayTable:
    """Delays at times, int64[n, 2], times rising; equal where they are the same."""

    def __init__(self, times: NDArray[np.int64], delays: NDArray[np.int64]) -> None:
        order = np.argsort(times, kind="stable")
        self.rows = np.ascontiguousarray(np.stack([times[order], delays[order]], axis=1), np.int64)
        self._digest = blake2b(self.rows.tobytes(), digest_size=16).hexdigest()

    def __repr__(self) -> str:
        return f"DelayTable({len(self.rows)}, {self._digest})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DelayTable) and self._digest == other._digest

    def __hash__(self) -> int:
        return hash(self._digest)


def read_delays(files: Sequence[Path]) -> tuple[DelayTable, DelayTable]:
    """The delays of orders, at the times when they are sent, and of responses, at the exchange's times.

    Files are CSV with a header, Parquet, or NumPy's `.npz` and `.npy` of a structured array, as hftbacktest
    writes them; columns beside COLUMNS are left out. Raises ConfigurationError for one that cannot be read.
    """
    requests, takes, answers = np.concatenate([_rows(path) for path in files], axis=1)
    return DelayTable(requests, takes - requests), DelayTable(takes, answers - takes)


def _rows(path: Path) -> NDArray[np.int64]:
    """The COLUMNS of a file, int64[3, n]."""
    try:
        columns = _read(path)
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (pl.exceptions.PolarsError, BadZipFile, ValueError, EOFError) as error:
        raise ConfigurationError(f"{path}: no table of latencies: {str(error).splitlines()[0]}") from error
    if missing := [name for name in COLUMNS if name not in columns]:
        raise ConfigurationError(
            f"{path}: no column {missing[0]}; a file of latencies has {', '.join(COLUMNS)}, in ns"
        )
    found = [columns[name] for name in COLUMNS]
    if not len(found[0]):
        raise ConfigurationError(f"{path}: no rows of latencies")
    for name, column in zip(COLUMNS, found, strict=True):
        if column.dtype.kind not in "iu":
            raise ConfigurationError(f"{path}: {name} has to be whole ns since 1970 in each row")
        bad = np.flatnonzero((column <= 0) | (column >= _MOST))
        if len(bad):
            said = f"{path}: row {bad[0] + 1}: {name} is {column[bad[0]]}, which is no time in ns"
            if name == "exch_ts":
                said += "; leave out requests that the exchange did not take"
            raise ConfigurationError(said)
    return np.array(found, np.int64)


def _read(path: Path) -> dict[str, NDArray[Any]]:
    if path.suffix in (".npz", ".npy"):
        loaded = np.load(path, allow_pickle=False)
        array = loaded if isinstance(loaded, np.ndarray) else loaded[loaded.files[0]]
        return {name: array[name] for name in array.dtype.names or ()}
    reads = pl.read_parquet if path.suffix == ".parquet" else pl.read_csv
    frame = reads(path)
    return {name: frame[name].to_numpy() for name in COLUMNS if name in frame.columns}


class OrderDelays(NamedTuple):
    """COLUMNS, int64[n] each, and how many ns the receiver's clock is taken to be behind the exchange's."""

    requests: NDArray[np.int64]
    takes: NDArray[np.int64]
    answers: NDArray[np.int64]
    clock_behind: int


def order_delays(
    received: NDArray[np.int64], sent: NDArray[np.int64], step: int, factors: tuple[float, float], least: int
) -> OrderDelays:
    """Latencies of orders as those of a feed: of the last message that was received in each `step`, times
    `factors`, of orders and of responses.

    received, sent: by the receiver's and the exchange's clock, ns. Where a message was received before it
    was sent, the first is behind: by so much that the fastest took `least`.
    """
    order = np.argsort(received, kind="stable")
    received, feed = received[order], (received - sent)[order]
    fastest = int(feed.min())
    behind = least - fastest if fastest < 0 else 0
    last = np.flatnonzero(np.diff(received // step, append=-1))
    requests, feed = received[last], feed[last] + behind
    takes = requests + behind + np.rint(feed * factors[0]).astype(np.int64)
    answers = takes - behind + np.rint(feed * factors[1]).astype(np.int64)
    return OrderDelays(requests, takes, answers, behind)
