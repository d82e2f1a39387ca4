"""Where files of sources are, paths of this machine or URLs of stores, and how they are found and opened."""

import re
from collections.abc import Sequence
from glob import glob, has_magic
from pathlib import Path
from typing import TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from feeds.object_store import StorePath, store_path

Place: TypeAlias = Path | StorePath

_FILE = re.compile("file://(localhost(?=/))?")


def is_url(text: str) -> bool:
    """Whether a text begins as a URL."""
    return re.match(r"[a-z][a-z0-9+.-]*://", text) is not None


def place(text: str) -> Place:
    """The place of a path, `file://` before it or not, or of a URL. Raises SourceError for other URLs."""
    path = _FILE.sub("", text, count=1) if text.startswith("file://") else text
    return store_path(path) if is_url(path) else Path(path)


def is_glob(where: Place) -> bool:
    """Whether a place names others by wildcards, and is not there itself."""
    return has_magic(where.key if isinstance(where, StorePath) else str(where)) and not where.exists()


def files_at(where: Place, endings: Sequence[str]) -> list[Place]:
    """The files that a place stands for, by name.

    They are all that a glob names, those of a folder that match one of `endings`, and else the place itself,
    whether or not it is there. Raises SourceError where a store cannot be asked.
    """
    found: list[Place]
    if is_glob(where):
        if isinstance(where, StorePath):
            found = list(StorePath(where.root, "", where.options).glob(where.key))
        else:
            found = [Path(name) for name in glob(str(where), recursive=True)]
    elif where.is_dir():
        found = [file for ending in endings for file in where.glob(ending)]
    else:
        return [where]
    return sorted(found, key=str)


def open_parquet(where: Place) -> pq.ParquetFile:
    """A Parquet file; in a store a row group is read by one request.

    Raises StoreError, and as pq.ParquetFile does.
    """
    if isinstance(where, StorePath):
        return pq.ParquetFile(pa.PythonFile(where.open_raw(), mode="r"))
    return pq.ParquetFile(where)
