"""The folder of a job: its manifest `job.json`, and the tables that hold its rows.

The manifest says what the job is of, how far it is, and which version of each table belongs to that; it is
replaced as a whole. A job's folder is a path, or in an object store.
"""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Literal

import msgspec

from orderbook.core.errors import SourceError, StoreError, UserError
from orderbook.core.files import refuse_url, replace_file
from orderbook.feeds.source import Finding
from orderbook.feeds.storage import Place
from orderbook.jobs.datasets import DataFile, Dataset, JobVersion
from orderbook.jobs.tables import check_store, committed, files_of, remove_others

FORMAT_VERSION = 2

# How long after a sample or a fill the table `market` has the touch, too, ns.
HORIZONS = tuple(10**6 * length for length in (10, 100, 300, 1_000, 3_000, 10_000, 30_000, 60_000))
# In place of a view in the table `signals`: what every signal is measured against.
BASELINES = "(market)"

# The table of rows of a stream that came after the end of their epoch.
DEAD_LETTERS = "dead_letters"
Status = Literal["running", "complete", "failed"]


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
    nodes: the last epoch that each node has committed, by name; ends: where those ended that wait.
    requested: the last epoch whose end a node asked for.
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
    requested: int = 0


class ContractTraded(msgspec.Struct, frozen=True):
    """An instrument that strategies traded: `size`, a number as text, is what one of the volumes is;
    `inverse`: of the quote currency, while profit is in the base. currency: of profit and fees, "" where it
    is not known."""

    venue: str
    symbol: str
    size: str
    inverse: bool
    currency: str = ""


class Manifest(msgspec.Struct, frozen=True):
    """See the module. `committed` is the last version that is complete (None: all there is).

    tables: what else was written, by name: `market` and `signals` that strategies saw, tables of the report.
    strategies: by name their parameters, as text; strategy_program has the views that they saw.
    swept: the parameters that a sweep has combinations of; its strategies are called NUMBER:CLASS.
    findings: what makes the result incomplete. horizons: HORIZONS of the table `market`. contracts: those
    that strategies traded.
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
    horizons: tuple[int, ...] = ()
    contracts: tuple[ContractTraded, ...] = ()

    @property
    def incomplete(self) -> tuple[Finding, ...]:
        """The findings, with rows of a stream that came too late."""
        late = self.tables[DEAD_LETTERS].rows if DEAD_LETTERS in self.tables else 0
        if not late:
            return self.findings
        todo = "give epochs more time; they are in the table `dead_letters`"
        return (*self.findings, Finding("rows after the end of their epoch", ("the stream",), late, todo))

    def with_datasets(self, change: Callable[[Dataset], Dataset]) -> "Manifest":
        """With every dataset changed in the same way."""
        return msgspec.structs.replace(
            self,
            views={name: change(one) for name, one in self.views.items()},
            orders=change(self.orders),
            fills=change(self.fills),
            tables={name: change(one) for name, one in self.tables.items()},
        )

    @property
    def datasets(self) -> tuple[Dataset, ...]:
        """All of them."""
        return (*self.views.values(), self.orders, self.fills, *self.tables.values())

    @property
    def listed(self) -> frozenset[str]:
        """The paths of all files that count, or will when their epoch is committed."""
        files = [file for dataset in self.datasets for file in (*dataset.files, *dataset.tentative)]
        if self.stream is not None:
            files += [one.file for one in self.stream.waiting]
        return frozenset(file.path for file in files)


MANIFEST = "job.json"
# Folders of what a job tells while it runs, or goes on from.
_OWN = ("views", "tables", "tentative", "progress", "finished")


def create_folder(folder: Place) -> None:
    """Make a job's folder, or take one that is empty or holds another job, also one that could not begin.

    Raises UserError where it holds something else or is a URL of no store that is written to, SourceError
    where it cannot be made.
    """
    check_store(folder)
    if not isinstance(folder, Path):
        if not (folder / MANIFEST).is_file() and not all(map(_is_of_a_job, folder.glob("*"))):
            raise UserError(f"--out {folder}: holds something that is not a job; name another folder")
        return
    refuse_url(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / MANIFEST).is_file() and not all(map(_is_of_a_job, folder.iterdir())):
            raise UserError(f"--out {folder}: holds something that is not a job; name another folder")
    except OSError as error:
        raise SourceError(f"{folder}: cannot make the job's folder: {error.strerror or error}") from None


def _is_of_a_job(path: Place) -> bool:
    """Whether it is what a job leaves whose first manifest could not be written."""
    return path.name in _OWN or path.name.startswith(f".{MANIFEST}.")


def write_manifest(folder: Place, manifest: Manifest, tables: bool = True) -> Manifest:
    """Makes the tables have the files that the manifest has, then replaces it; the manifest as it is then.

    A reader of a table sees its commit, each table's own; one of the manifest sees all of them, or none.
    tables: False where those of the job before are left as they are. Raises OutputError.
    """
    if tables:
        manifest = manifest.with_datasets(lambda one: _committed(folder, one))
    plain = manifest.with_datasets(lambda one: msgspec.structs.replace(one, files=(), tentative=()))
    data = msgspec.json.format(msgspec.json.encode(plain), indent=1)
    put(folder / MANIFEST, data)
    return manifest


def put(where: Place, data: bytes) -> None:
    """Put a file there, whole, in place of one of that name. Raises OutputError, StoreError."""
    if isinstance(where, Path):
        replace_file(where, data)
    else:
        where.write_bytes(data)


def _committed(folder: Place, one: Dataset) -> Dataset:
    version, files = committed(folder, one.path, one, one.version, one.files)
    early, tentative = one.tentative_version, one.tentative
    if tentative or early >= 0:
        early, _ = committed(folder, one.tentative_path, one, early, tentative)
    return msgspec.structs.replace(one, version=version, files=tuple(files), tentative_version=early)


def read_manifest(folder: Place) -> Manifest:
    """Raises UserError where there is no job of this format, DataError where a table is damaged."""
    path = folder / MANIFEST
    try:
        data = path.read_bytes()
    except StoreError as error:
        raise UserError(f"{folder}: no job there; name the --out of a backtest ({error})") from None
    except OSError:
        raise UserError(f"{folder}: no job there (no {MANIFEST}); name the --out of a backtest") from None
    try:
        head = msgspec.json.decode(data)
        if head.get("format") != FORMAT_VERSION:
            raise UserError(
                f"{path}: format {head.get('format')}, this program reads {FORMAT_VERSION}; read it with "
                "the version of the program that wrote it, or run the job again into another folder"
            )
        return msgspec.json.decode(data, type=Manifest).with_datasets(lambda one: _with_files(folder, one))
    except (msgspec.MsgspecError, AttributeError) as error:
        raise UserError(f"{path}: not a manifest of a job: {error}") from None


def _with_files(folder: Place, one: Dataset) -> Dataset:
    return msgspec.structs.replace(
        one,
        files=files_of(folder, one.path, one.version),
        tentative=files_of(folder, one.tentative_path, one.tentative_version),
    )


def remove_unlisted(folder: Place, manifest: Manifest) -> None:
    """Delete files of tables that count in no version, of retried and failed tasks; when no task runs."""
    listed = manifest.listed
    paths = [path for one in manifest.datasets for path in (one.path, one.tentative_path)]
    own = {path: frozenset(name for name in listed if name.startswith(f"{path}/")) for path in paths}
    with suppress(OSError):
        remove_others(folder, own)
