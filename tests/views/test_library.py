"""Views by name and parameters with defaults, at every place where a view is named."""

from pathlib import Path

import pytest
from command_line_support import Program
from command_line_support import orderbook as orderbook

from orderbook import Engine
from orderbook import compile as compile_named
from orderbook.core.errors import SqlError, UserError
from orderbook.views.compilation import compile_views
from orderbook.views.library import described, shipped_file

OWN = """
CREATE PARAMETER least DEFAULT 2; -- orders that are
-- not shown
CREATE PARAMETER side DEFAULT 'buy';
CREATE VIEW v AS
SELECT symbol, COUNT(*) AS n FROM trades WHERE side = :side AND volume >= :least GROUP BY symbol;
"""


def test_a_parameter_has_its_default_unless_it_is_given(tmp_path: Path) -> None:
    assert dict(compile_views(OWN).parameters) == {"least": 2, "side": "buy"}
    assert compile_views(OWN, {"least": 5}).parameters["least"] == 5
    file = tmp_path / "v.sql"
    file.write_text(OWN)
    first, second = described(file).parameters
    assert (first.name, first.default, first.meaning) == ("least", 2, "orders that are not shown")
    assert (second.name, second.default, second.meaning) == ("side", "buy", "")


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("CREATE PARAMETER k 5", "expected DEFAULT and a value after the parameter's name"),
        ("CREATE PARAMETER k DEFAULT", "the statement ends too early"),
        ("CREATE PARAMETER k DEFAULT INTERVAL '1 minute'", "a length of time is '1 minute'"),
        ("CREATE PARAMETER k DEFAULT 1 + 1", "unexpected"),
        ("CREATE PARAMETER k DEFAULT 1; CREATE PARAMETER k DEFAULT 2", "parameter k is 1 elsewhere, not 2"),
    ],
)
def test_a_wrong_parameter_is_one_error_with_its_place(sql: str, message: str) -> None:
    with pytest.raises(SqlError, match=message):
        compile_views([sql, "SELECT COUNT(*) AS n FROM trades"])


def test_a_view_that_ships_is_compiled_by_name_with_what_it_reads() -> None:
    made = compile_named(["market/kyle_lambda", "CREATE VIEW mine AS SELECT symbol, lambda FROM kyle_lambda"])
    assert [view.name for view in made.catalog.views] == ["bars", "bar_moves", "kyle_lambda", "mine"]
    assert made.parameters["bar"] == "1 minute"
    with pytest.raises(UserError, match="did you mean 'market/ofi'"):
        compile_named("market/of1")


def test_a_view_by_name_is_added_beside_one_that_reads_the_same() -> None:
    engine = Engine(compile_named("market/imbalance_near"), "interpreter", keep_rows=True)
    engine.add_view("market/weighted_depth")
    assert {"imbalance_near", "weighted_depth", "touch"} <= set(engine.views)


def test_names_and_settings_on_the_command_line(orderbook: Program, tmp_path: Path) -> None:
    listed = orderbook("views").out
    assert "market/ofi" in listed and "Order-flow imbalance" in listed
    assert "surveillance/spoofing" in listed and "Large orders that were cancelled" in listed
    shown = orderbook("views", "market/ofi").out
    assert "--set bar=1 minute: how long a bar is" in shown and "CREATE VIEW ofi AS" in shown
    flow = tmp_path / "flow.parquet"
    orderbook("generate", "--events", "400", "--levels", "10", "--out", str(flow))
    configuration = tmp_path / "c.toml"
    configuration.write_text('[run]\nbackend = "interpreter"\n')
    replay = ("replay", str(flow), "--config", str(configuration), "--view", "market/imbalance")
    assert "imbalance" in orderbook(*replay, "--set", "levels=3").out
    unknown = orderbook(*replay, "--set", "level=3")
    assert unknown.status == 2 and "--set level: neither" in unknown.err
    detector = ("replay", str(flow), "--config", str(configuration), "--view", "surveillance/quote_stuffing")
    assert "quote_stuffing" in orderbook(*detector, "--set", "stuffing_events=100").out
    misspelt = orderbook("replay", flow, "--view", "market/imbalanc")
    assert misspelt.status == 2 and "did you mean 'market/imbalance'" in misspelt.err


def test_a_view_of_a_folder_of_ones_own(orderbook: Program, tmp_path: Path) -> None:
    (tmp_path / "desk").mkdir()
    (tmp_path / "desk" / "mine.sql").write_text(OWN.replace("VIEW v", "VIEW mine"))
    configuration = tmp_path / "c.toml"
    text = '[run]\nviews = ["desk/mine"]\n[views]\npaths = ["."]\n[parameters]\nleast = 7\n'
    configuration.write_text(text)
    assert "view mine: fine" in orderbook("check", "--config", configuration).out
    assert shipped_file("ofi") == shipped_file("market/ofi")
