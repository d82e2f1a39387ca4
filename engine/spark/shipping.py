"""The project's packages as an artefact, for clusters whose machines do not have the project."""

import importlib.util
import sys
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pyspark import cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from engine.spark import arrival, process
from orderbook.errors import UserError

PACKAGES = ("engine", "feeds", "orderbook", "strategies", "views")
_ARCHIVE = "orderbook.archive"  # the session's setting that names its artefact
_STAMP = (1980, 1, 1, 0, 0, 0)


def ship(session: SparkSession, modules: Sequence[str] = ()) -> str:
    """Send the project, and modules of others, to the workers of a session; gives the archive's name.

    Functions that go through `for_workers` then import from it. Raises UserError for an unknown module.
    """
    files = {name: path for package in (*PACKAGES, *modules) for name, path in _files(package)}
    archive = process.folder() / f"orderbook-{arrival.digest_of(files)}.zip"
    if not archive.exists():
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as zipped:
            for name, path in sorted(files.items()):
                # Equal contents make equal archives, whatever the times of the files.
                zipped.writestr(zipfile.ZipInfo(name, _STAMP), path.read_bytes())
    session.addArtifacts(str(archive), pyfile=True)
    session.conf.set(_ARCHIVE, archive.name)
    return archive.name


class Shipped:
    """A function that imports its project from the session's archive when it is unpickled in a worker."""

    def __init__(self, function: Callable[..., Any], archive: str):
        self._function, self._archive = function, archive

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str, bytes]]:
        cloudpickle.register_pickle_by_value(arrival)
        return arrival.arrive, (self._archive, cloudpickle.dumps(self._function))


def archive_of(session: SparkSession) -> str:
    """The name of the archive that a session was sent; empty: workers have the project."""
    try:
        return session.conf.get(_ARCHIVE, None) or ""
    except PySparkException:
        return ""


def for_workers(session: SparkSession, function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` as the workers of this session can import it."""
    archive = archive_of(session)
    if not archive:
        return function
    shipped = Shipped(function, archive)
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
    for file in sorted(path.parent.rglob("*")):
        if file.is_file() and "__pycache__" not in file.parts:
            yield str(file.relative_to(path.parent.parent)), file
