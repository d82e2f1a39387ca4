"""Contents of a file's section, read when asked for, so that a large one is never in memory whole."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from engine.log.files import Files


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

    def __getitem__(self, rows: slice) -> np.ndarray:
        """Rows start .. stop - 1, which may be written to. Raises OSError where the file is shorter."""
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


# An array of any rows, here or in a file.
ArrayRows = np.ndarray | Stored
