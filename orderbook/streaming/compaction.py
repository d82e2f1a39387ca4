"""Fewer files of what is committed: small ones of a view joined, so that a long stream is quick to read."""

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from orderbook.errors import SourceError
from orderbook.jobs.folder import DatasetWriter
from orderbook.jobs.layout import VERSION_COLUMNS
from orderbook.jobs.manifest import DataFile, Dataset

# Files with fewer rows are joined when there are so many of them.
_SMALL_ROWS, _MOST_SMALL = 1 << 18, 64


def compacted(
    folder: Path, view: str, dataset: Dataset, files: Sequence[DataFile]
) -> tuple[DataFile, ...]:
    """The files of a view, or fewer with the same rows. Raises SourceError where they cannot be read."""
    small = [file for file in files if file.rows < _SMALL_ROWS]
    if len(small) <= _MOST_SMALL:
        return tuple(files)
    try:
        tables = [pq.read_table(folder / file.path) for file in small]
    except (OSError, pa.ArrowException) as error:
        raise SourceError(f"{folder}: cannot read a file of view {view}: {error}") from None
    table = pa.concat_tables(tables).sort_by([(name, "ascending") for name in VERSION_COLUMNS])
    writer = DatasetWriter(folder, view, dataset)
    writer.write(table)
    return (*(file for file in files if file.rows >= _SMALL_ROWS), *writer.close())
