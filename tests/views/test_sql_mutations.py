"""Texts that are nearly SQL or M3: they compile, or one error of ours says where, and never anything else."""

import random
import re
from functools import cache

import pytest
from fuzz import program_of
from views_catalogue import CATALOGUE, Entry

from orderbook.core.errors import SqlError
from orderbook.core.generated_code import check_source
from orderbook.engine.generate.numbering import Numbering
from orderbook.engine.generate.program import program_module
from orderbook.engine.plan.planner import plan
from orderbook.views.binding.parser import Sql
from orderbook.views.compilation import compile_views
from orderbook.views.m3 import program_text

MORE = (
    *("NULL", "*", "(", ")", ",", "OVER", "DISTINCT", "NOT", "'x'", "-1", "1e999", ":p", "?", "[", "]"),
    *("INTERVAL", "FILTER", "WINDOW", "LATERAL", "PIVOT", "UNPIVOT", "MATCH_RECOGNIZE", "UNION", "ALL"),
    *("WITH", "ORDER BY", "LIMIT", "CASE", "END", "AS", "::", "CAST", "EXISTS", "IN", "BETWEEN", "USING"),
    *("FROM", "SELECT", "GROUP BY", "HAVING", "QUALIFY", "TABLESAMPLE", "RECURSIVE", "VALUES", "INSERT"),
    *("GRANT", "SET", "\0", "\\", '"'),
)
M3_TOKEN = re.compile(r"\s+|-?\d+(?:\.\d+)?(?:e[+-]?\d+)?|'(?:[^']|'')*'|\w+|\^=|\+=|:=|<>|<=|>=|\.\.|\S")
# Words of other libraries' errors.
FOREIGN = re.compile(r"Expecting|Required keyword|<Token|<class|Traceback|sqlglot")


@cache
def sql_tokens(name: str) -> list[str]:
    """The words of a view's SQL, from its first query on as one list of words each; before it in one."""
    sql = next(e.sql for e in CATALOGUE if e.name == name)
    found = [sql[t.start : t.end + 1] for t in Sql().tokenize(sql)]
    first = next((i for i, word in enumerate(found) if word.upper() == "SELECT"), 0)
    return [" ".join(found[:first]), *found[first:]]


@cache
def m3_tokens(name: str) -> list[str]:
    """The words of a view's M3 behind its streams, spaces among them."""
    text = program_text(program_of(next(e for e in CATALOGUE if e.name == name)))
    return M3_TOKEN.findall(text[max(text.find("MAP"), 0) :])


def mutated(generator: random.Random, words: list[str], others: list[str]) -> list[str]:
    """The words with one to three of them gone, doubled, exchanged or replaced."""
    found = list(words)
    for _ in range(generator.choice((1, 1, 2, 3))):
        place, other = generator.randrange(len(found)), generator.randrange(len(found))
        match generator.randrange(5):
            case 0:
                del found[place]
            case 1:
                found.insert(place, found[place])
            case 2:
                found[place], found[other] = found[other], found[place]
            case 3:
                found[place] = generator.choice(others)
            case 4:
                found.insert(place, generator.choice((*MORE, *others)))
        found = found or [" "]
    return found


def check(texts: list[str], entry: Entry) -> bool:
    """Whether the texts compile, to code that may run."""
    try:
        program = compile_views(texts, dict(entry.parameters)).program
    except SqlError as error:
        check_error(error)
        return False
    check_source(program_module(Numbering({}).plan(plan(program))))
    return True


def check_error(error: SqlError) -> None:
    assert error.line > 0 and not FOREIGN.search(error.message), error.message


def test_nearly_sql_ends_in_an_error_that_says_where(sample_seed: int, sample_count: int) -> None:
    generator = random.Random(sample_seed)
    for _ in range(3 * sample_count):
        entry, other = generator.choice(CATALOGUE), generator.choice(CATALOGUE)
        words = mutated(generator, sql_tokens(entry.name), sql_tokens(other.name)[1:] or [""])
        check([" ".join(words)], entry)


@pytest.mark.sampled(2)
def test_nearly_m3_ends_in_an_error_that_says_where(sample_seed: int, sample_count: int) -> None:
    generator = random.Random(sample_seed)
    compiled = 0
    for _ in range(sample_count):
        entry = generator.choice(CATALOGUE)
        streams = [s for s in entry.sql.split(";") if re.match(r"\s*CREATE (STREAM|TABLE)", s)]
        words = m3_tokens(entry.name)
        m3 = "".join(mutated(generator, words, words))
        starts = re.match(r"\s*(STREAM|TABLE|MAP|INITIAL|ON|VIEW)\b", m3)
        if starts:
            compiled += check([*streams, m3], entry)
    assert compiled
