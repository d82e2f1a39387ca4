"""Quantiles and modes: exact at any fraction, for values of any kind; at O(log n) for events and rows."""

from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from functools import cache

import pytest
from bound_values import mode, quantile
from fuzz import InterpreterRuntime, Runtime, compiled
from generated_runner import GeneratedRuntime
from hypothesis import given
from hypothesis import strategies as st
from oracle import SqlValue
from samples import examples

from orderbook.engine.plan.describe import Cost, plan_text, statement_cost
from orderbook.engine.plan.planner import plan
from orderbook.views.m3 import Program
from orderbook.views.types import DOUBLE, Kind, Type

FRACTIONS = ("0", "0.000000000000000001", "0.1", "0.25", "0.333333333333333333", "0.5", "0.95", "1")
SMALL = tuple(map(Decimal, ("-0.03", "-0.02", "-0.01", "0.00", "0.01", "0.02", "0.07")))
LARGE = tuple(Decimal(n) / 100 for n in (1 - 10**18, 10**18 - 1, 10**18 - 2, 3, -4))
# SQL's type, the values that are drawn, and the type of a continuous quantile of them.
KINDS: dict[str, tuple[str, tuple[SqlValue, ...], Type]] = {
    "decimals": ("DECIMAL(18, 2)", (*SMALL, *LARGE, None), Type(Kind.DECIMAL, 2)),
    "integers": ("BIGINT", (-(2**63) + 1, 2**63 - 1, 2**62, -2, -1, 0, 1, 5, None), DOUBLE),
    "times": ("TIMESTAMP", (-3, -2, 0, 1, 4, 10**18, None), Type(Kind.TIMESTAMP)),
    "doubles": ("DOUBLE", (-1.7e308, 1.7e308, -0.5, 0.0, 0.125, 3.0, None), DOUBLE),
}
RUNTIMES: dict[str, Callable[[Program], Runtime]] = {
    "interpreter": InterpreterRuntime,
    "numba": GeneratedRuntime,
}


@cache
def program(kind: str) -> Program:
    columns = [f"QUANTILE_DISC(x, {f}) AS d{i}" for i, f in enumerate(FRACTIONS)]
    columns += [
        f"PERCENTILE_DISC({f}) WITHIN GROUP (ORDER BY x DESC) AS e{i}" for i, f in enumerate(FRACTIONS)
    ]
    columns += [f"QUANTILE_CONT(x, {f}) AS c{i}" for i, f in enumerate(FRACTIONS)]
    columns += ["MODE(x) AS m", "MODE() WITHIN GROUP (ORDER BY x DESC) AS n"]
    return compiled(
        f"CREATE STREAM r (x {KINDS[kind][0]}); CREATE VIEW v AS SELECT {', '.join(columns)} FROM r"
    )


def expected(kind: str, rows: list[SqlValue]) -> tuple[SqlValue, ...]:
    """The row of the view, exact numbers as Fractions."""
    values = [Fraction(v) if isinstance(v, Decimal) else v for v in rows if v is not None]
    result = KINDS[kind][2]
    fractions = [Fraction(f) for f in FRACTIONS]
    found = [quantile("quantile_disc", values, f, result) for f in fractions]
    found += [quantile("quantile_disc_desc", values, f, result) for f in fractions]
    found += [quantile("quantile_cont", values, f, result) for f in fractions]
    return (*found, mode("mode", values), mode("mode_desc", values))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("kind", KINDS)
def test_quantiles_and_modes_are_those_of_the_rows(kind: str, runtime: str) -> None:
    values = st.sampled_from(KINDS[kind][1])

    @examples(12)
    @given(st.lists(st.tuples(st.booleans(), values), min_size=1, max_size=14))
    def run(steps: list[tuple[bool, SqlValue]]) -> None:
        at_work = RUNTIMES[runtime](program(kind))
        rows: list[SqlValue] = []
        for delete, value in steps:
            if delete and value not in rows:
                continue
            (rows.remove if delete else rows.append)(value)
            at_work.change("r", not delete, (value,))
            (found,) = at_work.rows("v")
            for there, wanted in zip(found, expected(kind, rows), strict=True):
                if isinstance(wanted, float) and isinstance(there, float):
                    # Between values far apart both round.
                    widest = max(abs(float(v)) for v in rows if v is not None)
                    assert there == pytest.approx(wanted, rel=1e-12, abs=1e-12 * widest)
                else:
                    assert there == wanted

    run()


NULLABLE = """
    CREATE STREAM r (k INTEGER, x DOUBLE, d DECIMAL(9, 2), n BIGINT);
    CREATE STREAM s (k INTEGER, x DOUBLE, n INTEGER);
"""
LOGARITHMIC = {
    "doubles": "SELECT k, MEDIAN(x) AS m FROM r GROUP BY k",
    "decimals": "SELECT PERCENTILE_CONT(0.05) WITHIN GROUP (ORDER BY d DESC) AS m FROM r",
    "discrete": "SELECT k, QUANTILE_DISC(n, 0.9) AS m FROM r GROUP BY k",
    "computed": "SELECT k, MEDIAN(x * n + d) AS m FROM r GROUP BY k",
    "of_group_keys": "SELECT k, MEDIAN(k * d) AS m FROM r GROUP BY k",
    "filtered": "SELECT k, MEDIAN(d) FILTER (WHERE x > 0 OR n IS NULL) AS m FROM r GROUP BY k",
    "chosen": "SELECT k, MEDIAN(CASE WHEN n > 0 THEN d END) AS m FROM r GROUP BY k",
    "distinct": "SELECT k, MEDIAN(DISTINCT d) AS m FROM r GROUP BY k",
    "of_sums": "SELECT MEDIAN(n) AS m FROM (SELECT k, COUNT(*) AS n FROM r GROUP BY k) g",
    "compared": "SELECT COUNT(*) AS n FROM r WHERE d > (SELECT MEDIAN(d) FROM r)",
    "having": "SELECT k FROM r GROUP BY k HAVING MEDIAN(d) > 1",
    "beside": "SELECT k, d - MEDIAN(d) OVER (PARTITION BY k) AS m FROM r",
    "mode": "SELECT k, MODE(d) AS m FROM r GROUP BY k",
    "mode_of_computed": "SELECT MODE(x + d) FILTER (WHERE n > 0) AS m FROM r",
    "most_rows": "SELECT MAX(n) AS m FROM (SELECT k, COUNT(*) AS n FROM r GROUP BY k) g",
}


@pytest.mark.parametrize("name", LOGARITHMIC)
def test_events_and_rows_cost_the_logarithm(name: str) -> None:
    found = plan(compiled(f"{NULLABLE} CREATE VIEW v AS {LOGARITHMIC[name]}"))
    assert max(statement_cost(found, s) for t in found.triggers for s in t.statements) <= Cost.LOGARITHMIC
    assert plan_text(found).partition("a row costs ")[2].splitlines()[0] in ("O(1)", "O(log n)")
