"""The relation `book_states`: one row a book, with the reason of its state."""

import numpy as np

from orderbook.market.events import EVENT, Action, BookState, Flag, Side, StateReason
from orderbook.market.synthetic_flow import synthetic_instruments
from orderbook.run.pipeline import Pipeline
from orderbook.strategies.gated_engine import GatedEngine
from orderbook.views.compilation import compile_views

SQL = """
CREATE VIEW states AS SELECT symbol, state, reason, ts, COUNT(*) AS n FROM book_states
GROUP BY symbol, state, reason, ts;
CREATE VIEW deep AS SELECT b.symbol, COUNT(*) AS n FROM bids b JOIN book_states s ON s.symbol = b.symbol
WHERE s.state = 'valid' GROUP BY b.symbol
"""


def states(*given: tuple[int, BookState, StateReason, int]) -> np.ndarray:
    """STATE events: (instrument, state, reason, receive time)."""
    events = np.zeros(len(given), EVENT)
    events["action"], events["side"], events["flags"] = Action.STATE, Side.NONE, Flag.LAST
    for event, (instrument, state, reason, time) in zip(events, given, strict=True):
        event["instrument"], event["volume"], event["order_id"] = instrument, state, reason
        event["receive_time"] = time
    return events


def rows(pipeline: Pipeline) -> set[tuple[object, ...]]:
    return {(*key, row.n) for key, row in pipeline.engine["states"].items()}


def test_a_row_follows_its_book() -> None:
    pipeline = Pipeline(GatedEngine(compile_views(SQL), "interpreter"), synthetic_instruments(2))
    first, second = "AAA-USD", "AAB-USD"
    assert rows(pipeline) == set()
    pipeline.apply(states((0, BookState.SYNCING, StateReason.CONNECTED, 5)))
    assert rows(pipeline) == {(first, "syncing", "connected", 5, 1)}
    pipeline.apply(
        states(
            (0, BookState.VALID, StateReason.SYNCHRONISED, 7),
            (1, BookState.SYNCING, StateReason.CONNECTED, 8),
            (0, BookState.VALID, StateReason.SYNCHRONISED, 9),
        )
    )
    assert rows(pipeline) == {(first, "valid", "synchronised", 7, 1), (second, "syncing", "connected", 8, 1)}
    pipeline.apply(states((0, BookState.STALE, StateReason.SILENCE, 11)))
    assert rows(pipeline) == {(first, "stale", "silence", 11, 1), (second, "syncing", "connected", 8, 1)}


def test_states_join_with_books() -> None:
    pipeline = Pipeline(GatedEngine(compile_views(SQL), "interpreter"), synthetic_instruments(2))
    add = np.zeros(1, EVENT)
    add["action"], add["flags"], add["order_id"], add["price"], add["volume"] = Action.ADD, Flag.LAST, 1, 5, 5
    pipeline.apply(add)
    assert dict(pipeline.engine["deep"]) == {}
    pipeline.apply(states((0, BookState.VALID, StateReason.SYNCHRONISED, 7)))
    assert [row.n for row in pipeline.engine["deep"].values()] == [1]
    pipeline.apply(states((0, BookState.STALE, StateReason.HALTED, 8)))
    assert dict(pipeline.engine["deep"]) == {}


def test_events_that_name_no_book_or_state_are_left_out() -> None:
    pipeline = Pipeline(GatedEngine(compile_views(SQL), "interpreter"), synthetic_instruments(1))
    wrong = states((7, BookState.VALID, StateReason.NONE, 1), (0, BookState.VALID, StateReason.NONE, 2))
    wrong["volume"][1] = 9
    pipeline.apply(wrong)
    assert rows(pipeline) == set()
    odd = states((0, BookState.VALID, StateReason.NONE, 3))
    odd["order_id"] = 4_000
    pipeline.apply(odd)
    assert rows(pipeline) == {("AAA-USD", "valid", "none", 3, 1)}
