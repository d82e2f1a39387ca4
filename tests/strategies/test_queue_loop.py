"""Compiled queue positions against the plain rules, over events that say anything."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from plain_queue import PlainBoard, PlainOrder, chance_of
from samples import examples

from orderbook.core.jit import called_with
from orderbook.market.events import EVENT, Action, Side
from orderbook.strategies.execution.exchange_state import BOARD, ORDER, QUEUES, board_at
from orderbook.strategies.execution.queue_position import actions_of, follow

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


@called_with("iii")
def followed(board: int, events: int, count: int) -> int:
    return 1 if follow(board_at(board), events, count, actions_of(events, count), 0) else 0


class Place:
    """The same order, compiled."""

    def __init__(self, order: PlainOrder) -> None:
        self.rows = np.zeros(1, ORDER)
        self.row = self.rows[0]
        for name in ("key", "left", "front", "level", "traded"):
            self.row[name] = getattr(order, name)
        self._ahead = np.array([*(order.ahead or {}).items()], np.int64).reshape(-1, 2)
        self.row["known"], self.row["moved"] = order.ahead is not None, 1
        self.row["ahead"], self.row["count"] = self._ahead.ctypes.data, len(self._ahead)

    @property
    def ahead(self) -> dict[int, int] | None:
        return dict(self._ahead[: self.row["count"]].tolist()) if self.row["known"] else None


def begun(random: np.random.Generator, lots: int, by_id: bool) -> PlainOrder:
    """An order that joins a queue."""
    side = Side(int(random.integers(0, 2)))
    ids = random.permutation(np.arange(1, 9))[: random.integers(0, 7)].tolist()
    ahead = {one: int(random.integers(1, 9)) for one in ids} if by_id else None
    front = sum(ahead.values()) if ahead is not None else int(random.integers(0, lots + 9))
    own = int(random.integers(1, 30))
    return PlainOrder(side, MIDDLE + int(random.integers(-3, 4)), own, ahead, front, front)


def arranged(pairs: list[tuple[PlainOrder, Place]]) -> list[list[tuple[PlainOrder, Place]]]:
    """Both sides, best price first, then oldest."""
    sides = [[pair for pair in pairs if pair[0].side is side] for side in (Side.BID, Side.ASK)]
    return [sorted(side, key=lambda pair: -pair[0].key) for side in sides]


@examples(150)
@given(st.integers(0, 2**32), st.sampled_from(QUEUES), st.booleans(), st.sampled_from((9, LARGE // 4)))
def test_places_are_those_of_the_plain_rules(seed: int, queue: str, by_id: bool, lots: int) -> None:
    random = np.random.default_rng(seed)
    n, by_chance = random.choice((0.5, 1.0, 2.0, 3.0)), QUEUES.index(queue) > QUEUES.index("proportional")
    # Whole numbers of lots that doubles hold.
    lots = 9 if by_chance else lots
    chance = chance_of(queue, n, 0.1) if by_chance else None
    board, plain = np.zeros(1, BOARD), PlainBoard(queue == "proportional", chance)
    board["proportional"], board["lot_scale"] = queue != "back", 10_000_000
    board["queue"], board["power"] = QUEUES.index(queue), (2 if queue == "square" else n) * 10**9
    actions = tuple(random.permutation(np.array(ACTIONS, object))[: random.integers(1, 10)])
    pairs: list[tuple[PlainOrder, Place]] = []
    for _ in range(25):
        if random.random() < 0.3:
            order = begun(random, lots, by_id)
            pairs.append((order, Place(order)))
        sides = arranged(pairs)
        addresses = [np.array([place.rows.ctypes.data for _, place in side], np.int64) for side in sides]
        for name, own in zip(("bids", "asks"), addresses, strict=True):
            board[name], board[f"{name}_count"] = own.ctypes.data, len(own)
        events = message(random, actions, lots)
        followed(board.ctypes.data, events.ctypes.data, len(events))
        plain.follow([[order for order, _ in side] for side in sides], events[events["instrument"] == 0])
        assert bool(board[0]["executes"]) == plain.executes
        for order, place in pairs:
            row = place.row
            expected = (order.hit, order.level, order.traded, order.requeue, order.ahead)
            assert (row["hit"], row["level"], row["traded"], bool(row["requeue"]), place.ahead) == expected
            if order.ahead is None:
                assert row["front"] == order.front
                assert abs(row["part"] * 2.0**-32 - order.part) < 1e-6
            order.left -= order.hit
            order.hit = row["hit"] = 0
            row["left"] = order.left
        pairs = [pair for pair in pairs if pair[0].left]


def test_actions_of_a_message_are_bits() -> None:
    """What is no action has a bit of its own, whatever its number is."""
    events = np.zeros(256, EVENT)
    events["action"] = np.arange(256)
    events["volume"] = -1
    for first, last in ((1, 16), (6, 7), (62, 64), (63, 256), (200, 201), (0, 0)):
        part = np.ascontiguousarray(events[first:last])
        expected = sum(1 << number for number in {min(number, 63) for number in range(first, last)})
        assert actions_of(part.ctypes.data, len(part)) % 2**64 == expected
