"""Files that appear whole: a reader sees what was there before, or all of what is there now.

What is written has another name until it is complete and on the disk. Where the disk refuses in the midst,
nothing appears, what was written is removed, and one error names the file: an OutputError, or a SourceError
where there can be no such file.
"""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from orderbook.errors import OutputError, SourceError

_NO_PLACE = (FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError)


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
def writing(path: Path) -> Iterator[None]:
    """Have what the operating system refuses inside be an error that names a file.

    SourceError where there can be no such file, OutputError where the disk is full or fails.
    """
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


def _sync(path: Path, flags: int) -> None:
    handle = os.open(path, flags)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class _Writer(pq.ParquetWriter):
    """One that says nothing where it is given up and cannot even be closed."""

    def __del__(self) -> None:
        with suppress(Exception):
            super().__del__()


class ParquetFile:
    """A Parquet file that appears under `path` when it is closed; until then its name ends in `.partial`.

    After an error nothing more is written, and `close` does nothing. Raises as `writing`.
    """

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self.path = path
        self._partial = path.with_name(f"{path.name}.partial")
        self._file: _Writer | None = None
        with self._abandoned_if_it_fails():
            self._file = _Writer(self._partial, schema, compression="zstd")

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
                publish(self._partial, self.path)
                self._file = None

    @contextmanager
    def _abandoned_if_it_fails(self) -> Iterator[None]:
        with writing(self.path):
            try:
                yield
            except BaseException:
                file, self._file = self._file, None
                if file is not None:
                    with suppress(Exception):
                        file.close()
                with suppress(OSError):
                    self._partial.unlink(missing_ok=True)
                raise
