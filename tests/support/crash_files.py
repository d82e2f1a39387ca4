"""An in-memory disk that forgets, tears and refuses: `orderbook.engine.log.Files` for crash tests.

What a program does to it stays in a volatile cache until it syncs. Then

- `crash(random)` is a power failure. Of every file, what was not synced since survives or not, a page at a
  time: a page holds what was synced, any later contents, the beginning of one and the rest of another (torn
  at any byte), or, where the file had no page, zeros or what an older file left in that block. The length is
  the synced one, the last one, or any between. Names made, changed and removed since their folder was
  synced are there or not, each by itself; a rename happens whole or not at all.
- `kill()` is the end of the process (`kill -9`): the cache stays.
- `cut_power(after)` makes the operation after so many others, and all later ones, raise PowerLoss, which
  nothing that handles errors catches; the interrupted one may have had its effect. `crash` ends it.
- `fail(...)` makes chosen operations raise an OSError or write only a part. After a failed sync the pages
  that were not synced count as clean, as on Linux: they read as written, but no later sync saves them.
- `capacity` is the size of the disk in bytes: a write beyond it is short, and the next raises ENOSPC.

After `crash` and `kill` all handles and locks are void and the same object is the disk that a new process
finds. It may be used from several threads.
"""

import errno
import functools
import threading
from collections import Counter, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])
# As an error of `fail`: a write that takes only a part.
SHORT = 0
# Versions of a page that are kept for a crash to choose from, and pages of older files by their number.
_VERSIONS = 4


class PowerLoss(BaseException):
    """The machine is off."""


@dataclass
class _Fault:
    operation: str | None
    error: int
    after: int
    times: int


@dataclass(eq=False)
class _File:
    """A file's contents in the cache, what is synced of it, and what it had been between."""

    content: bytearray = field(default_factory=bytearray)
    disk: bytearray = field(default_factory=bytearray)
    versions: dict[int, deque[bytes]] = field(default_factory=dict)
    lengths: list[int] = field(default_factory=list)
    lost: dict[int, bytes] = field(default_factory=dict)


@dataclass(frozen=True)
class _Renaming:
    """A change of names in a folder: `file` gets `new`, `old` goes; None where there is none."""

    old: Path | None
    new: Path | None
    file: _File | None

    def apply(self, names: dict[Path, _File]) -> None:
        if self.old is not None:
            names.pop(self.old, None)
        if self.new is not None and self.file is not None:
            names[self.new] = self.file


def _operation(function: F) -> F:
    """Counts an operation, and lets it fail where a fault or a power cut says so."""

    @functools.wraps(function)
    def run(self: "CrashFiles", *arguments: Any) -> Any:
        with self._guard:
            return self._run(function, arguments)

    return cast("F", run)


class CrashFiles:
    """The disk; pages of `page` bytes (small ones make holes in small files), `capacity` None: endless.

    `operations` counts what was called, by name.
    """

    def __init__(self, *, page: int = 4096, capacity: int | None = None):
        self.page, self.capacity = page, capacity
        self.operations: Counter[str] = Counter()
        self._guard = threading.RLock()
        self._names: dict[Path, _File] = {}
        self._synced_names: dict[Path, _File] = {}
        self._renamings: dict[Path, list[_Renaming]] = defaultdict(list)
        self._folders: set[Path] = set()
        self._handles: dict[int, _File] = {}
        self._locks: dict[int, Path] = {}
        self._next_handle = 3
        self._stale: dict[int, deque[bytes]] = defaultdict(lambda: deque(maxlen=_VERSIONS))
        self._faults: list[_Fault] = []
        self._power: int | None = None

    # What tests do to the disk.

    def fail(self, operation: str | None, error: int, *, after: int = 0, times: int = 1) -> None:
        """Makes `times` operations fail after `after` more of that name (None: of any) have succeeded.

        `error` is a number of `errno`, or SHORT for a write that takes only a part.
        """
        self._faults.append(_Fault(operation, error, after, times))

    def heal(self) -> None:
        """Forgets all faults that are still to come, and the power cut."""
        self._faults.clear()
        self._power = None

    def cut_power(self, after: int) -> None:
        """Makes the operation after `after` others raise PowerLoss, and every later one until `crash`."""
        self._power = after

    def kill(self) -> None:
        """The process ends, the machine does not: handles and locks are void, the cache stays."""
        self._handles.clear()
        self._locks.clear()
        self.heal()

    def crash(self, random: Random) -> None:
        """The power fails; what `random` chooses of the unsynced survives. Faults are forgotten."""
        self.kill()
        names = dict(self._synced_names)
        for renamings in self._renamings.values():
            kept = self._surviving(renamings, random)
            for renaming in kept:
                renaming.apply(names)
        self._renamings.clear()
        # Not a set: the same random choices shall meet the same files.
        for file in dict.fromkeys(names.values()):
            self._crash_file(file, random)
        self._names, self._synced_names = names, dict(names)

    def contents(self, path: Path) -> bytes:
        """What a file reads as now."""
        return bytes(self._file(path).content)

    def damage(self, path: Path, offset: int, mask: int) -> None:
        """Flips bits of a byte, in the cache and on the disk: what rot does."""
        file = self._file(path)
        for content in (file.content, file.disk):
            if offset < len(content):
                content[offset] ^= mask

    def files(self) -> list[Path]:
        """All files there are, in order."""
        return sorted(self._names)

    # The operations of orderbook.engine.log.Files.

    @_operation
    def make_folder(self, folder: Path) -> None:
        """Folders are durable at once."""
        self._folders.update((folder, *folder.parents))

    @_operation
    def lock(self, folder: Path) -> int:
        if folder in self._locks.values():
            raise BlockingIOError(errno.EAGAIN, "in use by another process")
        self._locks[self._next_handle] = folder
        self._next_handle += 1
        return self._next_handle - 1

    @_operation
    def unlock(self, lock: int) -> None:
        if self._locks.pop(lock, None) is None:
            raise OSError(errno.EBADF, "not locked")

    @_operation
    def names(self, folder: Path) -> list[str]:
        if folder not in self._folders:
            raise FileNotFoundError(errno.ENOENT, "no such folder", str(folder))
        return [path.name for path in self._names if path.parent == folder]

    @_operation
    def size(self, path: Path) -> int:
        return len(self._file(path).content)

    @_operation
    def read(self, path: Path, offset: int, length: int) -> bytes:
        return bytes(self._file(path).content[offset : offset + length])

    @_operation
    def open(self, path: Path) -> int:
        if path not in self._names:
            if path.parent not in self._folders:
                raise FileNotFoundError(errno.ENOENT, "no such folder", str(path.parent))
            self._rename(None, path, _File())
        self._handles[self._next_handle] = self._names[path]
        self._next_handle += 1
        return self._next_handle - 1

    @_operation
    def write(self, handle: int, data: bytes | memoryview, offset: int) -> int:
        return self._write(handle, bytes(data), offset)

    @_operation
    def truncate(self, handle: int, size: int) -> None:
        file = self._open_file(handle)
        before = len(file.content)
        for number in range(size // self.page, -(-before // self.page)):
            self._stale[number].append(self._cached(file, number))
        del file.content[size:]
        file.content.extend(bytes(size - len(file.content)))
        self._changed(file, min(size, before), max(size, before), before)

    @_operation
    def sync(self, handle: int) -> None:
        file = self._open_file(handle)
        length = len(file.content)
        del file.disk[length:]
        file.disk.extend(bytes(length - len(file.disk)))
        for number in file.versions:
            start = number * self.page
            page = file.content[start : start + self.page]
            file.disk[start : start + len(page)] = page
        file.versions.clear()
        file.lengths.clear()

    @_operation
    def close(self, handle: int) -> None:
        self._open_file(handle)
        del self._handles[handle]

    @_operation
    def rename(self, old: Path, new: Path) -> None:
        if old.parent != new.parent:
            raise OSError(errno.EXDEV, "another folder", str(new))
        file = self._file(old)
        self._free(self._names.get(new))
        self._rename(old, new, file)

    @_operation
    def remove(self, path: Path) -> None:
        self._free(self._file(path))
        self._rename(path, None, None)

    @_operation
    def sync_folder(self, folder: Path) -> None:
        for renaming in self._renamings.pop(folder, ()):
            renaming.apply(self._synced_names)

    def _run(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        name = function.__name__
        self.operations[name] += 1
        if self._power is not None:
            self._power -= 1
            if self._power < 0:
                if self._power == -1 and not name.startswith("sync"):
                    function(self, *arguments)
                raise PowerLoss(name)
        for fault in self._faults:
            if fault.operation not in (None, name) or (fault.error == SHORT and name != "write"):
                continue
            if fault.after:
                fault.after -= 1
                continue
            fault.times -= 1
            if not fault.times:
                self._faults.remove(fault)
            return self._fail(name, fault.error, arguments)
        return function(self, *arguments)

    def _fail(self, name: str, error: int, arguments: tuple[Any, ...]) -> Any:
        if error == SHORT:
            handle, data, offset = arguments
            return self._write(handle, bytes(data)[: max(1, len(data) // 2)], offset)
        if name == "sync":
            file = self._open_file(arguments[0])
            for number in file.versions:
                file.lost[number] = self._cached(file, number)
            file.versions.clear()
        raise OSError(error, f"injected: {errno.errorcode[error]}")

    def _write(self, handle: int, data: bytes, offset: int) -> int:
        file = self._open_file(handle)
        before = len(file.content)
        if self.capacity is not None and data:
            used = sum(len(f.content) for f in set(self._names.values()))
            data = data[: max(0, self.capacity - used + before - offset)]
            if not data:
                raise OSError(errno.ENOSPC, "no space left on device")
        file.content.extend(bytes(max(0, offset - before)))
        file.content[offset : offset + len(data)] = data
        self._changed(file, min(offset, before), offset + len(data), before)
        return len(data)

    def _changed(self, file: _File, start: int, stop: int, before: int) -> None:
        """Notes what the pages between two offsets hold now, and the length that the file had before."""
        for number in range(start // self.page, -(-stop // self.page)):
            file.lost.pop(number, None)
            file.versions.setdefault(number, deque(maxlen=_VERSIONS)).append(self._cached(file, number))
        file.lengths.append(before)

    def _cached(self, file: _File, number: int) -> bytes:
        return self._page(file.content, number)

    def _page(self, content: bytearray, number: int) -> bytes:
        start = number * self.page
        return bytes(content[start : start + self.page]).ljust(self.page, b"\0")

    def _file(self, path: Path) -> _File:
        if path not in self._names:
            raise FileNotFoundError(errno.ENOENT, "no such file", str(path))
        return self._names[path]

    def _open_file(self, handle: int) -> _File:
        if handle not in self._handles:
            raise OSError(errno.EBADF, "not an open file")
        return self._handles[handle]

    def _rename(self, old: Path | None, new: Path | None, file: _File | None) -> None:
        renaming = _Renaming(old, new, file)
        renaming.apply(self._names)
        folder = (old or new or Path()).parent
        self._renamings[folder].append(renaming)

    def _free(self, file: _File | None) -> None:
        """The blocks of a file that goes may turn up in another."""
        if file is not None:
            for number in range(-(-len(file.content) // self.page)):
                self._stale[number].append(self._cached(file, number))

    def _surviving(self, renamings: list[_Renaming], random: Random) -> list[_Renaming]:
        """All, none, the first ones, or any."""
        if random.random() < 0.5:
            return renamings[: random.randint(0, len(renamings))]
        return [renaming for renaming in renamings if random.random() < 0.5]

    def _crash_file(self, file: _File, random: Random) -> None:
        lengths = [len(file.disk), len(file.content), *file.lengths]
        length = random.choice(lengths)
        if file.lengths and random.random() < 0.5:
            length = random.randint(min(lengths), max(lengths))
        # How likely a changed page is to survive; 1 leaves a missing end as the only harm.
        share = random.choice((0.0, 0.5, 0.9, 1.0))
        pages = bytearray()
        for number in range(-(-length // self.page)):
            pages += self._crash_page(file, number, share, random)
        del pages[length:]
        file.content, file.disk = pages, bytearray(pages)
        file.versions, file.lengths, file.lost = {}, [], {}

    def _crash_page(self, file: _File, number: int, share: float, random: Random) -> bytes:
        older = [self._page(file.disk, number)]
        newer = list(file.versions.get(number, ()))
        if number in file.lost:
            return random.choice((older[0], file.lost[number])) if random.random() < 0.5 else older[0]
        if number * self.page >= len(file.disk):
            older += self._stale.get(number, ())
        if not newer and number * self.page < len(file.disk):
            return older[0]
        if newer and random.random() < share:
            return newer[-1]
        first, second = random.choice(older + newer), random.choice(older + newer)
        torn = random.randint(0, self.page) if random.random() < 0.5 else self.page
        return first[:torn] + second[torn:]
