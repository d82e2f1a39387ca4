"""Nothing wraps and nothing drifts: boundaries of 64 and 128 bits, and sums of doubles that cancel."""

from collections.abc import Sequence
from itertools import permutations

import pytest
from backends import BACKENDS

import orderbook
from orderbook.core.errors import DataError, ExactnessError
from orderbook.engine.runtime.program_start import Backend

STREAM = """CREATE STREAM s (k INTEGER NOT NULL, v BIGINT NOT NULL);
CREATE STREAM u (k INTEGER NOT NULL, d DOUBLE NOT NULL);"""
LARGEST = 2**63 - 1

every_backend = pytest.mark.parametrize("backend", BACKENDS)


def engine(view: str, backend: Backend) -> orderbook.Engine:
    sql = f"{STREAM} CREATE VIEW big AS {view}; CREATE VIEW n AS SELECT COUNT(*) AS n FROM s"
    return orderbook.Engine(orderbook.compile(sql), backend=backend)


def insert_largest(running: orderbook.Engine, keys: Sequence[int]) -> None:
    for k in keys:
        running.insert("s", {"k": k, "v": LARGEST})


@every_backend
@pytest.mark.parametrize(
    "view",
    [
        "SELECT k, SUM(v * v) AS t FROM s GROUP BY k",
        "SELECT SUM(a.v * a.v) AS t FROM s a, s b WHERE b.k > a.k",
    ],
    ids=["hashed", "ordered"],
)
def test_a_sum_beyond_128_bits_names_its_view(view: str, backend: Backend) -> None:
    running = engine(view, backend)
    insert_largest(running, (0, 1))
    with pytest.raises(ExactnessError, match="of big does not fit 128 bits"):
        insert_largest(running, (0, 0, 1, 1))


@every_backend
def test_a_product_beyond_128_bits_names_its_view(backend: Backend) -> None:
    running = engine("SELECT SUM(v * v * v) AS t FROM s", backend)
    running.insert("s", {"k": 0, "v": 2**42})
    assert running["big"][()].t == 2**126
    with pytest.raises(ExactnessError, match="of big does not fit 128 bits"):
        running.insert("s", {"k": 0, "v": LARGEST})


@every_backend
def test_sums_at_the_edge_of_64_and_128_bits_are_exact(backend: Backend) -> None:
    running = engine("SELECT SUM(v) AS t, SUM(-v) AS m, SUM(v * v) AS q, SUM(abs(v)) AS a FROM s", backend)
    running.insert("s", {"k": 0, "v": LARGEST})
    assert (running["big"][()].t, running["big"][()].q) == (LARGEST, LARGEST**2)
    running.insert("s", {"k": 0, "v": 1})
    assert (running["big"][()].t, running["big"][()].m) == (2**63, -(2**63))
    running.insert("s", {"k": 1, "v": -LARGEST})
    assert (running["big"][()].t, running["big"][()].a) == (1, 2 * LARGEST + 1)
    running.delete("s", {"k": 0, "v": LARGEST})
    assert (running["big"][()].t, running["big"][()].q) == (1 - LARGEST, LARGEST**2 + 1)


@every_backend
def test_variances_of_large_integers_are_rounded_once(backend: Backend) -> None:
    running = engine("SELECT VAR_POP(v) AS p, VAR_SAMP(v) AS s, STDDEV_POP(v) AS d FROM s", backend)
    for v in (10**18, 10**18 + 2, 10**18 + 4, 10**18 + 6):
        running.insert("s", {"k": 0, "v": v})
    row = running["big"][()]
    assert (row.p, row.s, row.d) == (5.0, 20 / 3, 5.0**0.5)


@every_backend
def test_moments_of_large_integers_are_rounded_at_the_end(backend: Backend) -> None:
    running = engine(
        "SELECT SKEWNESS(v) AS s, KURTOSIS_POP(v) AS k, CORR(v, k) AS c, REGR_SLOPE(v, k) AS b, "
        "REGR_INTERCEPT(v, k) AS i FROM s",
        backend,
    )
    large = 6 * 10**12
    for k, v in enumerate((0, 1, 1, 4)):
        running.insert("s", {"k": k, "v": large + v})
    row = running["big"][()]
    # Of 0, 1, 1, 4: mean 3 / 2, and sums of powers about it 9, 12 and 177 / 4.
    assert (row.b, row.i) == (1.2, large - 0.3)
    assert row.s == pytest.approx(12**0.5 / 2 * (12 / 4) / (9 / 4) ** 1.5, rel=1e-15)
    assert row.k == pytest.approx((177 / 16) / (9 / 4) ** 2 - 3, rel=1e-14)
    assert row.c == pytest.approx(6 / (9 * 5) ** 0.5, rel=1e-15)


CANCELLING = {
    "total": "SELECT SUM(d) AS t, AVG(d) AS mean, MIN(d) AS least, MAX(d) AS most FROM u",
    "grouped": "SELECT k, SUM(d) AS t FROM u GROUP BY k",
    "range": "SELECT SUM(a.d) AS t FROM u a, s b WHERE a.k <= b.k",
    "loop": "SELECT (SELECT SUM(x.d) FROM u x WHERE x.d * x.d > y.least) AS t "
    "FROM (SELECT MIN(d) AS least FROM u) y",
}


@every_backend
@pytest.mark.parametrize("view", CANCELLING)
def test_doubles_that_cancel_leave_the_rest(view: str, backend: Backend) -> None:
    running = engine(CANCELLING[view], backend)
    if view == "range":
        running.insert("s", {"k": 0, "v": 1})
    key = (0,) if view == "grouped" else ()
    for values in permutations((1e16, 1.0, -1e16)):
        for d in values:
            running.insert("u", {"k": 0, "d": d})
        assert running["big"][key].t == 1.0
        for d in values:
            if d != 1.0:
                running.delete("u", {"k": 0, "d": d})
        if view != "loop":
            assert running["big"][key].t == 1.0
        running.delete("u", {"k": 0, "d": 1.0})
        row = running["big"].get(key)
        assert row is None or row.t is None


@every_backend
def test_extremes_and_means_of_large_doubles(backend: Backend) -> None:
    running = engine(CANCELLING["total"], backend)
    for d in (1e16, 1.0, -1e16, 1e16 + 2):
        running.insert("u", {"k": 0, "d": d})
    row = running["big"][()]
    assert (row.t, row.mean, row.least, row.most) == (1e16 + 4, (1e16 + 4) / 4, -1e16, 1e16 + 2)
    running.delete("u", {"k": 0, "d": 1e16 + 2})
    row = running["big"][()]
    assert (row.t, row.mean, row.least, row.most) == (1.0, 1 / 3, -1e16, 1e16)


@every_backend
def test_variances_of_doubles_are_near_and_never_negative(backend: Backend) -> None:
    running = engine("SELECT VAR_POP(d) AS p, STDDEV_SAMP(d) AS s FROM u", backend)
    for d in (1e8, 1e8, 1e8 + 2, 1e8 + 2):
        running.insert("u", {"k": 0, "d": d})
    row = running["big"][()]
    assert abs(row.p - 1.0) <= 1e-9 * 1e16
    for d in (1e8 + 2, 1e8 + 2):
        running.delete("u", {"k": 0, "d": d})
    row = running["big"][()]
    assert (row.p, row.s) == (0.0, 0.0)


@every_backend
def test_a_double_beyond_its_range_names_its_view(backend: Backend) -> None:
    running = engine("SELECT SUM(d * d) AS t FROM u", backend)
    running.insert("u", {"k": 0, "d": 1e150})
    assert running["big"][()].t == 1e150 * 1e150
    with pytest.raises(DataError, match="beyond the range of DOUBLE"):
        running.insert("u", {"k": 0, "d": 1e300})


WIDE_KEYS = {
    "group": "SELECT k + v AS g, COUNT(*) AS n FROM s GROUP BY k + v",
    "product": "SELECT v * v AS g, COUNT(*) AS n FROM s GROUP BY v * v",
    "distinct": "SELECT DISTINCT v + v AS g, 1 AS n FROM s",
    "least": "SELECT 0 AS g, MIN(v + v) AS n FROM s GROUP BY k",
    "count": "SELECT 0 AS g, COUNT(DISTINCT v * k) AS n FROM s",
}


@every_backend
@pytest.mark.parametrize("view", WIDE_KEYS)
def test_a_key_beyond_64_bits_names_its_view(view: str, backend: Backend) -> None:
    running = engine(WIDE_KEYS[view], backend)
    running.insert("s", {"k": 2, "v": 3})
    (row,) = running["big"].values()
    assert (row.g, row.n) in [(5, 1), (9, 1), (6, 1), (0, 6), (0, 1)]
    with pytest.raises(ExactnessError, match=r"value that big groups.* does not fit 64 bits"):
        running.insert("s", {"k": 2, "v": LARGEST})


@every_backend
def test_nothing_joins_a_value_beyond_64_bits(backend: Backend) -> None:
    running = engine("SELECT COUNT(*) AS n FROM s a, s b WHERE a.v = b.v + b.k", backend)
    running.insert("s", {"k": 1, "v": LARGEST})
    running.insert("s", {"k": 3, "v": LARGEST})
    running.insert("s", {"k": 0, "v": -LARGEST})
    running.insert("s", {"k": 0, "v": -LARGEST + 1})
    assert running["big"][()].n == 2
    running.insert("s", {"k": 7, "v": LARGEST - 7})
    assert running["big"][()].n == 4


@every_backend
def test_nothing_equals_a_sum_beyond_64_bits(backend: Backend) -> None:
    view = "SELECT COUNT(*) AS n FROM s a WHERE a.v = (SELECT SUM(b.v) FROM s b WHERE b.k > 0)"
    running = engine(view, backend)
    for v in (LARGEST, LARGEST, 3):
        running.insert("s", {"k": 1, "v": v})
    for v in (-LARGEST, 1, 2):
        running.insert("s", {"k": 0, "v": v})
    assert running["big"][()].n == 0
    running.delete("s", {"k": 1, "v": LARGEST})
    running.delete("s", {"k": 1, "v": LARGEST})
    assert running["big"][()].n == 1


@every_backend
@pytest.mark.parametrize("divisor", ["-1", "-k"])
def test_the_least_integer_of_128_bits_has_no_opposite(divisor: str, backend: Backend) -> None:
    running = engine(f"SELECT SUM(v * v * -2) // MIN({divisor}) AS t FROM s WHERE k > 0", backend)
    running.insert("s", {"k": 1, "v": 2**62})
    assert running["big"][()].t == 2**125
    for _ in range(3):
        running.insert("s", {"k": 1, "v": 2**62})
    with pytest.raises(ExactnessError, match="does not fit 128 bits"):
        _ = running["big"][()].t
