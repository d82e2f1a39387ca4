"""Compiled methods of strategies: the orders of the same rules in Python, wherever they are called."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from compiled_rules import RULES, Paced, Plain, PlainPaced, Quoter
from compiled_support import APART, OPTIONS, PROGRAM, in_python, outcome  # noqa: F401
from erratic_feed import flow
from strategy_support import INSTRUMENTS

from orderbook.core.errors import ConfigurationError
from orderbook.market.events import Flag
from orderbook.run.pipeline import Pipeline
from orderbook.strategies.gated_engine import GatedEngine
from orderbook.strategies.strategy import StrategyDefinition


class Following(Quoter):
    """Is told of its fills in Python."""

    def on_fill(self, fill: Any) -> None:
        assert self.quote >= 0


@pytest.mark.sampled(6)
@pytest.mark.parametrize("feed", ["orders", "levels"])
@pytest.mark.parametrize("name", OPTIONS)
def test_compiled_methods_order_as_the_same_rules_in_python(
    name: str,
    feed: str,
    sample_seed: int,
    sample_count: int,
    in_python: list[str],  # noqa: F811
) -> None:
    first = list(OPTIONS).index(name) + (feed == "levels")
    for seed in range(sample_seed, sample_seed + max(1, sample_count // 50)):
        # The interpreter takes most of the time, and more of it by each message.
        events = flow(seed, 240, feed)
        ends = np.flatnonzero(events["flags"] & int(Flag.LAST)) + 1
        cuts = np.split(events, ends[:-1]), [events], np.split(events, [50 + seed % 200])
        # One seed has all with each of the options, half of them by either feed.
        for plain, kinds in RULES[(first + seed) % 2 :: 2]:
            expected = outcome(plain, OPTIONS[name], cuts[0], "interpreter")
            assert any(update.fills for own in expected[0].values() for *_, update in own)
            for parts in cuts:
                in_python.clear()
                assert outcome(kinds, OPTIONS[name], parts, "numba") == expected
                calls = sum(one[1][0] for one in expected[2])
                # Where a book is not valid Python calls them.
                assert len(in_python) < 0.9 * calls


def test_symbols_of_several_venues(in_python: list[str]) -> None:  # noqa: F811
    events = flow(2, 400, "levels")
    rules: Any = (([Plain], [Quoter]), ([Plain, PlainPaced], [Quoter, Paced]))
    for number, options in enumerate(OPTIONS.values()):
        plain, kinds = rules[number % 2]
        expected = outcome(plain, options, [events], "interpreter", INSTRUMENTS)
        in_python.clear()
        assert outcome(kinds, options, [events], "numba", INSTRUMENTS) == expected
        calls = sum(one[1][0] for one in expected[2])
        # Rows that wait, of several venues, are Python's.
        assert len(in_python) < (0.9 if len(kinds) == 1 else 1) * calls


def test_a_strategy_that_is_told_of_fills_stays_in_the_loop(
    in_python: list[str],  # noqa: F811
) -> None:
    events = flow(3, 300, "levels")
    expected = outcome([Plain], OPTIONS["late"], [events], "numba")
    assert outcome([Following], OPTIONS["late"], [events], "numba") == expected
    assert len(in_python) < 0.9 * sum(one[1][0] for one in expected[2])


def test_fields_go_on_from_what_was_saved() -> None:
    events = flow(5, 300, "levels")
    half = int(np.flatnonzero(events["flags"][: len(events) // 2] & int(Flag.LAST))[-1]) + 1

    def pipeline() -> Pipeline:
        made = Pipeline(
            GatedEngine(PROGRAM, "numba"), INSTRUMENTS, [StrategyDefinition(Quoter)],
            trading=OPTIONS["late"],
        )  # fmt: skip
        made.engine.grows = False
        return made

    first = pipeline()
    first.start()
    first.apply(events[:half], "message")
    states = first.host.take_states()
    (runner,) = first.host._runners
    fields = [getattr(runner._strategy, name) for name in ("seen", "quote", "mean", "rising")]
    assert fields[0] > 10 and first.host.take_states() == {}
    second = pipeline()
    second.host.load(first.host.save(), range(len(INSTRUMENTS)))
    second.host.restore_states(states)
    (again,) = second.host._runners
    assert [getattr(again._strategy, name) for name in ("seen", "quote", "mean", "rising")] == fields
    assert again.desk.orders == runner.desk.orders == runner.orders
    assert again.client.open_orders() == runner.client.open_orders()


def refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, fields: str = "n: int = 0") -> str:
    """Why a strategy with this method is not taken."""
    lines = "".join(f"        {line}\n" for line in body.splitlines())
    text = (
        "from orderbook import Strategy, compiled, on_view\n\nclass Mine(Strategy):\n"
        f"    {fields}\n    @on_view('touch')\n    @compiled\n    def moved(self, row):\n{lines}"
    )
    name = f"mine{abs(hash(body + fields))}"
    (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    kind = __import__(name).Mine
    with pytest.raises(ConfigurationError) as error:
        Pipeline(GatedEngine(PROGRAM, "numba"), INSTRUMENTS, [StrategyDefinition(kind)])
    return str(error.value)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("self.n = row.nothing", ["Mine.moved", "touch", "line 8", "nothing"]),
        ("self.n = self.nothing", ["nothing"]),
        ("self.wait(1)", ["unknown method wait"]),
        ("print(row.bid)", ["print"]),
        ("x = [row.bid]", ["List"]),
        ("self.buy(1, price=2, iceberg=3)", ["buy", "volume, price, post_only"]),
        ("self.n = row.bit", ["line 8", "did you mean 'bid'"]),
        ("self.n = self.m", ["line 8", "`m: float = 0.0`"]),
        ("self.n = self.parameters['n']", ["line 8", "self.NAME"]),
        ("self.log.info('x')", ["line 8", "in Python"]),
        ("self.n = self.position(row.symbol)", ["line 8", "self.position is a number"]),
        ("self.cancel_all()", ["line 8", "did you mean 'cancel'"]),
        ("self.n = row.bid / 2", ["line 8", "a double in n", "float", "round(…)"]),
        ("self.n += row.imbalance", ["line 8", "a double in n"]),
        ("if row: self.n = 1", ["line 8", "multiplicity"]),
        ("if row is None: return", ["line 8", "multiplicity"]),
        ("self.n = row.symbol == 'AAA'", ["line 8", "'AAA'", "in a view"]),
        ("self.n = 1 if row.bid else row", ["line 8"]),
        ("self.buy(0.5, row.bid)", ["line 8", "0.5 as volume of buy", "50_000_000", "Decimal('0.5')"]),
        ("self.sell(self.lot, stop=-1.5)", ["line 8", "-1.5 as stop of sell", "10^-8"]),
        (
            "self.buy(row.symbol, self.lot, row.bid)",
            ["line 8", "row.bid as post_only of buy", "volume, price"],
        ),
    ],
)
def test_what_cannot_be_compiled_is_refused_by_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, words: list[str]
) -> None:
    said = refused(tmp_path, monkeypatch, body)
    assert all(word in said for word in words), said


SIZE = "size: float = 0.5"
LIMIT = "defaults = {'limit': 100.5, 'most': 1}"


@pytest.mark.parametrize(
    ("fields", "body", "words"),
    [
        (
            SIZE, "self.buy(self.size, row.bid)",
            ["line 8", "self.size as volume of buy", "{'size': Decimal('0.5')}", "round(self.size * 1e8)"],
        ),
        (SIZE, "half = self.size / 2\nself.sell(volume=half)", ["line 9", "half as volume", "'size'"]),
        (SIZE, "self.hold(-self.size)", ["-self.size as target of hold"]),
        (SIZE, "self.buy(int(self.size), row.bid)", ["int(self.size) as volume"]),
        (SIZE, "self.buy(min(self.size, 2), row.bid)", ["as volume"]),
        (SIZE, "self.modify(1, self.size)", ["self.size as volume of modify"]),
        (SIZE, "if self.position < self.size:\n    self.buy(self.lot)", ["self.position", "self.size"]),
        (SIZE, "self.buy(self.lot, row.bid - self.size)", ["row.bid", "round(self.size * 1e8)"]),
        (SIZE, "self.sell(self.lot, display=self.size * 3)", ["as display of sell"]),
        (LIMIT, "self.buy(self.lot, self.limit)", ["self.limit as price", "'limit': Decimal('100.5')"]),
        (LIMIT, "self.modify(1, price=self.limit, stop=self.limit)", ["as price of modify"]),
        (LIMIT, "self.buy(self.lot, trail=self.limit)", ["as trail of buy"]),
        (LIMIT, "x = 1 if row.ask > self.limit > 0 else 0", ["row.ask", "self.limit"]),
        (LIMIT, "mid = (row.bid + row.ask) / 2\nif mid > self.limit: return", ["line 9", "mid"]),
        (LIMIT, "x = max(row.ask, self.limit)", ["row.ask", "self.limit"]),
        ("n: int = 0", "if row.bid > 60000.5: self.n = 1", ["line 8", "60000.5", "row.bid * 1e-8"]),
    ],
)  # fmt: skip
def test_doubles_as_they_are_written_are_no_amounts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fields: str, body: str, words: list[str]
) -> None:
    said = refused(tmp_path, monkeypatch, body, fields)
    assert all(word in said for word in ["10^-8", *words]), said


@pytest.mark.parametrize("method", ["on_start(self)", "on_stop(self)", "on_save(self)"])
def test_what_python_calls_is_not_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    said = refused(tmp_path, monkeypatch, "pass", f"n: int = 0\n    @compiled\n    def {method}: ...")
    assert f"Mine.{method.partition('(')[0]} is called by Python" in said


def test_a_field_with_a_name_of_the_desk_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "Mine: tick means something else" in refused(
        tmp_path, monkeypatch, "self.tick = 1", "tick: int = 0"
    )
