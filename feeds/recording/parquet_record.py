"""The project's own record of normalised events: Parquet files that hold EVENT, field by field.

The schema's metadata hold the format's version and the instruments, so that a file stands alone.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from decimal import InvalidOperation
from pathlib import Path
from types import TracebackType

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from orderbook.core.errors import DataError, Problems, SourceError, first_line_of
from orderbook.core.files import ParquetFile
from orderbook.feeds.byte_stream import Blocks
from orderbook.feeds.event_writer import DEFAULT_BATCH_SIZE
from orderbook.feeds.raw_log import InstrumentText
from orderbook.feeds.recording.record_columns import MAY_LACK, fill_events
from orderbook.feeds.storage import Place, open_parquet
from orderbook.market.events import EVENT, Action, Events, Flag, Side
from orderbook.market.instruments import Instrument, Instruments

# Version 1 has no units of prices and volumes: they are tick and lot.
FORMAT_VERSION, _READ_VERSIONS = 2, (1, 2)
ROW_GROUP_SIZE = 1 << 17
# How the name of a file of labels ends, which says what was added to the record beside it.
LABELS = ".labels.parquet"
_METADATA_KEY = b"orderbook.record"
_FIELDS = EVENT.names or ()
_TYPES = {name: pa.from_numpy_dtype(EVENT[name]) for name in _FIELDS}


class _Version(msgspec.Struct):
    version: int


class _Metadata(msgspec.Struct):
    version: int
    instruments: list[InstrumentText]


class RecordWriter:
    """Writes EVENT batches to a Parquet file, in row groups, compressed with zstd.

    The file appears under `path` when the writer is closed; until then its name ends in `.partial`. Use
    it as a context manager: an error inside it keeps what was written. Where the disk refuses, OutputError is
    raised and there is no file. `rows` counts the events.
    """

    def __init__(self, path: Path, instruments: Instruments, row_group_size: int = ROW_GROUP_SIZE):
        self.path = path
        self.rows = 0
        self._row_group_size = row_group_size
        self._waiting: list[Events] = []
        self._waiting_rows = 0
        self._schema = _schema(instruments)
        self._file = ParquetFile(path, self._schema)

    def write(self, events: Events) -> None:
        """Append EVENT[n]; the array may be reused afterwards."""
        self._waiting.append(events.copy())
        self._waiting_rows += len(events)
        self.rows += len(events)
        if self._waiting_rows >= self._row_group_size:
            self._flush()

    def close(self) -> None:
        """Write what is waiting and give the file its name."""
        self._flush()
        self._file.close()

    def __enter__(self) -> "RecordWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _flush(self) -> None:
        if not self._waiting_rows:
            return
        events = np.concatenate(self._waiting)
        self._waiting, self._waiting_rows = [], 0
        columns = [pa.array(np.ascontiguousarray(events[name])) for name in _FIELDS]
        self._file.write(pa.Table.from_arrays(columns, schema=self._schema))


class RecordSource:
    """Events of one or more record files, one file after the other, as they were written.

    Instruments are those of all files; each file's indexes are translated. Batches hold about
    `batch_size` events, and end at the end of a message unless one message alone is longer.

    before: the instruments, with their ticks and lots then, of files that these go on from. unread: of
    MAY_LACK, fields that nobody asks for, which are not read and 0; an exchange time is read where an event
    of its row group has no other.

    Raises SourceError when a file is missing, incomplete, or not a record.
    """

    def __init__(
        self,
        paths: Sequence[Place],
        batch_size: int = DEFAULT_BATCH_SIZE,
        before: Iterable[Instrument] = (),
        unread: Collection[str] = (),
    ):
        self.name = "record:" + ",".join(map(str, paths))
        self.problems = Problems()
        self.counts: Counter[str] = Counter()
        self._paths = tuple(paths)
        self._batch_size, self._unread = batch_size, MAY_LACK.intersection(unread)
        self._rows_read = 0
        self._rows = 0
        instruments: dict[Instrument, int] = {}
        self._indexes: list[NDArray[np.int64]] = []
        self._named: list[Sequence[Instrument]] = []
        for path in self._paths:
            named, metadata = read_footer(path)
            self._rows += metadata.num_rows
            own = [instruments.setdefault(one, len(instruments)) for one in named]
            self._indexes.append(np.array(own, np.int64))
            self._named.append(named)
        try:
            self.instruments = Instruments(instruments)
        except DataError as error:
            raise SourceError(f"{self.name}: ticks or lots differ: {error}; read the files apart") from error
        self._before = {(one.venue, one.symbol): one for one in before}
        # With the ticks and lots of now, as far as it has been read.
        self.known = Instruments(self.instruments)

    @property
    def progress(self) -> float:
        """Fraction of the events read."""
        return self._rows_read / self._rows if self._rows else 1.0

    def __iter__(self) -> Iterator[Events]:
        self._rows_read = 0
        waiting = np.empty(0, EVENT)
        known = self.known = Instruments(self.instruments)
        for index, one in enumerate(self.instruments):
            if (own := self._before.get((one.venue, one.symbol))) is not None:
                known.change(index, own.tick_units, own.lot_units)
        for path, indexes, named in zip(self._paths, self._indexes, self._named, strict=True):
            begun = False
            for count, columns in self._columns(path):
                if not count:
                    continue
                told = np.empty(0, EVENT) if begun else _changed(columns, known, named)
                begun, start = True, len(waiting) + len(told)
                events = np.empty(start + count, EVENT)
                events[: len(waiting)], events[len(waiting) : start] = waiting, told
                with self._told_corrupt(path):
                    whole, changes = fill_events(columns, indexes, events[start:])
                self._rows_read += count
                if changes or len(told):
                    new = events[len(waiting) :]
                    for event in new[new["action"] == Action.INSTRUMENT]:
                        known.change(int(event["instrument"]), int(event["price"]), int(event["volume"]))
                if whole or len(told):
                    whole += start
                if not whole and len(events) >= self._batch_size:
                    whole = len(events)
                if whole:
                    yield events[:whole]
                waiting = events[whole:].copy()
        if len(waiting):
            yield waiting

    def _columns(self, path: Place) -> Iterator[tuple[int, Sequence[NDArray[np.generic] | None]]]:
        """Rows of a file one batch after the other: how many, and their columns in the order of EVENT's
        fields, None for one that is not read."""
        with _open(path) as file, self._told_corrupt(path):
            # One row group after the other, as what a store gives of them is held until the next.
            for group in range(file.num_row_groups):
                unread = self._unread
                if unread and not _has_receive_times(file.metadata.row_group(group)):
                    unread -= {"exchange_time"}
                names = [name for name in _FIELDS if name not in unread]
                for batch in file.iter_batches(self._batch_size, [group], names, use_threads=False):
                    for name in names:
                        if count := batch.column(name).null_count:
                            raise pa.ArrowInvalid(f"{name} is NULL in {count} rows")
                    own = [None if n in unread else np.from_dlpack(batch.column(n)) for n in _FIELDS]
                    yield len(batch), own

    @contextmanager
    def _told_corrupt(self, path: Place) -> Iterator[None]:
        try:
            yield
        except (pa.ArrowException, OSError, IndexError) as error:
            raise SourceError(
                f"{path}: corrupt after event {self._rows_read}: {first_line_of(error)}; "
                "everything before it was read; get the file again"
            ) from error


def _has_receive_times(group: pq.RowGroupMetaData) -> bool:
    """Whether each event of a row group is known to have a receive time."""
    columns = map(group.column, range(group.num_columns))
    found = next(one for one in columns if one.path_in_schema == "receive_time").statistics
    return found is not None and found.has_min_max and found.min > 0


def _changed(
    columns: Sequence[NDArray[np.generic] | None], known: Instruments, named: Sequence[Instrument]
) -> Events:
    """At the beginning of a file the events of ticks and lots that are other ones than before it."""
    changed = []
    for one in named:
        index = known.index(one.venue, one.symbol)
        if (known[index].tick, known[index].lot) != (one.tick, one.lot):
            changed.append((index, one.tick_units, one.lot_units))
    told = np.zeros(len(changed), EVENT)
    for name in ("exchange_time", "receive_time"):
        column = columns[_FIELDS.index(name)]
        told[name] = 0 if column is None else column[0]
    told["action"], told["side"], told["flags"] = Action.INSTRUMENT, Side.NONE, Flag.LAST
    for row, (index, tick, lot) in zip(told, changed, strict=True):
        row["instrument"], row["price"], row["volume"] = index, tick, lot
    return told


def read_footer(path: Place) -> tuple[list[Instrument], pq.FileMetaData]:
    """The instruments of a record file, and its Parquet metadata. Raises SourceError as RecordSource does."""
    with _open(path) as file:
        return _instruments(path, file), file.metadata


def times_of(metadata: pq.FileMetaData) -> tuple[int, int]:
    """The times of a record's earliest and latest event, ns, by the footer; (0, 0) where it has none."""
    names = metadata.schema.names
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    for name in ("receive_time", "exchange_time"):
        statistics = [group.column(names.index(name)).statistics for group in groups]
        bounds = [s for s in statistics if s is not None and s.has_min_max]
        lows, highs = [s.min for s in bounds if s.max], [s.max for s in bounds if s.max]
        if lows:
            return min(lows), max(highs)
    return 0, 0


def is_record(schema: pa.Schema) -> bool:
    """Whether a Parquet file with this schema is a record of events."""
    return all(name in schema.names and schema.field(name).type == _TYPES[name] for name in _FIELDS)


def _open(path: Place) -> pq.ParquetFile:
    try:
        file = open_parquet(path)
    except (OSError, pa.ArrowException) as error:
        if path.exists() and not path.is_dir():
            # It says where a file was compressed as a whole.
            next(iter(Blocks(path)), None)
        said = first_line_of(error)
        raise SourceError(
            f"{path}: cannot read as a Parquet record: {said}; check that it is there and whole"
        ) from error
    if not is_record(file.schema_arrow):
        file.close()
        raise SourceError(f"{path}: Parquet, but not a record of events; write records with RecordWriter")
    return file


def _schema(instruments: Instruments) -> pa.Schema:
    texts = [InstrumentText.of(one) for one in instruments]
    metadata = {_METADATA_KEY: msgspec.json.encode(_Metadata(FORMAT_VERSION, texts))}
    fields = [pa.field(name, _TYPES[name], nullable=False) for name in _FIELDS]
    return pa.schema(fields, metadata)


def _instruments(path: Place, file: pq.ParquetFile) -> list[Instrument]:
    stored = (file.schema_arrow.metadata or {}).get(_METADATA_KEY, b"")
    try:
        # Of another version, all else may be otherwise.
        version = msgspec.json.decode(stored, type=_Version).version
        if version not in _READ_VERSIONS:
            raise SourceError(
                f"{path}: record version {version}, this program reads {FORMAT_VERSION}; read it with the "
                "version of the program that wrote it, or record again"
            )
        metadata = msgspec.json.decode(stored, type=_Metadata)
        return [text.instrument for text in metadata.instruments]
    except (msgspec.DecodeError, InvalidOperation, DataError) as error:
        raise SourceError(f"{path}: the record's metadata are broken ({error}); write it anew") from error
