"""The job of a stream: begun, or gone on with where it stopped."""

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from orderbook.backtest.run import check_program, granularity_text
from orderbook.backtest.tasks import JobSettings
from orderbook.block_log import check_relations, log_folders, read_headers
from orderbook.errors import UserError
from orderbook.jobs.folder import MANIFEST, create_folder, read_manifest, remove_unlisted, write_manifest
from orderbook.jobs.layout import fills_dataset, history_of, orders_dataset
from orderbook.jobs.manifest import FORMAT_VERSION, Manifest, StreamProgress
from orderbook.streaming.plan import CHAIN, StreamSettings, plan_of

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
    folder, fresh = Path(job.folder), _begun(job, folders, plan.digest)
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
    write_manifest(folder, manifest)
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


def _begun(job: JobSettings, folders: Sequence[Path], layout: str) -> Manifest:
    compiled = job.program.compiled()
    keys = {view.name: [key.name for key in view.keys] for view in compiled.views}
    histories = {name: history_of(compiled.program.result(name), keys[name]) for name in job.views}
    return Manifest(
        FORMAT_VERSION, "running", "spark", granularity_text(job.granularity), job.partitions,
        tuple(map(str, folders)), job.program.manifest(), histories, orders_dataset(), fills_dataset(),
        committed=(0, -1, -1), stream=StreamProgress(layout),
    )  # fmt: skip


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
