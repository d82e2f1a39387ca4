"""Configurations that load, and the one line that each kind of mistake gives."""

import re
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from orderbook.configuration.alert_options import ChannelOptions
from orderbook.configuration.configuration import load_configuration
from orderbook.configuration.options import FEEDS, ExchangeFeed, Feed, FileFeed, SimulatedFeed
from orderbook.core.errors import ConfigurationError
from orderbook.core.options import Section, parse_toml
from orderbook.strategies.execution.venue_model import strategy_table
from orderbook.views.library import packaged_views

KINDS = ", ".join(
    repr(kind) for feed in get_args(Feed) for kind in get_args(feed.model_fields["kind"].annotation)
)

Write = Callable[[str | bytes], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(text: str | bytes) -> Path:
        path = tmp_path / "my.toml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


def errors(path: Path | None, overrides: dict[str, object] | None = None) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        load_configuration(path, overrides)
    assert caught.value.exit_status == 2
    folder = f"{path.parent}/" if path else ""
    return [line.removeprefix(folder) for line in str(caught.value).split("\n")]


def test_default_is_the_file_of_the_project(project: Path) -> None:
    default, file = load_configuration(), load_configuration(project / "config.toml")
    assert default.model_dump() == file.model_dump()
    assert (project / "orderbook" / "default.toml").read_bytes() == (project / "config.toml").read_bytes()


def test_default_needs_no_network() -> None:
    configuration = load_configuration()
    assert {feed.kind for feed in configuration.feeds} == {"simulated"}
    assert configuration.run.views == ("sobi",)
    assert configuration.run.duration_seconds is None
    assert configuration.parameters["k"] == Decimal("0.25")


def test_every_key_is_documented_with_its_default(
    project: Path, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Uncommenting the optional keys of config.toml gives a valid file that sets every declared key."""
    text = (project / "config.toml").read_text()
    optional = r"^# (?=\[\[(feeds|sinks)\]\]$|\[(execution|alerts|channels)\.\w+\]$|[a-z_]+ = )(?!feeds = )"
    text = re.sub(optional, "", text, flags=re.MULTILINE)
    for name in ("DESK_SECRET", "ON_CALL"):
        monkeypatch.setenv(name, "secret")
    configuration = load_configuration(write(text))
    assert configuration.model_fields_set == set(type(configuration).model_fields)
    sections = [getattr(configuration, name) for name in type(configuration).model_fields]
    named = (*configuration.execution.values(), *configuration.alerts.values())
    for section in (*sections, *configuration.feeds, *configuration.sinks, *named):
        if isinstance(section, Section):
            assert section.model_fields_set == set(type(section).model_fields)
    # Of a channel some keys exclude others.
    assert set().union(*(one.model_fields_set for one in configuration.channels.values())) == set(
        ChannelOptions.model_fields
    )
    assert {type(feed) for feed in configuration.feeds} == set(FEEDS.values())
    assert configuration.feeds[0] == SimulatedFeed(kind="simulated")


def test_numbers_are_exact_decimals(write: Write) -> None:
    path = write("[parameters]\nk = 0.1\nn = 7\nname = 'x'\nwide = 0.12345678901234567890\nflag = true\n")
    parameters = load_configuration(path).parameters
    assert parameters["k"] == Decimal("0.1")
    assert parameters["wide"] == Decimal("0.12345678901234567890")
    assert isinstance(parameters["n"], int)
    assert parameters["name"] == "x"
    assert parameters["flag"] is True
    assert load_configuration(write("[parameters]\nn = 7\n")).parameters["k"] == Decimal("0.25")


def test_default_parameters_are_those_of_shipped_views() -> None:
    # A parameter of SQL stands before the defaults of any strategy that names one of its own so.
    sql = "".join(path.read_text() for path in packaged_views().glob("*.sql"))
    assert all(f":{name}" in sql for name in load_configuration().parameters)


def test_own_file_is_laid_over_the_default(write: Write) -> None:
    path = write("[engine]\nbatch_size = 1\n[[feeds]]\nkind = 'simulated'\nseed = 9")
    configuration = load_configuration(path)
    assert configuration.engine.batch_size == 1
    assert configuration.engine.queue_size == load_configuration().engine.queue_size
    assert [feed.model_dump()["seed"] for feed in configuration.feeds] == [9]
    assert configuration.run == load_configuration().run


def test_paths_are_relative_to_the_file(write: Write, tmp_path: Path) -> None:
    path = write(
        "feeds = ['lobster:day.csv', {kind = 'file', path = '/data/x.gz'}, 'coinbase:BTC-USD,ETH-USD']\n"
        "run.views = ['spread', 'mine/vwap.sql']\nviews.paths = ['mine']\nengine.cache = 'compiled'\n"
    )
    configuration = load_configuration(path, {"run.duration_seconds": 20})
    lobster, absolute, coinbase = configuration.feeds
    assert isinstance(lobster, FileFeed)
    assert lobster.source == f"lobster:{tmp_path}/day.csv"
    assert isinstance(absolute, FileFeed)
    assert absolute.source == "/data/x.gz"
    assert isinstance(coinbase, ExchangeFeed)
    assert coinbase.products == ("BTC-USD", "ETH-USD")
    assert configuration.run.views == ("spread", str(tmp_path / "mine/vwap.sql"))
    assert configuration.views.paths == (tmp_path / "mine",)
    assert configuration.engine.cache == tmp_path / "compiled"
    assert configuration.run.duration_seconds == 20.0


def test_overrides_win_and_keep_their_own_paths(write: Write) -> None:
    overrides = {
        "feeds": ["binance:a.gz", SimulatedFeed(kind="simulated", imbalance=0)],
        "run.views": ["vwap"],
        "parameters.k": 0.1,
    }
    path = write("[run]\nviews = ['other']\nbackend = 'interpreter'\n")
    configuration = load_configuration(path, overrides)
    assert configuration.feeds[0] == FileFeed(kind="file", format="binance", path=Path("a.gz"))
    assert configuration.feeds[1] == SimulatedFeed(kind="simulated", imbalance=0.0)
    assert configuration.run.views == ("vwap",)
    assert configuration.run.backend == "interpreter"
    assert configuration.parameters["k"] == Decimal("0.1")


def test_configurations_are_frozen() -> None:
    configuration = load_configuration()
    with pytest.raises(ValidationError):
        configuration.run.backend = "interpreter"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[run]\nview = ['x']", ["my.toml:2: run.view: unknown key; did you mean 'views'?"]),
        ("duration_seconds = 5", [
            "my.toml:1: duration_seconds: unknown key; did you mean 'run.duration_seconds'?"]),
        ("[engin]\nx = 1", ["my.toml:1: engin: unknown key; did you mean 'engine'?"]),
        ("[views]\nzzz = 1", ["my.toml:2: views.zzz: unknown key; known are paths"]),
        ("[[feeds]]\nkind = 'simulated'\n[[feeds]]\nkind = 'coinbase'\nproduct = ['BTC-USD']", [
            "my.toml:3: feeds[1].products: this key is required",
            "my.toml:5: feeds[1].product: unknown key; did you mean 'products'?"]),
        ("[[feeds]]\nkind = 'krakken'", [
            f"my.toml:2: feeds[0].kind: expected {KINDS}, got the string \"krakken\""]),
        ("[[feeds]]\nseed = 3", ["my.toml:1: feeds[0].kind: this key is required"]),
        ("feeds = [\n  'simulated',\n  5,\n]", [
            "my.toml:1: feeds[1]: expected a table or a string, got the integer 5"]),
        ("feeds = []", ["my.toml:1: feeds: expected an array that is not empty, got an empty array"]),
        ("[run]\nbackend = 'nmba'", [
            "my.toml:2: run.backend: expected 'numba' or 'interpreter', got the string \"nmba\""]),
        ("[run]\nduration_seconds = '20'", [
            "my.toml:2: run.duration_seconds: expected a number, got the string \"20\""]),
        ("[run]\nduration_seconds = -1.5", [
            "my.toml:2: run.duration_seconds: expected a number above 0, got the number -1.5"]),
        ("[run]\nduration_seconds = inf", [
            "my.toml:2: run.duration_seconds: expected a finite number, got the number Infinity"]),
        ("[run]\nviews = 'sobi'", ["my.toml:2: run.views: expected an array, got the string \"sobi\""]),
        ("[run]\nviews = ['sobi', 3]", ["my.toml:2: run.views[1]: expected a string, got the integer 3"]),
        ("[run]\nstrategies = ['so bi']", [
            "my.toml:2: run.strategies[0]: expected MODULE:CLASS, or the name of a strategy in SQL, "
            "got the string \"so bi\""]),
        ("run = 5", ["my.toml:1: run: expected a table, got the integer 5"]),
        ("[engine]\nbatch_size = true", [
            "my.toml:2: engine.batch_size: expected an integer, got the boolean true"]),
        ("[engine]\nbatch_size = 0\nqueue_size = 1.5\ncache = 7", [
            "my.toml:2: engine.batch_size: expected a number of at least 1, got the integer 0",
            "my.toml:3: engine.queue_size: expected an integer, got the number 1.5",
            "my.toml:4: engine.cache: expected a string, got the integer 7"]),
        ("[parameters]\nk = [1]", [
            "my.toml:2: parameters.k: expected a finite number, a string or a boolean, got an array"]),
        ("[parameters]\nk = nan", [
            "my.toml:2: parameters.k: expected a finite number, a string or a boolean, got the number NaN"]),
        ("parameters = 'k'", ["my.toml:1: parameters: expected a table, got the string \"k\""]),
        ("[strategies.sobbi]\nx = 1", [
            "my.toml:1: strategies.sobbi: no strategy has this table; did you mean 'sobi'?"]),
        ("[[feeds]]\nkind = 'coinbase'\nproducts = ['']\nurl = 'http://x'", [
            "my.toml:3: feeds[0].products[0]: expected a string that is not empty, got the string \"\"",
            "my.toml:4: feeds[0].url: expected a ws(s) address, got the string \"http://x\""]),
        ("[run]\nviews = [1]\n[engine]\nbatchsize = 2\n[views]\npaths = 3", [
            "my.toml:2: run.views[0]: expected a string, got the integer 1",
            "my.toml:4: engine.batchsize: unknown key; did you mean 'batch_size'?",
            "my.toml:6: views.paths: expected an array, got the integer 3"]),
        ("[run]\nviews = [\n", ["my.toml:2:10: not valid TOML: Invalid value"]),
        ("[run]\nviews = = 3\n", ["my.toml:2:9: not valid TOML: Invalid value"]),
        ("[run]\nviews = []\nviews = []\n", ["my.toml:3:11: not valid TOML: Cannot overwrite a value"]),
        (b"[run]\n# \xff\n", ["my.toml:2:3: not UTF-8 text"]),
    ],
)  # fmt: skip
def test_mistakes(write: Write, text: str | bytes, expected: list[str]) -> None:
    assert errors(write(text)) == expected


def test_unreadable_files(tmp_path: Path) -> None:
    assert errors(tmp_path / "none.toml") == ["none.toml: cannot be read: No such file or directory"]
    assert errors(tmp_path) == [f"{tmp_path.name}: cannot be read: Is a directory"]


def test_a_strategy_named_in_overrides_has_its_table(write: Write) -> None:
    path = write("[strategies.mine]\nsize = 2\n[risk.strategies.mine]\nmax_position = 3")
    configuration = load_configuration(path, {"run.strategies": ["somewhere:Mine"]})
    assert configuration.strategy_parameters("somewhere:Mine") == {"size": 2}
    (*_, refused) = errors(path, {"run.strategies": ["somewhere:Other"]})
    assert refused.endswith("risk.strategies.mine: no strategy has this table; known are other, sobi")


def test_mistakes_in_overrides_name_no_file() -> None:
    assert errors(None, {"run.duration_seconds": -1, "run.bakend": "numba"}) == [
        "run.duration_seconds: expected a number above 0, got the integer -1",
        "run.bakend: unknown key; did you mean 'backend'?",
    ]


def test_strategy_tables(write: Write) -> None:
    assert strategy_table("a.b:MeanReversion") == "mean_reversion"
    path = write("[run]\nstrategies = ['a.b:MeanReversion']\n[strategies.mean_reversion]\nwindow = 2.50\n")
    configuration = load_configuration(path)
    assert configuration.strategy_parameters("a.b:MeanReversion") == {"window": Decimal("2.50")}
    assert configuration.strategy_parameters("a.b:Other") == {}


def test_view_files(write: Write, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    for name in ("spread.sql", "schema.sql"):
        (folder / name).write_text("")
    (tmp_path / "depth.sql").write_text("")
    path = write("[views]\npaths = ['mine', 'depth.sql']\n[run]\nviews = ['sprad']")
    configuration = load_configuration(path)
    assert configuration.view_file("spread") == folder / "spread.sql"
    assert configuration.view_file("depth") == tmp_path / "depth.sql"
    assert configuration.view_file("schema") == folder / "schema.sql"
    assert configuration.view_file(str(folder / "spread.sql")) == folder / "spread.sql"
    assert load_configuration().view_file("schema") == packaged_views() / "schema.sql"
    with pytest.raises(ConfigurationError, match=r"my.toml:4: run.views: .* 'sprad'; did you mean 'spread'"):
        configuration.view_file("sprad")
    with pytest.raises(ConfigurationError, match=r"my.toml:4: run.views: no such file: x.sql$"):
        configuration.view_file("x.sql")
    with pytest.raises(ConfigurationError, match=r"^run.views: no view is named 'sprad'"):
        load_configuration(tmp_path / "my.toml", {"run.views": ["sprad"]}).view_file("sprad")
    with pytest.raises(ConfigurationError, match=r"my.toml:2: views.paths: no such file or folder: .*/gone$"):
        load_configuration(write("[views]\npaths = ['gone']")).view_file("spread")


def test_misspelt_parameters(write: Write) -> None:
    configuration = load_configuration(write("[parameters]\nk = 0.5\ntreshold = 1.2\nlimit = 4\n"))
    with pytest.raises(ConfigurationError, match=r"my.toml:3: parameters.treshold: .* 'threshold'\?$"):
        configuration.check_parameters({"k", "threshold"})
    configuration.check_parameters({"k"})
    configuration.check_parameters({"k", "treshold", "threshold"})


keys = st.from_regex(r"[a-z]{1,3}", fullmatch=True)
values = st.sampled_from(
    ["1", "'x'", "[\n 1,\n\n 2 ]", '"""\n[a]\nb = 1\n"""', "{ p = 1, q = { r = 2 } }", "''' [ '''", "1 # [c]"]
)


@given(
    st.lists(
        st.tuples(keys, st.booleans(), st.dictionaries(keys, values, max_size=4), st.integers(0, 2)),
        max_size=5,
        unique_by=lambda section: section[0],
    )
)
def test_lines_of_keys(sections: list[tuple[str, bool, dict[str, str], int]]) -> None:
    """A writer that counts its own lines agrees with the reader on every key."""
    lines: list[str] = []
    expected: dict[tuple[str | int, ...], int] = {}
    for name, array, entries, blank in sections:
        for position in range(2 if array else 1):
            prefix = (name, position) if array else (name,)
            lines += ["# note = 1"] * blank + [f"[[{name}]]" if array else f"[{name}]"]
            expected.setdefault((name,), len(lines))
            expected[prefix] = len(lines)
            for key, value in entries.items():
                expected[*prefix, key] = len(lines) + 1
                if value.startswith("{"):
                    for inner in (("p",), ("q",), ("q", "r")):
                        expected[(*prefix, key, *inner)] = len(lines) + 1
                lines += f"{key} = {value}".split("\n")
    assert parse_toml("\n".join(lines), "text").lines == expected


def test_lines_of_nested_headers_and_dotted_keys() -> None:
    text = "a.b = 1\r\na.c = 2\n[x.y]\nz = 1\n[[x.list]]\n[x.list.inner]\nv = 1\n[[x.list]]\n'a key' = 2\n"
    assert parse_toml(text, "text").lines == {
        ("a",): 1, ("a", "b"): 1, ("a", "c"): 2, ("x",): 3, ("x", "y"): 3, ("x", "y", "z"): 4,
        ("x", "list"): 5, ("x", "list", 0): 5, ("x", "list", 0, "inner"): 6,
        ("x", "list", 0, "inner", "v"): 7, ("x", "list", 1): 8, ("x", "list", 1, "a key"): 9,
    }  # fmt: skip
