"""`orderbook test`: unit tests of views, on the interpreter, compiled, and where it is asked for on Spark."""

import time
from collections.abc import Sequence
from pathlib import Path

from orderbook.configuration.configuration import Configuration, load_configuration
from orderbook.core.errors import OrderbookError, UserError, extra, visible
from orderbook.core.summaries import told
from orderbook.engine.runtime.program_start import Backend
from orderbook.operations.view_tests import SUFFIXES, HistoryMaker, Outcome, ViewTests, read_tests, test_files

_BACKENDS: tuple[Backend, ...] = ("interpreter", "numba")


def run_tests(
    paths: Sequence[Path],
    config: Path | None,
    chosen: str | None,
    backend: Backend | None,
    on_spark: bool = False,
) -> None:
    """Print a line for each test, and what failed. chosen: a part of the names of those that are run.

    on_spark: on Spark, too, which is started for it.

    Raises UserError for tests that cannot be run, OrderbookError where one fails.
    """
    configuration = load_configuration(config)
    folders = [path for path in configuration.views.paths if path.is_dir()]
    files = test_files(paths or [Path(), *folders])
    tests = [one for file in files for one in read_tests(file) if (chosen or "") in one.name]
    if not tests:
        raise UserError(f"no tests are found; write them in files *{SUFFIXES[0]} beside views")
    began, runner, outcomes = time.monotonic(), ViewTests(configuration), list[Outcome]()
    histories = _spark(configuration) if on_spark else None
    for test in tests:
        own = [runner.run(test, one) for one in _BACKENDS if backend in (None, one)]
        if histories is not None:
            own.append(runner.run_elsewhere(test, "spark", histories))
        outcomes += own
        failed = [one for one in own if one.lines]
        print(visible(f"{'FAILED' if failed else 'passed'}  {test.place}  {test.name}"))
        # What both say is said once.
        for one in failed[:1] if len({tuple(o.lines) for o in own}) == 1 else failed:
            where = "" if len(failed) == len(own) else f" (on {one.backend})"
            print(*(visible(f"  {line}{where}") for line in one.lines), sep="\n")
        for one in own:
            if one.skipped is not None:
                print(visible(f"  not on {one.backend}: {one.skipped}"))
    bad = {one.test.place for one in outcomes if one.lines}
    seconds = time.monotonic() - began
    print(f"{len(tests) - len(bad)} passed, {len(bad)} failed, in {seconds:.1f} s")
    told(
        seconds=round(seconds, 6),
        passed=len(tests) - len(bad),
        failed=len(bad),
        tests=[
            {
                "test": o.test.name,
                "place": o.test.place,
                "backend": o.backend,
                "differences": o.lines,
                "skipped": o.skipped,
            }
            for o in outcomes
        ],
    )
    if bad:
        raise OrderbookError(f"{len(bad)} of {len(tests)} tests failed")


def _spark(configuration: Configuration) -> HistoryMaker:
    """Raises UserError where PySpark is not installed, or Spark does not start."""
    with extra("spark", "pyspark"):
        from orderbook.commands.spark_view_tests import SparkHistories
    return SparkHistories(configuration)
