"""Recordings are read to the same events where nothing is compiled, as for the page before a run."""

from pathlib import Path

import pytest
from recorded_events import digests
from uncompiled import run_uncompiled

from orderbook.feeds.recording.parquet_record import RecordWriter
from orderbook.market.synthetic_flow import generate, synthetic_instruments

# Frames and files that are short, or decoded in parts.
RECORDINGS = (
    "cryptofeed/BITFINEX.jsonl.zst", "cryptofeed/original/DERIBIT.ws.1.0", "dbn/test_data.mbp-10.v3.dbn.zst",
    "hftbacktest_more/hyperliquid_btcusd_20250126.gz",
)  # fmt: skip


@pytest.mark.sampled(3)
def test_recordings_are_read_to_the_events_of_compiled_code(tmp_path: Path, shared_data: Path) -> None:
    record = tmp_path / "flow.parquet"
    with RecordWriter(record, synthetic_instruments(2)) as writer:
        writer.write(next(generate(500, 2, 12, 3, resting=40)))
    paths = [str(record), *(str(shared_data / name) for name in RECORDINGS)]
    found = run_uncompiled("recorded_events.py", *paths).split("\n")[:-1]
    assert found == digests(paths) and len(set(found)) == len(paths)
