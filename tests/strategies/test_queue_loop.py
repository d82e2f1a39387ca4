"""Compiled queue positions against the plain rules, over events that say anything."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from plain_queue import PlainBoard, PlainOrder
from samples import examples

from orderbook.market.events import EVENT, Action, Side
from orderbook.strategies.execution.account import Order
from orderbook.strategies.execution.account_orders import (
    AccountOrders,
    DisplayedVolume,
    QueuePosition,
    Working,
)
from orderbook.strategies.execution.queue_position import copied_board

MIDDLE = 1_000
LARGE = 10**18
ACTIONS = (Action.ADD, Action.REDUCE, Action.MODIFY, Action.DELETE, Action.EXECUTE, Action.TRADE,
           Action.TRADE, Action.LEVEL, Action.LEVEL, Action.CLEAR)  # fmt: skip


def message(random: np.random.Generator, actions: tuple[Action, ...], lots: int) -> np.ndarray:
    """Some events near the middle; volumes are small or about `lots`, and now and then wrong."""
    events = np.zeros(random.integers(1, 5), EVENT)
    for event in events:
        event["action"], event["side"] = random.choice(actions), random.integers(0, 3)
        event["order_id"], event["price"] = random.integers(1, 9), MIDDLE + random.integers(-3, 4)
        usual = random.random() < 0.7
        event["volume"] = random.integers(-1, 12) if usual else random.integers(lots, 2 * lots)
        event["instrument"] = random.random() < 0.1
    return events


def place_of(order: PlainOrder) -> QueuePosition:
    """The same place, compiled."""
    place = QueuePosition(order.key, order.left)
    place.stand(order.ahead, order.front, order.level, order.traded)
    return place


def begun(random: np.random.Generator, lots: int, by_id: bool) -> PlainOrder:
    """An order that joins a queue."""
    side = Side(int(random.integers(0, 2)))
    ids = random.permutation(np.arange(1, 9))[: random.integers(0, 7)].tolist()
    ahead = {one: int(random.integers(1, 9)) for one in ids} if by_id else None
    front = sum(ahead.values()) if ahead is not None else int(random.integers(0, lots + 9))
    own = int(random.integers(1, 30))
    return PlainOrder(side, MIDDLE + int(random.integers(-3, 4)), own, ahead, front, front)


def arranged(pairs: list[tuple[PlainOrder, QueuePosition]]) -> list[list[tuple[PlainOrder, QueuePosition]]]:
    """Both sides, best price first, then oldest."""
    sides = [[pair for pair in pairs if pair[0].side is side] for side in (Side.BID, Side.ASK)]
    return [sorted(side, key=lambda pair: -pair[0].key) for side in sides]


def working(place: QueuePosition, side: Side, price: int) -> Working:
    """An order that stands there."""
    row = Order(0, "S", 1, "", "", "buy" if side is Side.BID else "sell", 1, price, 0, "resting")  # type: ignore[arg-type]
    found = Working(row, 0, price, 1)
    found.standing = place
    return found


@examples(150)
@given(st.integers(0, 2**32), st.booleans(), st.booleans(), st.sampled_from((9, LARGE // 4)))
def test_places_are_those_of_the_plain_rules(seed: int, proportional: bool, by_id: bool, lots: int) -> None:
    random = np.random.default_rng(seed)
    displayed = DisplayedVolume(None)  # type: ignore[arg-type]
    board, plain = AccountOrders(displayed.address(0), proportional), PlainBoard(proportional)
    actions = tuple(random.permutation(np.array(ACTIONS, object))[: random.integers(1, 10)])
    pairs: list[tuple[PlainOrder, QueuePosition]] = []
    words = np.zeros(1_000, np.int64)
    for _ in range(25):
        if random.random() < 0.3:
            order = begun(random, lots, by_id)
            pairs.append((order, place_of(order)))
        sides = arranged(pairs)
        board.arrange(*([working(place, order.side, order.limit) for order, place in side] for side in sides))
        events = message(random, actions, lots)
        # Followed, taken back, and followed again.
        copied_board(board.address, words.ctypes.data, False)
        board.follow(message(random, actions, lots), 0)
        copied_board(board.address, words.ctypes.data, True)
        board.follow(events, 0)
        plain.follow([[order for order, _ in side] for side in sides], events[events["instrument"] == 0])
        assert bool(board.row["executes"]) == plain.executes
        for order, place in pairs:
            row = place.row
            expected = (order.hit, order.level, order.traded, order.requeue, order.ahead)
            assert (row["hit"], row["level"], row["traded"], bool(row["requeue"]), place.ahead) == expected
            if order.ahead is None:
                assert row["front"] == order.front
            order.left -= order.hit
            order.hit = row["hit"] = 0
            row["left"] = order.left
        pairs = [pair for pair in pairs if pair[0].left]
