"""A file of raw lines: one zstd stream that can be ended wherever it was flushed."""

import os
from pathlib import Path

import zstandard

SUFFIX = ".jsonl.zst"
_LEVEL = 3
# An empty last block, which ends a stream (without a checksum) after any flush: RFC 8878, section 3.1.1.2.
_END = b"\x01\x00\x00"


class RawFile:
    """Lines in one zstd stream; `size` is what was written, in bytes. Raises OSError where that fails."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = 0
        self._flushed = 0
        self._stream = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=False).compressobj()
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)

    def write(self, data: bytes) -> None:
        """Append to the stream; some of it may wait for the next `flush`."""
        self._put(self._stream.compress(data))

    def flush(self) -> None:
        """Hand everything to the operating system, as a place that the file can be read up to."""
        self._put(self._stream.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK))
        self._flushed = self.size

    def close(self) -> None:
        """End the stream and the file; where that fails, the file ends where it was flushed last."""
        try:
            self._put(self._stream.flush())
        except OSError:
            self.abandon()
            raise
        os.close(self._file)

    def abandon(self) -> None:
        """End the file where it was flushed last, after a failure; one that was not is removed."""
        try:
            if not self._flushed:
                # A folder with a file that holds no line at all would not replay.
                os.unlink(self.path)
            os.ftruncate(self._file, self._flushed)
            os.lseek(self._file, self._flushed, os.SEEK_SET)
            self.size = self._flushed
            if self._flushed:
                self._put(_END)
        finally:
            os.close(self._file)

    def _put(self, data: bytes) -> None:
        left = memoryview(data)
        while left:
            written = os.write(self._file, left)
            self.size += written
            left = left[written:]
