"""Nothing wraps: what does not fit 128 bits is an error that names the view."""

from collections.abc import Sequence

import pytest

import orderbook
from orderbook.errors import ExactnessError

STREAM = "CREATE STREAM s (k INTEGER NOT NULL, v BIGINT NOT NULL);"
LARGEST = 2**63 - 1


def engine(view: str) -> orderbook.Engine:
    return orderbook.Engine(
        orderbook.compile(f"{STREAM} CREATE VIEW big AS {view}; CREATE VIEW n AS SELECT COUNT(*) AS n FROM s")
    )


def insert_largest(running: orderbook.Engine, keys: Sequence[int]) -> None:
    for k in keys:
        running.insert("s", {"k": k, "v": LARGEST})


@pytest.mark.parametrize(
    "view",
    [
        "SELECT k, SUM(v * v) AS t FROM s GROUP BY k",
        "SELECT SUM(a.v * a.v) AS t FROM s a, s b WHERE b.k > a.k",
    ],
    ids=["hashed", "ordered"],
)
def test_a_sum_beyond_128_bits_names_its_view(view: str) -> None:
    running = engine(view)
    insert_largest(running, (0, 1))
    with pytest.raises(ExactnessError, match="of big does not fit 128 bits"):
        insert_largest(running, (0, 0, 1, 1))


def test_a_product_beyond_128_bits_names_its_view() -> None:
    running = engine("SELECT SUM(v * v * v) AS t FROM s")
    running.insert("s", {"k": 0, "v": 2**42})
    assert running["big"][()].t == 2**126
    with pytest.raises(ExactnessError, match="of big does not fit 128 bits"):
        running.insert("s", {"k": 0, "v": LARGEST})


def test_sums_at_the_edge_of_128_bits_are_exact() -> None:
    running = engine("SELECT SUM(v * v) AS t FROM s")
    running.insert("s", {"k": 0, "v": LARGEST})
    assert running["big"][()].t == LARGEST**2
    running.insert("s", {"k": 1, "v": -LARGEST})
    running.delete("s", {"k": 0, "v": LARGEST})
    assert running["big"][()].t == LARGEST**2
