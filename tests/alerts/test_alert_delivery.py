"""Exactly the configured alerts arrive at a receiver that fails, hangs and repeats, over crashes."""

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from alert_support import SECRET, AlertRun, Receiver, configuration, crashed, settle
from hypothesis import given
from hypothesis import strategies as st
from samples import PATIENCE, examples

from orderbook.alerts import notifier
from orderbook.alerts.channels import DeliveryError, Service, Webhook
from orderbook.alerts.store import AlertStore
from orderbook.core.errors import DataError, UserError

RULE = """
[alerts.large]
view = "totals"
when = "volume > 8"
clear = "volume < 4"
channels = ["desk"]
rate_limit = "100000/1h"
"""


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DESK_SECRET", SECRET)
    monkeypatch.setattr(notifier, "_FIRST", 0.001)
    monkeypatch.setattr(notifier, "_LONGEST", 0.005)
    monkeypatch.setattr(notifier, "_LOOK", 0.005)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    one = Receiver()
    yield one
    one.close()


def desk(receiver: Receiver, name: str = "desk", more: str = "") -> str:
    return f'[channels.{name}]\nwebhook = "{receiver.url}"\nsecret = "$DESK_SECRET"\n{more}\n'


def flow(seed: int, count: int) -> Iterator[list[tuple[str, str, int]]]:
    """Messages of changed, new and gone rows, each of a symbol."""
    random, rows = Random(seed), dict[str, int]()
    for _ in range(count):
        symbol = random.choice("ABC")
        message = [("-", symbol, rows.pop(symbol))] if symbol in rows else []
        if not message or random.random() < 0.8:
            rows[symbol] = random.randrange(13)
            message.append(("+", symbol, rows[symbol]))
        yield message


def expected(messages: list[list[tuple[str, str, int]]]) -> list[tuple[str, str]]:
    """What plain rules make of them: kinds and symbols, sorted."""
    open_: set[str] = set()
    told = []
    for message in messages:
        _, symbol, volume = message[-1]
        there = message[-1][0] == "+"
        if symbol in open_ and (not there or volume < 4):
            open_.remove(symbol)
            told.append(("resolved", symbol))
        elif symbol not in open_ and there and volume > 8:
            open_.add(symbol)
            told.append(("raised", symbol))
    return sorted(told)


@given(st.integers(0, 10**6), st.lists(st.integers(6, 20), min_size=2, max_size=4))
@examples(4)
def test_exactly_the_configured_alerts_arrive_over_crashes(seed: int, crashes: list[int]) -> None:
    random = Random(seed)
    # Of ten requests some are refused, hang, or are taken without an answer, so that they come again.
    kinds: list[int | float | str] = [200, 500, 429, 0.2, "repeat", 302]
    answers = [*(random.choice(kinds) for _ in range(9)), 200]
    receiver = Receiver(lambda number: answers[number % 10])
    messages, done = list(flow(seed, sum(crashes) + 20)), 0
    with TemporaryDirectory() as made_in:
        folder = Path(made_in) / "0"
        options = configuration(folder, RULE + desk(receiver, more='timeout = "100ms"'))
        for number, length in enumerate([*crashes, None]):
            run = AlertRun(folder, options)
            end = len(messages) if length is None else done + length
            for message in messages[done:end]:
                run.apply(message)
                if random.random() < 0.1:
                    run.durable.checkpoint()
                if random.random() < 0.2:
                    run.alerts.save()
            done = end
            if length is None:
                break
            other = Path(made_in) / f"{number + 1}"
            with crashed(run, folder, other):
                folder = other
        run.alerts.save()
        settle(lambda: not run.alerts._store.waiting("desk"), run.alerts.look)
        run.close()
    receiver.close()
    assert receiver.unsigned == 0
    assert sorted((kind, key) for kind, _, key in receiver.told()) == expected(messages)


def test_a_hanging_receiver_holds_up_neither_the_engine_nor_another_channel(
    tmp_path: Path, receiver: Receiver
) -> None:
    # Nobody gives up a request, nor answers it, before the test is over.
    hanging = Receiver(lambda _: 10.0 * PATIENCE)
    text = RULE.replace('["desk"]', '["desk", "other"]') + desk(receiver, "other")
    text += desk(hanging, more=f'timeout = "{10 * PATIENCE}s"')
    run = AlertRun(tmp_path, configuration(tmp_path, text))
    run.apply([("+", "A", 9)])
    settle(lambda: hanging.requests and receiver.taken)
    for number in range(200):
        run.apply([("-", "A", 9 - 9 * (number % 2)), ("+", "A", 9 * (number % 2))])
    run.alerts.save()
    settle(lambda: len(receiver.taken) == 201)
    # It still hangs, and there is only one request under way.
    assert len(hanging.requests) == 1
    hanging.close()
    run.close()


def test_what_is_acknowledged_is_not_told_to_others(tmp_path: Path, receiver: Receiver) -> None:
    text = RULE + 'repeat = "10s"\nescalate = [{ after = "15s", channels = ["boss"] }]\n'
    clock = [10**18]
    run = AlertRun(
        tmp_path, configuration(tmp_path, text + desk(receiver) + desk(receiver, "boss")), lambda: clock[0]
    )

    def after(seconds: int) -> list[str]:
        clock[0] += seconds * 10**9
        run.alerts._asked.ask(lambda: None).result(PATIENCE)
        time.sleep(0.05)
        settle(lambda: not (run.alerts._store.waiting("desk") + run.alerts._store.waiting("boss")))
        return sorted(f"{kind} {key}" for kind, _, key in receiver.told())

    run.apply([("+", "A", 9)])
    run.apply([("+", "B", 9)])
    run.alerts.save()
    assert after(1) == ["raised A", "raised B"]
    listed = run.alerts.listed().result(PATIENCE)["alerts"]
    (first,) = [one["alert"] for one in listed if one["key"] == json_of(["A"])]
    assert run.alerts.acknowledge(first, "me").result(PATIENCE) == 1
    assert run.alerts.acknowledge(first, "me").result(PATIENCE) == 0
    assert after(10) == ["raised A", "raised B", "repeated B"]
    assert after(5) == ["escalated B", "raised A", "raised B", "repeated B"]
    # Whoever has been told once more is told again, too: desk, and the one it was escalated to.
    assert after(5)[2:] == ["raised B", "repeated B", "repeated B", "repeated B"]
    run.apply([("-", "A", 9)])
    run.apply([("-", "B", 9)])
    run.alerts.save()
    assert [one for one in after(100) if one.startswith("res")] == ["resolved A", "resolved B", "resolved B"]
    with pytest.raises(DataError, match="no alert 'nothing'"):
        run.alerts.acknowledge("nothing", "me").result(PATIENCE)
    run.close()


def json_of(value: Any) -> Any:
    import msgspec

    return msgspec.Raw(json.dumps(value, separators=(",", ":")).encode())


def test_what_is_silenced_is_told_when_that_ends_if_it_is_still_so(
    tmp_path: Path, receiver: Receiver
) -> None:
    clock = [10**18]
    run = AlertRun(tmp_path, configuration(tmp_path, RULE + desk(receiver)), lambda: clock[0])
    run.alerts.silence("large", {"symbol": "A"}, 60.0, "me").result(PATIENCE)
    other = run.alerts.silence("*", {"symbol": "B"}, 3600.0, "me").result(PATIENCE)
    for symbol in "ABC":
        run.apply([("+", symbol, 9)])
    run.alerts.save()
    settle(lambda: receiver.told() == [("raised", "large", "C")])
    assert len(run.alerts.listed().result(PATIENCE)["silences"]) == 2
    clock[0] += 61 * 10**9
    settle(lambda: len(receiver.taken) == 2)
    assert receiver.told()[-1] == ("raised", "large", "A")
    run.alerts.end_silence(other["silence"]).result(PATIENCE)
    settle(lambda: len(receiver.taken) == 3)
    for rule, seconds, match in (("larg", 1.0, "large"), ("large", 0.0, "366 days")):
        with pytest.raises(DataError, match=match):
            run.alerts.silence(rule, {}, seconds, "").result(PATIENCE)
    with pytest.raises(DataError, match="no silence 77"):
        run.alerts.end_silence(77).result(PATIENCE)
    run.close()


def test_more_than_the_rate_limit_are_told_as_one(tmp_path: Path, receiver: Receiver) -> None:
    clock = [10**18]
    text = RULE.replace("100000/1h", "2/1m").replace(
        "[alerts.large]", '[alerts.large]\nmessage = "{symbol}!"'
    )
    options = configuration(tmp_path, text + desk(receiver))
    run = AlertRun(tmp_path, options, lambda: clock[0])
    for symbol in "ABCDE":
        run.apply([("+", symbol, 9)])
    run.alerts.save()
    settle(lambda: len(receiver.taken) == 2)
    told = "  alerts: raised 5, open 5, not told of 3 (more than rate_limit)"
    settle(lambda: told in list(run.alerts.summary()))
    run.close()
    # The limit, and what it kept back, are known to the next run.
    run = AlertRun(tmp_path, options, lambda: clock[0])
    run.apply([("+", "F", 9)])
    run.alerts.save()
    assert [one["limited"] for one in run.alerts.listed().result(PATIENCE)["alerts"]].count(True) == 4
    clock[0] += 61 * 10**9
    settle(lambda: len(receiver.taken) == 3)
    assert list(receiver.taken.values())[-1]["data"]["message"].startswith("large: 4 more")
    assert next(iter(receiver.taken.values()))["data"]["message"] == "A!"
    run.close()


def test_what_is_told_of_an_alert_comes_in_its_order() -> None:
    store = AlertStore(None, 10)
    told = [("A", "raised"), ("A", "resolved"), ("B", "raised"), ("", "suppressed"), ("", "suppressed")]
    with store.transaction() as db:
        for number, (alert, kind) in enumerate(told):
            db.execute(
                "INSERT INTO outbox (id, alert, channel, kind, body, made, attempts, next, state) "
                "VALUES (?, ?, 'desk', ?, '', 0, 0, 0, 'waiting')",
                (f"{number}", alert, kind),
            )
    taken = []
    store.attempted("0", 100, "away")
    store.attempted("3", 200, "away")
    for now in (1, 1, 1, 100, 100, 200):
        found = store.next("desk", now)
        assert found is not None
        if isinstance(found, int):
            assert found == 100
            continue
        taken.append(found.id)
        store.done(found.id, "sent")
    # The end of A waits for its beginning; what is of no alert waits for nothing.
    assert taken == ["2", "4", "0", "1", "3"]
    store.close()


def test_the_same_failure_is_shown_once(tmp_path: Path, receiver: Receiver) -> None:
    receiver.answers = lambda _: 503 if len(receiver.requests) < 3 else 200
    run = AlertRun(tmp_path, configuration(tmp_path, RULE + desk(receiver)))
    run.apply([("+", "A", 9)])
    run.alerts.save()
    settle(lambda: len(receiver.taken) == 1)
    (line,) = [one for one in run.alerts.summary() if "not delivered" in one]
    assert line.endswith("x alert not delivered: desk: POST …: 503 Service Unavailable")
    run.close()


def test_alerts_are_kept_over_restarts_and_given_up_in_the_end(tmp_path: Path, receiver: Receiver) -> None:
    receiver.answers = lambda _: 503
    clock = [10**18]
    options = configuration(tmp_path, RULE + desk(receiver))
    for number in range(2):
        run = AlertRun(tmp_path, options, lambda: clock[0])
        if not number:
            run.apply([("+", "A", 9)])
            run.alerts.save()
        settle(lambda: receiver.requests)
        report = run.alerts.report()
        assert report is not None and report.channels[0].given_up == 0
        run.close()
        assert [one.count for one in run.alerts.findings()] == [1]
    clock[0] += 25 * 3600 * 10**9
    run = AlertRun(tmp_path, options, lambda: clock[0])
    settle(lambda: not run.alerts._store.waiting("desk"))
    assert len(run.alerts.listed().result(PATIENCE)["alerts"]) == 1
    run.close()
    assert len({id_ for id_, _ in receiver.requests}) == 1
    assert any("given up 1" in line for line in run.alerts.summary())


def test_two_runs_do_not_share_a_folder(tmp_path: Path, receiver: Receiver) -> None:
    options = configuration(tmp_path, RULE + desk(receiver))
    run = AlertRun(tmp_path, options)
    (tmp_path / "log").rename(tmp_path / "log of the first")
    with pytest.raises(UserError, match=r"alerts\.db: cannot be used"):
        AlertRun(tmp_path, options)
    run.close()


def test_a_webhook_says_neither_its_address_nor_waits_longer_than_it_may(receiver: Receiver) -> None:
    receiver.answers = lambda _: 429
    with pytest.raises(DeliveryError) as raised:
        Webhook(receiver.url, SECRET, 5.0).send("n", "{}")
    assert "hook" not in str(raised.value) and raised.value.wait == 0.0
    with pytest.raises(UserError, match="base64"):
        Webhook(receiver.url, "whsec_?", 5.0)


def test_services_are_told_by_apprise(monkeypatch: pytest.MonkeyPatch) -> None:
    import apprise

    told: list[tuple[str, str, str]] = []

    def notify(_: object, body: str, title: str, notify_type: str) -> bool:
        told.append((title, body, notify_type))
        return len(told) > 1

    monkeypatch.setattr(apprise.Apprise, "notify", notify)
    service = Service("slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ/#general", "chat")
    data = {"name": "large", "message": "A is large", "severity": "critical"}
    with pytest.raises(DeliveryError, match="not taken"):
        service.send("n", json.dumps({"type": "alert.raised", "data": data}))
    service.send("n", json.dumps({"type": "alert.resolved", "data": data}))
    assert told[0] == ("[critical] large raised", "A is large", "failure")
    assert told[1][2] == "success"
    with pytest.raises(UserError, match="apprise knows no service"):
        Service("nothing at all", "chat")


def test_threads_end_with_the_run(tmp_path: Path, receiver: Receiver) -> None:
    run = AlertRun(tmp_path, configuration(tmp_path, RULE + desk(receiver)))
    run.close()
    settle(lambda: not [t for t in threading.enumerate() if t.name.startswith("alerts")])
