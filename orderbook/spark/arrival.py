"""What a worker does first with a function of a shipped project: unpack it, and import from there.

Functions of this module are pickled with their code, since the project is not importable yet where they run;
so it imports nothing but the standard library.
"""

import hashlib
import os
import pickle
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

# Packages that what is shipped imports, of those that a worker's Python may lack.
PACKAGES = ("msgspec", "numba", "numpy", "polars", "pyarrow", "pydantic", "sqlglot")


def arrive(archive: str, pickled: bytes) -> Any:
    """What `pickled` holds, imported from the archive of that name, which Spark put on sys.path.

    It is unpacked once on a machine, in the cache folder, and compared with the digest in the archive's name
    by every process that imports from it. A folder that is damaged, or that others can write, is left alone.
    A process beside the driver, which Spark gives no archives, has the project as the driver has it.
    """
    digest = archive.removesuffix(".zip")
    if not any(os.path.basename(entry).partition("~")[0] == digest for entry in sys.path):
        zipped = next((entry for entry in sys.path if os.path.basename(entry) == archive), None)
        folder = _unpacked(digest, zipped)
        if folder is not None:
            sys.path.insert(0, str(folder))
    return _loaded(pickled)


def arrive_here(paths: Sequence[str], cache: str, pickled: bytes) -> Any:
    """What `pickled` holds, on the driver's own machine: imported from where the driver imports, too.

    paths: folders of the driver's that a worker may not have; cache: of compiled programs.
    """
    os.environ.setdefault("ORDERBOOK_CACHE", cache)
    sys.path += [path for path in paths if path not in sys.path]
    return _loaded(pickled)


def _loaded(pickled: bytes) -> Any:
    try:
        return pickle.loads(pickled)
    except ModuleNotFoundError as error:
        if error.name not in PACKAGES:
            raise
        raise ModuleNotFoundError(
            f"Spark's workers run {sys.executable}, which lacks {error.name}: install there what "
            "requirements.lock names, or set PYSPARK_PYTHON to a Python that has it where Spark is started"
        ) from None


def digest_of(files: Mapping[str, Path]) -> str:
    """16 hex digits over the names in an archive, and their contents. Raises OSError."""
    digest = hashlib.sha256()
    for name, path in sorted(files.items()):
        digest.update(name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def _unpacked(digest: str, zipped: str | None) -> Path | None:
    root = Path(os.environ.get("ORDERBOOK_CACHE") or Path.home() / ".cache" / "orderbook")
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _is_own(root):
            raise PermissionError
        return _folder_in(root, digest, zipped)
    except OSError:  # code is not taken from a folder of others; this process gets one of its own
        return _folder_in(Path(tempfile.mkdtemp(prefix="orderbook-project-")), digest, zipped)


def _folder_in(root: Path, digest: str, zipped: str | None) -> Path | None:
    """The first folder that is whole, else a new one: processes may import from those that are damaged."""
    names = (f"{digest}~{number}" if number else digest for number in count())
    folder = next(f for f in map(root.joinpath, names) if not f.exists() or _is_whole(f, digest))
    if folder.exists() or zipped is None:
        return folder if folder.exists() else None
    temporary = tempfile.mkdtemp(prefix="unpacked-", dir=root)
    with zipfile.ZipFile(zipped) as files:
        files.extractall(temporary)
    try:
        os.rename(temporary, folder)
    except OSError:  # another worker was first
        shutil.rmtree(temporary)
        return _folder_in(root, digest, zipped)
    return folder


def _is_own(folder: Path) -> bool:
    """Nobody else than the user, or root, can write in it."""
    try:
        status = folder.stat()
    except OSError:
        return False
    return status.st_uid in (os.geteuid(), 0) and not status.st_mode & 0o022


def _is_whole(folder: Path, digest: str) -> bool:
    try:
        files = {
            str(path.relative_to(folder)): path
            for path in folder.rglob("*")
            if "__pycache__" not in path.parts and not path.is_dir()
        }
        return _is_own(folder) and digest == f"orderbook-{digest_of(files)}"
    except OSError:
        return False
