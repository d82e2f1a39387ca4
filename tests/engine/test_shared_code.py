"""Programs that differ in doubles alone share their code, and mean what each of them says."""

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import orderbook
from orderbook.engine.generate.numbering import Numbering, Real
from orderbook.engine.generate.program import program_module
from orderbook.engine.plan.planner import plan
from orderbook.views.compilation import compile_views

SQL = """
CREATE STREAM s (g BIGINT, x DOUBLE, n BIGINT, d DECIMAL(10, 3));
CREATE VIEW v AS SELECT g, SUM(x * CAST(:k AS DOUBLE)) AS scaled,
  COUNT(*) FILTER (WHERE x > CAST(:k AS DOUBLE)) AS above, MAX(x + CAST(:k AS DOUBLE) / 3) AS shifted,
  SUM(n / (1 + CAST(:k AS DOUBLE))) AS ratio, AVG(d) * CAST(:k AS DOUBLE) AS mean FROM s GROUP BY g;
"""
VALUES = [Decimal(text) for text in ("0.5", "-2", "3.25", "0.1", "12345.6789", "0.00002", "9007199254740993")]
ROWS = [(1, 1.5, 3, "2.125"), (1, -7.25, 2, "0"), (2, 1e200, 1, "9"), (1, 0.1, 5, "-1"), (2, 4.0, 4, "0.001")]


def generated(k: Decimal) -> str:
    return program_module(Numbering({}).plan(plan(compile_views(SQL, {"k": k}).program)))


def test_the_code_of_other_doubles_is_the_same() -> None:
    first = generated(VALUES[0])
    assert "0.5" not in first
    assert all(generated(value) == first for value in VALUES[1:-1])


@pytest.mark.parametrize("k", VALUES)
def test_every_double_is_what_it_was(k: Decimal) -> None:
    program = compile_views(SQL, {"k": k})
    engines = [orderbook.Engine(program, "numba"), orderbook.Engine(program, "interpreter")]
    fired: list[list[Any]] = [[], []]
    for engine, own in zip(engines, fired, strict=True):
        engine.subscribe("v", own.append, f"shifted > {k} OR scaled < -{abs(k)}")
    for insert in (True, False):
        for row in ROWS:
            values: list[list[Any]] = []
            for engine in engines:
                change = engine.insert if insert else engine.delete
                change("s", dict(zip("gxnd", (*row[:3], Decimal(row[3])), strict=True)))
                rows = sorted(engine["v"].items())
                values.append([value for _, own_row in rows for value in own_row.values()])
            assert values[0] == pytest.approx(values[1], rel=1e-12)
    assert [event.key for event in fired[0]] == [event.key for event in fired[1]]
    assert fired[0]


@given(st.floats(allow_nan=False))
def test_a_double_is_known_by_its_bits(value: float) -> None:
    assert float(repr(Real.of(value))) == value
    assert Real.of(-0.0) == Real.of(0.0)
