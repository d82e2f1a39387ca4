"""A session against a simulated exchange with faults: nothing wrong is shown, and all is well after them."""

import gc
import logging
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType, ModuleType

import fault_run
import pytest
from fault_mutations import MUTATIONS, mutated
from fault_run import Report
from simulated_venue import FAULTS, Dialect, Faults

from orderbook.engine.runtime.program_start import Backend
from orderbook.feeds import text_values
from orderbook.feeds.exchanges import books

DIALECTS: tuple[Dialect, ...] = ("orders", "levels")
# Seeds of all faults together, and those within which a broken program is found.
SAMPLE, FOUND_WITHIN = 4, 14
# What only happens to new connections, or to answers that there are more of with them.
ALONE = [
    (dialect, fault.name, (fault.name, "disconnect") if fault.occasion in ("connection", "answer") else ())
    for dialect in DIALECTS
    for fault in FAULTS.values()
    if fault.counted(dialect) is not None
]


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logger = logging.getLogger("orderbook.feeds.live.session")
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(logging.NOTSET)


def total(reports: list[Report]) -> Report:
    """Reports added up; `recovered` is the longest."""
    injected, noticed, problems = Counter[str](), Counter[str](), Counter[str]()
    for report in reports:
        injected += report.injected
        noticed += report.noticed
        problems += report.problems
    compared = sum(report.compared for report in reports)
    callbacks = sum(report.callbacks for report in reports)
    return Report(injected, noticed, problems, compared, callbacks, max(r.recovered for r in reports))


@pytest.mark.parametrize("dialect", DIALECTS)
def test_without_faults(dialect: Dialect) -> None:
    report = fault_run.run(dialect, 1, ())
    assert report.problems.keys() <= {"old snapshot"}
    assert report.recovered == 0
    assert report.compared > 100 and report.callbacks > 100


@pytest.mark.sampled(6)
@pytest.mark.parametrize(("dialect", "name", "names"), ALONE, ids=[f"{d}-{n}" for d, n, _ in ALONE])
def test_each_fault_alone(dialect: Dialect, name: str, names: tuple[str, ...]) -> None:
    names = names or (name,)
    reports = []
    for seed in range(1, 20):
        reports.append(fault_run.run(dialect, seed, names))
        report = total(reports)
        enough = report.noticed[name] or not FAULTS[name].counted(dialect)
        if report.injected[name] >= 3 and enough:
            break
    else:
        pytest.fail(f"{name} was never noticed in {report}")
    allowed = {"old snapshot"}
    for one in names:
        allowed |= {*(FAULTS[one].counted(dialect) or ()), *FAULTS[one].then}
    assert report.problems.keys() <= allowed
    assert report.compared > 30


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("seed", range(SAMPLE))
def test_all_faults_together(dialect: Dialect, seed: int) -> None:
    report = fault_run.run(dialect, seed)
    assert report.compared > 0 and report.callbacks > 0


@pytest.mark.parametrize("dialect", DIALECTS)
def test_with_compiled_views(dialect: Dialect) -> None:
    assert fault_run.run(dialect, 1, None, "numba").callbacks > 100


@pytest.mark.parametrize("dialect", DIALECTS)
def test_memory_is_bounded(dialect: Dialect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_values, "_CACHE_SIZE", 100)
    monkeypatch.setattr(books, "MAXIMUM_HELD", 50)
    network, checks = fault_run.world(dialect, 3, Faults(3, dialect, FAULTS), "interpreter")
    sizes = []
    for _ in range(40):
        network.run(network.now + 5.0)
        sizes.append(reachable(network.session))
    assert checks.compared > 100
    assert max(sizes[10:]) < 1.3 * max(sizes[:10]) + 100


def reachable(start: object) -> int:
    """How many objects something keeps alive, without classes and functions."""
    seen, waiting = {id(start): start}, [start]
    while waiting:
        for found in gc.get_referents(waiting.pop()):
            if id(found) not in seen and not isinstance(found, type | ModuleType | FunctionType):
                seen[id(found)] = found
                waiting.append(found)
    return len(seen)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", MUTATIONS)
def test_runs_find_what_is_broken(name: str) -> None:
    mutation = MUTATIONS[name]

    def sample() -> None:
        for seed in range(FOUND_WITHIN):
            for dialect in DIALECTS:
                if mutation.dialect in (None, dialect):
                    fault_run.run(dialect, seed)

    with mutated(mutation), pytest.raises(AssertionError):
        sample()


@pytest.mark.exhaustive
@pytest.mark.parametrize("dialect", DIALECTS)
def test_many_runs(dialect: Dialect, sample_seed: int, sample_count: int) -> None:
    backends: tuple[Backend, ...] = ("interpreter", "numba")
    failed, reports = [], []
    for number in range(sample_count // 2):
        seed, backend = 10**6 * sample_seed + number, backends[number % 50 == 49]
        try:
            reports.append(fault_run.run(dialect, seed, None, backend))
        except AssertionError as error:
            failed.append(str(error))
    assert not failed, f"{len(failed)} of {sample_count // 2} runs: " + "\n".join(failed[:20])
    report = total(reports)
    print(f"\n{dialect}: {len(reports)} runs, {report.compared} books compared, {report.callbacks} callbacks")
    print(f"longest recovery {report.recovered:.0f} s; fault: injected, noticed at once")
    for name, fault in FAULTS.items():
        if fault.counted(dialect) is not None:
            print(f"  {name}: {report.injected[name]}, {report.noticed[name]}")
            # Oversized frames are rare, because they are slow.
            assert report.injected[name] > 0 or len(reports) < 100
    print(f"  counted: {dict(report.problems)}")


def test_every_fault_is_documented(project: Path) -> None:
    text = (project / "docs" / "feeds.md").read_text()
    assert [name for name in FAULTS if f"| {name} |" not in text] == []
