"""Delta tables of a job's datasets: which files a table has, and commits after which it has others.

Tasks write Parquet files into a table's folder; they count once a commit names them, which is one new file of
the table's log. So readers of Delta see the state before or after a commit, whole, also in object stores.
The protocol is Delta's (github.com/delta-io/delta, PROTOCOL.md), by the package `deltalake`.
"""

import json
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import parquet as pq

from orderbook.core.errors import DataError, OrderbookError, OutputError, UserError
from orderbook.core.files import sync_file
from orderbook.feeds.storage import Place, StorePath
from orderbook.jobs.datasets import DataFile, Dataset, file_schema

if TYPE_CHECKING:
    from deltalake import DeltaTable

LOG = "_delta_log"
# What is in no version any more is deleted by the job itself, so that versions before are not kept long.
_CONFIGURATION = {
    "delta.logRetentionDuration": "interval 1 hours",
    "delta.deletedFileRetentionDuration": "interval 1 hours",
}
# Stores whose commits are atomic by themselves: a file of a log is put there only if it is not there yet.
_STORES = ("s3", "gs", "abfs", "abfss")
_LONGEST_TEXT = 32


def check_store(place: Place) -> None:
    """Raises UserError for a store that tables cannot be committed to."""
    if isinstance(place, StorePath):
        scheme = place.root.partition(":")[0]
        if scheme not in _STORES:
            stores = ", ".join(f"{name}://" for name in _STORES)
            raise UserError(
                f"{place}: a job is written to a path, or to {stores}; mount {scheme}:// as a folder"
            )
        _store_options(place)


def _store_options(place: StorePath) -> dict[str, str]:
    """What a URL says of its store, as `deltalake` takes it. Raises UserError for what it does not take."""
    given = dict(part.split("=", 1) for part in place.options.split("&") if part)
    scheme, found = given.pop("scheme", "https"), {}
    if (endpoint := given.pop("endpoint_override", None)) is not None:
        found["AWS_ENDPOINT_URL"] = endpoint if "://" in endpoint else f"{scheme}://{endpoint}"
        found["AWS_REGION"] = given.get("region", "us-east-1")
    if scheme == "http":
        found["AWS_ALLOW_HTTP"] = "true"
    if (region := given.pop("region", None)) is not None:
        found["AWS_REGION"] = region
    if given:
        raise UserError(
            f"{place}: {', '.join(given)} cannot be said in the URL of what is written; "
            "set it in the environment"
        )
    return found


def opened(place: Place, version: int | None = None) -> "DeltaTable | None":
    """The table in a folder, as of a version, None: the last; None: there is none. Raises DataError."""
    from deltalake import DeltaTable
    from deltalake.exceptions import TableNotFoundError

    with _failing(place, DataError, "the table cannot be read"):
        try:
            if isinstance(place, StorePath):
                uri = f"{place.root}/{place.key}"
                return DeltaTable(uri, version=version, storage_options=_store_options(place))
            return DeltaTable(place, version=version) if (place / LOG).is_dir() else None
        except TableNotFoundError:
            return None


def files_of(folder: Place, path: str, version: int) -> tuple[DataFile, ...]:
    """The files of a version of the table in a job's folder; none of version -1. Raises DataError."""
    table = opened(folder / path, version) if version >= 0 else None
    if version >= 0 and table is None:
        raise DataError(f"{folder / path}: a table of the job is gone")
    return () if table is None else _files(table, path)


def _files(table: "DeltaTable", path: str) -> tuple[DataFile, ...]:
    actions = pa.table(table.get_add_actions(flatten=True))
    rows = zip(*(actions[name].to_pylist() for name in ("path", "num_records", "size_bytes")), strict=True)
    return tuple(DataFile(f"{path}/{name}", count, size) for name, count, size in sorted(rows))


def committed(
    folder: Place, path: str, dataset: Dataset, version: int, files: Sequence[DataFile]
) -> tuple[int, Sequence[DataFile]]:
    """Makes the table in `path` have these files, and no others, by one commit; its version and files then.

    version: of the table that `files` came from, by what was added and removed; where that has just these,
    nothing is done. -1: the table is made, or begun anew in place of another job's, of which the files
    stay that are the same byte for byte, so that a commit changes what is different.
    Raises OutputError, DataError.
    """
    table = opened(folder / path)
    schema = file_schema(dataset)
    if table is None or (version < 0 and _differs(table, schema)):
        return _created(folder / path, schema, files), files
    named = {file.path for file in files}
    before = table if table.version() == version or version < 0 else opened(folder / path, version)
    if version >= 0 and before is not None and {file.path for file in _files(before, path)} == named:
        return version, files
    there = {file.path: file for file in _files(table, path)}
    if version < 0:
        files = _with_old(folder, files, there.values())
        named = {file.path for file in files}
    added = [file for file in files if file.path not in there]
    removed = [file for name, file in there.items() if name not in named]
    if added or removed:
        _commit(folder / path, table, schema, added, removed)
    return table.version(), files


def _with_old(folder: Place, files: Sequence[DataFile], there: Iterable[DataFile]) -> Sequence[DataFile]:
    """The files, those replaced that a table has already under other names. Raises OutputError."""
    old: dict[tuple[int, int], list[DataFile]] = {}
    for file in there:
        old.setdefault((file.rows, file.size), []).append(file)
    found = []
    with _failing(folder, OutputError, "cannot read what was written"):
        for file in files:
            likely = old.get((file.rows, file.size), [])
            data = (folder / file.path).read_bytes() if likely else b""
            same = next((one for one in likely if (folder / one.path).read_bytes() == data), file)
            if same is not file:
                likely.remove(same)
            found.append(same)
    return found


def _differs(table: "DeltaTable", schema: pa.Schema) -> bool:
    from deltalake import Schema

    return table.schema().to_json() != Schema.from_arrow(schema).to_json()


def _created(place: Place, schema: pa.Schema, files: Sequence[DataFile]) -> int:
    from deltalake import Schema
    from deltalake.transaction import create_table_with_add_actions

    with _failing(place, OutputError, "cannot write"):
        if isinstance(place, Path):
            place.mkdir(parents=True, exist_ok=True)
        create_table_with_add_actions(
            f"{place.root}/{place.key}" if isinstance(place, StorePath) else str(place),
            Schema.from_arrow(schema),
            [_add(file) for file in files],
            mode="overwrite",
            configuration=_CONFIGURATION,
            storage_options=_store_options(place) if isinstance(place, StorePath) else None,
        )
        table = opened(place)
        assert table is not None
        _synced(place, table.version())
    return table.version()


def _commit(
    place: Place,
    table: "DeltaTable",
    schema: pa.Schema,
    added: Sequence[DataFile],
    removed: Sequence[DataFile],
) -> None:
    from deltalake import Schema
    from deltalake.transaction import RemoveAction

    now = int(time.time() * 1000)
    actions = [_add(file) for file in added]
    actions += [RemoveAction(_name(file), True, now, file.size, {}) for file in removed]
    with _failing(place, OutputError, "cannot write"):
        table.create_write_transaction(actions, "append", Schema.from_arrow(schema))
        table.update_incremental()
        _synced(place, table.version())


def _synced(place: Place, version: int) -> None:
    if isinstance(place, Path):
        sync_file(place / LOG / f"{version:020}.json")


def _add(file: DataFile) -> Any:
    from deltalake.transaction import AddAction

    told = file.statistics or json.dumps({"numRecords": file.rows})
    return AddAction(_name(file), file.size, {}, int(time.time() * 1000), True, told)


def _name(file: DataFile) -> str:
    return file.path.rpartition("/")[2]


@contextmanager
def _failing(place: Place, kind: type[OrderbookError], what: str) -> Iterator[None]:
    from deltalake.exceptions import DeltaError

    try:
        yield
    except (OSError, DeltaError, pa.ArrowException) as error:
        said = " ".join(str(error).split())
        raise kind(f"{place}: {what}: {said}") from error


def statistics_of(footer: pq.FileMetaData, nulls: Mapping[str, int]) -> str:
    """What a table's log says of a file's columns, JSON: rows, `nulls`, least and greatest values."""
    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    for place in range(footer.num_columns):
        columns = [footer.row_group(group).column(place) for group in range(footer.num_row_groups)]
        name = footer.schema.column(place).name
        found = [column.statistics for column in columns]
        if any(one is None for one in found):
            continue
        bounds = [one for one in found if one.has_min_max]
        empty = all(one.has_min_max or one.num_values == 0 for one in found)
        low: list[Any] = [_told(one.min) for one in bounds]
        high: list[Any] = [_told(one.max) for one in bounds]
        if bounds and empty and None not in (*low, *high):
            least[name], greatest[name] = min(low), max(high)
    told = {
        "numRecords": footer.num_rows,
        "minValues": least,
        "maxValues": greatest,
        "nullCount": dict(nulls),
    }
    return json.dumps(told)


def _told(value: Any) -> int | str | None:
    """A bound as a log says it; None: of a kind, or so long, that it says none."""
    if isinstance(value, bool) or not isinstance(value, int | str | datetime):
        return None
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return None if isinstance(value, str) and len(value) > _LONGEST_TEXT else value


def remove_others(folder: Place, kept: dict[str, frozenset[str]]) -> None:
    """Deletes tables of a job's folder that are not among `kept`, and files that are not among a table's own.

    A file of the version before the last stays, for who has begun to read it. What cannot be deleted stays:
    it counts nowhere.
    """
    for group in ("views", "tables", "tentative"):
        for path, names in _found(folder, group).items():
            if path not in kept:
                remove_folder(folder / path)
                continue
            table = opened(folder / path)
            own = set(kept[path])
            for version in () if table is None else range(max(0, table.version() - 1), table.version() + 1):
                with suppress(DataError):
                    own |= {file.path for file in files_of(folder, path, version)}
            for name in names:
                if f"{path}/{name}" not in own:
                    with suppress(OSError, OrderbookError):
                        (folder / path / name).unlink()


def _found(folder: Place, group: str) -> dict[str, list[str]]:
    """The tables in a part of the job's folder, and the names of the files in them, apart from logs."""
    found: dict[str, list[str]] = {}
    with suppress(OSError, OrderbookError):
        below = folder / group
        if isinstance(below, StorePath):
            parts = [file.key[len(below.key) + 1 :].split("/") for file in below.files()]
        else:
            parts = [list(file.relative_to(below).parts) for file in below.glob("*/*")]
        for table, name, *_ in (own for own in parts if len(own) > 1):
            names = found.setdefault(f"{group}/{table}", [])
            if name != LOG:
                names.append(name)
    return found


def remove_folder(place: Place) -> None:
    """Deletes a folder with what is in it, as far as that can be."""
    if isinstance(place, Path):
        shutil.rmtree(place, ignore_errors=True)
        return
    with suppress(OrderbookError):
        for file in list(place.files()):
            file.unlink()
