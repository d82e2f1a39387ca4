"""The project's Parquet record: what is written is read, field by field."""

from decimal import Decimal
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from orderbook.core.errors import SourceError
from orderbook.feeds.recording.parquet_record import RecordSource, RecordWriter
from orderbook.feeds.source_kinds import open_source, open_sources
from orderbook.market.events import EVENT, Flag
from orderbook.market.instruments import Instrument, Instruments

BTC = Instrument("binance", "BTC-USDT", "BTCUSDT", Decimal("0.01"), Decimal("0.00001"))
ETH = Instrument("binance", "ETH-USDT", "ETHUSDT", Decimal("0.05"), Decimal("1E-8"))
AMZN = Instrument("nasdaq", "AMZN", "AMZN", Decimal("0.0001"), Decimal(1))


def random_events(seed: int, count: int, instruments: int) -> np.ndarray:
    """EVENT[count] of random bits in every field, one in three the last of its message."""
    random = np.random.default_rng(seed)
    events = np.frombuffer(random.bytes(count * EVENT.itemsize), EVENT).copy()
    events["instrument"] = random.integers(0, instruments, count)
    events["flags"] = random.integers(0, 4, count) * (random.random(count) < 0.6)
    if count:
        events["flags"][-1] |= Flag.LAST
    return events


@given(
    seed=st.integers(0, 2**32),
    sizes=st.lists(st.integers(0, 40), max_size=6),
    row_group_size=st.integers(1, 50),
    batch_size=st.integers(1, 50),
)
def test_every_field_survives(
    tmp_path_factory: pytest.TempPathFactory,
    seed: int,
    sizes: list[int],
    row_group_size: int,
    batch_size: int,
) -> None:
    path = tmp_path_factory.mktemp("record") / "events.parquet"
    parts = [random_events(seed + i, size, 2) for i, size in enumerate(sizes)]
    with RecordWriter(path, Instruments([BTC, ETH]), row_group_size) as writer:
        for part in parts:
            reused = part.copy()
            writer.write(reused)
            reused["price"] = 0
    source = RecordSource([path], batch_size)
    assert list(source.instruments) == [BTC, ETH]
    for _ in range(2):
        batches = list(source)
        assert source.progress == 1.0
        written = np.concatenate([np.empty(0, EVENT), *parts])
        assert np.concatenate([np.empty(0, EVENT), *batches]).tobytes() == written.tobytes()
        for events in batches:
            assert events.dtype == EVENT
            assert events["flags"][-1] & Flag.LAST or len(events) >= batch_size


def test_the_file_is_plain_parquet_with_the_fields_as_columns(tmp_path: Path) -> None:
    path = tmp_path / "events.parquet"
    events = random_events(1, 300, 1)
    with RecordWriter(path, Instruments([AMZN]), 100) as writer:
        for start in range(0, 300, 50):
            writer.write(events[start : start + 50])
    frame = pl.read_parquet(path)
    assert frame.columns == list(EVENT.names or ())
    for name in frame.columns:
        assert (frame[name].to_numpy() == events[name]).all()
    assert pq.ParquetFile(path).num_row_groups == 3


def write(path: Path, events: np.ndarray, *instruments: Instrument) -> None:
    with RecordWriter(path, Instruments(instruments)) as writer:
        writer.write(events)


@pytest.mark.parametrize("text", ["{}", "{}/*.parquet"])
def test_several_files_are_one_source_with_one_list_of_instruments(tmp_path: Path, text: str) -> None:
    first, second = random_events(1, 50, 2), random_events(2, 60, 2)
    write(tmp_path / "2024-01-01.parquet", first, BTC, ETH)
    write(tmp_path / "2024-01-02.parquet", second, AMZN, BTC)
    source = open_source("record:" + text.format(tmp_path))
    assert isinstance(source, RecordSource)
    assert list(source.instruments) == [BTC, ETH, AMZN]
    events = np.concatenate(list(source))
    numbers: NDArray[np.int32] = second["instrument"]
    second["instrument"] = np.array([2, 0]).take(numbers)
    assert events.tobytes() == np.concatenate([first, second]).tobytes()


def test_what_was_written_before_an_error_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "events.parquet"
    events = random_events(3, 20, 1)
    writer = RecordWriter(path, Instruments([BTC]))
    writer.write(events)
    assert not path.exists()
    with pytest.raises(ZeroDivisionError), writer:
        writer.write(events[: 1 // 0])
    assert np.concatenate(list(RecordSource([path]))).tobytes() == events.tobytes()
    assert list(tmp_path.iterdir()) == [path]


def test_bad_records_are_one_clear_error(tmp_path: Path) -> None:
    good = tmp_path / "good.parquet"
    write(good, random_events(4, 1000, 1), BTC)
    cut = tmp_path / "cut.parquet"
    cut.write_bytes(good.read_bytes()[:-100])
    other = tmp_path / "other.parquet"
    pq.write_table(pa.table({"price": [1]}), other)
    unnamed = tmp_path / "unnamed.parquet"
    pq.write_table(pq.read_table(good).replace_schema_metadata({}), unnamed)
    newer = tmp_path / "newer.parquet"
    metadata = pq.read_schema(good).metadata
    metadata = {key: value.replace(b'"version":2', b'"version":3') for key, value in metadata.items()}
    pq.write_table(pq.read_table(good).replace_schema_metadata(metadata), newer)
    differs = tmp_path / "differs.parquet"
    coarse = Instrument("binance", "BTC-USDT", "BTCUSDT", Decimal(1), Decimal(1))
    write(differs, random_events(5, 10, 1), coarse)
    for paths, message in (
        ([cut], "cannot read as a Parquet record"),
        ([tmp_path / "missing.parquet"], "check that it is there"),
        ([other], "not a record of events"),
        ([unnamed], "metadata are broken"),
        ([newer], "version 3, this program reads 2"),
        ([good, differs], "ticks or lots differ"),
    ):
        with pytest.raises(SourceError, match=message) as error:
            RecordSource(paths)
        assert "\n" not in str(error.value)
    with pytest.raises(SourceError, match="cannot write"):
        RecordWriter(tmp_path / "no" / "such" / "folder", Instruments([BTC]))


def test_a_corrupt_middle_gives_what_is_before_it(tmp_path: Path) -> None:
    path = tmp_path / "events.parquet"
    events = random_events(6, 3000, 1)
    with RecordWriter(path, Instruments([BTC]), 1000) as writer:
        for start in range(0, 3000, 1000):
            writer.write(events[start : start + 1000])
    data = bytearray(path.read_bytes())
    start = pq.ParquetFile(path).metadata.row_group(2).column(0).data_page_offset
    data[start : start + 200] = bytes(200)
    path.write_bytes(data)
    batches: list[np.ndarray] = []
    with pytest.raises(SourceError, match="corrupt after event"):
        batches.extend(RecordSource([path], 500))
    read = np.concatenate(batches)
    assert len(read) > 1900
    assert read.tobytes() == events[: len(read)].tobytes()


def test_files_of_days_follow_each_other_by_time_and_not_by_name(tmp_path: Path) -> None:
    first, second = random_events(1, 50, 1), random_events(2, 60, 1)
    first["receive_time"], second["receive_time"] = np.arange(1, 51), np.arange(60, 120)
    for name, events in (("b", first), ("a", second)):
        write(tmp_path / f"{name}.parquet", events, BTC)
    for text in (f"record:{tmp_path}", f"{tmp_path}/*.parquet"):
        (source,) = open_sources([text])
        assert np.concatenate(list(source)).tobytes() == np.concatenate([first, second]).tobytes()


@pytest.mark.parametrize("name", ["price", "action"])
def test_a_value_that_is_null_is_named(name: str, tmp_path: Path) -> None:
    path = tmp_path / "events.parquet"
    with RecordWriter(path, Instruments([BTC])) as writer:
        writer.write(random_events(6, 300, 1))
    table = pq.read_table(path)
    place = table.schema.get_field_index(name)
    kind = table.schema.field(place).type
    values = pa.array([None, *table.column(name).to_pylist()[1:]], kind)
    spoilt = table.set_column(place, pa.field(name, kind), values)
    pq.write_table(spoilt.replace_schema_metadata(table.schema.metadata), path)
    with pytest.raises(SourceError, match=f"corrupt after event 0: {name} is NULL in 1 rows"):
        list(RecordSource([path]))


def test_fields_that_nobody_asks_for_are_not_read(tmp_path: Path) -> None:
    path, events = tmp_path / "events.parquet", random_events(3, 400, 1)
    events["receive_time"] = np.abs(events["receive_time"]) + 1
    # One row group has an event without a receive time.
    events["receive_time"][250] = 0
    with RecordWriter(path, Instruments([BTC]), row_group_size=100) as writer:
        for start in range(0, 400, 100):
            writer.write(events[start : start + 100])
    source = RecordSource([path], 1000, unread=("exchange_time", "sequence", "price"))
    read = np.concatenate(list(source))
    events["sequence"] = 0
    events["exchange_time"][:200] = events["exchange_time"][300:] = 0
    assert read.tobytes() == events.tobytes()
