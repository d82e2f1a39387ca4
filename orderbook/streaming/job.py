"""The job of a stream: begun, or gone on with where it stopped; its outputs, batch by batch, each once.

Outputs go to the job's folder. There are fewer files of what is committed: small ones of a view are joined,
so that a long stream is quick to read.
"""

import shutil
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import parquet as pq

from orderbook.backtesting.tasks import JobSettings, begun_manifest, check_program
from orderbook.core.errors import SourceError, UserError
from orderbook.engine.distribution.message_versions import LOOK
from orderbook.jobs.datasets import (
    VERSION_COLUMNS,
    DataFile,
    Dataset,
    JobVersion,
    rows_of,
    table_dataset,
)
from orderbook.jobs.folder import (
    DEAD_LETTERS,
    MANIFEST,
    Manifest,
    StreamProgress,
    TentativeFile,
    WaitingFile,
    create_folder,
    read_manifest,
    remove_unlisted,
    write_manifest,
)
from orderbook.jobs.writers import DatasetWriter
from orderbook.streaming.block_log import check_relations, log_folders, read_headers
from orderbook.streaming.encoding import DEAD_SCHEMA, read_dead, read_files, read_tables, read_versions
from orderbook.streaming.plan import CHAIN, StreamSettings, plan_of
from orderbook.streaming.shuffle import DEAD, FINAL, REQUEST, TENTATIVE, ShuffleRow

CHECKPOINTS = "checkpoints"


def start_stream(
    job: JobSettings, logs: Sequence[str], log_limit: int = 0, chain: int = CHAIN
) -> tuple[StreamSettings, list[Path]]:
    """Makes the job's folder ready; what tasks need, and the folders of the logs.

    A folder with a stream of the same program, logs and layout goes on where that stopped. With other
    partitions it begins a new generation, which reads the logs from their beginning; what is committed stays,
    and is not given again. Raises UserError where something else differs, or logs are not complete.
    """
    check_stream(job)
    folders = log_folders(logs)
    headers = read_headers(folders)
    settings = StreamSettings(job, len(headers), chain, 0, log_limit)
    plan = plan_of(settings)
    check_relations(headers[0], plan.read)
    folder, begun = Path(job.folder), StreamProgress(plan.digest)
    fresh = begun_manifest(
        job, "spark", map(str, folders), committed=(0, -1, -1), stream=begun, tables={DEAD_LETTERS: _DEAD}
    )
    before = read_manifest(folder) if (folder / MANIFEST).is_file() else None
    if before is not None and before.stream is not None:
        manifest = _resumed(folder, before, fresh)
    else:
        create_folder(folder)
        shutil.rmtree(folder / CHECKPOINTS, ignore_errors=True)
        manifest = fresh
    progress = manifest.stream or StreamProgress()
    if progress.batch < 0:
        _check_complete(folders)
    manifest = write_manifest(folder, manifest)
    remove_unlisted(folder, manifest)
    settings = replace(settings, generation=progress.generation)
    _remove_others(checkpoint(settings))
    return settings, folders


def _remove_others(kept: Path) -> None:
    """Deletes the states of earlier generations."""
    for path in kept.parent.glob("*"):
        if path != kept:
            shutil.rmtree(path, ignore_errors=True)


def check_stream(job: JobSettings) -> None:
    """Refuse what a stream cannot do. Raises UserError."""
    check_program(job)
    if not job.views:
        raise UserError("a stream keeps views; name one with --view")
    if job.strategies:
        raise UserError("strategies do not run in a stream; use `run` live, or `backtest` over recordings")
    if job.granularity.unit == "end":
        raise UserError("--granularity end: a stream has no end; give event, message or interval:LENGTH")


def checkpoint(settings: StreamSettings) -> Path:
    """The folder of what carries the stream, of this generation."""
    return _checkpoint(Path(settings.job.folder), settings.generation)


def _checkpoint(folder: Path, generation: int) -> Path:
    return folder / CHECKPOINTS / str(generation)


def ended(folder: Path, failure: str | None = None) -> None:
    """Says in the manifest that nothing runs any more."""
    status = "complete" if failure is None else "failed"
    write_manifest(folder, msgspec.structs.replace(read_manifest(folder), status=status, failure=failure))


def _resumed(folder: Path, before: Manifest, fresh: Manifest) -> Manifest:
    for what in ("sources", "granularity"):
        if getattr(before, what) != getattr(fresh, what):
            raise UserError(f"{folder}: a stream of other {what}; name another --out")
    if before.program.hash != fresh.program.hash or before.views.keys() != fresh.views.keys():
        raise UserError(f"{folder}: a stream of other views; name another --out")
    running = msgspec.structs.replace(before, status="running", failure=None)
    assert before.stream is not None and fresh.stream is not None
    # Batches are counted in the checkpoint: without it they would be taken for those that are there.
    there = before.stream.batch < 0 or _checkpoint(folder, before.stream.generation).is_dir()
    if before.stream.layout == fresh.stream.layout and there:
        return running
    progress = msgspec.structs.replace(
        before.stream,
        layout=fresh.stream.layout,
        generation=before.stream.generation + 1, batch=-1, nodes={}, ends={}, waiting=(), tentative=(),
    )  # fmt: skip
    views = {name: msgspec.structs.replace(one, tentative=()) for name, one in before.views.items()}
    return msgspec.structs.replace(running, partitions=fresh.partitions, views=views, stream=progress)


def _check_complete(folders: Sequence[Path]) -> None:
    for folder in folders:
        first = min((path.name for path in folder.glob("[0-9]*.parquet")), default=None)
        if first is not None and int(first.partition(".")[0]) != 1:
            raise UserError(f"{folder}: the log's beginning is gone; a stream begins with the first message")


# Files with fewer rows are joined when there are so many of them.
_SMALL_ROWS, _MOST_SMALL = 1 << 18, 64


def compacted(folder: Path, view: str, dataset: Dataset, files: Sequence[DataFile]) -> tuple[DataFile, ...]:
    """The files of a view, or fewer with the same rows. Raises SourceError where they cannot be read."""
    small = [file for file in files if file.rows < _SMALL_ROWS]
    if len(small) <= _MOST_SMALL:
        return tuple(files)
    try:
        tables = [pq.read_table(folder / file.path) for file in small]
    except (OSError, pa.ArrowException) as error:
        raise SourceError(f"{folder}: cannot read a file of view {view}: {error}") from None
    table = pa.concat_tables(tables).sort_by([(name, "ascending") for name in VERSION_COLUMNS])
    writer = DatasetWriter(folder, dataset)
    writer.write(rows_of(dataset, table))
    return (*(file for file in files if file.rows >= _SMALL_ROWS), *writer.close())


_DEAD = table_dataset(DEAD_LETTERS, DEAD_SCHEMA)
# Seconds that a file stays which is in no version any more, for who has begun to read it.
_SECONDS_KEPT = 300.0


class StreamSink:
    """Takes what the nodes of a stream give out. shown: the names of those that hold views.

    asked: called with an epoch whose end a node asks for.

    The manifest names the last batch in it, so that a batch that comes again changes nothing; of a batch that
    was not finished nothing counts. Tentative rows of a node are one file a view; what a node commits waits
    until all nodes have committed the epoch.
    """

    def __init__(
        self, folder: Path, shown: Sequence[str], asked: Callable[[int], None] = lambda _: None
    ) -> None:
        self._folder, self._shown, self._asked = folder, tuple(shown), asked
        self._manifest = read_manifest(folder)
        self._retired: deque[tuple[float, frozenset[str]]] = deque()
        self._tentative: dict[tuple[str, str], pa.Table] = {}
        for one in self.progress.tentative:
            self._tentative[one.node, one.view] = self._read(one.view, one.file)
        # A driver may have ended before it could ask.
        self._ask(self.progress.epoch)

    @property
    def progress(self) -> StreamProgress:
        """How far the manifest is."""
        return self._manifest.stream or StreamProgress()

    @property
    def manifest(self) -> Manifest:
        """As it was written last."""
        return self._manifest

    def take(self, batch: int, outputs: Iterable[ShuffleRow]) -> bool:
        """Takes one batch in; False: it was there already. Raises OutputError where it cannot be written."""
        if batch <= self.progress.batch:
            return False
        found = _Batch(self.progress)
        changed: set[tuple[str, str]] = set()
        for one in outputs:
            if one.kind == TENTATIVE:
                changed |= self._replace(node_name(one.sender), one)
            else:
                found.note(node_name(one.sender), one)
        committed = found.commit(self._shown)
        changed |= self._cut(found.end)
        progress = msgspec.structs.replace(
            self.progress,
            batch=batch, epoch=found.epoch, end=found.end, nodes=found.nodes, ends=found.ends,
            waiting=tuple(found.waiting), requested=found.requested,
            tentative=self._written(changed),
        )  # fmt: skip
        before = self.progress.requested
        self._publish(progress, committed, self._dead(found.dead))
        self._ask(before)
        return True

    def _ask(self, before: int) -> None:
        """Passes on a request for the end of an epoch that is later than that."""
        if self.progress.requested > before:
            self._asked(self.progress.requested)

    def _publish(
        self, progress: StreamProgress, committed: Sequence[WaitingFile], dead: Sequence[DataFile]
    ) -> None:
        before = self._manifest
        views = {}
        for name, dataset in before.views.items():
            files = (*dataset.files, *(one.file for one in committed if one.view == name))
            files = compacted(self._folder, name, dataset, files)
            early = tuple(one.file for one in progress.tentative if one.view == name)
            views[name] = msgspec.structs.replace(dataset, files=files, tentative=early)
        letters = before.tables[DEAD_LETTERS]
        letters = msgspec.structs.replace(letters, files=(*letters.files, *dead))
        self._manifest = write_manifest(
            self._folder,
            msgspec.structs.replace(
                before, views=views, committed=version_before(progress.end), stream=progress,
                tables={**before.tables, DEAD_LETTERS: letters},
            ),
        )  # fmt: skip
        now = time.monotonic()
        self._retired.append((now, before.listed - self._manifest.listed))
        while self._retired and self._retired[0][0] < now - _SECONDS_KEPT:
            for path in self._retired.popleft()[1]:
                (self._folder / path).unlink(missing_ok=True)

    def _replace(self, node: str, output: ShuffleRow) -> set[tuple[str, str]]:
        """Puts a node's rows of some versions in place of what it has said of them."""
        versions, tables = read_versions(output.more), read_tables(output.bytes)
        changed = set()
        for key, table in self._tentative.items():
            if key[0] == node:
                kept = table.filter(pa.array(~np.isin(_versions(table), versions)))
                if kept.num_rows < table.num_rows:
                    self._tentative[key] = kept
                    changed.add(key)
        for view, table in tables.items():
            key = node, view
            parts = [self._tentative[key], table] if key in self._tentative else [table]
            self._tentative[key] = pa.concat_tables(parts)
            changed.add(key)
        return changed

    def _cut(self, end: int) -> set[tuple[str, str]]:
        """Forgets tentative rows of versions that are committed."""
        changed = set()
        for key, table in self._tentative.items():
            early = table["stamp"].to_numpy() < end
            if early.any():
                self._tentative[key] = table.filter(pa.array(~early))
                changed.add(key)
        return changed

    def _written(self, changed: set[tuple[str, str]]) -> tuple[TentativeFile, ...]:
        """The files of all tentative rows, those of nodes and views that changed written again."""
        found = [one for one in self.progress.tentative if (one.node, one.view) not in changed]
        for node, view in sorted(changed):
            table = self._tentative[node, view].sort_by([(name, "ascending") for name in VERSION_COLUMNS])
            writer = DatasetWriter(self._folder, self._manifest.views[view], tentative=True)
            writer.write(table)
            found += [TentativeFile(node, view, file) for file in writer.close()]
        return tuple(found)

    def _dead(self, parts: Sequence[pa.Table]) -> Sequence[DataFile]:
        if not parts:
            return ()
        writer = DatasetWriter(self._folder, _DEAD)
        writer.write(pa.concat_tables(parts))
        return writer.close()

    def _read(self, view: str, file: DataFile) -> pa.Table:
        path = self._folder / file.path
        try:
            return rows_of(self._manifest.views[view], pq.read_table(path))
        except (OSError, pa.ArrowException) as error:
            raise SourceError(f"{path}: cannot read: {error}") from None


class _Batch:
    """Where a stream stands after the outputs of a batch."""

    def __init__(self, progress: StreamProgress) -> None:
        self.epoch, self.end = progress.epoch, progress.end
        self.nodes, self.ends = dict(progress.nodes), dict(progress.ends)
        self.waiting, self.requested = list(progress.waiting), progress.requested
        self.dead: list[pa.Table] = []

    def note(self, node: str, output: ShuffleRow) -> None:
        """Takes an output in that is not tentative."""
        if output.kind == DEAD:
            self.dead.append(read_dead(output.bytes))
        elif output.kind == REQUEST:
            self.requested = max(self.requested, output.epoch)
        elif output.kind == FINAL:
            self.nodes[node] = max(output.epoch, self.nodes.get(node, 0))
            # A stream that has begun again gives once more what is committed already.
            if output.epoch > self.epoch:
                self.ends[output.epoch] = output.end
                for view, files in read_files(output.bytes).items():
                    self.waiting += [WaitingFile(output.epoch, view, file) for file in files]

    def commit(self, shown: Sequence[str]) -> list[WaitingFile]:
        """The files of epochs that all nodes have committed now, in order."""
        epoch = min((self.nodes.get(node, 0) for node in shown), default=0)
        if epoch <= self.epoch:
            return []
        self.epoch, self.end = epoch, self.ends[epoch]
        self.ends = {number: end for number, end in self.ends.items() if number > epoch}
        done = [one for one in self.waiting if one.epoch <= epoch]
        self.waiting = [one for one in self.waiting if one.epoch > epoch]
        return sorted(done, key=lambda one: (one.epoch, one.view, one.file.path))


def version_before(end: int) -> JobVersion:
    """What comes before all versions of stamps from `end` on, and after all others."""
    return end, -1, -1


def node_name(node: tuple[int, int]) -> str:
    """As the manifest names nodes."""
    return f"{node[0]}.{node[1]}"


def _versions(table: pa.Table) -> NDArray[np.void]:
    """LOOK[n]."""
    found = np.empty(table.num_rows, LOOK)
    for name in VERSION_COLUMNS:
        found[name] = table[name].to_numpy()
    return found
