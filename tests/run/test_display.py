"""Lines about many things, of which some are shown."""

import re

import pytest

from orderbook.core.native_code import counts
from orderbook.run.display import NOTES_A_SECOND, PlainDisplay, working


def test_lines_that_are_only_counted_are_never_written(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orderbook.run.display.time.monotonic", lambda: 7.5)
    written: list[str] = []

    def line() -> str:
        written.append(f"order {len(written)}")
        return written[-1]

    display = PlainDisplay()
    for _ in range(100):
        display.note("orders", line)
    display.close()
    shown = [f"order {number}" for number in range(NOTES_A_SECOND)]
    assert capsys.readouterr().out.splitlines() == [*shown, f"  … and {100 - NOTES_A_SECOND} more orders"]
    assert written == shown


def test_a_plain_line_is_short_and_comes_once_a_second(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [7.5]
    monkeypatch.setattr("orderbook.run.display.time.monotonic", lambda: now[0])
    display = PlainDisplay()
    rows = [(f"depth S{number}-USD", f"bid_volume={'9' * 500}") for number in range(300)]
    # What takes long holds the first line up, and the second comes a second after it.
    for now[0] in (8.4, 12.3, 12.6, 13.2, 13.4):
        display.refresh("status", rows)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 and all(len(line) < 400 for line in lines)
    assert lines[0].startswith("status  depth S0-USD bid_volume=999") and lines[0].endswith("297 more rows")
    display.refresh("status", rows[:1])
    assert "more" not in capsys.readouterr().out


def test_what_takes_long_says_for_how_long_and_what_was_compiled(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orderbook.run.display.WORKING_INTERVAL", 0.01)
    monkeypatch.setattr(counts, "made", 5)
    said = ""
    with working("compiling views"):
        while "s\n" not in said:
            said += capsys.readouterr().err
        counts.made += 1_234
        while "1,234 functions" not in said:
            said += capsys.readouterr().err
    told = r"compiling views: \d+ s(, 1,234 functions, which are kept: the next start finds them)?"
    assert all(re.fullmatch(told, line) for line in said.splitlines())
    with pytest.raises(ValueError, match="wrong"), working("compiling views"):
        raise ValueError("wrong")
