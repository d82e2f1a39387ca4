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
