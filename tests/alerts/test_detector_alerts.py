"""Alerts of detectors arrive at a receiver that fails, hangs and repeats, over crashes and lost books."""

from collections import Counter
from collections.abc import Iterable, Sequence
from decimal import Decimal
from pathlib import Path
from random import Random

import numpy as np
import pytest
from alert_support import SECRET, AlertRun, Receiver, configuration, crashed, settle
from plain_book import lost_after

from orderbook.alerts import notifier
from orderbook.market.abuse_injection import Injector
from orderbook.market.abuse_plan import Survey
from orderbook.market.events import Events, Flag
from orderbook.market.synthetic_flow import generate, synthetic_instruments
from orderbook.run.pipeline import Pipeline
from orderbook.strategies.gated_engine import GatedEngine
from orderbook.views.compilation import compile_views

VIEWS = ("surveillance/spoofing", "surveillance/pinging", "surveillance/wash_trades")
NAMES = [name.rpartition("/")[2] for name in VIEWS]
RULES = "".join(
    f'[alerts.{name}]\nview = "{name}"\nchannels = ["desk"]\nrate_limit = "100000/1h"\n' for name in NAMES
)


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DESK_SECRET", SECRET)
    monkeypatch.setattr(notifier, "_FIRST", 0.001)
    monkeypatch.setattr(notifier, "_LONGEST", 0.005)
    monkeypatch.setattr(notifier, "_LOOK", 0.005)


def key_text(key: Iterable[object]) -> str:
    """A key in a form that is the same for values and for what JSON has of them."""
    return ",".join(f"{float(one):g}" if isinstance(one, float | Decimal) else str(one) for one in key)


def abused(seed: int) -> Events:
    """Flow of a symbol with a spoof, pings and wash trades."""
    flow = np.concatenate(list(generate(1_200, 1, 60, seed, resting=150, rate=20.0)))
    survey = Survey()
    survey.read(flow)
    abuse = [("spoofing", 2), ("pinging", 1), ("wash_trades", 1)]
    injector = Injector(survey, abuse, strength=1.0, seed=seed)
    return np.concatenate([injector.apply(flow), injector.finish()])


def expected(messages: Sequence[Events]) -> Counter[tuple[str, str, str]]:
    """How often rows of each detector came and went, by looking at all of them after each message."""
    pipeline = Pipeline(GatedEngine(compile_views(list(VIEWS)), "interpreter"), synthetic_instruments(1))
    there: dict[str, set[str]] = {name: set() for name in NAMES}
    told = Counter[tuple[str, str, str]]()
    for message in messages:
        pipeline.apply(message.copy())
        for name in NAMES:
            rows = {key_text(key) for key in pipeline.engine[name]}
            told.update(("raised", name, key) for key in rows - there[name])
            told.update(("resolved", name, key) for key in there[name] - rows)
            there[name] = rows
    return told


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", [1, 2])
def test_alerts_of_detectors_arrive_over_crashes_and_lost_books(seed: int, tmp_path: Path) -> None:
    random = Random(seed)
    kinds: list[int | float | str] = [200, 500, 429, 0.2, "repeat", 302]
    answers = [*(random.choice(kinds) for _ in range(9)), 200]
    receiver = Receiver(lambda number: answers[number % 10])
    channel = f'[channels.desk]\nwebhook = "{receiver.url}"\nsecret = "$DESK_SECRET"\ntimeout = "100ms"\n'
    events = abused(seed)
    count = int(np.count_nonzero(events["flags"] & int(Flag.LAST)))
    messages = lost_after(events, random.sample(range(count // 4, count), 3))
    wanted = expected(messages)
    assert {name for _, name, _ in wanted} == set(NAMES)
    crashes = sorted(random.sample(range(len(messages) // 10, len(messages)), 3))
    folder, done = tmp_path / "0", 0
    options = configuration(folder, RULES + channel)
    for number, end in enumerate([*crashes, len(messages)]):
        run = AlertRun(folder, options, sql=list(VIEWS), instruments=synthetic_instruments(1))
        for message in messages[done:end]:
            run.accept(message.copy())
            if random.random() < 0.01:
                run.durable.checkpoint()
        done = end
        if end == len(messages):
            break
        other = tmp_path / f"{number + 1}"
        with crashed(run, folder, other):
            folder = other
    run.alerts.save()
    settle(lambda: not run.alerts._store.waiting("desk"), run.alerts.look)
    run.close()
    receiver.close()
    assert receiver.unsigned == 0
    told = Counter(
        (one["type"].removeprefix("alert."), one["data"]["name"], key_text(one["data"]["key"]))
        for one in receiver.taken.values()
    )
    assert told == wanted
