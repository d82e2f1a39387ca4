"""Spark sessions: quiet, offline and on loopback on this machine, or on a cluster.

Only DataFrame and streaming APIs are used on a session, so that `sc://` (Spark Connect) works as well. What
Spark and its workers print as errors goes to the log of SparkOptions, never to the terminal.
"""

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import resources
from pathlib import Path
from typing import Any
from weakref import WeakSet

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from orderbook.configuration.options import SparkOptions
from orderbook.core.code_cache import VARIABLE, cache_root
from orderbook.core.errors import UserError
from orderbook.core.units import size_of
from orderbook.spark import java
from orderbook.spark.java import LOG_VARIABLE, find_java, launcher
from orderbook.spark.workers import import_path, ship

# Settings of one session: they may differ between sessions of one Spark, so Connect takes them as well.
_RUNTIME = {
    "spark.sql.session.timeZone": "UTC",
    # Adaptive execution would merge small shuffle partitions: few bytes of blocks can be much work.
    "spark.sql.adaptive.enabled": "false",
    # Rows are blocks of megabytes, and a batch of Arrow is held as a whole.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "16",
    "spark.sql.execution.arrow.transformWithStateInPandas.maxRecordsPerBatch": "16",
    "spark.sql.execution.pyspark.udf.faulthandler.enabled": "true",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
}

# Variables of the environment that would make another Spark than the one asked for.
_FOREIGN = ("SPARK_REMOTE", "SPARK_API_MODE", "SPARK_CONNECT_MODE_ENABLED", "PYSPARK_SUBMIT_ARGS", "MASTER")
_FOREIGN_LOCALLY = ("SPARK_HOME", "SPARK_CONF_DIR", "SPARK_DIST_CLASSPATH", "HADOOP_CONF_DIR")


# Sessions that were made here, whose settings are ours.
_ours: "WeakSet[SparkSession]" = WeakSet()


def spark_session(options: SparkOptions | None = None, modules: Sequence[str] = ()) -> SparkSession:
    """A session with this module's settings: the one that was made here before, or a new one.

    Of a Spark that somebody else has started it is a session beside theirs, whose settings stay as they are.
    Workers on other machines are sent the project and the Python `modules` named, such as a strategy's.
    One Java serves all sessions of a process, one after the other; it ends with the process, and its
    temporary files with it. Raises UserError where there is no Java, or Spark does not start.
    """
    options = options or SparkOptions()
    session = _connected(options) if options.master.startswith("sc://") else _classic(options)
    if not is_local(options.master):
        ship(session, modules)
    return session


def _classic(options: SparkOptions) -> SparkSession:
    running = SparkSession.getActiveSession()
    if running is not None:
        own = running if running in _ours else running.newSession()
        for name, value in {**_RUNTIME, **_runtime_properties(options)}.items():
            own.conf.set(name, value)
        return own
    folder = java.temporary_folder(options.folder)
    log = (options.log or folder / "spark.log").absolute()
    builder = SparkSession.builder
    for name, value in _settings(options, folder).items():
        builder = builder.config(name, value)
    with _environment(_variables(options, folder, log), _foreign(options)), _signals_kept():
        try:
            session = builder.getOrCreate()
        except (PySparkException, Py4JError) as error:
            raise UserError(f"Spark did not start: {_reason(error, log)}") from error
    java.stop_at_exit(session)
    _ours.add(session)
    return session


def is_local(master: str) -> bool:
    """Whether everything runs on this machine."""
    return master.startswith("local")


def cores(session: SparkSession) -> int:
    """How many tasks run at a time; 0 where the session does not tell."""
    try:
        return int(session.sparkContext.defaultParallelism)
    except Exception:  # Connect has no context, and says so by errors of several classes
        return 0


def _settings(options: SparkOptions, folder: Path) -> dict[str, str]:
    settings = {
        **_RUNTIME,
        "spark.master": options.master,
        "spark.api.mode": "classic",
        "spark.app.name": "orderbook",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": f"{max(size_of(options.memory) // 2**20, 512)}m",
        "spark.executorEnv.POLARS_MAX_THREADS": "1",
    }
    if is_local(options.master):
        settings |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.local.dir": str(folder / "local"),
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            "spark.sql.shuffle.partitions": str(min(4, max(2, os.cpu_count() or 2))),
            "spark.executorEnv.PYTHONPATH": os.pathsep.join(import_path()),
            f"spark.executorEnv.{VARIABLE}": str(cache_root()),
        }
    settings |= options.properties
    log_settings = resources.files("orderbook.spark") / "log4j2.properties"
    driver = f"-Dlog4j2.configurationFile={log_settings} -XX:-UsePerfData"
    # Java only moves blocks: on this machine its second compiler costs seconds and gains nothing.
    light = "-XX:TieredStopAtLevel=1" if is_local(options.master) else ""
    for name, own in (("driver", f"{driver} {light}"), ("executor", light)):
        key = f"spark.{name}.extraJavaOptions"
        settings[key] = f"{own} {options.properties.get(key, '')}".strip()
    return settings


def _variables(options: SparkOptions, folder: Path, log: Path) -> dict[str, str]:
    variables = {LOG_VARIABLE: str(log)}
    if "PYSPARK_GATEWAY_PORT" not in os.environ:  # else spark-submit has started Java
        variables["JAVA_HOME"] = str(launcher(find_java(options.java), folder))
    if is_local(options.master):
        variables["SPARK_LOCAL_IP"] = "127.0.0.1"
        variables["SPARK_HOME"] = str(java.writable_spark_home(folder))
    there = sys.executable if is_local(options.master) else os.environ.get("PYSPARK_PYTHON", "python3")
    return variables | {"PYSPARK_PYTHON": options.python or there}


def _foreign(options: SparkOptions) -> tuple[str, ...]:
    return _FOREIGN + (_FOREIGN_LOCALLY if is_local(options.master) else ())


@contextmanager
def _environment(variables: dict[str, str], without: tuple[str, ...]) -> Iterator[None]:
    """The environment that Spark starts in; the process's own comes back after."""
    before = {name: os.environ.get(name) for name in (*variables, *without)}
    for name in without:
        os.environ.pop(name, None)
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def _signals_kept() -> Iterator[None]:
    """Keep a program's own handler of Ctrl-C, which Spark replaces by its own."""
    own = signal.getsignal(signal.SIGINT)
    yield
    if own is not signal.default_int_handler:
        with suppress(ValueError):  # only the main thread has handlers, and Spark leaves others alone
            signal.signal(signal.SIGINT, own)


def _runtime_properties(options: SparkOptions) -> dict[str, str]:
    return {name: value for name, value in options.properties.items() if name.startswith("spark.sql.")}


def _connected(options: SparkOptions) -> SparkSession:
    """A session of a Spark Connect server: what it runs with is its own, beside settings of sessions."""
    try:
        import grpc  # noqa: F401
    except ImportError:
        needed = 'pip install "pyspark[connect]"'
        raise UserError(f"{options.master} needs the client of Spark Connect: {needed}") from None
    try:
        from pyspark.sql.connect.session import SparkSession as Connected

        running: Any = Connected.getActiveSession()
        session: SparkSession = running
        if running not in _ours:
            session = SparkSession.builder.remote(options.master).create()
            _ours.add(session)
        for name, value in {**_RUNTIME, **_runtime_properties(options)}.items():
            session.conf.set(name, value)
    except PySparkException as error:
        raise UserError(f"{options.master}: {str(error).strip().splitlines()[0]}") from error
    return session


def _reason(error: Exception, log: Path) -> str:
    """The line of the log, or else of the error, that says most."""
    try:
        lines = log.read_text("utf-8", "replace").splitlines()[-200:]
    except OSError:
        lines = []
    marks = ("Caused by:", "Exception", "Error", "error:")
    lines = [line for line in reversed(lines) if "\tat " not in line]
    said = [line.strip() for mark in marks for line in lines if mark in line]
    first = next(iter(str(error).strip().splitlines()), type(error).__name__)
    return f"{said[0] if said else first} (log: {log})"
