"""Databento DBN: recorded files, against their bytes read without the library."""

import struct
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
import zstandard
from plain_book import PlainBook, messages, read

from orderbook.core.changes import Dictionary
from orderbook.feeds.files.databento import DatabentoSource
from orderbook.feeds.source_kinds import open_source
from orderbook.market.books import Books
from orderbook.market.events import Action, BookState, Side, StateReason


def test_every_recorded_file_reads_without_a_problem(shared_data: Path) -> None:
    paths = sorted((shared_data / "dbn").glob("*.dbn*"))
    assert len(paths) >= 22
    for path in paths:
        source = open_source(str(path))
        assert isinstance(source, DatabentoSource)
        books = Books(source.instruments, Dictionary())
        for events in source:
            books.apply(events)
        assert source.problems.report() == []
        assert books.problems() == {}
        assert len(source.instruments) == (2 if ".frag" in path.name else 1)


@pytest.mark.parametrize("kind", ["mbo", "mbp-1", "mbp-10", "tbbo", "trades", "status"])
def test_versions_of_a_recorded_file_give_the_same_events(shared_data: Path, kind: str) -> None:
    paths = sorted((shared_data / "dbn").glob(f"test_data.{kind}.v*.dbn.zst"))
    versions = [read(DatabentoSource(path)) for path in paths]
    assert len(versions) >= 2
    for events in versions:
        assert np.array_equal(events, versions[0])


def raw_records(path: Path) -> Iterator[bytes]:
    """Records cut from the bytes by their headers, without the library."""
    data = zstandard.ZstdDecompressor().decompressobj().decompress(path.read_bytes())
    (length,) = struct.unpack_from("<I", data, 4)
    position = 8 + length
    while position < len(data):
        size = 4 * data[position]
        yield data[position : position + size]
        position += size


@pytest.mark.parametrize(("kind", "depth"), [("mbp-1", 1), ("mbp-10", 10), ("tbbo", 1)])
@pytest.mark.parametrize("version", [1, 2, 3])
def test_recorded_levels_equal_the_bytes(shared_data: Path, kind: str, depth: int, version: int) -> None:
    path = shared_data / "dbn" / f"test_data.{kind}.v{version}.dbn.zst"
    source = DatabentoSource(path, tick="0.25")
    found = list(messages(source))
    records = list(raw_records(path))
    assert len(found) == len(records) >= 2
    book = PlainBook()
    for message, record in zip(found, records, strict=True):
        event_time, price, size, action, side = struct.unpack_from("<8xQqIcc", record)
        receive_time, sequence = struct.unpack_from("<Q4xI", record, 32)
        for event in message:
            assert event[["exchange_time", "receive_time", "sequence"]].tolist() == (
                event_time,
                receive_time,
                sequence,
            )
            book.apply(event)
        pairs = [struct.unpack_from("<qqII", record, 48 + 32 * level) for level in range(depth)]
        unit = 10
        assert book.best(Side.BID) == [(bid // unit, size) for bid, _, size, _ in pairs]
        assert book.best(Side.ASK) == [(ask // unit, size) for _, ask, _, size in pairs]
        trades = message[message["action"] == Action.TRADE]
        expected = [(int(side == b"A"), price // unit, size)] if action == b"T" else []
        assert trades[["side", "price", "volume"]].tolist() == expected


@pytest.mark.parametrize("version", [1, 2, 3])
def test_recorded_trades_equal_the_bytes(shared_data: Path, version: int) -> None:
    path = shared_data / "dbn" / f"test_data.trades.v{version}.dbn.zst"
    events = read(DatabentoSource(path, tick="0.25"))
    found = events[events["action"] == Action.TRADE][["exchange_time", "price", "volume", "side"]].tolist()
    expected = []
    for record in raw_records(path):
        time, price, size, side = struct.unpack_from("<8xQqIxc", record)
        expected.append((time, price // 10, size, int(side == b"A")))
    assert found == expected
    assert len(found) == 2


def test_recorded_status(shared_data: Path) -> None:
    events = read(DatabentoSource(shared_data / "dbn" / "test_data.status.v3.dbn.zst"))
    assert events[["action", "volume", "order_id"]].tolist() == [
        (Action.STATE, BookState.VALID, StateReason.SYNCHRONISED),
        (Action.STATE, BookState.STALE, StateReason.AUCTION),
        (Action.STATE, BookState.VALID, StateReason.SYNCHRONISED),
    ]


def test_recorded_definitions_give_ticks(shared_data: Path) -> None:
    for version in ("", ".v1", ".v3"):
        source = DatabentoSource(shared_data / "dbn" / f"test_data.definition{version}.dbn.frag.zst")
        assert {i.symbol: i.tick for i in source.instruments} == {
            "GEM3 P9812": Decimal("0.5"),
            "ESH1 P2250": Decimal("1E-8"),
        }
        assert len(read(source)) == 0
        assert source.counts == {"records of instrument-def": 2}
