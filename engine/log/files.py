"""The few file operations that a log needs, so that tests can put a failing disk under it.

All raise OSError where the disk refuses; FileNotFoundError where a path does not exist.
"""

import fcntl
import os
from pathlib import Path
from typing import Protocol

LOCK_NAME = "lock"
# macOS has no fdatasync.
_sync_data = getattr(os, "fdatasync", os.fsync)


class Files(Protocol):
    """Files by path, and open ones by handle (an int).

    Nothing is sure to survive a power failure before `sync` (contents and length of a file) and
    `sync_folder` (names made, changed and removed in a folder).
    """

    def make_folder(self, folder: Path) -> None:
        """Makes the folder and those above it, and makes their names durable."""

    def lock(self, folder: Path) -> int:
        """Takes the folder for this handle alone, until `unlock` or the end of the process.

        Raises BlockingIOError where it is taken; its text names the holder if that is known.
        """

    def unlock(self, lock: int) -> None:
        """Gives a folder back."""

    def names(self, folder: Path) -> list[str]:
        """The names in a folder, in no order."""

    def size(self, path: Path) -> int:
        """The length of a file in bytes."""

    def read(self, path: Path, offset: int, length: int) -> bytes:
        """Up to `length` bytes from `offset`; fewer only at the end of the file."""

    def open(self, path: Path) -> int:
        """A handle to write a file, which is made if need be and keeps its contents."""

    def write(self, handle: int, data: bytes | memoryview, offset: int) -> int:
        """Writes at `offset`, which may be the end; returns how many bytes it took, perhaps not all."""

    def truncate(self, handle: int, size: int) -> None:
        """Sets the length of a file."""

    def sync(self, handle: int) -> None:
        """Returns once contents and length are on the disk.

        After an error nothing is known of what was written since the last success.
        """

    def close(self, handle: int) -> None:
        """Gives a handle back; syncs nothing."""

    def rename(self, old: Path, new: Path) -> None:
        """Gives a file another name in the same folder, replacing what has that name."""

    def remove(self, path: Path) -> None:
        """Removes a name."""

    def sync_folder(self, folder: Path) -> None:
        """Returns once the folder's names are on the disk."""


class OsFiles:
    """The operating system's files (POSIX)."""

    def make_folder(self, folder: Path) -> None:
        missing = [f for f in (folder, *folder.parents) if not f.exists()]
        folder.mkdir(parents=True, exist_ok=True)
        for made in reversed(missing):
            self.sync_folder(made.parent)

    def lock(self, folder: Path) -> int:
        handle = os.open(folder / LOCK_NAME, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(handle, 0)
            os.pwrite(handle, str(os.getpid()).encode(), 0)
        except BlockingIOError as error:
            holder = os.pread(handle, 20, 0).decode(errors="replace")
            os.close(handle)
            text = f"in use by process {holder}" if holder else "in use by another process"
            raise BlockingIOError(error.errno, text) from error
        except BaseException:
            os.close(handle)
            raise
        return handle

    def unlock(self, lock: int) -> None:
        os.close(lock)

    def names(self, folder: Path) -> list[str]:
        return os.listdir(folder)

    def size(self, path: Path) -> int:
        return os.stat(path).st_size

    def read(self, path: Path, offset: int, length: int) -> bytes:
        handle = os.open(path, os.O_RDONLY)
        try:
            parts = []
            while length > 0 and (part := os.pread(handle, length, offset)):
                parts.append(part)
                offset, length = offset + len(part), length - len(part)
            return parts[0] if len(parts) == 1 else b"".join(parts)
        finally:
            os.close(handle)

    def open(self, path: Path) -> int:
        return os.open(path, os.O_RDWR | os.O_CREAT, 0o644)

    def write(self, handle: int, data: bytes | memoryview, offset: int) -> int:
        return os.pwrite(handle, data, offset)

    def truncate(self, handle: int, size: int) -> None:
        os.ftruncate(handle, size)

    def sync(self, handle: int) -> None:
        _sync_data(handle)

    def close(self, handle: int) -> None:
        os.close(handle)

    def rename(self, old: Path, new: Path) -> None:
        os.rename(old, new)

    def remove(self, path: Path) -> None:
        os.remove(path)

    def sync_folder(self, folder: Path) -> None:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def write_all(files: Files, handle: int, data: bytes | memoryview, offset: int) -> None:
    """Writes all of `data`, however often it takes; raises OSError where the disk takes no more."""
    view = memoryview(data)
    while view:
        taken = files.write(handle, view, offset)
        if taken <= 0:
            raise OSError(5, "the disk takes no more bytes")
        view, offset = view[taken:], offset + taken
