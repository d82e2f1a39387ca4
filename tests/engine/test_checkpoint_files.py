"""Files of checkpoints: whole and undamaged, or passed over; a crash leaves what was there."""

import itertools
import logging
from pathlib import Path

import pytest
from checkpoint_support import OTHER, PROGRAM, read, written

from orderbook.core.files import OsFiles
from orderbook.engine.checkpoint import CheckpointError, newest_checkpoint


def test_the_last_checkpoints_are_kept_and_the_newest_is_found(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "folder"
    assert newest_checkpoint(folder, PROGRAM) is None
    paths = [written(folder, stamp) for stamp in (1, 2, 3)]
    assert sorted(folder.iterdir()) == paths[1:]
    assert read(newest_checkpoint(folder, PROGRAM)) == 3
    written(folder, 4, keep=1)
    assert len(list(folder.iterdir())) == 1 and read(newest_checkpoint(folder, PROGRAM)) == 4


def skipped(folder: Path, caplog: pytest.LogCaptureFixture, path: Path, why: str) -> int | None:
    """Reads the folder, which is to pass over `path` and say why; the stamp that is found instead."""
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        found = newest_checkpoint(folder, PROGRAM)
    assert len(caplog.messages) == 1, caplog.messages
    assert str(path) in caplog.messages[0] and why in caplog.messages[0]
    return None if found is None else read(found)


def test_a_flipped_bit_anywhere_is_found(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    written(tmp_path, 1)
    path = written(tmp_path, 2)
    data = path.read_bytes()
    assert read(newest_checkpoint(tmp_path, PROGRAM)) == 2
    for at in range(len(data)):
        path.write_bytes(data[:at] + bytes([data[at] ^ 1 << at % 8]) + data[at + 1 :])
        assert skipped(tmp_path, caplog, path, "") == 1
    path.write_bytes(data)
    assert read(newest_checkpoint(tmp_path, PROGRAM)) == 2


def test_a_file_of_any_other_length_is_found(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    written(tmp_path, 1)
    path = written(tmp_path, 2)
    data = path.read_bytes()
    for size in range(len(data)):
        path.write_bytes(data[:size])
        assert skipped(tmp_path, caplog, path, "") == 1
    path.write_bytes(data + b"\0")
    assert skipped(tmp_path, caplog, path, "bytes long") == 1


def test_other_programs_and_formats_are_passed_over(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    written(tmp_path, 1)
    path = written(tmp_path, 2, program=OTHER)
    assert skipped(tmp_path, caplog, path, "of another program") == 1
    data = written(tmp_path, 3).read_bytes()
    path = tmp_path / "checkpoint-000000000003.state"
    path.write_bytes(data[:8] + b"\x09" + data[9:])
    path.with_name("checkpoint-000000000002.state").unlink()
    assert skipped(tmp_path, caplog, path, "format 9") is None


class Failing(OsFiles):
    """Files whose `n`-th call that changes anything, and all after it, fail; what was not synced is lost."""

    def __init__(self, calls: int) -> None:
        self.left = calls
        self.paths: dict[int, Path] = {}
        self.unsynced: set[Path] = set()
        self.unnamed: set[Path] = set()

    def _call(self) -> None:
        if self.left == 0:
            raise OSError(28, "No space left on device")
        self.left -= 1

    def open(self, path: Path) -> int:
        self._call()
        handle = super().open(path)
        self.paths[handle] = path
        return handle

    def write(self, handle: int, data: bytes | memoryview, offset: int) -> int:
        self._call()
        self.unsynced.add(self.paths[handle])
        return super().write(handle, data[: max(1, len(data) // 2)], offset)

    def sync(self, handle: int) -> None:
        self._call()
        super().sync(handle)
        self.unsynced.discard(self.paths[handle])

    def rename(self, old: Path, new: Path) -> None:
        self._call()
        super().rename(old, new)
        assert old not in self.unsynced, "renamed before its contents were on the disk"
        self.unnamed.add(new)

    def remove(self, path: Path) -> None:
        self._call()
        super().remove(path)
        assert not self.unnamed, "an older checkpoint was removed before the new name was on the disk"

    def sync_folder(self, folder: Path) -> None:
        self._call()
        super().sync_folder(folder)
        self.unnamed.clear()


def test_a_crash_while_writing_leaves_what_was_there(tmp_path: Path) -> None:
    for calls in itertools.count():
        folder = tmp_path / str(calls)
        written(folder, 1)
        written(folder, 2)
        files = Failing(calls)
        failure = None
        try:
            written(folder, 3, files=files)
        except CheckpointError as error:
            failure = str(error)
        if failure is not None:
            assert str(folder) in failure and "No space left" in failure
            expected = {2, 3} if files.unnamed else {2}
            assert read(newest_checkpoint(folder, PROGRAM)) in expected
            assert written(folder, 4) and read(newest_checkpoint(folder, PROGRAM)) == 4
            assert not list(folder.glob("*.partial"))
            continue
        assert read(newest_checkpoint(folder, PROGRAM)) == 3
        if files.left:
            break
    assert calls > 10
