"""How many of the project's files three ways pass: what must be read to follow each.

    python -m benchmarks.ways [--source FILE] [--list]

frames to callback: a backtest with a strategy, until its first callback; FILE may be a recording of frames.
order to fill: from a strategy's `buy` to its `on_fill`.
history to job rows: a backtest of a view alone.

A file is passed if one of its functions is called as Python, in whatever thread. What is called while a
module is imported does not count, nor do calls within compiled code. A file is loaded if its module is.
"""

import argparse
import inspect
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import ClassVar

from orderbook import Fill, Strategy, ViewEvent, on_view

PROJECT = Path(__file__).resolve().parents[1]
PACKAGES = ("orderbook", "views", "engine", "feeds", "strategies")
VIEW = "CREATE VIEW touch AS SELECT symbol, MAX(price) AS best, COUNT(*) AS n FROM bids GROUP BY symbol"
WAYS = ("frames to callback", "order to fill", "history to job rows")


class Trace:
    """The files whose functions were called, as paths from the project's folder."""

    def __init__(self) -> None:
        self._files: set[str] = set()
        self._importing = threading.local()

    @contextmanager
    def on(self) -> Iterator[None]:
        """Traces this thread, and those that begin meanwhile."""
        self.begin()
        try:
            yield
        finally:
            self.stop()

    def begin(self) -> None:
        """Traces from now on."""
        threading.setprofile(self.called)
        sys.setprofile(self.called)

    def stop(self) -> None:
        """Traces this thread no more, nor those that begin."""
        sys.setprofile(None)
        threading.setprofile(None)

    @property
    def _depth(self) -> int:
        """Of the imports that this thread is in."""
        depth: int = getattr(self._importing, "depth", 0)
        return depth

    def called(self, frame: FrameType, event: str, _: object) -> None:
        """For `sys.setprofile`."""
        code = frame.f_code
        if code.co_name == "<module>":
            self._importing.depth = self._depth + {"call": 1, "return": -1}.get(event, 0)
        # The body of a class is code that is not optimised.
        elif event == "call" and code.co_flags & inspect.CO_OPTIMIZED and not self._depth:
            self._files.add(code.co_filename)

    @property
    def passed(self) -> list[str]:
        return own_files(self._files)


def own_files(files: set[str]) -> list[str]:
    """Those of the packages without `__init__.py`, as paths from the project's folder."""
    inside = (Path(file).resolve() for file in files)
    paths = {file.relative_to(PROJECT) for file in inside if file.is_relative_to(PROJECT)}
    return sorted(str(p) for p in paths if p.parts[0] in PACKAGES and p.name != "__init__.py")


def loaded() -> list[str]:
    return own_files({file for m in list(sys.modules.values()) if (file := getattr(m, "__file__", None))})


class Buyer(Strategy):
    """Buys twice, one after the other: what the first order is the first to need is not of its way."""

    until_callback: ClassVar[Trace]
    until_fill: ClassVar[Trace]
    bought: ClassVar[int] = 0
    filled: ClassVar[int] = 0

    @on_view("touch")
    def changed(self, event: ViewEvent) -> None:
        """At the first call its way ends."""
        kind = type(self)
        if kind.bought == 0:
            self.until_callback.stop()
        if event.new is None or kind.bought > kind.filled or kind.bought == 2:
            return
        kind.bought += 1
        if kind.bought == 2:
            self.until_fill.begin()
        self.buy(str(event.key[0]), 1)

    def on_fill(self, fill: Fill) -> None:
        """At the second call its way ends."""
        type(self).filled += 1
        if self.filled == 2:
            self.until_fill.stop()


def follow(way: str, source: str, folder: Path) -> Trace:
    """The files of one way, from a backtest in this process."""
    from orderbook.command_line import main

    (folder / "touch.sql").write_text(VIEW)
    trace = Trace()
    arguments = ["orderbook", "backtest", source, "--view", str(folder / "touch.sql")]
    arguments += ["--out", str(folder / "job"), "--allow-incomplete"]
    Buyer.until_callback, Buyer.until_fill = Trace(), Trace()
    if way != "history to job rows":
        arguments += ["--strategy", "benchmarks.ways:Buyer"]
        trace = Buyer.until_callback
    sys.argv = arguments
    with trace.on():
        try:
            main()
        except SystemExit as end:
            if end.code:
                raise
    if way == "order to fill":
        assert Buyer.filled == 2
        return Buyer.until_fill
    return trace


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--source", help="recorded frames or another history; without it, generated events")
    parser.add_argument("--list", action="store_true", help="name the files")
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.way:
        with tempfile.TemporaryDirectory() as folder:
            passed = follow(options.way, options.source, Path(folder)).passed
        print(f"{options.way}: {len(passed)} files passed, {len(loaded())} loaded", flush=True)
        if options.list:
            print(*passed, sep="\n")
        return
    with tempfile.TemporaryDirectory() as folder:
        source = options.source or str(Path(folder) / "flow.parquet")
        if not options.source:
            command = [sys.executable, "-m", "orderbook.command_line", "generate", "--out", source]
            subprocess.run([*command, "--events", "20000"], check=True, capture_output=True, cwd=PROJECT)
        for way in WAYS:
            # A process each, so that none finds what another has imported or cached.
            command = [sys.executable, "-m", "benchmarks.ways", "--way", way, "--source", source]
            done = subprocess.run(
                command + ["--list"] * options.list, capture_output=True, text=True, cwd=PROJECT, check=False
            )
            if done.returncode:
                sys.exit(done.stderr)
            print(done.stdout[done.stdout.index(f"{way}:") :], end="")


if __name__ == "__main__":
    # The strategy is found as benchmarks.ways, whose class attributes are to be those set here.
    from benchmarks import ways

    ways.main()
