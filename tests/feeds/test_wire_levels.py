"""Wire text to ticks, lots and LEVEL events: fast ways agree with the exact one, also about what is wrong."""

from collections.abc import Callable
from decimal import Decimal

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from orderbook.core.errors import DataError
from orderbook.feeds.event_writer import EventWriter
from orderbook.feeds.exchanges.exchange import FeedBook
from orderbook.feeds.source import FeedStatistics
from orderbook.feeds.text_values import WireNumbers
from orderbook.market.events import Side
from orderbook.market.instruments import Instrument, Instruments

ONE = Instrument("coinbase", "BTC-USD", "BTC-USD", Decimal("0.05"), Decimal("0.00000002"))
PLAIN = st.builds(
    lambda ticks, places: f"{ticks * ONE.tick:.{places}f}", st.integers(0, 10**9), st.integers(2, 8)
)
SIZES = st.builds(lambda lots: format(lots * ONE.lot, "f"), st.integers(0, 10**16))
ODD_TEXTS = [
    *("", ".", "5.", ".5", "-1", "1e-5", "1E3", "1.2.3", "1_0", "0.051", "9999999999.95", "1\n2", "1\n"),
    *("99999999999.95", "0.000000001", "1.000000000", "nan", "inf", " 1", "٣", "²", "00000000001", "1/2"),
    "1:2",
]
ODD = st.one_of(st.sampled_from(ODD_TEXTS), st.text(alphabet="0123456789.-e", max_size=22))
Levels = list[tuple[str, str]]
LEVELS = st.lists(st.tuples(PLAIN, SIZES), min_size=6, max_size=30)


def exact(convert: Callable[[str], int], text: str) -> int | None:
    try:
        count = convert(text)
    except DataError:
        return None
    return None if count < 0 else count


@given(st.one_of(PLAIN, SIZES, ODD))
def test_numbers_are_those_of_the_instrument(text: str) -> None:
    for convert, scale in ((ONE.ticks, ONE.tick_scale), (ONE.lots, ONE.lot_scale)):
        numbers = WireNumbers(convert, scale)
        assert exact(numbers.__getitem__, text) == exact(convert, text)
        assert exact(numbers.__getitem__, text) == exact(convert, text)


def written(levels: Levels, together: bool) -> NDArray[np.void] | None:
    """EVENT[n] of levels written together or one by one; None where they are refused."""
    events = EventWriter()
    book = FeedBook(Instruments([ONE]), 0, events, FeedStatistics())
    book.begin(5, 7, 9, snapshot=True)
    try:
        for part in [levels] if together else [[level] for level in levels]:
            book.levels(Side.ASK, part)
    except DataError:
        return None
    book.end()
    return events.take()


def same(levels: Levels) -> None:
    together, alone = written(levels, True), written(levels, False)
    assert (together is None) == (alone is None)
    if together is not None:
        np.testing.assert_array_equal(together, alone)


def test_each_unusual_text_among_many() -> None:
    for text in ODD_TEXTS:
        for place in (0, 5):
            for odd in ((text, "0.5"), ("0.5", text)):
                levels: Levels = [("0.5", "0.5")] * 6
                levels[place] = odd
                same(levels)


@given(LEVELS, st.lists(st.tuples(st.integers(0, 29), st.booleans(), ODD), max_size=2))
def test_many_levels_are_as_one_by_one(levels: Levels, changes: list[tuple[int, bool, str]]) -> None:
    for place, price, text in changes:
        own = place % len(levels)
        levels[own] = (text, levels[own][1]) if price else (levels[own][0], text)
    same(levels)
