"""Programs that go on from views compiled before are what the same texts come to from nothing."""

import random
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal

import pytest

from orderbook.core.recent import Recent
from orderbook.engine.generate import module_text, numbering
from orderbook.engine.generate import program as program_text
from orderbook.engine.generate.driver import driver_module
from orderbook.engine.generate.numbering import Constant, Numbering
from orderbook.engine.generate.program import program_module
from orderbook.engine.generate.state_layout import layout_for
from orderbook.engine.plan import planner
from orderbook.engine.plan.planner import plan
from orderbook.views import compiled_views
from orderbook.views.binding import catalog
from orderbook.views.binding.bound import View
from orderbook.views.compilation import AddViews, DropView, bound_source, compile_source
from orderbook.views.program import CalculusView, CompiledProgram, ProgramSource
from orderbook.views.translation.translate import Translator

SCHEMA = """
CREATE STREAM s (
    g BIGINT NOT NULL, t TEXT, n BIGINT NOT NULL CHECK (n BETWEEN -1000 AND 1000), x DOUBLE, p DECIMAL(18, 4)
);
CREATE STREAM r (g BIGINT NOT NULL, ts TIMESTAMP NOT NULL PRIMARY KEY, m BIGINT);
CREATE TABLE names (g BIGINT NOT NULL PRIMARY KEY, name TEXT NOT NULL);
"""
# Each with a number or text in which one edited differs.
FORMS = {
    "vwap": "SELECT g, SUM(p * n) / SUM(n) AS vwap, COUNT(*) AS c FROM s WHERE n > {n} GROUP BY g",
    "text": "SELECT t, COUNT(*) AS c, MAX(n) AS most FROM s WHERE t LIKE 'a{n}%' OR t = 'b{n}' GROUP BY t",
    "doubles": "SELECT g, SUM(x * {n}.5) AS x, AVG(x) AS mean FROM s GROUP BY g",
    "cut": "SELECT SUM(a.p * a.n) AS v FROM s a WHERE 0.{n} * (SELECT SUM(b.n) FROM s b)"
    " > (SELECT COALESCE(SUM(c.n), 0) FROM s c WHERE c.p > a.p)",
    "joined": "SELECT n.name, SUM(s.n + {n}) AS total FROM s JOIN names n ON n.g = s.g GROUP BY n.name",
    "near": "SELECT s.g, s.n, r.m FROM s JOIN r ON r.g = s.g AND r.m >= s.n + {n}",
    "top": "SELECT g, n, p FROM s WHERE n > {n} ORDER BY p DESC LIMIT 3",
    "extreme": "SELECT g, MIN(p) AS least, MAX(p) AS most FROM s WHERE n <> {n} GROUP BY g",
    "lag": "SELECT g, SUM(m - o) AS moved FROM (SELECT g, m, LAG(m, 1) OVER (PARTITION BY g ORDER BY ts) AS o"
    " FROM r) WHERE m > {n} GROUP BY g",
    "given": "SELECT g, COUNT(*) AS c FROM s WHERE n > :least + {n} GROUP BY g",
}
LEVELS = ("", "", "", " WITH (materialize = 'first')", " WITH (materialize = 'none')")


@contextmanager
def nothing_known() -> Iterator[None]:
    """Within, nothing is known of what was compiled before."""
    with pytest.MonkeyPatch.context() as patch:
        for module, name in (
            (catalog, "_TEXTS"),
            (catalog, "_VIEWS"),
            (planner, "_PLANNED"),
            (numbering, "_PARTS"),
            (numbering, "_CHECKED"),
            (module_text, "_WRITTEN"),
            (program_text, "_SAID"),
        ):
            patch.setattr(module, name, Recent(1 << 13))
        patch.setattr(compiled_views, "_paths", deque(maxlen=8))
        yield


def made_of(program: CompiledProgram) -> tuple[object, ...]:
    """All that a program comes to: its views, M3, plan, state and code."""
    planned = plan(program.program)
    constants: dict[Constant, int] = {}
    numbered = Numbering(constants).plan(planned)
    code = program_module(numbered)
    # What runs is told by identity where it is measured.
    assert len({id(s) for s in planned.statements}) == len(planned.statements)
    types = [s.types for s in planned.statements]
    laid_out = layout_for(planned)
    known = program.catalog, program.views, program.program, program.m3
    return (*known, planned, types, laid_out, constants, code, driver_module(numbered, "orderbook_x"))


def check(source: ProgramSource) -> None:
    """A program is what its texts come to from nothing."""
    found = made_of(compile_source(source))
    with nothing_known():
        expected = made_of(compile_source(bound_source(source.texts, source.parameters, source.levels)))
    for one, other in zip(found, expected, strict=True):
        assert one == other


def text(name: str, form: str, number: int, level: str) -> str:
    return f"CREATE VIEW {name}{level} AS {FORMS[form].format(n=number)};"


@pytest.mark.sampled(6)
@pytest.mark.parametrize("seed", range(6))
def test_views_that_come_and_go_leave_what_their_texts_come_to(seed: int) -> None:
    chance = random.Random(seed)

    def chosen() -> tuple[str, int, str]:
        return chance.choice([*FORMS]), chance.randrange(1, 9), chance.choice(LEVELS)

    declared = {f"v{i}": chosen() for i in range(5)}
    texts = [(None, SCHEMA), *((None, text(name, *own)) for name, own in declared.items())]
    with nothing_known():
        source = bound_source(texts, {"least": 2})
        check(source)
        for step in range(8):
            match chance.choice(("add", "drop", "edit")):
                case "add":
                    own = declared[f"a{step}"] = chosen()
                    source = AddViews.of(text(f"a{step}", *own))(source)
                case "drop" if len(declared) > 1:
                    name = chance.choice([*declared])
                    del declared[name]
                    source = DropView(name)(source)
                case _:
                    # Another number in a view, which stays in its place.
                    name = chance.choice([*declared])
                    form, number, level = declared[name]
                    declared[name] = form, number + 1, level
                    texts = [(None, SCHEMA), *((None, text(n, *own)) for n, own in declared.items())]
                    source = bound_source(texts, source.parameters)
            check(source)


def test_parameters_and_relations_that_change_are_noticed() -> None:
    view = text("v", "given", 1, "")
    with nothing_known():
        for least in (1, 2, 1.0, Decimal("1.00"), 1):
            check(bound_source([(None, SCHEMA + view)], {"least": least}))
        for wider in (
            SCHEMA,
            SCHEMA.replace("1000", "9000"),
            SCHEMA.replace("n BIGINT NOT NULL", "n BIGINT"),
        ):
            check(bound_source([(None, wider + view)], {"least": 1}))
        below = "CREATE VIEW below AS SELECT g, n FROM s WHERE n < {n};"
        for number in (1, 2, 1):
            views = below.format(n=number) + "CREATE VIEW v AS SELECT SUM(n) AS n FROM below;"
            check(bound_source([(None, SCHEMA + views)], {}))
        macro = "CREATE MACRO twice(x) AS {n} * x; CREATE VIEW v AS SELECT SUM(twice(n)) AS n FROM s;"
        for number in (2, 3, 2):
            check(bound_source([(None, SCHEMA + macro.format(n=number))], {}))


def test_a_view_that_is_added_is_the_only_one_that_is_translated(monkeypatch: pytest.MonkeyPatch) -> None:
    translated: list[str] = []
    view = Translator.view

    def noted(self: Translator, one: View) -> CalculusView:
        translated.append(one.name)
        return view(self, one)

    monkeypatch.setattr(Translator, "view", noted)
    views = {name: text(name, name, 1, "") for name in FORMS}
    with nothing_known():
        source = bound_source([(None, SCHEMA + "".join(views.values()))], {"least": 2})
        source.compiled()
        assert translated == [*FORMS]
        translated.clear()
        added = AddViews.of(text("added", "vwap", 7, ""))(source)
        added.compiled()
        assert translated == ["added"]
        DropView("added")(added).compiled()
        assert translated == ["added"]
