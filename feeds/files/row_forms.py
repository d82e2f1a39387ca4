"""The forms of a file of rows: CSV, lines of JSON, and Parquet.

Rows are read by column, as far as they can be: `Columns`. Others are read one by one: of JSON a block with a
malformed line, or where a column has values of several kinds; of CSV one that is not UTF-8, or where a quote
or a carriage return stands as RFC 4180 has none.
"""

import csv
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import compress
from typing import Any

import msgspec
import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from orderbook.core.errors import Problems, SourceError, first_line_of
from orderbook.feeds.byte_stream import Lines, first_line, larger, shown
from orderbook.feeds.change_stream import check_row
from orderbook.feeds.files.csv_blocks import read_csv_block
from orderbook.feeds.storage import Place, open_parquet, times_as_ns

MALFORMED = "malformed row"
_DELIMITERS = ",;\t|"
# What is read together: of CSV, and rows of Parquet.
_MEGABYTES, _ROWS = 4, 1 << 16


@dataclass(frozen=True, slots=True)
class Columns:
    """Rows by the columns of the file; of CSV texts, of Parquet times as ns.

    lines: int64[n]; of Parquet the numbers of rows. malformed: lines among them that are none, and why.
    """

    lines: NDArray[np.int64]
    frame: pl.DataFrame
    malformed: Sequence[tuple[int, str]] = ()


# A row's line, and its values.
Row = tuple[int, Mapping[str, Any]]


class RowForm(ABC):
    """A file of rows in one form."""

    path: Place

    @property
    @abstractmethod
    def progress(self) -> float:
        """Fraction of the file read."""

    @abstractmethod
    def columns(self) -> Sequence[str]:
        """The names of the columns; of JSON those of the first object."""

    @abstractmethod
    def rows(self, problems: Problems, wanted: Sequence[str]) -> Iterator[Columns | Row]:
        """The rows in order, of these columns or more; malformed ones are counted, but those of Columns."""

    def malformed(self, problems: Problems, line: int, detail: str) -> None:
        """Counts a malformed row."""
        problems.add(MALFORMED, f"{self.path.name}:{line}", detail)

    @abstractmethod
    def raise_if_cut(self) -> None:
        """Raise SourceError when the file ended early."""


class _TextRows(RowForm):
    """Rows as text."""

    def __init__(self, path: Place) -> None:
        self.path, self._lines = path, Lines(path)

    @property
    def progress(self) -> float:
        return self._lines.progress

    def malformed(self, problems: Problems, line: int, detail: str) -> None:
        self._lines.malformed(problems, MALFORMED, detail, line)

    def raise_if_cut(self) -> None:
        self._lines.raise_if_cut()


class _CsvRows(_TextRows):
    """RFC 4180, with a header; of the delimiters that there are, the one that the header has most of.

    Values are texts, which numbers and times are read from where the relation has them; nothing is NULL.
    """

    def __init__(self, path: Place) -> None:
        super().__init__(path)
        header = first_line(path).decode("utf-8-sig", "replace")
        self._delimiter = max(_DELIMITERS, key=header.count)
        self._columns = [name.strip() for name in next(csv.reader([header], delimiter=self._delimiter), [])]
        twice = [name for name, count in Counter(self._columns).items() if count > 1]
        if twice:
            raise SourceError(f"rows:{path}: the header has {twice[0]!r} twice; name columns apart")

    def columns(self) -> Sequence[str]:
        return self._columns

    def rows(self, problems: Problems, wanted: Sequence[str]) -> Iterator[Columns | Row]:
        whole = larger(self._lines.blocks(), _MEGABYTES)
        blocks = (block.replace(b"\r\n", b"\n") if b"\r" in block else block for block in whole)
        # Lines before the text at hand.
        before, text = self._after_header(blocks)
        while True:
            more = next(blocks, b"")
            text += more
            self._lines.number = before + text.count(b"\n") + (text[-1:] not in b"\n")
            if not text:
                return
            block = read_csv_block(text, self._columns, wanted, self._delimiter, before, not more)
            if block is None:
                before, text = yield from self._by_row(text, blocks, before, problems)
                continue
            wrong = [(line, self._miscounted(fields)) for line, fields in block.others]
            yield Columns(block.lines, block.frame, wrong)
            before, text = block.last, text[block.end :]

    def _after_header(self, blocks: Iterator[bytes]) -> tuple[int, bytes]:
        """The line of the header, and what its block has after it."""
        lines = _LineFeed(b"", blocks, self._lines, 0)
        while (line := next(lines, None)) is not None and not line.strip():
            pass
        return lines.number, lines.rest

    def _by_row(
        self, text: bytes, blocks: Iterator[bytes], before: int, problems: Problems
    ) -> Generator[Row, None, tuple[int, bytes]]:
        """The rows of a text after so many lines; how many lines were read, and what of blocks is left."""
        lines = _LineFeed(text, blocks, self._lines, before)
        reader = csv.reader(lines, delimiter=self._delimiter)
        while lines.begun:
            try:
                fields = next(reader, None)
            except csv.Error as error:
                self.malformed(problems, lines.number, str(error))
                continue
            if fields is None:
                break
            if len(fields) == len(self._columns):
                yield lines.number, {n: f or None for n, f in zip(self._columns, fields, strict=True)}
            elif fields:
                self.malformed(problems, lines.number, self._miscounted(len(fields)))
        return lines.number, lines.rest

    def _miscounted(self, fields: int) -> str:
        return f"{fields} fields, where the header has {len(self._columns)}"


class _LineFeed:
    """Iterates over the lines of a text, and of blocks after it, for `csv.reader`.

    number: that of the line last given, after `before` it. rest: what of the text or block at hand is left.
    """

    def __init__(self, text: bytes, blocks: Iterator[bytes], lines: Lines, before: int) -> None:
        self._text, self._blocks, self._lines, self.number = text, blocks, lines, before
        self._place, self._more = 0, False

    @property
    def begun(self) -> bool:
        """Whether lines of the text are left, and not of blocks after it alone."""
        return not self._more and self._place < len(self._text)

    @property
    def rest(self) -> bytes:
        return self._text[self._place :]

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        if self._place == len(self._text):
            self._text, self._place, self._more = next(self._blocks, b""), 0, True
            if not self._text:
                raise StopIteration
            self._lines.number = self.number + self._text.count(b"\n") + (not self._text.endswith(b"\n"))
        end = self._text.find(b"\n", self._place) + 1 or len(self._text)
        line = self._text[self._place : end].rstrip(b"\n").rstrip(b"\r")
        self._place, self.number = end, self.number + 1
        return line.decode("utf-8", "surrogateescape") + "\n"


class _JsonRows(_TextRows):
    """An object a line; numbers with a point or an exponent are Decimals."""

    def columns(self) -> Sequence[str]:
        problems = Problems()
        for number, line in enumerate(self._lines):
            for _, row in self._by_row(problems, [line], number):
                return list(row)
        raise SourceError(f"rows:{self.path}: no row could be read: {'; '.join(problems.report()[:1])}")

    def rows(self, problems: Problems, wanted: Sequence[str]) -> Iterator[Columns | Row]:
        before = 0
        for block in larger(self._lines.blocks()):
            lines = [line.rstrip(b"\r") for line in block.removesuffix(b"\n").split(b"\n")] if block else []
            self._lines.number = before + len(lines)
            found = _json_columns(lines, before, wanted)
            if found is None:
                yield from self._by_row(problems, lines, before)
            else:
                yield found
            before += len(lines)

    def _by_row(self, problems: Problems, lines: Sequence[bytes], before: int) -> Iterator[Row]:
        """The rows of lines after so many."""
        for number, line in enumerate(lines, before + 1):
            if not line.strip():
                continue
            try:
                row = _decode_object(line)
                check_row(row)
            except (msgspec.DecodeError, ValueError) as error:
                self.malformed(problems, number, f"{error}: {shown(line)}")
                continue
            yield number, row


_decode_object = msgspec.json.Decoder(dict[str, Any], float_hook=Decimal).decode


def _json_columns(lines: Sequence[bytes], before: int, wanted: Sequence[str]) -> Columns | None:
    """The rows of lines after so many, by column; None where one of them is malformed, or a column has values
    of several kinds, or of one for which there is none."""
    numbers = np.arange(before + 1, before + len(lines) + 1)
    if not all(map(bytes.strip, lines)):
        there = np.array([bool(line.strip()) for line in lines])
        lines, numbers = list(compress(lines, there)), numbers[there]
    try:
        rows = [_decode_object(line) for line in lines]
        for row in rows:
            check_row(row)
        columns = [_json_column(name, [row.get(name) for row in rows]) for name in wanted]
    except (*_NO_COLUMN, msgspec.DecodeError):
        return None
    found = [column for column in columns if column is not None]
    return Columns(numbers, pl.DataFrame(found)) if len(found) == len(columns) else None


def _json_column(name: str, values: list[Any]) -> pl.Series | None:
    kinds = set(map(type, values)) - {type(None)}
    if len(kinds) > 1:
        return None
    kind = next(iter(kinds), str)
    if kind is not Decimal:
        return pl.Series(name, values, _JSON_KINDS[kind])
    array = pa.array(values)
    return pl.Series(name, pl.from_arrow(array)) if pa.types.is_decimal128(array.type) else None


_JSON_KINDS = {int: pl.Int64, str: pl.String, bool: pl.Boolean}
_NO_COLUMN = (pl.exceptions.PolarsError, pa.ArrowException, ValueError, TypeError, OverflowError)


class _ParquetRows(RowForm):
    """Rows of Parquet; times are ns."""

    def __init__(self, path: Place) -> None:
        self.path = path
        self._read = 0
        try:
            with open_parquet(path) as file:
                self._names: list[str] = file.schema_arrow.names
                self._count = file.metadata.num_rows
        except (OSError, pa.ArrowException) as error:
            raise SourceError(f"{path}: not whole: {first_line_of(error)}; write it anew") from error

    @property
    def progress(self) -> float:
        return self._read / self._count if self._count else 1.0

    def columns(self) -> Sequence[str]:
        return self._names

    def rows(self, problems: Problems, wanted: Sequence[str]) -> Iterator[Columns | Row]:
        self._read = 0
        try:
            with open_parquet(self.path) as file:
                for group in range(file.num_row_groups):
                    for batch in file.iter_batches(_ROWS, [group], wanted):
                        before, self._read = self._read, self._read + len(batch)
                        lines = np.arange(before, self._read) + 1
                        yield from _columns(lines, batch)
        except (pa.ArrowException, OSError) as error:
            raise SourceError(
                f"{self.path}: corrupt after row {self._read}: {first_line_of(error)}; "
                "everything before it was read; get the file again"
            ) from error

    def raise_if_cut(self) -> None:
        """A Parquet file without its end cannot be opened."""


def _columns(lines: NDArray[np.int64], batch: pa.RecordBatch) -> Iterator[Columns | Row]:
    """Rows of Arrow by column; one by one where a column has a type that there is none for."""
    columns = [times_as_ns(column) for column in batch.columns]
    try:
        frame = pl.DataFrame(pl.from_arrow(pa.table(columns, batch.schema.names)))
    except _NO_COLUMN:
        for line, *fields in zip(lines.tolist(), *(column.to_pylist() for column in columns), strict=True):
            yield line, dict(zip(batch.schema.names, fields, strict=True))
    else:
        yield Columns(lines, frame)


def row_form(path: Place) -> RowForm:
    """The form of a file. Raises SourceError where it has none."""
    start = first_line(path)
    if start.startswith(b"PAR1"):
        return _ParquetRows(path)
    if not start:
        raise SourceError(f"{path}: empty; nothing to read")
    return _JsonRows(path) if start.lstrip().startswith(b"{") else _CsvRows(path)
