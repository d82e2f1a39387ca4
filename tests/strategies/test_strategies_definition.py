"""Strategies by name: what is found, and the one clear error for everything else."""

from pathlib import Path

import pytest

from orderbook.core.errors import ConfigurationError
from orderbook.strategies.sobi import Sobi
from orderbook.strategies.strategy import load_strategy

MODULE = """
from orderbook import Strategy, on_view

class Mine(Strategy):
    pass

class Other:
    pass
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_a_strategy_that_ships() -> None:
    definition = load_strategy("strategies.sobi:Sobi", {"volume": 2})
    assert (definition.kind, definition.name, dict(definition.parameters)) == (Sobi, "Sobi", {"volume": 2})


def test_a_strategy_of_the_working_folder(folder: Path) -> None:
    (folder / "mine_found.py").write_text(MODULE)
    assert load_strategy("mine_found:Mine").name == "Mine"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("strategies.sobi", ["expected MODULE:CLASS"]),
        ("strategies.sobbi:Sobi", ["no module 'strategies.sobbi'", "did you mean 'strategies.sobi'?"]),
        ("strategies.sobi.deep:Sobi", ["no module 'strategies.sobi.deep'"]),
        ("no_package.mine:Mine", ["no module 'no_package.mine'"]),
        ("strategies.sobi:Sobbi", ["strategies.sobi has no class 'Sobbi'", "did you mean 'Sobi'?"]),
        ("strategies.sobi:Strategy", ["Strategy is no class derived from", "known are Sobi"]),
        ("mine_named:Other", ["Other is no class derived from orderbook.Strategy", "Mine"]),
        ("mine_named:Min", ["did you mean 'Mine'?"]),
        ("mine_nmed:Mine", ["no module 'mine_nmed'", "did you mean 'mine_named'?"]),
        ("mine_missing:Mine", ["mine_missing cannot be imported", "no_such_library"]),
        ("mine_raising:Mine", ["mine_raising cannot be imported", "ZeroDivisionError: division by zero"]),
        ("mine_broken:Mine", ["mine_broken cannot be imported", "SyntaxError", "line 2"]),
    ],
)
def test_what_is_not_found_is_named(folder: Path, text: str, words: list[str]) -> None:
    (folder / "mine_named.py").write_text(MODULE)
    (folder / "mine_missing.py").write_text("import no_such_library\n")
    (folder / "mine_raising.py").write_text("1 / 0\n")
    (folder / "mine_broken.py").write_text("x = 1\ndef :\n")
    with pytest.raises(ConfigurationError) as raised:
        load_strategy(text)
    assert all(word in str(raised.value) for word in (repr(text), *words)), str(raised.value)
    assert "\n" not in str(raised.value)


PARAMETERS = """
from orderbook import Strategy, on_view

class Base(Strategy):
    defaults = {"threshold": 2, "volume": 1}

    def hold(self):
        return max(self.parameters[name] for name in ("floor",))

class Mine(Base):
    accepts = ("limit_*",)

    @on_view("sobi", when="pressure > :threshold AND ratio <> ':no' AND ratio < :ratio")
    def pressed(self, event):
        def later():
            return self.parameters.get("delay", 0)
        return later()

    def on_stop(self):
        self.log.info("unrelated")

    @property
    def most(self):
        self.buy(self.name, self.parameters["volume"], post_only=True)
        return self.parameters["most"]
"""


@pytest.mark.parametrize("name", ["threshold", "volume", "ratio", "delay", "most", "floor", "limit_AMZN"])
def test_parameters_are_defaults_and_what_conditions_and_methods_name(folder: Path, name: str) -> None:
    (folder / "mine_with.py").write_text(PARAMETERS)
    assert load_strategy("mine_with:Mine", {name: 1}).parameters == {name: 1}


@pytest.mark.parametrize(
    ("name", "near"),
    [("threshhold", "did you mean 'threshold'"), ("Volume", "did you mean 'volume'"),
     ("no", "known are delay, floor, most, ratio, threshold, volume"), ("limits", "known are"),
     ("most_", "did you mean 'most'"), ("unrelated", "known are"), ("post_only", "known are")],
)  # fmt: skip
def test_other_parameters_are_refused_by_the_nearest_name(folder: Path, name: str, near: str) -> None:
    (folder / "mine_with.py").write_text(PARAMETERS)
    with pytest.raises(ConfigurationError, match=f"^strategy 'mine_with:Mine': {name}: Mine has no .*{near}"):
        load_strategy("mine_with:Mine", {name: 1})
