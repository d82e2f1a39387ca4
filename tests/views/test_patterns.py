"""Regular expressions, wildcards and formats against DuckDB, which has RE2 and fmt; and their refusals."""

import random
from collections.abc import Callable

import duckdb
import pytest
from fuzz import InterpreterRuntime, compiled

from orderbook.core.errors import SqlError
from orderbook.views.binding.catalog import bind
from orderbook.views.scalars import formats, patterns
from orderbook.views.scalars.texts import months_later

ATOMS = [
    "a",
    "b",
    "-",
    ".",
    r"\d",
    r"\w",
    r"\s",
    "[a-c]",
    "[^a]",
    "[0-9]",
    "(a|b)",
    "(ab)",
    "(?:c|d-)",
    "^",
    "$",
]
ATOMS += [
    r"\b",
    r"\.",
    "[[:alpha:]]",
    r"[\d-]",
    "é",
    "(?i:A)",
    r"\pL",
    "(a*)",
    r"\D",
    r"\S",
    "(a+?)",
    "(?P<n>x)",
]
REPEATS = ["", "", "", "*", "+", "?", "{2}", "{1,2}", "*?", "+?", "{2,}"]
ALPHABET = "aabbccdxAB0123-. é\n_"
REGULAR: dict[str, Callable[[str, str], int | str]] = {
    "regexp_matches(t, ?)::INT": patterns.regexp_matches,
    "regexp_full_match(t, ?)::INT": patterns.regexp_full_match,
    "regexp_extract(t, ?)": lambda text, pattern: patterns.regexp_extract(text, pattern, 0),
    r"regexp_replace(t, ?, '<\0>', 'g')": lambda text, pattern: patterns.regexp_replace_all(
        text, pattern, r"<\0>"
    ),
}


@pytest.fixture(scope="module")
def database() -> duckdb.DuckDBPyConnection:
    return duckdb.connect(config={"threads": 1})


def pattern(draw: random.Random) -> str:
    text = "".join(draw.choice(ATOMS) + draw.choice(REPEATS) for _ in range(draw.randint(1, 4)))
    return text + "|" + draw.choice(ATOMS) if draw.random() < 0.3 else text


@pytest.mark.sampled(2)
def test_regular_expressions_match_as_in_duckdb(
    database: duckdb.DuckDBPyConnection, sample_seed: int, sample_count: int
) -> None:
    draw, compared = random.Random(sample_seed), 0
    strings = ["".join(draw.choices(ALPHABET, k=n % 10)) for n in range(20)]
    database.execute("CREATE OR REPLACE TABLE t AS SELECT UNNEST(?) AS t", [strings])
    for _ in range(20 * sample_count):
        own = pattern(draw)
        for sql, function in REGULAR.items():
            try:
                wanted = [v for (v,) in database.execute(f"SELECT {sql} FROM t", [own]).fetchall()]
            except duckdb.InvalidInputException:
                # It has matched between the bytes of a character.
                continue
            assert [function(s, own) for s in strings] == wanted, (sql, own)
            compared += 1
    assert compared > 60 * sample_count


@pytest.mark.parametrize(
    ("options", "wanted"), [("", 0), ("i", 1), ("c", 0), ("ic", 0), ("s", 0), ("is", 1), ("l", 0)]
)
def test_options_are_those_of_duckdb(options: str, wanted: int, database: duckdb.DuckDBPyConnection) -> None:
    own = patterns.with_options("A.B", options)
    assert [patterns.regexp_matches(s, own) for s in ("axb", "a\nb")] == [
        int(v)
        for s in ("axb", "a\nb")
        for v in database.execute("SELECT regexp_matches(?, 'A.B', ?)", [s, options]).fetchone() or ()
    ]
    assert patterns.regexp_matches("axb", own) == wanted


def test_a_match_takes_time_linear_in_the_text() -> None:
    assert not patterns.regexp_matches("a" * 2000, "^(a+)+(a|a)*b$")


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ("(", "missing ): ("),
        (")", "unexpected ): )"),
        ("*a", "no argument for repetition operator: *"),
        ("a{2000}", "invalid repetition size: {2000}"),
        ("[b-a]", "invalid character class range: b-a"),
        ("(?=a)", "invalid perl operator: (?="),
        ("(((a{30}){30}){30})", "invalid repetition size: {30}"),
    ],
)
def test_what_is_no_regular_expression_says_why(wrong: str, why: str) -> None:
    with pytest.raises(patterns.PatternError) as refusal:
        patterns.regex(wrong)
    assert why in str(refusal.value)
    with pytest.raises(SqlError, match="is no regular expression"):
        bind([(None, f"CREATE STREAM m (s TEXT); SELECT REGEXP_MATCHES(s, '{wrong}') FROM m")])


def test_wildcards_match_as_in_duckdb(
    database: duckdb.DuckDBPyConnection, sample_seed: int, sample_count: int
) -> None:
    draw = random.Random(sample_seed)
    rows = [
        (
            "".join(draw.choices("abc%_", k=draw.randrange(6))),
            "".join(draw.choices(r"ab%_*?[]!-c", k=draw.randrange(6))),
        )
        for _ in range(100 * sample_count)
    ]
    database.execute("CREATE OR REPLACE TABLE w (t VARCHAR, p VARCHAR)")
    database.executemany("INSERT INTO w VALUES (?, ?)", rows)
    for sql, function in {
        "t LIKE p": lambda t, p: patterns.like(t, p, ""),
        "t ILIKE upper(p)": lambda t, p: patterns.ilike(t, p.upper(), ""),
        "t LIKE replace(p, '!', '!!') ESCAPE '!'": lambda t, p: patterns.like(t, p.replace("!", "!!"), "!"),
        "t GLOB p": patterns.glob,
    }.items():
        wanted = [int(v) for (v,) in database.execute(f"SELECT {sql} FROM w").fetchall()]
        assert [function(*row) for row in rows] == wanted, sql


FORMS = (
    "%a %A %w %u %d %-d %b %B %m %-m %y %-y %Y %H %-H %I %-I %p %M %S %g %f %j %-j %U %W %V %G %c %x %X %%"
)
MOMENTS = [0, -1_000, 951_782_400_123_456_000, 1_704_067_200_000_000_000, 1_735_603_200_999_999_000]
MOMENTS += [year * 31_556_952 * 10**9 + 86_400 * 10**9 * 10 for year in range(-30, 80, 7)]


def test_moments_are_written_as_in_duckdb(database: duckdb.DuckDBPyConnection) -> None:
    for ns in MOMENTS:
        (wanted,) = (
            database.execute("SELECT strftime(make_timestamp(?), ?)", [ns // 1000, FORMS]).fetchone() or ()
        )
        assert formats.strftime(ns, FORMS) == wanted


def test_months_are_added_as_in_duckdb(database: duckdb.DuckDBPyConnection) -> None:
    for ns in MOMENTS:
        for months in (-13, -1, 0, 1, 2, 11, 25):
            query = "SELECT epoch_us(make_timestamp(?) + to_months(?))"
            (wanted,) = database.execute(query, [ns // 1000, months]).fetchone() or ()
            assert months_later(ns, months) == wanted * 1000


STREAM = "CREATE STREAM m (ts TIMESTAMP NOT NULL, n BIGINT, x DOUBLE, s TEXT);"
COLUMNS = """
DATE_DIFF('second', TIMESTAMP '2000-02-29 11:59:59.5', ts); epoch_us(ts::DATE + 3);
ts::DATE - DATE '2000-01-01'; (ts::TIME > TIME '11:59')::INT;
(ts::TIME NOT BETWEEN '00:00:00.5' AND '11:59')::INT; ('12:00' < ts::TIME)::INT; (n = '3')::INT;
EXTRACT(epoch FROM ts - TIMESTAMP '2000-01-01');
DATE_DIFF('week', ts, TIMESTAMP '2000-02-29 12:00:00');
DATE_DIFF('quarter', ts, TIMESTAMP '2000-02-29 12:00:00');
DATEDIFF('month', TIMESTAMP '1999-12-31', ts);
DATE_DIFF('year', ts, TIMESTAMP '1970-01-01'); DATE_SUB('hour', TIMESTAMP '2000-02-29 11:59:59.5', ts);
epoch_us(ts + INTERVAL '1 month'); epoch_us(ts - INTERVAL '1 year 3 days'); epoch_us(LAST_DAY(ts)::TIMESTAMP);
epoch_us(DATE_ADD(ts, INTERVAL '2 hours')); epoch_us(ts + INTERVAL (n) MINUTE); DAYNAME(ts); MONTHNAME(ts);
epoch_us(TIME_BUCKET(INTERVAL '7 minutes', ts, INTERVAL '3 minutes')); epoch_us(MAKE_TIMESTAMP(n));
epoch_us(TIME_BUCKET(INTERVAL '1 hour', ts, TIMESTAMP '2024-01-01 00:20:00')); epoch_us(TO_TIMESTAMP(n));
STRFTIME(ts, '%Y-%m-%d %H:00');
FORMAT('{} {:,} {:>6} {:05d}', n, n, n, n); FORMAT('{:.3f} {:e} {}', x, x, x);
PRINTF('%d %5d %-5d| %x', n, n, n, n);
PRINTF('%s %.2f', s, x); FORMAT('{1} {0} {{}}', s, n); PRINTF('100%%')
"""


def test_functions_of_time_and_formats_are_those_of_duckdb(database: duckdb.DuckDBPyConnection) -> None:
    columns = [c.strip() for c in COLUMNS.split(";")]
    listed = ", ".join(f"{c} AS c{n}" for n, c in enumerate(columns))
    runtime = InterpreterRuntime(compiled(STREAM + f"CREATE VIEW v AS SELECT {listed} FROM m"))
    database.execute("CREATE OR REPLACE TABLE m (ts TIMESTAMP, n BIGINT, x DOUBLE, s VARCHAR)")
    for place, ns in enumerate(MOMENTS):
        row = (
            place * 1_234_567 if place % 4 else None,
            place * 0.375 if place % 5 else None,
            "é" * (place % 3),
        )
        runtime.change("m", True, (ns, *row))
        database.execute("INSERT INTO m VALUES (make_timestamp(?), ?, ?, ?)", [ns // 1000, *row])
        (found,), wanted = runtime.rows("v"), database.execute(f"SELECT {listed} FROM m").fetchone()
        assert wanted is not None
        for column, one, other in zip(columns, found, wanted, strict=True):
            assert one == pytest.approx(other, rel=1e-12) if isinstance(other, float) else one == other, (
                column
            )
        runtime.change("m", False, (ns, *row))
        database.execute("DELETE FROM m")


def test_to_char_is_that_of_postgresql() -> None:
    form = 'YYYY-MM-DD HH24:MI:SS.MS US FMDD FMHH12 Mon FMMonth Dy FMDay DDD IYYY IW ID YY AM "at %" 100%'
    wanted = "2024-01-05 15:04:09.120 120456 5 3 Jan January Fri Friday 005 2024 01 5 24 PM at % 100%"
    runtime = InterpreterRuntime(
        compiled(STREAM + f"CREATE VIEW v AS SELECT TO_CHAR(ts, '{form}') AS t FROM m")
    )
    runtime.change("m", True, (1_704_467_049_120_456_000, 1, 0.5, ""))
    assert runtime.rows("v") == [(wanted,)]


@pytest.mark.parametrize(
    ("call", "error"),
    [
        ("FORMAT('{', n)", "is no format"),
        ("FORMAT('{} {}', n)", "FORMAT has no value for {}"),
        ("FORMAT('{:d}', x)", "is no format of such a value"),
        ("PRINTF('%d', s)", "is no format of such a value"),
        ("PRINTF('%', n)", "is no format"),
        ("TO_CHAR(ts, 'Month')", "Month filled up with spaces is not supported; write FMMonth"),
        ("TO_CHAR(n, '999D9')", "TO_CHAR"),
        ("CAST('25:00' AS TIME) + CAST('x' AS TIME)", "is no TIME"),
        ("CAST(ts::TIME AS VARCHAR)", "CAST of a TIME to a text"),
        ("CAST(n AS TIME)", "CAST of INTEGER to TIME"),
        ("LIST_CONTAINS(s, s)", "LIST_CONTAINS of such a list"),
        ("STRFTIME(ts, '%Q')", "%Q is no part of a format of time"),
        ("REGEXP_REPLACE(s, 'a', '\\1')", "is none of its 0 groups"),
        ("REGEXP_MATCHES(s, 'a', 'z')", "there is no option 'z'"),
    ],
)
def test_a_format_that_is_none_says_why(call: str, error: str) -> None:
    with pytest.raises(SqlError) as refusal:
        bind([(None, STREAM + f"SELECT {call} FROM m")])
    assert error in refusal.value.message
