"""Views over files that come one by one: what is asserted and not retracted is what a backtest has."""

import random
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from backtest_support import VIEWS, job_settings, write_records

from orderbook.backtesting import following
from orderbook.backtesting.following import ASSERTED, FollowedViews, changed_rows
from orderbook.backtesting.plan import planned, without_shuffle
from orderbook.backtesting.run import LocalExecutor, backtest
from orderbook.backtesting.sources import GrowingSources, source_specs
from orderbook.backtesting.tasks import ReadTask
from orderbook.core.errors import SourceError, UserError
from orderbook.feeds.recording.parquet_record import RecordWriter
from orderbook.jobs.job import open_job
from orderbook.market.events import EVENT, Action, BookState, Flag, Side, StateReason
from orderbook.market.synthetic_flow import synthetic_instruments

DEPTH = "CREATE VIEW depth AS SELECT symbol, SUM(volume) AS volume, COUNT(*) AS n FROM bids GROUP BY symbol"
TIMED = """
CREATE VIEW recent AS SELECT symbol, COUNT(*) AS n FROM trades
WHERE ts > NOW() - INTERVAL '1 second' GROUP BY symbol
"""


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    yield
    following._kept.clear()


class Followed:
    """Files that come into a folder in batches, and the rows that a view has by what it was given of them."""

    def __init__(
        self, folder: Path, view: str, sql: str, partitions: int, states: Path | None = None
    ) -> None:
        folder.mkdir()
        self.folder, self._states, self._view, self._sql = folder, states, view, sql
        self.settings = without_shuffle(job_settings(folder / "job", partitions, views=(view,), sql=sql))
        assert self.settings.partitions == partitions
        self.growing = GrowingSources([str(folder)])
        self._batches: dict[str, int] = {}
        self.rows: Counter[Any] = Counter()
        self.retracted = self.calls = 0

    def take(self) -> None:
        """The files that are new, as a batch."""
        before, number = self._tasks(), max(self._batches.values(), default=-1) + 1
        self._batches |= {n: number for n in self.growing.files() if n not in self._batches}
        for task in self._tasks().values():
            earlier = before.get(task.number)
            if earlier is not None and earlier.sources == task.sources:
                continue
            for status, table in changed_rows(self.settings, earlier, task, "test", self._states, True):
                self.retracted += len(table) * (status != ASSERTED)
                for row in zip(*(column.to_pylist() for column in table.columns), strict=True):
                    self.rows[row] += 1 if status == ASSERTED else -1

    def _tasks(self) -> dict[int, ReadTask]:
        tasks = planned(self.settings, self.growing.specs(self._batches), []).tasks if self._batches else ()
        return {task.number: task for task in tasks}

    def check(self) -> None:
        """Compares the rows with a backtest of the files."""
        assert min(self.rows.values(), default=0) >= 0
        job = self.folder.with_name(f"{self.folder.name}-job")
        shutil.rmtree(job, ignore_errors=True)
        settings = job_settings(job, 1, views=(self._view,), sql=self._sql)
        backtest(settings, self.growing.specs(self._batches), LocalExecutor(), "test")
        assert +self.rows == Counter(open_job(job).history(self._view).rows())


CASES = [("depth", DEPTH, 3), ("everything", VIEWS, 1), ("brokers", VIEWS, 1), ("recent", TIMED, 1)]


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("view", "sql", "partitions"), CASES)
def test_days_that_come_in_order_are_gone_on_with(
    tmp_path: Path, view: str, sql: str, partitions: int
) -> None:
    # The files of two symbols may overlap a little in time.
    write_records(tmp_path / "all", 2_000, 3, 4, 1, apart=partitions > 1)
    followed = Followed(tmp_path / "days", view, sql, partitions)
    followed.take()
    assert not followed.rows
    with patch.object(following, "_differing", side_effect=AssertionError):
        for day in range(4):
            for path in (tmp_path / "all").glob(f"*{day}.parquet"):
                shutil.copy(path, followed.folder)
            followed.take()
            followed.check()
    assert followed.rows and not followed.retracted
    specs = source_specs([str(followed.folder)])
    assert [spec.paths for spec in specs] == [
        spec.paths for spec in followed.growing.specs(followed._batches)
    ]


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("view", "sql", "partitions"), CASES)
def test_files_that_come_in_any_order_end_as_a_backtest(
    tmp_path: Path, view: str, sql: str, partitions: int, sample_seed: int
) -> None:
    draw = random.Random(f"{sample_seed} {view}")
    apart = draw.random() < 0.7
    write_records(tmp_path / "all", 1_200, 3, 4, sample_seed, apart=apart)
    paths = sorted((tmp_path / "all").iterdir())
    draw.shuffle(paths)
    followed = Followed(tmp_path / "days", view, sql, partitions, tmp_path / "states")
    while paths:
        for path in [paths.pop() for _ in range(min(len(paths), draw.randint(1, 4)))]:
            shutil.copy(path, followed.folder)
        if draw.random() < 0.5:
            following._kept.clear()
        followed.take()
        followed.check()


def written(path: Path, *rows: tuple[int, Action, Side, int]) -> None:
    """A record of messages of one event: second, action, side and price."""
    events = np.zeros(len(rows), EVENT)
    for number, (event, (second, action, side, price)) in enumerate(zip(events, rows, strict=True)):
        event["exchange_time"] = event["receive_time"] = second * 10**9
        event["action"], event["side"], event["price"], event["volume"] = action, side, price, 5
        event["order_id"], event["flags"] = 1000 * second + number, int(Flag.LAST)
        if action is Action.STATE:
            event["volume"], event["order_id"] = BookState.VALID, StateReason.SYNCHRONISED
    with RecordWriter(path, synthetic_instruments(1)) as writer:
        writer.write(events)


BID, ASK = (Action.ADD, Side.BID), (Action.ADD, Side.ASK)


@pytest.mark.parametrize(("first", "again"), [((), False), (((2, *ASK, 90),), True)])
def test_books_stay_crossed_from_one_file_to_the_next(
    tmp_path: Path, first: tuple[Any, ...], again: bool
) -> None:
    followed = Followed(tmp_path / "days", "states", VIEWS, 1)
    written(followed.folder / "1.parquet", (1, Action.STATE, Side.NONE, 0), (1, *BID, 100), *first)
    written(followed.folder / ".2.parquet", (3, *ASK, 95))  # on its way to its name
    followed.take()
    written(followed.folder / "2.parquet", (3, *ASK, 95), (20, *BID, 50))
    with patch.object(following, "_differing", wraps=following._differing) as differing:
        followed.take()
    followed.check()
    assert any("stale" in row for row in followed.rows)
    # A book that is crossed is not kept, so that all is read again.
    assert differing.called == again


def test_a_process_without_the_views_goes_on_from_a_state(tmp_path: Path) -> None:
    write_records(tmp_path / "all", 2_000, 3, 3, 2, apart=True)
    followed = Followed(tmp_path / "days", "depth", DEPTH, 2, tmp_path / "states")
    applied = FollowedViews._apply
    for day in range(3):
        events = 0

        def counted(self: FollowedViews, rows: Any, part: Any) -> Any:
            nonlocal events
            events += len(part.events)
            return applied(self, rows, part)

        for path in (tmp_path / "all").glob(f"*-{day}.parquet"):
            shutil.copy(path, followed.folder)
        following._kept.clear()
        with patch.object(FollowedViews, "_apply", counted):
            followed.take()
        followed.check()
        # The events of one day, not those of all that came before.
        assert 0 < events < 1_000
    (tmp_path / "states").joinpath("other.state").write_bytes(b"")
    for path in (tmp_path / "states").iterdir():
        path.write_bytes(path.read_bytes()[:20])
    following._kept.clear()
    assert FollowedViews.size(following.States(tmp_path / "states", followed.settings, 0).newest(None)) == 0


def test_what_cannot_be_followed_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="a log is followed by `orderbook blocks --follow`"):
        GrowingSources(["log:run"])
    assert GrowingSources([str(tmp_path / "none")]).files() == []
    write_records(tmp_path / "all", 500, 1, 1, 1, apart=True)
    [path] = (tmp_path / "all").iterdir()
    path.write_bytes(path.read_bytes()[:-50])
    with pytest.raises(SourceError):
        GrowingSources([str(tmp_path / "all")]).files()
