"""A disk that refuses anything but the log: outputs, jobs, recordings and checkpoints, at every call."""

import asyncio
import errno
import resource
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from backtest_support import Follower, contents, job_settings, run, write_records
from checkpoint_support import PROGRAM, read, written
from command_line_support import Program, orderbook, write  # noqa: F401
from crash_files import SHORT, CrashFiles
from durable_support import World, rows
from failing_disk import FailingDisk
from live_run_support import Given, flow
from recording_support import ONE as INSTRUMENT
from recording_support import lines_of, recorder

from orderbook.configuration.configuration import load_configuration
from orderbook.core.errors import OrderbookError, OutputError, SourceError
from orderbook.core.files import replace_file
from orderbook.engine.checkpoint import CheckpointError, newest_checkpoint
from orderbook.engine.runtime.live_view import view_layout
from orderbook.engine.runtime.subscriptions import ViewEvent
from orderbook.feeds.recording import raw_recorder
from orderbook.feeds.recording.parquet_record import RecordSource, RecordWriter
from orderbook.jobs.folder import read_manifest
from orderbook.jobs.job import open_job
from orderbook.market.instruments import Instruments
from orderbook.market.synthetic_flow import generate, synthetic_instruments
from orderbook.report.page import write_report
from orderbook.run.live_run import LiveRun
from orderbook.run.view_output import open_output
from orderbook.views.compilation import compile_views

ERRORS = [errno.ENOSPC, errno.EIO, SHORT]


def disks(root: Path, error: int, lasting: bool, step: int = 1) -> Iterator[FailingDisk]:
    """Disks of which each fails `step` calls later than the one before, up to the first that does not."""
    for after in range(0, 10_000, step):
        disk = FailingDisk(root, after, error, lasting)
        yield disk
        if not disk.failed:
            assert after > 3 * step
            return


def refused(disk: FailingDisk, root: Path, action: Callable[[], object]) -> bool:
    """Do it on that disk; whether it was refused, by an error of one line that names the place."""
    said = None
    with disk.inserted():
        try:
            action()
        except OrderbookError as error:
            said = str(error)
    assert said is None or (disk.failed and str(root) in said and "\n" not in said)
    return said is not None


PROGRAM_OF_VIEWS = compile_views("CREATE VIEW one AS SELECT symbol, COUNT(*) AS n FROM bids GROUP BY symbol")


def write_output(path: Path) -> None:
    result = PROGRAM_OF_VIEWS.program.result("one")
    output = open_output(path, {"one": result}, {"one": ["symbol"]})
    text = "A" * 3000
    PROGRAM_OF_VIEWS.dictionary.encode(text)
    layout = view_layout(result, ("symbol",), PROGRAM_OF_VIEWS.dictionary)
    event = ViewEvent.between(layout, (text,), None, None, (1, 0, 0))
    try:
        # Lines wait for others for a second.
        for number in range(20):
            output.write(event, number * 10**9)
    finally:
        output.close()


def write_record(path: Path) -> None:
    writer = RecordWriter(path, synthetic_instruments(2), 500)
    try:
        for batch in generate(3_000, 2, 20, 1, batch=1_000):
            writer.write(batch)
    finally:
        writer.close()


@pytest.mark.parametrize("lasting", [False, True])
@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("views.ndjson", write_output),
        ("views.parquet", write_output),
        ("events.parquet", write_record),
        ("any.json", lambda path: replace_file(path, b"x" * 100_000)),
    ],
)
def test_a_file_is_whole_or_not_there(
    tmp_path: Path, name: str, make: Callable[[Path], None], error: int, lasting: bool
) -> None:
    """And where there is room again in the midst, it is still not there: it would lack a part."""
    path = tmp_path / "whole" / name
    path.parent.mkdir()
    make(path)
    whole = path.read_bytes()
    folder = tmp_path / "out"
    folder.mkdir()
    count = 0
    for disk in disks(folder, error, lasting):
        file = folder / name
        file.write_bytes(b"before")
        failed = refused(disk, file, lambda file=file: make(file))  # type: ignore[misc]
        assert failed or file.read_bytes() == whole
        # The name may be there before its folder is synced.
        assert file.read_bytes() in (b"before", whole)
        if not lasting and name != "views.ndjson":
            assert list(folder.iterdir()) == [file]
        count += failed
    assert count > 3 or error == SHORT


@pytest.mark.parametrize("limit", [0, 3, 4, 100, 5_000])
def test_files_that_may_not_grow(tmp_path: Path, limit: int) -> None:
    """Arrow's own files, of which the operating system takes so many bytes."""
    file = tmp_path / "events.parquet"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        with pytest.raises(OutputError) as caught:
            write_record(file)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert str(caught.value) == f"{file}: cannot write: File too large; make room, or choose another place"
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_is_the_users_error(tmp_path: Path) -> None:
    for name in ("views.ndjson", "views.parquet"):
        with pytest.raises(SourceError, match="No such file or directory; choose another place"):
            write_output(tmp_path / "none" / name)


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("history")
    write_records(folder, 120, 2, 1, 1, apart=False)
    return folder


@pytest.mark.parametrize(("error", "lasting"), [(errno.ENOSPC, True), (errno.EIO, False)])
def test_a_job_that_cannot_be_written_is_none_and_can_be_repeated(
    tmp_path: Path, history: Path, error: int, lasting: bool, request: pytest.FixtureRequest
) -> None:
    sources = sorted(history.iterdir())
    sql = "CREATE VIEW one AS SELECT symbol, COUNT(*) AS n FROM bids GROUP BY symbol"
    settings = job_settings(tmp_path / "whole", 1, views=["one"], sql=sql)
    whole = contents(run(settings, sources)[0])
    step, refusals = 1 if request.config.getoption("exhaustive") else 4, 0
    for disk in disks(tmp_path / "job", error, lasting, step):
        folder = tmp_path / "job" / str(len(list((tmp_path / "job").glob("*"))))
        settings = replace(settings, folder=str(folder))
        failed = refused(disk, folder, lambda settings=settings: run(settings, sources))  # type: ignore[misc]
        refusals += failed
        if failed and (folder / "job.json").exists():
            found = read_manifest(folder)
            assert found.status != "complete" or contents(open_job(folder)) == whole
        elif not failed:
            assert contents(open_job(folder)) == whole
        assert contents(run(settings, sources)[0]) == whole
        assert open_job(folder).manifest.status == "complete"
        listed = {str(folder / path) for path in open_job(folder).manifest.listed}
        assert listed <= {str(path) for path in folder.glob("*/*/*.parquet")}
    assert refusals > 2


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("error", "lasting"), [(errno.ENOSPC, True), (errno.EIO, False)])
def test_a_report_that_cannot_be_written_leaves_the_job(
    tmp_path: Path, history: Path, error: int, lasting: bool, request: pytest.FixtureRequest
) -> None:
    folder = tmp_path / "job"
    job, _ = run(job_settings(folder, 1, strategies=[Follower]), sorted(history.iterdir()))
    whole = contents(job)
    for disk in disks(folder, error, lasting, 1 if request.config.getoption("exhaustive") else 9):
        failed = refused(disk, folder, lambda: write_report(folder))
        assert contents(open_job(folder)) == whole
        assert failed or "</html>" in (folder / "report.html").read_text()
    write_report(folder)


@pytest.mark.parametrize("needed", [True, False])
@pytest.mark.parametrize(("error", "lasting"), [(errno.ENOSPC, True), (errno.EIO, False), (SHORT, False)])
def test_a_recording_ends_whole_wherever_the_disk_refuses(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    needed: bool,
    error: int,
    lasting: bool,
) -> None:
    """What was written is a beginning of what was told; one that is not needed does not end its feed."""
    monkeypatch.setattr(raw_recorder, "FLUSH_SECONDS", 0.0)
    monkeypatch.setattr(raw_recorder, "_MANY_BYTES", 1)
    events = next(generate(40, 1, 20, 1, batch=40))
    for number, disk in enumerate(disks(tmp_path, error, lasting)):
        folder = tmp_path / str(number)
        ended = ""
        told = 0
        caplog.clear()
        with disk.inserted():
            try:
                made, log = recorder(folder, instruments=Instruments([INSTRUMENT]), needed=needed)
            except SourceError:
                continue
            try:
                for told in range(6):
                    log.received(f"frame {told}".encode(), told)
                    made.events(events)
                    asyncio.run(log.room())
            except SourceError as raised:
                assert needed
                ended = str(raised)
            try:
                made.close()
            except SourceError as raised:
                ended = str(raised)
        assert bool(ended) == (disk.failed and (error != SHORT or disk.calls[disk._after] != "write"))
        files = sorted(folder.glob("*.zst"))
        times = [line.ts for file in files for line in lines_of(file)] if _begun(files) else []
        assert times == list(range(len(times)))
        if ended:
            assert "the recording ended: " in ended and str(folder) in ended
            assert (f"{ended}; the feed goes on" in caplog.messages) is not needed
        else:
            assert len(times) == 6
            assert len(_events(folder)) == 6 * len(events)
        assert not ended or len(times) <= told + 1


def _begun(files: list[Path]) -> bool:
    return bool(files) and files[0].stat().st_size > 0


def _events(folder: Path) -> list[object]:
    return [event for batch in RecordSource(sorted(folder.glob("*.parquet"))) for event in batch]


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("lasting", [False, True])
def test_a_checkpoint_that_cannot_be_written_leaves_the_one_before(error: int, lasting: bool) -> None:
    """At any operation, also where the power fails after it."""
    folder = Path("/run/checkpoints")
    files = CrashFiles(page=64)
    written(folder, 1, files=files)
    before = sum(files.operations.values())
    written(folder, 2, files=files)
    for place in range(sum(files.operations.values()) - before):
        files = CrashFiles(page=64)
        written(folder, 1, files=files)
        files.fail(None, error, after=place, times=10**6 if lasting and error else 1)
        try:
            written(folder, 2, files=files)
            expected = {2}
        except CheckpointError:
            expected = {1, 2}
        files.heal()
        assert read(newest_checkpoint(folder, PROGRAM, files)) in expected
        files.crash(Random(place))
        assert read(newest_checkpoint(folder, PROGRAM, files)) in expected
        written(folder, 3, files=files)
        assert read(newest_checkpoint(folder, PROGRAM, files)) == 3


class NoCheckpoints(CrashFiles):
    """A disk with room for the log alone."""

    full = True

    def open(self, path: Path) -> int:
        if self.full and path.name.startswith("checkpoint"):
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().open(path)


def test_a_run_goes_on_where_checkpoints_cannot_be_written(caplog: pytest.LogCaptureFixture) -> None:
    """And its log is whole: the next start has all of it."""
    world = World("batch", 1)
    world.files = disk = NoCheckpoints(page=512)
    process = world.start()
    configuration = load_configuration(None, {"log.checkpoint_interval": "1ns"})
    live = LiveRun(configuration, process.pipeline, process.run, [Given(flow(400, 12))])

    async def go() -> None:
        live.start()
        following = asyncio.create_task(live.follow_all())
        await live.consume()
        await following
        live.finish()

    asyncio.run(go())
    report = live.report()
    assert report.checkpoints == 0 and report.checkpoints_failed > 1
    assert "no checkpoint can be written: No space left on device" in caplog.text
    expected, events = rows(process.pipeline), process.pipeline.events
    disk.kill()
    disk.full = False
    again = world.start()
    assert (rows(again.pipeline), again.pipeline.events) == (expected, events)
    assert again.run.checkpoint()
