"""Functions on Spark's workers: the project that they import, the batches they make, and their errors.

The project's packages are sent as an artefact to clusters whose machines do not have the project.
DataFrames have the columns of an Arrow schema, and workers make batches of their batches. Errors of workers
are brought to the driver as the errors they were.

This module imports little: Spark makes a process for each stateful operator only to ask for the shape of
its state, and that imports it.
"""

import base64
import gc
import importlib.util
import os
import pickle
import re
import subprocess
import sys
import sysconfig
import threading
import traceback
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark import cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from orderbook.core.code_cache import cache_root
from orderbook.core.errors import OrderbookError, UserError
from orderbook.core.processors import has_frozen
from orderbook.spark import arrival, java

_MARK = re.compile(r"orderbook-error:([A-Za-z0-9+/=]+):")
_RAISED = re.compile(r"[A-Za-z_][\w.]*(Error|Exception|Interrupt|Exit)\b")


class WorkerError(OrderbookError):
    """A worker failed by a mistake that is not the user's, or ended; `details` has its traceback."""

    def __init__(self, message: str, details: str = ""):
        super().__init__(message)
        self.details = details
        if details:
            self.add_note(details)


class _Transported(Exception):
    """An error on its way from a worker, as text that survives Java."""


@contextmanager
def transporting(what: str) -> Iterator[None]:
    """In a worker: errors leave as text from which `arriving` makes them again; `what` names the task."""
    try:
        yield
    except OrderbookError as error:
        raise _Transported(_packed(error)) from None
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        message = f"{what} failed: {said} ({place.filename}:{place.lineno})"
        raise _Transported(_packed(WorkerError(message, traceback.format_exc()))) from None


@contextmanager
def untransported() -> Iterator[None]:
    """In a worker whose errors no `arriving` waits for: they leave as what they are."""
    try:
        yield
    except _Transported as error:
        raise worker_error(error) from None


@contextmanager
def arriving() -> Iterator[None]:
    """At the driver, around what runs a job: raises a worker's error as it was, others as one line.

    Raises OrderbookError (the worker's), or WorkerError where a worker ended or Spark itself failed.
    """
    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise worker_error(error) from None


def worker_error(error: BaseException) -> OrderbookError:
    """The error that made a job or a streaming query fail."""
    text = str(error)
    found = _MARK.search(text)
    if found:
        failure: OrderbookError = pickle.loads(base64.b64decode(found[1]))
        return failure
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if "Python worker exited" in text or "ExecutorLostFailure" in text:
        return WorkerError("a worker of Spark ended while it worked; it may have been short of memory", text)
    raised = [line for line in lines if _RAISED.match(line)]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    first = next(reversed(raised or causes or lines[:1]), repr(error))
    return WorkerError(f"Spark failed: {first}", text)


def _packed(error: OrderbookError) -> str:
    try:
        pickled = pickle.dumps(error)
        pickle.loads(pickled)
    except Exception:  # an error with a constructor or values that pickle cannot bring back
        pickled = pickle.dumps(WorkerError(str(error)))
    return f"orderbook-error:{base64.b64encode(pickled).decode()}: {error}"


PROJECT = Path(__file__).resolve().parents[2]
PACKAGES = ("orderbook",)
_ARCHIVE = "orderbook.archive"  # the session's setting that names its artefact
_STAMP = (1980, 1, 1, 0, 0, 0)


def ship(session: SparkSession, modules: Sequence[str] = ()) -> str:
    """Send the project, and modules of others, to the workers of a session; gives the archive's name.

    Functions that go through `for_workers` then import from it. Raises UserError for an unknown module.
    """
    name = _sent(session, modules)
    session.conf.set(_ARCHIVE, name)
    return name


def _sent(session: SparkSession, modules: Sequence[str]) -> str:
    files = {name: path for package in (*PACKAGES, *modules) for name, path in _files(package)}
    archive = java.temporary_folder() / f"orderbook-{arrival.digest_of(files)}.zip"
    if not archive.exists():
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as zipped:
            for name, path in sorted(files.items()):
                # Equal contents make equal archives, whatever the times of the files.
                zipped.writestr(zipfile.ZipInfo(name, _STAMP), path.read_bytes())
    session.addArtifacts(str(archive), pyfile=True)
    return archive.name


@dataclass(frozen=True, slots=True)
class Reach:
    """How functions get to the workers of a session: by its archive, else by folders of this machine.

    Neither: workers have the project.
    """

    archive: str = ""
    paths: tuple[str, ...] = ()
    cache: str = ""

    def of(self, function: Any) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """What brings back a function, or anything that can be pickled, in a worker."""
        cloudpickle.register_pickle_by_value(arrival)
        pickled = cloudpickle.dumps(function)
        if self.archive:
            return arrival.arrive, (self.archive, pickled)
        return arrival.arrive_here, (self.paths, self.cache, pickled)


# How functions reach the workers of sessions that are not ours, which keep their settings.
_reached: "WeakKeyDictionary[SparkSession, Reach]" = WeakKeyDictionary()


def reach(session: SparkSession, modules: Sequence[str] = ()) -> Reach:
    """How functions get to the workers of any session; no setting of it is changed.

    Workers of this machine import what this process does. Others are sent the project, and the `modules`
    named, as an artefact of the session. Raises UserError for an unknown module, and for a Python of workers
    on this machine that cannot do it.
    """
    named = _named_python(session)
    if named:
        _check_python(named)
    archive = archive_of(session)
    if archive:
        return Reach(archive)
    if is_here(session):
        return Reach("", tuple(import_path()), str(cache_root()))
    known = _reached.get(session)
    if known is None or modules:
        known = Reach(_sent(session, modules))
        _reached[session] = known
    return known


def is_here(session: SparkSession) -> bool:
    """Whether the workers of a session are processes of this machine."""
    return re.fullmatch(r"local(\[.*\])?", _master(session)) is not None


def _master(session: SparkSession) -> str:
    """What a session runs on; empty where it does not tell, as one of Spark Connect."""
    if not isinstance(session, SparkSession):
        return ""
    try:
        return str(session.conf.get("spark.master"))
    except PySparkException:
        return ""


_PATH_PYTHON = "python3"  # what PySpark runs workers with where PYSPARK_PYTHON was not set
_naming = threading.RLock()


@contextmanager
def own_python(session: SparkSession) -> Iterator[None]:
    """Functions that a session is given meanwhile run in this process's Python, where its workers are on this
    machine and it was not told of a Python: the first one on the path may lack everything.
    """
    if not _master(session).startswith("local") or not sys.executable:
        yield
        return
    context = session.sparkContext
    # PySpark notes the Python in each function that it makes, from here.
    with _naming:
        before = context.pythonExec
        if before == _PATH_PYTHON:
            context.pythonExec = sys.executable
        try:
            yield
        finally:
            context.pythonExec = before


def _named_python(session: SparkSession) -> str:
    """The Python that a session of this machine was told of; empty where it is this one, or elsewhere."""
    if not _master(session).startswith("local"):
        return ""
    with _naming:
        named = str(session.sparkContext.pythonExec)
    return "" if named in (_PATH_PYTHON, sys.executable) else named


_ASKS = """import sys, importlib.util as found
print("%d.%d" % sys.version_info[:2], *(one for one in sys.argv[1:] if found.find_spec(one) is None))"""


@cache
def _check_python(python: str) -> None:
    """Raises UserError for a Python of another version than this one, or without the packages needed."""
    own = f"{sys.version_info.major}.{sys.version_info.minor}"
    way = f"start with PYSPARK_PYTHON={sys.executable}, or without that variable"
    asked = [python, "-c", _ASKS, *arrival.PACKAGES]
    try:
        told = subprocess.run(asked, capture_output=True, text=True, timeout=60, check=True).stdout.split()
    except (OSError, subprocess.SubprocessError) as error:
        raise UserError(f"Python of Spark's workers: {python} does not start ({error}); {way}") from None
    version, *lacking = told
    if version != own:
        raise UserError(f"Spark's workers run {python}, Python {version}, and this is {own}; {way}")
    if lacking:
        raise UserError(f"Spark's workers run {python}, which lacks {', '.join(lacking)}; {way}")


def import_path() -> list[str]:
    """Folders that workers on this machine import from as this process does: the project's, then others."""
    standard = [Path(path).resolve() for path in sysconfig.get_paths().values()]
    standard.append(Path(sys.prefix).resolve())
    paths = [str(PROJECT)]
    for entry in sys.path:
        path = Path(entry or ".").resolve()
        if path.exists() and not any(path.is_relative_to(known) for known in standard):
            paths.append(str(path))
    return list(dict.fromkeys(paths))


class Shipped:
    """A function that is brought back in a worker as `reach` says."""

    def __init__(self, function: Callable[..., Any], reach: Reach):
        self._function, self._reach = function, reach

    def __reduce__(self) -> Any:
        return self._reach.of(self._function)


def archive_of(session: SparkSession) -> str:
    """The name of the archive that a session was sent; empty: workers have the project."""
    try:
        return session.conf.get(_ARCHIVE, None) or ""
    except PySparkException:
        return ""


def for_workers(session: SparkSession, function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` as the workers of this session can import it."""
    shipped = Shipped(function, reach(session))
    return lambda *arguments: shipped(*arguments)  # type: ignore[operator]


def _files(module: str) -> Iterator[tuple[str, Path]]:
    """The files of a package, or of the module itself, with their names in the archive."""
    top = module.partition(".")[0]
    found = importlib.util.find_spec(top)
    if found is None or found.origin is None:
        raise UserError(f"no module is named {module!r}; it was looked for in {', '.join(sys.path)}")
    path = Path(found.origin)
    if found.submodule_search_locations is None:
        yield path.name, path
        return
    # Path.rglob goes through no link, which our packages are in a checkout.
    for folder, _, files in os.walk(path.parent, followlinks=True):
        for file in map(Path(folder).joinpath, files):
            if "__pycache__" not in file.parts:
                yield str(file.relative_to(path.parent.parent)), file


_SQL_TYPES = {
    "int32": "int", "int64": "bigint", "string": "string", "binary": "binary", "double": "double",
    "bool": "boolean", "timestamp[us, tz=UTC]": "timestamp",
}  # fmt: skip


def columns_of(schema: pa.Schema) -> str:
    """A schema as Spark reads it."""
    return ", ".join(f"`{field.name.replace('`', '``')}` {_sql_type(field.type)}" for field in schema)


def _sql_type(kind: pa.DataType) -> str:
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision}, {kind.scale})"
    return _SQL_TYPES[str(kind)]


def map_in_workers(
    frame: DataFrame,
    function: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]],
    schema: pa.Schema,
) -> DataFrame:
    """The batches, of a schema, that `function` makes of those of each partition.

    The function is importable, or a functools.partial of one that is.
    """
    shipped = for_workers(frame.sparkSession, function)

    ended = for_workers(frame.sparkSession, spare_modules)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from shipped(batches)
        ended()

    with own_python(frame.sparkSession):
        return frame.mapInArrow(run, columns_of(schema))


def spare_modules() -> None:
    """In a worker: what its first task has left is looked at by no collection of garbage any more.

    Spark collects after every task, which takes longer than a small one with as many modules.
    """
    if not has_frozen():
        gc.collect()
        gc.freeze()
