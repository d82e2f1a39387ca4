"""`orderbook doctor`: whether this machine is fit for a run, and what to do where it is not."""

import asyncio
import ctypes
import importlib.util
import os
import platform
import resource
import shutil
import socket
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from urllib.parse import urlsplit

from orderbook.configuration.configuration import Configuration, load_configuration
from orderbook.configuration.options import ExchangeFeed
from orderbook.core.code_cache import VARIABLE, cache_root
from orderbook.core.errors import OrderbookError, UserError, visible
from orderbook.core.processors import unavailable
from orderbook.core.summaries import told
from orderbook.core.units import size_text
from orderbook.feeds.exchanges.exchange import exchange

_GB = 10**9
# Below these a run is not to be expected to live, and is likely to be in trouble.
_LEAST_MEMORY, _LITTLE_MEMORY = _GB, 3 * _GB
_LEAST_DISK, _LITTLE_DISK = _GB // 5, 2 * _GB
_FEW_FILES = 1024
_CONNECT_SECONDS = 5.0
# What adjtimex(2) returns where nothing keeps the clock.
_UNSYNCHRONISED = 5
_EXTRAS = {
    "spark": "pyspark", "notebook": "anywidget", "postgres": "adbc_driver_postgresql",
    "kafka": "confluent_kafka", "databento": "databento_dbn", "ibis": "ibis",
}  # fmt: skip


class State(StrEnum):
    """How a check has ended."""

    FINE = "fine"
    WARNING = "warning"
    WRONG = "wrong"


@dataclass(frozen=True, slots=True)
class Check:
    """What was looked at, how it is, and what to do about it."""

    what: str
    state: State
    found: str
    todo: str = ""


def doctor(config: Path | None) -> None:
    """Print a line for each check. Raises UserError as the configuration does, OrderbookError where something
    is wrong."""
    configuration = load_configuration(config)
    checks = list(checked(configuration))
    for one in checks:
        todo = f"; {one.todo}" if one.todo else ""
        print(visible(f"{one.state:<8} {one.what:<11} {one.found}{todo}"))
    told(checks=[asdict(one) for one in checks])
    if wrong := [one.what for one in checks if one.state is State.WRONG]:
        raise OrderbookError(f"not fit for a run: {', '.join(wrong)}")


def checked(configuration: Configuration) -> Iterator[Check]:
    """All checks; of the network those of exchanges that are followed."""
    found = (
        f"Python {platform.python_version()}, {platform.system()} {platform.release()}, {platform.machine()}"
    )
    yield Check("python", State.FINE, found)
    yield _clock()
    yield _processors(configuration)
    yield _memory()
    yield from _disks(configuration)
    yield _cache()
    yield _files()
    yield from _ports(configuration)
    yield _java(configuration)
    there = [name for name, module in _EXTRAS.items() if importlib.util.find_spec(module) is not None]
    yield Check("extras", State.FINE, ", ".join(there) or "none")
    yield from asyncio.run(_network(configuration))


def _clock() -> Check:
    if not sys.platform.startswith("linux"):
        return Check("clock", State.FINE, "not looked at on this system")
    # struct timex is no larger; all 0 only asks.
    state = ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(512))
    if state in (_UNSYNCHRONISED, -1):
        said = "nothing keeps it synchronised" if state > 0 else "cannot be asked here"
        return Check(
            "clock", State.WARNING, said, "run chrony or systemd-timesyncd, or latencies mean nothing"
        )
    return Check("clock", State.FINE, "synchronised")


def _processors(configuration: Configuration) -> Check:
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _quota()
    found = f"{count}" + (f", of which a limit leaves {quota:g}" if quota is not None else "")
    core = configuration.run.core
    if core is not None and (why := unavailable(core)) is not None:
        return Check("processors", State.WRONG, f"run.core = {core}: {why}", "choose another, or none")
    if min(count, quota or count) < 2:
        todo = "give it two: one for the engine, one for the monitor and its queries"
        return Check("processors", State.WARNING, found, todo)
    return Check("processors", State.FINE, found)


def _quota() -> float | None:
    """Processors that a control group leaves; None without a limit."""
    with suppress(OSError, ValueError):
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        if quota != "max":
            return int(quota) / int(period)
    return None


def _memory() -> Check:
    free = None
    with suppress(OSError, StopIteration):
        lines = Path("/proc/meminfo").read_text().splitlines()
        free = int(next(line for line in lines if line.startswith("MemAvailable")).split()[1]) * 1024
    if free is None:
        return Check("memory", State.FINE, "not looked at on this system")
    with suppress(OSError, ValueError):
        group = Path("/sys/fs/cgroup")
        left = int((group / "memory.max").read_text()) - int((group / "memory.current").read_text())
        free = min(free, left)
    state = State.WRONG if free < _LEAST_MEMORY else State.WARNING if free < _LITTLE_MEMORY else State.FINE
    todo = "" if state is State.FINE else "a run takes 0.5 GB, each of two query processes as much at most"
    return Check("memory", state, f"{size_text(free)} free", todo)


def _disks(configuration: Configuration) -> Iterator[Check]:
    folders = {
        "cache": cache_root(),
        "log": configuration.log.folder,
        "recordings": configuration.record.folder,
    }
    for name, folder in folders.items():
        if folder is None:
            continue
        there = next(one for one in (folder.absolute(), *folder.absolute().parents) if one.exists())
        free = shutil.disk_usage(there).free
        what = f"{name}'s disk"
        if not os.access(there, os.W_OK):
            yield Check(
                what, State.WRONG, f"{folder} cannot be written", "choose another folder, or its owner"
            )
            continue
        state = State.WRONG if free < _LEAST_DISK else State.WARNING if free < _LITTLE_DISK else State.FINE
        todo = "" if state is State.FINE else "make room, or name another folder"
        yield Check(what, state, f"{folder}: {size_text(free)} free", todo)


def _cache() -> Check:
    root = cache_root()
    wanted = Path(os.environ.get(VARIABLE) or Path.home() / ".cache" / "orderbook")
    if root != wanted and root != wanted.resolve():
        todo = f"make {wanted} your own with mode 0700, or name another in {VARIABLE}"
        return Check(
            "cache", State.WARNING, f"{root} instead of {wanted}: code is compiled at every start", todo
        )
    return Check("cache", State.FINE, f"{root}, {len(list(root.glob('**/*'))):,} entries")


def _files() -> Check:
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    todo = "" if limit >= _FEW_FILES else "raise it: ulimit -n 4096, or LimitNOFILE= of the unit"
    return Check("open files", State.FINE if not todo else State.WARNING, f"at most {limit:,}", todo)


def _ports(configuration: Configuration) -> Iterator[Check]:
    monitor, postgres, metrics = configuration.monitor, configuration.postgres, configuration.metrics
    flight = configuration.flight
    places = (
        ("monitor", monitor.enabled, monitor.host, monitor.port),
        ("postgres", postgres.enabled, postgres.host, postgres.port),
        ("flight", flight.enabled, flight.host, flight.port),
        ("metrics", bool(metrics.port), metrics.host, metrics.port or 0),
    )
    for what, wanted, host, port in places:
        if not wanted:
            continue
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            with socket.socket(family) as one:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                one.bind((host, port))
        except OSError as error:
            todo = f"another run may have it; end it, or choose another {what}.port"
            yield Check(what, State.WRONG, f"{host}:{port}: {error.strerror or error}", todo)
        else:
            yield Check(what, State.FINE, f"{host}:{port} is free")


def _java(configuration: Configuration) -> Check:
    if importlib.util.find_spec("pyspark") is None:
        return Check("java", State.FINE, "not needed without the extra spark")
    from orderbook.spark.java import find_java

    try:
        java = find_java(configuration.spark.java)
    except UserError as error:
        return Check("java", State.WARNING, str(error), "only Spark needs it")
    return Check("java", State.FINE, f"{java.version} in {java.home}")


async def _network(configuration: Configuration) -> list[Check]:
    """Of each exchange that is followed, whether its addresses answer."""
    found: dict[str, str] = {}
    for feed in configuration.feeds:
        if isinstance(feed, ExchangeFeed):
            kind = exchange(feed.kind)
            for url in (feed.url or kind.url, feed.rest_url or kind.rest_url):
                if url:
                    found.setdefault(url, feed.kind)
    return list(await asyncio.gather(*(_reached(name, url) for url, name in found.items())))


async def _reached(name: str, url: str) -> Check:
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme in ("wss", "https") else 80)
    try:
        async with asyncio.timeout(_CONNECT_SECONDS):
            _, writer = await asyncio.open_connection(parts.hostname, port)
        writer.close()
    except (OSError, TimeoutError) as error:
        said = f"{parts.hostname}:{port}: {error or f'no answer in {_CONNECT_SECONDS:g} s'}"
        todo = "look at the network, DNS and proxies of this machine"
        return Check(name, State.WRONG, said, todo)
    return Check(name, State.FINE, f"{parts.hostname}:{port} answers")
