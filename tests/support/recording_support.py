"""Recordings of one instrument, line by line."""

from decimal import Decimal
from pathlib import Path

from orderbook.feeds.raw_log import Line
from orderbook.feeds.recording import raw_recorder
from orderbook.feeds.recording.capture_files import RecordedLines, read_head
from orderbook.feeds.recording.raw_recorder import RawRecorder
from orderbook.market.instruments import Instrument

ONE = Instrument("kraken", "BTC-USD", "BTC/USD", Decimal("0.1"), Decimal("0.00000001"))


def recorder(folder: Path, **options: object) -> tuple[RawRecorder, raw_recorder.ConnectionLog]:
    made = RawRecorder(folder, "kraken", "kraken", **options)  # type: ignore[arg-type]
    return made, made.connection("kraken.1", [ONE])


def lines_of(path: Path) -> list[Line]:
    return [line for line in RecordedLines(read_head(path, None, ())) if line.t != "session"]
