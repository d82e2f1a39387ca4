"""Which views a run compiles."""

from pathlib import Path

import pytest

from orderbook.configuration.configuration import load_configuration
from orderbook.core.errors import ConfigurationError, SqlError
from orderbook.run.assembly import assemble
from orderbook.views.program import CompiledProgram

FILES = {
    "market.sql": "CREATE VIEW lowest AS SELECT symbol, MIN(price) AS price FROM asks GROUP BY symbol;\n"
    "CREATE VIEW highest AS SELECT symbol, MAX(price) AS price FROM bids GROUP BY symbol;\n",
    "looking_here.py": "from orderbook import Strategy, on_view\n\n\nclass Looking(Strategy):\n"
    '    @on_view("highest", when="price > 1")\n    def seen(self, event):\n        pass\n',
    "mine.toml": '[run]\nviews = ["market.sql"]\nstrategies = ["looking_here:Looking"]\n',
}


def test_strategies_alone_find_the_views_of_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    configuration = load_configuration(Path("mine.toml"))
    assert assemble(configuration).views == ("lowest", "highest")
    alone = assemble(configuration.without_views())
    assert alone.views == ()
    assert "highest" in {view.name for view in alone.program.catalog.views}
    with pytest.raises(ConfigurationError, match="strategy Looking looks at view 'highest'"):
        assemble(configuration.with_run(views=()))


def test_a_program_is_compiled_once_by_a_process(tmp_path: Path) -> None:
    (tmp_path / "v.sql").write_text(
        "CREATE VIEW v AS SELECT symbol, COUNT(*) + :n AS n FROM bids GROUP BY symbol"
    )

    def made(value: str) -> CompiledProgram:
        text = f"[run]\nviews = ['v.sql']\nstrategies = []\n[parameters]\nn = {value}\n"
        (tmp_path / "c.toml").write_text(text)
        return assemble(load_configuration(tmp_path / "c.toml")).program

    one, again, other = made("1"), made("1"), made("1.0")
    assert again.program is one.program and again.dictionary is not one.dictionary
    # 1 and 1.0 are equal, and of other types.
    assert other.program != one.program and made("1").program is one.program


def compiled(folder: Path, files: dict[str, str], *views: str) -> list[str]:
    """The views of a run of `views`, each behind those it reads, with these files on its search path."""
    for name, text in files.items():
        (folder / f"{name}.sql").write_text(text)
    configuration = load_configuration(None, {"run.views": views, "run.strategies": []})
    paths = configuration.views.model_copy(update={"paths": (folder,)})
    program = assemble(configuration.model_copy(update={"views": paths})).program
    return [view.name for view in program.catalog.views]


def test_views_of_other_files_can_be_read(tmp_path: Path) -> None:
    files = {
        "wide": "CREATE VIEW wide AS SELECT symbol, gap FROM Gaps WHERE gap > 1",
        "gaps": "CREATE VIEW gaps AS WITH t AS (SELECT * FROM touch) SELECT symbol, ask - bid AS gap FROM t",
        # Named as a relation and as what WITH declares, and so read by none of them.
        "bids": "CREATE VIEW b AS SELECT symbol FROM nothing",
        "t": "CREATE VIEW t AS SELECT symbol FROM nothing",
    }
    found = compiled(tmp_path, files, "wide")
    assert found[-3:] == ["touch", "gaps", "wide"] and len(found) == 7


def test_a_view_of_its_own_hides_one_of_another_file(tmp_path: Path) -> None:
    own = "CREATE VIEW touch AS SELECT symbol FROM bids; CREATE VIEW above AS SELECT symbol FROM touch"
    assert compiled(tmp_path, {"above": own}, "above") == ["touch", "above"]


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"one": "CREATE VIEW one AS SELECT * FROM missing"}, "one.sql:1:34: unknown relation missing"),
        (
            {"one": "CREATE VIEW one AS SELECT * FROM two", "two": "CREATE VIEW two AS SELECT * FROM one"},
            "two.sql:1:34: views read each other in a cycle",
        ),
    ],
    ids=["nowhere", "in a circle"],
)
def test_what_cannot_be_read_is_said_where_it_stands(
    files: dict[str, str], said: str, tmp_path: Path
) -> None:
    with pytest.raises(SqlError, match=said):
        compiled(tmp_path, files, "one")
