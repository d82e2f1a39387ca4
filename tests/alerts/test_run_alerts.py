"""`orderbook run` with alerts: over a restart, asked by `orderbook alerts`, and what is refused."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from alert_support import SECRET, Receiver, settle
from command_line_support import EndsOnce, Program, books_valid, write
from command_line_support import ends_once as ends_once
from command_line_support import orderbook as orderbook
from samples import PATIENCE

from orderbook.run.pipeline import Pipeline

# Every symbol has bids, and so is alerted of once.
CONFIG = """
[run]
views = ["depth"]
strategies = []
backend = "interpreter"
[monitor]
enabled = {monitor}
port = 0
preview = false
[[feeds]]
kind = "simulated"
products = ["BTC-USD", "ETH-USD"]
events_per_second = 300
levels = 10
{log}
[alerts.there]
view = "touch"
when = "bid > 0"
severity = "info"
channels = ["desk"]
message = "{{symbol}} is there"
[channels.desk]
webhook = "{url}"
secret = "$DESK_SECRET"
resolved = false
"""


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    monkeypatch.setenv("DESK_SECRET", SECRET)
    one = Receiver(lambda number: 500 if number == 0 else 200)
    yield one
    one.close()


def config(folder: Path, receiver: Receiver, log: bool, monitor: bool = False) -> Path:
    text = CONFIG.format(
        url=receiver.url, log='[log]\nfolder = "log"\n' if log else "", monitor=str(monitor).lower()
    )
    return write(folder / "c.toml", text)


def test_a_run_tells_of_each_alert_once_over_a_restart(
    orderbook: Program, ends_once: EndsOnce, tmp_path: Path, receiver: Receiver
) -> None:
    file = config(tmp_path, receiver, log=True)
    for first in (True, False):

        def holds(pipeline: Pipeline, messages: int, first: bool = first) -> bool:
            return books_valid(pipeline) and messages > 100 and (not first or len(receiver.taken) == 2)

        ends_once(holds)
        result = orderbook("run", "--config", file, "--duration", PATIENCE)
        assert result.status == 0, result.out + result.err
        assert f"alerts: raised {2 if first else 0}, open 2" in result.out
        assert f"channel desk: sent {2 if first else 0}\n" in result.out
    told = sorted(one["data"]["message"] for one in receiver.taken.values())
    assert told == ["BTC-USD is there", "ETH-USD is there"]
    assert len(receiver.requests) == 3 and (tmp_path / "log" / "alerts" / "alerts.db").exists()


@pytest.mark.sampled(2)
def test_alerts_are_listed_acknowledged_and_silenced_while_it_runs(
    orderbook: Program, tmp_path: Path, receiver: Receiver
) -> None:
    file = config(tmp_path, receiver, log=False, monitor=True)
    assert (
        "alert there: fine, of touch when bid > 0, told to desk" in orderbook("check", "--config", file).out
    )
    command = [sys.executable, "-m", "orderbook.command_line", "serve", "--config", str(file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as run:
        try:
            assert run.stdout is not None
            url = run.stdout.readline().split()[1]
            settle(lambda: len(receiver.taken) == 2)
            asked = orderbook("alerts", "--url", url, "--json")
            assert asked.status == 0, asked.err
            listed = json.loads(asked.out)
            assert [one["over"] for one in listed["alerts"]] == [None, None]
            first = listed["alerts"][0]["alert"]
            told = orderbook("alerts", "--url", url, "--acknowledge", first, "--by", "me")
            assert told.out == "acknowledged: 1\n", told.err
            told = orderbook("alerts", "--url", url, "--silence", "there", "--match", "symbol=BTC-USD")
            assert told.out.startswith("silence 1: there until "), told.err
            shown = orderbook("alerts", "--url", url).out
            assert "acknowledged" in shown and "silence 1: there symbol=BTC-USD until" in shown
            assert "channel desk: sent 2, waiting 0" in shown
            assert orderbook("alerts", "--url", url, "--end-silence", 1).status == 0
            refused = orderbook("alerts", "--url", url, "--silence", "their")
            assert (refused.status, "no alert is named 'their'" in refused.err) == (2, True)
            assert orderbook("alerts", "--url", url, "--match", "a=b").status == 2
        finally:
            run.terminate()


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (('channels = ["desk"]', 'channels = ["dest"]'), "no channel is named 'dest'; did you mean 'desk'?"),
        (("bid > 0", "bit > 0"), "alerts.there: "),
        (("{symbol}", "{symbl}"), "the view has no column 'symbl'; did you mean 'symbol'?"),
        (('"touch"', '"tuch"'), "no view is named 'tuch'; did you mean 'touch'?"),
        (('"$DESK_SECRET"', '"a secret"'), "$NAME of a variable of the environment, where secrets are"),
        (("$DESK_SECRET", "$NO_SECRET"), "the variable NO_SECRET of the environment is not set"),
        (("http://127.0.0.1", "http://a.example"), "an https address"),
        (('severity = "info"', 'servity = "info"'), "did you mean 'severity'?"),
    ],
)
def test_what_is_refused(
    orderbook: Program, tmp_path: Path, receiver: Receiver, change: tuple[str, str], message: str
) -> None:
    file = config(tmp_path, receiver, log=False)
    write(file, file.read_text().replace(*change))
    for command in ("check", "run"):
        result = orderbook(command, "--config", file)
        assert result.status == 2 and message in result.err, result.err


def test_what_an_extra_brings_is_asked_for(
    orderbook: Program, tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "apprise", None)
    monkeypatch.setenv("CHAT", "slack://a/b/c")
    file = config(tmp_path, receiver, log=False)
    write(file, f'{file.read_text()}[channels.chat]\nservice = "$CHAT"\n')
    result = orderbook("run", "--config", file)
    assert result.status == 2 and "pip install 'orderbook[alerts]'" in result.err
