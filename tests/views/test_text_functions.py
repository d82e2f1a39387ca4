"""Functions of texts: against DuckDB on many texts, through codes of a dictionary, and where they fail."""

import random
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from math import isclose
from typing import Any

import duckdb
import numpy as np
import pytest
from fuzz import InterpreterRuntime, compiled
from hypothesis import given
from hypothesis import strategies as st

from orderbook.core.changes import Dictionary
from orderbook.core.errors import DataError, SqlError
from orderbook.engine.generate.state_layout import ERROR, NO_TEXT
from orderbook.engine.maps.memory import Block
from orderbook.engine.runtime.interpreter import InterpreterRuntime as PlainRuntime
from orderbook.engine.runtime.numba_memory import Constants, TextValues
from orderbook.views.binding.catalog import bind
from orderbook.views.scalars import texts
from orderbook.views.scalars.evaluate import Pattern

ALPHABET = "aAbBxX-,_% \t\u00a0\u2003ßÉéıİﬁǅ日本\u200d👨‍👩‍👧\u0301\U0010ffff01"
NUMBERS = (
    *(
        "0",
        "-0",
        "1.5",
        "2.5",
        "-2.5",
        "+3",
        "1_000",
        "0x1F",
        ".5",
        "1.",
        "1e2",
        "1E-2",
        "1e",
        "",
        " ",
        " 7\t",
    ),
    *(
        "1e400",
        "-1e-400",
        "99999999999999999999",
        "1.005",
        "2.675",
        "9223372036854775807",
        "abc",
        "1 2",
        "--1",
    ),
    *("9223372036854775808", "1.0000000000000000000005", "12345678.999", "inf", "nan", "1e5.5", "_1", "1__0"),
    *("true", "T", "yes", "y", "on", "0", "no", "FALSE", "f", "2", " true"),
)

# What DuckDB says, by the function of two texts and an integer that is its like.
WITH_DUCKDB = {
    "upper(t)": ("upper", "t"),
    "lower(t)": ("lower", "t"),
    "length(t)": ("length", "t"),
    "strlen(t)": ("byte_length", "t"),
    "ascii(t)": ("code_point", "t"),
    "substring(t, i, j)": ("substring", "tij"),
    "left(t, i)": ("left", "ti"),
    "right(t, i)": ("right", "ti"),
    "trim(t)": ("trim", "ts"),
    "trim(t, u)": ("trim", "tu"),
    "ltrim(t, u)": ("ltrim", "tu"),
    "rtrim(t, u)": ("rtrim", "tu"),
    "replace(t, u, 'é')": ("replace", "tue"),
    "split_part(t, u, i)": ("split_part", "tui"),
    "t || u": ("concat", "tu"),
    "t[i:j]": ("part", "tij"),
    "translate(t, u, 'é')": ("translate", "tue"),
    "len(string_split(t, u))": ("parts", "tu"),
    "levenshtein(t, u)": ("levenshtein", "tu"),
    "md5(t)": ("md5", "t"),
    "sha1(t)": ("sha1", "t"),
    "hex(t)": ("hex_of_text", "t"),
    "hex(i)": ("hex_of_integer", "i"),
    "bin(i)": ("binary_of_integer", "i"),
    "bit_count(i)": ("bit_count", "i"),
    "gcd(i, j)": ("common_divisor", "ij"),
    "damerau_levenshtein(t, u)": ("damerau_levenshtein", "tu"),
    "CASE WHEN strlen(t) = strlen(u) AND t <> '' THEN hamming(t, u) END": ("hamming", "tu"),
    "CASE WHEN t <> '' AND u <> '' THEN jaccard(t, u) END": ("jaccard", "tu"),
    "jaro_similarity(t, u)": ("jaro", "tu"),
    "jaro_winkler_similarity(t, u)": ("jaro_winkler", "tu"),
    "sha256(t)": ("sha256", "t"),
    "(t GLOB u)::INT": ("glob", "tu"),
    "chr(i::INT + 300)": ("character", "c"),
    "lpad(t, i::INT, 'é-')": ("lpad", "tip"),
    "rpad(t, i::INT, 'é-')": ("rpad", "tip"),
    "repeat(t, i)": ("repeat", "ti"),
    "strpos(t, u)": ("position", "tu"),
    "starts_with(t, u)": ("has_prefix", "tu"),
    "suffix(t, u)": ("has_suffix", "tu"),
    "(t > u)::INT - (t < u)::INT": ("compare_texts", "tu"),
}


def said(name: str, args: Sequence[Any]) -> Any:
    return texts.FUNCTIONS[name].function(*args)


def rows() -> Iterator[tuple[str, str, int, int]]:
    draw = random.Random(19)
    for _ in range(1500):
        u = "".join(draw.choices(ALPHABET, k=draw.choice((0, 1, 1, 2, 3))))
        t = "".join(draw.choices((*ALPHABET, u), k=draw.randrange(9)))
        yield t, u, draw.randrange(-9, 10), draw.randrange(-4, 5)


@pytest.fixture(scope="module")
def database() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute("CREATE TABLE r (n INT, t VARCHAR, u VARCHAR, i BIGINT, j BIGINT)")
    connection.executemany(
        "INSERT INTO r VALUES (?, ?, ?, ?, ?)", [(n, *row) for n, row in enumerate(rows())]
    )
    return connection


@pytest.mark.parametrize("sql", WITH_DUCKDB)
def test_a_function_says_what_duckdb_says(sql: str, database: duckdb.DuckDBPyConnection) -> None:
    name, letters = WITH_DUCKDB[sql]
    wanted = database.execute(f"SELECT {sql} FROM r ORDER BY n").fetchall()
    for row, (value,) in zip(rows(), wanted, strict=True):
        if value is None:
            continue
        given = dict(zip("tuij", row, strict=True)) | {"s": texts.SPACES, "e": "é", "p": "é-"}
        given["c"] = row[2] + 300
        found = said(name, [given[letter] for letter in letters])
        assert found == value or (isinstance(value, float) and isclose(found, value)), (sql, row)


@pytest.mark.parametrize(
    ("kind", "what", "scale"),
    [
        ("BIGINT", "exact", (0,)),
        ("DECIMAL(18, 2)", "exact", (2,)),
        ("DOUBLE", "double", ()),
        ("BOOLEAN", "boolean", ()),
    ],
)
def test_a_text_says_what_duckdb_reads(kind: str, what: str, scale: tuple[int, ...]) -> None:
    for text in NUMBERS:
        (wanted,) = duckdb.execute(f"SELECT TRY_CAST(? AS {kind})", [text]).fetchone() or (None,)
        finite = wanted is not None and (what != "double" or np.isfinite(wanted))
        assert said(f"says_{what}", [text, *scale]) == finite, (text, wanted)
        if finite:
            assert said(f"{what}_of_text", [text, *scale]) == wanted * 10 ** sum(scale), text


def test_a_double_is_shown_as_duckdb_shows_it() -> None:
    draw = random.Random(4)
    values = [draw.uniform(-1, 1) * 10.0 ** draw.randrange(-320, 308) for _ in range(2000)]
    values += [0.0, 1.0, -1.5, 1e15, 1e16, 123456789012345680.0, 1e-4, 1e-5, 5e-324, 0.1 + 0.2]
    wanted = duckdb.execute("SELECT CAST(UNNEST(?::DOUBLE[]) AS VARCHAR)", [values]).fetchall()
    assert [(said("text_of_double", [v]),) for v in values] == wanted


def test_moments_are_shown_and_read() -> None:
    for ns in (0, -1, 1_704_164_645_120_000_000, -(2**62), 2**62 + 1, 951_782_400_000_000_000):
        text = said("text_of_moment", [ns])
        (wanted,) = duckdb.execute("SELECT CAST(make_timestamp_ns(?) AS VARCHAR)", [ns]).fetchone() or (None,)
        assert text == wanted
        assert (said("says_moment", [text]), said("moment_of_text", [text])) == (1, ns)
    assert said("says_moment", ["2024-02-30"]) == 0


FORMS = (
    *("%Y-%m-%d %H:%M:%S", "%Y-%m-%d %H:%M:%S.%f", "%Y%m%d", "%d/%m/%y %I:%M %p", "%b %d %Y", "%B %-d, %Y"),
    *("%Y %j", "%A %d %B %Y", "%a, %d %b %Y %H:%M:%S", "%Y-%m-%dT%H:%M:%S%z", "%S.%g", "%m.%d.%Y%%"),
)


@pytest.mark.parametrize("form", FORMS)
def test_times_are_read_as_duckdb_reads_them(form: str) -> None:
    """Of texts that are of a format, those with a character more, less or another, and some by hand."""
    draw, found = random.Random(form), []
    for _ in range(300):
        at = datetime(1700, 1, 1) + timedelta(microseconds=draw.randrange(15 * 10**15))
        text = at.strftime(form.replace("%-d", "%d").replace("%g", "%f").replace("%z", "+05:30"))
        place = draw.randrange(len(text))
        found += [text, text[:place] + text[place + 1 :], text[:place] + draw.choice("0 9a:-") + text[place:]]
    found += ["", "2024-02-30 01:02:03", "24:00:00", " 2024-1-2  3:4:5 ", "JANUARY 1, 2024"]
    found += ["2024 366", "2023 366", "2023 367", "2023 0"]
    wanted = duckdb.execute(
        "SELECT epoch_us(TRY_STRPTIME(t, ?)) FROM (SELECT UNNEST(?::VARCHAR[]) AS t)", [form, found]
    ).fetchall()
    for text, (us,) in zip(found, wanted, strict=True):
        if us is not None and not -9_100_000_000_000_000 <= us <= 9_100_000_000_000_000:
            us = None
        assert said("says_time", [text, form]) == (us is not None), (text, us)
        assert us is None or said("time_of_text", [text, form]) == us * 1000, text


SQL = """
CREATE STREAM names (v TEXT NOT NULL, ts TIMESTAMP, d DECIMAL(18, 2));
CREATE VIEW groups AS SELECT UPPER(v) AS u, v || '!' AS w, COUNT(*) AS n FROM names GROUP BY 1, 2;
"""


def test_groups_of_texts_move_to_another_dictionary() -> None:
    """What a checkpoint does: codes of another process stand for other texts."""
    program = compiled(SQL)
    old, new = Dictionary(), Dictionary(["zz!", "A", "b", "nothing"])
    before, after = PlainRuntime(program, old), PlainRuntime(program, new)
    for text in ("a", "b", "A", "a"):
        before._interpreter.change("names", True, (old.encode(text), None, None))
    after.restore(before.copied(), new.encode_all(old.strings()))
    after._interpreter.change("names", True, (new.encode("c"), None, None))

    def shown(runtime: PlainRuntime, words: Dictionary) -> list[Any]:
        rows = [row.columns for _, row in runtime.rows("groups")]
        return sorted((words.decode(int(u or 0)), words.decode(int(w or 0)), n) for u, w, n in rows)

    assert shown(after, new) == [("A", "A!", 1), ("A", "a!", 2), ("B", "b!", 1), ("C", "c!", 1)]


class State:
    """What compiled code and Python share of a runtime, in uncompiled memory."""

    def __init__(self) -> None:
        self.dictionary, self.state = Dictionary(), Block(64)
        self.constants = Constants(self.dictionary)
        self.values = TextValues(self.dictionary, self.constants, self.state)

    def value(self, name: str, *words: int) -> int:
        place = self.values._held.address
        for at, word in enumerate(words, 1):
            self.values._held[at] = word
        return self.values.value(texts.NUMBERS[name], place)


def test_texts_that_a_function_gives_are_known_to_patterns() -> None:
    state = State()
    pattern = Pattern("%!")
    state.constants.places[pattern] = 0
    state.constants.store()
    given = state.value("concat", state.dictionary.encode("a"), state.dictionary.encode("!"))
    table = state.constants.tables[pattern]
    words = (np.ctypeslib.as_array(table._words)).tolist()
    assert state.dictionary.decode(given) == "a!"
    assert words[0] == len(state.dictionary) and words[1] >> given & 1 == 1


def test_a_function_that_fails_is_noted_in_the_state(monkeypatch: pytest.MonkeyPatch) -> None:
    state = State()

    def fail(text: str) -> str:
        raise MemoryError(text)

    monkeypatch.setitem(texts.FUNCTIONS, "upper", texts.TextFunction("t", "t", fail))
    assert state.value("upper", state.dictionary.encode("a")) == 0
    assert state.state[ERROR] == NO_TEXT and isinstance(state.values.problem, MemoryError)


@pytest.mark.parametrize(
    ("expression", "error"),
    [
        ("UPPER(ts)", "UPPER of TIMESTAMP is not supported; it takes TEXT there"),
        ("LENGTH(1)", "LENGTH of INTEGER is not supported"),
        ("LEFT(v, 1.5)", "LEFT of DECIMAL is not supported; it takes INTEGER there"),
        ("LPAD(v, 3, '')", "LPAD with a filling that is not constant, or empty"),
        ("LPAD(v, 40000, 'x')", "LPAD by more than 32767"),
        ("LPAD(v, 3)", "LPAD takes 3 arguments"),
        ("REPEAT(v, 40000)", "REPEAT by more than 32767"),
        ("CONCAT_WS('-')", "CONCAT_WS takes at least 2 arguments"),
        ("CAST(v AS HUGEINT)", "CAST of TEXT to more than 64 bits"),
        ("STRLEN(v, 1)", "STRLEN takes 1 argument"),
    ],
)
def test_what_functions_of_texts_do_not_take(expression: str, error: str) -> None:
    with pytest.raises(SqlError) as refusal:
        bind([(None, SQL + f"SELECT {expression} FROM names")])
    assert error in refusal.value.message


def test_the_day_of_a_moment_is_shown_alone() -> None:
    sql = "CREATE STREAM m (ts TIMESTAMP NOT NULL); CREATE VIEW v AS SELECT "
    runtime = InterpreterRuntime(compiled(sql + "CAST(ts::DATE AS VARCHAR) AS d, ts::VARCHAR AS t FROM m"))
    runtime.change("m", True, (951_782_400_500_000_000,))
    assert runtime.rows("v") == [("2000-02-29", "2000-02-29 00:00:00.5")]


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=14), min_size=2, max_size=6))
def test_words_order_texts_as_their_bytes_do(some: list[str]) -> None:
    def words(text: str) -> list[int]:
        return [int(said("order_word", [text, place])) for place in range(texts.ORDER_WORDS)]

    short = [t for t in some if len(t.encode()) <= texts.ORDER_WORDS * texts.WORD_BYTES]
    assert sorted(short, key=words) == sorted(short, key=str.encode)
    own = texts.FUNCTIONS["order_word"]
    assert all(own.low <= word <= own.high for text in some for word in words(text))


def test_the_last_text_has_the_highest_word() -> None:
    assert said("order_word", ["", 0]) == texts.FUNCTIONS["order_word"].low
    assert said("order_word", ["\U0010ffff" * 2, 0]) < texts.FUNCTIONS["order_word"].high


def test_texts_that_agree_too_long_are_an_error_that_names_both() -> None:
    sql = "CREATE STREAM m (v TEXT NOT NULL); CREATE VIEW g AS SELECT MAX(v) AS v FROM m"
    runtime = InterpreterRuntime(compiled(sql))
    first = "x" * 24
    for text in (first, first[1:] + "y", first):
        runtime.change("m", True, (text,))
    assert runtime.rows("g") == [("x" * 23 + "y",)]
    with pytest.raises(DataError, match=f"'{first}' and '{first}z' agree in their first 24 bytes"):
        runtime.change("m", True, (first + "z",))
