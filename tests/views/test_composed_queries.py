"""Views as quants compose them: interpreter, generated code and DuckDB agree after every event."""

import json
import re

import pytest
from composed_queries import Composer, events, for_duckdb
from random_queries_choices import Choices
from uncompiled import run_uncompiled

from orderbook.views.calculus import MOST_STEPS

SAMPLED = 15
# What views are made of, one of which each of many has.
CONSTRUCTS = (
    *(
        "LAG",
        "LEAD",
        "ROWS",
        "RANGE",
        "ROW_NUMBER",
        "NTILE",
        "FIRST_VALUE",
        "IGNORE NULLS",
        "MEDIAN",
        "STDDEV",
    ),
    *("TIME_BUCKET", "DATE_TRUNC", "FIRST", "LAST", "ARG_MIN", "ASOF JOIN", "ASOF LEFT JOIN", "LEFT JOIN"),
    *(
        "UNION ALL",
        "DISTINCT",
        "CUBE",
        "ROLLUP",
        "HAVING",
        "FILTER",
        "QUALIFY",
        "EXISTS",
        "IN",
        "CASE",
        "LIMIT",
    ),
    *("WITH", "CREATE VIEW q1", "PRIMARY KEY", "NOT NULL", "DECIMAL", "BOOLEAN", "COVAR_POP"),
)


def check(seed: int, count: int, *options: str) -> None:
    """No view of so many differs, and most are maintained."""
    said = run_uncompiled("composed_runner.py", f"--seed={seed}", f"--count={count}", *options)
    found = json.loads(said.splitlines()[-1])
    assert not found["failures"], "\n\n".join(found["failures"][:10])
    assert not found["not_in_duckdb"]
    assert found["maintained"] >= 0.6 * count, found["refused"]
    assert all("too large" in reason for reason in found["refused"])


def test_sampled_views_agree(sample_seed: int) -> None:
    check(sample_seed, SAMPLED)


@pytest.mark.exhaustive
def test_many_views_agree(sample_seed: int, sample_count: int) -> None:
    check(sample_seed, sample_count, f"--steps={MOST_STEPS // 10}")


def test_every_construct_is_drawn() -> None:
    said = " ".join(Composer(Choices(f"{seed}")).sql for seed in range(300))
    assert not [c for c in CONSTRUCTS if not re.search(rf"\b{c}\b", said)]


def test_a_case_is_made_again_from_its_choices() -> None:
    for seed in range(30):
        choices, drawn = Choices(f"{seed}"), Choices(f"{seed} stream")
        composed = Composer(choices)
        stream = events(composed.streams, drawn, 20)
        again = Composer(Choices(given=choices.made))
        assert again.sql == composed.sql
        assert events(again.streams, Choices(given=drawn.made), 20) == stream


def test_comments_tell_duckdb_what_decides() -> None:
    ours = "SELECT ARG_MAX(px, ts) AS c, LAG(px) OVER (ORDER BY ts /*, number*/) AS d FROM t"
    theirs = "LAST(px ORDER BY ts, px DESC) FILTER (WHERE px IS NOT NULL AND ts IS NOT NULL)"
    assert for_duckdb(ours) == f"SELECT {theirs} AS c, LAG(px) OVER (ORDER BY ts , number) AS d FROM t"
