"""Views by name and parameters with defaults, at every place where a view is named."""

import re
from decimal import Decimal
from pathlib import Path

import pytest
from command_line_support import Program
from command_line_support import orderbook as orderbook

from orderbook import Engine
from orderbook import compile as compile_named
from orderbook.core.errors import SqlError, UserError
from orderbook.views.binding.parameters import ParameterError
from orderbook.views.compilation import bound_source, compile_views, texts_of
from orderbook.views.library import ParameterText, described, shipped_file, shipped_views
from orderbook.views.materialization import Levels
from orderbook.views.types import Parameter

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


def _of_library() -> list[tuple[str, ParameterText]]:
    """Each parameter of the views that ship, with a view that declares it."""
    found = {
        one.name: (name, one) for name in shipped_views() for one in described(shipped_file(name)).parameters
    }
    return list(found.values())


@pytest.mark.parametrize(("view", "parameter"), _of_library(), ids=lambda one: getattr(one, "name", one))
def test_a_wrong_value_of_a_shipped_parameter_is_one_error_at_its_declaration(
    view: str, parameter: ParameterText
) -> None:
    name, default = parameter.name, parameter.default
    length = isinstance(default, str) and re.fullmatch(r"\d+ [a-z]+", default)
    kind = "a length of time" if length else "a text" if isinstance(default, str) else "a number"
    wrong: list[tuple[Parameter, str]] = [(True, f"TRUE is not {kind}")]
    wrong += (
        [(Decimal("2.5"), "2.5 is not a text")]
        if kind == "a text"
        else [("banana", f"'banana' is not {kind}")]
    )
    wrong += [("-1 second", "'-1 second' is out of its range")] if length else []
    wrong += [(-1, "-1 is out of its range")] if kind != "a text" else []
    for value, message in wrong:
        with pytest.raises(ParameterError, match=f"{name}: {re.escape(message)}") as raised:
            bound_source(texts_of(view), {name: value}, Levels())
        assert raised.value.name == name and raised.value.file and raised.value.line
        declaration = Path(raised.value.file).read_text().splitlines()[raised.value.line - 1]
        assert declaration.startswith(f"CREATE PARAMETER {name} DEFAULT")


@pytest.mark.parametrize(
    ("check", "value", "message"),
    [
        ("k > 0", 0, "0 is out of its range, k > 0"),
        ("0 < k AND k <= 5.5", 6, "6 is out of its range, 0 < k AND k <= 5.5"),
        ("k BETWEEN -1 AND 9", Decimal("-1.5"), "-1.5 is out of its range"),
        ("j > 0", 1, "the CHECK of k is about it alone"),
        ("k > 5", 6, "parameter k: 5 is out of its range"),
        ("k <> 5", 6, "this CHECK is not supported"),
        ("k > INTERVAL '1 second'", 6, "a number is needed here"),
    ],
)
def test_the_range_of_a_number(check: str, value: Parameter, message: str) -> None:
    sql = f"CREATE PARAMETER k DEFAULT 5 CHECK ({check}); SELECT COUNT(*) AS n FROM trades WHERE volume > :k"
    with pytest.raises(SqlError, match=re.escape(message)):
        compile_views(sql, {"k": value})


@pytest.mark.parametrize(
    ("value", "message"),
    [("0s", "'0s' is out of its range"), (3601, "3601 is out of its range"), ("1 month", None), (60, None)],
)
def test_the_range_of_a_length(value: Parameter, message: str | None) -> None:
    sql = (
        "CREATE PARAMETER k DEFAULT '1 minute' CHECK (k > INTERVAL '0 seconds' AND k <= INTERVAL '1' HOUR);"
        "SELECT TIME_BUCKET(INTERVAL :k, ts) AS bar, COUNT(*) AS n FROM trades GROUP BY 1"
    )
    if message is None:
        assert compile_views(sql, {"k": value}).parameters["k"] == value
        return
    with pytest.raises(ParameterError, match=re.escape(message)):
        compile_views(sql, {"k": value})


def test_a_parameter_that_nothing_uses_is_an_error_with_the_nearest_one() -> None:
    with pytest.raises(UserError, match="parameter spoof_vlaue: nothing uses it; did you mean 'spoof_value'"):
        compile_named("surveillance/spoofing", {"spoof_vlaue": 3})


def test_a_wrong_value_is_told_where_it_was_given(orderbook: Program, tmp_path: Path) -> None:
    configuration = tmp_path / "c.toml"
    text = '[run]\nviews = ["surveillance/spoofing"]\n[parameters]\n# own\nspoof_value = "abc"\n'
    configuration.write_text(text)
    place = re.escape(
        f"{configuration}:5: parameters.spoof_value: 'abc' is not a number, as its default 100000 is"
    )
    for command in (("check",), ("explain", "surveillance/spoofing"), ("views", "surveillance/spoofing")):
        wrong = orderbook(*command, "--config", configuration)
        assert wrong.status == 2 and re.search(
            rf"{place}; declared at .*spoofing\.sql:\d+:18$", wrong.err.strip()
        )
    explained = orderbook("explain", "surveillance/iceberg", "--set", "iceberg_window=banana")
    assert explained.status == 2 and "parameter iceberg_window: 'banana' is not a length" in explained.err
    of_run = orderbook("run", "--view", "surveillance/iceberg", "--set", "iceberg_window=banana")
    assert of_run.status == 2 and "parameters.iceberg_window: 'banana' is not a length" in of_run.err
    key = orderbook("run", "--set", "postgres.port=15433")
    assert key.status == 2 and "port stands under [postgres] of the file that --config names" in key.err
    quoted = orderbook("explain", "market/basis", "--set", 'spot_symbol="600519"')
    assert quoted.status == 0
