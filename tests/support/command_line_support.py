"""The program run inside the test's process, and small files for it."""

import asyncio
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from orderbook.command_line import status_of

if TYPE_CHECKING:
    from orderbook.commands.run import Shown
    from orderbook.run.pipeline import Pipeline

# So fast that a second sees the flow crowd to one side, and a machine that does much else keeps up.
FAST_FEED = """
[[feeds]]
kind = "simulated"
events_per_second = 3000
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


EndsOnce = Callable[[Callable[["Pipeline", int], object]], None]


@pytest.fixture
def ends_once(monkeypatch: pytest.MonkeyPatch) -> EndsOnce:
    """Ends `orderbook run` once a condition holds of its pipeline and of how many messages it applied.

    What holds was shown, too. What a run does within some seconds is the machine's affair: it is given
    PATIENCE, and ends by what it did.
    """
    from orderbook.commands.run import Shown

    showing = Shown._show

    def ends(holds: "Callable[[Pipeline, int], object]") -> None:
        async def show(self: "Shown") -> None:
            before, shown = self._pipeline.messages, asyncio.create_task(showing(self))
            while not holds(self._pipeline, self._pipeline.messages - before):
                await asyncio.sleep(0.02)
            shown.cancel()
            self._display.refresh(self._status(), list(self._rows()))

        monkeypatch.setattr(Shown, "_show", show)

    return ends


def books_valid(pipeline: "Pipeline") -> bool:
    """Whether every book of a run is known, without which its result is incomplete."""
    return pipeline.books is not None and pipeline.books.all_valid


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
