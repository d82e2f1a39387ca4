"""LOBSTER's recorded days: each row follows from its message, and the source's book is each row."""

from collections import Counter
from pathlib import Path
from typing import cast

import pytest
import zstandard
from plain_book import PlainBook, messages

from orderbook.core.changes import Dictionary
from orderbook.feeds.source import EventSource
from orderbook.feeds.source_kinds import open_source
from orderbook.market.books import Books
from orderbook.market.events import BookState, Side

FILES = {
    "AMZN_2012-06-21_34200000_57600000_message_1.csv.zst": 1,
    "AAPL_2012-06-21_first999_message_10.csv.zst": 10,
}
ADD, CANCEL, DELETE, EXECUTE, HIDDEN = range(1, 6)
SIDES = {1: Side.BID, -1: Side.ASK}
Levels = list[tuple[int, int]]


def data_rows(path: Path) -> list[list[str]]:
    with zstandard.open(path, "rt") as file:
        lines = file.read().split()
    return [line.split(",") for line in lines if not line[0].isalpha()]


def levels_of(row: list[str]) -> dict[Side, Levels]:
    values = [int(text) for text in row]
    pairs = list(zip(values[0::2], values[1::2], strict=True))
    return {Side.ASK: pairs[0::2], Side.BID: pairs[1::2]}


def expected_levels(levels: Levels, side: Side, kind: int, price: int, size: int) -> Levels | None:
    """The side's levels after a message; None when it takes volume that is not there."""
    volumes = dict(levels)
    if kind in (ADD, CANCEL, DELETE, EXECUTE):
        volumes[price] = volumes.get(price, 0) + (size if kind == ADD else -size)
        if volumes[price] < 0:
            return None
    return sorted(((p, v) for p, v in volumes.items() if v), reverse=side is Side.BID)


def classify(before: Levels, after: Levels, side: Side, message: list[str]) -> str:
    """How row k follows from row k - 1 and message k, on one side of N levels."""
    kind, _, size, price, direction = (int(text) for text in message[1:])
    if SIDES[direction] is not side or kind == HIDDEN:
        return "unchanged" if before == after else "unexplained"
    expected = expected_levels(before, side, kind, price, size)
    depth = len(before)
    if expected is None:
        return "unexplained"
    if expected[:depth] == after:
        return "explained"
    # The message emptied a level, so one from below the view came into it, worse than all known.
    worse = after[-1][0] < before[-1][0] if side is Side.BID else after[-1][0] > before[-1][0]
    if len(expected) == depth - 1 and expected == after[:-1] and worse:
        return "a level came into view"
    return "unexplained"


@pytest.mark.parametrize("name", FILES)
def test_every_row_follows_from_its_message(name: str, shared_data: Path) -> None:
    path = shared_data / "lobster" / name
    message_rows = data_rows(path)
    rows = [levels_of(row) for row in data_rows(path.with_name(name.replace("_message_", "_orderbook_")))]
    assert len(rows) == len(message_rows)
    assert len(rows[0][Side.BID]) == FILES[name]

    counts: Counter[str] = Counter()
    for before, after, message in zip(rows, rows[1:], message_rows[1:], strict=False):
        sides = {classify(before[side], after[side], side, message) for side in SIDES.values()}
        transition = sides - {"unchanged"} or {"explained"}
        assert len(transition) == 1, f"{message}: {before} -> {after}"
        counts[transition.pop()] += 1
    print(f"\n{name}: {len(rows) - 1} transitions: {dict(counts)}")
    assert counts["unexplained"] == 0
    assert counts["explained"] > 0.6 * len(rows)
    assert counts["explained"] + counts["a level came into view"] == len(rows) - 1


def best(books: Books, side: Side, depth: int) -> Levels:
    levels = books.levels(0, side, depth + 1)
    return list(zip(levels["price"].tolist(), levels["volume"].tolist(), strict=True))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", FILES)
def test_the_book_equals_every_row(name: str, shared_data: Path) -> None:
    path = shared_data / "lobster" / name
    message_rows = data_rows(path)
    rows = [levels_of(row) for row in data_rows(path.with_name(name.replace("_message_", "_orderbook_")))]
    source = cast(EventSource, open_source(f"lobster:{path}"))
    book = PlainBook()
    books = Books(source.instruments, Dictionary())
    trades = 0
    count = 0
    for number, events in enumerate(messages(source)):
        assert set(events["sequence"].tolist()) == {number + 1}
        book.apply_all(events)
        assert book.best(Side.BID) == rows[number][Side.BID]
        assert book.best(Side.ASK) == rows[number][Side.ASK]
        assert book.state is BookState.VALID
        books.apply(events)
        assert best(books, Side.BID, FILES[name]) == rows[number][Side.BID]
        assert best(books, Side.ASK, FILES[name]) == rows[number][Side.ASK]
        kind, _, size, price, direction = (int(text) for text in message_rows[number][1:])
        if kind in (EXECUTE, HIDDEN):
            trades += 1
            assert book.trades[-1] == (SIDES[-direction], price, size)
        count += 1
    print(f"\n{name}: {count} rows equal, {dict(source.counts)}")
    assert count == len(rows)
    assert len(book.trades) == trades > 0
    assert source.problems.report() == []
    assert books.problems() == {}
    assert books.state(0) is BookState.VALID
    assert 0 < source.counts["resynchronisations"] < count
    assert source.counts["restored"] > source.counts["corrected"]
