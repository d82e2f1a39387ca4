"""The folder of compiled code: whose it is, and entries that say what they are and that they are whole.

Code that is loaded from a folder is run, so that the folder is as much of the program as its source. The rule
is that of OpenSSH for its keys: a folder, and every file in it, must be the user's own or root's, and nobody
else's to write. It is made with mode 0700, whatever the umask. Another is not read: one warning says why and
what to do, and the process uses a temporary folder of its own, or none where there is no room for one.

Files are opened relative to the folder that was checked, without following links, and checked themselves, so
that what another user puts in the folder's place, or had put there while he could, is not read. An entry
begins with a SHA-256 over what it is (kind, name and hash of source) and its data, which is compared before
anything is unpickled or run: what a disk damaged, what an interrupted copy left, and what lies there under
another's name are made anew. That is no defence against the user himself, root, or a program that runs as
either: they can write entries with checksums, and the source, too.
"""

import atexit
import errno
import hashlib
import logging
import os
import re
import shutil
import stat
import struct
import tempfile
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_LOG = logging.getLogger("orderbook.cache")
VARIABLE = "ORDERBOOK_CACHE"
_MAGIC = b"OBcache1"
# The magic, the digest of the rest, the bytes of what it is.
_HEADER = struct.Struct("<8s32sI")
_PRIVATE = 0o700
# Seconds after which a file of a process that ended in the midst of writing is removed.
_ABANDONED = 3600
_LONGEST_LABEL = 80
_MOST_BYTES = 2**30


@dataclass(slots=True)
class CacheCounts:
    """Entries that were not as they had been written, and those that this process could not write."""

    rebuilt: int = 0
    unwritten: int = 0


counts = CacheCounts()


def cache_told() -> list[str]:
    """What there is to say of the cache at the end of a run; nothing where nothing was wrong."""
    told = []
    if counts.rebuilt:
        told.append(f"{counts.rebuilt:,} damaged entries rebuilt in {cache_root()}")
    if counts.unwritten:
        told.append(f"{counts.unwritten:,} entries could not be written in {cache_root()}")
    return told


class _UnusableError(Exception):
    """Why a folder is not used, and what to do."""

    def __init__(self, why: str, remedy: str = f"name a folder of your own with {VARIABLE}") -> None:
        super().__init__(why)
        self.remedy = remedy


class _SpoiltError(Exception):
    """Why an entry is not used."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What an entry is: a label for people, and all that it depends on; two that differ have two files."""

    label: str
    depends: str
    suffix: str

    @property
    def file(self) -> str:
        """A file name of at most 120 characters."""
        label = re.sub(r"[^\w.-]", "", self.label)[:_LONGEST_LABEL]
        return f"{label}.{hashlib.sha256(self.identity).hexdigest()[:24]}.{self.suffix}"

    @property
    def identity(self) -> bytes:
        """The same in bytes, without loss."""
        return f"{self.suffix}\0{self.label}\0{self.depends}".encode()


class CacheFolder:
    """A folder that was checked; without a handle it keeps nothing. Nothing here raises OSError."""

    def __init__(self, path: Path, handle: int | None) -> None:
        self.path = path
        self._handle = handle
        self._swept = False
        # Files that were counted and are not there anew yet.
        self._spoilt: set[str] = set()

    def there(self) -> bool:
        """Whether it was not removed meanwhile."""
        return self._handle is None or os.fstat(self._handle).st_nlink > 0

    def read(self, entry: Entry) -> bytes | None:
        """The data of an entry; None where it is not there, or not as it was written, which is counted."""
        try:
            found = self._bytes(entry.file)
            return None if found is None else _verified(entry, found)
        except _SpoiltError as error:
            self.spoilt(entry.file, str(error))
            return None

    def write(self, entry: Entry, data: bytes) -> None:
        """Put an entry there. Where it cannot be written, that is said once, and counted."""
        rest = struct.pack("<I", len(entry.identity)) + entry.identity + data
        self._put(entry.file, _MAGIC + hashlib.sha256(rest).digest() + rest)

    def keep_text(self, name: str, text: str) -> None:
        """Have a file hold a text, for people and debuggers: what it holds is read but to compare it."""
        data = text.encode()
        try:
            found = self._bytes(name)
            if found == data:
                return
            if found is not None:
                raise _SpoiltError("is not what was generated")
        except _SpoiltError as error:
            self.spoilt(name, str(error))
        self._put(name, data)

    def spoilt(self, file: str, why: str) -> None:
        """Count an entry that is made anew; the first is told."""
        if file in self._spoilt:
            return
        self._spoilt.add(file)
        counts.rebuilt += 1
        tell = _LOG.warning if counts.rebuilt == 1 else _LOG.debug
        tell("compiled cache: %s %s; such entries are rebuilt, in %s", file, why, self.path)

    def _bytes(self, name: str) -> bytes | None:
        if self._handle is None:
            return None
        try:
            # Opening a pipe must not wait for who writes it.
            file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=self._handle)
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise _SpoiltError("is a link") from None
            raise _SpoiltError(f"cannot be read ({error.strerror or error})") from None
        try:
            status = os.fstat(file)
            if not stat.S_ISREG(status.st_mode) or status.st_size > _MOST_BYTES:
                raise _SpoiltError("is damaged")
            if (why := not_own(status)) is not None:
                raise _SpoiltError(why)
            with os.fdopen(file, "rb", closefd=False) as reader:
                return reader.read()
        except OSError as error:
            raise _SpoiltError(f"cannot be read ({error.strerror or error})") from None
        finally:
            os.close(file)

    def _put(self, name: str, data: bytes) -> None:
        if self._handle is None:
            return
        temporary = f"{uuid.uuid4().hex}.tmp"
        try:
            self._sweep()
            created = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
            file = os.open(temporary, created, 0o600, dir_fd=self._handle)
            try:
                with os.fdopen(file, "wb") as writer:
                    writer.write(data)
                self._rename(temporary, name)
                self._spoilt.discard(name)
            except BaseException:
                with suppress(OSError):
                    os.unlink(temporary, dir_fd=self._handle)
                raise
        except OSError as error:
            counts.unwritten += 1
            if counts.unwritten == 1:
                _LOG.warning(
                    "compiled cache: cannot write in %s (%s); what it lacks is compiled at every start",
                    self.path,
                    error.strerror or error,
                )

    def _rename(self, temporary: str, name: str) -> None:
        at = self._handle
        try:
            os.replace(temporary, name, src_dir_fd=at, dst_dir_fd=at)
        except IsADirectoryError:
            os.rename(name, f"{uuid.uuid4().hex}.aside", src_dir_fd=at, dst_dir_fd=at)
            os.replace(temporary, name, src_dir_fd=at, dst_dir_fd=at)

    def _sweep(self) -> None:
        """Remove what processes left that ended while they wrote."""
        if self._swept or self._handle is None:
            return
        self._swept = True
        for name in os.listdir(self._handle):
            with suppress(OSError):
                if name.endswith(".tmp"):
                    status = os.stat(name, dir_fd=self._handle, follow_symlinks=False)
                    if time.time() - status.st_mtime > _ABANDONED:
                        os.unlink(name, dir_fd=self._handle)


def _verified(entry: Entry, found: bytes) -> bytes:
    whole = len(found) >= _HEADER.size and found[:8] == _MAGIC
    if not whole or hashlib.sha256(found[40:]).digest() != found[8:40]:
        raise _SpoiltError("is damaged")
    named = _HEADER.size + _HEADER.unpack_from(found)[2]
    if found[_HEADER.size : named] != entry.identity:
        raise _SpoiltError("is another entry's")
    return found[named:]


_opening = threading.Lock()
# By what the environment names, and the folder's name.
_opened: dict[tuple[str, str], CacheFolder] = {}


def cache_folder(name: str) -> CacheFolder:
    """The folder of that name in the cache, made where it is missing."""
    with _opening:
        return _folder(name, lambda root: _open_in(root, name))


def cache_root() -> Path:
    """The folder that `$ORDERBOOK_CACHE` names, else `~/.cache/orderbook`, or what is used instead."""
    with _opening:
        return _folder("", _open_root).path


def not_own(status: os.stat_result) -> str | None:
    """Why a file or folder of this status is not read as code; None: it is the user's own, or root's."""
    if status.st_uid not in (os.geteuid(), 0):
        return f"belongs to user {status.st_uid}"
    if status.st_mode & 0o022:
        return f"can be written by others (mode {stat.S_IMODE(status.st_mode):04o})"
    return None


def make_private(folder: Path) -> None:
    """Make a folder, and those above it that are missing, of mode 0700. Raises OSError."""
    if not folder.parent.exists():
        make_private(folder.parent)
    with suppress(FileExistsError):
        folder.mkdir(_PRIVATE)


def _folder(name: str, opened: Callable[[Path], int]) -> CacheFolder:
    named = os.environ.get(VARIABLE) or "~/.cache/orderbook"
    if (known := _opened.get((named, name))) is not None and known.there():
        return known
    try:
        # A user who has no home has no folder of his own either.
        root = Path(named).expanduser().absolute()
        found = CacheFolder(root / name, opened(root))
    except (_UnusableError, OSError, RuntimeError) as error:
        found = _instead(named, name, error, opened)
    _opened[named, name] = found
    return found


def _open_root(root: Path) -> int:
    make_private(root)
    # The user may have linked it to another disk; what is there is checked.
    handle = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        _check(handle, root)
    except BaseException:
        os.close(handle)
        raise
    return handle


def _open_in(root: Path, name: str) -> int:
    above = _open_root(root)
    try:
        with suppress(FileExistsError):
            os.mkdir(name, _PRIVATE, dir_fd=above)
        handle = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=above)
    finally:
        os.close(above)
    try:
        _check(handle, root / name)
    except BaseException:
        os.close(handle)
        raise
    return handle


def _check(handle: int, path: Path) -> None:
    status = os.fstat(handle)
    if (why := not_own(status)) is None:
        return
    if status.st_uid == os.geteuid():
        raise _UnusableError(f"{path} {why}", f"make it your own: chmod go-w '{path}'")
    raise _UnusableError(f"{path} {why}")


def _instead(named: str, name: str, error: Exception, opened: Callable[[Path], int]) -> CacheFolder:
    remedy = error.remedy if isinstance(error, _UnusableError) else _UnusableError("").remedy
    why = f"{named}: {error.strerror or error}" if isinstance(error, OSError) else str(error)
    try:
        root = Path(tempfile.mkdtemp(prefix="orderbook-cache-"))
        found = CacheFolder(root / name, opened(root))
    except OSError:
        _LOG.warning("compiled cache: %s; nothing is kept, and each start compiles; %s", why, remedy)
        return CacheFolder(Path(named).absolute() / name, None)
    _LOG.warning("compiled cache: %s; this start compiles into a temporary folder; %s", why, remedy)
    # Processes that this one starts use it, too.
    os.environ[VARIABLE] = str(root)
    _opened[str(root), name] = found
    atexit.register(_remove, root, os.getpid())
    return found


def _remove(root: Path, process: int) -> None:
    """At the end of the process that made it, not of one that was forked from it."""
    if os.getpid() == process:
        shutil.rmtree(root, ignore_errors=True)
