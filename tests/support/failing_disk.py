"""A disk that refuses, under the files of one folder: any one call, or all after it."""

import builtins
import errno
import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa

from orderbook.core import files

_PATHS = ("open", "mkdir", "replace", "rename", "unlink", "remove", "listdir", "scandir")
_HANDLES = ("write", "pwrite", "fsync", "fdatasync", "ftruncate")
# What a full disk does, too.
_WITHOUT_ROOM = {"unlink", "remove", "ftruncate", "listdir", "scandir", "fsync", "fdatasync"}
SHORT = 0


class FailingDisk:
    """Calls below `root` are counted; the one after `after` others fails with `error`, or is a SHORT write.

    lasting: so do all after it.
    """

    def __init__(self, root: Path, after: int, error: int, lasting: bool = False) -> None:
        self.calls: list[str] = []
        self.failed = False
        self._root, self._after, self._error, self._lasting = str(root), after, error, lasting
        self._handles: set[int] = set()

    def due(self, name: str) -> bool:
        """Count a call; whether it is one that fails."""
        if self._error == errno.ENOSPC and name in _WITHOUT_ROOM:
            return False
        self.calls.append(name)
        if len(self.calls) == self._after + 1 or (self.failed and self._lasting):
            self.failed = True
            return True
        return False

    def check(self, name: str) -> None:
        """Count a call, and raise where it is one that fails; a SHORT write is an error of others."""
        if self.due(name):
            error = self._error or errno.EIO
            raise OSError(error, os.strerror(error))

    def written(self, write: Callable[[Any], int], data: Any) -> int:
        """Write; before an error half of it is on the disk."""
        if not self.due("write"):
            return write(data)
        half = write(memoryview(data)[: len(data) // 2]) if len(data) > 1 else 0
        if self._error == SHORT and half:
            return half
        raise OSError(self._error or errno.ENOSPC, os.strerror(self._error or errno.ENOSPC))

    def holds(self, path: Any) -> bool:
        """Whether a path is below the root."""
        return isinstance(path, str | Path) and os.path.abspath(path).startswith(self._root)

    @contextmanager
    def inserted(self) -> Iterator["FailingDisk"]:
        """Until the end of the context."""
        parquet = patch.object(files, "_Writer", self._parquet)
        with patch.multiple(os, **self._os()), patch.object(io, "open", self._open), parquet:
            yield self

    def _os(self) -> dict[str, Any]:
        found: dict[str, Any] = {name: self._by_path(name, getattr(os, name)) for name in _PATHS}
        found |= {name: self._by_handle(name, getattr(os, name)) for name in _HANDLES}
        return found

    def _by_path(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(path: Any = ".", *arguments: Any, **named: Any) -> Any:
            held = self.holds(path)
            if held:
                self.check(name)
            found = function(path, *arguments, **named)
            if name == "open":
                (self._handles.add if held else self._handles.discard)(found)
            return found

        return call

    def _by_handle(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(handle: int, *arguments: Any) -> Any:
            if handle not in self._handles:
                return function(handle, *arguments)
            if name in ("write", "pwrite"):
                return self.written(lambda data: function(handle, data, *arguments[1:]), arguments[0])
            self.check(name)
            return function(handle, *arguments)

        return call

    def _open(self, file: Any, mode: str = "r", *arguments: Any, **named: Any) -> Any:
        if not self.holds(file) or "w" not in mode:
            return builtins.open(file, mode, *arguments, **named)
        self.check("open")
        writer = io.BufferedWriter(_Raw(self, file))
        return writer if "b" in mode else io.TextIOWrapper(writer)

    def _parquet(self, path: Path, schema: pa.Schema, **named: Any) -> "_Parquet":
        self.check("open")
        return _Parquet(_Raw(self, path), schema, **named)


class _Raw(io.FileIO):
    def __init__(self, disk: FailingDisk, path: Path) -> None:
        super().__init__(path, "w")
        self._disk = disk

    def write(self, data: Any) -> int:
        return self._disk.written(super().write, data)


class _Parquet(files._Writer):
    """Writes through Python, which may be refused where Arrow's own files are not reached."""

    def __init__(self, raw: _Raw, schema: pa.Schema, **named: Any) -> None:
        self._own = io.BufferedWriter(raw)
        super().__init__(self._own, schema, **named)

    def close(self) -> None:
        super().close()
        self._own.close()
