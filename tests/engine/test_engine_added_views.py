"""Views added to and dropped from a running engine, against engines that had them from the start."""

import random
import threading
from collections import Counter
from collections.abc import Mapping
from functools import cache

import pytest
from backends import BACKENDS, contents, new_row, old_row
from hypothesis import example, given
from hypothesis import strategies as st
from samples import PATIENCE, examples

import orderbook
from orderbook.core.errors import DataError, SqlError, UserError
from orderbook.engine.plan.planner import plan
from orderbook.engine.runtime.held_rows import Rows
from orderbook.engine.runtime.program_replacement import Replacement
from orderbook.engine.runtime.program_start import Backend
from orderbook.engine.runtime.subscriptions import ViewDropped

Row = dict[str, object]
# (relation, a new row), or ("delete", which of the rows that are there).
Step = tuple[str, Row | int]

STREAMS = """
CREATE STREAM quotes (
    symbol TEXT NOT NULL,
    venue  TEXT,
    volume DECIMAL(10, 2) NOT NULL CHECK (volume >= 0),
    weight DOUBLE,
    price  BIGINT NOT NULL
);
CREATE STREAM marks (symbol TEXT NOT NULL, level INTEGER NOT NULL);
"""
FIRST = """
CREATE VIEW totals AS SELECT symbol, SUM(volume) AS volume, COUNT(*) AS n FROM quotes GROUP BY symbol;
CREATE VIEW weights AS SELECT venue, SUM(weight) AS weight FROM quotes GROUP BY venue;
"""
ADDED = {
    "products": "SELECT symbol, SUM(price * price * volume) AS big FROM quotes GROUP BY symbol",
    "means": "SELECT venue, AVG(weight) AS mean, COUNT(*) AS n FROM quotes GROUP BY venue",
    "marked": """SELECT q.symbol, SUM(q.volume * m.level) AS v FROM quotes q, marks m
                 WHERE q.symbol = m.symbol GROUP BY q.symbol""",
    "above": """SELECT SUM(q.volume) AS v FROM quotes q
                WHERE (SELECT COALESCE(SUM(p.volume), 0) FROM quotes p WHERE p.price > q.price) < 5""",
    "upon": "SELECT SUM(volume) AS volume, COUNT(*) AS n FROM totals",
    "rows": "SELECT * FROM quotes",
}


def create(name: str) -> str:
    return f"CREATE VIEW {name} AS {ADDED[name]};"


@cache
def program(*names: str) -> orderbook.CompiledProgram:
    return orderbook.compile(STREAMS + FIRST + "".join(map(create, names)))


def quote(
    symbol: str = "A",
    volume: str = "1.00",
    price: int = 10,
    venue: str | None = "X",
    weight: float | None = 0.5,
) -> Row:
    return {"symbol": symbol, "venue": venue, "volume": volume, "weight": weight, "price": price}


rows = st.builds(
    quote,
    st.sampled_from("AB"),
    st.sampled_from(["0.00", "1.50", "2.25"]),
    st.sampled_from([-3, 0, 10, 2**40]),
    st.sampled_from(["X", None]),
    st.sampled_from([None, 0.1, 1e9]),
)
marks = st.builds(lambda s, n: {"symbol": s, "level": n}, st.sampled_from("AB"), st.integers(-2, 2))
events = st.lists(
    st.one_of(
        st.tuples(st.just("quotes"), rows),
        st.tuples(st.just("marks"), marks),
        st.tuples(st.just("delete"), st.integers(0, 9)),
    ),
    max_size=14,
)


def play(engine: orderbook.Engine, event: Step, live: list[tuple[str, Row]]) -> None:
    """Applies one event; `live` are the rows that are there."""
    what, detail = event
    if isinstance(detail, int):
        if live:
            engine.delete(*live[detail % len(live)])
    else:
        engine.insert(what, detail)


def follow(live: list[tuple[str, Row]], event: Step) -> None:
    what, detail = event
    if not isinstance(detail, int):
        live.append((what, detail))
    elif live:
        live.pop(detail % len(live))


@pytest.mark.parametrize(
    ("name", "backend"),
    [
        pytest.param(name, backend, marks=pytest.mark.exhaustive if backend == "numba" and i % 2 else ())
        for i, name in enumerate(ADDED)
        for backend in BACKENDS
    ],
)
def test_an_added_view_equals_one_from_the_start(backend: Backend, name: str) -> None:
    whole = program(name)

    @examples(15)
    @given(events, st.integers(0, 14))
    def check(stream: list[Step], at: int) -> None:
        late, early = orderbook.Engine(program(), backend), orderbook.Engine(whole, backend)
        live: list[tuple[str, Row]] = []
        for place, event in enumerate([*stream, ("marks", {"symbol": "A", "level": 1})]):
            if place == min(at, len(stream)):
                late.add_view(create(name))
            for engine in (late, early):
                play(engine, event, live)
            follow(live, event)
            if place >= min(at, len(stream)):
                for view in early.views:
                    assert contents(late, view) == contents(early, view)
        for relation, row in live:
            late.delete(relation, row)
        assert not any(late.map_sizes().values())

    check()


HEAVIEST = """CREATE VIEW heaviest AS
    SELECT venue, SUM(weight) AS weight FROM quotes GROUP BY venue ORDER BY weight DESC, venue LIMIT 2;
CREATE VIEW heavy AS SELECT COUNT(*) AS n
    FROM (SELECT venue, SUM(weight) AS weight FROM quotes GROUP BY venue) WHERE weight > 0.0;"""
# Of these a double keeps little when they are added up in another order.
apart = st.builds(
    lambda venue, weight: quote(venue=venue, weight=weight),
    st.sampled_from(["X", "Y", "Z", None]),
    st.sampled_from([1e60, -1e60, 1e30, -1e30, 0.001, -0.001, None]),
)


@pytest.mark.parametrize("backend", BACKENDS)
def test_added_ranks_and_conditions_follow_the_sums_of_doubles_that_are_shown(backend: Backend) -> None:
    steps = st.lists(
        st.one_of(st.tuples(st.just("quotes"), apart), st.tuples(st.just("delete"), st.integers(0, 9)))
    )

    def of(*weights: float) -> list[Step]:
        return [("quotes", quote(venue="X", weight=weight)) for weight in weights]

    @examples(20)
    @given(steps, steps)
    # Of the first three the sum keeps 0.001, filled anew from what is left then.
    @example([*of(1e60, 1e30, 0.001), ("delete", 0), ("delete", 0)], of(0.25, -0.3))
    def check(before: list[Step], after: list[Step]) -> None:
        engine = orderbook.Engine(program(), backend)
        live: list[tuple[str, Row]] = []
        for place, event in enumerate([*before, *after, *[("delete", 0)] * (len(before) + len(after))]):
            if place == len(before):
                engine.add_view(HEAVIEST)
            play(engine, event, live)
            follow(live, event)
            if place >= len(before):
                shown = [(row.venue, row.weight) for row in engine["weights"].values()]
                shown.sort(key=lambda r: (r[1] is None, -(r[1] or 0.0), r[0] is None, r[0]))
                assert sorted(shown[:2], key=str) == sorted(
                    [(row.venue, row.weight) for row in engine["heaviest"].values()], key=str
                )
                assert engine["heavy"][()].n == sum(weight is not None and weight > 0 for _, weight in shown)

    check()


@pytest.mark.parametrize("backend", BACKENDS)
def test_views_are_dropped_with_the_maps_that_nothing_else_reads(backend: Backend) -> None:
    engine = orderbook.Engine(program(), backend)
    engine.insert("quotes", quote())
    before = engine.map_sizes()
    engine.add_view(create("products"))
    assert len(engine.map_sizes()) == len(before) + 1
    products = engine["products"]
    assert products["A",].big == 100
    engine.drop_view("products")
    assert engine.map_sizes() == before
    assert engine.views == ("totals", "weights")
    with pytest.raises(DataError, match="view products was dropped"):
        dict(products)
    with pytest.raises(DataError, match="no view 'products'"):
        engine.drop_view("products")
    engine.add_view(create("products"))
    assert engine["products"]["A",].big == 100


def test_a_view_that_another_reads_is_not_dropped() -> None:
    engine = orderbook.Engine(program("upon"), "interpreter")
    with pytest.raises(DataError, match="view totals is read by upon; drop upon first"):
        engine.drop_view("totals")
    engine.drop_view("upon")
    engine.drop_view("totals")
    assert engine.views == ("weights",)


@pytest.mark.parametrize("backend", BACKENDS)
def test_live_views_and_subscriptions_survive(backend: Backend) -> None:
    engine = orderbook.Engine(program("products"), backend)
    totals, seen = engine["totals"], list[orderbook.ViewEvent]()
    ended: list[tuple[str, Exception]] = []
    engine._on_error = lambda subscription, error: ended.append((subscription.view, error))
    engine.subscribe("totals", seen.append, when="volume > 2")
    doomed = engine.subscribe("products", seen.append)
    engine.insert("quotes", quote(volume="1.5"))
    seen.clear()
    engine.add_view(create("rows"))
    engine.drop_view("products")
    assert not doomed.active and isinstance(ended[0][1], ViewDropped) and ended[0][0] == "products"
    assert not seen, "a change of the program is no change of a row"
    engine.insert("quotes", quote(volume="1.00"))
    assert [(e.view, e.key, float(old_row(e).volume), float(new_row(e).volume)) for e in seen] == [
        ("totals", ("A",), 1.5, 2.5)
    ]
    assert totals["A",].n == 2 and engine.version == (2, 0, 2)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_view_added_in_the_background_catches_up(backend: Backend) -> None:
    late, early = orderbook.Engine(program(), backend), orderbook.Engine(program("marked"), backend)
    for i in range(40):
        for engine in (late, early):
            engine.insert("quotes", quote("AB"[i % 2], f"{i}.25", i))
            engine.insert("marks", {"symbol": "AB"[i % 2], "level": i})
    handle = late.add_view(create("marked"), background=True)
    assert not handle.done
    i = 0
    while not handle.done:
        for engine in (late, early):
            engine.insert("quotes", quote("AB"[i % 2], "3.50", i))
            engine.delete("quotes", quote("AB"[i % 2], "3.50", i))
            engine.insert("quotes", quote("C", "1.00", i))
        i += 1
    assert handle.error is None
    assert contents(late, "marked") == contents(early, "marked")
    late.insert("marks", {"symbol": "A", "level": 7})
    early.insert("marks", {"symbol": "A", "level": 7})
    assert contents(late, "marked") == contents(early, "marked")


def test_changes_made_while_rows_are_filled_are_caught_up(monkeypatch: pytest.MonkeyPatch) -> None:
    filling, go = threading.Event(), threading.Event()
    fill = Replacement._fill

    def slow(self: Replacement, rows: Mapping[str, Rows]) -> None:
        filling.set()
        assert go.wait(PATIENCE)
        fill(self, rows)

    monkeypatch.setattr(Replacement, "_fill", slow)
    late, early = (
        orderbook.Engine(program(), "interpreter"),
        orderbook.Engine(program("marked"), "interpreter"),
    )
    engines = (late, early)
    for engine in engines:
        engine.insert("quotes", quote())
    handle = late.add_view(create("marked"), background=True)
    while not filling.is_set():
        for engine in engines:
            engine.insert("marks", {"symbol": "A", "level": 1})
    for engine in engines:
        engine.insert("quotes", quote(volume="2.25"))
        engine.delete("quotes", quote())
    go.set()
    handle.wait()
    assert contents(late, "marked") == contents(early, "marked")


def test_a_callback_adds_a_view_after_its_message() -> None:
    engine = orderbook.Engine(program(), "interpreter")
    rows = []

    def add(event: orderbook.ViewEvent) -> None:
        if "rows" not in engine.views:
            engine.add_view(create("rows"))
            rows.append("rows" in engine.views)

    engine.subscribe("totals", add)
    engine.insert("quotes", quote())
    assert rows == [False] and len(engine["rows"]) == 1


def test_rows_that_are_not_kept_are_asked_for() -> None:
    engine = orderbook.Engine(program(), "interpreter", check_rows=False)
    engine.insert("quotes", quote())
    with pytest.raises(DataError, match=r"the rows of quotes are not kept.*keep_rows"):
        engine.add_view(create("products"))
    assert engine.views == ("totals", "weights")
    engine.insert("quotes", quote())
    assert engine["totals"]["A",].n == 2


@pytest.mark.parametrize("backend", BACKENDS)
def test_rows_are_kept_of_checked_changes(backend: Backend) -> None:
    late = orderbook.Engine(program(), backend, check_rows=False, keep_rows=True)
    early = orderbook.Engine(program("products"), backend, check_rows=False)
    for engine in (late, early):
        for price in (1, 2, 2):
            engine.insert("quotes", quote(price=price))
        engine.update("quotes", quote(price=2), quote(price=5))
    late.add_view(create("products"))
    assert contents(late, "products") == contents(early, "products")


def test_a_map_of_whole_rows_stands_for_the_relation() -> None:
    engine = orderbook.Engine(program("rows"), "interpreter", check_rows=False)
    engine.insert("quotes", quote())
    engine.insert("quotes", quote())
    engine.add_view(create("products"))
    assert engine["products"]["A",].big == 200


def test_what_is_wrong_with_an_added_view_is_said() -> None:
    engine = orderbook.Engine(program(), "interpreter")
    with pytest.raises(SqlError, match="unknown relation"):
        engine.add_view("CREATE VIEW v AS SELECT SUM(x) AS s FROM nowhere")
    with pytest.raises(SqlError, match="declared"):
        engine.add_view("CREATE STREAM quotes (x INTEGER)")
    with pytest.raises(SqlError, match="declared twice"):
        engine.add_view(create("rows") + create("rows"))
    engine.add_view("CREATE VIEW p AS SELECT COUNT(*) AS n FROM quotes WHERE price > :k", {"k": 1})
    with pytest.raises(UserError, match="parameter k is 1"):
        engine.add_view("CREATE VIEW q AS SELECT COUNT(*) AS n FROM quotes WHERE price > :k", {"k": 2})


def test_a_new_stream_comes_with_its_view() -> None:
    engine = orderbook.Engine(program(), "interpreter", keep_rows=True)
    engine.insert("quotes", quote())
    engine.add_view("CREATE STREAM news (x INTEGER); CREATE VIEW n AS SELECT SUM(x) AS x FROM news")
    engine.insert("news", {"x": 3})
    engine.insert("quotes", quote())
    assert engine["n"][()].x == 3 and engine["totals"]["A",].n == 2


def test_bytes_of_views_add_up_to_those_of_their_maps() -> None:
    engine = orderbook.Engine(program("products", "upon"), "interpreter")
    engine.insert("quotes", quote())
    held = engine.view_bytes()
    assert set(held) == set(engine.views) and min(held.values()) > 0
    assert engine.memory_bytes() <= sum(held.values()) < engine.memory_bytes() + 100


BAND = """
CREATE STREAM w (g TEXT NOT NULL, x DOUBLE, v BIGINT NOT NULL);
CREATE VIEW above AS SELECT a.g, SUM(a.v * b.v) AS s FROM w a, w b WHERE a.x > b.x GROUP BY a.g;
CREATE VIEW least AS SELECT g, MIN(x) AS low, MAX(x) AS high FROM w GROUP BY g;
"""


def test_trees_and_directories_move_to_another_program() -> None:
    """Ordered keys of doubles, and the directories that a plan keeps of its maps."""
    more = "CREATE VIEW total AS SELECT SUM(v) AS v FROM w; CREATE VIEW top AS SELECT MAX(v) AS v FROM w;"
    late, early = (orderbook.Engine(orderbook.compile(sql), "numba") for sql in (BAND, BAND + more))
    rows = [
        {"g": "AB"[i % 2], "x": x, "v": i} for i, x in enumerate([-1.5, 0.0, None, 2.5, -7e9, 3.25, -1.5])
    ]
    for place, row in enumerate(rows):
        if place == 4:
            late.add_view(more)
        for engine in (late, early):
            engine.insert("w", row)
    late.drop_view("total")
    for row in rows:
        for view in late.views:
            assert contents(late, view) == contents(early, view)
        for engine in (late, early):
            engine.delete("w", row)
    assert not any(late.map_sizes().values())


def test_a_tree_is_summed_while_a_view_reads_sums_of_it() -> None:
    """Its entries move to a tree with sums, and back, while rows come and go."""
    tables = "".join(f"CREATE STREAM {name} (g BIGINT NOT NULL, p BIGINT NOT NULL);" for name in "sl")
    best = "CREATE VIEW best AS SELECT g, MAX(p) AS p FROM s GROUP BY g;"
    above = """CREATE VIEW above AS
        SELECT l.g, COUNT(*) AS n FROM l JOIN s ON s.g = l.g AND s.p >= l.p GROUP BY l.g;"""
    engine = orderbook.Engine(orderbook.compile(tables + best), "numba")
    source, held, marks = random.Random(5), list[tuple[int, int]](), list[tuple[int, int]]()

    def change() -> None:
        for _ in range(300):
            if held and source.random() < 0.4:
                row = held.pop(source.randrange(len(held)))
                engine.delete("s", dict(zip("gp", row, strict=True)))
            else:
                held.append((source.randrange(2), source.randrange(120)))
                engine.insert("s", dict(zip("gp", held[-1], strict=True)))
        marks.append((source.randrange(2), source.randrange(120)))
        engine.insert("l", dict(zip("gp", marks[-1], strict=True)))

    for added in (False, True, False):
        if added:
            engine.add_view(above)
        elif "above" in engine.views:
            engine.drop_view("above")
        trees = [one for one in plan(engine.program.program).stores if one.ordered is not None]
        assert trees and all(one.summed == added for one in trees)
        for _ in range(3):
            change()
            bests = {g: max(p for own, p in held if own == g) for g in range(2)}
            assert {key[0]: row.p for key, row in engine["best"].items()} == bests
            if added:
                counts = Counter(g for g, p in held for own, mark in marks if own == g and p >= mark)
                assert {key[0]: row.n for key, row in engine["above"].items()} == counts
