"""`Extreme` in every pass of the compiler, and how far a changed row reaches."""

import pytest
from fuzz import compiled

from orderbook.views.calculus import (
    ZERO,
    Cmp,
    Const,
    Exists,
    Extreme,
    Factor,
    Lift,
    Poly,
    Rel,
    Val,
    Var,
    bound_by,
    product,
)
from orderbook.views.m3 import factor_text, program_text
from orderbook.views.m3_parse import parse
from orderbook.views.maintenance.deltas import extreme_limits, nested_domains
from orderbook.views.names import canonical, rename_apart
from orderbook.views.simplify import simplify
from orderbook.views.types import INTEGER, Column, Relation

R = Relation("r", (Column("k", INTEGER, nullable=False), Column("x", INTEGER, nullable=False)))
K, X, Y, M, N, V, W = map(Var, ("k", "x", "y", "m", "n", "v", "w"))
BEST = Extreme(M, True, V, product(Rel("r", (K, V))))


def test_an_extreme_prints_and_reads_back() -> None:
    assert factor_text(BEST) == "(m ^= MAX[v](r(k, v)))"
    text = "STREAM r(k INTEGER, x INTEGER);\n\nMAP a[k INTEGER] BIGINT =\n  (m ^= MIN[v](r(k, v))) * m;\n"
    assert program_text(parse(text)[0]) == text
    (term,) = parse(text)[0].maps[0].definition.terms
    assert term == (Extreme(M, False, V, product(Rel("r", (K, V)))), Val(M))


def test_the_value_is_local_to_its_extreme() -> None:
    assert bound_by(BEST) == {M}
    clash = product(Rel("r", (K, V)), BEST)
    ((_, extreme),) = rename_apart(clash).terms
    assert isinstance(extreme, Extreme)
    assert extreme.value == Var("v~2") and extreme.body == product(Rel("r", (K, Var("v~2"))))
    assert extreme.var == M


@pytest.mark.parametrize(
    ("factors", "expected"),
    [
        ((Extreme(M, True, V, ZERO), Val(M)), ZERO),
        ((Exists((M,), ZERO), Val(M)), ZERO),
        ((BEST,), product(BEST)),
        ((BEST, Extreme(N, True, W, product(Rel("r", (K, W)))), Val(N)), product(BEST, Val(M))),
        (
            (Extreme(M, True, V, product(Rel("r", (K, X)), Cmp("=", X, V))), Val(M)),
            product(BEST, Val(M)),
        ),
        (
            (Lift(N, product(BEST, Val(M))), Val(N), Rel("r", (K, Y))),
            product(Rel("r", (K, Y)), BEST, Val(M)),
        ),
    ],
    ids=["empty", "empty groups", "unused", "equal", "value stays", "unlifted"],
)
def test_extremes_are_simplified(factors: tuple[Factor, ...], expected: Poly) -> None:
    assert simplify(product(*factors), {K}) == expected


def test_different_extremes_stay_apart() -> None:
    least = Extreme(N, False, W, product(Rel("r", (K, W))))
    other = Extreme(N, True, W, product(Rel("r", (Y, W))))
    for second in (least, other):
        both = product(Rel("r", (K, Y)), BEST, second, Val(M), Val(N))
        assert simplify(both, {K}) == both


def test_a_variable_that_an_extreme_binds_is_not_replaced_by_a_constant() -> None:
    kept = product(Rel("r", (K, X)), BEST, Cmp("=", M, Const(3)))
    assert simplify(kept, {K}) == kept


def test_names_do_not_tell_extremes_apart() -> None:
    same = Extreme(N, True, X, product(Rel("r", (Y, X))))
    assert canonical((K,), product(BEST, Val(M)))[0] == canonical((Y,), product(same, Val(N)))[0]
    least = Extreme(M, False, V, BEST.body)
    assert canonical((K,), product(BEST, Val(M)))[0] != canonical((K,), product(least, Val(M)))[0]


@pytest.mark.parametrize(
    ("term", "expected"),
    [
        ((Rel("s", (K,)), BEST), [{K: Var("@k")}]),
        ((Rel("s", (Y,)), Lift(N, product(Rel("r", (K, X)), Cmp("=", K, Y)))), [{Y: Var("@k")}]),
        ((Exists((Y,), product(Rel("r", (K, X)), Lift(Y, product(Val(K))))),), [{Y: Var("@k")}]),
        ((Rel("s", (Y,)), Lift(N, product(Rel("r", (K, X)), Cmp("<", K, Y)))), [{}]),
        ((Rel("s", (Y,)), Lift(N, product(Rel("s", (Y,))))), []),
        (
            (Exists((Y,), product(Rel("r", (Y, X))) + product(Rel("r", (K, Y)))),),
            [{Y: Var("@k")}, {Y: Var("@x")}],
        ),
    ],
    ids=["extreme", "equality", "lifted key", "inequality", "other relation", "several terms"],
)
def test_a_change_reaches_what_agrees_with_it(term: tuple[Factor, ...], expected: list[object]) -> None:
    assert nested_domains(term, R) == expected


TABLES = """
CREATE STREAM l (id INTEGER NOT NULL, parent INTEGER NOT NULL, v INTEGER NOT NULL);
CREATE STREAM r (a INTEGER, b INTEGER NOT NULL);
"""


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT SUM(l.v) AS s FROM l WHERE (SELECT COUNT(*) FROM r WHERE r.b = l.id) = 0",
        "SELECT SUM(x.v) AS s FROM l x WHERE (SELECT COUNT(*) FROM l y WHERE y.id = x.parent) = 0",
        "SELECT SUM(d.n * d.n) AS s FROM (SELECT a + b AS g, COUNT(*) AS n FROM r GROUP BY a + b) d",
        "SELECT d.g, d.n FROM (SELECT a + b AS g, COUNT(*) AS n FROM r GROUP BY a + b) d WHERE d.n > 1",
    ],
    ids=["anti-join", "anti-join with itself", "grouped by an expression", "filtered by a count"],
)
def test_no_event_evaluates_a_whole_map_again(sql: str) -> None:
    program = compiled(f"{TABLES}CREATE VIEW v AS {sql}")
    for trigger in program.triggers:
        for statement in trigger.statements:
            free = [k for k in statement.keys if isinstance(k, Var) and k not in trigger.parameters]
            assert statement.op == "+=" or (statement.keys and not free), statement


def test_a_row_reaches_only_where_it_is_the_greatest() -> None:
    later = Cmp("<=", V, Y)
    term = (Rel("q", (Y,)), Extreme(M, True, V, product(Rel("r", (K, V)), later)), Rel("r", (K, M)))
    *limits, nothing_beyond = extreme_limits(term, R)
    assert Cmp("<=", Var("@x"), Y) in limits
    assert [type(f) for f in limits].count(Lift) == 2
    assert isinstance(nothing_beyond, Cmp) and nothing_beyond.op == "<"


def test_a_sum_beside_the_greatest_row_is_reached_everywhere() -> None:
    total = Lift(N, product(Rel("r", (W, X)), Val(X)))
    assert extreme_limits((Rel("q", (Y,)), BEST, total), R) == ()


def test_groups_that_are_compared_by_their_sum_are_kept_by_it() -> None:
    text = "CREATE STREAM r (k INTEGER NOT NULL, x INTEGER NOT NULL);" + (
        "CREATE VIEW v AS SELECT COUNT(*) AS n FROM (SELECT k, COUNT(*) AS n FROM r GROUP BY k) a, "
        "(SELECT x, COUNT(*) AS n FROM r GROUP BY x) b WHERE a.n > b.n"
    )
    keyed = [m for m in compiled(text).maps if any(k.name.startswith("count") for k in m.keys)]
    assert keyed


def test_a_sum_of_more_than_one_word_is_no_key() -> None:
    text = "CREATE STREAM r (k INTEGER NOT NULL, x BIGINT NOT NULL);" + (
        "CREATE VIEW v AS SELECT k FROM r GROUP BY k ORDER BY SUM(x) LIMIT 2"
    )
    assert not any(k.name.startswith("sum") for m in compiled(text).maps for k in m.keys)
