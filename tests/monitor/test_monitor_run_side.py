"""What a monitor does in the engine's thread: trades that are read, whose turn it is, what is logged."""

import logging
import socket
import time
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orderbook.market.events import EVENT, Action, Side
from orderbook.monitor import book_topic
from orderbook.monitor import server as serving
from orderbook.monitor.book_topic import TradeTape
from orderbook.monitor.messages import (
    KEPT_ITEMS,
    Close,
    Command,
    Logged,
    Open,
    Topic,
    TopicFrame,
    newest_trades,
    packed,
)
from orderbook.monitor.publisher import Mailbox, Publisher, Share
from orderbook.run.event_queue import Stamped

_INSTRUMENTS = 3
_EVENT = st.tuples(st.integers(0, _INSTRUMENTS), st.booleans(), st.integers(1, 3), st.booleans())
_STEP = st.one_of(
    st.tuples(st.just("note"), st.lists(st.lists(_EVENT, max_size=5), max_size=3)),
    st.tuples(st.sampled_from(["listen", "unlisten"]), st.integers(0, _INSTRUMENTS - 1)),
    st.tuples(st.just("tell"), st.none()),
)
_KEPT = 4


def events_of(told: list[tuple[int, bool, int, bool]], clock: Iterator[int]) -> np.ndarray:
    """Trades and others, of instruments that there are and of one that there is not."""
    events = np.zeros(len(told), EVENT)
    for event, (instrument, trades, side, received) in zip(events, told, strict=True):
        event["instrument"], event["side"] = instrument, side - 1
        event["action"] = Action.TRADE if trades else Action.EXECUTE
        event["price"], event["volume"] = -7 * instrument, 2 * side
        event["receive_time" if received else "exchange_time"] = next(clock)
    return events


def text_of(event: np.void) -> list[object]:
    side = {int(Side.BID): "buy", int(Side.ASK): "sell"}.get(int(event["side"]), "")
    return [str(max(event["exchange_time"], event["receive_time"])), event["price"], event["volume"], side]


@given(st.lists(_STEP, max_size=30))
def test_a_tape_tells_the_newest_trades_of_each_instrument(steps: list[tuple[str, object]]) -> None:
    clock = iter(range(1, 10**6))
    found: dict[int, list[object]] = defaultdict(list)
    wanted: dict[int, list[object]] = defaultdict(list)
    waiting: dict[int, list[object]] = defaultdict(list)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(book_topic, "KEPT_ITEMS", _KEPT)
        one = TradeTape(_INSTRUMENTS)
        heard: dict[Any, Any] = {}
        for kind, told in [*steps, ("tell", None)]:
            match kind, told:
                case "note", list(parts):
                    arrays = [events_of(part, clock) for part in parts]
                    arrays = [array[::-1] if len(array) == 2 else array for array in arrays]
                    one.note([Stamped(0, 0, array) for array in arrays])
                    for event in (event for array in arrays for event in array):
                        if event["action"] == Action.TRADE and heard:
                            waiting[int(event["instrument"])].append(text_of(event))
                case "listen", int(place) if place not in heard:
                    heard[place] = lambda trades, place=place: found[place].extend(
                        [str(time), price, volume, ("buy", "sell", "")[side]]
                        for time, price, volume, side in trades.tolist()
                    )
                    one.listen(place, heard[place])
                case "unlisten", int(place) if place in heard:
                    one.unlisten(place, heard.pop(place))
                    if not heard:
                        waiting.clear()
                case "tell", _:
                    one.tell()
                    for place in heard:
                        wanted[place] += waiting[place][-_KEPT:]
                    waiting.clear()
    assert {place: told for place, told in found.items() if told} == {
        place: told for place, told in wanted.items() if told
    }


def test_trades_of_frames_that_nobody_took_are_kept_to_a_bound() -> None:
    topic, row = Topic("book"), np.arange(4 * (KEPT_ITEMS + 3)).reshape(-1, 4)
    one, two = (TopicFrame(topic, b"", {}, part.tobytes()) for part in (row[:10], row[10:]))
    assert two.after(one).trades == row[-KEPT_ITEMS:].tobytes() == newest_trades(row.tobytes())


class Counted:
    """A source that takes a millisecond to find nothing new."""

    def __init__(self, own: list[float]) -> None:
        self.own, self.turns = own, 0

    def frame(self) -> None:
        self.turns += 1
        self.own[0] += 0.001

    def close(self) -> None:
        pass


def test_commands_without_end_do_not_keep_frames_waiting() -> None:
    now, own = [0.0], [0.0]
    line, server = socket.socketpair()
    topic, other = Topic("status"), Topic("notes")
    watched = Counted(own)

    def opened(_: Topic) -> Counted:
        own[0] += 0.001
        return Counted(own)

    share = Share(lambda: 0.0, lambda: now[0], lambda: own[0])
    publisher = Publisher(Mailbox(line), {"status": lambda _: watched, "notes": opened}, print, share)
    again: list[Command] = [Open(other), Close(other)]
    asked: list[Command] = [Open(topic), *again * 200]
    server.sendall(b"".join(map(packed, asked)))
    for _ in range(100):
        now[0] += 0.05
        own[0] += 0.05
        publisher.step()
    # About half of the share of 100 steps, which is 100 ms, or more.
    assert watched.turns > 40
    assert publisher._commands
    line.close()
    server.close()


def test_what_is_opened_has_its_first_frame_before_others_have_another_one() -> None:
    now, own = [0.0], [0.0]
    line, server = socket.socketpair()
    opened = Counted(own)
    share = Share(lambda: 0.0, lambda: now[0], lambda: own[0], saved=0.001)
    publisher = Publisher(Mailbox(line), {"status": lambda _: opened}, print, share)
    others = [Counted(own) for _ in range(12)]
    for number, other in enumerate(others):
        publisher.add(number, other, print)
    server.sendall(packed(Open(Topic("status"))))
    while not opened.turns:
        now[0] += 0.05
        own[0] += 0.05
        publisher.step()
    assert sum(other.turns for other in others) < 4
    line.close()
    server.close()


def test_what_clients_bring_about_does_not_fill_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    told: list[Any] = []
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    log = serving.RunLog(told.append)
    for number in range(20):
        now[0] += 0.125
        log.emit(logging.makeLogRecord({"msg": f"refused {number}", "levelno": logging.ERROR}))
    assert [letter.text for letter in told] == [
        "refused 0",
        "refused 8 (7 messages before it were left out)",
        "refused 16 (7 messages before it were left out)",
    ]
    assert isinstance(told[0], Logged) and told[0].level == logging.ERROR
