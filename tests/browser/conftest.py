"""One browser, and one run with its monitor, for all browser tests."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from chromium import Page, browser
from running import Running, running


@pytest.fixture(scope="session")
def open_page() -> Iterator[Callable[[], AbstractContextManager[Page]]]:
    """Opens a page for the time of a block, with a storage of its own."""
    with browser() as opening:
        yield opening


@pytest.fixture(scope="session")
def monitored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A run over a simulated exchange, which all tests but the last leave as they found it."""
    with running(tmp_path_factory.mktemp("run")) as run:
        yield run


@pytest.fixture
def page(open_page: Callable[[], AbstractContextManager[Page]], monitored: Running) -> Iterator[Page]:
    """The monitor at laptop size, with a valid book."""
    with open_page() as page:
        page.show(1440, 900, dark=True)
        page.go(monitored.url)
        page.until("orderbook.ladder() && orderbook.doubt() === ''")
        yield page


@pytest.fixture(scope="session")
def pictures(project: Path) -> Path:
    """Where screenshots are put, to be looked at."""
    return project / "out" / "monitor"
