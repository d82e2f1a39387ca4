"""The program run inside the test's process, and small files for it."""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from orderbook.command_line import status_of

# As fast as the loop goes, so that a few seconds see the flow crowd to one side.
FAST_FEED = """
[[feeds]]
kind = "simulated"
events_per_second = 15000
imbalance = {imbalance}
"""
NO_STRATEGIES = "[run]\nstrategies = []\n"
TOTALS = """
CREATE VIEW totals AS
SELECT symbol, SUM(volume) AS volume, COUNT(*) AS orders FROM bids GROUP BY symbol;
"""


@dataclass(frozen=True)
class Result:
    """What a call of the program left."""

    status: int
    out: str
    err: str

    @property
    def error_lines(self) -> list[str]:
        """Standard error without the lines that say how long compiling took."""
        return [line for line in self.err.splitlines() if not line.startswith("compiling")]


Program = Callable[..., Result]


@pytest.fixture
def orderbook(capsys: pytest.CaptureFixture[str]) -> Program:
    """Calls the program with arguments."""

    def call(*arguments: object) -> Result:
        capsys.readouterr()
        status = status_of([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Result(status, captured.out, captured.err)

    return call


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def bid(order_id: int, volume: Any, price: Any, symbol: str = "X-USD") -> dict[str, Any]:
    """A row of bids."""
    return {
        "ts": order_id,
        "venue": "v",
        "symbol": symbol,
        "id": order_id,
        "broker_id": 0,
        "volume": volume,
        "price": price,
    }


def change_stream(path: Path, changes: Iterable[tuple[str, str, dict[str, Any]]]) -> Path:
    """A change stream of (stream, op, row)."""
    lines = [json.dumps({"stream": stream, "op": op, "row": row}) for stream, op, row in changes]
    return write(path, "\n".join(lines) + "\n")


def lobster(path: Path, lines: Sequence[str]) -> Path:
    """A LOBSTER message file without its book file."""
    return write(path / "ABC_2012-06-21_34200000_57600000_message_1.csv", "\n".join(lines) + "\n")
