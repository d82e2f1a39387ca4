"""Recorded frames of each exchange through decoders, books and views, beside JSON alone and cryptofeed."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

import msgspec
import numpy as np

from orderbook.commands.common import configured
from orderbook.feeds.byte_stream import Lines
from orderbook.feeds.exchanges.exchange import ExchangeOptions, exchange
from orderbook.feeds.files.binance_capture import BinanceCaptureSource
from orderbook.feeds.files.hyperliquid_capture import HyperliquidCaptureSource
from orderbook.feeds.live.session import Session
from orderbook.feeds.raw_log import Line
from orderbook.feeds.recording.capture_files import CaptureHead, read_head
from orderbook.market.instruments import Instruments
from orderbook.run.assembly import assembled, warm_up
from orderbook.run.pipeline import Pipeline
from orderbook.strategies.gated_engine import GatedEngine
from orderbook.views.compilation import compile_views

from .measure import CONSOLE, Case, Figures, Options, Stopwatch, data_folder, interleaved, table

# A Python that has cryptofeed.
_PYTHON = "CRYPTOFEED_PYTHON"
# Frames between two looks at what was decoded, as come together when a feed is busy.
_TOGETHER = 64
# Frames of a recording that are taken, and frames at least that a run handles, repeating the recording.
_MOST, _LEAST = 20_000, 4_000
_Step = tuple[str, str, bytes, int]  # "frame" or "answer", product, data, receive time in ns

# Frames and when they came, or an answer: its product, data and when.
_Call = tuple[list[bytes], list[int]] | tuple[str, bytes, int]


@dataclass(frozen=True, slots=True)
class _Recording:
    """What happened on a connection; `foreign` is the same for cryptofeed, None where it lacks something.

    begun: how many steps there are until all books are valid that come to be: these are not measured.
    """

    name: str
    kind: str
    instruments: Instruments
    steps: Sequence[_Step]
    foreign: dict[str, Any] | None
    begun: int

    @property
    def frames(self) -> int:
        """Those that are measured."""
        return _frames(self.steps[self.begun :])


def _frames(steps: Sequence[_Step]) -> int:
    return sum(step[0] == "frame" for step in steps)


def feeds(options: Options) -> None:
    """CPU time of this thread, and of cryptofeed's own process."""
    folder = data_folder()
    recordings = list(map(_begun, _recordings(folder, options.quick)))
    if not recordings:
        CONSOLE.print(f"no recordings in {folder}; ORDERBOOK_DATA names another folder")
        return
    with tempfile.TemporaryDirectory() as temporary:
        theirs = _Cryptofeed.started(Path(temporary))
        if theirs is None:
            CONSOLE.print(f"cryptofeed is not here, so ours alone; {_PYTHON} names a Python that has it")
        rows = [_measured(one, theirs, options) for one in recordings]
        if theirs is not None:
            theirs.close()
    first = ["", "frames", "events"]
    stages = ["decode", "+ books", "+ touch", "+ sobi"]
    table(
        f"Recorded frames, µs of CPU each, {_TOGETHER} a call; untyped JSON, and books to it",
        [*first, "JSON", *stages, "of JSON"],
        [row.together for row in rows],
    )
    table(
        "One frame a call, beside cryptofeed without and with checksums; its time with them to ours, books",
        ["", "in Python", *stages, "cryptofeed", "checksums", "ratio"],
        [row.alone for row in rows],
    )
    title = "The same in millions of events/s"
    table(f"{title}, {_TOGETHER} a call", ["", *stages], [row.waiting_rates for row in rows])
    table(
        f"{title}, one frame a call",
        ["", *stages, "cryptofeed", "checksums"],
        [row.alone_rates for row in rows],
    )


@dataclass(frozen=True, slots=True)
class _Rows:
    """What a recording has in each of the tables."""

    together: list[str]
    alone: list[str]
    waiting_rates: list[str]
    alone_rates: list[str]


# Figures by frames a call, in the order of the columns.
_STAGES = {1: ("one", "one, books", "one, touch", "one, sobi"), _TOGETHER: ("64", "books", "touch", "sobi")}
_FOREIGN = ("cryptofeed", "checksums")


def _measured(one: _Recording, theirs: "_Cryptofeed | None", options: Options) -> _Rows:
    times = max(1, -(-(_LEAST if options.quick else 4 * _LEAST) // one.frames))
    count = times * one.frames
    cases = [
        Case("json", count, lambda watch: _json(one, times, watch)),
        Case("python", count, lambda watch: _decode(one, times, watch, 1, _InPython)),
    ]
    for together, (decode, books, touch, sobi) in _STAGES.items():
        cases += [
            Case(decode, count, partial(_decode, one, times, together=together)),
            Case(books, count, partial(_books, one, times, together=together)),
            Case(touch, count, _Views(one, times, "touch", together).run),
            Case(sobi, count, _Views(one, times, "sobi", together).run),
        ]
    if theirs is not None and one.foreign is not None:
        for name, checksums in zip(_FOREIGN, (False, True), strict=True):
            handled = theirs.handling(one, checksums)
            if handled is None:
                CONSOLE.print(f"{one.name}: cryptofeed does not handle it: {theirs.problem}")
            else:
                cases.append(Case(name, count, handled(times)))
    figures = interleaved(cases, options.runs)
    run = _Run(one, Session)
    list(run.events(_calls(one.steps[: one.begun], _TOGETHER)))
    events = sum(map(len, run.events(_calls(one.steps[one.begun :], _TOGETHER))))
    micros, rates = (
        {name: shown(figures.get(name), events / one.frames) for name in (*figures, *_FOREIGN)}
        for shown in (_micros, _rate)
    )
    waiting, alone = (_STAGES[together] for together in (_TOGETHER, 1))
    ratio = ""
    if "checksums" in figures:
        ratio = f"{figures['checksums'].ratio(figures['one, books']):.1f} x"
    return _Rows(
        [
            one.name, f"{one.frames:,}", f"{events:,}", micros["json"], *(micros[name] for name in waiting),
            f"{figures['books'].ratio(figures['json']):.1f} x",
        ],
        [one.name, *(micros[name] for name in ("python", *alone, *_FOREIGN)), ratio],
        [one.name, *(rates[name] for name in waiting)],
        [one.name, *(rates[name] for name in (*alone, *_FOREIGN))],
    )  # fmt: skip


def _micros(figures: Figures | None, events: float) -> str:
    return "" if figures is None else f"{figures.median / 1e3:.2f}"


def _rate(figures: Figures | None, events: float) -> str:
    """Millions of events a second, of so many in a frame."""
    return "" if figures is None else f"{1e3 * events / figures.median:.2f}"


class _InPython(Session):
    compiled = False


def _json(one: _Recording, times: int, watch: Stopwatch) -> None:
    texts, decode = [data for _, _, data, _ in one.steps[one.begun :]], msgspec.json.decode

    def read() -> None:
        for text in texts:
            try:
                decode(text)
            except msgspec.DecodeError:
                continue

    for _ in range(times):
        watch.time("json", read)


def _decode(
    one: _Recording, times: int, watch: Stopwatch, together: int, kind: type[Session] = Session
) -> None:
    calls = _calls(one.steps[one.begun :], together)
    for _ in range(times):
        run = _Run(one, kind)
        list(run.events(_calls(one.steps[: one.begun], _TOGETHER)))
        watch.time("decode", list, run.events(calls))


def _apply(
    one: _Recording, times: int, watch: Stopwatch, together: int, apply: Callable[[np.ndarray], object]
) -> None:
    """Hand the events of connections to what applies them."""

    def all_of(batches: Iterator[np.ndarray]) -> None:
        for events in batches:
            apply(events)

    calls = _calls(one.steps[one.begun :], together)
    for _ in range(times):
        run = _Run(one, Session)
        all_of(run.events(_calls(one.steps[: one.begun], _TOGETHER)))
        watch.time("apply", all_of, run.events(calls))


def _books(one: _Recording, times: int, watch: Stopwatch, together: int) -> None:
    """Books in the loop of a run, none of whose views reads them."""
    program = compile_views("CREATE STREAM s (x BIGINT); CREATE VIEW v AS SELECT COUNT(*) AS n FROM s")
    pipeline = Pipeline(GatedEngine(program), one.instruments)
    pipeline.warm_up()
    _apply(one, times, watch, together, lambda events: pipeline.apply(events, "live"))


class _Views:
    """Books and a view; one pipeline for all runs, as every connection begins anew."""

    def __init__(self, one: _Recording, times: int, view: str, together: int) -> None:
        self._one, self._times, self._together = one, times, together
        configuration = configured(None, [view], [], {})
        self._pipeline: Pipeline = assembled(configuration, one.instruments)[1]
        warm_up(self._pipeline)

    def run(self, watch: Stopwatch) -> None:
        apply = self._pipeline.apply
        _apply(self._one, self._times, watch, self._together, lambda events: apply(events, "live"))


class _Run:
    """A new session that takes the steps of a recording."""

    def __init__(self, one: _Recording, kind: type[Session]) -> None:
        self._steps = one.steps
        self._now = one.steps[0][3]
        indexes = range(len(one.instruments))
        clock = lambda: self._now / 1e9  # noqa: E731
        self.session = kind(exchange(one.kind), one.instruments, indexes, ExchangeOptions(), clock, seed=0)
        self.session.connected(self._now)

    def events(self, calls: Sequence[_Call]) -> Iterator[np.ndarray]:
        """EVENT[n] of each call that gives any."""
        session = self.session
        for call in calls:
            if isinstance(call[0], str):
                product, data, time = call
                self._turn(time)
                session.answered(product, data, time)
            else:
                session.frames_of(*call, self._turn)
            session.commands()
            if session.waiting_events:
                yield session.take()

    def _turn(self, time: int) -> None:
        self._now = max(self._now, time)


def _calls(steps: Sequence[_Step], together: int) -> list[_Call]:
    """Steps with so many frames at once."""
    calls: list[_Call] = []
    frames: list[bytes] = []
    times: list[int] = []
    for what, product, data, time in steps:
        if frames and (what != "frame" or len(frames) == together):
            calls.append((frames, times))
            frames, times = [], []
        if what == "frame":
            frames.append(data)
            times.append(time)
        else:
            calls.append((product, data, time))
    return [*calls, (frames, times)] if frames else calls


def _begun(one: _Recording) -> _Recording:
    """A recording with the place where all books are valid that come to be."""
    run, place, valid = _Run(one, Session), 0, 0
    for number in range(len(one.steps)):
        list(run.events(_calls(one.steps[number : number + 1], 1)))
        now = len(run.session.synchronised_products)
        if now > valid:
            place, valid = number + 1, now
    foreign = one.foreign and {**one.foreign, "first": _frames(one.steps[:place])}
    return replace(one, begun=place, foreign=foreign)


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

    def handling(self, one: _Recording, checksums: bool) -> Any:
        """What makes what has it handle a recording so many times; None where it cannot."""
        path = self._folder / f"{one.name}.{checksums}.json"
        path.write_text(json.dumps({**(one.foreign or {}), "checksums": checksums}), "utf-8")

        def handling(times: int) -> Callable[[Stopwatch], None]:
            def handle(watch: Stopwatch) -> None:
                for _ in range(times):
                    watch.total += self._ask(path)["seconds"]

            return handle

        found = self._ask(path)
        self.problem = found.get("error", "")
        return None if self.problem else handling

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
            yield _of_capture(path, BinanceCaptureSource(path).instruments)
        # Parts that begin with a snapshot, or need none.
        for path in sorted(folder.glob("hftbacktest_more/coinm_*08.gz")):
            yield _of_capture(path, BinanceCaptureSource(path).instruments)
        for path in sorted(folder.glob("hftbacktest_more/hyperliquid_*.gz")):
            yield _of_capture(path, HyperliquidCaptureSource(path).instruments)


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
    return _Recording(path.name.partition(".")[0].lower(), head.kind, instruments, steps, foreign, 0)


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


def _of_capture(path: Path, instruments: Instruments) -> _Recording:
    one = instruments[0]
    steps: list[_Step] = []
    for line in Lines(path):
        time, _, data = line.partition(b" ")
        what = "answer" if b'"lastUpdateId"' in data[:40] else "frame"
        steps.append((what, one.native_symbol if what == "answer" else "", data, int(time)))
        if len(steps) == _MOST:
            break
    return _Recording(f"{one.venue}, {one.native_symbol}", one.venue, instruments, steps, None, 0)
