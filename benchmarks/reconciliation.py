"""A live session that is killed and started again, and then the backtest of its log: nothing may differ.

    python -m benchmarks.reconciliation [--seconds 600] [--restarts 4] [--latency drawn]

Shipped strategies, in Python, compiled and in SQL, trade with latencies, drawn or constant, and fees on
the exchange on loopback, whose books are lost with every start. Every other process is killed without
warning, the rest are interrupted. What the last process said of orders, fills and money is compared digit by
digit with the backtest's, then every change of an order and every fill by `orderbook compare log:FOLDER JOB`.
Fails where anything differs, or nothing was traded.
"""

import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import typer

# Without those whose state ends with their process, as OrderFlow's does.
_STRATEGIES = (
    "strategies.order_flow:TouchImbalance", "strategies.sobi:Sobi",
    "strategies.micro_price_maker:MicroPriceMaker", "strategies.sobi:SobiBand", "market_maker",
)  # fmt: skip
_CONFIGURATION = """
[run]
views = []
strategies = {strategies}
allow_incomplete = true
[[feeds]]
kind = "simulated"
products = ["BTC-USD", "ETH-USD"]
seed = {seed}
events_per_second = {rate}
levels = 50
[log]
folder = "log"
keep_log = true
checkpoint_interval = "5s"
[simulation]
{latency}
feed_latency = "1ms"
fees = {{ maker = -0.5, taker = 3 }}
[strategies.sobi_band]
threshold = 1
[strategies.touch_imbalance]
threshold = 0.5
[parameters]
quote_half_spread = 0.00005
quote_volume = 0.1
[monitor]
enabled = false
"""
_LATENCIES = {
    "drawn": 'order_latency = { median = "3ms", sigma = 0.5 }\nresponse_latency = ["1ms", "4ms"]',
    "constant": 'order_latency = "3ms"\nresponse_latency = "2ms"',
}
_COMMAND = (sys.executable, "-m", "orderbook.command_line")
# Seconds in which a process has compiled what it runs.
_START = 300.0


def main(
    seconds: float = typer.Option(600.0, help="How long all processes together receive."),
    restarts: int = typer.Option(4, help="How often a process ends and another goes on."),
    rate: float = typer.Option(500.0, help="Events a second."),
    seed: int = typer.Option(1, help="Of the flow."),
    latency: str = typer.Option("drawn", help="Of orders and responses: drawn or constant."),
) -> None:
    """Trade live for a while, and compare the backtest of the log with the session."""
    with tempfile.TemporaryDirectory() as folder:
        found = list(reconciled(Path(folder), seconds, restarts, rate, seed, _LATENCIES[latency]))
    for line in found:
        print(line)
    if found:
        raise typer.Exit(1)


def reconciled(
    folder: Path, seconds: float, restarts: int, rate: float, seed: int, latency: str
) -> Iterator[str]:
    """Lines that say in what a session and the backtest of its log differ."""
    config = folder / "run.toml"
    strategies = json.dumps(_STRATEGIES)
    config.write_text(_CONFIGURATION.format(strategies=strategies, seed=seed, rate=rate, latency=latency))
    log, job, said = f"log:{folder / 'log'}", str(folder / "job"), dict[str, Any]()
    for number in range(restarts + 1):
        # The last one ends in order, and says what became of everything.
        killed = number < restarts and number % 2 == 0
        said = _process(config, seconds / (restarts + 1), signal.SIGKILL if killed else signal.SIGINT)
        print(f"process {number + 1}: {'killed' if killed else _told(said)}", flush=True)
    chosen = [one for name in _STRATEGIES for one in ("--strategy", name)]
    again = _orderbook("backtest", log, "--config", str(config), *chosen, "--out", job)
    compared = _orderbook("compare", log, job, "--config", str(config))
    for line in compared["differences"]["job"]:
        print(line)
    for name, own in said["strategies"].items():
        # A process that was killed has called methods that no other knows of.
        other = again["strategies"][name]
        differ = {key: (own[key], other[key]) for key in own if key != "callbacks" and own[key] != other[key]}
        if differ:
            yield f"{name}: the session and the backtest say {differ}"
        print(f"{name}: {own['orders']:,} orders, {own['fills']:,} fills")
    if compared["status"]:
        yield "orders, fills or money differ"
    if not any(own["fills"] for own in said["strategies"].values()):
        yield "nothing was traded"


def _process(config: Path, seconds: float, ending: signal.Signals) -> dict[str, Any]:
    """A process of the session that receives for so many seconds; what it said where it was not killed."""
    log = config.parent / "log"
    before, limit = _size(log), time.monotonic() + _START
    command = [*_COMMAND, "run", "--config", str(config), "--json"]
    with open(config.parent / "errors.txt", "w") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors)
        try:
            while _size(log) == before and process.poll() is None and time.monotonic() < limit:
                time.sleep(0.1)
            time.sleep(seconds)
            process.send_signal(ending)
            out, _ = process.communicate(timeout=_START)
        finally:
            process.kill()
    return {} if ending is signal.SIGKILL else _figures(out, Path(errors.name).read_text())


def _size(log: Path) -> int:
    """Bytes of a log's segments."""
    return sum(one.stat().st_size for one in log.glob("*.log"))


def _orderbook(*arguments: str) -> dict[str, Any]:
    done = subprocess.run([*_COMMAND, *arguments, "--json"], capture_output=True)
    return _figures(done.stdout, done.stderr.decode())


def _figures(out: bytes, errors: str) -> dict[str, Any]:
    if not out:
        raise SystemExit(errors)
    found: dict[str, Any] = json.loads(out, parse_float=Decimal)
    if "errors" in found:
        raise SystemExit("\n".join(found["errors"]))
    return found


def _told(said: Mapping[str, Any]) -> str:
    whole: Sequence[Mapping[str, Any]] = tuple(said["strategies"].values())
    orders, fills = (sum(one[name] for one in whole) for name in ("orders", "fills"))
    return f"{orders:,} orders and {fills:,} fills so far"


if __name__ == "__main__":
    typer.run(main)
