"""Reading a job: rows of its views as of a version, their history, orders and fills, and SQL over them."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import polars as pl

from orderbook.core.errors import DataError, UserError, suggestion
from orderbook.feeds.storage import Place, place, stored_dataset
from orderbook.jobs.datasets import (
    GONE,
    MULTIPLICITY,
    PLACE,
    VERSION_COLUMNS,
    Dataset,
    Field,
    JobVersion,
    nanosecond_columns,
)
from orderbook.jobs.folder import Manifest, read_manifest

_VERSION = ", ".join(VERSION_COLUMNS)
# DuckDB's names of the types that `Field` has.
_TIME = "TIMESTAMP_NS"
_TYPES = {"int64": "BIGINT", "double": "DOUBLE", "bool": "BOOLEAN", "string": "VARCHAR"}


@cache
def _database(process: int) -> duckdb.DuckDBPyConnection:
    """One for all reading of a process, as it takes 20 ms to begin; it holds nothing of files it has read."""
    return duckdb.connect(config={"enable_external_file_cache": "false"})


def open_job(folder: str | Place) -> "Job":
    """The job in a folder, a path or a URL, as its manifest is now. Raises UserError where there is none."""
    found = place(folder) if isinstance(folder, str) else folder
    return Job(found, read_manifest(found))


class Job:
    """One state of a job; open it again to see what a job that goes on has written since.

    Versions are (stamp, switch, sequence); as_of None is the last that is committed. With `tentative` rows
    are those of a job that goes on, which may still be replaced. DECIMAL columns are Decimal(38, scale),
    timestamps Datetime("ns") in UTC. Raises UserError for a name that the job does not have.
    """

    def __init__(self, folder: Place, manifest: Manifest) -> None:
        self.folder = folder
        self.manifest = manifest

    @property
    def views(self) -> tuple[str, ...]:
        """The views whose histories were written."""
        return tuple(self.manifest.views)

    def view(self, name: str, as_of: JobVersion | None = None, *, tentative: bool = False) -> pl.DataFrame:
        """The rows of a view as of a version, each as often as it stands, sorted by key."""
        dataset = self._dataset(name)
        return self._frame(
            dataset, f"{self._rows(dataset, as_of, tentative)} ORDER BY {_names(dataset.keys) or 1}"
        )

    def lookup(
        self, name: str, key: Sequence[Any], as_of: JobVersion | None = None, *, tentative: bool = False
    ) -> dict[str, Any] | None:
        """The row of a view with that key (values in the order of the view's keys); None: there is none."""
        dataset = self._dataset(name)
        if len(key) != len(dataset.keys):
            wanted = ", ".join(dataset.keys) or "none, for it has one row"
            raise UserError(f"view {name}: {len(key)} values are no key of it; its keys are {wanted}")
        types = {field.name: _sql_type(field.type) for field in dataset.fields}
        where = " AND ".join(f"{_quoted(k)} IS NOT DISTINCT FROM CAST(? AS {types[k]})" for k in dataset.keys)
        query = self._rows(dataset, as_of, tentative, where or "true")
        rows = self._frame(
            dataset, query, [str(part) if part is not None else None for part in key]
        ).to_dicts()
        return rows[0] if rows else None

    def history(self, name: str, *, tentative: bool = False) -> pl.DataFrame:
        """Every row of a view's history, in the order of versions, then by key."""
        dataset = self._dataset(name)
        order = ", ".join(filter(None, (_VERSION, _names(dataset.keys))))
        return self._frame(dataset, f"SELECT * FROM {self._files(dataset, tentative)} ORDER BY {order}")

    def orders(self, as_of: JobVersion | None = None) -> pl.DataFrame:
        """Strategies' orders as they stood at a version: what the relation `orders` then held."""
        dataset = self.manifest.orders
        return self._frame(dataset, f"{self._rows(dataset, as_of)} ORDER BY strategy, partition_key, id")

    def order_changes(self) -> pl.DataFrame:
        """Every change of strategies' orders, in the order of versions."""
        return self._placed(self.manifest.orders)

    def fills(self) -> pl.DataFrame:
        """Every fill of strategies' orders, in the order of versions."""
        return self._placed(self.manifest.fills)

    def table(self, name: str) -> pl.DataFrame:
        """Every row of one of the manifest's tables, in the order of its columns; empty where there is
        none."""
        dataset = self.manifest.tables.get(name)
        if dataset is None:
            return pl.DataFrame()
        return self._frame(dataset, f"SELECT * FROM {self._files(dataset, False)} ORDER BY ALL")

    def sql(self, query: str, as_of: JobVersion | None = None) -> pl.DataFrame:
        """What a query of DuckDB's SQL gives.

        Tables: the views, `orders` and `fills` as of the version, and others of the manifest; in the schema
        `history` every row of each.
        Raises UserError with DuckDB's message.
        """
        datasets = self._datasets()
        with self._knowing(duckdb.connect(), *datasets.values()) as connection:
            connection.execute("CREATE SCHEMA history")
            for name, dataset in datasets.items():
                rows = self._rows(dataset, as_of)
                connection.execute(f"CREATE VIEW {_quoted(name)} AS {rows}")
                files = self._files(dataset, False)
                connection.execute(f"CREATE VIEW history.{_quoted(name)} AS SELECT * FROM {files}")
            try:
                relation = connection.sql(query)
                found: pl.DataFrame = pl.DataFrame() if relation is None else relation.pl()
                return found
            except duckdb.Error as error:
                raise UserError(f"query: {' '.join(str(error).split())}") from None

    def _datasets(self) -> dict[str, Dataset]:
        manifest = self.manifest
        return {**manifest.tables, **manifest.views, "orders": manifest.orders, "fills": manifest.fills}

    def _dataset(self, name: str) -> Dataset:
        views = self.manifest.views
        if name not in views:
            raise UserError(f"{self.folder}: no history of view {name!r}; {suggestion(name, views)}")
        return views[name]

    def _placed(self, dataset: Dataset) -> pl.DataFrame:
        order = f"{_VERSION}, strategy, partition_key, {PLACE}"
        return self._frame(dataset, f"SELECT * FROM {self._files(dataset, False)} ORDER BY {order}")

    def _frame(self, dataset: Dataset, query: str, parameters: Sequence[Any] = ()) -> pl.DataFrame:
        with self._knowing(_database(os.getpid()).cursor(), dataset) as connection:
            try:
                found: pl.DataFrame = connection.sql(query, params=list(parameters)).pl()
                return found
            except duckdb.ConversionException as error:
                reason = str(error).partition("\n")[0]
                raise UserError(f"a value does not fit its column: {reason}") from None
            except duckdb.IOException as error:
                raise DataError(f"{self.folder}: a file of the job is damaged or gone: {error}") from None

    @contextmanager
    def _knowing(
        self, connection: duckdb.DuckDBPyConnection, *datasets: Dataset
    ) -> Iterator[duckdb.DuckDBPyConnection]:
        """A connection that knows the files of these datasets, where they are in a store."""
        with connection:
            for dataset in datasets:
                for file in (*dataset.files, *dataset.tentative):
                    where = self.folder / file.path
                    if not isinstance(where, Path):
                        connection.register(file.path, stored_dataset(where))
            yield connection

    def _files(self, dataset: Dataset, tentative: bool) -> str:
        """The rows of a dataset's files as a table of SQL, up to the committed version."""
        files = (*dataset.files, *(dataset.tentative if tentative else ()))
        if not files:
            nulls = (f"CAST(NULL AS {_sql_type(f.type)}) AS {_quoted(f.name)}" for f in dataset.fields)
            return f"(SELECT {', '.join(nulls)} WHERE false)"
        nanoseconds = nanosecond_columns(dataset)
        names = ", ".join(_read(field, nanoseconds.get(field.name)) for field in dataset.fields)
        last = self.manifest.committed
        where = "" if last is None or tentative else f" WHERE ({_VERSION}) <= {tuple(last)}"
        if isinstance(self.folder, Path):
            paths = ", ".join(_text(str(self.folder / file.path)) for file in files)
            return f"(SELECT {names} FROM read_parquet([{paths}]){where})"
        every = " UNION ALL ".join(f"SELECT * FROM {_quoted(file.path)}" for file in files)
        return f"(SELECT {names} FROM ({every}){where})"

    def _rows(
        self, dataset: Dataset, as_of: JobVersion | None, tentative: bool = False, where: str = "true"
    ) -> str:
        """A query for the rows as of a version: of each key the last, unless it is gone."""
        fields = {field.name for field in dataset.fields}
        columns = ", ".join(f"{_quoted(own)} AS {_quoted(name)}" for name, own in dataset.columns.items())
        if VERSION_COLUMNS[0] not in fields:
            return f"SELECT {columns} FROM {self._files(dataset, tentative)}"
        until = "true" if as_of is None else f"({_VERSION}) <= {tuple(as_of)}"
        newest = ", ".join(f"{name} DESC" for name in (*VERSION_COLUMNS, PLACE) if name in fields)
        partition = f"PARTITION BY {_names(dataset.keys)} " if dataset.keys else ""
        last = (
            f"SELECT * FROM {self._files(dataset, tentative)} WHERE {until} AND ({where}) "
            f"QUALIFY row_number() OVER ({partition}ORDER BY {newest}) = 1"
        )
        if GONE not in fields:
            return f"SELECT {columns} FROM ({last})"
        return (
            f"SELECT {columns} FROM (SELECT *, unnest(range({MULTIPLICITY})) AS copy "
            f"FROM ({last}) WHERE NOT {GONE})"
        )


def _names(names: Sequence[str]) -> str:
    return ", ".join(map(_quoted, names))


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _read(field: Field, nanoseconds: str | None) -> str:
    """A column of a file as SQL; times, which are in UTC, without a zone."""
    name = _quoted(field.name)
    return name if nanoseconds is None else f"make_timestamp_ns({_quoted(nanoseconds)}) AS {name}"


def _sql_type(text: str) -> str:
    if text.startswith("decimal128"):
        return text.replace("decimal128", "DECIMAL")
    return _TYPES.get(text, _TIME)
