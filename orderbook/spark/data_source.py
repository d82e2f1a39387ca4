"""Data sources of Spark: `orderbook` for views, `orderbook.events` and `orderbook.books` for what files hold.

The classes here are pickled with their code, since Spark asks them in processes that may not have the
project yet: they bring it as `orderbook.spark.workers.reach` says, and do nothing themselves.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

from pyspark import cloudpickle
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType


class _Reader(DataSourceReader):
    """Reads as `orderbook.spark.source_reader.SourceReader` does."""

    def __init__(self, bring: tuple[Any, ...], kind: str, options: Mapping[str, str], names: Sequence[str]):
        self._made = bring[0](*bring[1])(kind, dict(options), list(names))
        self._bring, self._made_of = bring, (kind, dict(options), list(names))
        self.pushFilters = _Push(self)  # type: ignore[method-assign]

    def __reduce__(self) -> tuple[Any, ...]:
        # Nothing that is unpickled before the project is there may need it.
        return _read_again, (self._bring, self._made_of, self._made.pushed.plain)

    def push(self, filters: list[Filter]) -> list[Filter]:
        """Notes what filters say of symbols and times; Spark applies all of them itself, too."""
        self._made.push(filters)
        return filters

    def partitions(self) -> list[InputPartition]:
        """See DataSourceReader."""
        return [InputPartition(one) for one in self._made.partitions()]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """See DataSourceReader."""
        return iter(() if partition.value is None else self._made.read(partition.value))


class _Push:
    """The method `pushFilters` of a reader.

    Spark calls it where `spark.sql.python.filterPushdown.enabled` is set, and where it is not refuses readers
    that have one of their own, as `__func__` tells; that setting is the user's.
    """

    def __init__(self, reader: _Reader) -> None:
        self._reader = reader
        self.__func__ = DataSourceReader.pushFilters

    def __call__(self, filters: list[Filter]) -> list[Filter]:
        return self._reader.push(filters)


def _read_again(bring: tuple[Any, ...], made_of: tuple[Any, ...], pushed: tuple[Any, ...]) -> _Reader:
    reader = _Reader(bring, *made_of)
    reader._made.keep(pushed)
    return reader


class _Source(DataSource):
    kind: ClassVar[str]
    bring: ClassVar[tuple[Callable[..., Any], tuple[Any, ...]]]

    @classmethod
    def name(cls) -> str:
        """See DataSource."""
        return cls.kind

    def schema(self) -> str:
        """See DataSource."""
        found: str = self._reader([])._made.schema()
        return found

    def reader(self, schema: StructType) -> DataSourceReader:
        """See DataSource."""
        return self._reader(schema.names)

    def _reader(self, names: Sequence[str]) -> _Reader:
        return _Reader(type(self).bring, self.kind, self.options, names)


def register(session: SparkSession | None = None) -> None:
    """Make the formats `orderbook`, `orderbook.events` and `orderbook.books` known to a session, None: the
    active one; more often does no harm. Raises UserError where no session is active.
    """
    from orderbook.spark.frames import active_session
    from orderbook.spark.source_reader import SourceReader
    from orderbook.spark.workers import reach

    own = session or active_session()
    bring = reach(own).of(SourceReader)
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    for kind in ("orderbook", "orderbook.events", "orderbook.books"):
        made = type("OrderbookSource", (_Source,), {"kind": kind, "bring": bring})
        with _active(own):
            try:
                own.dataSource.register(made)
            except AnalysisException as error:
                if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
                    raise


@contextmanager
def _active(session: SparkSession) -> Iterator[None]:
    """Spark looks for a format of that name in the session that is active, whichever it is registered in."""
    java = getattr(session, "_jsparkSession", None)
    if java is None:  # Connect has one session
        yield
        return
    sessions = SparkSession._get_j_spark_session_class(session._jvm)
    before = sessions.getActiveSession()
    sessions.setActiveSession(java)
    try:
        yield
    finally:
        if before.isDefined():
            sessions.setActiveSession(before.get())
        else:
            sessions.clearActiveSession()
