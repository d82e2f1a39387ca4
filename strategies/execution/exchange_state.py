"""What the simulated exchange has of one account: records at addresses, for compiled code.

An ACCOUNT has a BOARD for each instrument that it trades: its orders that rest there, what it has taken of
displayed volume, and what it has sent that has not arrived. What becomes of orders is written as REPORTs,
with the executions by which it did, and read from there in order. Sequences are VECTORs, which grow.
"""

import numpy as np

from orderbook.core.jit import jit
from orderbook.engine.maps.memory import calloc, memory_move, release
from orderbook.market.block_memory import load, record_at, store

# An order's place in its queue, by which `queue_position` goes, and the order.
ORDER = np.dtype(
    [
        ("key", "i8"),  # its price, greater where it is better for who takes it
        ("left", "i8"),  # lots still to be filled
        ("hit", "i8"),  # lots that the message at hand has filled
        ("front", "i8"),  # lots before it, as of the start of the message
        ("part", "i8"),  # of what an order may be sent in, in 2^-32, what rounding has left out of these
        ("level", "i8"),  # lots displayed at the price at the last look
        ("traded", "i8"),  # lots of these that have traded since
        ("requeue", "i8"),  # whether the book was lost, and the place with it
        ("known", "i8"),  # whether orders ahead are known by id: in an L3 book
        ("ahead", "i8"),  # address of int64[count, 2], their ids and lots
        ("count", "i8"),
        ("moved", "i8"),  # whether `front` is to be summed up again
        ("id", "i8"),
        ("side", "i8"),  # the Side of the book where it rests
        ("limit", "i8"),  # ticks
        ("market", "i8"),  # whether it has no limit
        ("volume", "i8"),  # lots, with those that are filled
        ("ioc", "i8"),
        ("post_only", "i8"),
        ("time", "i8"),  # of its last change, ns
        ("status", "i8"),
        ("reason", "i8"),
        ("fok", "i8"),  # whether it fills whole at once, or not at all
        ("reduce_only", "i8"),
        ("good_until", "i8"),  # ns, at the exchange; 0: for ever
        ("waits", "i8"),  # for its stop: see below
        ("stop", "i8"),  # ticks
        ("trail", "i8"),  # ticks between the best price since it waits, and its stop; 0: that stays
        ("display", "i8"),  # lots shown of an iceberg; 0: all
        ("shown", "i8"),  # what is left of these
        ("tie", "i8"),  # the id of an order that it is tied to when it arrives; 0: none
        ("group", "i8"),  # what one of a group fills, the others lose; 0: it has none
        ("ended", "i8"),  # why it is to be cancelled when the message has ended; 0: it is not
        ("changed", "i8"),  # whether its volume is another since the last report
        ("profit", "i8"),  # addresses of ORDERs that come when it is done, for what it has filled; 0: none
        ("loss", "i8"),
    ]
)
SENT, RESTING, FILLED, CANCELLED, REFUSED, WAITING = range(6)
# What an order waits for: nothing; its stop; a first price to trail from; its turn, as the stop is reached.
GOES, STOP, FIRST, REACHED = range(4)

# Why an order is as it is; from TEXTS on reasons that the account's owner has given.
(
    NO_REASON, BOOK_SYNCING, BOOK_VALID, BOOK_STALE, CLOSED, WOULD_TAKE, NO_VOLUME, NOT_AT_ONCE, NOTHING_LEFT,
    NOT_WHOLE, EXPIRED, NOTHING_TO_REDUCE, TIED_IS_DONE, TIED_HAS_FILLED, ENTRY_UNFILLED,
) = range(15)  # fmt: skip
TEXTS = 32
# Added where an order could not be modified for a reason.
NOT_MODIFIED = 8 << 16


def offset_of(dtype: np.dtype, name: str) -> int:
    """Where a field of a record is, in bytes."""
    assert dtype.fields is not None
    return dtype.fields[name][1]


def vector(name: str) -> list[tuple[str, str]]:
    """The words of a VECTOR: where its items are, the first of them, the end, and how many fit."""
    return [(name, "i8"), (f"{name}_first", "i8"), (f"{name}_count", "i8"), (f"{name}_room", "i8")]


def delays(name: str) -> list[tuple[str, str]]:
    """The words of delays: where they are, ns; how many; what they are drawn by, all as likely; and whether
    they are pairs of a time and a delay instead, between which it changes evenly."""
    return [(name, "i8"), (f"{name}_count", "i8"), (f"{name}_key", "i8"), (f"{name}_timed", "i8")]


# Vectors of which the first item is number 0 have `count` of them. The first four have all of its orders.
BOARD = np.dtype(
    [
        *vector("bids"),  # addresses of own orders to buy, best price first, then oldest
        *vector("asks"),
        *vector("stops"),  # of those that wait for their stop, oldest first
        *vector("entering"),  # of those that come once the book is valid, as what they protect is done
        *vector("taken_bids"),  # int64[2], keys of levels and lots taken of them
        *vector("taken_asks"),
        *vector("messages"),  # MESSAGE, under way, by their arrivals
        ("executes", "i8"),  # whether executions of orders were seen
        ("proportional", "i8"),  # the lot in the book's units; 0: queues are "back"
        ("queue", "i8"),  # which of QUEUES
        ("power", "i8"),  # of that, in 1e-9
        ("hit", "i8"),  # whether the message at hand has filled an order
        ("lost", "i8"),  # whether an order has lost its place
        ("account", "i8"),  # address of ACCOUNT
        ("instrument", "i8"),
        ("arrival", "i8"),  # of what was sent last, ns
        ("tick", "i8"),  # the steps in which orders are taken, in 10^-8; 0: none is
        ("lot", "i8"),
        ("tick_scale", "i8"),  # a tick and a lot of the book, in 10^-8
        ("lot_scale", "i8"),
        ("message", "i8"),  # the number of the last message that its orders have followed
        ("position", "i8"),  # lots held, as far as the exchange knows
        ("expires", "i8"),  # the least `good_until` of its orders, ns; LAST: none has one
        ("stirred", "i8"),  # whether orders are to be looked at, as one has filled or ended
        ("seen", "i8"),  # the exchange's time until which funding is paid, ns
    ]
)
ORDERS = 4

MESSAGE = np.dtype(
    [
        ("arrival", "i8"),  # ns
        ("kind", "i8"),
        ("id", "i8"),
        ("order", "i8"),  # address of ORDER, of a new one
        ("lots", "i8"),  # of the order from now on, and whether that changes
        ("has_lots", "i8"),
        ("limit", "i8"),  # ticks
        ("has_limit", "i8"),
        ("stop", "i8"),  # ticks
        ("has_stop", "i8"),
        ("reason", "i8"),  # why it is cancelled
    ]
)
PLACE, MODIFY, CANCEL = range(3)

REPORT = np.dtype(
    [
        ("due", "i8"),  # when the strategy can know it, ns
        ("id", "i8"),
        ("instrument", "i8"),
        ("time", "i8"),  # ns
        ("status", "i8"),
        ("filled", "i8"),  # lots
        ("volume", "i8"),  # lots and ticks of the order, where `modified`
        ("limit", "i8"),
        ("modified", "i8"),
        ("reason", "i8"),
        ("fills", "i8"),  # how many of the account's FILLs are its own
        ("side", "i8"),
    ]
)

FILL = np.dtype([("time", "i8"), ("lots", "i8"), ("ticks", "i8"), ("maker", "i8")])

# Funding that a position pays, or gets: when, on so many lots, at a price in 1e-8 and a rate in 1e-12.
PAYMENT = np.dtype([(name, "i8") for name in ("time", "instrument", "lots", "price", "rate")])

ACCOUNT = np.dtype(
    [
        *vector("reports"),
        *vector("fills"),
        *vector("payments"),
        ("due", "i8"),  # of the first report; LAST: there is none
        ("books", "i8"),  # address of the books' CONTEXT
        ("instant", "i8"),  # whether everything is told at once
        ("at_once", "i8"),  # whether what is sent arrives at once
        *delays("responses"),
        *delays("orders"),
        *delays("feed"),
        ("stop_by", "i8"),  # what reaches stops: see STOP_BY
        ("told_apart", "i8"),  # whether compiled code tells its strategy what is due
        ("numbers", "i8"),  # how many messages were sent either way
        ("last_due", "i8"),
        ("sessions", "i8"),  # address of int64[sessions_count, 3]: weekdays, and from when to when, ns
        ("sessions_count", "i8"),
        ("taken", "i8"),  # where what was taken last lies, and how many bytes that are
        ("taken_bytes", "i8"),
    ]
)
LAST = 2**63 - 1
# Before all other times.
FIRST = -(2**63)
# What is ahead of what leaves a level of an L2 book; see `queue_position`.
QUEUES = ("back", "proportional", "power", "power2", "power3", "log", "log2", "square")
BACK, PROPORTIONAL, POWER, POWER_2, POWER_3, LOG, LOG_2, SQUARE = range(8)
# What reaches stops: prices of trades, the side of the touch that a market order would take, or mark prices.
STOP_BY = ("trade", "touch", "mark")
BY_TRADE, BY_TOUCH, BY_MARK = range(3)

order_at = record_at(ORDER)
board_at = record_at(BOARD)
message_at = record_at(MESSAGE)
report_at = record_at(REPORT)
fill_at = record_at(FILL)
payment_at = record_at(PAYMENT)
account_at = record_at(ACCOUNT)

_FIRST_ROOM = 8


@jit()
def pushed(vector: int, size: int) -> int:
    """The address of one more item, of so many bytes, at the end of a VECTOR; its content is undefined."""
    data, first, end, room = load(vector), load(vector + 8), load(vector + 16), load(vector + 24)
    if end == room:
        if first > 0 and 2 * first >= room:
            memory_move(data, data + size * first, size * (end - first))
        else:
            room = max(_FIRST_ROOM, 2 * room)
            grown = calloc(room, size)
            memory_move(grown, data + size * first, size * (end - first))
            release(data)
            data = grown
        first, end = 0, end - first
        store(vector, data)
        store(vector + 8, first)
        store(vector + 24, room)
    store(vector + 16, end + 1)
    item: int = data + size * end
    return item


@jit()
def dropped(vector: int, count: int) -> None:
    """Takes so many items from the start of a VECTOR; they stay there until another is pushed."""
    first = load(vector + 8) + count
    if first == load(vector + 16):
        first = 0
        store(vector + 16, 0)
    store(vector + 8, first)
