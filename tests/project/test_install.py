"""The wheel: what it holds, and that no folder of a user gets between its modules."""

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest
from paths import PROJECT

# What a checkout needs to be built from.
SOURCES = ("orderbook", "views", "engine", "feeds", "strategies", "config.toml")
FILES = ("pyproject.toml", "README.md", "LICENSE")
PROGRAM = ("-m", "orderbook.command_line")
OWN_PACKAGES = ("views", "strategies", "engine", "feeds", "tests")

VIEW = "CREATE VIEW mine AS SELECT symbol, COUNT(*) AS n FROM trades GROUP BY symbol;\n"
STRATEGY = """
from orderbook import Strategy, ViewEvent, on_view


class P(Strategy):
    @on_view("mine", when="n > 5")
    def many(self, event: ViewEvent) -> None:
        print("told", event.new.symbol, event.new.n)
"""
SCRIPT = """
import engine, feeds, orderbook, strategies, tests, views
program = orderbook.compile("CREATE VIEW v AS SELECT symbol, COUNT(*) AS n FROM trades GROUP BY symbol")
made = orderbook.Engine(program, "interpreter")
print(made.views, orderbook.__file__)
print([module.__file__ for module in (engine, feeds, strategies, tests, views)])
print(orderbook.Strategy.__module__)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("build")
    source = folder / "checkout"
    source.mkdir()
    for name in SOURCES:
        place = PROJECT / name
        if place.is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(place, source / name, symlinks=True, ignore=ignored)
        else:
            shutil.copy(place, source / name)
    for name in FILES:
        shutil.copy(PROJECT / name, source / name)
    command = [sys.executable, "-m", "pip", "wheel", "-qq", "--no-index", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, "-w", str(folder), str(source)], check=True)
    (found,) = folder.glob("orderbook-*.whl")
    return found


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel, and with what it depends on, but without this checkout."""
    folder = tmp_path_factory.mktemp("installed") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "-qq", "--no-index", "--no-deps"]
    subprocess.run([*pip, str(wheel)], check=True)
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    site = Path(subprocess.check_output([str(python), "-c", code], text=True).strip())
    # A path in a .pth file is searched, and no .pth file in it is read: not that of the editable install.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


@pytest.fixture(scope="module")
def flow(python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of generated events."""
    folder = tmp_path_factory.mktemp("generated")
    shape = ("--events", "150", "--symbols", "1", "--levels", "10", "--out", "flow.parquet")
    run(python, folder, *PROGRAM, "generate", *shape)
    return folder / "flow.parquet"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A user's folder with packages of its own that are called as ours were once."""
    for name in OWN_PACKAGES:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("MINE = True\n")
    (tmp_path / "views" / "mine.sql").write_text(VIEW)
    (tmp_path / "strategies" / "mine.py").write_text(STRATEGY)
    return tmp_path


def run(python: Path, folder: Path, *arguments: str, status: int = 0, **variables: str) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | variables
    command = [str(python), *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_the_wheel_has_all_modules_and_data(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as file:
        names = {name for name in file.namelist() if ".dist-info/" not in name}
    expected = set()
    for folder, _, files in os.walk(PROJECT / "orderbook", followlinks=True):
        expected |= {str((Path(folder) / file).relative_to(PROJECT)) for file in files}
    assert names == {name for name in expected if "__pycache__" not in name}
    assert {"orderbook/views/sobi.sql", "orderbook/default.toml"} < names


def test_users_packages_of_the_same_names_are_theirs(python: Path, folder: Path) -> None:
    out = run(python, folder, "-c", SCRIPT)
    shown, theirs, author = out.splitlines()
    assert shown.startswith("('v',)") and str(python.parent.parent) in shown
    assert theirs.count(str(folder)) == len(OWN_PACKAGES)
    assert author == "orderbook.strategies.strategy"


def test_a_users_view_and_strategies_beside_those_that_ship(python: Path, folder: Path, flow: Path) -> None:
    (folder / "c.toml").write_text('[run]\nbackend = "interpreter"\n')
    common = ("--config", "c.toml", str(flow))
    own = ("--view", "views/mine.sql", "--strategy", "strategies.mine:P")
    assert "told" in run(python, folder, *PROGRAM, "replay", *own, *common)
    shipped = ("--view", "sobi", "--strategy", "strategies.sobi:Sobi")
    assert "strategy Sobi" in run(python, folder, *PROGRAM, "replay", *shipped, *common)
    wrong = ("--view", "sobi", "--strategy", "strategies.sobbi:Sobi", *common)
    assert "did you mean 'strategies.sobi'" in run(python, folder, *PROGRAM, "replay", *wrong, status=2)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("module", "extra", "arguments"),
    [
        ("pyspark", "spark", ("backtest", "--engine", "spark", "--view", "views/mine.sql", "{flow}")),
        (
            "adbc_driver_postgresql",
            "postgres",
            ("replay", "--view", "views/mine.sql", "table:postgresql://h/d#t"),
        ),
        ("confluent_kafka", "kafka", ("run", "--view", "views/mine.sql", "--feed", "kafka://h:1/t")),
        ("databento_dbn", "databento", ("replay", "--view", "views/mine.sql", "dbn:day.dbn")),
    ],
)
def test_what_an_extra_brings_is_asked_for(
    python: Path, folder: Path, flow: Path, module: str, extra: str, arguments: tuple[str, ...]
) -> None:
    own = [one.format(flow=flow) for one in arguments]
    (folder / "day.dbn").write_bytes(b"DBN\x01")
    (folder / "sitecustomize.py").write_text(f"import sys\nsys.modules[{module!r}] = None\n")
    told = run(python, folder, *PROGRAM, *own, status=2, PYTHONPATH=str(folder))
    assert f"pip install 'orderbook[{extra}]'" in told and "Traceback" not in told
