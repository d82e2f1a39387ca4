"""The compiled decoder of DBN, against the library's records taken one by one."""

import os
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from random import Random
from typing import Any, SupportsBytes

import databento_dbn as dbn
import numpy as np
import pytest
import zstandard
from databento_files import DAY, member, metadata, until_error
from databento_reference import ReferenceSource

from orderbook.core.errors import SourceError
from orderbook.feeds.files import databento_blocks
from orderbook.feeds.files.databento import DatabentoSource
from orderbook.feeds.files.databento_blocks import RecordDecoder
from orderbook.market.events import Events

Decode = Callable[[RecordDecoder, bytes], Iterator[Events]]
SEEDS = range(int(os.environ.get("ORDERBOOK_FUZZ", "40")))
MAPPINGS = [
    ("ABC", date(2020, 1, 1), date(2020, 9, 14), 7),
    ("ABC", date(2020, 9, 14), date(2021, 1, 1), 9),
    ("XYZ", date(2020, 1, 1), date(2021, 1, 1), 8),
    ("OLD", date(2020, 1, 1), date(2020, 9, 13), 9),
    ("FAR", date(2020, 1, 1), date(2021, 1, 1), 8 + 16),
]
SCHEMAS = {
    "mbo": dbn.Schema.MBO,
    "mbp-1": dbn.Schema.MBP_1,
    "mbp-10": dbn.Schema.MBP_10,
    "tbbo": dbn.Schema.TBBO,
    "trades": dbn.Schema.TRADES,
    "status": dbn.Schema.STATUS,
}
ACTIONS = [member(dbn.Action, name) for name in ("ADD", "CANCEL", "MODIFY", "TRADE", "FILL", "CLEAR", "NONE")]
SIDES = [member(dbn.Side, name) for name in ("BID", "ASK", "NONE")]
TRADING = [member(dbn.TriState, name) for name in ("YES", "NO", "NOT_AVAILABLE")]
FLAGS = [128, 128, 128, 0, 0, 128 + 32, 128 + 64, 64, 128 + 4]
ERROR = 21
# A day of nanoseconds, so that ids change their symbols.
HOURS = 86_400_000_000_000


class Flow:
    """Random records of a schema: few orders and prices, so that they meet."""

    def __init__(self, seed: int, schema: str) -> None:
        self.chance = Random(seed)
        self.schema = schema
        self.ids = [7, 8, 9, 24, 99] if seed % 3 else [7, 8, 9]
        self.time = DAY

    def records(self, count: int) -> list[bytes]:
        return [bytes(self._record()) for _ in range(count)]

    def _record(self) -> SupportsBytes:
        chance = self.chance
        self.time += chance.choice([0, 1, HOURS // 50])
        head = (chance.choice([1, 1, 1, 1, 2]), chance.choice(self.ids), self.time)
        if self.schema == "status" or chance.random() < 0.03:
            return self._status(head)
        if chance.random() < 0.01:
            return dbn.ErrorMsg(self.time, "lost", True) if chance.random() < 0.5 else self._system()
        received = dbn.UNDEF_TIMESTAMP if chance.random() < 0.05 else self.time + 5
        size, flags = chance.choice([0, 1, 5, 5, 8, 2**32 - 1]), chance.choice(FLAGS)
        action, side = chance.choice(ACTIONS), chance.choice(SIDES[: 2 + (chance.random() < 0.1)])
        if self.schema == "mbo":
            action = chance.choice([*ACTIONS[:3] * 5, *ACTIONS])
            order_id = chance.choice([0, 1, 2, 3, 4, 5, 2**64 - 1, 2**63])
            order = (*head, order_id, self._price(), size, action, side, received)
            return dbn.MBOMsg(*order, flags=flags, sequence=chance.randrange(2**32))
        arguments = (*head, self._price(), size, action, side, 0, received)
        options: dict[str, Any] = {"flags": flags, "sequence": chance.randrange(2**32)}
        if self.schema == "trades":
            return dbn.TradeMsg(*arguments, **options)
        if self.schema == "mbp-10":
            pairs = [self._pair() for _ in range(10)]
            return dbn.MBP10Msg(*arguments, **options, levels=pairs)
        return dbn.MBP1Msg(*arguments, **options, levels=self._pair())  # type: ignore[arg-type]

    def _price(self) -> int:
        chance = self.chance
        if chance.random() < 0.06:
            return chance.choice([2**63 - 1, 5, -7, 10**9 + 10, 0])
        return chance.randrange(-3, 12) * 10_000_000

    def _pair(self) -> dbn.BidAskPair:
        size = self.chance.choice([0, 1, 2, 3])
        return dbn.BidAskPair(self._price(), self._price(), size, size + self.chance.randrange(2), 1, 1)

    def _status(self, head: tuple[int, int, int]) -> dbn.StatusMsg:
        chance = self.chance
        trading = chance.choice(TRADING)
        action = chance.choice(list(dbn.StatusAction.variants()))
        return dbn.StatusMsg(*head, self.time + 1, action, is_trading=trading)

    def _system(self) -> dbn.SystemMsg:
        return dbn.SystemMsg(self.time, "hello")


def both(*paths: Path, **options: Any) -> tuple[tuple[object, ...], tuple[object, ...]]:
    """What the source and the reference give: events, the error's text, problems with examples, counts."""
    given = []
    for kind in (DatabentoSource, ReferenceSource):
        source = kind(list(paths), **options)
        batches, error = until_error(source)
        assert all(len(batch) and batch["flags"][-1] & 1 for batch in batches)
        events = np.concatenate(batches) if batches else np.empty(0)
        found = (source.problems.counts, source.problems.examples, source.counts)
        given.append((events.tobytes(), error, *found))
    return given[0], given[1]


def written(path: Path, schema: str, records: list[bytes], **options: Any) -> Path:
    path.write_bytes(metadata(SCHEMAS[schema], MAPPINGS, **options) + b"".join(records))
    return path


@pytest.mark.sampled(4)
@pytest.mark.parametrize("schema", SCHEMAS)
def test_random_records(tmp_path: Path, schema: str) -> None:
    for seed in SEEDS:
        path = written(tmp_path / f"{seed}.dbn", schema, Flow(seed, schema).records(300))
        for options in ({}, {"tick": "0.01"}):
            found, expected = both(path, batch_size=[1, 64, 16_384][seed % 3], **options)
            assert found == expected


@pytest.mark.parametrize("schema", SCHEMAS)
def test_several_files(tmp_path: Path, schema: str) -> None:
    for seed in SEEDS[:10]:
        spans = [(0, DAY + 10**12), (DAY + (10**12 if seed % 2 else 2 * 10**12), None)]
        flow = Flow(seed, schema)
        paths = [
            written(tmp_path / f"{seed}-{number}.dbn", schema, flow.records(100), span=span)
            for number, span in enumerate(spans)
        ]
        found, expected = both(*paths)
        assert found == expected


@pytest.mark.parametrize("schema", SCHEMAS)
def test_truncated_and_mutated_files(tmp_path: Path, schema: str) -> None:
    """But for lengths, types and texts of errors, over which the library panics, loses records or raises."""
    for seed in SEEDS:
        chance = Random(seed)
        records = Flow(seed, schema).records(60)
        changed = []
        for record in map(bytearray, records):
            if chance.random() < 0.3 and record[1] != ERROR:
                record[chance.randrange(2, len(record))] = chance.choice(
                    [0, 1, 127, 128, 255, chance.randrange(256)]
                )
            changed.append(bytes(record))
        path = written(tmp_path / f"{seed}.dbn", schema, changed)
        if seed % 2:
            path.write_bytes(path.read_bytes()[: -chance.randrange(1, 200)])
        found, expected = both(path)
        assert found == expected


@pytest.mark.parametrize("byte", [0, 1])
def test_damaged_heads_end_the_file(tmp_path: Path, byte: int) -> None:
    records = Flow(1, "mbo").records(40)
    whole, _ = until_error(DatabentoSource(written(tmp_path / "whole.dbn", "mbo", records[:20])))
    for value in (0, 3, 4, 5, 77) if byte == 0 else (77, 0x50, 255):
        if byte == 0 and 4 * value >= len(records[20]):
            continue
        damaged = bytearray(records[20])
        damaged[byte] = value
        path = written(tmp_path / "damaged.dbn", "mbo", [*records[:20], bytes(damaged), *records[21:]])
        batches, error = until_error(DatabentoSource(path))
        assert "not readable as DBN" in error
        assert "after record 20; everything before it was read" in error
        assert np.concatenate(batches).tobytes() == np.concatenate(whole).tobytes()


def test_files_read_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for schema in ("mbo", "mbp-10"):
        path = written(tmp_path / f"{schema}.dbn", schema, Flow(5, schema).records(200))
        whole, _ = both(path)
        for seed in SEEDS[:10]:
            chance = Random(seed)
            decode = databento_blocks.RecordDecoder.block

            def pieces(
                decoder: RecordDecoder, block: bytes, chance: Random = chance, decode: Decode = decode
            ) -> Iterator[Events]:
                while block:
                    size = chance.choice([1, 2, 15, 56, chance.randrange(1, 2000)])
                    yield from decode(decoder, block[:size])
                    block = block[size:]

            with monkeypatch.context() as changed:
                changed.setattr(databento_blocks.RecordDecoder, "block", pieces)
                found, _ = both(path)
            assert found == whole


def test_messages_that_wait_long(tmp_path: Path) -> None:
    """More events than a batch has wait for the last record, of two instruments by turns."""
    flow = Flow(3, "mbo")
    records = []
    for number in range(3000):
        arguments = (number + 1, 10_000_000, 5, ACTIONS[0], SIDES[0], DAY + 1)
        records.append(bytes(dbn.MBOMsg(1, 7 + number % 2, DAY, *arguments, flags=0, sequence=1)))
    for number in (7, 8):
        records.append(bytes(dbn.MBOMsg(1, number, DAY, 0, 0, 0, ACTIONS[5], SIDES[2], DAY, flags=128)))
    path = written(tmp_path / "long.dbn", "mbo", [*records, *flow.records(50)])
    found, expected = both(path, batch_size=100)
    assert found == expected


def test_recorded_files(shared_data: Path, tmp_path: Path) -> None:
    for path in sorted((shared_data / "dbn").glob("*.dbn*")):
        found, expected = both(path)
        assert found == expected
        data = zstandard.ZstdDecompressor().decompressobj().decompress(path.read_bytes())
        plain = tmp_path / path.name.removesuffix(".zst")
        for cut in (1, 17, len(data) // 3):
            plain.write_bytes(data[:-cut])
            try:
                found, expected = both(plain)
            except SourceError:
                continue
            assert found == expected
        plain.unlink()
