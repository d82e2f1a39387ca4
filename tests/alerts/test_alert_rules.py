"""Alerts are raised and cleared as plain rules over the rows say, whatever the order of changes."""

from typing import Any

import pytest
from alert_support import SQL
from hypothesis import given
from hypothesis import strategies as st

from orderbook.alerts.rules import Raised, RuleWatch, Transition
from orderbook.configuration.alert_options import AlertOptions
from orderbook.core.errors import Problems
from orderbook.feeds.change_stream import RelationChange
from orderbook.feeds.merge import ChangeItem
from orderbook.market.instruments import Instruments
from orderbook.run.event_queue import Stamped
from orderbook.run.pipeline import Pipeline
from orderbook.strategies.gated_engine import GatedEngine
from orderbook.views.compilation import compile_views

PROGRAM = compile_views(SQL)
SECOND = 10**9

# Seconds before a message, and what the message makes of a symbol: its volume, or None where it goes.
Steps = list[tuple[int, str, int | None]]


def watched(options: AlertOptions, steps: Steps) -> list[tuple[str, str, int]]:
    """What a rule tells: raised or over, of which symbol, when."""
    engine = GatedEngine(PROGRAM, "interpreter")
    pipeline = Pipeline(engine, Instruments(()))
    told: list[Transition] = []

    def tell(transition: Transition) -> bool:
        told.append(transition)
        return True

    watch = RuleWatch("r", options, engine, {}, tell, Problems())
    watch.begin(0)
    rows: dict[str, int] = {}
    now = SECOND
    for seconds, symbol, volume in steps:
        now += seconds * SECOND
        watch.look(now)
        before = rows.pop(symbol, None)
        changes = [] if before is None else [("-", before)]
        if volume is not None:
            rows[symbol] = volume
            changes.append(("+", volume))
        message = [
            RelationChange(
                0,
                "quotes",
                "+" if op == "+" else "-",
                {"symbol": symbol, "volume": one},
                number == len(changes) - 1,
            )
            for number, (op, one) in enumerate(changes)
        ]
        if message:
            pipeline.apply_stamped(Stamped(now, 0, ChangeItem("test", message)))
        watch.look(now)
    ids: dict[str, str] = {}
    found = []
    for one in told:
        if isinstance(one, Raised):
            ids[one.id] = str(one.event.key[0])
            found.append(("raised", ids[one.id], one.at // SECOND))
        else:
            found.append(("over", ids[one.id], one.at // SECOND))
    return found


def plain(steps: Steps, when: Any, clear: Any, held_for: int) -> list[tuple[str, str, int]]:
    """The same by rules over plain values."""
    found: list[tuple[str, str, int]] = []
    since: dict[str, int] = {}
    open_: set[str] = set()
    rows: dict[str, int] = {}
    now = 1

    def passes() -> None:
        for symbol in [s for s, at in since.items() if now - at >= held_for]:
            found.append(("raised", symbol, since.pop(symbol) + held_for))
            open_.add(symbol)

    for seconds, symbol, volume in steps:
        now += seconds
        passes()
        if volume is None:
            rows.pop(symbol, None)
        else:
            rows[symbol] = volume
        held = symbol in rows and when(rows[symbol])
        if symbol in open_ and (symbol not in rows or clear(rows[symbol])):
            open_.remove(symbol)
            found.append(("over", symbol, now))
        elif symbol not in open_ and not held:
            since.pop(symbol, None)
        elif symbol not in open_:
            since.setdefault(symbol, now)
        passes()
    return found


STEPS = st.lists(
    st.tuples(st.integers(0, 4), st.sampled_from("AB"), st.none() | st.integers(0, 12)), max_size=25
)


@given(STEPS, st.sampled_from([0, 1, 5]), st.booleans())
def test_alerts_are_those_of_plain_rules(steps: Steps, held_for: int, hysteresis: bool) -> None:
    clear = "volume < 4" if hysteresis else None
    options = AlertOptions(view="totals", when="volume > 8", clear=clear, held_for=f"{held_for}s")
    expected = plain(steps, lambda v: v > 8, lambda v: v < 4 if hysteresis else v <= 8, held_for)
    assert watched(options, steps) == expected


@given(STEPS)
def test_without_a_condition_every_row_is_an_alert(steps: Steps) -> None:
    assert watched(AlertOptions(view="totals"), steps) == plain(steps, lambda v: True, lambda v: False, 0)


def test_of_a_rule_only_so_many_are_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orderbook.alerts.rules.MOST_OPEN", 1)
    steps: Steps = [(1, "A", 9), (1, "B", 9), (1, "A", 0), (1, "B", 0), (1, "B", 9)]
    told = watched(AlertOptions(view="totals", when="volume > 8"), steps)
    assert told == [("raised", "A", 2), ("over", "A", 4), ("raised", "B", 6)]
