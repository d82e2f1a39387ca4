"""Lines about many things, of which some are shown."""

import pytest

from orderbook.run.display import NOTES_A_SECOND, PlainDisplay


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
