"""Data sources of Spark: `orderbook` for views, `orderbook.changes` for what becomes of their rows, also as a
stream, `orderbook.events` and `orderbook.books` for what files hold.

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
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    Filter,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
)
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


class _Stream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads as `orderbook.spark.source_stream.SourceStream` does."""

    def __init__(self, bring: tuple[Any, ...], kind: str, options: Mapping[str, str], names: Sequence[str]):
        self._made = bring[0](*bring[1])(kind, dict(options), list(names))
        self._made_of = bring, kind, dict(options), list(names)

    def __reduce__(self) -> tuple[Any, ...]:
        return _Stream, self._made_of

    def initialOffset(self) -> dict[str, Any]:
        """See DataSourceStreamReader."""
        return self._made.initial()  # type: ignore[no-any-return]

    def getDefaultReadLimit(self) -> ReadLimit:
        """See DataSourceStreamReader."""
        most = self._made.most_files
        return ReadMaxFiles(most) if most else ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """See DataSourceStreamReader."""
        most = limit.max_files if isinstance(limit, ReadMaxFiles) else 0
        return self._made.latest(start, most)  # type: ignore[no-any-return]

    def prepareForTriggerAvailableNow(self) -> None:
        """See SupportsTriggerAvailableNow."""
        self._made.end_here()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """See DataSourceStreamReader."""
        return [InputPartition(one) for one in self._made.partitions(start, end)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """See DataSourceStreamReader."""
        return iter(self._made.read(partition.value))


class _Source(DataSource):
    kind: ClassVar[str]
    bring: ClassVar[tuple[Callable[..., Any], tuple[Any, ...]]]
    bring_stream: ClassVar[tuple[Callable[..., Any], tuple[Any, ...]]]

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

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """See DataSource."""
        return _Stream(type(self).bring_stream, self.kind, self.options, schema.names)

    def _reader(self, names: Sequence[str]) -> _Reader:
        return _Reader(type(self).bring, self.kind, self.options, names)


def register(session: SparkSession | None = None) -> None:
    """Make the formats `orderbook`, `orderbook.changes`, `orderbook.events` and `orderbook.books` known to a
    session, None: the active one; more often does no harm. Raises UserError where no session is active.
    """
    from orderbook.spark.frames import active_session
    from orderbook.spark.source_reader import SourceReader
    from orderbook.spark.source_stream import SourceStream
    from orderbook.spark.workers import own_python, reach

    own = session or active_session()
    brought = {"bring": reach(own).of(SourceReader), "bring_stream": reach(own).of(SourceStream)}
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    for kind in ("orderbook", "orderbook.changes", "orderbook.events", "orderbook.books"):
        made = type("OrderbookSource", (_Source,), {"kind": kind, **brought})
        with _active(own), own_python(own):
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
