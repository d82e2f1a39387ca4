"""Logs: what is let through, as what, and where to."""

import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bybit_support import DELTA, SNAPSHOT, driven
from command_line_support import Program, write
from command_line_support import orderbook as orderbook
from session_support import Driven

from orderbook.configuration.options import LoggingOptions
from orderbook.core.errors import ConfigurationError
from orderbook.market.events import BookState
from orderbook.operations.logs import JsonFormatter, TextFormatter, configure_logging, stamped

TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z"


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    """What a test configures ends with it."""
    root, levels = logging.getLogger(), {n: logging.getLogger(n).level for n in ("", "orderbook")}
    handlers = list(root.handlers)
    yield
    for handler in root.handlers:
        if handler not in handlers:
            handler.close()
    root.handlers[:] = handlers
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)


def logged(tmp_path: Path, **options: Any) -> Path:
    """Log to a file from now on."""
    path = tmp_path / "run.log"
    configure_logging(LoggingOptions(file=path, **options))
    return path


def entries(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def failing() -> None:
    try:
        raise ValueError("no good")
    except ValueError:
        logging.getLogger("orderbook.strategies.Mine").exception("it raised", extra={"stamp": 5})


def test_json_is_an_object_a_line(tmp_path: Path) -> None:
    path = logged(tmp_path, format="json")
    fields = {"feed": "f", "venue": "v", "symbol": "S", "other": 1}
    logging.getLogger("orderbook.feeds.live.session").warning("two\nlines of %d µs \x1b", 3, extra=fields)
    failing()
    first, second = entries(path)
    assert re.fullmatch(TIME, first.pop("time"))
    assert first == {
        "level": "warning",
        "logger": "orderbook.feeds.live.session",
        "message": "two\nlines of 3 µs \x1b",
        "feed": "f",
        "venue": "v",
        "symbol": "S",
    }
    assert second["stamp"] == 5 and second["level"] == "error"
    assert second["exception"].endswith("ValueError: no good")


def test_text_in_a_file_has_time_level_and_logger(tmp_path: Path) -> None:
    path = logged(tmp_path)
    logging.getLogger("orderbook.log").info("torn \x1b[31mtail\x85\n2026-01-01 forged")
    failing()
    first, second, *_, last = path.read_text().splitlines()
    said = r" info orderbook\.log: torn \\x1b\[31mtail\\x85\\n2026-01-01 forged"
    assert re.fullmatch(TIME + said, first)
    assert second.endswith(" error orderbook.strategies.Mine: it raised")
    assert last == "    ValueError: no good"


def test_text_on_standard_error_is_the_message(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(LoggingOptions())
    logging.getLogger("orderbook.feeds.live.session").warning("kraken: gone; connecting again in 0.1 s\x07")
    assert capsys.readouterr().err == "kraken: gone; connecting again in 0.1 s\\x07\n"


def test_what_is_let_through(tmp_path: Path) -> None:
    path = logged(tmp_path, level="info", format="json")
    for name in ("orderbook.x", "orderbook.feeds.x", "websockets.client"):
        for level in ("debug", "info", "warning"):
            getattr(logging.getLogger(name), level)(f"{name} {level}")
    assert [entry["message"] for entry in entries(path)] == [
        "orderbook.x info",
        "orderbook.x warning",
        "orderbook.feeds.x info",
        "orderbook.feeds.x warning",
        "websockets.client warning",
    ]
    path = logged(tmp_path, level="error", format="json")
    logging.getLogger("orderbook.x").warning("no")
    logging.getLogger("websockets.client").warning("no")
    assert len(entries(path)) == 5


def test_records_of_strategies_carry_the_stamp_at_hand(tmp_path: Path) -> None:
    path = logged(tmp_path, format="json")
    with stamped(lambda: 42):
        logging.getLogger("orderbook.strategies.Mine").info("inside")
        logging.getLogger("orderbook.log").info("not of a message")
    logging.getLogger("orderbook.strategies.Mine").info("after")
    assert [entry.get("stamp") for entry in entries(path)] == [42, None, None]


def test_a_file_that_is_moved_away_is_begun_anew(tmp_path: Path) -> None:
    path = logged(tmp_path, format="json")
    logging.getLogger("orderbook.x").info("one")
    path.rename(tmp_path / "old.log")
    logging.getLogger("orderbook.x").info("two")
    assert [entry["message"] for entry in entries(path)] == ["two"]


def test_a_file_that_cannot_be_written_is_one_clear_error(orderbook: Program, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"logging\.file: .*no.* cannot be written: No such file"):
        configure_logging(LoggingOptions(file=tmp_path / "no" / "run.log"))
    config = write(tmp_path / "c.toml", '[logging]\nfile = "no/run.log"\n')
    result = orderbook("run", "--config", config, "--duration", 1)
    assert result.status == 2 and len(result.error_lines) == 1
    assert f"{tmp_path / 'no' / 'run.log'} cannot be written" in result.err


def test_formatters_take_anything() -> None:
    record = logging.makeLogRecord({"name": "x", "msg": "\ud800", "venue": object(), "levelname": "INFO"})
    assert "\\ud800" in TextFormatter().format(record)
    assert json.loads(JsonFormatter().format(record))["venue"].startswith("<object")


def messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


def test_a_lost_book_is_logged_once_and_messages_are_not(caplog: pytest.LogCaptureFixture) -> None:
    session: Driven = driven()
    with caplog.at_level(logging.INFO, "orderbook.feeds"):
        session.frame(SNAPSHOT)
        session.frame(DELTA)
        assert messages(caplog) == []
        for text in (DELTA.replace("18521289", "18521300"), "{", DELTA, "[]"):
            session.frame(text)
    assert session.state("BTCUSDT") is BookState.SYNCING
    (line,) = messages(caplog)
    assert line.startswith("bybit: BTCUSDT has to be synchronised again: gap: ")
    assert (caplog.records[0].venue, caplog.records[0].symbol) == ("bybit", "BTCUSDT")  # type: ignore[attr-defined]


def test_a_connections_end_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    session = driven()
    with caplog.at_level(logging.INFO, "orderbook.feeds"):
        session.session.disconnected("the connection was closed", session.time)
    (line,) = messages(caplog)
    assert re.fullmatch(r"bybit: the connection was closed; connecting again in \d\.\d s", line)
    assert caplog.records[0].venue == "bybit"  # type: ignore[attr-defined]


STRATEGY = """
from orderbook import Strategy, on_view

class Talker(Strategy):
    def on_start(self):
        self.log.info("started")

    @on_view("depth", fire="change")
    def changed(self, event):
        self.log.debug("not let through")
        raise ValueError("no good")
"""


def test_a_run_logs_as_configured(
    orderbook: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "talker_strategy.py", STRATEGY)
    monkeypatch.syspath_prepend(tmp_path)
    assert orderbook("generate", "--events", 500, "--out", tmp_path / "flow.parquet").status == 0
    config = write(
        tmp_path / "c.toml",
        '[run]\nviews = ["depth"]\nstrategies = ["talker_strategy:Talker"]\nbackend = "interpreter"\n'
        '[[feeds]]\nkind = "file"\npath = "flow.parquet"\n'
        '[logging]\nformat = "json"\nfile = "run.log"\n',
    )
    result = orderbook("run", "--config", config)
    assert result.status == 1
    assert len(result.error_lines) == 1 and "strategy disabled" in result.err
    started, failed = entries(tmp_path / "run.log")
    assert (started["message"], started["logger"]) == ("started", "orderbook.strategies.Talker")
    assert failed["level"] == "error" and failed["stamp"] > 10**18
    assert "ValueError: no good; it is disabled" in failed["message"]
    assert "Traceback" in failed["exception"]
