"""The project's own files agree with each other."""

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, distribution, requires
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from setuptools import find_packages

# Folders that install as packages within `orderbook`, through links there.
LINKED = {"views", "engine", "feeds", "strategies"}
# Folders with Python files that are run from a checkout and not installed.
NOT_INSTALLED = {"tests", "benchmarks"}
# Below /opt a Java may be installed on any machine.
MACHINE_PATH = re.compile(r"(?<![\w.~/-])/(?:home|Users|root|work|mnt|opt(?!/java|/jdk|/homebrew))/[\w.]")
# Written apart, so that this file does not name one itself.
REGISTRY_HOST = re.compile(
    r"(py" r"pi|python" r"hosted|ana" r"conda)\.org|repo1?\.maven\.|registry\.npm" r"js\."
)


@pytest.fixture(scope="module")
def pyproject(project: Path) -> dict[str, Any]:
    return tomllib.loads((project / "pyproject.toml").read_text())


@pytest.fixture(scope="module")
def locked(project: Path) -> dict[str, str]:
    """Normalised names and versions of requirements.lock."""
    pairs = [line.split("==") for line in (project / "requirements.lock").read_text().splitlines()]
    return {normalised(name): number for name, number in pairs}


def normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.fixture(scope="module")
def project_files(project: Path) -> list[Path]:
    """Files that are tracked, or new and not ignored."""
    if shutil.which("git") is None or not (project / ".git").exists():
        pytest.skip("not a git checkout")
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=project, capture_output=True, check=True, text=True).stdout
    files = [project / name for name in listed.split("\0") if name]
    return [file for file in files if file.is_file()]


def test_lock_has_only_names_and_versions(project: Path, locked: dict[str, str]) -> None:
    lines = (project / "requirements.lock").read_text().splitlines()
    assert [line for line in lines if not re.fullmatch(r"[A-Za-z0-9][\w.-]*==[0-9][0-9a-z.]*", line)] == []
    assert len(locked) == len(lines)


def test_lock_is_within_the_ranges(pyproject: dict[str, Any], locked: dict[str, str]) -> None:
    extras = pyproject["project"]["optional-dependencies"].values()
    declared = pyproject["project"]["dependencies"] + [one for extra in extras for one in extra]
    for requirement in map(Requirement, [*declared, *pyproject["build-system"]["requires"]]):
        assert requirement.specifier.contains(locked[requirement.name]), requirement
        assert {part.operator for part in requirement.specifier} == {"<", ">="}, requirement


def test_lock_is_closed(locked: dict[str, str]) -> None:
    """Whatever a locked distribution requires on this platform is locked too."""
    for name in locked:
        for requirement in map(Requirement, requires(name) or []):
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                assert normalised(requirement.name) in locked, f"{name} requires {requirement}"


def test_packages_are_all_listed(project: Path, pyproject: dict[str, Any]) -> None:
    include = pyproject["tool"]["setuptools"]["packages"]["find"]["include"]
    found = find_packages(str(project), include=include)
    folders = {
        file.parent.relative_to(project)
        for file in project.glob("[!.]*/**/*.py")
        if file.relative_to(project).parts[0] not in NOT_INSTALLED | {"build", "out"}
    }
    within = (("orderbook", *f.parts) if f.parts[0] in LINKED else f.parts for f in folders)
    assert set(found) == {".".join(parts) for parts in within}
    assert {link.name for link in (project / "orderbook").iterdir() if link.is_symlink()} > LINKED


def test_package_data_exists(project: Path, pyproject: dict[str, Any]) -> None:
    for package, patterns in pyproject["tool"]["setuptools"]["package-data"].items():
        for pattern in patterns:
            assert list((project / package.replace(".", "/")).glob(pattern)), f"{package}/{pattern}"


def test_packages_import_from_any_folder(project: Path, tmp_path: Path) -> None:
    try:
        distribution("orderbook")
    except PackageNotFoundError:
        pytest.skip("the project is not installed")
    packages = ", ".join(f"orderbook.{name}" for name in sorted(LINKED))
    code = f"import {packages}; print(orderbook.__file__)"
    output = subprocess.check_output([sys.executable, "-c", code], cwd=tmp_path, text=True)
    assert Path(output.strip()) == project / "orderbook" / "__init__.py"


def test_no_file_names_a_machine_or_a_registry(project_files: list[Path], project: Path) -> None:
    found = []
    for file in project_files:
        text = file.read_bytes().decode("utf-8", errors="replace")
        for number, line in enumerate(text.splitlines(), 1):
            if MACHINE_PATH.search(line) or REGISTRY_HOST.search(line):
                found.append(f"{file.relative_to(project)}:{number}: {line.strip()[:80]}")
    assert found == []


@pytest.mark.parametrize(
    "line", ["see /" + "home/ann/x", "'/" + "Users/ann'", "https://pypi" + ".org/simple", "=/" + "opt/wheels"]
)
def test_the_patterns_find_what_they_should(line: str) -> None:
    assert MACHINE_PATH.search(line) or REGISTRY_HOST.search(line)


def test_make_knows_its_targets(project: Path) -> None:
    make = shutil.which("make")
    if make is None:
        pytest.skip("make is not installed")
    for target in ("setup", "run", "test", "lint", "bench", "test-exhaustive", "clean"):
        subprocess.run([make, "--dry-run", target], cwd=project, capture_output=True, check=True)


def test_old_python_is_refused_clearly(project: Path, tmp_path: Path) -> None:
    """With no python new enough on the path, setup says so and makes nothing."""
    make = shutil.which("make")
    if make is None:
        pytest.skip("make is not installed")
    for name in ("Makefile", "requirements.lock", "pyproject.toml"):
        shutil.copy(project / name, tmp_path)
    programs = tmp_path / "bin"
    programs.mkdir()
    old = programs / "python3"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    result = subprocess.run(
        [make, "setup"], cwd=tmp_path, capture_output=True, text=True, env={"PATH": str(programs)}
    )
    assert result.returncode != 0
    assert "Python 3.11 or newer is needed" in result.stderr
    assert not (tmp_path / ".venv").exists()


def test_setup_takes_a_python_that_was_built_optimised(project: Path, tmp_path: Path) -> None:
    """The first of those on the path, whichever comes before it; without one, or where one is named, that."""
    make = shutil.which("make")
    if make is None:
        pytest.skip("make is not installed")
    for name in ("Makefile", "requirements.lock", "pyproject.toml"):
        shutil.copy(project / name, tmp_path)
    for name, status in (("plain", 1), ("optimised", 0)):
        program = tmp_path / name / "python3.11"
        program.parent.mkdir()
        cases = f"--version) echo {name};; *CONFIG_ARGS*) exit {status};; *venv*) exit 1;;"
        program.write_text(f'#!/bin/sh\ncase "$*" in {cases} esac\n')
        program.chmod(0o755)

    def taken(*arguments: str, path: Sequence[str]) -> str:
        environment = {"PATH": os.pathsep.join(str(tmp_path / name) for name in path)}
        done = subprocess.run(
            [make, "setup", *arguments], cwd=tmp_path, capture_output=True, text=True, env=environment
        )
        assert "cannot make a virtual environment" in done.stderr
        return done.stdout.removeprefix("setting up .venv with ").strip()

    assert taken(path=("plain", "optimised")) == "optimised"
    assert taken(path=("plain",)) == "plain"
    assert taken("PYTHON=plain/python3.11", path=("plain", "optimised")) == "plain"


def test_properties_draw_as_many_examples_as_the_profile_says(project: Path) -> None:
    """samples.py says how many; a number of one's own would be the same in every exhaustive run."""
    written = "=".join(("max_examples", ""))
    own = [p.name for p in (project / "tests").glob("**/*.py") if written in p.read_text()]
    assert sorted(own) == ["conftest.py", "samples.py"]


def test_the_tests_that_the_table_of_faults_names_are_there(project: Path) -> None:
    table = (project / "docs" / "operations.md").read_text().partition("## Faults")[2]
    named = re.findall(r"`(tests/\S+\.py)::(\w+)`", table)
    rows = [line for line in table.splitlines() if line.startswith("| ") and not line.startswith("| fault")]
    assert len(named) >= len(rows) > 50
    missing = [
        f"{file}::{test}" for file, test in named if f"def {test}(" not in (project / file).read_text()
    ]
    assert missing == []


def untyped_arrays(source: str) -> list[int]:
    """Lines that name `np.ndarray` for anything but to ask whether a value is an array."""
    tree = ast.parse(source)
    asked = {
        id(node)
        for call in ast.walk(tree)
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Name)
        and call.func.id in ("isinstance", "id")
        for node in ast.walk(call)
    }
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr == "ndarray" and id(node) not in asked
    ]


def test_arrays_are_typed_by_what_they_hold(project: Path) -> None:
    for text in (
        "def f(a: np.ndarray) -> None: ...",
        "x: list[np.ndarray] = []",
        "Rows = tuple[np.ndarray, int]",
    ):
        assert untyped_arrays(text) == [1], text
    assert untyped_arrays("isinstance(a, np.ndarray | list)\nb: NDArray[np.int64] = a") == []
    files = [
        path
        for folder in ("orderbook", "views", "engine", "feeds", "strategies")
        for path in sorted((project / folder).rglob("*.py"))
    ]
    assert len(files) > 200
    texts = {str(path.relative_to(project)): path.read_text() for path in files}
    bare = {path: untyped_arrays(text) for path, text in texts.items() if "ndarray" in text}
    assert {path: lines for path, lines in bare.items() if lines} == {}
