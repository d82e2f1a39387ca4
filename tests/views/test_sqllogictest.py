"""SQLite's sqllogictest files as streams: every query that is maintained equals SQLite and the record."""

import os
import random
from pathlib import Path

import pytest
from sqllogictest_dialect import converted
from sqllogictest_format import Query, Statement, parse
from sqllogictest_replay import replay
from sqllogictest_segments import Change, Tables, disturbed, segments

# How many queries share one that is replayed, outside of an exhaustive run.
SAMPLED = {"select1": 120, "select3": 480, "random_aggregates_0": 240, "index_delete_1_0": 96}
FEW_SKIPPED = ("select1", "select3")
MOST_SKIPPED = 0.02
PROCESSES = min(4, os.cpu_count() or 1)

FILE = """\
# what a file may hold
statement ok
CREATE TABLE t(a INTEGER, b FLOAT)

statement ok
INSERT INTO t VALUES(7, 0.5)

statement ok
INSERT INTO t SELECT a + 1, NULL FROM t

skipif sqlite
query I rowsort
SELECT nothing
----
0

onlyif sqlite # a comment
query RI nosort label
SELECT b, a / 2
  FROM t ORDER BY 1, 2
----
NULL
4
0.500
3

statement ok
UPDATE t SET a = 9 WHERE b IS NULL

query I valuesort
SELECT a FROM t
----
2 values hashing to a8acc5f039e82acc783eecb7ca0371c0

statement ok
DROP TABLE t

statement error
SELECT a FROM t
"""


def test_a_file_is_read_as_sqlite_reads_it() -> None:
    records = list(parse(FILE))
    assert [type(r) for r in records] == [Statement] * 3 + [Query, Statement, Query, Statement, Statement]
    query = records[3]
    assert isinstance(query, Query)
    assert (query.types, query.sort, query.result) == ("RI", "nosort", ("NULL", "4", "0.500", "3"))
    assert query.holds([(None, 4), (0.5, 3)]) and not query.holds([(0.5, 3), (None, 4)])
    hashed = records[5]
    assert isinstance(hashed, Query)
    assert hashed.holds([(9,), (7,)]) and not hashed.holds([(8,), (7,)])


def test_statements_become_changes() -> None:
    (segment,) = segments(parse(FILE))
    changes = [a for a in segment.actions if isinstance(a, Change)]
    assert changes == [
        Change("t", True, (7, 0.5)),
        Change("t", True, (8, None)),
        Change("t", False, (8, None)),
        Change("t", True, (9, None)),
    ]


def test_rows_that_leave_come_back_before_a_query() -> None:
    (segment,) = segments(parse(FILE))
    left = 0
    for seed in range(20):
        tables = Tables(segment.schema)
        actions = list(disturbed(segment.actions, random.Random(seed)))
        left += len(actions) - len(segment.actions)
        counts = []
        for action in actions:
            if isinstance(action, Query):
                counts.append(tables.rows("SELECT sum(a) FROM t")[0][0])
            else:
                tables.apply(action)
        assert counts == [15, 16]
    assert left > 0


def test_division_truncates_between_integers_only() -> None:
    schema = {"t": {"a": "INTEGER", "b": "FLOAT"}}
    assert converted("SELECT a / 2, b / 2, AVG(a) / 2 FROM t ORDER BY 2", schema) == (
        "SELECT a // 2 AS c1, b / 2 AS c2, AVG(a) / 2 AS c3 FROM t",
        (1,),
    )


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", SAMPLED)
def test_sampled_queries_equal_sqlite_after_every_change(
    name: str, shared_data: Path, sample_seed: int
) -> None:
    tally = replay(_file(shared_data, name), sample_seed, SAMPLED[name], PROCESSES)
    assert not tally.mismatches, tally.text()
    assert tally.recorded
    assert name not in FEW_SKIPPED or tally.skipped_share < MOST_SKIPPED, tally.text()


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", SAMPLED)
def test_all_queries_equal_sqlite_after_every_change(name: str, shared_data: Path, sample_seed: int) -> None:
    tally = replay(_file(shared_data, name), sample_seed, 1, PROCESSES)
    print(f"{name}: {tally.text()}")
    assert not tally.mismatches, tally.text()
    assert name not in FEW_SKIPPED or tally.skipped_share < MOST_SKIPPED, tally.text()


def _file(shared_data: Path, name: str) -> Path:
    return shared_data / "sqllogictest" / f"{name}.test.zst"
