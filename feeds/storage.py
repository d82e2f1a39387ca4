"""Where files of sources are, paths of this machine or URLs of stores, and how they are found and opened.

Files of object stores and HDFS are read by their URLs through Arrow's file systems. What stores there are,
how their URLs look, and where credentials are found is Arrow's: pyarrow.fs, "FileSystem.from_uri". A key
stands in a URL as it is, without %-escapes, as Spark and the stores' own tools take it.

The text of a source may have options behind the path: `PATH?key=value&key=value`.
"""

import io
import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import lru_cache
from glob import glob, has_magic
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeAlias, cast

import pyarrow as pa
from pyarrow import parquet as pq

from orderbook.core.errors import SourceError, StoreError, first_line_of, suggestion

if TYPE_CHECKING:
    from pyarrow.dataset import Dataset
    from pyarrow.fs import FileSystem

# A question mark is a wildcard too: options are what looks like them, at the end.
OPTIONS = re.compile(r"(?P<path>.*)\?(?P<options>[a-z_]+=[^?]*)", re.DOTALL)
# What a URL may say of its store; other options are of the source.
STORE_OPTIONS = frozenset({
    "region", "scheme", "endpoint_override", "tls_ca_file_path", "tls_ca_dir_path", "tls_verify_certificates",
    "project_id", "retry_limit_seconds", "blob_storage_authority", "dfs_storage_authority", "enable_tls",
    "credential_kind", "tenant_id", "client_id", "user", "kerb_ticket",
})  # fmt: skip
_SCHEMES = {"s3": "s3", "s3a": "s3", "s3n": "s3", "gs": "gs", "gcs": "gs"} | {
    name: name for name in ("abfs", "abfss", "hdfs", "viewfs")
}
_URL = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*)://(?P<authority>[^/]*)/*(?P<key>.*)", re.DOTALL)
# One request of a stream; each costs some 50 ms, and many sources may be open.
_BUFFER_BYTES = 1 << 20
# Google's library would try for a quarter of an hour.
_GOOGLE_RETRIES = "retry_limit_seconds=30"
_MEANINGS = (
    (r"NO_SUCH_BUCKET|[Bb]ucket .*not (found|exist)", "no bucket or folder of that name"),
    (
        r"ACCESS_DENIED|INVALID_ACCESS_KEY|SIGNATURE|TOKEN|UNAUTHENTICATED|PERMISSION|[Pp]ermission|40[13]\b",
        "no permission; the store's credentials are taken from the environment or its profile",
    ),
    (r"NETWORK_CONNECTION|CURL|curl|[Cc]onnect|resolve host", "the store cannot be reached"),
)


@dataclass(frozen=True, slots=True)
class StorePath:
    """A file or folder of a store, with the questions that a Path answers; what it asks raises StoreError.

    root: scheme and bucket, container or server, as in s3://bucket. key: the place in it, as in days/a.csv.
    options: what its URL says of the store, as in region=eu-west-1&scheme=http.
    """

    root: str
    key: str
    options: str = ""

    def __str__(self) -> str:
        return f"{self.root}/{self.key}" + (f"?{self.options}" if self.options else "")

    @property
    def name(self) -> str:
        """The last part of the key."""
        return self.key.rpartition("/")[2]

    @property
    def parent(self) -> "StorePath":
        """The folder it is in."""
        return replace(self, key=self.key.rpartition("/")[0])

    def with_name(self, name: str) -> "StorePath":
        """What has that name in the same folder."""
        return self.parent._child(name)

    def resolve(self) -> "StorePath":
        """Itself: URLs do not depend on where one is."""
        return self

    def exists(self) -> bool:
        """Whether a file or folder is there."""
        return self._kind() != "NotFound"

    def is_dir(self) -> bool:
        """Whether it is a folder, that is the beginning of other keys."""
        return self._kind() == "Directory"

    def glob(self, pattern: str) -> Iterator["StorePath"]:
        """What is below the folder and matches; `**` is any number of folders. Hidden names are left out."""
        first, _, rest = pattern.partition("/")
        if first == "**":
            below = [child for child, is_folder in self._children(True) if is_folder]
            start = len(self.key)
            folders = [self, *(child for child in below if "/." not in f"/{child.key[start:].lstrip('/')}")]
            yield from dict.fromkeys(found for one in folders for found in one.glob(rest or "*"))
        elif not has_magic(first):
            child = self._child(first)
            if rest:
                yield from child.glob(rest)
            elif child.exists():
                yield child
        else:
            for child, is_folder in self._children():
                hidden = child.name.startswith(".") and not first.startswith(".")
                if fnmatchcase(child.name, first) and not hidden:
                    if not rest:
                        yield child
                    elif is_folder:
                        yield from child.glob(rest)

    def __truediv__(self, name: str) -> "StorePath":
        return self._child(name)

    def is_file(self) -> bool:
        """Whether it is an object."""
        return self._kind() == "File"

    def read_bytes(self) -> bytes:
        """The whole object."""
        with _told(self):
            system, base = _system(self.root, self.options)
            with system.open_input_stream(base + self.key) as file:
                return bytes(file.read())

    def open_sink(self) -> pa.NativeFile:
        """Takes the bytes of an object, which is there, whole, when it is closed."""
        with _told(self, "write"):
            system, base = _system(self.root, self.options)
            return system.open_output_stream(base + self.key)

    def write_bytes(self, data: bytes) -> None:
        """Puts an object there, in place of one of that name."""
        with _told(self, "write"), self.open_sink() as file:
            file.write(data)

    def files(self) -> Iterator["StorePath"]:
        """The objects anywhere below."""
        yield from (place for place, is_folder in self._children(True) if not is_folder)

    def unlink(self) -> None:
        """Deletes an object."""
        with _told(self, "delete"):
            system, base = _system(self.root, self.options)
            system.delete_file(base + self.key)

    def open_raw(self) -> io.RawIOBase:
        """The file, read by a request for each read."""
        with _told(self):
            system, base = _system(self.root, self.options)
            return _StoredFile(self, system.open_input_file(base + self.key))

    def open(self, mode: str = "rb") -> BinaryIO:
        """The file, read in pieces of 1 MB."""
        assert mode == "rb", "stores are read"
        return io.BufferedReader(self.open_raw(), _BUFFER_BYTES)

    def _child(self, name: str) -> "StorePath":
        return replace(self, key=f"{self.key}/{name}" if self.key else name)

    def _kind(self) -> str:
        with _told(self):
            system, base = _system(self.root, self.options)
            return str(system.get_file_info(base + self.key).type.name)

    def _children(self, recursive: bool = False) -> list[tuple["StorePath", bool]]:
        """What is in the folder, or anywhere below it, and whether that is a folder itself."""
        from pyarrow.fs import FileSelector

        with _told(self):
            system, base = _system(self.root, self.options)
            try:
                found = system.get_file_info(FileSelector(base + self.key, recursive=recursive))
            except FileNotFoundError:
                # A bucket that is not there is another error.
                found = []
        start = len(base)
        return [(replace(self, key=one.path[start:]), one.type.name == "Directory") for one in found]


def store_path(url: str) -> StorePath:
    """The place that a URL names, with the options of its store.

    Raises SourceError for a URL of no store that is read, and for one with a password in it.
    """
    parts = OPTIONS.fullmatch(url)
    path, options = (parts["path"], parts["options"]) if parts else (url, "")
    for name in (part.partition("=")[0] for part in options.split("&") if part):
        if name not in STORE_OPTIONS:
            raise SourceError(f"{url}: no option is called {name!r}; {suggestion(name, STORE_OPTIONS)}")
    found = _URL.fullmatch(path)
    if found is None or found["scheme"] not in _SCHEMES or not found["authority"]:
        raise SourceError(f"{url}: no place that is read; give a path, or the URL of a file in {_KNOWN}")
    if ":" in found["authority"].rpartition("@")[0]:
        where = f"{found['scheme']}://…@{found['authority'].rpartition('@')[2]}"
        raise SourceError(
            f"{where}: a password in a URL would be written to logs and jobs; "
            "set the store's credentials in the environment or its profile"
        )
    key = found["key"].rstrip("/")
    return StorePath(f"{_SCHEMES[found['scheme']]}://{found['authority']}", key, options)


_KNOWN = ", ".join(f"{name}://" for name in dict.fromkeys(_SCHEMES.values()))


@lru_cache(maxsize=64)
def _system(root: str, options: str) -> tuple["FileSystem", str]:
    """The file system of a store, and what stands before its keys."""
    from pyarrow.fs import FileSystem

    if root.startswith("gs:") and "retry_limit_seconds" not in options:
        options = f"{options}&{_GOOGLE_RETRIES}".lstrip("&")
    system, base = FileSystem.from_uri(f"{root}/?{options}" if options else f"{root}/")
    return system, f"{base}/" if base and not base.endswith("/") else base


class _StoredFile(io.RawIOBase):
    """A file of a store whose errors name it."""

    def __init__(self, place: StorePath, file: pa.NativeFile) -> None:
        super().__init__()
        self._place, self._file = place, file

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        with _told(self._place):
            return cast(int, self._file.readinto(buffer))

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return cast(int, self._file.seek(offset, whence))

    def tell(self) -> int:
        return cast(int, self._file.tell())

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()


@contextmanager
def _told(place: StorePath, what: str = "read") -> Iterator[None]:
    """Errors of a store, as one line that names the place."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        said = first_line_of(error)
        if isinstance(error, FileNotFoundError):
            raise StoreError(f"{place}: no such file; check the bucket and the name") from error
        for pattern, meaning in _MEANINGS:
            if re.search(pattern, said):
                raise StoreError(f"{place}: {meaning} ({said})") from error
        raise StoreError(f"{place}: cannot {what}: {said}") from error


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


def column_values(column: pa.Array) -> Sequence[Any]:
    """A column of Parquet as Python's values; dates and times of any unit as ns since 1970."""
    listed: Sequence[Any] = times_as_ns(column).to_pylist()
    return listed


def times_as_ns(column: pa.Array) -> pa.Array:
    """A column of dates or times of any unit as ns since 1970, int64; others as they are."""
    if pa.types.is_timestamp(column.type) or pa.types.is_date(column.type):
        return column.cast(pa.timestamp("ns")).cast(pa.int64())
    return column


def stored_dataset(where: StorePath) -> "Dataset":
    """A Parquet file of a store as Arrow's scanners read it. Raises StoreError."""
    from pyarrow.dataset import dataset

    with _told(where):
        system, base = _system(where.root, where.options)
        return dataset(base + where.key, filesystem=system, format="parquet")


def split_options(text: str, known: Collection[str]) -> tuple[str, dict[str, str]]:
    """The path, with what a URL says of its store, and the options by key.

    Raises SourceError for a key that is not `known`, a key given twice, and a part that is no key=value.
    """
    path, parts = parted(text)
    options: dict[str, str] = {}
    for part in parts:
        key, equals, value = part.partition("=")
        if not equals:
            raise SourceError(f"{text}: the option {part!r} has no value; write {part}=VALUE")
        if key not in known:
            hint = suggestion(key, known) if known else "this source has none"
            raise SourceError(f"{text}: no option is called {key!r}; {hint}")
        if key in options:
            raise SourceError(f"{text}: the option {key!r} is given twice; keep one")
        options[key] = value
    return path, options


def parted(text: str) -> tuple[str, list[str]]:
    """The path, with what a URL says of its store, and the key=value parts of the options behind it."""
    found = OPTIONS.fullmatch(text)
    if found is None:
        return text, []
    parts = found["options"].split("&")
    if not is_url(text):
        return found["path"], parts
    own = [part for part in parts if part.partition("=")[0] in STORE_OPTIONS]
    return joined(found["path"], own), [part for part in parts if part not in own]


def joined(path: str, parts: Sequence[str]) -> str:
    """A path with options behind it, as `parted` takes them apart."""
    if not parts:
        return path
    more = is_url(path) and OPTIONS.fullmatch(path) is not None
    return path + ("&" if more else "?") + "&".join(parts)
