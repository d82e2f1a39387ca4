"""A row deleted and another inserted in one event: where one trigger does both, and what comes of it."""

import random
from itertools import product
from typing import Any

import pytest
from fuzz import InterpreterRuntime
from generated_runner import GeneratedRuntime, check
from oracle import difference
from views_catalogue import Entry

import orderbook
from orderbook.configuration.configuration import load_configuration
from orderbook.engine.plan.planner import plan
from orderbook.engine.plan.updates import updates
from orderbook.views.library import shipped_views

STREAM = """
    CREATE STREAM r (k INTEGER, p INTEGER NOT NULL, v INTEGER, w INTEGER NOT NULL, x DOUBLE)
        WITH (max_rows = 1000);
    CREATE STREAM s (k INTEGER, p INTEGER NOT NULL, v INTEGER, w INTEGER NOT NULL, x DOUBLE)
        WITH (max_rows = 1000);
    CREATE VIEW levels AS SELECT k, p, SUM(w) AS w FROM r GROUP BY k, p;"""
_DOMAIN = {
    "k": (0, 1, None),
    "p": (1, 2, 3),
    "v": (0, 1, 2, None),
    "w": (0, 1, 2),
    "x": (0.1, 0.7, 1e16, None),
}
# By view, whether an update of r is one trigger; False: what some maps need is done in turn.
VIEWS = {
    "best": ("SELECT k, MAX(p) AS p, ARG_MAX(w, p) AS w FROM levels GROUP BY k;", True),
    "sums": ("SELECT k, COUNT(*) AS n, SUM(v) AS v, COUNT(v) AS m FROM r GROUP BY k;", True),
    "moved": ("SELECT v, COUNT(*) AS n FROM r GROUP BY v;", True),
    "doubles": ("SELECT k, COUNT(*) AS n, SUM(x) AS x FROM r GROUP BY k;", False),
    "joined": ("SELECT r.k, SUM(r.v * s.v) AS v FROM r JOIN s ON s.p = r.p GROUP BY r.k;", True),
    "with_itself": ("SELECT a.p, SUM(a.v * b.v) AS v FROM r a JOIN r b ON a.p = b.p GROUP BY a.p;", False),
    "having": ("SELECT k, COUNT(*) AS n FROM r GROUP BY k HAVING SUM(v) > 3;", True),
    "some": ("SELECT k, COUNT(*) AS n, MIN(p) AS p FROM r WHERE v > 0 GROUP BY k;", True),
    "least": ("SELECT k, MIN(v) AS v, COUNT(*) AS n FROM r GROUP BY k;", True),
    "below": ("SELECT SUM(w) FROM levels l WHERE 9 > (SELECT SUM(b.w) FROM levels b WHERE b.p > l.p);", True),
}  # fmt: skip
ENTRIES = [
    Entry(name, f"{STREAM}CREATE VIEW q AS {query}", domains={"r": _DOMAIN, "s": _DOMAIN})
    for name, (query, _) in VIEWS.items()
]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("entry", ENTRIES, ids=lambda e: e.name)
def test_rows_and_what_is_told_of_them_equal_the_interpreters(entry: Entry) -> None:
    assert check(entry, 0, 80) > 80
    assert check(entry, 1, 80) > 80


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda e: e.name)
def test_an_update_does_what_changes(entry: Entry) -> None:
    program = orderbook.compile(entry.sql).program
    found = next((u for u in updates(program) if u.relation == "r"), None)
    assert (found and not any(found.parts[:2])) == VIEWS[entry.name][1]
    written = {s.target for t in program.triggers if t.relation == "r" for s in t.statements}
    assert found is None or {s.target for part in found.parts for s in part} < written


def test_a_volume_that_changes_is_one_addition() -> None:
    program = orderbook.compile(ENTRIES[0].sql).program
    (update,) = plan(program).updates
    assert [s.target for part in update.parts for s in part] == ["levels_sum"]


MAPS = """
MAP n[k INTEGER] BIGINT = 0;
MAP m[k INTEGER] BIGINT = 0;
MAP seen[k INTEGER] BIGINT = r(k, p, v, w, x);
VIEW shown[k INTEGER k] GROUPS seen { a = n[k]; b = m[k]; COLUMN a BIGINT = a; COLUMN b BIGINT = b; }
"""
BY_HAND = {
    "counts both": ("n[k] += 1; m[k] += p;", "n[k] += 1; m[k] += -1 * p;"),
    "keeps the last": ("m[k] := p;", "n[k] += -1 * p;"),
    "the last of both": ("m[k] := p;", "m[k] := p;"),
    "after": ("n[k] += p; after m[k] += n[k];", "n[k] += -1 * p; after m[k] += -1 * n[k];"),
    "before": ("m[k] += n[k]; n[k] += p;", "m[k] += -1 * n[k]; n[k] += -1 * p;"),
    "both ways": (
        "m[k] += -1 * n[k]; n[k] += p; after m[k] += n[k];",
        "m[k] += -1 * n[k]; n[k] += -1 * p; after m[k] += n[k];",
    ),
    "other ways": (
        "m[k] += n[k]; n[k] += p; after m[k] += -1 * n[k];",
        "m[k] += -1 * n[k]; n[k] += -1 * p; after m[k] += n[k];",
    ),
}


@pytest.mark.parametrize("name", BY_HAND)
def test_m3_by_hand_does_what_it_says(name: str) -> None:
    inserted, deleted = BY_HAND[name]
    columns = "r(k, p, v, w, x)"
    text = f"ON + {columns} {{ seen[k] += 1; {inserted} }}\nON - {columns} {{ seen[k] += -1; {deleted} }}\n"
    both = orderbook.compile(
        [
            STREAM,
            MAPS.replace("VIEW", text + "VIEW"),
            "CREATE VIEW q AS SELECT k, SUM(v) AS v FROM r GROUP BY k;",
        ]
    )
    program = both.program
    expected, found = InterpreterRuntime(program), GeneratedRuntime(program, watched=True)
    random_ = random.Random(name)
    rows: list[tuple[Any, ...]] = []
    for _ in range(60):
        event = []
        if rows and random_.random() < 0.7:
            old = rows.pop(random_.randrange(len(rows)))
            event.append(("r", False, old))
        if not event or random_.random() < 0.7:
            k, p, v = random_.choice((0, 1)), random_.choice((1, 2)), random_.choice((0, 1, 2))
            rows.append((*(event[0][2][:2] if event and random_.random() < 0.8 else (k, p)), v, 1, 0.5))
            event.append(("r", True, rows[-1]))
        for change in event:
            expected.change(*change)
        found.event(event)
        for view in ("shown", "q"):
            assert not difference(found.rows(view), expected.rows(view))
        assert not found.rows_not_told()


# A count of a touch waits in the triggers for whether there is one, as what is near the touch does.
NEAR = """
    CREATE VIEW top AS SELECT k, MAX(p) AS p FROM levels GROUP BY k;
    CREATE VIEW near AS
    SELECT r.k, SUM(r.p * r.w) / SUM(r.w) AS p FROM r
    WHERE 0.5 * (SELECT SUM(b.w) FROM r b
                 WHERE b.k = r.k AND b.p >= 0.6 * (SELECT MAX(c.p) FROM r c WHERE c.k = b.k))
        > (SELECT COALESCE(SUM(b.w), 0) FROM r b WHERE b.k = r.k AND b.p > r.p)
    GROUP BY r.k;
    CREATE VIEW q AS
    SELECT t.k, t.p FROM top t JOIN (SELECT DISTINCT k FROM s) o ON o.k = t.k
    UNION ALL SELECT t.k, -t.p FROM top t JOIN (SELECT DISTINCT k FROM s) o ON o.k = t.k;
    CREATE VIEW both AS SELECT t.k, n.p FROM top t JOIN near n ON n.k = t.k"""


def test_maps_that_share_entries_are_right_together() -> None:
    domains = {"r": {**_DOMAIN, "k": (0, 1)}, "s": {**_DOMAIN, "k": (0, 1)}}
    entry = Entry("near", STREAM + NEAR, domains=domains)
    assert check(entry, 0, 200) > 80


def test_maps_that_share_entries_are_written_at_once() -> None:
    """Of shipped views together: where an update leaves out what some of them wait for in the triggers."""
    views = [shipped_views()[name] for name in ("touch", "sobi_band", "micro_price", "market_maker")]
    planned = plan(orderbook.compile(views, load_configuration(None).parameters).program)
    groups = [{*store.maps} for store in planned.stores if len(store.maps) > 1]
    several = 0
    for update, group in product(planned.updates, groups):
        own = [
            (number, statement.level)
            for number, part in enumerate(update.parts)
            for statement in part
            if statement.target in group and statement.op == ":="
        ]
        assert len({*own}) <= 1 or {number for number, _ in own} == {0, 1}
        several += len(own) > 1
    assert several > 2
