"""Every command and program of the README works as printed."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from command_line_support import Program, Result, orderbook  # noqa: F401
from paths import PROJECT

BLOCK = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)
NAME = re.compile(r"(?:--|#) (\S+\.\w+)\n")
# The files that the README shows, and what its programs print first.
PROGRAMS = {"example.py": "('AMZN',) 150", "live.py": "223.95000000 placed(orders=2, resting=1)"}
CONFIGURATIONS = {"mine.toml", "live.toml", "logged.toml"}
FILES = {"pressure.sql", "market.sql", "my_strategy.py", "placed.m3", *CONFIGURATIONS, *PROGRAMS}


def blocks(project: Path, kind: str) -> list[str]:
    text = (project / "README.md").read_text()
    return [body for language, body in BLOCK.findall(text) if language == kind]


def commands(project: Path) -> list[str]:
    return [
        line[2:] for body in blocks(project, "console") for line in body.splitlines() if line.startswith("$ ")
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files that the README shows, named in their first lines."""
    made = tmp_path_factory.mktemp("readme")
    for kind in ("sql", "python", "toml", "m3"):
        for body in blocks(PROJECT, kind):
            name = NAME.match(body)
            if name:
                (made / name[1]).write_text(body)
    assert {p.name for p in made.iterdir()} == FILES
    return made


def run(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return subprocess.run(
        command,
        shell=True,
        cwd=folder,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_every_command_works(
    project: Path,
    folder: Path,
    orderbook: Program,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first as a program of the shell, the others within this process."""
    if shutil.which("orderbook", path=str(Path(sys.executable).parent)) is None:
        pytest.skip("the program is not installed beside this Python: make setup")
    first, *others = [c for c in commands(project) if not c.startswith("make ")]
    assert len(others) >= 10
    started = run(first, folder)
    done = [(first, Result(started.returncode, started.stdout, started.stderr))]
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    for command in others:
        program, *arguments = shlex.split(command)
        assert program == "orderbook"
        done.append((command, orderbook(*arguments)))
    for command, result in done:
        assert result.status == 0, f"{command}: {result.out[-2000:]}{result.err[-2000:]}"
        assert result.out.strip(), f"{command} prints nothing"
        assert "Traceback" not in result.err, f"{command}: {result.err[-2000:]}"


def test_make_has_the_targets(project: Path) -> None:
    for command in (c for c in commands(project) if c.startswith("make ")):
        done = run(f"{command} --dry-run", project)
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_in_python_print_what_is_said(folder: Path, name: str) -> None:
    done = run(f"{sys.executable} {name}", folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(PROGRAMS[name])
