"""Start to the first event, with an empty cache folder and with a full one, each in a process of its own."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence

from .measure import Options, table


def start(options: Options) -> None:
    """Wall time of every step from the start of Python; with --quick only of warm starts."""
    if options.quick:
        _run("vwap", os.environ)
        _show("vwap", [(f"warm, run {i}", _run("vwap", os.environ)) for i in range(1, options.runs + 1)])
        return
    for name in ("vwap", "sobi"):
        with tempfile.TemporaryDirectory() as folder:
            environment = {**os.environ, "ORDERBOOK_CACHE": folder}
            rows = [("cold", _run(name, environment))]
            rows += [(f"warm, run {i}", _run(name, environment)) for i in range(1, options.runs + 1)]
        _show(name, rows)


def _show(name: str, rows: Sequence[tuple[str, dict[str, float]]]) -> None:
    table(
        f"Start to the first event, {name}: seconds of wall time",
        ("", *rows[0][1], "total"),
        [(label, *(f"{t:.3f}" for t in (*times.values(), sum(times.values())))) for label, times in rows],
    )


def _run(name: str, environment: Mapping[str, str]) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.first_event", name, repr(time.time())]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the process under measurement failed:\n{done.stderr}")
    times: dict[str, float] = json.loads(done.stdout)
    return times
