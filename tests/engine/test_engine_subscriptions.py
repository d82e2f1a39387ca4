"""When callbacks are called, what they are given, and what they may do."""

import logging
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from functools import partial
from itertools import pairwise

import numpy as np
import polars as pl
import pytest
from backends import BACKENDS, new_row, old_row, quote, quotes
from hypothesis import given
from hypothesis import strategies as st

import orderbook
from orderbook import ViewEvent
from orderbook.core.changes import END_OF_EVENT, ChangeBatch
from orderbook.core.errors import DataError, SqlError
from orderbook.engine.runtime.program_start import Backend
from orderbook.engine.runtime.subscriptions import Fire, Granularity


@pytest.fixture(params=BACKENDS)
def engine(request: pytest.FixtureRequest) -> orderbook.Engine:
    return orderbook.Engine(quotes(), request.param)


def orders(event: ViewEvent) -> tuple[int, int]:
    """How many orders there were before an event, and after it."""
    return old_row(event).orders, new_row(event).orders


def changes(*rows: tuple[str, str, int, bool]) -> ChangeBatch:
    """A batch of (op, symbol, volume, last) rows of `quotes`."""
    frame = pl.DataFrame(
        {
            "stream": ["quotes"] * len(rows),
            "op": [op for op, *_ in rows],
            "symbol": [symbol for _, symbol, *_ in rows],
            "volume": [volume for _, _, volume, _ in rows],
            "last": [last for *_, last in rows],
        }
    )
    return quotes().changes(frame)


def test_an_event_carries_key_old_new_and_version(engine: orderbook.Engine) -> None:
    events: list[ViewEvent] = []
    engine.subscribe("totals", events.append)
    engine.insert("quotes", quote("A", 1))
    engine.insert("quotes", quote("A", "0.5"))
    engine.delete("quotes", quote("A", 1))
    engine.delete("quotes", quote("A", "0.5"))
    assert [(e.view, e.key, e.old and e.old.volume, e.new and e.new.volume) for e in events] == [
        ("totals", ("A",), None, 1),
        ("totals", ("A",), 1, Decimal("1.5")),
        ("totals", ("A",), Decimal("1.5"), Decimal("0.5")),
        ("totals", ("A",), Decimal("0.5"), None),
    ]
    assert [e.version for e in events] == [(n, 0, n) for n in (1, 2, 3, 4)]
    assert {e.status for e in events} == {"committed"}


@given(st.permutations("ABCDEFGH"))
def test_rows_that_change_at_once_are_told_in_the_order_of_their_keys(changed: list[str]) -> None:
    for backend in BACKENDS:
        engine = orderbook.Engine(quotes(), backend)
        told: list[tuple[object, ...]] = []
        for name in "ab":

            def tell(event: ViewEvent, name: str = name, told: list[tuple[object, ...]] = told) -> None:
                told.append((name, *event.key))

            engine.subscribe("totals", tell)
        engine.apply(changes(*(("+", symbol, 1, symbol == changed[-1]) for symbol in changed)))
        assert told == [(name, symbol) for name in "ab" for symbol in "ABCDEFGH"]


def test_a_callback_sees_every_view_as_of_its_event(engine: orderbook.Engine) -> None:
    seen = []
    overall = engine["overall"]
    engine.subscribe("totals", lambda e: seen.append((new_row(e).volume, overall[()].volume)), on="event")
    engine.apply(changes(("+", "A", 1, False), ("+", "B", 2, False), ("+", "A", 3, True)))
    assert seen == [(1, 1), (2, 3), (4, 6)]


def test_the_edge_fires_when_the_condition_comes_to_hold(engine: orderbook.Engine) -> None:
    fired = []
    engine.subscribe("totals", lambda e: fired.append(orders(e)), when="orders >= 2")
    for _ in range(3):
        engine.insert("quotes", quote("A", 1))
    engine.delete("quotes", quote("A", 1))
    engine.delete("quotes", quote("A", 1))
    engine.insert("quotes", quote("A", 1))
    assert fired == [(1, 2), (1, 2)]


def test_change_fires_while_the_condition_holds(engine: orderbook.Engine) -> None:
    fired = []
    engine.subscribe("totals", lambda e: fired.append(new_row(e).orders), when="orders >= 2", fire="change")
    for _ in range(3):
        engine.insert("quotes", quote("A", 1))
    for _ in range(3):
        engine.delete("quotes", quote("A", 1))
    assert fired == [2, 3, 2]


def test_more_conditions_of_one_view_than_bits_of_a_word(engine: orderbook.Engine) -> None:
    fired: list[tuple[int, int]] = []

    def note(number: int, event: ViewEvent) -> None:
        fired.append((number, new_row(event).orders))

    for number in range(130):
        fire: Fire = "change" if number % 2 else "edge"
        when = f"orders >= {number % 5}" if number % 3 else None
        engine.subscribe("totals", partial(note, number), when, fire=fire)
    for _ in range(5):
        engine.insert("quotes", quote("A", 1))
    for orders in range(1, 6):
        expected = [
            number
            for number in range(130)
            if not number % 3 or (orders >= number % 5 and (number % 2 or orders == max(number % 5, 1)))
        ]
        assert [number for number, now in fired if now == orders] == expected


def test_a_subscription_compiles_its_condition_alone() -> None:
    engine, heard = orderbook.Engine(quotes(), "numba"), list[ViewEvent]()
    engine.subscribe("totals", heard.append)
    engine.insert("quotes", quote("A", 1))
    known = set(sys.modules)
    for volume in ("1.5", "2.5"):
        engine.subscribe("totals", heard.append, f"volume > {volume} AND symbol <> 'B'")
    engine.insert("quotes", quote("A", 1))
    made = sorted(name for name in sys.modules.keys() - known if name.startswith("orderbook_"))
    assert [name.split("_")[1] for name in made] == ["condition", "condition"]
    assert len(heard) == 3


@pytest.mark.parametrize("backend", BACKENDS)
def test_warming_up_is_no_look_that_counts(backend: Backend) -> None:
    engine, heard = orderbook.Engine(quotes(), backend), list[ViewEvent]()
    engine.subscribe("totals", heard.append, "volume > 1")
    engine.insert("quotes", quote("A", 2))
    engine.warm_up()
    known = set(sys.modules)
    engine.insert("quotes", quote("A", 2))
    engine.subscribe("overall", heard.append)
    engine.insert("quotes", quote("B", 2))
    assert [event.key for event in heard] == [("A",), ("B",), ()]
    assert not {name for name in sys.modules.keys() - known if name.startswith("orderbook_")}
    engine.apply(changes(("+", "A", 6, False)))
    with pytest.raises(DataError, match="inside a message"):
        engine.warm_up()


def test_each_row_has_its_own_edge(engine: orderbook.Engine) -> None:
    fired = []
    engine.subscribe("totals", lambda e: fired.append(e.key), when="volume > 5")
    engine.apply(changes(("+", "A", 6, True), ("+", "B", 6, True), ("+", "A", 6, True)))
    assert fired == [("A",), ("B",)]


def test_a_message_is_looked_at_once_at_its_end(engine: orderbook.Engine) -> None:
    messages, events = [], []
    engine.subscribe("overall", lambda e: messages.append(orders(e)))
    engine.subscribe("overall", lambda e: events.append(orders(e)), on="event")
    first = (("+", "A", 1, False), ("+", "A", 2, False), ("-", "A", 1, True))
    engine.apply(changes(*first, ("+", "A", 1, True)))
    assert messages == [(0, 1), (1, 2)]
    assert events == [(0, 1), (1, 2), (2, 1), (1, 2)]


def test_what_passes_within_a_message_is_not_seen_by_message(engine: orderbook.Engine) -> None:
    fired: list[ViewEvent] = []
    engine.subscribe("overall", fired.append, when="orders > 0")
    engine.apply(changes(("+", "A", 1, False), ("-", "A", 1, True)))
    assert fired == []


def test_a_message_may_span_batches(engine: orderbook.Engine) -> None:
    fired = []
    engine.subscribe("overall", lambda e: fired.append(new_row(e).orders))
    engine.apply(changes(("+", "A", 1, False)))
    assert fired == []
    engine.apply(changes(("+", "A", 1, True)))
    assert fired == [2]


def test_a_condition_that_holds_at_the_start_does_not_fire(engine: orderbook.Engine) -> None:
    engine.insert("quotes", quote("A", 9))
    fired = []
    engine.subscribe("totals", lambda e: fired.append(new_row(e).volume), when="volume > 5")
    engine.insert("quotes", quote("A", 1))
    engine.delete("quotes", quote("A", 9))
    engine.insert("quotes", quote("A", 9))
    assert fired == [10]


def test_null_does_not_hold(engine: orderbook.Engine) -> None:
    fired = []
    engine.subscribe("overall", lambda e: fired.append(new_row(e).orders), when="NOT volume > 5")
    engine.insert("quotes", quote("A", 9))
    engine.delete("quotes", quote("A", 9))
    engine.insert("quotes", quote("A", 1))
    assert fired == [1]


def test_conditions_take_text_and_parameters(engine: orderbook.Engine) -> None:
    fired = []
    when = "symbol = 'B' AND totals.volume >= :large"
    engine.subscribe("totals", lambda e: fired.append(new_row(e).volume), when=when)
    for symbol in "AB":
        for _ in range(3):
            engine.insert("quotes", quote(symbol, 4))
    assert fired == [12]


def test_a_multiset_row_changes_with_its_multiplicity(engine: orderbook.Engine) -> None:
    fired = []
    engine.subscribe("large", lambda e: fired.append([row and row.multiplicity for row in (e.old, e.new)]))
    engine.insert("quotes", quote("A", 10))
    engine.insert("quotes", quote("A", 10))
    engine.delete("quotes", quote("A", 10))
    engine.delete("quotes", quote("A", 10))
    assert fired == [[None, 1], [1, 2], [2, 1], [1, None]]


def test_cancel_ends_a_subscription(engine: orderbook.Engine) -> None:
    fired: list[object] = []
    handle = engine.subscribe("overall", fired.append)
    other = engine.subscribe("overall", lambda e: fired.append("other"))
    engine.insert("quotes", quote("A", 1))
    handle.cancel()
    handle.cancel()
    engine.insert("quotes", quote("A", 1))
    other.cancel()
    engine.insert("quotes", quote("A", 1))
    assert [f == "other" for f in fired] == [False, True, True]
    assert (handle.active, other.active, handle.view) == (False, False, "overall")


def test_a_cancel_in_a_callback_takes_effect_after_the_message(engine: orderbook.Engine) -> None:
    fired = []

    def once(event: ViewEvent) -> None:
        fired.append(event.key)
        handle.cancel()

    handle = engine.subscribe("totals", once)
    engine.apply(changes(("+", "A", 1, False), ("+", "B", 1, True), ("+", "C", 1, True)))
    assert sorted(fired) == [("A",), ("B",)]


def test_an_insert_in_a_callback_takes_effect_after_the_message(engine: orderbook.Engine) -> None:
    seen = []

    def follow(event: ViewEvent) -> None:
        seen.append((new_row(event).orders, event.version[2]))
        if new_row(event).orders == 1:
            engine.insert("quotes", quote("Z", 5))
            assert ("Z",) not in engine["totals"]

    engine.subscribe("overall", follow, on="event")
    first = [("+", "A", 1, False)] * 2
    engine.apply(changes(*first, ("+", "A", 1, True), ("+", "B", 1, True)))
    assert seen == [(1, 1), (2, 2), (3, 3), (4, 4), (5, 5)]
    assert engine["totals"]["Z"].volume == 5
    order = []
    other = orderbook.Engine(quotes(), "interpreter")
    other.subscribe("totals", lambda e: order.append(e.key[0]))
    other.subscribe("totals", lambda e: other.insert("quotes", quote("Z", 5)), when="symbol = 'A'")
    other.apply(changes(("+", "A", 1, True), ("+", "B", 1, True)))
    assert order == ["A", "Z", "B"]


def test_queued_changes_go_in_order_message_by_message(engine: orderbook.Engine) -> None:
    order = []

    def react(event: ViewEvent) -> None:
        order.append(event.key[0])
        if event.key == ("A",):
            engine.apply(changes(("+", "C", 1, True), ("+", "D", 1, True)))
        if event.key == ("C",):
            engine.insert("quotes", quote("E", 1))

    engine.subscribe("totals", react)
    engine.apply(changes(("+", "A", 1, True), ("+", "B", 1, True)))
    assert order == ["A", "C", "D", "E", "B"]


def test_what_is_queued_waits_for_a_message_that_is_still_open(engine: orderbook.Engine) -> None:
    row = quote("Z", 5)
    engine.subscribe("totals", lambda e: engine.insert("quotes", row), when="symbol = 'A'", on="event")
    engine.apply(changes(("+", "A", 1, False)))
    assert list(engine["totals"]) == [("A",)]
    engine.apply(changes(("+", "B", 1, True)))
    assert {key[0] for key in engine["totals"]} == {"A", "B", "Z"}


def test_a_subscription_made_in_a_callback_begins_after_the_message(engine: orderbook.Engine) -> None:
    late = []

    def begin(event: ViewEvent) -> None:
        if new_row(event).orders == 1:
            engine.subscribe("overall", lambda e: late.append(orders(e)), on="event")

    engine.subscribe("overall", begin, on="event")
    engine.apply(changes(("+", "A", 1, False), ("+", "A", 1, True), ("+", "A", 1, True)))
    assert late == [(2, 3)]


def test_a_delete_queued_in_a_callback_is_checked_when_it_is_applied(engine: orderbook.Engine) -> None:
    engine.subscribe("totals", lambda e: engine.delete("quotes", quote("B", 2)), when="symbol = 'A'")
    engine.apply(changes(("+", "A", 1, True), ("+", "B", 2, True)))
    assert engine.problems.counts == {"row not there": 1}
    assert engine["totals"]["B"].volume == 2


def test_a_wrong_row_in_a_callback_is_raised_there(engine: orderbook.Engine) -> None:
    reasons = []

    def wrong(event: ViewEvent) -> None:
        with pytest.raises(DataError) as error:
            engine.insert("quotes", quote("Z", -1))
        reasons.append(str(error.value))

    engine.subscribe("overall", wrong)
    engine.insert("quotes", quote("A", 1))
    assert len(reasons) == 1 and "outside the declared range" in reasons[0]


def test_a_callback_that_raises_is_reported_and_cancelled(
    engine: orderbook.Engine, caplog: pytest.LogCaptureFixture
) -> None:
    seen = []

    def broken(event: ViewEvent) -> None:
        raise ValueError("no luck")

    handle = engine.subscribe("totals", broken)
    engine.subscribe("totals", lambda e: seen.append(str(e.key[0])))
    with caplog.at_level(logging.ERROR, logger="orderbook.engine"):
        engine.apply(changes(("+", "A", 1, False), ("+", "B", 1, True), ("+", "C", 1, True)))
    assert sorted(seen) == ["A", "B", "C"]
    assert not handle.active
    assert engine.problems.counts == {"callback raised": 1}
    assert len(caplog.records) == 1 and "ValueError: no luck" in caplog.text


def test_the_error_handler_is_given_subscription_and_error() -> None:
    failures = []
    engine = orderbook.Engine(quotes(), "interpreter", on_error=lambda s, e: failures.append((s, str(e))))
    handle = engine.subscribe("overall", lambda e: dict[str, int]()["missing"])
    engine.insert("quotes", quote("A", 1))
    engine.insert("quotes", quote("A", 1))
    assert failures == [(handle, "'missing'")]
    assert engine["overall"][()].orders == 2


def test_bad_arguments_are_refused(engine: orderbook.Engine) -> None:
    with pytest.raises(DataError, match="on='tick'; give one of message, event"):
        engine.subscribe("totals", print, on="tick")  # type: ignore[arg-type]
    with pytest.raises(DataError, match="fire='always'; give one of edge, change"):
        engine.subscribe("totals", print, fire="always")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("when", "message"),
    [
        ("volum > 1", r'condition "volum > 1":1:1: unknown column volum; did you mean volume\?'),
        ("volume >\n  prices", r'condition "volume > prices":2:3: unknown column prices'),
        ("volume >", r'condition "volume >":1:9: syntax error: the statement ends too early'),
        ("volume", r"1:1: a condition is needed here, not a value of type DECIMAL"),
        ("SUM(volume) > 1", r"1:1: aggregate SUM in a condition is not supported"),
        ("volume > (SELECT COUNT(*) FROM quotes)", r"subquery in a condition is not supported"),
        ("volume > :missing", r"1:10: parameter :missing has no value"),
        ("volume > 1; volume", "SQL|expected"),
        ("volume > 1 GROUP BY symbol", "write one condition"),
        ("volume > 1, orders > 2", "write one condition"),
        ("", "write one condition"),
        ("symbol > 1", "TEXT"),
    ],
)
def test_a_bad_condition_names_itself_and_the_place(
    engine: orderbook.Engine, when: str, message: str
) -> None:
    with pytest.raises(SqlError, match=message):
        engine.subscribe("totals", print, when=when)
    engine.insert("quotes", quote("A", 1))


# (key, old, new) of a row that changed.
Change = tuple[str, int | None, int | None]
# What a subscription asks for: on, fire, and above which volume.
Asked = tuple[Granularity, Fire, int | None]
SYMBOLS = st.sampled_from("AB")
STEPS = st.lists(st.tuples(st.booleans(), SYMBOLS, st.integers(1, 6), st.booleans()), max_size=25)


def events_expected(looks: Sequence[Mapping[str, int]], holds: int | None, edge: bool) -> Iterator[Change]:
    """(key, old, new) of every firing, from the states {symbol: volume} at successive looks."""
    for before, after in pairwise(looks):
        for key in {*before, *after}:
            old, new = before.get(key), after.get(key)
            held = old is not None and (holds is None or old > holds)
            now = new is not None and (holds is None or new > holds)
            if holds is None or not edge:
                fires = old != new and (now or holds is None)
            else:
                fires = now and not held
            if fires:
                yield key, old, new


@given(STEPS, st.integers(1, 25), st.sampled_from(BACKENDS))
def test_firings_equal_a_comparison_of_successive_states(
    steps: list[tuple[bool, str, int, bool]], cut: int, backend: Backend
) -> None:
    rows: Counter[tuple[str, int]] = Counter()
    valid: list[tuple[str, str, int, bool]] = []
    states: list[dict[str, int]] = [{}]
    at_messages: list[dict[str, int]] = [{}]
    for delete, symbol, volume, last in steps:
        if delete and not rows[symbol, volume]:
            continue
        rows[symbol, volume] += -1 if delete else 1
        valid.append(("-" if delete else "+", symbol, volume, last))
        state: Counter[str] = Counter()
        for (s, v), n in rows.items():
            state[s] += v * n
        states.append({s: v for s, v in state.items() if v})
        if last:
            at_messages.append(states[-1])
    engine = orderbook.Engine(quotes(), backend)
    found: dict[Asked, list[Change]] = {}
    expected: dict[Asked, Counter[Change]] = {}
    moments: tuple[tuple[Granularity, list[dict[str, int]]], ...] = (
        ("event", states),
        ("message", at_messages),
    )
    kinds: tuple[Fire, ...] = ("edge", "change")
    for on, looks in moments:
        for fire in kinds:
            for holds in (None, 7):
                key = (on, fire, holds)
                fired = found.setdefault(key, [])

                def tell(event: ViewEvent, fired: list[Change] = fired) -> None:
                    old, new = (None if row is None else row.volume for row in (event.old, event.new))
                    fired.append((str(event.key[0]), old, new))

                engine.subscribe(
                    "totals",
                    tell,
                    when=None if holds is None else f"volume > {holds}",
                    on=on,
                    fire=fire,
                )
                expected[key] = Counter(events_expected(looks, holds, fire == "edge"))
    for part in (valid[:cut], valid[cut:]):
        if part:
            engine.apply(changes(*part))
    assert {key: Counter(fired) for key, fired in found.items()} == expected


def test_an_update_is_one_event(engine: orderbook.Engine) -> None:
    fired = []
    engine.insert("quotes", quote("A", 1))
    engine.subscribe("overall", lambda e: fired.append((old_row(e).volume, new_row(e).volume)), on="event")
    engine.update("quotes", quote("A", 1), quote("A", 4))
    assert fired == [(1, 4)]


def test_changes_of_one_event_are_not_looked_between(engine: orderbook.Engine) -> None:
    fired = []
    engine.subscribe("overall", lambda e: fired.append((*orders(e), *e.version)), on="event")
    batch = changes(("+", "A", 1, True), ("+", "B", 2, True), ("+", "C", 2, True))
    flags = np.array([0, END_OF_EVENT, batch.flags[2]], np.uint8)
    engine.apply(ChangeBatch(batch.kinds, flags, batch.values))
    assert fired == [(0, 2, 1, 0, 1), (2, 3, 2, 0, 2)]
