"""The second injector, of the benchmarks: books stay valid, and the stream as it is but for ids."""

import numpy as np
import pytest
from numpy.typing import NDArray
from plain_book import PlainBook

from benchmarks.abuse_as_described import with_abuse
from benchmarks.surveillance_recall import generated_day
from orderbook.market.abuse_plan import KINDS
from orderbook.market.events import Action, BookState, Flag, Side


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", [1, 2])
def test_books_stay_valid_and_events_of_the_stream_stay(seed: int) -> None:
    clean, _ = generated_day(seed, 9_000, 8.0)
    events, cases = with_abuse(clean, 2, seed)
    assert {case.kind for case in cases} == set(KINDS)
    assert all(clean["exchange_time"][0] < case.begin < case.end for case in cases)
    again, same = with_abuse(clean, 2, seed)
    assert np.array_equal(again, events) and same == cases
    book, place = PlainBook(), 0
    rows, wanted = events.tolist(), clean.tolist()
    last = int(clean["order_id"].max())
    for event, row in zip(events, rows, strict=True):
        book.apply(event)
        if event["flags"] & Flag.LAST and book.state == BookState.VALID:
            bids, asks = book.levels[Side.BID], book.levels[Side.ASK]
            assert not bids or not asks or max(bids) < min(asks), event
        # An order that was taken and came back has another id.
        if place < len(wanted):
            expected, own = wanted[place], row
            if own[3] > last and own[8] not in (Action.ADD, Action.TRADE):
                own = (*own[:3], expected[3], *own[4:])
            place += own == expected
    assert place == len(clean)
    times: list[NDArray[np.int64]] = [events[name] for name in ("exchange_time", "receive_time", "sequence")]
    assert all(np.diff(column).min() >= 0 for column in times)
    added = events["order_id"][(events["action"] == Action.ADD)]
    assert len(np.unique(added)) == len(added)
