"""Recorded frames of each exchange through decoder, books and views, beside cryptofeed's handling of them."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

import msgspec
import numpy as np

from orderbook.commands.common import configured
from orderbook.core.changes import Dictionary
from orderbook.feeds.byte_stream import Lines
from orderbook.feeds.exchanges.exchange import ExchangeOptions, exchange
from orderbook.feeds.files.binance_capture import BinanceCaptureSource
from orderbook.feeds.live.session import Session
from orderbook.feeds.raw_log import Line
from orderbook.feeds.recording.capture_files import CaptureHead, read_head
from orderbook.market.books import Books
from orderbook.market.instruments import Instruments
from orderbook.run.assembly import assembled, warm_up
from orderbook.run.pipeline import Pipeline

from .measure import CONSOLE, Case, Figures, Options, Stopwatch, interleaved, table

# Where recordings lie, and a Python that has cryptofeed.
_DATA, _PYTHON = "ORDERBOOK_DATA", "CRYPTOFEED_PYTHON"
_DEFAULT_DATA = Path(__file__).parents[2] / "shared" / "data"
# Frames between two looks at what was decoded, as come together when a feed is busy.
_TOGETHER = 64
# Frames of a recording that are taken, and frames at least that a run handles, repeating the recording.
_MOST, _LEAST = 20_000, 4_000
_Step = tuple[str, str, bytes, int]  # "frame" or "answer", product, data, receive time in ns


@dataclass(frozen=True, slots=True)
class _Recording:
    """What happened on a connection; `foreign` is the same for cryptofeed, None where it lacks something."""

    name: str
    kind: str
    instruments: Instruments
    steps: Sequence[_Step]
    foreign: dict[str, Any] | None

    @property
    def frames(self) -> int:
        return sum(step[0] == "frame" for step in self.steps)


def feeds(options: Options) -> None:
    """CPU time of this thread, and of cryptofeed's own process."""
    folder = Path(os.environ.get(_DATA, _DEFAULT_DATA))
    recordings = list(_recordings(folder, options.quick))
    if not recordings:
        CONSOLE.print(f"no recordings in {folder}; {_DATA} names another folder")
        return
    with tempfile.TemporaryDirectory() as temporary:
        theirs = _Cryptofeed.started(Path(temporary))
        if theirs is None:
            CONSOLE.print(f"cryptofeed is not here, so ours alone; {_PYTHON} names a Python that has it")
        rows = [row for one in recordings for row in _measured(one, theirs, options)]
        if theirs is not None:
            theirs.close()
    columns = ("", "frames", "decode", "+ books", "+ views", "µs a frame", "cryptofeed", "ratio")
    table("Recorded frames, thousands a second; ratio: cryptofeed's time to ours with views", columns, rows)


def _measured(one: _Recording, theirs: "_Cryptofeed | None", options: Options) -> Iterator[Sequence[str]]:
    times = max(1, -(-(_LEAST if options.quick else 4 * _LEAST) // one.frames))
    count = times * one.frames
    cases = [
        Case("decode", count, lambda watch: _decode(one, times, watch)),
        Case("books", count, lambda watch: _books(one, times, watch)),
        Case("views", count, _Views(one, times).run),
    ]
    if theirs is not None and one.foreign is not None:
        handled = theirs.handling(one)
        if handled is None:
            CONSOLE.print(f"{one.name}: cryptofeed does not handle it: {theirs.problem}")
        else:
            cases.append(Case("cryptofeed", count, lambda watch: handled(times, watch)))
    figures = interleaved(cases, options.runs)
    ours, other = figures["views"], figures.get("cryptofeed")
    yield (
        one.name,
        f"{one.frames:,}",
        *(_rate(figures[name]) for name in ("decode", "books", "views")),
        f"{ours.median / 1e3:.1f}",
        "" if other is None else _rate(other),
        "" if other is None else f"{other.ratio(ours):.1f} x",
    )


def _rate(figures: Figures) -> str:
    return f"{1e6 / figures.median:,.1f}"


def _decode(one: _Recording, times: int, watch: Stopwatch) -> None:
    for _ in range(times):
        watch.time("decode", list, _events(one))


def _books(one: _Recording, times: int, watch: Stopwatch) -> None:
    books = Books(one.instruments, Dictionary())

    def apply() -> None:
        for events in _events(one):
            books.apply(events)

    for _ in range(times):
        watch.time("books", apply)


class _Views:
    """Books, and the views `sobi` and `depth`; one pipeline for all runs, as every connection begins anew."""

    def __init__(self, one: _Recording, times: int) -> None:
        self._one, self._times = one, times
        configuration = configured(None, ["sobi", "depth"], [], {})
        self._pipeline: Pipeline = assembled(configuration, one.instruments)[1]
        warm_up(self._pipeline)

    def run(self, watch: Stopwatch) -> None:
        for _ in range(self._times):
            watch.time("views", self._apply)

    def _apply(self) -> None:
        for events in _events(self._one):
            self._pipeline.apply(events, "live")


def _events(one: _Recording) -> Iterator[np.ndarray]:
    """EVENT[n] of every _TOGETHER frames, by a new session."""
    now = one.steps[0][3]
    indexes = range(len(one.instruments))
    session = Session(
        exchange(one.kind), one.instruments, indexes, ExchangeOptions(), lambda: now / 1e9, seed=0
    )
    session.connected(now)
    for number, (what, product, data, time) in enumerate(one.steps, 1):
        now = max(now, time)
        if what == "frame":
            session.frame(data, time)
        else:
            session.answered(product, data, time)
        if number % _TOGETHER == 0 or number == len(one.steps):
            session.commands()
            yield session.take()


class _Cryptofeed:
    """cryptofeed in a process of its own; `problem` is why it did not handle a recording."""

    def __init__(self, python: str, folder: Path) -> None:
        script = str(Path(__file__).with_name("feeds_cryptofeed.py"))
        pipe, nothing = subprocess.PIPE, subprocess.DEVNULL
        self._process = subprocess.Popen([python, script], stdin=pipe, stdout=pipe, stderr=nothing, text=True)
        self._folder = folder
        self.problem = ""

    @classmethod
    def started(cls, folder: Path) -> "_Cryptofeed | None":
        """None where no interpreter has it."""
        python = os.environ.get(_PYTHON) or (sys.executable if find_spec("cryptofeed") else None)
        return None if python is None else cls(python, folder)

    def handling(self, one: _Recording) -> Any:
        """What has it handle a recording; None where it cannot."""
        path = self._folder / f"{one.name}.json"
        path.write_text(json.dumps(one.foreign), "utf-8")

        def handle(times: int, watch: Stopwatch) -> None:
            for _ in range(times):
                watch.total += self._ask(path)["seconds"]

        found = self._ask(path)
        self.problem = found.get("error", "")
        return None if self.problem else handle

    def close(self) -> None:
        """Let it end."""
        self._pipe(self._process.stdin).close()
        self._process.wait()

    def _ask(self, path: Path) -> dict[str, Any]:
        stdin = self._pipe(self._process.stdin)
        stdin.write(f"{path}\n")
        stdin.flush()
        line = self._pipe(self._process.stdout).readline()
        answer: dict[str, Any] = json.loads(line or '{"error": "it ended"}')
        return answer

    @staticmethod
    def _pipe(pipe: IO[str] | None) -> IO[str]:
        assert pipe is not None
        return pipe


def _recordings(folder: Path, quick: bool) -> Iterator[_Recording]:
    for path in sorted(folder.glob("cryptofeed/*.jsonl.zst")):
        yield _of_cryptofeed(path)
    if not quick:
        for path in sorted(folder.glob("hftbacktest/*.gz")):
            yield _of_binance(path)


def _of_cryptofeed(path: Path) -> _Recording:
    head = read_head(path, None, ())
    lines = [msgspec.json.decode(text, type=Line) for text in Lines(path)]
    config = msgspec.json.decode(next(iter(Lines(path))))
    received = sorted((line for line in lines if line.t == "recv"), key=lambda line: line.time)[:_MOST]
    foreign = {
        "exchange": config["exchange"],
        "config": config["config"],
        "answers": [(line.url, line.data) for line in lines if line.t == "http"],
        "frames": [line.data for line in received],
        "times": [line.time / 1e9 for line in received],
    }
    instruments = Instruments(head.instruments)
    both = sorted([*received, *head.answers], key=lambda line: line.time)
    steps = list(_steps(head, instruments, both))
    return _Recording(path.name.partition(".")[0].lower(), head.kind, instruments, steps, foreign)


def _steps(head: CaptureHead, instruments: Instruments, lines: Sequence[Line]) -> Iterator[_Step]:
    kind, indexes = exchange(head.kind), range(len(instruments))
    session = Session(kind, instruments, indexes, ExchangeOptions(), lambda: 0.0)
    asked = session.books if session.by_request else ()
    urls = {session.snapshot_url(product).partition("://")[2]: product for product in asked}
    for line in lines:
        if line.t == "recv":
            yield "frame", "", line.payload, line.time
        elif product := _asked(urls, line.url):
            yield "answer", product, line.payload, line.time


def _asked(urls: dict[str, str], url: str) -> str | None:
    """The product whose snapshot a request was for; other parameters than the symbol may differ."""
    own = url.partition("://")[2]
    return next((p for known, p in urls.items() if _same(known, own)), None)


def _same(one: str, other: str) -> bool:
    (path, _, options), (other_path, _, others) = one.partition("?"), other.partition("?")
    symbols = [[part for part in text.split("&") if part.startswith("symbol=")] for text in (options, others)]
    return path.strip("/") == other_path.strip("/") and symbols[0] == symbols[1]


def _of_binance(path: Path) -> _Recording:
    instruments = BinanceCaptureSource(path).instruments
    one = instruments[0]
    steps: list[_Step] = []
    for line in Lines(path):
        time, _, data = line.partition(b" ")
        what = "answer" if b'"lastUpdateId"' in data[:40] else "frame"
        steps.append((what, one.native_symbol if what == "answer" else "", data, int(time)))
        if len(steps) == _MOST:
            break
    return _Recording(f"{one.venue}, {one.native_symbol}", one.venue, instruments, steps, None)
