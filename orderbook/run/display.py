"""What the program shows while it works: progress, values, and what strategies do."""

import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.progress import (
    BarColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.status import Status
from rich.table import Table
from rich.text import Text

from orderbook.core.errors import visible
from orderbook.core.native_code import counts

# Seconds between two plain lines of values; notes of one kind that are shown a second.
PLAIN_INTERVAL = 1.0
NOTES_A_SECOND = 3
# Rows of views in a plain line, and the characters of each.
PLAIN_ROWS, PLAIN_WIDTH = 3, 100
# And between two of how far something is, and of what takes long without saying how far it is.
PROGRESS_INTERVAL = 10.0
WORKING_INTERVAL = 5.0
_REFRESHES_A_SECOND = 4


@contextmanager
def progress_bar(what: str) -> Iterator[Callable[[float, str], None]]:
    """A bar on standard error, with the time that is left; a line now and then where that is no terminal.
    Called with the fraction done and a text."""
    console = Console(stderr=True)
    columns = (
        TextColumn(what),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[text]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("left"),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(what, total=1.0, text="")
        if console.is_terminal:
            yield lambda fraction, text: progress.update(task, completed=fraction, text=visible(text))
        else:
            yield _Lines(what).tell


class _Lines:
    """Says on standard error how far something is, every PROGRESS_INTERVAL seconds."""

    def __init__(self, what: str) -> None:
        self._what, self._start = what, time.monotonic()
        self._told, self._first = self._start, 0.0

    def tell(self, fraction: float, text: str) -> None:
        now = time.monotonic()
        self._first = self._first or fraction
        if now - self._told >= PROGRESS_INTERVAL:
            self._told = now
            done = fraction - self._first
            left = f", {(now - self._start) * (1 - fraction) / done:,.0f} s left" if done > 0 else ""
            share = f"{fraction:.0%}, " if fraction else ""
            print(f"{self._what}: {share}{visible(text)}{left}", file=sys.stderr, flush=True)


# Who is told, beside standard error, what is being done.
_told: list[Callable[[str], object]] = []


@contextmanager
def telling(tell: Callable[[str], object]) -> Iterator[None]:
    """Meanwhile `tell` is called each second with what is being done, and with "" when that is over."""
    _told.append(tell)
    try:
        yield
    finally:
        _told.remove(tell)


@contextmanager
def working(what: str) -> Iterator[None]:
    """Says on standard error what is being done, for how long so far, and how long it took where that can be
    felt."""
    console = Console(stderr=True)
    start, made = time.monotonic(), counts.made
    ended = threading.Event()

    def say(status: Status) -> None:
        due = start + WORKING_INTERVAL
        while not ended.wait(1.0):
            compiled, now = counts.made - made, time.monotonic()
            said = f"{what}: {now - start:.0f} s"
            if compiled:
                said += f", {compiled:,} functions, which are kept: the next start finds them"
            for tell in _told:
                tell(said)
            if console.is_terminal:
                status.update(said)
            elif now >= due:
                due += WORKING_INTERVAL
                print(said, file=sys.stderr, flush=True)

    with console.status(what) as status:
        teller = threading.Thread(target=say, args=(status,), name="display", daemon=True)
        teller.start()
        try:
            yield
        finally:
            ended.set()
            teller.join()
            for tell in _told:
                tell("")
    seconds = time.monotonic() - start
    if seconds > 0.5:
        print(f"{what}: {seconds:.1f} s", file=sys.stderr)


class Display(Protocol):
    """Shows a run."""

    def say(self, line: str) -> None:
        """Show a line."""

    def note(self, kind: str, line: Callable[[], str]) -> None:
        """Show a line about one of many ("callbacks", "orders"), or count it where too many come."""

    def refresh(self, status: str, rows: list[tuple[str, str]]) -> None:
        """Show the state now: one line, and (view and key, values) of some rows."""

    def close(self) -> None: ...


def open_display() -> Display:
    """A live display on a terminal, else plain lines."""
    console = Console()
    return LiveDisplay(console) if console.is_terminal else PlainDisplay()


class _Notes:
    """Lets NOTES_A_SECOND lines of each kind pass a second, and counts the others."""

    def __init__(self) -> None:
        self._second = 0
        self._shown: Counter[str] = Counter()
        self._left_out: Counter[str] = Counter()

    def passing(self, kind: str, line: Callable[[], str]) -> list[str]:
        """What to show now that this line has come."""
        lines = []
        if (second := int(time.monotonic())) != self._second:
            self._second = second
            self._shown.clear()
            lines = self.rest()
        if self._shown[kind] < NOTES_A_SECOND:
            self._shown[kind] += 1
            return [*lines, line()]
        self._left_out[kind] += 1
        return lines

    def rest(self) -> list[str]:
        """A line for each kind of which some were counted since the last."""
        lines = [f"  … and {count:,} more {kind}" for kind, count in self._left_out.items()]
        self._left_out.clear()
        return lines


class QuietDisplay:
    """Lines on standard output, without values and notes."""

    def say(self, line: str) -> None:
        """See Display."""
        print(visible(line), flush=True)

    def note(self, kind: str, line: Callable[[], str]) -> None:
        """Nothing is shown."""

    def refresh(self, status: str, rows: list[tuple[str, str]]) -> None:
        """Nothing is shown."""

    def close(self) -> None:
        """See Display."""


class PlainDisplay(QuietDisplay):
    """Lines on standard output."""

    def __init__(self) -> None:
        self._notes = _Notes()
        self._next = time.monotonic() + PLAIN_INTERVAL

    def note(self, kind: str, line: Callable[[], str]) -> None:
        """See Display."""
        for shown in self._notes.passing(kind, line):
            self.say(shown)

    def refresh(self, status: str, rows: list[tuple[str, str]]) -> None:
        """Print a line, once a PLAIN_INTERVAL."""
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + PLAIN_INTERVAL
        self.say(f"{status}  {_in_short(rows)}".rstrip())

    def close(self) -> None:
        """Print what was counted."""
        for line in self._notes.rest():
            self.say(line)


def _in_short(rows: list[tuple[str, str]]) -> str:
    """Some rows, and how many others there are, in a text of bounded length."""
    shown = [f"{name} {values}" for name, values in rows[:PLAIN_ROWS]]
    texts = [one if len(one) <= PLAIN_WIDTH else f"{one[: PLAIN_WIDTH - 1]}…" for one in shown]
    left = len(rows) - len(shown)
    return "; ".join([*texts, f"{left:,} more rows"] if left else texts)


class LiveDisplay(PlainDisplay):
    """A table that is redrawn in place, with lines passing above it."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._live.start()
        self._next = 0.0

    def say(self, line: str) -> None:
        """See Display."""
        self._console.print(Text(visible(line)))

    def refresh(self, status: str, rows: list[tuple[str, str]]) -> None:
        """Redraw, at most _REFRESHES_A_SECOND times a second."""
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + 1 / _REFRESHES_A_SECOND
        table = Table(show_header=False, box=None)
        for name, values in rows:
            table.add_row(Text(visible(name)), Text(visible(values)))
        self._live.update(Group(Text(visible(status), style="bold"), table), refresh=True)

    def close(self) -> None:
        """Take the table away."""
        self._live.stop()
        super().close()
