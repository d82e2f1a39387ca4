"""The durable log: on real files, and on a disk that forgets, tears and refuses."""

import errno
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from crash_files import SHORT, CrashFiles
from log_support import FOLDER, IDENTITY, POLICIES, SEGMENT, all_contents, numbers, opened, record, written
from paths import PROJECT

from orderbook.core.errors import ConfigurationError
from orderbook.engine.log.log import Log, LogReader, SyncPolicy
from orderbook.engine.log.opening import MARK_NAME
from orderbook.engine.log.segments import HEADER, OVERHEAD, LogError, Position, Record, frame_bytes

# Everyday use.


def test_reads_back_what_was_appended(tmp_path: Path) -> None:
    with Log.open(tmp_path / "new" / "log", IDENTITY, policy=POLICIES["batch"], segment_bytes=SEGMENT) as log:
        assert (log.end, log.segments, log.bytes, list(log.read())) == (0, 0, 0, [])
        positions = [log.append(record(n, 7 * n)) for n in range(20)]
        positions += log.append_all([record(n) for n in range(20, 30)])
        expected = [(p, record(n, 7 * n if n < 20 else 20)) for n, p in enumerate(positions)]
        assert list(log.read()) == expected
        for number, position in enumerate(positions):
            assert list(log.read(position)) == expected[number:]
        assert log.durable == log.end and log.segments > 5
        end = log.end
    with Log.open(tmp_path / "new" / "log", IDENTITY, policy=POLICIES["batch"]) as log:
        assert list(log.read()) == expected and log.end == log.durable == end
        assert log.warnings == []
        log.append(record(30))
        assert numbers(log, end) == [30] and numbers(log) == list(range(31))
        files = [f for f in (tmp_path / "new" / "log").iterdir() if f.suffix == ".log"]
        assert log.bytes == sum(f.stat().st_size for f in files) and log.segments == len(files)
        with pytest.raises(LogError, match=r"position 3 is not in|not a record's"):
            numbers(log, Position(positions[1] + 3))
        with pytest.raises(LogError, match="is not in the log"):
            log.read(Position(log.end + 1))


def test_a_batch_is_never_split_and_a_large_one_has_a_segment_of_its_own() -> None:
    log = opened(CrashFiles())
    log.append_all([record(n) for n in range(3)])
    log.append_all([record(n) for n in range(3, 40)])
    assert log.segments == 2
    log.append(record(40))
    assert log.segments == 3 and numbers(log) == list(range(41))


def test_truncate_before_removes_whole_segments_only() -> None:
    files = CrashFiles()
    log = written(files)
    positions = [position for position, _ in log.read()]
    assert log.segments == 3
    log.truncate_before(positions[2])
    assert numbers(log) == list(range(12))
    log.truncate_before(positions[-1])
    assert log.segments == 1 and log.start > positions[2] and numbers(log)[-1] == 11
    kept, start = list(log.read()), log.start
    with pytest.raises(LogError, match=f"{positions[0]} is not in the log, which reaches from {start}"):
        log.read(positions[0])
    log.truncate_before(log.end)
    assert list(log.read()) == kept
    log.close()
    assert list(opened(files).read()) == kept


def test_policies_and_their_texts() -> None:
    for text, interval in (("batch", 0), ("never", None), ("100ms", 10**8), ("3s", 3 * 10**9), ("7us", 7000)):
        assert SyncPolicy.parse(text) == SyncPolicy(interval)
        assert str(SyncPolicy.parse(text)) == text
    for text in ("", "always", "0ms", "-1s", "100", "1.5", "1 s", "1.5ns"):
        with pytest.raises(ConfigurationError, match="sync policy"):
            SyncPolicy.parse(text)


def test_when_policies_sync() -> None:
    now = [0]
    for policy, after_append, due in (("batch", 3, 3), ("interval", 0, 3), ("never", 0, 0)):
        files = CrashFiles()
        log = opened(files, policy, lambda: now[0])
        log.append(record(0))
        log.sync()
        counts = []
        durable = log.durable
        for step in (0, 49, 1):
            now[0] += step
            log.append(record(1, 0))
            counts.append(log.durable > durable)
        assert counts[0] == (policy == "batch") and counts[2] == (policy != "never"), (after_append, due)
        log.append(record(2, 0))
        now[0] += 50
        log.sync_if_due()
        assert (log.durable == log.end) == (policy != "never")
        log.sync()
        assert log.durable == log.end


def test_refuses_records_that_do_not_fit() -> None:
    files = CrashFiles()
    log = Log.open(FOLDER, IDENTITY, policy=POLICIES["batch"], largest_payload=100, files=files)
    for bad in (Record(0, 0, 0, 0, b""), Record(1 << 32, 0, 0, 0, b""), Record(1, 0, 1 << 31, 0, b"")):
        with pytest.raises(ValueError, match="does not fit"):
            log.append_all([record(0), bad])
    with pytest.raises(LogError, match="101 bytes is longer than the log's limit of 100"):
        log.append(record(0, 101))
    assert log.end == 0
    log.append(record(0, 100))
    log.close()
    # A limit that is lowered later does not make what is there unreadable.
    log = Log.open(FOLDER, IDENTITY, policy=POLICIES["batch"], largest_payload=10, files=files)
    assert numbers(log) == [0]
    with pytest.raises(ValueError, match="identity"):
        Log.open(FOLDER, b"", policy=POLICIES["batch"], files=files)


def test_a_closed_log_refuses() -> None:
    log = written(CrashFiles())
    log.close()
    log.close()
    for action in (log.sync, lambda: log.append(record(1)), lambda: log.truncate_before(log.end)):
        with pytest.raises(LogError, match="is closed"):
            action()


def test_another_identity_is_refused() -> None:
    files = CrashFiles()
    written(files).close()
    before = all_contents(files)
    for identity, told in (
        (b"other 1", r"another program's \(program 1, not other 1\); start the program that wrote it"),
        (b"program 2", "entries of another version of this program, 'program 1', .* move the log away"),
    ):
        with pytest.raises(LogError, match=told):
            Log.open(FOLDER, identity, policy=POLICIES["batch"], files=files)
        with pytest.raises(LogError, match=told):
            list(LogReader(FOLDER, identity, files=files).read())
    assert all_contents(files) == before
    opened(files)


# Damage.


def outcome(files: CrashFiles) -> tuple[list[int] | None, Log | None]:
    """What a reopened log holds, None where it is refused; the rules of refusing are checked."""
    before = all_contents(files)
    try:
        log = opened(files)
    except LogError as error:
        refusal = error
    else:
        try:
            return numbers(log), log
        except LogError as error:
            return (None, log) if f"at byte {error.offset}: " in str(error) else ([], log)
    assert str(refusal.file) in str(refusal) and ";" in str(refusal)
    assert all_contents(files) == before
    return None, None


@pytest.mark.parametrize("mask", [1, 128])
def test_a_flipped_bit_of_durable_segments_is_refused(mask: int) -> None:
    def make() -> CrashFiles:
        files = CrashFiles()
        written(files).close()
        return files

    names = [path for path in make().files() if path.suffix == ".log"]
    places = [(path, offset) for path in names for offset in range(make().size(path))]
    assert len(names) == 3
    for path, offset in places:
        files = make()
        files.damage(path, offset, mask)
        assert outcome(files)[0] is None, (path, offset)
        with pytest.raises(LogError):
            list(LogReader(FOLDER, IDENTITY, files=files).read())


@pytest.mark.parametrize("mask", [1, 128])
def test_a_flipped_bit_above_the_durable_mark_is_cut_off(mask: int) -> None:
    def make() -> tuple[CrashFiles, Position, Path]:
        files = CrashFiles()
        log = written(files, "never", 10)
        log.sync()
        durable = log.durable
        log.append_all([record(n) for n in range(10, 12)])
        files.kill()
        return files, durable, files.files()[-2]

    files, durable, path = make()
    base = int(path.stem)
    for offset in range(durable - base, files.size(path)):
        files, durable, path = make()
        files.damage(path, offset, mask)
        found, log = outcome(files)
        assert found in (list(range(10)), list(range(11))) and log is not None
        assert [w for w in log.warnings if "are cut off" in w and str(path) in w], offset
        log.append(record(99))
        assert numbers(log) == [*found, 99] and log.segments == 4
    for offset in range(durable - base):
        files, durable, path = make()
        files.damage(path, offset, mask)
        assert outcome(files)[0] is None, offset


def test_a_flipped_bit_of_the_mark_changes_nothing() -> None:
    files = CrashFiles()
    written(files).close()
    for offset in range(files.size(FOLDER / MARK_NAME)):
        files.damage(FOLDER / MARK_NAME, offset, 16)
        found, log = outcome(files)
        assert found == list(range(12)) and log is not None and log.warnings == []
        log.close()


def test_without_a_mark_the_log_warns_and_gives_up_what_does_not_verify() -> None:
    files = CrashFiles()
    log = written(files)
    log.close()
    last = files.files()[-2]
    files.damage(last, files.size(last) - 1, 1)
    with pytest.raises(LogError, match="or remove the file durable beside it to give up what") as error:
        opened(files)
    assert error.value.file == last and error.value.offset == files.size(last) - frame_bytes(record(0))
    files.remove(FOLDER / MARK_NAME)
    found, again = outcome(files)
    assert found == list(range(11)) and again is not None and len(again.warnings) == 2


def test_missing_swapped_and_shortened_segments_are_refused() -> None:
    def closed() -> tuple[CrashFiles, list[Path]]:
        files = CrashFiles()
        written(files).close()
        return files, [path for path in files.files() if path.suffix == ".log"]

    for missing in (1, 2):
        files, names = closed()
        files.remove(names[missing])
        with pytest.raises(LogError, match=r"missing|was on the disk"):
            opened(files)
    files, names = closed()
    for name in names:
        files.remove(name)
    with pytest.raises(LogError, match="was on the disk up to"):
        opened(files)
    for number in (0, 2):
        files, names = closed()
        handle = files.open(names[number])
        files.truncate(handle, files.size(names[number]) - 3)
        with pytest.raises(LogError, match=r"missing|damaged"):
            opened(files)
    files, names = closed()
    files.rename(names[1], names[1].with_name("x"))
    files.rename(names[0], names[1])
    with pytest.raises(LogError, match="the header is that of segment"):
        opened(files)


def test_a_segment_of_another_log_of_the_same_program_is_refused() -> None:
    files, other = CrashFiles(), CrashFiles()
    written(files).close()
    log = opened(other)
    for number in range(12):
        log.append(record(number + 100))
    log.close()
    path = files.files()[1]
    files.write(files.open(path), other.contents(path), 0)
    with pytest.raises(LogError, match="does not continue"):
        opened(files)


def test_stale_records_of_the_same_place_never_come_back() -> None:
    """A cut-off batch is on the disk yet; after it another one begins at the same place."""
    for policy in POLICIES:
        files = CrashFiles()
        log = written(files, policy, 2)
        log.sync()
        files.fail("write", SHORT)
        files.fail("write", errno.EIO)
        before = log.end
        with pytest.raises(LogError):
            log.append_all([record(7), record(8), record(9)])
        assert log.end == before and numbers(log) == [0, 1]
        log.append(record(7))
        # Not where the others had been: the checksums of a new segment begin from another salt.
        assert log.segments == 2 and numbers(log) == [0, 1, 7]


def test_a_record_of_another_log_in_the_same_place_does_not_verify() -> None:
    older, files = CrashFiles(), CrashFiles()
    written(older, count=3).close()
    log = written(files, "never", 1)
    log.sync()
    path, stop = files.files()[-2], log.end
    files.kill()
    files.write(files.open(path), older.contents(path)[stop:], stop)
    files.kill()
    found, again = outcome(files)
    assert found == [0] and again is not None and len(again.warnings) == 1


# Disks that refuse.


def test_a_failed_append_leaves_nothing_and_the_next_one_succeeds() -> None:
    files = CrashFiles(capacity=3000)
    log = opened(files)
    accepted: list[int] = []
    while files.capacity and log.bytes + 150 + 1024 < files.capacity:
        accepted += [len(accepted), len(accepted) + 1]
        log.append_all([record(number) for number in accepted[-2:]])
    with pytest.raises(LogError, match="no space left on device; free space"):
        log.append_all([record(number, 200) for number in range(2)])
    assert numbers(log) == accepted and log.durable == log.end
    log.truncate_before(log.end)
    kept = numbers(log)
    for number in range(5):
        log.append(record(5000 + number))
    assert numbers(log) == [*kept, *range(5000, 5005)] and kept == accepted[len(accepted) - len(kept) :]
    files.crash(Random(1))
    assert numbers(opened(files)) == [*kept, *range(5000, 5005)]


def test_a_short_write_goes_on() -> None:
    files = CrashFiles()
    log = written(files, count=1)
    files.fail("write", SHORT, times=3)
    log.append(record(1, 200))
    assert numbers(log) == [0, 1] and files.operations["write"] > 6


@pytest.mark.parametrize("broken", ["truncate", "sync"])
def test_what_cannot_be_cut_off_stops_the_log(broken: str) -> None:
    files = CrashFiles()
    log = written(files, count=2)
    files.fail("write", SHORT)
    files.fail("write", errno.EIO)
    files.fail(broken, errno.EIO)
    with pytest.raises(LogError, match="cannot be cut off"):
        log.append(record(2))
    for _ in range(2):
        with pytest.raises(LogError, match="cannot be cut off: injected: EIO; see to the disk, then open"):
            log.append(record(3))
    log.close()
    log = opened(files)
    assert numbers(log) == [0, 1]


def append_and_sync(log: Log, what: Record) -> None:
    log.append(what)
    log.sync()


@pytest.mark.parametrize("policy", POLICIES)
def test_a_failed_sync_cuts_back_to_what_is_durable(policy: str) -> None:
    files = CrashFiles()
    log = written(files, policy, 1)
    log.sync()
    if policy != "batch":
        log.append(record(1))
    files.fail("sync", errno.EIO)
    error = f"what follows position {log.durable} is not in the log"
    with pytest.raises(LogError, match=error):
        append_and_sync(log, record(2))
    with pytest.raises(LogError, match="open the log again"):
        log.append(record(3))
    log.close()
    for end in (files.kill, lambda: files.crash(Random(3))):
        end()
        assert numbers(opened(files)) == [0]


# The operating system.

APPENDER = """
import sys
from pathlib import Path
from orderbook.engine.log.log import Log, SyncPolicy
from orderbook.engine.log.segments import Record
log = Log.open(Path(sys.argv[1]), b"program 1", policy=SyncPolicy.parse(sys.argv[2]), segment_bytes=20000)
number = max((r.sequence for _, r in log.read()), default=-1) + 1
print("open", flush=True)
while True:
    log.append_all([Record(1, 0, 0, number + k, bytes(number % 50)) for k in range(3)])
    number += 3
    print(number, flush=True)
"""


def appender(folder: Path, policy: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", APPENDER, str(folder), policy]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=PROJECT)


@pytest.mark.parametrize("policy", ["batch", "1ms", "never"])
def test_a_killed_process_loses_nothing(tmp_path: Path, policy: str, sample_seed: int) -> None:
    random = Random(sample_seed)
    told = 0
    reader = LogReader(tmp_path, IDENTITY)
    followed: list[int] = []
    for _ in range(3):
        process = appender(tmp_path, policy)
        assert process.stdout is not None
        for _ in range(random.randint(1, 400)):
            line = process.stdout.readline()
            told = int(line) if line[0].isdigit() else told
            if random.random() < 0.05:
                followed += [found.sequence for _, found in reader.read()]
        os.kill(process.pid, signal.SIGKILL)
        rest, _ = process.communicate()
        told = max([told, *(int(line) for line in rest.split("\n")[:-1] if line.isdigit())])
        with Log.open(tmp_path, IDENTITY, policy=POLICIES["batch"]) as log:
            found = numbers(log)
            assert found == list(range(len(found))) and len(found) >= told > 0
        followed += [found.sequence for _, found in reader.read()]
        assert followed == found


def test_a_second_process_is_refused(tmp_path: Path) -> None:
    process = appender(tmp_path, "never")
    try:
        assert process.stdout is not None and process.stdout.readline() == "open\n"
        with pytest.raises(LogError, match=f"in use by process {process.pid}; stop the other program"):
            Log.open(tmp_path, IDENTITY, policy=POLICIES["batch"])
    finally:
        process.kill()
        process.communicate()
    with Log.open(tmp_path, IDENTITY, policy=POLICIES["batch"]) as log:
        with pytest.raises(LogError, match=f"in use by process {os.getpid()}"):
            Log.open(tmp_path, IDENTITY, policy=POLICIES["batch"])
        assert numbers(log) == list(range(len(numbers(log))))


def test_warnings_are_logged_too(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = Log.open(tmp_path, IDENTITY, policy=POLICIES["batch"])
    log.append(record(1))
    log.close()
    path = tmp_path / f"{0:020}.log"
    with path.open("ab") as file:
        file.write(b"torn")
    with caplog.at_level(logging.WARNING), Log.open(tmp_path, IDENTITY, policy=POLICIES["batch"]) as log:
        assert numbers(log) == [1]
        assert len(log.warnings) == 1 and log.warnings[0] in caplog.text
    assert path.stat().st_size == HEADER + OVERHEAD + 20


def test_a_folder_that_cannot_be_made_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LogError, match="cannot be opened: Not a directory"):
        Log.open(tmp_path / "file" / "log", IDENTITY, policy=POLICIES["batch"])


# Readers beside the writer.


def test_a_reader_follows_a_writer() -> None:
    files = CrashFiles()
    reader = LogReader(FOLDER, IDENTITY, files=files)
    assert list(reader.read()) == []
    log = opened(files, "never")
    assert list(reader.read()) == [] and reader.position == 0
    expected: list[tuple[Position, Record]] = []
    found: list[tuple[Position, Record]] = []
    for number in range(30):
        expected.append((log.append(record(number, number)), record(number, number)))
        if number % 3 == 0:
            found += reader.read()
            assert found == expected and reader.position == log.end
    # A record that is half there is not there yet.
    last = files.files()[-2]
    stop = files.size(last)
    log.append(record(30))
    found += reader.read()
    handle = files.open(last)
    files.truncate(handle, stop + 30)
    late = LogReader(FOLDER, IDENTITY, start=expected[-1][0], files=files)
    assert [r.sequence for _, r in late.read()] == [29] and list(late.read()) == []
    with pytest.raises(LogError, match="cut off"):
        list(reader.read())


def test_a_reader_is_told_when_its_place_is_gone() -> None:
    files = CrashFiles()
    log = written(files)
    reader = LogReader(FOLDER, IDENTITY, files=files)
    records: Iterator[tuple[Position, Record]] = reader.read()
    first, _ = next(records)
    log.truncate_before(log.end)
    with pytest.raises(LogError, match="removed from it"):
        list(reader.read())
    with pytest.raises(LogError, match=f"position {first} is before its start at {log.start}"):
        list(LogReader(FOLDER, IDENTITY, start=first, files=files).read())
    assert [r.sequence for _, r in LogReader(FOLDER, IDENTITY, files=files).read()] == numbers(log)
