"""Files of every format through their readers, books and a view, beside another library's reading of them."""

import gzip
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import databento_dbn as dbn
import msgspec
import numpy as np
import polars as pl
import pyarrow.parquet as pq
import zstandard
from numpy.typing import NDArray
from pyarrow import csv

from orderbook.commands.common import configured
from orderbook.feeds.recording.parquet_record import RecordWriter
from orderbook.feeds.source import EventSource
from orderbook.feeds.source_kinds import open_source
from orderbook.market import synthetic_flow
from orderbook.market.events import Action, Events, Flag, Side
from orderbook.market.instruments import Instruments
from orderbook.run.assembly import assembled
from orderbook.run.pipeline import Pipeline
from orderbook.strategies.gated_engine import GatedEngine
from orderbook.views.compilation import compile_views

from .itch_day import write_day
from .measure import Case, Figures, Options, Stopwatch, data_folder, interleaved, table

_DAY = 1_600_000_000_000_000_000
# Databento, "MBO schema": 56 bytes, prices in 1e-9.
_MBO = np.dtype(
    [
        ("length", "u1"), ("rtype", "u1"), ("publisher_id", "<u2"), ("instrument_id", "<u4"),
        ("ts_event", "<u8"), ("order_id", "<u8"), ("price", "<i8"), ("size", "<u4"), ("flags", "u1"),
        ("channel_id", "u1"), ("action", "u1"), ("side", "u1"), ("ts_recv", "<u8"),
        ("ts_in_delta", "<i4"), ("sequence", "<u4"),
    ]
)  # fmt: skip
# The library types its enumerations' members as strings.
_SYMBOL: Any = dbn.SType.RAW_SYMBOL
_NUMBER: Any = dbn.SType.INSTRUMENT_ID
_RTYPE, _CENT, _LAST = 160, 10_000_000, 128
_LETTERS = np.zeros(16, np.uint8)
for _action, _letter in {
    "ADD": "A",
    "REDUCE": "C",
    "MODIFY": "M",
    "DELETE": "C",
    "EXECUTE": "C",
    "TRADE": "T",
}.items():
    _LETTERS[Action[_action]] = ord(_letter)
_NO_BOOK = "CREATE STREAM s (x BIGINT); CREATE VIEW v AS SELECT COUNT(*) AS n FROM s"


@dataclass(frozen=True, slots=True)
class _File:
    """A file to read: how a user names it, its records, and how another library reads it, if one does."""

    name: str
    source: str
    records: int
    other: Callable[[], object] | None = None


def files(options: Options) -> None:
    """CPU time of this thread, which is the only one of the other library, too."""
    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".files-benchmark-") as folder:
        count = options.messages
        found = [*_generated(Path(folder), count, options.seed), *_recorded(data_folder())]
        rows = [_row(one, options) for one in found]
    table(
        "Files, ns of CPU a record",
        ["", "records", "events", "decode", "+ books", "+ touch", "M/s into books", "other library"],
        rows,
    )


def _row(one: _File, options: Options) -> list[str]:
    cases = [
        Case("decode", one.records, lambda watch: watch.time("read", _decode, one.source)),
        Case("books", one.records, _Books(one.source, None).run),
        Case("touch", one.records, _Books(one.source, "touch").run),
    ]
    if (other := one.other) is not None:
        cases.append(Case("other", one.records, lambda watch: watch.time("read", other)))
    figures = interleaved(cases, options.runs)
    shown = [_nanoseconds(figures.get(case)) for case in ("decode", "books", "touch", "other")]
    rate = f"{1e3 / figures['books'].median:.2f}"
    return [one.name, f"{one.records:,}", f"{_decode(one.source):,}", *shown[:3], rate, shown[3]]


def _nanoseconds(figures: Figures | None) -> str:
    return "" if figures is None else f"{figures.median:,.0f}"


def _decode(source: str) -> int:
    return sum(map(len, _opened(source)))


def _opened(source: str) -> EventSource:
    return cast(EventSource, open_source(source))


class _Books:
    """Books of a file in the loop of a run, and a view that reads them, or one that does not."""

    def __init__(self, source: str, view: str | None) -> None:
        self._source, self._view = source, view

    def run(self, watch: Stopwatch) -> None:
        source = watch.time("open", _opened, self._source)
        pipeline = self._pipeline(source.instruments)
        pipeline.warm_up()

        def apply() -> None:
            for events in source:
                pipeline.apply(events, "batch")

        watch.time("read", apply)

    def _pipeline(self, instruments: Instruments) -> Pipeline:
        if self._view is None:
            return Pipeline(GatedEngine(compile_views(_NO_BOOK)), instruments)
        pipeline: Pipeline = assembled(configured(None, [self._view], [], {}), instruments)[1]
        return pipeline


def _generated(folder: Path, count: int, seed: int) -> Iterator[_File]:
    """A flow of orders of one instrument as a record and as DBN, a day of ITCH, levels as Tardis has them."""
    flow = np.concatenate(list(synthetic_flow.generate(count, 1, 200, seed)))
    instruments = synthetic_flow.synthetic_instruments(1)
    record = folder / "flow.parquet"
    with RecordWriter(record, instruments) as writer:
        writer.write(flow)
    yield _File("record (Parquet), orders", f"record:{record}", count, partial(_arrow, record))
    orders = folder / "xnas.mbo.dbn"
    records = _mbo(flow)
    orders.write_bytes(_metadata(dbn.Schema.MBO) + records.tobytes())
    yield _File("DBN, orders (MBO)", f"dbn:{orders}", len(records), partial(_databento, orders))
    day, kinds = write_day(folder, 100, count, seed)
    yield _File("ITCH, 100 stocks", f"itch:{day}", sum(kinds.values()))
    for packed, name in ((False, "Tardis, levels"), (True, "Tardis, levels, gzip")):
        levels = folder / ("binance_levels.csv" + ".gz" * packed)
        rows = _levels(levels, count // 2, seed, packed)
        yield _File(name, f"tardis:{levels}", rows, partial(_csv, levels))


def _mbo(flow: Events) -> NDArray[np.void]:
    """MBO[n] of the same changes of orders and trades; a fill is followed by what it takes from its order."""
    books = flow[flow["action"] != Action.STATE]
    found = np.zeros(len(books) + 1, _MBO)
    found["length"], found["rtype"], found["publisher_id"], found["instrument_id"] = 14, _RTYPE, 2, 7
    found["action"][0], found["side"][0], found["flags"][0] = ord("R"), ord("N"), _LAST
    rest = found[1:]
    rest["order_id"], rest["size"] = books["order_id"], books["volume"]
    rest["price"] = books["price"] * _CENT
    rest["action"] = _LETTERS[books["action"]]
    rest["side"] = np.where(books["side"] == Side.BID, ord("B"), ord("A"))
    rest["flags"] = np.where(books["flags"] & Flag.LAST, _LAST, 0)
    rest["sequence"] = books["sequence"]
    for name, time in (("ts_event", "exchange_time"), ("ts_recv", "receive_time")):
        rest[name] = books[time] - synthetic_flow.START + _DAY
        found[name][0] = rest[name][0]
    return found


def _metadata(schema: Any) -> bytes:
    """Of one instrument, ABC, in 2020."""
    whole = SimpleNamespace(start_date=date(2020, 1, 1), end_date=date(2021, 1, 1), symbol="7")
    return bytes(
        dbn.Metadata(
            dataset="XNAS.ITCH", start=0, end=None, stype_in=_SYMBOL,
            stype_out=_NUMBER, schema=schema, symbols=["ABC"], partial=[], not_found=[],
            mappings=[SimpleNamespace(raw_symbol="ABC", intervals=[whole])], version=3,
        )
    )  # fmt: skip


def _levels(path: Path, rows: int, seed: int, packed: bool) -> int:
    """Writes rows of incremental_book_L2: a snapshot of 100 levels a side, then some ten levels a message."""
    random = np.random.default_rng(seed)
    depth = np.arange(100)
    side = np.append(np.repeat([0, 1], 100), random.integers(0, 2, rows - 200))
    distance = np.append(np.tile(depth, 2), random.integers(0, 100, rows - 200))
    price = np.where(side == 0, 10_000 - distance, 10_001 + distance)
    gone = (random.random(rows) < 0.1) & (np.arange(rows) >= 200) & (distance > 0)
    amount = np.where(gone, 0, random.integers(1, 100_000, rows))
    time = _DAY // 1000 + np.append(np.zeros(200, np.int64), 1 + np.arange(rows - 200) // 10 * 1000)
    frame = pl.DataFrame(
        {
            "exchange": pl.repeat("binance", rows, eager=True),
            "symbol": pl.repeat("BTCUSDT", rows, eager=True),
            "timestamp": time, "local_timestamp": time + 5000,
            "is_snapshot": np.where(np.arange(rows) < 200, "true", "false"),
            "side": np.where(side == 0, "bid", "ask"),
            "price": price / 100, "amount": amount / 1000,
        }
    )  # fmt: skip
    with gzip.open(path, "wb", 1) if packed else path.open("wb") as file:
        file.write(frame.write_csv().encode())
    return rows


def _recorded(folder: Path) -> Iterator[_File]:
    """LOBSTER's and Binance's recordings that are there."""
    for pattern in ("lobster/*_message_*", "hftbacktest/*_btcusdt_*"):
        for path in sorted(folder.glob(pattern)):
            kind = "lobster" if "message" in path.name else "binance"
            opened = zstandard.open if path.suffix == ".zst" else gzip.open
            with opened(path, "rb") as file:
                rows = sum(chunk.count(b"\n") for chunk in iter(partial(file.read, 1 << 20), b""))
            other = partial(_csv, path) if kind == "lobster" else partial(_json_lines, path)
            yield _File(f"{kind}, {path.name.split('.')[0][:28]}", f"{kind}:{path}", rows, other)


def _arrow(path: Path) -> object:
    return pq.read_table(path, use_threads=False)


def _csv(path: Path) -> object:
    options = csv.ReadOptions(use_threads=False, autogenerate_column_names=True)
    return csv.read_csv(path, read_options=options)


def _json_lines(path: Path) -> object:
    with gzip.open(path, "rb") as file:
        return [msgspec.json.decode(line.partition(b" ")[2]) for line in file]


def _databento(path: Path) -> object:
    decoder = dbn.DBNDecoder()
    decoder.write(path.read_bytes())
    return decoder.decode()
