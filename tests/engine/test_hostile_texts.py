"""No text that a user, an exchange or a file wrote is part of generated source: it becomes numbers."""

import ast
import random
import re
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from hostile_texts import EXPLOIT, NAMES, PIECES, Subject, literal, modules
from paths import PROJECT
from uncompiled import run_uncompiled

from orderbook.core.errors import OrderbookError, SqlError
from orderbook.core.generated_code import check_source
from orderbook.engine.generate.expressions import scalar_code
from orderbook.engine.generate.module_text import ModuleText
from orderbook.engine.generate.numbering import NumberedPlan, Numbering
from orderbook.engine.generate.program import program_module
from orderbook.engine.plan.planner import plan
from orderbook.engine.runtime.engine import Engine
from orderbook.operations.explain import STAGES, explain
from orderbook.views.calculus import Const
from orderbook.views.compilation import compile_views

STREAM = "CREATE STREAM {n0} ({n1} TEXT, {n2} INTEGER NOT NULL CHECK ({n2} BETWEEN 0 AND 99), {n3} DOUBLE); "
SUBJECTS = (
    Subject(
        STREAM
        + "CREATE VIEW {n4} AS SELECT {n1}, SUM({n2}) AS {n5} FROM {n0} WHERE {n1} <> {t0} GROUP BY {n1}",
        "{n1} = {t1} OR {n5} > 3 OR {n1} LIKE {t0}",
    ),
    Subject(
        STREAM
        + "CREATE VIEW {n4} AS SELECT CASE WHEN a.{n1} LIKE {t0} THEN a.{n2} WHEN a.{n1} ILIKE {t1} THEN 2 "
        "END AS {n5}, a.{n3} FROM {n0} a WHERE a.{n1} IN ({t0}, {t1})",
        "{n5} IS NOT NULL AND {n3} < 1",
    ),
    Subject(
        STREAM + "CREATE VIEW {n5} AS SELECT {n1}, COUNT(*) AS {n2} FROM {n0} GROUP BY {n1}; "
        "CREATE VIEW {n4} AS SELECT q.{n2}, a.{n3} FROM {n5} q LEFT JOIN {n0} a "
        "ON a.{n1} = q.{n1} AND a.{n1} = {t0}",
        "{n2} > 1",
    ),
    Subject(
        STREAM + "CREATE VIEW {n4} AS SELECT SUM(a.{n2} * a.{n2}) AS {n5} FROM {n0} a WHERE a.{n1} <> {t0} "
        "AND 0.25 * (SELECT SUM({n2}) FROM {n0}) > (SELECT COALESCE(SUM(x.{n2}), 0) FROM {n0} x "
        "WHERE x.{n2} > a.{n2})",
        "{n5} > 10",
    ),
    Subject(
        STREAM + "CREATE VIEW {n4} AS SELECT {n1}, {n2}, MAX({n3}) AS {n5} FROM {n0} WHERE {n1} = :text "
        "OR {n1} = {t0} GROUP BY {n1}, {n2} ORDER BY {n5} DESC NULLS LAST LIMIT 3",
        "{n1} = :text AND {n2} <> 3",
    ),
    Subject(
        STREAM,
        "{n5} > 1",
        "MAP {n5}_map[{n1} TEXT] INTEGER[0..1000000] = {n0}({n1}, {n2}, {n3}) * {{{n1} = {t0}}};\n"
        "ON + {n0}({n1}, {n2}, {n3}) {{ {n5}_map[{n1}] += {{{n1} <> {t0}}} * [like({n1}, {t1})]; }}\n"
        "VIEW {n4}[{n1} TEXT {n1}] GROUPS {n5}_map {{ {n2} = {n5}_map[{n1}]; COLUMN {n5} BIGINT = {n2}; }}",
    ),
)
PLAIN_TEXTS, PLAIN_NAMES = ("one", "two"), ("aa", "bb", "cc", "dd", "ee", "ff")
# A line that one terminal shows: no control character, nothing that turns its direction.
SHOWN = re.compile(r"[^\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]*")


@cache
def harmless(number: int) -> list[str]:
    """The modules of a subject with plain texts and names."""
    subject, parameters = SUBJECTS[number], {"text": "three"}
    program = subject.compiled(PLAIN_TEXTS, PLAIN_NAMES, parameters)
    return modules(program, subject.condition(PLAIN_TEXTS, PLAIN_NAMES))


def check(number: int, texts: tuple[str, ...], names: tuple[str, ...], parameter: str) -> bool:
    """Whether the subject is not refused; its modules are then those of plain texts, to the letter."""
    subject = SUBJECTS[number]
    try:
        program = subject.compiled(texts, names, {"text": parameter})
        found = modules(program, subject.condition(texts, names))
    except SqlError as error:
        check_place(error)
        return False
    assert found == harmless(number)
    return True


def check_place(error: SqlError) -> None:
    assert error.line > 0 and error.column > 0, error


def distinct(texts: tuple[str, ...]) -> bool:
    """Whether texts are no patterns and not alike, as the plain ones are."""
    return len(set(texts)) == len(texts)


def check_samples(seed: int, samples: int) -> None:
    """Checks subjects with three hostile texts each; most of them are no reason to refuse anything."""
    generator, passed = random.Random(seed), 0
    for sample in range(samples):
        texts = (literal(generator), literal(generator), literal(generator))
        if len(set(texts)) == len(texts):
            passed += check(sample % len(SUBJECTS), texts[:2], PLAIN_NAMES, texts[2])
    assert passed > 0.8 * samples


def test_hostile_texts_give_the_modules_of_harmless_ones(sample_seed: int) -> None:
    check_samples(sample_seed, 36)


@pytest.mark.exhaustive
def test_ten_thousand_hostile_texts_give_the_modules_of_harmless_ones(
    sample_seed: int, sample_count: int
) -> None:
    check_samples(sample_seed, max(3_400, sample_count))


@pytest.mark.parametrize("number", range(len(SUBJECTS)))
def test_the_exploit_gives_the_modules_of_a_harmless_text(number: int) -> None:
    assert check(number, (EXPLOIT, EXPLOIT[3:]), PLAIN_NAMES, EXPLOIT[:-3])


def names_from(first: int) -> tuple[str, ...]:
    names = [*NAMES[first : first + 5], *NAMES][:5]
    names.insert(first % 6, "plain")
    return tuple(names)


def test_names_of_python_and_of_generated_code_give_the_modules_of_other_names() -> None:
    for sample, first in enumerate(range(0, len(NAMES), 5)):
        assert check(sample % len(SUBJECTS), PLAIN_TEXTS, names_from(first), "three")


@pytest.mark.exhaustive
@pytest.mark.parametrize("number", range(len(SUBJECTS)))
def test_all_names_in_all_places_give_the_modules_of_other_names(number: int) -> None:
    for first in range(len(NAMES)):
        assert check(number, PLAIN_TEXTS, names_from(first), "three")


@pytest.mark.parametrize(
    "name", [text for text in PIECES if not re.fullmatch(r" *[a-z_][a-z0-9_]* *", text.lower())]
)
def test_other_names_are_refused_with_their_place(name: str) -> None:
    for written in (name, '"' + name.replace('"', '""') + '"'):
        for sql in (f"CREATE STREAM r ({written} INTEGER)", f"SELECT price AS {written} FROM bids"):
            try:
                program = compile_views(sql)
            except SqlError as error:
                check_place(error)
            else:
                # As a comment, or as one of the letters that a column may be called.
                shown = {c.name for r in program.program.results for c in r.columns}
                assert all(re.fullmatch("[a-z_][a-z0-9_]*", column) for column in shown)


@pytest.mark.parametrize("stage", STAGES)
def test_explain_shows_hostile_texts_without_being_steered(stage: str) -> None:
    parameters = {"text": "three"}
    for number, subject in enumerate(SUBJECTS):
        program = subject.compiled((EXPLOIT + "\x1b[2J\u202e", "\r\n#\0"), PLAIN_NAMES, parameters)
        text = explain(program, PLAIN_NAMES[4], stage)
        if stage == "python":
            assert SHOWN.fullmatch(text)
            plain = subject.compiled(PLAIN_TEXTS, PLAIN_NAMES, parameters)
            code = explain(plain, PLAIN_NAMES[4], stage)
            assert ast.dump(ast.parse(text)) == ast.dump(ast.parse(code)), number
            check_source("".join(line for line in text.splitlines(True) if not line.lstrip().startswith("#")))


def test_the_python_that_explain_shows_is_what_runs_beside_what_users_called_it() -> None:
    program = compile_views(
        "SELECT symbol, SUM(volume) AS total FROM bids WHERE venue <> 'x' GROUP BY symbol"
    )
    text = explain(program, "view", "python")
    assert "# insert into bids: " in text and "symbol is x" in text
    assert "#     view_count[symbol] += {venue <> 'x'}" in text and "# constant 0 is 'x'" in text
    numbered = Numbering({}).plan(plan(program.program))
    assert ast.dump(ast.parse(text)) == ast.dump(ast.parse(program_module(numbered)))


def test_generators_take_nothing_but_numbered_plans() -> None:
    program = compile_views(
        "SELECT symbol, SUM(volume) AS total FROM bids WHERE venue <> 'x' GROUP BY symbol"
    )
    planned = plan(program.program)
    with pytest.raises(TypeError, match="numbered plans alone"):
        ModuleText(planned)  # type: ignore[arg-type]
    parts = (planned.program, planned.stores, planned.initial, planned.triggers, planned.results)
    with pytest.raises(TypeError, match="numbered plans alone"):
        NumberedPlan(*parts)
    with pytest.raises(TypeError):
        scalar_code(Const(EXPLOIT), {})
    numbered = Numbering({}).plan(planned)
    with pytest.raises(TypeError, match="numbered plans alone"):
        replace(numbered, stores=tuple(replace(s, name="load(0, 0)") for s in numbered.stores))
    with pytest.raises(TypeError, match="numbered plans alone"):
        replace(numbered, stores=tuple(replace(s, layout="i') + open('x', 'w'") for s in numbered.stores))


def test_source_is_run_by_the_cache_of_generated_modules_alone() -> None:
    """Nothing else of ours compiles or evaluates text."""
    found = set()
    for package in ("engine", "feeds", "orderbook", "strategies", "views"):
        for path in (PROJECT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                called = node.func if isinstance(node, ast.Call) else None
                name = called.id if isinstance(called, ast.Name) else getattr(called, "attr", "")
                if name in ("exec", "eval", "exec_module", "module_from_spec", "run_path", "__import__") or (
                    name == "compile" and isinstance(called, ast.Name)
                ):
                    found.add((path.relative_to(PROJECT).as_posix(), name))
    assert found == {
        ("orderbook/core/generated_code.py", "compile"),
        ("orderbook/core/generated_code.py", "exec"),
    }


@pytest.mark.parametrize("count", [12, 100])
def test_many_views_with_cuts_give_modules_whose_names_do_not_clash(count: int) -> None:
    """Each cut is a function; what it found is a variable of those that call it."""
    views = (
        f"CREATE VIEW vwap_{i} AS SELECT SUM(b.price * b.volume) AS v FROM bids b WHERE {i + 1} * "
        "(SELECT SUM(t.volume) FROM bids t) > 128 * (SELECT COALESCE(SUM(x.volume), 0) FROM bids x "
        "WHERE x.price > b.price);"
        for i in range(count)
    )
    check_source(program_module(Numbering({}).plan(plan(compile_views("".join(views)).program))))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("way", ["local", "follow"])
def test_hostile_texts_do_nothing_but_stand_for_themselves(way: str, tmp_path: Path) -> None:
    run_texts(way, 1, 0, tmp_path)


@pytest.mark.exhaustive
@pytest.mark.parametrize("way", ["local", "follow"])
def test_many_hostile_texts_do_nothing_but_stand_for_themselves(
    way: str, tmp_path: Path, sample_seed: int, sample_count: int
) -> None:
    run_texts(way, min(sample_count, 200), sample_seed, tmp_path)


def run_texts(way: str, count: int, seed: int, folder: Path) -> None:
    """Runs hostile texts through engines whose generated code is plain Python, in an empty folder."""
    own = folder / "empty"
    own.mkdir()
    environment = {"ORDERBOOK_CACHE": str(folder / "cache")}
    options = (way, "--count", str(count), "--seed", str(seed))
    run_uncompiled("hostile_text_runner.py", *options, folder=own, environment=environment)
    assert not list(own.iterdir())


def test_half_a_character_is_refused_wherever_it_is_given() -> None:
    stream = "CREATE STREAM r (s TEXT NOT NULL, v INTEGER NOT NULL);"
    engine = Engine(compile_views(stream + "SELECT s FROM r WHERE s <> 'x'"), "interpreter")
    half = "\ud800"
    ways = (
        lambda: compile_views(f"{stream} SELECT s FROM r WHERE s = '{half}'"),
        lambda: compile_views(f"{stream} SELECT s FROM r WHERE s = :p", {"p": half}),
        lambda: compile_views([stream, f"MAP m[s TEXT] INTEGER = r(s, v) * {{s = '{half}'}};"]),
        lambda: engine.subscribe("view", print, when=f"s = '{half}'"),
        lambda: engine.insert("r", {"s": half, "v": 1}),
    )
    for way in ways:
        with pytest.raises(OrderbookError, match=r"half of a character|unexpected character") as failed:
            way()
        # It can be shown.
        assert str(failed.value).encode()
