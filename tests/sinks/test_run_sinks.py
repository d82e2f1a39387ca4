"""`orderbook run` with sinks: on librdkafka's mock cluster, killed and run again, and what is refused."""

import re
import sys
from pathlib import Path

import pytest
from command_line_support import EndsOnce, Program, books_valid, write
from command_line_support import ends_once as ends_once
from command_line_support import orderbook as orderbook
from samples import PATIENCE

from orderbook.configuration.configuration import load_configuration
from orderbook.core.errors import ConfigurationError, UserError
from orderbook.run.assembly import assemble
from orderbook.sinks.run_sinks import sinks_of

CONFIG = """
[run]
views = ["depth"]
strategies = []
backend = "interpreter"
[monitor]
enabled = false
[[feeds]]
kind = "simulated"
events_per_second = 300
levels = 10
[log]
folder = "log"
[[sinks]]
view = "touch"
to = "kafka:///touch"
properties = { "test.mock.num.brokers" = "1", "log_level" = "0" }
"""


def test_a_run_sends_what_it_has_and_goes_on_with_its_outbox(
    orderbook: Program, ends_once: EndsOnce, tmp_path: Path
) -> None:
    config = write(tmp_path / "c.toml", CONFIG)
    ends_once(lambda pipeline, messages: books_valid(pipeline) and messages > 300)
    for _ in range(2):
        result = orderbook("run", "--config", config, "--duration", PATIENCE)
        assert result.status == 0, result.err
        told = re.search(r"sink touch to kafka:///touch: delivered ([\d,]+)$", result.out, re.M)
        assert told is not None, result.out
        assert int(told[1].replace(",", "")) > 3
    assert list((tmp_path / "log" / "sinks").glob("touch-*/delivered"))


@pytest.mark.sampled(2)
def test_a_topic_that_cannot_be_reached_leaves_a_finding(
    orderbook: Program, ends_once: EndsOnce, tmp_path: Path
) -> None:
    ends_once(lambda pipeline, messages: books_valid(pipeline) and messages > 300)
    away = CONFIG.replace("kafka:///touch", "kafka://127.0.0.1:1/touch")
    config = write(tmp_path / "c.toml", away.replace('"test.mock.num.brokers" = "1", ', ""))
    result = orderbook("run", "--config", config, "--duration", PATIENCE)
    assert result.status == 1
    assert "incomplete: sink behind its view" in result.out
    assert "sink not written" in result.out


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            'view = "touch"\nto = "kafka://a:1/t"',
            "sinks[0].view: changes are kept for a sink in the run's log",
        ),
        (
            'view = "tuch"\nto = "kafka://a:1/t"',
            "sinks[0].view: no view is named 'tuch'; did you mean 'touch'",
        ),
        (
            'view = "touch"\nto = "postgresql:///x"\n[[sinks]]\nview = "touch"\nto = "postgresql:///x?user=me"',
            "sinks[1].to: two sinks write postgresql:///x#touch",
        ),
        ('view = "touch"\nto = "mysql://x/y"', 'expected "postgresql://…" or "kafka://HOST:PORT,…/TOPIC"'),
        ('view = "touch"\nto = "kafka://a:1"', "expected kafka://HOST:PORT,…/TOPIC"),
    ],
)
def test_what_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "c.toml"
    path.write_text(f'[run]\nviews = ["depth"]\n[[sinks]]\n{text}\n')
    with pytest.raises(ConfigurationError) as raised:
        refused(path)
    assert message in str(raised.value)


def refused(path: Path) -> None:
    configuration = load_configuration(path)
    with sinks_of(configuration, assemble(configuration).program):
        raise AssertionError("it was taken")


@pytest.mark.parametrize(
    ("module", "extra", "to"),
    [
        ("adbc_driver_postgresql", "postgres", "postgresql:///x"),
        ("confluent_kafka", "kafka", "kafka://a:1/t"),
    ],
)
def test_what_an_extra_brings_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, extra: str, to: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    path = tmp_path / "c.toml"
    path.write_text(f'log.folder = "log"\n[run]\nviews = ["depth"]\n[[sinks]]\nview = "touch"\nto = "{to}"\n')
    with pytest.raises(UserError, match=rf"pip install 'orderbook\[{extra}\]'"):
        refused(path)
