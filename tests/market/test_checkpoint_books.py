"""Books that go on from a checkpoint as if they had never stopped, or refuse it."""

from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from book_samples import INSTRUMENTS, books_and_dictionary, events_of, random_events, row
from hypothesis import given
from hypothesis import strategies as st
from samples import examples

from orderbook.core.changes import END_OF_EVENT, END_OF_MESSAGE, ChangeBatch, Dictionary
from orderbook.core.errors import DataError
from orderbook.engine.checkpoint import newest_checkpoint, write_checkpoint
from orderbook.feeds.source_kinds import open_source
from orderbook.market import books as book_snapshot
from orderbook.market.books import Books
from orderbook.market.events import EVENT, Action, BookState, Flag, Side
from orderbook.market.instruments import Instrument, Instruments

PROGRAM = b"p" * 32


def through_sections(tmp_path: Path, state: Any) -> Any:
    parts = {"books": book_snapshot.sections_of(state)}
    write_checkpoint(tmp_path, parts, program=PROGRAM, position=0, stamp=0)
    found = newest_checkpoint(tmp_path, PROGRAM)
    assert found is not None
    return book_snapshot.state_of(found.part("books"))


def assert_same(whole: Books, resumed: Books, instruments: Instruments) -> None:
    for index, _ in enumerate(instruments):
        assert whole.state(index) == resumed.state(index)
        assert whole.problems(index) == resumed.problems(index)
        one, other = (np.sort(b.resting(index), order=["side", "price", "id"]) for b in (whole, resumed))
        assert np.array_equal(one, other)
        for side in (Side.BID, Side.ASK):
            assert np.array_equal(whole.levels(index, side, 50), resumed.levels(index, side, 50))
    assert whole.problems() == resumed.problems()
    assert whole.save().told.tolist() == resumed.save().told.tolist()


def changes_of(batch: ChangeBatch) -> list[Any]:
    """The changes of a batch, those of one event in no order."""
    flags = batch.flags.tolist()
    ends = np.cumsum(batch.flags & END_OF_EVENT != 0) - (batch.flags & END_OF_EVENT != 0)
    rows = zip(ends.tolist(), batch.kinds.tolist(), batch.values.tolist(), strict=True)
    return [sorted(rows), [flag for flag in flags if flag & END_OF_MESSAGE]]


@examples(60)
@given(
    st.lists(random_events, max_size=60),
    st.lists(random_events, max_size=30),
    st.booleans(),
    st.booleans(),
)
def test_books_go_on_as_if_they_had_never_stopped(
    tmp_path_factory: pytest.TempPathFactory, first: list[Any], then: list[Any], track: bool, used: bool
) -> None:
    (whole, dictionary), (resumed, _) = (books_and_dictionary(track) for _ in range(2))
    whole.apply(events_of(first))
    if used:
        resumed.apply(events_of(then))
        resumed.flush()
    if first and not first[-1]["flags"] & Flag.LAST and len(whole._held.kinds):
        with pytest.raises(DataError, match="inside a message"):
            whole.save()
    whole.flush()
    resumed.load(through_sections(tmp_path_factory.mktemp("books"), whole.save()))
    assert_same(whole, resumed, INSTRUMENTS)
    for event in then:
        events = events_of([event])
        assert changes_of(resumed.apply(events)) == changes_of(whole.apply(events))
    assert changes_of(resumed.flush()) == changes_of(whole.flush())
    assert_same(whole, resumed, INSTRUMENTS)
    assert len(dictionary)


def test_instruments_are_found_by_name() -> None:
    whole, _ = books_and_dictionary()
    whole.apply(
        events_of(
            [
                row(Action.ADD, instrument=0, order_id=4, price=3, volume=2),
                row(Action.LEVEL, instrument=2, side=1, price=5, volume=6),
                row(Action.STATE, instrument=2, volume=BookState.VALID),
                row(Action.DELETE, instrument=0, order_id=5),
                row(Action.DELETE, instrument=9),
            ]
        )
    )
    more = Instrument("Z", "NEW-USD", "NEW", Decimal(1), Decimal(1))
    resumed = Books(Instruments([INSTRUMENTS[2], more, INSTRUMENTS[1], INSTRUMENTS[0]]), Dictionary())
    resumed.load(whole.save())
    assert resumed.best(3) == (3, None) and resumed.best(0) == (None, 5) and resumed.rows(1) == (0, 0)
    assert [resumed.state(i).name for i in range(4)] == ["VALID", "SYNCING", "SYNCING", "SYNCING"]
    assert resumed.problems(3) == {"unknown_order": 1} and resumed.problems()["unknown_instrument"] == 1


def test_books_of_other_instruments_are_refused() -> None:
    whole, _ = books_and_dictionary()
    state = whole.save()
    finer = Instrument("X", "A-USD", "A/USD", Decimal("0.001"), Decimal(1))
    with pytest.raises(DataError, match=r"X:A-USD: the tick is 0\.001, but the saved book is in units of"):
        Books(Instruments([finer, *list(INSTRUMENTS)[1:]]), Dictionary()).load(state)
    with pytest.raises(DataError, match="the saved books have X:B-USD, which is no instrument"):
        Books(Instruments(list(INSTRUMENTS)[:2]), Dictionary()).load(state)


def test_books_of_a_capture_go_on(shared_data: Path, tmp_path: Path) -> None:
    found = sorted((shared_data / "lobster").glob("**/*message*.csv*")) if shared_data else []
    if not found:
        pytest.skip("no LOBSTER capture")
    source: Any = open_source(f"lobster:{found[0]}")
    blocks, total = [], 0
    for block in source:
        blocks.append(np.array(getattr(block, "events", block)))
        total += len(blocks[-1])
        if total > 60_000:
            break
    events = np.concatenate(blocks)
    assert events.dtype == EVENT
    cut = int(np.flatnonzero(events["flags"][: len(events) // 2] & Flag.LAST)[-1]) + 1
    instruments = Instruments(source.instruments)
    whole, resumed = (Books(instruments, Dictionary()) for _ in range(2))
    whole.apply(events[:cut])
    resumed.load(through_sections(tmp_path, whole.save()))
    assert sum(whole.rows(0)) > 10
    assert changes_of(resumed.apply(events[cut:])) == changes_of(whole.apply(events[cut:]))
    assert_same(whole, resumed, instruments)
