"""CREATE FUNCTION … LANGUAGE python: as DuckDB calls functions, its errors, and where it is found again."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import user_functions_runner as runner
from paths import PROJECT
from uncompiled import run_uncompiled

import orderbook
from orderbook.core.errors import DataError, SqlError, UserError
from orderbook.views.compilation import bound_source, compile_views, without_view

BACKENDS = ("interpreter", "numba")
STREAM = "CREATE STREAM r (x DOUBLE, n BIGINT);\n"
IN = "LANGUAGE python AS"


# Together these call with each type, of columns, maps and calls, in triggers, conditions and outputs.
COMPILED = ("sums", "outputs", "guarded", "of_aggregates", "joined", "nested", "computed", "of_absent_rows")


def test_compiled_views_equal_duckdb_after_every_event() -> None:
    assert runner.check({name: runner.VIEWS[name] for name in COMPILED}, 7, length=20) > 20


@pytest.mark.exhaustive
def test_all_compiled_views_equal_duckdb_after_every_event(sample_seed: int) -> None:
    assert runner.check(runner.VIEWS, sample_seed, length=20) > 20


def test_views_equal_duckdb_where_nothing_is_compiled(part: Callable[[int], str]) -> None:
    """Also with less kept."""
    assert "events" in run_uncompiled("user_functions_runner.py", part(3))


def declared(function: str, rest: str = "(x DOUBLE) RETURNS DOUBLE") -> str:
    return f"CREATE FUNCTION f{rest} LANGUAGE python AS 'user_signals:{function}';"


def engine_of(sql: str, backend: str) -> orderbook.Engine:
    return orderbook.Engine(compile_views({runner.FILE: STREAM + sql}), backend)  # type: ignore[arg-type]


def insert(engine: orderbook.Engine, **columns: object) -> None:
    engine.apply(engine.program.changes({name: [value] for name, value in columns.items()}, "r"))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("function", "types", "call", "row", "error"),
    [
        ("inverse", "(x DOUBLE) RETURNS DOUBLE", "f(x)", {"x": 0.0, "n": 1},
         r"inverse\(0.0\) raised ZeroDivisionError: (float )?division by zero \(user_signals.py, line \d+\)"),
        ("at_least", "(n BIGINT) RETURNS BIGINT", "f(n)", {"x": 0.0, "n": 101},
         r"user_signals:at_least\(101\) raised ValueError: more than 100"),
        ("weight_at", "(n BIGINT) RETURNS DOUBLE", "f(n)", {"x": 0.0, "n": 3},
         r"user_signals:weight_at\(3\) raised IndexError"),
        ("doubled", "(n BIGINT) RETURNS INTEGER", "f(n)", {"x": 0.0, "n": 2**30},
         r"user_signals:doubled\(1073741824\) raised OverflowError: 2147483648 is beyond the type"),
    ],
)  # fmt: skip
def test_what_raises_is_told_with_its_arguments(
    function: str, types: str, call: str, row: dict[str, Any], error: str, backend: str
) -> None:
    sql = declared(function, types) + f"CREATE VIEW v AS SELECT n, {call} AS y FROM r WHERE {call} > -1"
    engine = engine_of(sql, backend)
    insert(engine, x=None, n=None)
    insert(engine, x=4.0, n=1)
    assert len(list(engine["v"])) == 1
    with pytest.raises(DataError, match=error):
        insert(engine, **row)


@pytest.mark.parametrize("backend", BACKENDS)
def test_nobody_is_told_of_a_row_whose_function_raises(backend: str) -> None:
    """It is called when the row is looked at, after its event."""
    sql = declared("inverse") + "CREATE VIEW v AS SELECT n, f(x) AS y FROM r"
    engine, told = engine_of(sql, backend), []
    engine.subscribe("v", lambda event: told.append(event.new and event.new["y"]))
    insert(engine, x=2.0, n=1)
    with pytest.raises(DataError, match=r"user_signals:inverse\(0.0\) raised ZeroDivisionError"):
        insert(engine, x=0.0, n=2)
    assert told == [0.5]


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_no_double_holds_is_null_and_null_is_not_called(backend: str) -> None:
    sql = declared("root") + "CREATE VIEW v AS SELECT n, f(x) AS y, f(NULL) AS z FROM r;"
    sql += declared("inverse").replace(" f(", " g(") + "CREATE VIEW w AS SELECT SUM(g(x)) AS y FROM r"
    engine = engine_of(sql, backend)
    for n, x in enumerate((4.0, -1.0, None)):
        insert(engine, x=x, n=n)
    assert {row["n"]: (row["y"], row["z"]) for row in engine["v"].values()} == {
        0: (2.0, None),
        1: (None, None),
        2: (None, None),
    }
    assert [row["y"] for row in engine["w"].values()] == [-0.75]


@pytest.mark.parametrize(
    ("sql", "error"),
    [
        (f"CREATE FUNCTION f(x DOUBLE) RETURNS DOUBLE {IN} ¦'user_signal:decay'; ",
         "no module 'user_signal'; did you mean 'user_signals'?"),
        (f"CREATE FUNCTION f(x DOUBLE) RETURNS DOUBLE {IN} ¦'user_signals:decey'; ",
         "user_signals:decey: decey is not there in user_signals; did you mean 'decay'?"),
        (f"CREATE FUNCTION f(x DOUBLE) RETURNS DOUBLE {IN} ¦'user_signals:NoFunction'; ",
         "NoFunction is no function in user_signals"),
        (f"CREATE FUNCTION f(x DOUBLE) RETURNS DOUBLE {IN} ¦'import os'; ",
         "'import os': expected MODULE:FUNCTION"),
        (f"CREATE FUNCTION f(x DOUBLE) RETURNS DOUBLE {IN} ¦'user_signals:decay'; ",
         "user_signals:decay takes 2 arguments, and is declared with 1"),
        (f"CREATE FUNCTION f(x DOUBLE, y DOUBLE, z DOUBLE) RETURNS DOUBLE {IN} ¦'user_signals:scaled'; ",
         "user_signals:scaled takes 1 to 2 arguments, and is declared with 3"),
        (f"CREATE FUNCTION f(x DOUBLE) RETURNS DOUBLE {IN} ¦'user_signals:named'; ",
         "user_signals:named takes arguments by name"),
        (f"CREATE FUNCTION f(x DOUBLE) RETURNS DOUBLE {IN} ¦'user_signals:unknown'; ",
         "user_signals:unknown is not compiled by numba: NameError: name 'foo' is not defined"),
        (f"CREATE FUNCTION f(x DOUBLE) RETURNS DOUBLE {IN} ¦'user_signals:text'; ",
         "is not compiled by numba: it returns Literal[str](x)"),
        (f"CREATE FUNCTION f(x DOUBLE) RETURNS DOUBLE {IN} ¦'user_signals:perhaps'; ",
         "it may return None; return NaN where a DOUBLE is NULL"),
        (f"CREATE FUNCTION f(x DOUBLE) RETURNS BIGINT {IN} ¦'user_signals:root'; ",
         "is not compiled by numba: it returns float64"),
        (f"CREATE FUNCTION f(x ¦TEXT) RETURNS DOUBLE {IN} 'user_signals:root'; ",
         "TEXT is not a type of functions in Python"),
        (f"CREATE FUNCTION f(x DOUBLE) RETURNS ¦DECIMAL(9, 2) {IN} 'user_signals:root'; ",
         "DECIMAL is not a type of functions in Python; declare DOUBLE"),
        (f"CREATE FUNCTION f(x DOUBLE, ¦x DOUBLE) RETURNS DOUBLE {IN} 'user_signals:decay'; ",
         "parameter x is declared twice"),
        (f"CREATE FUNCTION ¦sqrt(x DOUBLE) RETURNS DOUBLE {IN} 'user_signals:root'; ",
         "sqrt is a function already"),
        (f"CREATE FUNCTION ¦product(x DOUBLE) RETURNS DOUBLE {IN} 'user_signals:root'; ",
         "product is a function already"),
        (f"CREATE FUNCTION ¦isfinite(x DOUBLE) RETURNS DOUBLE {IN} 'user_signals:root'; ",
         "isfinite is a function already"),
        (f"CREATE MACRO f(x) AS x; CREATE FUNCTION ¦f(x DOUBLE) RETURNS DOUBLE {IN} 'user_signals:root'; ",
         "f is a macro already"),
        (declared("root") + f"CREATE FUNCTION ¦f(x DOUBLE) RETURNS DOUBLE {IN} 'user_signals:root'; ",
         "f is a function in Python already"),
        ("CREATE FUNCTION f(x DOUBLE) RETURNS DOUBLE LANGUAGE ¦sql AS 'x'; ",
         "functions are in LANGUAGE python"),
        ("CREATE FUNCTION f(x DOUBLE) RETURNS ¦LANGUAGE python AS 'user_signals:root'; ",
         "the result needs one of"),
        (f"CREATE FUNCTION f(x ¦) RETURNS DOUBLE {IN} 'user_signals:root'; ",
         "parameter x needs one of"),
        ("CREATE FUNCTION f(x DOUBLE) RETURNS DOUBLE LANGUAGE python AS ¦x; ",
         "expected AS 'MODULE:FUNCTION'"),
        (declared("root") + "SELECT ¦f(x, 1) AS y FROM r", "F takes 1 argument"),
        (declared("root") + "SELECT ¦f() AS y FROM r", "F takes 1 argument"),
        (declared("root") + "SELECT ¦f('a') AS y FROM r",
         "F of TEXT is not supported; it takes DOUBLE there"),
        (declared("root") + "SELECT 1 AS y FROM ¦f(1)", "f is a function of values, not called in FROM"),
        (declared("at_least", "(n BIGINT) RETURNS BIGINT") + "SELECT ¦f(x) AS y FROM r",
         "F of DOUBLE is not supported; it takes INTEGER there: cast it"),
        (declared("at_least", "(n INTEGER) RETURNS BIGINT") + "SELECT ¦f(n) AS y FROM r",
         "F of an integer that may not fit INTEGER: cast it to INTEGER"),
        (declared("at_least", "(n BIGINT) RETURNS BIGINT") + "SELECT ¦f(SUM(n)) AS y FROM r",
         "F of an integer that may not fit BIGINT: cast it to BIGINT"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_at_its_place(sql: str, error: str) -> None:
    with pytest.raises(SqlError) as refusal:
        bound_source([(runner.FILE, STREAM + sql.replace("¦", ""))], {})
    assert error in refusal.value.message
    assert (refusal.value.line, refusal.value.column) == (2, sql.index("¦") + 1)


def test_a_module_that_fails_or_is_another_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "failing_signals.py").write_text("1 / 0\n")
    (tmp_path / "needing_signals.py").write_text("import nowhere_at_all\n")
    (tmp_path / "json.py").write_text("def f(x):\n    return x\n")
    for module, error in (
        ("failing_signals", "failing_signals cannot be imported: ZeroDivisionError"),
        ("needing_signals", "needing_signals cannot be imported: No module named 'nowhere_at_all'"),
        ("json", f"module json is {json.__file__}, not json.py beside the file; rename it"),
    ):
        sql = f"{STREAM}CREATE FUNCTION f(x DOUBLE) RETURNS DOUBLE {IN} '{module}:f'; SELECT 1 FROM r"
        (tmp_path / "v.sql").write_text(sql)
        with pytest.raises(SqlError) as refusal:
            compile_views(tmp_path / "v.sql")
        assert error in refusal.value.message and refusal.value.file == str(tmp_path / "v.sql")


def test_only_files_declare_functions() -> None:
    view = "SELECT f(x) AS y FROM r"
    with pytest.raises(SqlError, match="declared by a file, not by text"):
        compile_views(STREAM + declared("root") + view)
    engine = engine_of(declared("root") + "CREATE VIEW v AS " + view, "interpreter")
    for sql in (
        declared("zero").replace(" f(", " g("),
        declared("zero").replace(" f(", " g(") + "CREATE VIEW w AS SELECT g(x) AS y FROM r",
    ):
        with pytest.raises(SqlError, match="a function in Python is not added to what runs"):
            engine.add_view(sql)
        with pytest.raises(SqlError, match="a function in Python is not added to what runs"):
            engine.add_view({"w.sql": sql})
    # What is declared is called by what comes later, and stays when its view goes.
    source = without_view(engine.program.source, "v")
    assert [function.target for function in source.catalog.functions] == ["user_signals:root"]


_SCRIPT = """
import json, pickle, sys
import orderbook
from orderbook.core import native_code
from orderbook.core import compiled_functions
made = []
kept = compiled_functions._Kept.save_overload
compiled_functions._Kept.save_overload = lambda *given: (made.append(1), kept(*given))
program = orderbook.compile(sys.argv[1])
engine = orderbook.Engine(program, "numba")
engine.apply(program.changes({"x": [3.0], "n": [1]}, "r"))
print(json.dumps([next(iter(engine["v"].values()))["y"], len(made)]))
if len(sys.argv) > 2:
    open(sys.argv[2], "wb").write(pickle.dumps(program.program))
"""


@pytest.fixture
def in_a_process(tmp_path: Path) -> Callable[..., Any]:
    """What a script says, in a process with a cache of the test's own."""

    def run(script: str, *arguments: object) -> Any:
        # Without optimisation numba leaves addresses in what it compiles, which cannot be kept.
        own = {"PYTHONPATH": str(PROJECT), "ORDERBOOK_CACHE": str(tmp_path / "cache"), "NUMBA_OPT": "3"}
        command = [sys.executable, "-B", "-c", script, *map(str, arguments)]
        done = subprocess.run(
            command, env={**os.environ, **own}, cwd=tmp_path, capture_output=True, text=True, check=False
        )
        return json.loads(done.stdout) if done.returncode == 0 else done.stderr.strip().splitlines()[-1]

    return run


@pytest.mark.sampled(2)
def test_an_edited_function_is_another_one(tmp_path: Path, in_a_process: Callable[..., Any]) -> None:
    """Also where what is edited is a function, or a constant, that it reads from another module."""
    folder = tmp_path / "views"
    folder.mkdir()
    own, helper = folder / "own_signals.py", folder / "own_helper.py"
    text = "import own_helper\nFACTOR = 2.0\n\n\ndef f(x):\n    return own_helper.more(x) * FACTOR\n"
    own.write_text(text)
    helper.write_text("import numba\n\n\n@numba.njit\ndef more(x):\n    return x + 1.0\n")
    file = folder / "v.sql"
    file.write_text(
        STREAM + "CREATE FUNCTION f(x DOUBLE) RETURNS DOUBLE LANGUAGE python AS 'own_signals:f';"
        "CREATE VIEW v AS SELECT SUM(f(x)) AS y FROM r"
    )
    kept = tmp_path / "program"
    assert in_a_process(_SCRIPT, file, kept) == [8.0, 1]
    # What was made is read the next time, also when something else in the file has changed.
    own.write_text("# a comment\n" + text)
    assert in_a_process(_SCRIPT, file) == [8.0, 0]
    load = "import json, pickle, sys; pickle.load(open(sys.argv[1], 'rb')); print(json.dumps('loaded'))"
    there = f"import sys; sys.path.append({str(folder)!r}); {load}"
    assert in_a_process(there, kept) == "loaded"
    helper.write_text(helper.read_text().replace("1.0", "2.0"))
    assert in_a_process(_SCRIPT, file) == [10.0, 1]
    assert "own_signals:f is another function here than where the program was compiled" in in_a_process(
        there, kept
    )
    own.write_text(text.replace("2.0", "3.0"))
    assert in_a_process(_SCRIPT, file) == [15.0, 1]


def test_a_view_that_is_compiled_elsewhere_calls_it() -> None:
    """In a process of its own, whose program comes back."""
    program = compile_views(
        {runner.FILE: STREAM + declared("root") + "CREATE VIEW v AS SELECT SUM(x) AS y FROM r"}
    )
    engine = orderbook.Engine(program, "interpreter", keep_rows=True)
    insert(engine, x=4.0, n=1)
    adding = engine.add_view("CREATE VIEW w AS SELECT n, f(x) AS y FROM r", background=True)
    engine.finish(adding)
    assert [row["y"] for row in engine["w"].values()] == [2.0]
    with pytest.raises(UserError, match="function G is not supported"):
        engine.add_view("CREATE VIEW q AS SELECT g(x) AS y FROM r")
