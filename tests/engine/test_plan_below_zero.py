"""Where sums run along an order while rows may have less than 0: two ways of one plan, and which is taken."""

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orderbook import Engine, compile
from orderbook.engine.plan.describe import below_zero
from orderbook.engine.plan.planner import plan
from orderbook.engine.plan.steps import Pipeline
from orderbook.engine.runtime.program_start import Backend
from orderbook.operations.overview import overview
from orderbook.views.program import CompiledProgram

TRADES = "CREATE STREAM trades (id BIGINT NOT NULL, symbol TEXT NOT NULL, price {k}, volume {k}{check});"
# What the best of the first 10 of volume cost, by symbol.
COST = (
    "CREATE VIEW cost AS SELECT symbol, SUM(price * volume) AS v, COUNT(*) AS n FROM (SELECT symbol, price, "
    "volume, SUM(volume) OVER (PARTITION BY symbol ORDER BY price) AS up_to FROM trades) t "
    "WHERE up_to <= 10 GROUP BY symbol;"
)
# The same of all symbols at once.
WHOLE = (
    COST.replace("VIEW cost AS SELECT symbol, ", "VIEW whole AS SELECT ")
    .replace("PARTITION BY symbol ", "")
    .replace(" GROUP BY symbol", "")
)


def program(kind: str, check: str = "", views: str = COST) -> CompiledProgram:
    return compile(TRADES.format(k=kind, check=check) + views)


def seldom(program: CompiledProgram) -> list[Pipeline]:
    return [p for s in plan(program.program).statements for p in s.pipelines if p.seldom]


@pytest.mark.parametrize("kind", ["DOUBLE", "BIGINT", "DECIMAL(18, 8)"])
def test_explain_says_what_rows_below_zero_cost(kind: str) -> None:
    found = overview(program(kind), "cost")
    assert str(found.cost) == "O(log n)"
    assert found.below_zero == ("while a volume of trades is below 0 an event costs O(slice)",)
    assert found.below_zero[0] in found.text() and found.json()["below_zero"] == found.below_zero
    # The count is one of a symbol, too.
    assert found.threads == ("symbol", "")


def test_what_is_declared_not_to_be_below_zero_has_one_way() -> None:
    checked = program("BIGINT", " CHECK (volume >= 0)")
    assert not seldom(checked) and not below_zero(plan(checked.program))
    assert not any(m.name.startswith("negative") for m in checked.program.maps)


def test_views_count_the_rows_of_a_column_once() -> None:
    maps = program("DOUBLE", views=COST + COST.replace("cost", "again").replace("10", "20")).program.maps
    assert [m.name for m in maps if m.name.startswith("negative")] == ["negative"]
    (counted,) = (m for m in maps if m.name == "negative")
    assert len(counted.keys) == 1


def test_rows_of_one_symbol_leave_the_others_as_they_are() -> None:
    """The count is kept by what the event and the rows it reaches agree in."""
    engine = Engine(program("BIGINT"), "numba")
    for number, (symbol, price, volume) in enumerate([("A", 1, -2), ("A", 2, 11), ("A", 3, 2), ("B", 1, 4)]):
        engine.insert("trades", (number, symbol, price, volume))
    assert engine.frame("cost").sort("symbol").rows() == [("A", 20, 2), ("B", 4, 1)]


EVENTS = st.lists(
    st.tuples(
        st.sampled_from("AB"),
        st.one_of(st.none(), st.integers(1, 6)),
        st.one_of(st.none(), st.integers(-2, 7)),
        st.booleans(),
    ),
    max_size=30,
)


def expected(rows: list[tuple[str, int | None, int | None]]) -> tuple[Fraction | None, int]:
    """What COST says of these rows."""
    found: list[tuple[int | None, int | None]] = []
    for _, price, volume in rows:
        # A row without a price comes last.
        before = [v for _, p, v in rows if price is None or (p is not None and p <= price)]
        known = [v for v in before if v is not None]
        if known and sum(known) <= 10:
            found.append((price, volume))
    values = [Fraction(p) * v for p, v in found if p is not None and v is not None]
    return (sum(values, Fraction(0)) if values else None), len(found)


@pytest.mark.parametrize("kind", ["DOUBLE", "BIGINT"])
@pytest.mark.parametrize("backend", ["interpreter", "numba"])
@settings(deadline=None)
@given(events=EVENTS)
def test_both_ways_say_what_the_rows_say(
    compiled_views: dict[str, CompiledProgram],
    kind: str,
    backend: Backend,
    events: list[tuple[str, int | None, int | None, bool]],
) -> None:
    engine = Engine(compiled_views[kind], backend)
    rows: list[tuple[str, int | None, int | None]] = []
    for symbol, price, volume, goes in events:
        if goes and rows:
            symbol, price, volume = rows.pop()
            engine.delete("trades", (0, symbol, price, volume))
        else:
            rows.append((symbol, price, volume))
            engine.insert("trades", (0, symbol, price, volume))
        of = {one: [r for r in rows if r[0] == one] for one in "AB"}
        wanted = {one: expected(own) for one, own in of.items()}
        found = {key[0]: (row.v, row.n) for key, row in engine["cost"].items()}
        assert found == {one: said for one, said in wanted.items() if said[1]}
        assert tuple(engine["whole"][()].values()) == expected(rows)


@pytest.fixture(scope="module")
def compiled_views() -> dict[str, CompiledProgram]:
    return {kind: program(kind, views=COST + WHOLE) for kind in ("DOUBLE", "BIGINT")}


@pytest.mark.parametrize("backend", ["interpreter", "numba"])
def test_a_view_added_while_a_row_is_below_zero_knows_of_it(backend: Backend) -> None:
    engine = Engine(
        program("DOUBLE", views="CREATE VIEW n AS SELECT COUNT(*) AS n FROM trades;"), backend, keep_rows=True
    )
    rows = [(1, "A", 1.0, 12.0), (2, "A", 2.0, -5.0), (3, "A", 3.0, 1.0)]
    for row in rows:
        engine.insert("trades", row)
    engine.add_view(WHOLE.rstrip(";"))
    assert tuple(engine["whole"][()].values()) == (-7.0, 2)
    engine.delete("trades", rows[1])
    assert tuple(engine["whole"][()].values()) == (None, 0)
