"""The folder of a job: files under names of their own, and a manifest that is replaced as a whole."""

import re
import secrets
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa

from orderbook.errors import DataError, SourceError, UserError
from orderbook.jobs.layout import VERSION_COLUMNS, schema_of
from orderbook.jobs.manifest import FORMAT_VERSION, DataFile, Dataset, Manifest
from orderbook.whole_files import ParquetFile, replace_file

MANIFEST = "job.json"
DATA = "data"


def create_folder(folder: Path) -> None:
    """Make a job's folder, or take one that is empty or holds another job, also one that could not begin.

    The files of another job count no more then.

    Raises UserError where it holds something else or is a URL, SourceError where it cannot be made.
    """
    if any(re.fullmatch(r"[a-z][a-z0-9]+:", part) for part in folder.parts):
        raise UserError(f"--out {folder}: a job's folder is a path; give one that is mounted")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / MANIFEST).is_file() and not all(map(_is_of_a_job, folder.iterdir())):
            raise UserError(f"--out {folder}: holds something that is not a job; name another folder")
        (folder / DATA).mkdir(exist_ok=True)
    except OSError as error:
        raise SourceError(f"{folder}: cannot make the job's folder: {error.strerror or error}") from None


def _is_of_a_job(path: Path) -> bool:
    """Whether it is what a job leaves whose first manifest could not be written."""
    if path.name == DATA:
        return path.is_dir() and not any(path.iterdir())
    return path.name.startswith(f".{MANIFEST}.")


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Replace the manifest: a reader sees the one before or this one. Raises OutputError."""
    replace_file(folder / MANIFEST, msgspec.json.format(msgspec.json.encode(manifest), indent=1))


def read_manifest(folder: Path) -> Manifest:
    """Raises UserError where there is no job, or one of another format."""
    path = folder / MANIFEST
    try:
        data = path.read_bytes()
    except OSError:
        raise UserError(f"{folder}: no job there (no {MANIFEST}); name the --out of a backtest") from None
    try:
        head = msgspec.json.decode(data)
        if head.get("format") != FORMAT_VERSION:
            raise UserError(
                f"{path}: format {head.get('format')}, this program reads {FORMAT_VERSION}; read it with "
                "the version of the program that wrote it, or run the job again into another folder"
            )
        return msgspec.json.decode(data, type=Manifest)
    except (msgspec.MsgspecError, AttributeError) as error:
        raise UserError(f"{path}: not a manifest of a job: {error}") from None


def remove_unlisted(folder: Path, manifest: Manifest) -> None:
    """Delete data files that no manifest lists, of retried and failed tasks; when no task runs any more.

    What cannot be deleted stays: it counts nowhere.
    """
    listed = manifest.listed
    with suppress(OSError):
        for path in (folder / DATA).iterdir():
            if f"{DATA}/{path.name}" not in listed:
                path.unlink(missing_ok=True)


class DatasetWriter:
    """Writes rows of one dataset to one file under a unique name, in any order, row groups as given.

    Nothing is there before the first row, and what `close` does not name counts nowhere.
    """

    def __init__(self, folder: Path, name: str, dataset: Dataset) -> None:
        self._folder = folder
        self._path = f"{DATA}/{name}-{secrets.token_hex(8)}.parquet"
        self._schema = schema_of(dataset)
        self._file: ParquetFile | None = None
        self._rows = 0
        self._versions: list[tuple[int, int, int]] = []

    def write(self, table: pa.Table) -> None:
        """Append rows. Raises DataError for values that do not fit, OutputError where it cannot write."""
        if not table.num_rows:
            return
        try:
            table = table.cast(self._schema)
            if self._file is None:
                self._file = ParquetFile(self._folder / self._path, self._schema)
            self._file.write(table)
        except pa.ArrowException as error:
            raise DataError(f"{self._path}: a value does not fit the history: {error}") from None
        self._rows += table.num_rows
        if VERSION_COLUMNS[0] in self._schema.names:
            self._versions += _bounds(table)

    def close(self) -> Sequence[DataFile]:
        """The file, if there were rows. Raises OutputError where it cannot be finished."""
        if self._file is None:
            return ()
        self._file.close()
        versions = self._versions or [(0, 0, 0)]
        return (DataFile(self._path, self._rows, min(versions), max(versions)),)


def _bounds(table: pa.Table) -> list[tuple[int, int, int]]:
    """The first and the last version of a table's rows."""
    columns = [table[name].to_numpy() for name in VERSION_COLUMNS]
    order = np.lexsort(columns[::-1])
    first, last = (tuple(int(column[place]) for column in columns) for place in (order[0], order[-1]))
    return [first, last]  # type: ignore[list-item]
