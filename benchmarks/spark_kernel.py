"""The limit of a stage on Spark, to measure against: `depth` written by hand for one view, in `mapInArrow`.

Workers read the columns of record files that it needs, follow orders in an array by their id, sum each side
of each symbol's book, and write a row for every message, or keep the last one alone. No checks, no other
events, no other views.
"""

import secrets
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import numba
import numpy as np
import pyarrow as pa
from pyarrow import parquet
from pyspark.sql import SparkSession

from orderbook.market.events import Action, Flag

_COLUMNS = ["action", "side", "order_id", "volume", "flags", "receive_time"]
_ADD, _REDUCE, _MODIFY = int(Action.ADD), int(Action.REDUCE), int(Action.MODIFY)
_DELETE, _EXECUTE, _CLEAR, _LAST = int(Action.DELETE), int(Action.EXECUTE), int(Action.CLEAR), int(Flag.LAST)
_OUT = pa.schema([("rows", pa.int64()), ("bid_volume", pa.int64()), ("ask_volume", pa.int64())])


@numba.njit(cache=True)
def _follow(action, side, order, volume, flags, left, sides, book, rows, places):  # type: ignore[no-untyped-def]
    """Rows of the sides' volumes and orders after every message that changes them; how many there are."""
    count, changed = 0, False
    for i in range(action.size):
        one, what = order[i], action[i]
        if what == _ADD:
            left[one], sides[one] = volume[i], side[i]
            book[side[i]] += volume[i]
            book[2 + side[i]] += 1
            changed = True
        elif what == _CLEAR:
            left[:] = 0
            book[:] = 0
            changed = True
        elif what in (_REDUCE, _MODIFY, _DELETE, _EXECUTE) and left[one] > 0:
            now = 0
            if what == _MODIFY:
                now = volume[i]
            elif what != _DELETE:
                now = max(0, left[one] - volume[i])
            book[sides[one]] += now - left[one]
            book[2 + sides[one]] -= now == 0
            left[one] = now
            changed = True
        if changed and flags[i] & _LAST:
            rows[count] = book
            places[count] = i
            count += 1
            changed = False
    return count


def _run(history: bool, folder: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for text in batch.column(1).to_pylist():
            written, last = 0, np.zeros(4, np.int64)
            left, sides, book = np.zeros(1, np.int64), np.zeros(1, np.int64), np.zeros(4, np.int64)
            for path in text.split("\n"):
                table = parquet.read_table(path, columns=_COLUMNS, use_threads=False)
                own = {name: table[name].to_numpy() for name in _COLUMNS}
                order = np.maximum(own["order_id"], 0)
                more = max(0, int(order.max()) + 1 - len(left))
                left, sides = (
                    np.append(left, np.zeros(more, np.int64)),
                    np.append(sides, np.zeros(more, np.int64)),
                )
                rows, places = np.empty((len(table), 4), np.int64), np.empty(len(table), np.int64)
                count = _follow(
                    own["action"],
                    own["side"],
                    order,
                    own["volume"],
                    own["flags"],
                    left,
                    sides,
                    book,
                    rows,
                    places,
                )
                if history:
                    _write(
                        Path(folder), Path(path).stem, own["receive_time"].take(places[:count]), rows[:count]
                    )
                written, last = written + count, book
            yield pa.RecordBatch.from_arrays([pa.array([int(v)]) for v in (written, *last[:2])], schema=_OUT)


def _write(folder: Path, symbol: str, stamps: np.ndarray, rows: np.ndarray) -> None:
    bids, asks = rows[:, 0].astype(np.float64), rows[:, 1].astype(np.float64)
    with np.errstate(invalid="ignore"):
        imbalance = (bids - asks) / (bids + asks)
    symbols = pa.DictionaryArray.from_arrays(pa.array(np.zeros(len(rows), np.int32)), pa.array([symbol]))
    names = ("bid_volume", "ask_volume", "bid_orders", "ask_orders")
    columns = {"stamp": stamps, "symbol": symbols.cast(pa.string()), **dict(zip(names, rows.T, strict=True))}
    table = pa.table({**columns, "imbalance": imbalance})
    parquet.write_table(table, folder / f"{symbol}-{secrets.token_hex(4)}.parquet", compression="zstd")


def specialised(
    session: SparkSession, files: Sequence[Sequence[str]], folder: Path, partitions: int, history: bool
) -> int:
    """Runs it over the files of each symbol, in so many tasks; rows of history."""
    folder.mkdir(exist_ok=True)
    numbers = pa.array([place % partitions for place in range(len(files))], pa.int32())
    tasks = pa.table({"task": numbers, "files": ["\n".join(own) for own in files]})
    spread = session.createDataFrame(tasks).repartitionById(partitions, "task")
    types = "rows bigint, bid_volume bigint, ask_volume bigint"
    made = spread.mapInArrow(partial(_run, history, str(folder)), types).toArrow()
    return int(sum(made["rows"].to_pylist()))
