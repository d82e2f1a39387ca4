"""A soak: a feed at a high rate from loopback through decoder, books, log, views and a strategy, for minutes.

    python -m benchmarks.soak [--seconds 600] [--rate 50000]

Fails where a message was lost, books differ from the exchange's, or memory grew.
"""

import contextlib
import os
import queue
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import IO

import msgspec
import typer

from orderbook.core.latency import latency_text

from .measure import CONSOLE, table
from .soak_program import PERCENTILES, Ended, Second
from .soak_sender import Sent

# The last third's median of resident memory may be above the middle third's by this share.
_GROWTH = 0.02
# Share of the messages asked for that has to be sent in time.
_HELD = 0.99
# Seconds without a frame after which nothing more is expected.
_IDLE = 15.0
_START = 300.0


class _Process:
    """A process whose lines are read as they come."""

    def __init__(self, *arguments: str) -> None:
        command = [sys.executable, "-m", *arguments]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self._lines: queue.Queue[str] = queue.Queue()
        assert self._process.stdout is not None
        threading.Thread(target=self._read, args=(self._process.stdout,), daemon=True).start()

    def line(self, timeout: float) -> str | None:
        """The next line; None where none comes in time, or none will any more ("")."""
        with contextlib.suppress(queue.Empty):
            return self._lines.get(timeout=timeout)
        return None

    def interrupt(self) -> None:
        """Ask it to end in order."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGINT)

    def end(self) -> None:
        """End it at once."""
        self._process.kill()
        self._process.wait()

    def _read(self, stream: IO[str]) -> None:
        for line in stream:
            self._lines.put(line)
        self._lines.put("")


def main(
    seconds: float = typer.Option(600.0, help="How long messages are sent."),
    rate: float = typer.Option(50_000.0, help="Messages a second."),
    seed: int = typer.Option(7, help="Of the flow."),
) -> None:
    """Send generated order flow for a while, and check what became of it."""
    sender = _Process("benchmarks.soak_sender", str(rate), str(seconds), str(seed))
    try:
        with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".soak-") as folder:
            port = (sender.line(_START) or "").strip()
            program = _Process("benchmarks.soak_program", port, folder)
            try:
                sent, looks, ended = _followed(sender, program, seconds)
            finally:
                program.end()
    finally:
        sender.end()
    _print(sent, looks, ended, rate)
    failures = list(_failures(sent, looks, ended, rate * seconds))
    for failure in failures:
        CONSOLE.print(f"FAILED: {failure}", style="bold red")
    raise typer.Exit(1 if failures else 0)


def _followed(sender: _Process, program: _Process, seconds: float) -> tuple[Sent, list[Second], Ended]:
    """What the sender sent, the looks at the program while it followed, and how it ended."""
    looks: list[Second] = []
    sent: Sent | None = None
    loads: list[float] = []
    idle_since = time.monotonic() + _START
    while sent is None or looks[-1].frames < sent.frames:
        line = program.line(_START)
        if not line:
            raise SystemExit("the program ended before everything was sent")
        looks.append(msgspec.json.decode(line, type=Second))
        if len(looks) < 2 or looks[-1].frames > looks[-2].frames:
            idle_since = max(idle_since if not looks[-1].frames else 0.0, time.monotonic())
        elif time.monotonic() - idle_since > _IDLE:
            break
        if sent is None and (text := sender.line(0.0)):
            sent = msgspec.json.decode(text, type=Sent)
        if len(looks) % 30 == 0:
            loads.append(os.getloadavg()[0])
            _show(looks, loads[-1])
    if sent is None:
        raise SystemExit("the sender stopped before everything was sent")
    program.interrupt()
    while (line := program.line(_START)) and "resident" in line[:80]:
        pass
    if not line:
        raise SystemExit("the program failed while it ended")
    return sent, looks, msgspec.json.decode(line, type=Ended)


def _show(looks: Sequence[Second], load: float) -> None:
    before, now = looks[-min(30, len(looks))], looks[-1]
    rate = (now.frames - before.frames) / min(29, len(looks) - 1)
    busy = (now.cpu - before.cpu) / max(1, now.frames - before.frames)
    CONSOLE.print(
        f"{len(looks):5} s  {rate:,.0f} messages/s  {busy * 1e6:.1f} µs of CPU each  "
        f"{now.resident / 2**20:.0f} MiB  {now.waiting} events wait  load {load:.1f}"
    )


def _busy(looks: Sequence[Second]) -> list[Second]:
    """The looks while messages came, without the first seconds."""
    return [after for before, after in pairwise(looks) if after.frames > before.frames][3:]


def _thirds(looks: Sequence[Second]) -> tuple[float, float]:
    """Medians of resident bytes in the middle and the last third."""
    resident = [look.resident for look in _busy(looks)]
    third = max(1, len(resident) // 3)
    return statistics.median(resident[third : 2 * third] or [0]), statistics.median(resident[-third:] or [0])


def _print(sent: Sent, looks: Sequence[Second], ended: Ended, rate: float) -> None:
    busy = _busy(looks)
    cpu = (busy[-1].cpu - busy[0].cpu) / max(1, busy[-1].frames - busy[0].frames) if busy else 0.0
    middle, last = _thirds(looks)
    rows = [
        ("messages sent", f"{sent.messages:,}"),
        ("asked for, messages/s", f"{rate:,.0f}"),
        ("sent, messages/s", f"{sent.messages / sent.seconds:,.0f}"),
        ("most bytes that waited at the sender", f"{sent.waiting:,}"),
        ("frames received", f"{ended.counts.get('frames', 0):,}"),
        ("events decoded and applied", f"{ended.applied:,}"),
        ("callbacks", f"{ended.callbacks:,}"),
        ("CPU a message, µs", f"{cpu * 1e6:.1f}"),
        ("most events in the queue", f"{ended.highest:,}"),
        ("resident, middle third, MiB", f"{middle / 2**20:.1f}"),
        ("resident, last third, MiB", f"{last / 2**20:.1f}"),
    ]
    table(f"Soak, {sent.seconds:.0f} s", ("", ""), rows)
    names = ("", *(f"p{percent:g}" for percent in PERCENTILES), "longest")
    latencies = {
        "sending to views": ended.sending,
        "receipt to views": ended.receipt,
        "receipt to callbacks": ended.callback,
    }
    table("Latencies", names, [(name, *map(latency_text, row)) for name, row in latencies.items()])


def _failures(sent: Sent, looks: Sequence[Second], ended: Ended, asked: float) -> Iterator[str]:
    counts = ended.counts
    if sent.messages < _HELD * asked:
        yield f"{sent.messages:,} messages could be sent of {asked:,.0f}: program or machine is too slow"
    lost = sent.frames - counts.get("frames", 0)
    # Heartbeats go on after the last message.
    if lost > 0:
        yield f"{lost} of {sent.frames} frames did not arrive"
    if counts.get("messages") != counts.get("frames"):
        yield f"{counts.get('frames', 0) - counts.get('messages', 0)} frames were not understood"
    for name in ("gaps", "resyncs", "reconnects", "malformed"):
        if counts.get(name):
            yield f"{counts[name]} {name}"
    if ended.problems:
        yield f"problems: {ended.problems}"
    if ended.skipped:
        yield f"events or rows with problems: {ended.skipped}"
    if ended.applied != counts.get("events"):
        yield f"{counts.get('events')} events were decoded, and {ended.applied} applied"
    for product, book in sent.books.items():
        found = ended.books[product]
        if found != book.orders:
            wrong = sum(found.get(number) != book.orders.get(number) for number in found | book.orders)
            yield f"{product}: {wrong} of {len(book.orders)} orders differ"
    middle, last = _thirds(looks)
    if last > middle * (1 + _GROWTH):
        yield f"memory grew from {middle / 2**20:.1f} to {last / 2**20:.1f} MiB"


if __name__ == "__main__":
    typer.run(main)
