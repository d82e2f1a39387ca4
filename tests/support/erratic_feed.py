"""Messages as feeds may say them of small books, and now and then as they should not."""

from collections.abc import Sequence

import numpy as np
from strategy_support import INSTRUMENTS

from orderbook.market.events import EVENT, Action, BookState, Flag, Side

ORDERS = (Action.ADD, Action.ADD, Action.ADD, Action.REDUCE, Action.MODIFY, Action.DELETE, Action.EXECUTE,
          Action.EXECUTE, Action.TRADE)  # fmt: skip
# What feeds say that show orders, orders and trades as prints, or price levels.
FEEDS = {
    "orders": ORDERS,
    "prints": (*ORDERS[:6], Action.TRADE, Action.TRADE),
    "levels": (Action.LEVEL, Action.LEVEL, Action.LEVEL, Action.TRADE),
}
STATES = [int(one) for one in (BookState.VALID, BookState.STALE, BookState.SYNCING)]
MILLISECOND = 10**6


def flow(seed: int, messages: int, feed: str) -> np.ndarray:
    """What a feed may say of small books, and now and then what it should not; times waver and go back."""
    random = np.random.default_rng(seed)
    parts = [state(number, BookState.VALID) for number in range(len(INSTRUMENTS))]
    known: list[dict[int, tuple[int, int]]] = [{} for _ in INSTRUMENTS]
    for number in range(messages):
        index = int(random.integers(0, len(INSTRUMENTS)))
        chance = random.random()
        if chance < 0.03:
            events = state(index, BookState(random.choice(STATES)))
            parts += [events, state(index, BookState.VALID)]
            continue
        events = np.concatenate([
            change(random, index, known[index], FEEDS[feed]) for _ in range(random.integers(1, 4))
        ])  # fmt: skip
        if chance < 0.05:
            events["action"][0], events["side"][0] = Action.CLEAR, random.integers(0, 3)
        if chance > 0.95:
            events["instrument"][-1] = random.integers(0, len(INSTRUMENTS) + 1)
        time = (2 * number + 1) * MILLISECOND
        events["exchange_time"] = time + random.integers(-3, 4) * MILLISECOND
        received: list[int] = [0, time, time + int(random.integers(0, 9)) * MILLISECOND]
        events["receive_time"] = random.choice(received)
        events["flags"][-1] = Flag.LAST if random.random() < 0.97 else 0
        parts.append(events)
    parts[-1]["flags"][-1] = Flag.LAST
    return np.concatenate(parts)


def with_funding(events: np.ndarray, seed: int) -> np.ndarray:
    """Rates and mark prices between the messages of a flow, each due some messages later."""
    random = np.random.default_rng(seed)
    ends = np.flatnonzero(events["flags"] & int(Flag.LAST))
    told = np.zeros(len(ends) // 2, EVENT)
    places = np.sort(random.choice(ends[:-1], len(told), replace=False)) + 1
    before = events[places - 1]
    told["flags"], told["instrument"] = int(Flag.LAST), before["instrument"]
    told["instrument"] = random.integers(0, 3, len(told))
    for name in ("exchange_time", "receive_time"):
        told[name] = before[name]
    rates = random.random(len(told)) < 0.7
    due = before["exchange_time"] + random.integers(-5, 40, len(told)) * MILLISECOND
    told["action"] = np.where(rates, Action.FUNDING, Action.MARK)
    told["order_id"] = np.where(rates, np.maximum(due, 0), 0)
    told["price"] = np.where(
        rates, random.integers(-(10**9), 10**9, len(told)), 10**10 + 10**7 * (places % 9)
    )
    return np.insert(events, places, told)


def state(index: int, value: BookState) -> np.ndarray:
    event = np.zeros(1, EVENT)
    event["instrument"], event["action"], event["volume"] = index, Action.STATE, value
    event["flags"] = Flag.LAST
    return event


def change(
    random: np.random.Generator, index: int, known: dict[int, tuple[int, int]], actions: Sequence[Action]
) -> np.ndarray:
    """One event of a book whose orders are known, most often of one that it has."""
    event = np.zeros(1, EVENT)
    side, away, number = int(random.integers(0, 2)), random.geometric(0.4) - (random.random() < 0.02), 0
    price = int(10_000 + (away if side == Side.ASK else -away))
    action = random.choice(actions)
    if action == Action.ADD:
        number = int(random.integers(1, 200))
        known.setdefault(number, (side, price))
    elif action not in (Action.LEVEL, Action.TRADE):
        number = int(random.choice(list(known) or [7]))
        side, old = known.get(number, (side, price))
        if action == Action.MODIFY:
            known[number] = side, price
        elif random.random() < 0.95:
            price = old
        if action == Action.DELETE:
            known.pop(number, None)
    event["instrument"], event["action"], event["side"], event["order_id"] = index, action, side, number
    event["price"], event["volume"] = price, random.integers(-1, 30)
    return event
