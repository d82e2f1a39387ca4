"""What Spark leaves in a process: Java, and a folder of temporary files; both go when the process ends."""

import atexit
import os
import shutil
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

_folders: dict[int, Path] = {}  # by process, since a fork inherits them
_sessions: dict[int, SparkSession] = {}


def folder(parent: Path | None = None) -> Path:
    """The folder of temporary files of this process; made in `parent` (None: the system's) at first."""
    process = os.getpid()
    if process not in _folders:
        if parent is not None:
            parent.mkdir(parents=True, exist_ok=True)
        _folders[process] = Path(tempfile.mkdtemp(prefix="orderbook-spark-", dir=parent))
        atexit.register(_end, process)
    return _folders[process]


def writable_spark_home(parent: Path) -> Path:
    """Spark's own folder by links, in `parent`: workers of a local cluster write beside its programs."""
    home = parent / "spark"
    if not home.exists():
        home.mkdir()
        for entry in Path(pyspark.__file__).parent.iterdir():
            (home / entry.name).symlink_to(entry)
    return home


def keep(session: SparkSession) -> None:
    """The session to stop when the process ends."""
    _sessions[os.getpid()] = session


def _end(process: int) -> None:
    if os.getpid() != process:
        return
    session = _sessions.pop(process, None)
    if session is not None:
        with suppress(Exception):  # a Java that is gone has nothing to stop
            session.stop()
        _end_java(session)
    shutil.rmtree(_folders.pop(process), ignore_errors=True)


def _end_java(session: SparkSession) -> None:
    """Java ends when its standard input does, and removes its own files first."""
    java: subprocess.Popen[bytes] | None = getattr(session.sparkContext._gateway, "proc", None)
    if java is None or java.stdin is None:
        return
    with suppress(OSError):
        java.stdin.close()
    try:
        java.wait(timeout=15)
    except subprocess.TimeoutExpired:
        java.kill()
