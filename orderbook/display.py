"""What the program shows while it works: progress, values, and what strategies do."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

# Seconds between two plain lines of values; lines of callbacks and orders shown a second.
PLAIN_INTERVAL = 1.0
NOTES_A_SECOND = 5
_REFRESHES_A_SECOND = 4


@contextmanager
def progress_bar(what: str) -> Iterator[Callable[[float, str], None]]:
    """A bar on standard error where that is a terminal: called with the fraction done and a text."""
    console = Console(stderr=True)
    columns = (
        TextColumn(what),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[text]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(what, total=1.0, text="")
        yield lambda fraction, text: progress.update(task, completed=fraction, text=text)


@contextmanager
def working(what: str) -> Iterator[None]:
    """Says on standard error what is being done, and how long it took where that can be felt."""
    console = Console(stderr=True)
    start = time.monotonic()
    with console.status(what):
        yield
    seconds = time.monotonic() - start
    if seconds > 0.5:
        print(f"{what}: {seconds:.1f} s", file=sys.stderr)


class Display(Protocol):
    """Shows a run. `note` has a line about a callback or an order, of which only some a second are shown."""

    def note(self, line: str) -> None: ...

    def refresh(self, status: str, rows: list[tuple[str, str]]) -> None:
        """Show the state now: one line, and (view and key, values) of some rows."""

    def close(self) -> None: ...


def open_display() -> Display:
    """A live display on a terminal, else plain lines."""
    console = Console()
    return LiveDisplay(console) if console.is_terminal else PlainDisplay()


class _Notes:
    """Lets NOTES_A_SECOND lines a second pass and counts the others."""

    def __init__(self) -> None:
        self._second = 0
        self._shown = self._left_out = 0

    def passing(self, line: str) -> list[str]:
        """What to show now that this line has come."""
        second = int(time.monotonic())
        lines = self.rest() if second != self._second else []
        if second != self._second:
            self._second, self._shown = second, 0
        if self._shown < NOTES_A_SECOND:
            self._shown += 1
            return [*lines, line]
        self._left_out += 1
        return lines

    def rest(self) -> list[str]:
        """A line about those that were counted since the last."""
        count, self._left_out = self._left_out, 0
        return [f"  … and {count:,} more"] if count else []


class PlainDisplay:
    """Lines on standard output."""

    def __init__(self) -> None:
        self._notes = _Notes()
        self._next = time.monotonic() + PLAIN_INTERVAL

    def note(self, line: str) -> None:
        """Print the line, or count it."""
        for shown in self._notes.passing(line):
            print(shown, flush=True)

    def refresh(self, status: str, rows: list[tuple[str, str]]) -> None:
        """Print a line, once a PLAIN_INTERVAL."""
        if time.monotonic() < self._next:
            return
        self._next = max(self._next + PLAIN_INTERVAL, time.monotonic())
        print(f"{status}  {'; '.join(f'{name} {values}' for name, values in rows)}".rstrip(), flush=True)

    def close(self) -> None:
        """Print what was counted."""
        for line in self._notes.rest():
            print(line, flush=True)


class LiveDisplay:
    """A table that is redrawn in place, with notes passing above it."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._notes = _Notes()
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._live.start()
        self._next = 0.0

    def note(self, line: str) -> None:
        """Print the line above the table, or count it."""
        for shown in self._notes.passing(line):
            self._console.print(Text(shown))

    def refresh(self, status: str, rows: list[tuple[str, str]]) -> None:
        """Redraw, at most _REFRESHES_A_SECOND times a second."""
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + 1 / _REFRESHES_A_SECOND
        table = Table(show_header=False, box=None)
        for name, values in rows:
            table.add_row(Text(name), Text(values))
        self._live.update(Group(Text(status, style="bold"), table), refresh=True)

    def close(self) -> None:
        """Take the table away."""
        self._live.stop()
        for line in self._notes.rest():
            self._console.print(Text(line))
