"""Views that call functions in Python, against DuckDB's own functions in Python, after every event.

A script, so that it can be run with NUMBA_DISABLE_JIT=1, when nothing is compiled.
"""

import atexit
import math
import random
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import wraps
from typing import Any

import user_signals
from fuzz import InterpreterRuntime, Runtime, changes
from generated_runner import GeneratedRuntime
from oracle import Oracle, SqlValue, database, difference
from paths import SUPPORT

from orderbook.views.compilation import compile_views
from orderbook.views.program import CompiledProgram

FILE = str(SUPPORT / "user_functions.sql")
STREAMS = """
CREATE STREAM r (id INTEGER NOT NULL, a BIGINT, x DOUBLE, p DECIMAL(9, 2) NOT NULL, n INTEGER,
                 t TIMESTAMP, f BOOLEAN);
CREATE STREAM s (n INTEGER NOT NULL, y DOUBLE);
"""
FUNCTIONS = """
CREATE FUNCTION decay(x DOUBLE, half DOUBLE) RETURNS DOUBLE LANGUAGE python AS 'user_signals:decay';
CREATE FUNCTION inverse(x DOUBLE) RETURNS DOUBLE LANGUAGE python AS 'user_signals:inverse';
CREATE FUNCTION root(x DOUBLE) RETURNS DOUBLE LANGUAGE python AS 'user_signals:root';
CREATE FUNCTION zero(x DOUBLE) RETURNS DOUBLE LANGUAGE python AS 'user_signals:zero';
CREATE FUNCTION larger(a BIGINT, b BIGINT) RETURNS BIGINT LANGUAGE python AS 'user_signals:larger';
CREATE FUNCTION bucket(n INTEGER, even BOOLEAN) RETURNS INTEGER LANGUAGE python AS 'user_signals:bucket';
CREATE FUNCTION is_large(x DOUBLE) RETURNS BOOLEAN LANGUAGE python AS 'user_signals:is_large';
CREATE FUNCTION later(ts TIMESTAMP, n INTEGER) RETURNS TIMESTAMP LANGUAGE python AS 'user_signals:later';
CREATE FUNCTION weighed(n BIGINT) RETURNS DOUBLE LANGUAGE python AS 'user_signals:weighed';
CREATE FUNCTION at_least(n BIGINT) RETURNS BIGINT LANGUAGE python AS 'user_signals:at_least';
"""
VIEWS = {
    "sums": "SELECT SUM(decay(p, 2.0) * a) AS v, COUNT(decay(x, 1)) AS k, AVG(root(x)) AS m FROM r",
    "outputs": "SELECT id, decay(x, 0.5) AS d, root(x) AS q, later(t, n) AS l, is_large(x) AS g, "
    "zero(x) AS z, bucket(n, f) AS b, larger(a, n) AS m FROM r",
    "groups": "SELECT bucket(n, TRUE) AS k, root(x) AS q, SUM(a) AS v, COUNT(*) AS c FROM r GROUP BY 1, 2",
    "conditions": "SELECT id, a FROM r WHERE is_large(x) AND NOT is_large(p) OR larger(a, 1) = 2",
    "guarded": "SELECT SUM(CASE WHEN x <> 0 THEN inverse(x) END) AS v, SUM(inverse(NULLIF(p, 0))) AS w "
    "FROM r",
    "extremes": "SELECT f, MAX(decay(x, 1)) AS h, MIN(larger(a, n)) AS l, MEDIAN(root(x)) AS m FROM r "
    "GROUP BY f",
    "of_aggregates": "SELECT n, decay(SUM(p), 1) AS d, weighed(COUNT(*)) AS w FROM r GROUP BY n "
    "HAVING is_large(SUM(p))",
    "joined": "SELECT r.id, SUM(decay(s.y, r.x)) AS v FROM r JOIN s ON s.n = bucket(r.n, r.f) GROUP BY r.id",
    "apart": "SELECT r.id, s.y FROM r, s WHERE larger(r.n, s.n) > 1 AND decay(r.x, 1) < decay(s.y, 2)",
    "nested": "SELECT id, decay(root(x), weighed(larger(n, 2))) AS d FROM r "
    "WHERE larger(larger(a, n), 1) < 3",
    "constant": "SELECT a + larger(3, 4) AS a, decay(2, 1) AS d, root(-1.0) AS q, larger(NULL, 1) AS l "
    "FROM r",
    "first_rows": "SELECT id, p FROM r ORDER BY decay(x, 1) DESC, id, p, a, n, t, f LIMIT 2",
    "deeper": "SELECT SUM(d.q) AS v FROM (SELECT n, decay(SUM(x), 1) AS q FROM r GROUP BY n) d "
    "WHERE d.q > -1",
    # Where an argument is NULL, what it is computed of is some number, for which the function would raise.
    "computed": "SELECT id, n FROM r WHERE inverse(x + 1.5) > -9 AND x IS NOT NULL AND a IS NOT NULL "
    "AND inverse(a + 7) < 2",
    "joined_by_computed": "SELECT r.id, COUNT(*) AS k FROM r JOIN s ON s.n = at_least(r.n + 97) - 97 "
    "GROUP BY r.id",
    "of_absent_rows": "SELECT r.id, inverse(s.n + 1) AS v FROM r LEFT JOIN s ON s.n = r.n",
    "correlated": "SELECT id, (SELECT SUM(decay(s.y, 1)) FROM s WHERE s.n < larger(r.n, 1)) AS v FROM r",
    "of_macros": "SELECT id, half(x) AS h FROM r",
}
MACRO = "CREATE MACRO half(y) AS decay(y, 1) + 0.5;\n"
DOMAINS: Mapping[str, Sequence[SqlValue]] = {
    "id": (1, 2),
    "a": (0, 1, 2, 3, -1, None),
    "x": (0.0, 1.0, 2.5, -1.0, 4.0, None),
    "p": (Decimal("0.00"), Decimal("1.50"), Decimal("2.25"), Decimal("-3.00")),
    "n": (0, 1, 2, 3, None),
    "t": (1, 2_000, None),
    "f": (True, False, None),
    "y": (0.5, 1.0, -2.0, None),
}
_TYPES = {"BIGINT": "HUGEINT", "INTEGER": "HUGEINT", "TIMESTAMP": "HUGEINT"}


def program_of(views: Mapping[str, str], materialize: str = "full") -> CompiledProgram:
    """The views' program."""
    return compile_views({FILE: _text(views)}, materialize=materialize)


def _text(views: Mapping[str, str]) -> str:
    made = "".join(f"CREATE VIEW {name} AS {query};\n" for name, query in views.items())
    return STREAMS + FUNCTIONS + MACRO + made


_registered: set[str] = set()


@atexit.register
def _forget() -> None:
    """DuckDB says what is left of Python's when the process ends."""
    for name in _registered:
        database(False).remove_function(name)
    database(False).close()


class PythonOracle(Oracle):
    """DuckDB with the functions, which it calls as they are: not where an argument is NULL."""

    def _declare(self, statement: str, parameters: Mapping[str, SqlValue]) -> None:
        if "LANGUAGE python" not in statement:
            super()._declare(statement, parameters)
            return
        found = re.fullmatch(
            r"CREATE FUNCTION (\w+)\((.*)\) RETURNS (\w+) LANGUAGE python AS '\w+:(\w+)'", statement
        )
        assert found is not None
        name, declared, result, function = found.groups()
        given = [_TYPES.get(kind, kind) for kind in (one.split()[1] for one in declared.split(", "))]
        own = getattr(user_signals, function)
        # Of the connection that all oracles share: with their own it would go.
        if name not in _registered:
            _registered.add(name)
            database(False).create_function(  # type: ignore[call-overload]
                name, _strict(own), given, _TYPES.get(result, result), null_handling="special"
            )


def _strict(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def call(*arguments: Any) -> Any:
        if None in arguments:
            return None
        value = function(*arguments)
        return None if isinstance(value, float) and not math.isfinite(value) else value

    return call


def check(views: Mapping[str, str], seed: int, materialize: str = "full", length: int = 14) -> int:
    """Compares after every event; how many there were. Raises AssertionError where rows differ."""
    program = program_of(views, materialize).program
    oracle = PythonOracle(_text(views))
    runtimes: Sequence[Runtime] = (InterpreterRuntime(program), GeneratedRuntime(program))
    at_first = dict(runtimes[0].map_sizes())
    choose, steps = random.Random(seed), []
    for _ in range(length):
        relation = program.relation(choose.choice(("r", "r", "s")))
        row = tuple(choose.choice(DOMAINS[column.name]) for column in relation.columns)
        kind = choose.choice(("insert", "insert", "copy", "update", "delete"))
        steps.append((kind, relation.name, row, choose.randrange(16)))
    events = list(changes(steps, seed))
    for event in events:
        for relation_name, insert, row in event:
            (oracle.insert if insert else oracle.delete)(relation_name, row)
            for runtime in runtimes:
                runtime.change(relation_name, insert, row)
        for name in views:
            expected = oracle.rows(name)
            for runtime in runtimes:
                wrong = difference(expected, runtime.rows(name))
                assert wrong is None, f"{type(runtime).__name__} {name} after {event}: {wrong}"
    assert dict(runtimes[0].map_sizes()) == at_first
    generated = runtimes[1].map_sizes()
    assert all(bool(size) == bool(generated[name]) for name, size in at_first.items())
    return len(events)


if __name__ == "__main__":
    few = {name: VIEWS[name] for name in ("sums", "groups", "guarded", "joined", "of_aggregates")}
    first, parts = map(int, sys.argv[1].split("/"))
    events = [check(VIEWS, seed, length=length) for seed, length in ((7, 20), (0, 14), (1, 14))[first::parts]]
    events += [check(few, 3, level, 10) for level in ("first", "none")]
    assert min(events) > 10
    print(sum(events), "events")
