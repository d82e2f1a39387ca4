"""Machine code that programs share: numbers in which they differ are put in where it is loaded."""

from random import SystemRandom
from typing import Any

import orderbook
from orderbook.core.native_code import counts

SCHEMA = """
CREATE STREAM s (
    g BIGINT NOT NULL, n BIGINT NOT NULL CHECK (n BETWEEN -1000000 AND 1000000), t TEXT NOT NULL
);
"""
ROWS = [(1, 40, "a"), (1, 57, "b"), (2, -41, "a"), (2, 999_999, "c"), (1, 58, "b")]


def view(name: str, number: int, text: str = "a") -> str:
    return (
        f"CREATE VIEW {name} AS SELECT g, SUM(n + {number}) AS shifted, SUM({number} * n) AS scaled,"
        f" COUNT(*) AS c, COUNT(*) FILTER (WHERE n > {number}) AS above,"
        f" COUNT(*) FILTER (WHERE t = '{text}') AS named FROM s GROUP BY g;"
    )


def expected(number: int, text: str, rows: list[tuple[int, int, str]]) -> dict[int, tuple[Any, ...]]:
    found = {}
    for group in {g for g, _, _ in rows}:
        own = [(n, t) for g, n, t in rows if g == group]
        sums = sum(n + number for n, _ in own), sum(number * n for n, _ in own), len(own)
        found[group] = (*sums, sum(n > number for n, _ in own), sum(t == text for _, t in own))
    return found


def check(engine: orderbook.Engine, views: dict[str, tuple[int, str]]) -> None:
    """Inserts and deletes rows; all views are what their own numbers and texts say after each."""
    rows: list[tuple[int, int, str]] = []
    for insert in (True, False):
        for row in ROWS:
            (rows.append if insert else rows.remove)(row)
            (engine.insert if insert else engine.delete)("s", dict(zip("gnt", row, strict=True)))
            for name, (number, text) in views.items():
                found = {
                    k[0]: tuple(map(int, (r.shifted, r.scaled, r.c, r.above, r.named)))
                    for k, r in engine[name].items()
                }
                assert found == expected(number, text, rows)


def engine_of(views: dict[str, tuple[int, str]]) -> orderbook.Engine:
    """An engine of these views, which are right."""
    engine = orderbook.Engine(orderbook.compile(SCHEMA + "".join(view(n, *own) for n, own in views.items())))
    check(engine, views)
    return engine


def new_number() -> int:
    """One that nothing was compiled for, in any process that had the same cache."""
    return SystemRandom().randrange(101_000, 999_999)


VIEWS = {f"v{i}": (40 + 3 * i, "abc"[i % 3]) for i in range(3)}


def test_another_number_or_text_compiles_nothing_and_is_not_taken_for_the_first() -> None:
    engine_of({**VIEWS, "v1": (101_001, "d")})
    before = counts.made
    for number in (new_number(), new_number()):
        engine_of({**VIEWS, "v1": (number, "d")})
    assert counts.made == before


def test_a_view_of_known_form_is_added_without_compiling() -> None:
    for number in (101_001, new_number()):
        engine, before = engine_of(VIEWS), counts.made
        engine.add_view(view("added", number, "b"))
        check(engine, {**VIEWS, "added": (number, "b")})
    assert counts.made == before
