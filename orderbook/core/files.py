"""Files: the few operations that logs and checkpoints need, what is kept in them, and such as appear whole.

`Files` are those operations, under which tests put a failing disk. All raise OSError where the disk refuses,
FileNotFoundError where a path does not exist. `Stored` is an array in a file, which is read in parts, so that
a large one is never in memory whole; `packed` makes bytes of a value.

Of a file that appears whole a reader sees what was there before, or all of what is there now. What is written
has another name until it is complete and on the disk. Where the disk refuses in the midst, nothing appears,
what was written is removed, and one error names the file: an OutputError, or a SourceError where there can be
no such file.
"""

import fcntl
import os
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, Protocol

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import parquet as pq

from orderbook.core.changes import HALF_CHARACTER
from orderbook.core.errors import OutputError, SourceError, UserError

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
        _sync(folder, os.O_RDONLY | os.O_DIRECTORY)


def write_all(files: Files, handle: int, data: bytes | memoryview, offset: int) -> None:
    """Writes all of `data`, however often it takes; raises OSError where the disk takes no more."""
    view = memoryview(data)
    while view:
        taken = files.write(handle, view, offset)
        if taken <= 0:
            raise OSError(5, "the disk takes no more bytes")
        view, offset = view[taken:], offset + taken


@dataclass(frozen=True, slots=True)
class Stored:
    """An array in a file: `shape[0]` rows from byte `offset` on. Slices are read, as arrays of their own."""

    files: Files
    path: Path
    offset: int
    dtype: np.dtype
    shape: tuple[int, ...]

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def row_bytes(self) -> int:
        """Bytes of one row."""
        return self.dtype.itemsize * int(np.prod(self.shape[1:], dtype=np.int64))

    def __getitem__(self, rows: slice) -> NDArray[Any]:
        """Rows start .. stop - 1, of `dtype`, which may be written to.

        Raises OSError where the file is shorter.
        """
        start, stop, _ = rows.indices(len(self))
        count = max(stop - start, 0)
        data = self.files.read(self.path, self.offset + start * self.row_bytes, count * self.row_bytes)
        if len(data) != count * self.row_bytes:
            raise OSError(5, "the file has become shorter", str(self.path))
        return np.frombuffer(bytearray(data), self.dtype).reshape(count, *self.shape[1:])

    def part(self, start: int, stop: int) -> "Stored":
        """Rows start .. stop - 1, not read yet."""
        offset = self.offset + start * self.row_bytes
        return Stored(self.files, self.path, offset, self.dtype, (stop - start, *self.shape[1:]))

    def bytes(self) -> bytes:
        """All of it as bytes."""
        return self[:].tobytes()


# An array of rows, int64[n] or int64[n, width], here or in a file.
ArrayRows = NDArray[np.int64] | Stored
# What a section is made of; several arrays of equal rows stand one behind the other.
Content = bytes | NDArray[np.generic] | Sequence[NDArray[np.generic]]


_DECIMAL, _INTEGER, _TEXT = range(1, 4)
_encode = msgspec.msgpack.Encoder().encode


def packed(value: Any) -> bytes:
    """A value made of mappings, sequences and scalars; a Decimal keeps its digits, an int may be of any
    size, a text may have halves of surrogate pairs."""
    return _encode(_tagged(value))


def unpacked(data: bytes, kind: Any = Any) -> Any:
    """The value of `packed`, of a type; sequences are lists where the type does not say otherwise.

    Raises msgspec.DecodeError or ValueError for other bytes.
    """
    return msgspec.msgpack.decode(data, type=kind, ext_hook=_extension)


def _tagged(value: Any) -> Any:
    if isinstance(value, Decimal):
        return msgspec.msgpack.Ext(_DECIMAL, str(value).encode())
    if isinstance(value, Mapping):
        return {name: _tagged(inner) for name, inner in value.items()}
    if isinstance(value, tuple | list):
        return [_tagged(inner) for inner in value]
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        return msgspec.msgpack.Ext(_INTEGER, str(value).encode())
    if isinstance(value, str) and not value.isascii() and HALF_CHARACTER.search(value):
        return msgspec.msgpack.Ext(_TEXT, value.encode("utf-8", "surrogatepass"))
    return value


def _extension(code: int, data: memoryview) -> Decimal | int | str:
    if code == _DECIMAL:
        return Decimal(bytes(data).decode())
    if code == _INTEGER:
        return int(bytes(data))
    if code == _TEXT:
        return bytes(data).decode("utf-8", "surrogatepass")
    raise ValueError(f"unknown extension {code}")


_NO_PLACE = (FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError)


def refuse_url(path: Path) -> None:
    """Raises UserError for what is a URL and was taken for a path: it would be a folder of that name."""
    if any(re.fullmatch(r"[a-z][a-z0-9+.-]+:", part) for part in path.parts):
        raise UserError(f"{path}: what is written goes to a path, not a URL; give a folder that is mounted")


def replace_file(path: Path, data: bytes) -> None:
    """Put a file there, on the disk on return, in place of one of that name. Raises as `writing`."""
    # Readers, Spark among them, pass over names that begin with a dot.
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    with writing(path):
        try:
            with partial.open("wb") as file:
                file.write(data)
            publish(partial, path)
        except BaseException:
            with suppress(OSError):
                partial.unlink(missing_ok=True)
            raise


@contextmanager
def writing(path: "Path | Store") -> Iterator[None]:
    """Have what the operating system refuses inside be an error that names a file.

    SourceError where there can be no such file, OutputError where the disk is full or fails, UserError for a
    URL.
    """
    if isinstance(path, Path):
        refuse_url(path)
    try:
        yield
    except OSError as error:
        # Arrow's errors have a text of their own around it.
        why = os.strerror(error.errno) if error.errno else str(error)
        if isinstance(error, _NO_PLACE):
            raise SourceError(f"{path}: cannot write: {why}; choose another place") from error
        raise OutputError(f"{path}: cannot write: {why}; make room, or choose another place") from error


def publish(partial: Path, path: Path) -> None:
    """Give a file that is written and closed its name; it is on the disk on return. Raises OSError."""
    _sync(partial, os.O_RDWR)
    partial.replace(path)
    _sync(path.parent, os.O_RDONLY | os.O_DIRECTORY)


def sync_file(path: Path) -> None:
    """Returns once a file, and its name, are on the disk. Raises OSError."""
    _sync(path, os.O_RDONLY)
    _sync(path.parent, os.O_RDONLY | os.O_DIRECTORY)


def _sync(path: Path, flags: int) -> None:
    handle = os.open(path, flags)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class _Writer(pq.ParquetWriter):  # type: ignore[misc]
    """One that says nothing where it is given up and cannot even be closed."""

    def __del__(self) -> None:
        with suppress(Exception):
            super().__del__()


class Store(Protocol):
    """A place in a store of objects: what is written there appears when it is closed."""

    def open_sink(self) -> pa.NativeFile:
        """Takes the bytes of an object."""


class ParquetFile:
    """A Parquet file that appears under `path` when it is closed; until then its name ends in `.partial`.

    After an error nothing more is written, and `close` does nothing. dictionary: the columns whose values are
    kept once each, None: Arrow chooses; delta: integers and times that are kept as differences, and in no
    dictionary; bounds: the columns of which the footer has the least and greatest value, None: all; light:
    those that are compressed by Snappy, others are by zstd. Raises as `writing`, and as the store.

    size, footer: in bytes, and what Parquet says of it, once it is closed.
    """

    def __init__(
        self,
        path: Path | Store,
        schema: pa.Schema,
        dictionary: Sequence[str] | None = None,
        delta: Sequence[str] = (),
        bounds: Sequence[str] | None = None,
        light: Sequence[str] = (),
    ) -> None:
        self.path = path
        self.size = 0
        self._footers: list[pq.FileMetaData] = []
        self._partial = path.with_name(f"{path.name}.partial") if isinstance(path, Path) else None
        self._file: _Writer | None = None
        with self._abandoned_if_it_fails():
            self._sink = None if isinstance(path, Path) else path.open_sink()
            self._file = _Writer(
                self._sink or self._partial, schema,
                compression={name: "snappy" if name in light else "zstd" for name in schema.names},
                use_dictionary=True if dictionary is None else list(dictionary),
                column_encoding=dict.fromkeys(delta, "DELTA_BINARY_PACKED") or None,
                write_statistics=True if bounds is None else list(bounds), metadata_collector=self._footers,
                # Readers would have dictionaries where the file has plain columns.
                store_schema=dictionary is None,
            )  # fmt: skip

    @property
    def footer(self) -> pq.FileMetaData:
        """See the class."""
        return self._footers[0]

    def write(self, table: pa.Table) -> None:
        """Append a row group. Raises what Arrow raises for values that do not fit, too."""
        if self._file is not None:
            with self._abandoned_if_it_fails():
                self._file.write_table(table)

    def close(self) -> None:
        """Finish the file."""
        if self._file is not None:
            with self._abandoned_if_it_fails():
                self._file.close()
                if isinstance(self.path, Path) and self._partial is not None:
                    self.size = self._partial.stat().st_size
                    publish(self._partial, self.path)
                elif self._sink is not None:
                    self.size = self._sink.tell()
                    self._sink.close()
                self._file = None

    def abandon(self) -> None:
        """Leave no file: what it was to hold is not whole."""
        file, self._file = self._file, None
        if file is not None:
            with suppress(Exception):
                file.close()
        if self._partial is not None:
            with suppress(OSError):
                self._partial.unlink(missing_ok=True)

    @contextmanager
    def _abandoned_if_it_fails(self) -> Iterator[None]:
        with writing(self.path):
            try:
                yield
            except BaseException:
                self.abandon()
                raise
