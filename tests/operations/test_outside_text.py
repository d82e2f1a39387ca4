"""Text of exchanges, files and clients wherever a person reads it: one line, and nothing that steers."""

import io
import json
import logging
import sys
import unicodedata
from collections.abc import Iterator, Sequence

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from paths import PROJECT
from rich.console import Console

from orderbook.command_line import status_of
from orderbook.commands import query, top
from orderbook.core.errors import Problems, SourceError, visible, visible_html
from orderbook.monitor.alerts import Notes, WarningNotes
from orderbook.operations.logs import JsonFormatter, PlainFormatter, TextFormatter
from orderbook.operations.summary import feed_lines
from orderbook.report.parts import section, table, tiles
from orderbook.run.display import LiveDisplay, PlainDisplay, QuietDisplay
from orderbook.run.feed_runs import FeedReport

HOSTILE = "BTC\nERROR disabled\r\x1b[2J\x9b31m\u2028\u2029\x85\u202eDSU\u200b\u2066\ufeff\x00\x07\x08\x7f"
STEERING = {
    one for one in map(chr, range(sys.maxunicode)) if unicodedata.category(one) in ("Cc", "Cf", "Zl", "Zp")
}


def steers(text: str) -> set[str]:
    return STEERING & set(text)


@given(st.text() | st.text(st.sampled_from(sorted(STEERING) + list("ab\\<>&\"'"))))
def test_visible_text_is_one_line_of_printable_characters(text: str) -> None:
    shown = visible(text)
    assert shown.isprintable()
    assert not steers(shown)
    if text.isprintable():
        assert shown == text
    escaped = visible_html(text)
    assert not steers(escaped) and not set("<>\"'") & set(escaped)


def record(**more: object) -> logging.LogRecord:
    return logging.makeLogRecord({"name": "feeds.x", "msg": "status: %s", "args": (HOSTILE,), **more})


@pytest.mark.parametrize("formatter", [PlainFormatter(), TextFormatter(), JsonFormatter()])
def test_a_record_of_the_log_is_one_line(formatter: logging.Formatter) -> None:
    assert not steers(formatter.format(record()))
    try:
        raise ValueError(HOSTILE)
    except ValueError:
        told = formatter.format(record(exc_info=sys.exc_info()))
    lines = told.split("\n")
    assert not any(map(steers, lines))
    # What follows belongs to the line before it, whatever it says.
    assert all(line.startswith("    ") for line in lines[1:])
    if isinstance(formatter, JsonFormatter):
        assert len(lines) == 1 and HOSTILE in json.loads(told)["message"]


def displays() -> Iterator[PlainDisplay | QuietDisplay]:
    yield PlainDisplay()
    yield QuietDisplay()


def test_what_is_displayed_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orderbook.run.display.PLAIN_INTERVAL", 0.0)
    for display in displays():
        display.say(HOSTILE)
        display.note("orders", lambda: HOSTILE)
        display.refresh(HOSTILE, [(HOSTILE, HOSTILE)])
        display.close()
    lines = capsys.readouterr().out.rstrip("\n").split("\n")
    assert len(lines) == 4
    assert not any(map(steers, lines))


def test_what_is_displayed_live_steers_no_terminal() -> None:
    out = io.StringIO()
    display = LiveDisplay(Console(file=out, force_terminal=False, width=400))
    display.say(HOSTILE)
    display.refresh(HOSTILE, [(HOSTILE, HOSTILE)])
    display.close()
    assert not steers(out.getvalue()) - {"\n"}
    assert not any(line.lstrip().startswith("ERROR") for line in out.getvalue().split("\n"))


def test_a_summary_of_feeds_and_problems_is_a_line_for_each() -> None:
    from orderbook.core.errors import visible_lines

    problems = Problems()
    problems.add(HOSTILE, HOSTILE, HOSTILE)
    lines = list(feed_lines(FeedReport(HOSTILE, {HOSTILE: 1}, problems)))
    told = visible_lines(lines).split("\n")
    assert len(told) == len(lines) == 2
    assert not any(map(steers, told))


def test_an_error_is_one_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise SourceError(f"kraken: {HOSTILE}")

    monkeypatch.setattr("orderbook.commands.check.check", fails)
    assert status_of(["check"]) == 2
    (line,) = capsys.readouterr().err.rstrip("\n").split("\n")
    assert line.startswith("orderbook: kraken: BTC\\nERROR")
    assert not steers(line)


def test_rows_of_a_query_are_lines_of_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    frame = pl.DataFrame({HOSTILE: [HOSTILE, None], "l": [[HOSTILE], []], "s": [{"a": HOSTILE}, {"a": ""}]})
    query._show(frame, None)
    many = pl.DataFrame({"x": [str(i) for i in range(500)]})
    query._show(many, None)
    told = capsys.readouterr().out
    assert not steers(told) - {"\n"}
    assert not any(line.startswith("ERROR") for line in told.split("\n"))
    assert "500 rows, of which 50" in told
    assert all(f"│ {i} " in told for i in (0, 24, 475, 499))


def test_notes_of_the_page_are_one_line() -> None:
    notes = Notes(lambda: 1)
    WarningNotes(notes).emit(record())
    notes.note("fill", lambda: HOSTILE)
    for note in map(json.loads, notes.since(0)):
        assert not steers(note["text"])


def test_top_shows_lines_of_its_own() -> None:
    status = {
        "engine": {
            "events": 1, "events_per_second": 1, "to_views": None, "queue": 0, "epoch": 0, "bytes": 0,
            "views": [{"view": HOSTILE, "rows": 1, "bytes": None}],
        },
        "feeds": [{
            "name": HOSTILE, "state": "stale", "reason": HOSTILE, "last_message_seconds": None,
            "latency": None,
            "books": {"valid": 1}, "gaps": 0, "reconnects": 0,
        }],
        "strategies": [{
            "name": HOSTILE, "positions": [{"symbol": HOSTILE, "profit": "1"}], "failed": True,
            "callbacks": 0,
            "orders": 0, "fills": 0, "refused": 0,
        }],
    }  # fmt: skip
    out = io.StringIO()
    Console(file=out, width=1000).print(top.screen(status, [{"kind": "warning", "text": HOSTILE}]))
    assert not steers(out.getvalue()) - {"\n"}
    assert not any(line.lstrip().startswith("ERROR") for line in out.getvalue().split("\n"))


def test_a_report_shows_what_there_is() -> None:
    parts: Sequence[str] = (
        section(HOSTILE, note=HOSTILE), table([HOSTILE], [[HOSTILE]]),
        tiles([(HOSTILE, HOSTILE, HOSTILE, "")]),
    )  # fmt: skip
    for part in parts:
        assert not steers(part) - {"\n"}
        assert "\\u202e" in part


def test_the_page_shows_text_by_one_function() -> None:
    page = PROJECT / "orderbook/monitor/page/core/dom.js"
    assert "textContent = shown" in page.read_text()
