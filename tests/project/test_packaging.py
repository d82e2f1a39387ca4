"""The image's steps, the unit and `orderbook doctor`: what they name is there, and does what it is for."""

import asyncio
import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line_support import Program, orderbook, write
from monitor_support import running
from paths import PROJECT
from samples import PATIENCE

from orderbook.commands import doctor
from orderbook.configuration.configuration import load_configuration

__all__ = ["orderbook"]


def steps() -> list[tuple[str, str]]:
    """The instructions of the Dockerfile and what they say, lines joined."""
    text = (PROJECT / "Dockerfile").read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(name, rest.strip()) for name, _, rest in (line.partition(" ") for line in lines)]


def test_the_image_is_built_from_what_there_is_and_runs_as_nobody_special(tmp_path: Path) -> None:
    found = steps()
    for name, rest in found:
        if name == "COPY" and not rest.startswith("--from"):
            *sources, target = rest.split()
            for source in sources:
                assert (PROJECT / source).exists(), source
                where = tmp_path / target / ("" if (PROJECT / source).is_file() else ".")
                where.mkdir(parents=True, exist_ok=True)
                if (PROJECT / source).is_file():
                    shutil.copy(PROJECT / source, where)
                else:
                    ignored = shutil.ignore_patterns("__pycache__")
                    shutil.copytree(
                        PROJECT / source, where, symlinks=True, dirs_exist_ok=True, ignore=ignored
                    )
    (build,) = [rest for name, rest in found if name == "RUN" and "pip wheel" in rest]
    words = shlex.split(build.replace("/wheels", str(tmp_path / "wheels")))
    assert words[0] == "python"
    subprocess.run(
        [sys.executable, *words[1:], "-qq", "--no-index", "--no-build-isolation"], check=True, cwd=tmp_path
    )
    assert list((tmp_path / "wheels").glob("orderbook-*.whl"))
    names = [name for name, _ in found]
    last = len(names) - 1 - names[::-1].index("FROM")
    user = dict(found)["USER"]
    made = next(place for place, (_, rest) in enumerate(found) if "useradd" in rest and user in rest)
    assert user not in ("root", "0") and last < made < names.index("USER") < names.index("ENTRYPOINT")
    assert all(name not in ("RUN", "COPY") for name in names[names.index("USER") :])


def test_its_health_check_tells_a_run_that_lives_from_one_that_does_not() -> None:
    said = next(rest for name, rest in steps() if name == "HEALTHCHECK").partition(" CMD ")[2]
    words = shlex.split(said)
    assert words[0] == "python"

    def status(port: int) -> int:
        script = [word.replace("8799", str(port)) for word in words[1:]]
        return subprocess.run([sys.executable, *script], capture_output=True, timeout=PATIENCE).returncode

    async def go() -> None:
        async with running() as run:
            port = int(run.url.split(":")[2].split("/")[0])
            assert await asyncio.to_thread(status, port) == 0
        assert await asyncio.to_thread(status, port) == 1

    asyncio.run(asyncio.wait_for(go(), PATIENCE))


def test_what_it_starts_are_commands(orderbook: Program) -> None:
    entry, default = (json.loads(dict(steps())[name]) for name in ("ENTRYPOINT", "CMD"))
    assert entry == ["orderbook"] and orderbook(*default, "--help").status == 0
    unit = (PROJECT / "packaging" / "orderbook.service").read_text()
    for command in re.findall(r"^ExecStart\w*=\S+/orderbook (\w+)", unit, re.MULTILINE):
        assert orderbook(command, "--help").status == 0


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    unit = (PROJECT / "packaging" / "orderbook.service").read_text()
    # The program that it starts has to be there.
    place = tmp_path / "orderbook.service"
    place.write_text(unit.replace("/usr/local/lib/orderbook/bin/orderbook", sys.executable))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(place)], capture_output=True, text=True,
        env={**os.environ, "SYSTEMD_LOG_LEVEL": "warning"},
    )  # fmt: skip
    assert done.returncode == 0 and "orderbook.service" not in done.stderr, done.stderr


def test_the_doctor_says_what_is_wrong_and_what_to_do(orderbook: Program, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        config = write(
            tmp_path / "run.toml",
            f'[monitor]\nport = {port}\n[log]\nfolder = "log"\n[[feeds]]\n'
            f'kind = "kraken"\nproducts = ["BTC/USD"]\n'
            f'url = "ws://127.0.0.1:{port}/"\nrest_url = "http://127.0.0.1:9/"\n',
        )
        done = orderbook("doctor", "--config", config, "--json")
    told = {one["what"]: one for one in json.loads(done.out)["checks"]}
    assert done.status == 1 and "not fit for a run: monitor, kraken" in done.err
    assert told["monitor"]["state"] == "wrong" and "another run may have it" in told["monitor"]["todo"]
    assert told["log's disk"]["state"] in ("fine", "warning", "wrong") and told["python"]["state"] == "fine"
    assert {"clock", "processors", "memory", "cache", "open files", "java", "extras"} <= told.keys()


def state_of(check: str) -> Callable[[], Any]:
    return {
        "memory": doctor._memory,
        "files": doctor._files,
        "disk": lambda: next(iter(doctor._disks(load_configuration(None)))),
        "clock": doctor._clock,
    }[check]


@pytest.mark.parametrize(
    ("check", "name", "value", "state"),
    [
        ("memory", "_LEAST_MEMORY", 1 << 60, "wrong"),
        ("memory", "_LITTLE_MEMORY", 1 << 60, "warning"),
        ("files", "_FEW_FILES", 1 << 60, "warning"),
        ("disk", "_LEAST_DISK", 1 << 60, "wrong"),
    ],
)
def test_limits(monkeypatch: pytest.MonkeyPatch, check: str, name: str, value: int, state: str) -> None:
    monkeypatch.setattr(doctor, name, value)
    found = state_of(check)()
    assert found.state == state and found.todo
