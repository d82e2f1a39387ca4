"""The manifest of a job folder, `job.json`: which files count, and what they are the result of."""

from typing import Literal

import msgspec

from orderbook.findings import Finding

FORMAT_VERSION = 1

# (stamp, switch, sequence), as in the history's columns.
JobVersion = tuple[int, int, int]
Status = Literal["running", "complete", "failed"]


class Field(msgspec.Struct, frozen=True):
    """A column of a dataset; `type` as Arrow prints it."""

    name: str
    type: str


class DataFile(msgspec.Struct, frozen=True):
    """A Parquet file of a dataset, by its path in the folder; first and last are versions of its rows."""

    path: str
    rows: int
    first: JobVersion
    last: JobVersion


class Dataset(msgspec.Struct, frozen=True):
    """The files of a view's history, or of strategies' orders or fills.

    fields: all columns, in order. keys: those that tell rows apart. columns: for each column of the view its
    name among the fields. tentative: files of a job that goes on, whose rows may still be replaced.
    """

    fields: tuple[Field, ...]
    keys: tuple[str, ...]
    columns: dict[str, str]
    files: tuple[DataFile, ...] = ()
    tentative: tuple[DataFile, ...] = ()

    @property
    def rows(self) -> int:
        """Rows of the files that are committed."""
        return sum(file.rows for file in self.files)


class ProgramText(msgspec.Struct, frozen=True):
    """What was compiled: (file, SQL) of every text, parameters as text, and the program's hash, hex."""

    texts: tuple[tuple[str, str], ...]
    parameters: dict[str, str]
    hash: str


class PartitionStatistics(msgspec.Struct, frozen=True):
    """What one task did: `stage` names its part of the program; seconds are of its own clock."""

    stage: str
    partition: int
    events: int
    rows: int
    seconds: float


class WaitingFile(msgspec.Struct, frozen=True):
    """Rows of a view that a node has committed in an epoch which other nodes have not committed yet."""

    epoch: int
    view: str
    file: DataFile


class TentativeFile(msgspec.Struct, frozen=True):
    """All tentative rows of a view that a node has given."""

    node: str
    view: str
    file: DataFile


class StreamProgress(msgspec.Struct, frozen=True):
    """How far a stream has come.

    layout: tells one way of running it from others: partitions, keys, what keeps states.
    generation: counted from 0, one more whenever it begins from its logs again; batch: the last of that one
    that is in the manifest (-1: none). epoch: the last that all nodes have committed, and its end (ns).
    nodes: the last epoch that each node has committed, by name; ends: where those ended that wait. dead: rows
    that came too late. requested: the last epoch whose end a node asked for.
    """

    layout: str = ""
    generation: int = 0
    batch: int = -1
    epoch: int = 0
    end: int = 0
    nodes: dict[str, int] = {}
    ends: dict[int, int] = {}
    waiting: tuple[WaitingFile, ...] = ()
    tentative: tuple[TentativeFile, ...] = ()
    dead: tuple[DataFile, ...] = ()
    requested: int = 0


class Manifest(msgspec.Struct, frozen=True):
    """See the module. `committed` is the last version that is complete (None: all there is).

    tables: what else was written, by name: `market` and `signals` that strategies saw, tables of the report.
    strategies: by name their parameters, as text; strategy_program has the views that they saw.
    swept: the parameters that a sweep has combinations of; its strategies are called NUMBER:CLASS.
    findings: what makes the result incomplete.
    """

    format: int
    status: Status
    engine: str
    granularity: str
    partitions: int
    sources: tuple[str, ...]
    program: ProgramText
    views: dict[str, Dataset]
    orders: Dataset
    fills: Dataset
    statistics: tuple[PartitionStatistics, ...] = ()
    committed: JobVersion | None = None
    failure: str | None = None
    stream: StreamProgress | None = None
    tables: dict[str, Dataset] = {}
    strategies: dict[str, dict[str, str]] = {}
    swept: tuple[str, ...] = ()
    strategy_program: ProgramText | None = None
    findings: tuple[Finding, ...] = ()

    @property
    def incomplete(self) -> tuple[Finding, ...]:
        """The findings, with rows of a stream that came too late."""
        late = 0 if self.stream is None else sum(file.rows for file in self.stream.dead)
        if not late:
            return self.findings
        todo = "give epochs more time; they are in the files of the manifest's `dead`"
        return (*self.findings, Finding("rows after the end of their epoch", ("the stream",), late, todo))

    @property
    def listed(self) -> frozenset[str]:
        """The paths of all files that count, or will when their epoch is committed."""
        datasets = (*self.views.values(), self.orders, self.fills, *self.tables.values())
        files = [file for dataset in datasets for file in (*dataset.files, *dataset.tentative)]
        if self.stream is not None:
            files += [one.file for one in self.stream.waiting]
            files += [one.file for one in self.stream.tentative]
            files += self.stream.dead
        return frozenset(file.path for file in files)
