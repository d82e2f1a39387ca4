"""Copies of views in pieces while they change, against the rows that are read at once at the last moment."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import examples

from orderbook.clients.client_engine import ClientEngine as Engine
from orderbook.clients.queries import snapshot, snapshot_between
from orderbook.core.changes import CHECKED, END_OF_EVENT, END_OF_MESSAGE, ChangeBatch, Dictionary
from orderbook.core.errors import SqlError
from orderbook.engine.runtime import numba_runtime, store_entries
from orderbook.engine.runtime.view_copies import NumbaViewCopy
from orderbook.views.compilation import compile_views

SQL = """
CREATE STREAM quotes (
    n BIGINT NOT NULL, symbol TEXT NOT NULL, price DECIMAL(12, 2) NOT NULL, size DOUBLE, big DECIMAL(18, 6)
);
CREATE VIEW copied AS SELECT n, symbol, price, size, big FROM quotes;
CREATE VIEW labelled AS SELECT n, 'bid' AS side, 1.5 AS half, price * n AS worth FROM quotes;
CREATE VIEW by_price AS
SELECT price, symbol, COUNT(*) AS quotes, SUM(n) AS total, AVG(n) AS average,
       CASE WHEN COUNT(*) > 1 THEN 'many' ELSE symbol END AS label
FROM quotes GROUP BY symbol, price;
CREATE VIEW perhaps AS
SELECT n % 5000 AS bucket, SUM(size) AS size, SUM(big) AS big FROM quotes GROUP BY ALL;
CREATE VIEW extremes AS
SELECT n % 5000 AS bucket, MIN(price) AS lowest, MAX(n) AS last FROM quotes GROUP BY ALL;
CREATE VIEW alike AS SELECT n, symbol LIKE 'A%' AS starts FROM quotes;
"""
VIEWS = ("copied", "labelled", "by_price", "perhaps", "extremes", "alike")
SYMBOLS = ("AAA-USD", "BBB-USD", "ABC-USD")
SEEN = CHECKED | END_OF_EVENT | END_OF_MESSAGE


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(numba_runtime, "FEWEST", 1)
        patch.setattr(store_entries, "_PIECE", 1)
        program = compile_views(SQL, dictionary=Dictionary(SYMBOLS))
        yield Engine(program, "numba", check_rows=False)


def batch(engine: Engine, numbers: np.ndarray, delete: bool = False) -> ChangeBatch:
    """Rows of quotes by their numbers, which tell all of their columns, each a message."""
    codes = [engine.dictionary.encode(symbol) for symbol in SYMBOLS]
    null = np.iinfo(np.int64).min
    values = np.zeros((len(numbers), len(engine.program.relations[index(engine)].columns)), np.int64)
    values[:, 0], values[:, 1] = numbers, np.take(codes, numbers % 3)
    values[:, 2] = numbers % 977 * 25
    values[:, 3] = np.where(numbers % 11 == 0, null, (numbers % 64 / 8).view(np.int64))
    values[:, 4] = np.where(numbers % 13 == 0, null, numbers * 10**12)
    kinds = np.full(len(numbers), 2 * index(engine) + delete, np.int16)
    return ChangeBatch(kinds, np.full(len(numbers), SEEN, np.uint8), values)


def index(engine: Engine) -> int:
    return [r.name for r in engine.program.relations].index("quotes")


def rows(table: Any) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row.values()) for row in table.to_pylist())


def test_rows_of_one_store_are_made_of_copied_memory(engine: Engine) -> None:
    runtime = engine._runtime
    engine.apply(batch(engine, np.arange(50)))
    copies = {name: runtime.copy_view(name) for name in VIEWS}
    made = {name: isinstance(own, NumbaViewCopy) and own.makes_rows_apart for name, own in copies.items()}
    engine.apply(batch(engine, np.arange(50), delete=True))
    assert made == dict(zip(VIEWS, (True, True, True, True, False, False), strict=True))


def test_too_many_rows_are_refused_before_any_is_copied(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.apply(batch(engine, np.arange(3_000)))
    told: list[int] = []

    def refuse(nbytes: int) -> None:
        told.append(nbytes)
        raise SqlError("too many")

    monkeypatch.setattr(NumbaViewCopy, "prepare", lambda copy: pytest.fail("copied"))
    with pytest.raises(SqlError, match="too many"):
        asyncio.run(snapshot_between(engine, ("copied", "extremes"), check=refuse))
    monkeypatch.undo()
    engine.apply(batch(engine, np.arange(3_000), delete=True))
    # A word for how often, two a column.
    assert told == [8 * 3_000 * (11 + 7)]


@examples(12)
@given(st.integers(0, 2**32), st.lists(st.sampled_from("+-x~"), max_size=12))
def test_copies_have_the_rows_of_their_last_moment(engine: Engine, seed: int, steps: list[str]) -> None:
    random, held = np.random.default_rng(seed), set[int]()

    def change(numbers: np.ndarray, delete: bool = False) -> None:
        engine.apply(batch(engine, numbers, delete))
        (held.difference_update if delete else held.update)(numbers.tolist())

    def some(count: int) -> np.ndarray:
        return random.permutation(np.array(sorted(held), np.int64))[:count]

    def step(kind: str) -> None:
        if kind == "+":
            change(np.setdiff1d(random.integers(0, 30_000, 200), list(held)))
        elif kind == "-":
            change(some(200), delete=True)
        elif kind == "~":
            numbers = some(100)
            change(numbers, delete=True)
            change(numbers)
        else:
            # So many that slabs go.
            change(some(len(held) // 2), delete=True)

    async def main() -> None:
        left = list(steps)
        taking = asyncio.create_task(snapshot_between(engine, VIEWS))
        while not taking.done():
            await asyncio.sleep(0)
            if left:
                step(left.pop(0))
        taken = await taking
        expected = {name: rows(table) for name, table in snapshot(engine, VIEWS).tables().items()}
        assert taken.version == engine.version
        # What comes later changes nothing.
        step("+")
        step("-")
        found = taken.tables()
        for name in VIEWS:
            assert rows(found[name]) == expected[name], name

    change(np.setdiff1d(random.integers(0, 30_000, 6_000), list(held)))
    try:
        asyncio.run(main())
    finally:
        change(np.array(sorted(held), np.int64), delete=True)
