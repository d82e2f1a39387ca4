"""Plain, gzip, zstd and zip files, as blocks or lines, with an honest end: whole, or cut and where.

`OrderedLines` are the lines of several files of one feed in the order of time.
"""

import zlib
from bisect import insort
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import heapify, heappop, heapreplace
from typing import IO, BinaryIO, Protocol
from zipfile import BadZipFile, ZipFile

import zstandard

from orderbook.core.errors import Problems, SourceError
from orderbook.feeds.storage import Place

# Small, because what one call decodes before it meets corruption is lost with it.
CHUNK_BYTES = 1 << 14
# Of a plain file, after its first chunk.
PLAIN_BYTES = 1 << 20
MAXIMUM_LINE_BYTES = 1 << 26
SHOWN_BYTES = 80
_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"
_ZIP = b"PK\x03\x04"
_PARQUET = b"PAR1"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")


class _Decoder(Protocol):
    """What zlib's and zstandard's decompression objects have in common."""

    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, /) -> bytes: ...


class Blocks:
    """The bytes of a file in blocks of no fixed size, decompressed; every iteration starts at the beginning.

    gzip, zstd and zip (of one file) are recognised by content; `size` is in bytes as they are in the file.
    After the last block `cut` says why a compressed file ended early, None where it is whole. A byte order
    mark of UTF-8 is left out.

    Raises SourceError when the file cannot be opened, or what it holds is compressed twice; iterating, too.
    """

    def __init__(self, path: Place):
        self.path = path
        self.cut: str | None = None
        self._bytes_read = 0
        try:
            with path.open("rb") as file:
                self.size = file.seek(0, 2)
        except OSError as error:
            raise SourceError(f"{path}: cannot read: {error.strerror}; check the path") from error

    @property
    def progress(self) -> float:
        """Fraction of the file's bytes read, 0 to 1."""
        return self._bytes_read / self.size if self.size else 1.0

    def __iter__(self) -> Iterator[bytes]:
        self.cut, self._bytes_read = None, 0
        first = True
        with self.path.open("rb") as file:
            for block in self._unpacked(file):
                if first and block:
                    first = False
                    block = block.removeprefix(_BYTE_ORDER_MARK)
                yield block

    def _unpacked(self, file: BinaryIO) -> Iterator[bytes]:
        first = self._read(file)
        if first.startswith((_GZIP, _ZSTD, _ZIP)):
            inner = self._unzipped(file) if first.startswith(_ZIP) else self._decompressed(first, file)
            begun = False
            for block in inner:
                if block and not begun:
                    begun = True
                    self._check_inner(block)
                yield block
            return
        while first:
            yield first
            first = self._read(file, PLAIN_BYTES)

    def _check_inner(self, start: bytes) -> None:
        if start.startswith((_GZIP, _ZSTD, _ZIP)):
            raise SourceError(f"{self.path}: compressed twice; unpack it once")
        if start.startswith(_PARQUET):
            raise SourceError(
                f"{self.path}: a Parquet file compressed as a whole; unpack it (Parquet compresses inside)"
            )

    def _unzipped(self, file: BinaryIO) -> Iterator[bytes]:
        """The one file in a zip archive."""
        try:
            with ZipFile(file) as archive:
                names = [one for one in archive.infolist() if not one.is_dir()]
                if len(names) != 1:
                    listed = ", ".join(one.filename for one in names[:5]) or "none"
                    raise SourceError(f"{self.path}: a zip of {len(names)} files ({listed}); unpack it")
                with archive.open(names[0]) as inner:
                    yield from self._member(inner, names[0].file_size)
        except (BadZipFile, NotImplementedError, RuntimeError) as error:
            self.cut = f"a damaged zip archive, or one of an unknown kind ({error})"

    def _member(self, inner: IO[bytes], size: int) -> Iterator[bytes]:
        try:
            while block := inner.read(CHUNK_BYTES):
                self._bytes_read = min(self.size, self._bytes_read + CHUNK_BYTES * self.size // max(size, 1))
                yield block
        except (BadZipFile, zlib.error, EOFError) as error:
            self.cut = f"corrupt compressed data ({error})"
        else:
            self._bytes_read = self.size

    def _read(self, file: BinaryIO, size: int = 0) -> bytes:
        data = file.read(size or CHUNK_BYTES)
        self._bytes_read += len(data)
        return data

    def _decompressed(self, data: bytes, file: BinaryIO) -> Iterator[bytes]:
        """Decode one compressed frame after another; a frame without its end sets `cut`."""
        zipped = data.startswith(_GZIP)
        decoder = _decoder(zipped)
        while data:
            try:
                yield decoder.decompress(data)
            except (zlib.error, zstandard.ZstdError) as error:
                self.cut = f"corrupt compressed data before byte {self._bytes_read} ({error})"
                return
            if not decoder.eof:
                data = self._read(file)
                continue
            # Zero padding may follow a gzip member.
            data = decoder.unused_data.lstrip(b"\0") if zipped else decoder.unused_data
            data = data or self._read(file)
            if data:
                decoder = _decoder(zipped)
        if not decoder.eof:
            self.cut = "the compressed data has no end"


# What is decompressed is decoded by compiled code this many bytes at a time.
_LARGER_BYTES = 1 << 20


def larger(blocks: Iterable[bytes], megabytes: int = 1) -> Iterator[bytes]:
    """The same bytes in blocks of at least some megabytes, but for the last."""
    parts: list[bytes] = []
    size = 0
    for part in blocks:
        parts.append(part)
        size += len(part)
        if size >= megabytes * _LARGER_BYTES:
            yield b"".join(parts)
            parts.clear()
            size = 0
    yield b"".join(parts)


class Lines:
    """The lines of a file, as bytes without line ends, in memory bounded by the longest line.

    Compressed files are read as `Blocks` reads them. `number` is the 1-based number of the line last given.
    After the last line `cut` says why the file ended early (a compressed frame or a line is not
    complete), None where it is whole; `raise_if_cut` turns it into a SourceError, so that a reader
    can first hand on everything before the cut.

    Raises SourceError when the file cannot be opened.
    """

    def __init__(self, path: Place):
        self.path = path
        self.number = 0
        self.cut: str | None = None
        self._blocks = Blocks(path)
        self._unterminated = False

    @property
    def progress(self) -> float:
        """Fraction of the file's bytes read, 0 to 1."""
        return self._blocks.progress

    def __iter__(self) -> Iterator[bytes]:
        for lines in self.groups():
            for line in lines:
                self.number += 1
                yield line

    def groups(self) -> Iterator[list[bytes]]:
        """Lines that follow one another, without line ends, as many as there are at a time.

        `number` is to be that of the last of them, where more are asked for.
        """
        for block in self.blocks():
            lines = block.split(b"\n")
            if not lines[-1]:
                lines.pop()
            yield [line.rstrip(b"\r") for line in lines] if b"\r" in block else lines

    def blocks(self) -> Iterator[bytes]:
        """Whole lines, as many as there are at a time, each with its line feed, but for the last of all.

        `number` is to be that of the last line taken, where a block is asked for.
        """
        self.number, self.cut, self._unterminated = 0, None, False
        rest, begun = b"", False
        for block in self._blocks:
            if not begun:
                refuse_utf16(self.path, block)
                begun = True
            rest += block
            if end := rest.rfind(b"\n") + 1:
                whole, rest = rest[:end], rest[end:]
                yield whole
            if len(rest) > MAXIMUM_LINE_BYTES:
                self.cut = f"line {self.number + 1} is longer than {MAXIMUM_LINE_BYTES} bytes"
                return
        self.cut = self._blocks.cut
        if rest and self.cut is None:
            self._unterminated = True
            yield rest

    def malformed(self, problems: Problems, kind: str, detail: str, number: int | None = None) -> None:
        """Count a line as malformed, the current one or that of a number; a last line without its end is
        where the file was cut."""
        number = self.number if number is None else number
        if self._unterminated and number == self.number:
            self.cut = f"the last line ({number}) is not complete"
        else:
            problems.add(kind, f"{self.path.name}:{number}", detail)

    def raise_if_cut(self) -> None:
        """Raise SourceError when the file ended early."""
        if self.cut is not None:
            raise SourceError(
                f"{self.path}: truncated after line {self.number}: {self.cut}; "
                "everything before it was read; get the whole file again"
            )


def _decoder(zipped: bool) -> _Decoder:
    return zlib.decompressobj(wbits=31) if zipped else zstandard.ZstdDecompressor().decompressobj()


def refuse_utf16(path: Place, start: bytes) -> None:
    """Raise SourceError where a file that starts so is text of UTF-16."""
    if start.startswith(_UTF16):
        raise SourceError(f"{path}: text in UTF-16; convert it: iconv -f UTF-16 -t UTF-8")


def shown(line: bytes) -> str:
    """The start of a line as text for a message."""
    return line[:SHOWN_BYTES].decode("utf-8", "replace")


def first_line(path: Place) -> bytes:
    """The first line that is not blank (b"" when there is none), decompressed.

    Raises SourceError when the file cannot be opened.
    """
    return next((line for line in Lines(path) if line.strip()), b"")


# Lines at the start of a file that are searched for a time.
_HEAD_LINES = 100
# A gap in so many lines from a file's start may be a file that is missing before it.
_NEAR_START = 100


class OrderedLines:
    """Iterates over lines of files that go on from each other, whatever order they are named in.

    time: of a line, in any unit; None where it has none, which is then that of the line before it.

    Files follow each other by the times of their first lines, and are read one after the other; where they
    overlap their lines are merged. `current` is the file of the line last given, and `before` the file that
    came before it in the order. One file is read as it stands. Raises SourceError where one cannot be opened.
    """

    def __init__(self, paths: Sequence[Place], time: Callable[[bytes], int | None]) -> None:
        self._time = time
        found: list[tuple[int, str, Lines]] = []
        for path in dict.fromkeys(paths):
            insort(found, (self._first(path) if len(paths) > 1 else 0, str(path), Lines(path)))
        self._begins = [begin for begin, _, _ in found]
        self.files = [lines for _, _, lines in found]
        self.current = self.files[0]

    @property
    def progress(self) -> float:
        """Fraction of the files' bytes read, 0 to 1, each file counted alike."""
        return sum(lines.progress for lines in self.files) / len(self.files)

    @property
    def place(self) -> tuple[Lines, int]:
        """The file of the line last given, and its number there."""
        return self.current, self.current.number

    def raise_if_cut(self) -> None:
        """Raise SourceError where a file ended early."""
        cut = [lines for lines in self.files if lines.cut is not None]
        if len(cut) > 1:
            names = ", ".join(str(lines.path) for lines in cut)
            raise SourceError(f"{names}: each is cut at its end; everything before that was read")
        for lines in cut:
            lines.raise_if_cut()

    def groups(self) -> Iterator[list[bytes]]:
        """The lines, as many as follow one another in a file at a time; see `Lines.groups`."""
        if len(self.files) == 1:
            self.current = self.files[0]
            yield from self.current.groups()
            return
        for line in self:
            self.current.number -= 1
            yield [line]

    def __iter__(self) -> Iterator[bytes]:
        self.current = self.files[0]
        if len(self.files) == 1:
            yield from self.current
            return
        waiting = deque(range(len(self.files)))
        # (time of the line, place of its file, the line, what comes after it)
        open_files: list[tuple[int, int, bytes, Iterator[bytes]]] = []
        while open_files or waiting:
            while waiting and (not open_files or self._begins[waiting[0]] <= open_files[0][0]):
                place = waiting.popleft()
                rest = iter(self.files[place])
                if (line := next(rest, None)) is not None:
                    open_files.append((self._begins[place], place, line, rest))
                    heapify(open_files)
            if not open_files:
                return
            time, place, line, rest = open_files[0]
            self.current = self.files[place]
            yield line
            if (line := next(rest, None)) is None:
                heappop(open_files)
            else:
                heapreplace(open_files, (max(time, self._time(line) or time), place, line, rest))

    def _first(self, path: Place) -> int:
        """The time at which a file begins; 0 where its first lines tell none."""
        for number, line in enumerate(Lines(path)):
            if (time := self._time(line)) is not None:
                return time
            if number == _HEAD_LINES:
                break
        return 0


class LineProblems(Problems):
    """Hands problems on by their lines; JSON that ends before its time may be where the file was cut.

    `line` is the one at hand, its file and its number there; None: the one that was read last. They go to
    `behind`.
    """

    def __init__(self, lines: OrderedLines, problems: Problems) -> None:
        super().__init__()
        self._lines, self.behind = lines, problems
        self.line: tuple[Lines, int] | None = None

    def add(self, kind: str, where: str, detail: str) -> None:
        """Count one problem of `kind` in the line at hand."""
        file, number = self.line or self._lines.place
        detail = f"{where}: {detail}"
        if kind == "malformed JSON":
            file.malformed(self.behind, kind, detail, number)
            return
        place = self._lines.files.index(file)
        if kind == "gap" and place and number <= _NEAR_START:
            before = self._lines.files[place - 1].path.name
            detail += f"; the file before is {before}: is one missing between the two?"
        self.behind.add(kind, f"{file.path.name}:{number}", detail)
