"""Three instruments, events of their books at random, and rows of their relations to compare with."""

from decimal import Decimal
from typing import Any

import numpy as np
from book_model import LIMIT
from hypothesis import strategies as st

from orderbook.core.changes import ChangeBatch, Dictionary
from orderbook.market.books import RELATIONS, Books
from orderbook.market.events import EVENT, Action, Events, Flag
from orderbook.market.instruments import Instrument, Instruments

INSTRUMENTS = Instruments(
    [
        Instrument("X", "A-USD", "A/USD", Decimal("0.01"), Decimal(1)),
        Instrument("Y", "A-USD", "AUSD", Decimal("0.5"), Decimal("0.0001")),
        Instrument("X", "B-USD", "B/USD", Decimal("0.00000001"), Decimal("0.00000001")),
    ]
)
# Columns of the relations that have fewer than books.
WIDTHS = {"funding": 5, "mark_prices": 5, "open_interest": 4}
MODELLED = [("X", "A-USD", 10**6, 10**8), ("Y", "A-USD", 5 * 10**7, 10**4), ("X", "B-USD", 1, 1)]


def events_of(rows: list[dict[str, Any]]) -> Events:
    events = np.zeros(len(rows), EVENT)
    for event, row in zip(events, rows, strict=True):
        for name, value in row.items():
            event[name] = value
    return events


def row(action: Action, **fields: int) -> dict[str, Any]:
    base = dict.fromkeys(EVENT.names or (), 0) | {"exchange_time": 5, "flags": Flag.LAST}
    return base | {"action": action} | fields


def tuples_of(batch: ChangeBatch, dictionary: Dictionary) -> list[tuple[str, tuple[Any, ...]]]:
    out = []
    for kind, values in zip(batch.kinds.tolist(), batch.values.tolist(), strict=True):
        relation = RELATIONS[kind // 2]
        for column in (1, 2, 6) if relation in ("trades", "liquidations") else (1, 2):
            values[column] = dictionary.decode(values[column])
        del values[WIDTHS.get(relation, 7) :]
        out.append(("-" if kind % 2 else "+", (relation, *values)))
    return out


def joined(parts: list[ChangeBatch]) -> ChangeBatch:
    width = max((one.values.shape[1] for one in parts), default=0)
    nothing = ChangeBatch(np.empty(0, np.int16), np.empty(0, np.uint8), np.empty((0, width), np.int64))
    columns = zip(*((one.kinds, one.flags, one.values) for one in (nothing, *parts)), strict=True)
    return ChangeBatch(*map(np.concatenate, columns))


def books_and_dictionary(track: bool = True) -> tuple[Books, Dictionary]:
    dictionary = Dictionary(["something else", "B-USD"])
    return Books(INSTRUMENTS, dictionary, track_crossed=track), dictionary


rarely_out_of_range = st.one_of(*[st.integers(1, 40)] * 8, st.sampled_from([0, -3, 2**62, LIMIT, -(2**63)]))
random_events = st.fixed_dictionaries(
    {
        "exchange_time": st.integers(0, 2),
        "receive_time": st.integers(1, 50),
        "order_id": st.integers(-1, 6) | st.sampled_from([2**63 - 1, -(2**63)]),
        "price": rarely_out_of_range,
        "volume": rarely_out_of_range,
        "instrument": st.sampled_from([0, 0, 0, 0, 1, 2, -1, 3]),
        "broker_id": st.integers(0, 2),
        "action": st.sampled_from([*Action, Action.ADD, Action.ADD, Action.ADD, 0, 77]),
        "side": st.sampled_from([0, 0, 0, 1, 1, 1, 2, 9]),
        "flags": st.sampled_from([0, Flag.LAST, Flag.LAST | Flag.SNAPSHOT]),
    }
)
