"""Any text ends quickly in a catalog or in one SqlError of one line."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orderbook.core.errors import SqlError
from orderbook.views.binding.bound_print import bound_text
from orderbook.views.binding.catalog import bind
from orderbook.views.binding.parser import MAX_PARENTHESES
from orderbook.views.binding.scope import MAX_SOURCES

WORDS = [
    "select", "from", "where", "group", "by", "having", "order", "limit", "join", "left", "inner",
    "cross", "on", "using", "and", "or", "not", "in", "is", "null", "true", "(", ")", "(", ")", ",", ",",
    ".", "*", "+", "-", "/", "=", "<", ">", "<>", ":", ":k", "1", "2.5", "'a'", "price", "volume", "bids",
    "asks", "b", "a", "sum", "count", "avg", "coalesce", "min", "distinct", "case", "when", "then", "end",
    "exists", "between", "as", "union", "all", "with", "create", "view", "stream", "table", "int",
    "decimal(10,2)", "check", "text", ";", "over", "partition", "filter", "any", "cast", "[", "]", "{",
    "}", "::", "?", "@", "unnest", "values", "lateral", "interval", "array", "extract", "date",
    "timestamp",
]  # fmt: skip
STARTS = [
    "", "select ", "create view v as select ", "create table t (", "select sum(price) from bids where ",
    "select price from bids group by ", "select a.price from bids a join ",
]  # fmt: skip


def outcome(sql: str) -> str:
    """'bound', or the message of the SqlError; any other exception passes."""
    try:
        views = bind([(None, sql)], {"k": 1}).views
    except SqlError as error:
        refusal = error
    else:
        assert all(bound_text(view) for view in views)
        return "bound"
    assert "\n" not in str(refusal)
    assert refusal.line > 0 and refusal.column > 0
    return refusal.message


def nested(head: str, core: str, tail: str, depth: int) -> str:
    return head * depth + core + tail * depth


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        (f"SELECT {nested('(', 'price', ')', 200)} FROM bids", f"nested more than {MAX_PARENTHESES} deep"),
        (f"SELECT {nested('(', 'price', ')', 30)} FROM bids", "bound"),
        (f"SELECT {'(' * 5000}", f"nested more than {MAX_PARENTHESES} deep"),
        (f"SELECT * FROM {nested('(SELECT * FROM ', 'bids', ')', 30)}", "bound"),
        (f"SELECT {nested('abs(', 'price', ')', 30)} FROM bids", "bound"),
        (f"SELECT {nested('none(', 'price', ')', 30)} FROM bids", "function NONE is not supported"),
        (f"SELECT {nested('median(', 'price', ')', 30)} FROM bids", "nested aggregate MEDIAN"),
        (f"SELECT {nested('CASE WHEN ', 'price', ' THEN 1 END', 300)} FROM bids", "nested too deeply"),
        (f"SELECT {nested('[', '1', ']', 500)} FROM bids", "nested too deeply"),
        (f"SELECT id FROM bids WHERE {'NOT ' * 1000} TRUE", "nested too deeply"),
        (f"SELECT {'- ' * 1000} price FROM bids", "nested too deeply"),
        (f"SELECT {' + '.join(['price'] * 100)} FROM bids", "bound"),
        (f"SELECT {' + '.join(['price'] * 5000)} FROM bids", "nested more than 120 deep"),
        (f"SELECT id FROM bids WHERE {' OR '.join(f'id = {i}' for i in range(1000))}", "bound"),
        (f"SELECT id FROM bids WHERE id IN ({', '.join(map(str, range(1000)))})", "bound"),
        (f"SELECT {' * '.join(['price'] * 100)} FROM bids", "more than 1000 digits"),
        (f"SELECT {'9' * 6000} FROM bids", "is not a number that can be read"),
        (f"CREATE TABLE t (x {nested('ARRAY<', 'INT', '>', 100)})", "not supported"),
        (f"CREATE TABLE t (x INT) WITH (max_rows = {'9' * 6000})", "max_rows is a whole number"),
    ],
    ids=lambda text: text[:30],
)
def test_deep_and_long_texts(sql: str, expected: str) -> None:
    assert expected in outcome(sql)


def test_twelve_way_join() -> None:
    relations = ", ".join(f"bids a{i}" for i in range(12))
    conditions = " AND ".join(f"a{i}.price < a{i + 1}.price" for i in range(11))
    assert outcome(f"SELECT COUNT(*) FROM {relations} WHERE {conditions}") == "bound"


def test_views_that_multiply_their_sources() -> None:
    views = [f"CREATE VIEW v{i} AS SELECT a.id FROM v{i - 1} a, v{i - 1} b" for i in range(1, 30)]
    message = outcome(";".join(["CREATE VIEW v0 AS SELECT id FROM bids", *views]))
    assert f"reads more than {MAX_SOURCES} relations" in message


def test_long_chain_of_views() -> None:
    views = [f"CREATE VIEW v{i} AS SELECT id FROM v{i - 1}" for i in range(1, 60)]
    chain = ["CREATE VIEW v0 AS SELECT id FROM bids", *views]
    assert outcome(";".join(chain)) == "bound"
    assert outcome(";".join(reversed(chain))) == "bound"
    forwards, backwards = bind([(None, ";".join(chain))]), bind([(None, ";".join(reversed(chain)))])
    assert forwards == backwards


@pytest.mark.parametrize("start", ["", "SELECT ", "CREATE VIEW v AS ", "CREATE STREAM s ("])
@pytest.mark.parametrize("seed", range(5))
def test_ten_kilobytes_of_garbage(start: str, seed: int) -> None:
    draw = random.Random(seed)
    characters = (draw.choice([draw.randrange(32, 127), draw.randrange(1, 0x3000)]) for _ in range(10_240))
    garbage = "".join(map(chr, characters))
    assert outcome(start + garbage) != "bound"
    words = " ".join(draw.choice([w for w in WORDS if w != "("]) for _ in range(2000))
    assert outcome(start + words) != "bound"


@given(st.sampled_from(STARTS), st.lists(st.sampled_from(WORDS), max_size=14))
def test_any_words(start: str, words: list[str]) -> None:
    assert outcome(start + " ".join(words))


@given(st.text(max_size=60))
def test_any_text(text: str) -> None:
    assert outcome(text)
