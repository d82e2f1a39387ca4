"""`orderbook test`: unit tests of views, on the interpreter and compiled."""

import time
from collections.abc import Sequence
from pathlib import Path

from orderbook.configuration.configuration import load_configuration
from orderbook.core.errors import OrderbookError, UserError, visible
from orderbook.core.summaries import told
from orderbook.engine.runtime.program_start import Backend
from orderbook.operations.view_tests import SUFFIXES, Outcome, ViewTests, read_tests, test_files

_BACKENDS: tuple[Backend, ...] = ("interpreter", "numba")


def run_tests(
    paths: Sequence[Path], config: Path | None, chosen: str | None, backend: Backend | None
) -> None:
    """Print a line for each test, and what failed. chosen: a part of the names of those that are run.

    Raises UserError for tests that cannot be run, OrderbookError where one fails.
    """
    configuration = load_configuration(config)
    folders = [path for path in configuration.views.paths if path.is_dir()]
    files = test_files(paths or [Path(), *folders])
    tests = [one for file in files for one in read_tests(file) if (chosen or "") in one.name]
    if not tests:
        raise UserError(f"no tests are found; write them in files *{SUFFIXES[0]} beside views")
    began, runner, outcomes = time.monotonic(), ViewTests(configuration), list[Outcome]()
    for test in tests:
        own = [runner.run(test, one) for one in _BACKENDS if backend in (None, one)]
        outcomes += own
        failed = [one for one in own if one.lines]
        print(visible(f"{'FAILED' if failed else 'passed'}  {test.place}  {test.name}"))
        # What both say is said once.
        for one in failed[:1] if len({tuple(o.lines) for o in own}) == 1 else failed:
            where = "" if len(failed) == len(own) else f" (on {one.backend})"
            print(*(visible(f"  {line}{where}") for line in one.lines), sep="\n")
    bad = {one.test.place for one in outcomes if one.lines}
    seconds = time.monotonic() - began
    print(f"{len(tests) - len(bad)} passed, {len(bad)} failed, in {seconds:.1f} s")
    told(
        seconds=round(seconds, 6),
        passed=len(tests) - len(bad),
        failed=len(bad),
        tests=[
            {"test": o.test.name, "place": o.test.place, "backend": o.backend, "differences": o.lines}
            for o in outcomes
        ],
    )
    if bad:
        raise OrderbookError(f"{len(bad)} of {len(tests)} tests failed")
