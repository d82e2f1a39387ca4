"""What the compiled decoder of DBN knows: of the files, its context, and of an instrument, its book."""

from enum import IntEnum

import numpy as np


class Stop(IntEnum):
    """Why `decode` returned."""

    NEEDS_BYTES = 0  # the next record is not complete
    OUTPUT_FULL = 1  # `needed` events must have room
    NEEDS_MEMORY = 2
    LEFT = 3  # a record of another type, at the position, whole
    DAMAGED = 4  # a record at the position that is shorter than its type is


class Fault(IntEnum):
    """What is wrong with a record; counted, the first of each with an example."""

    UNMAPPED = 0
    SECOND_PUBLISHER = 1
    UNUSABLE = 2
    UNUSABLE_TRADE = 3
    OFF_TICK = 4
    UNKNOWN_ORDER = 5
    WITHOUT_END = 6
    BEFORE_FILE = 7  # no fault: an order from before the file, without examples


class Detail(IntEnum):
    """What an example says, of its words `one` and `other`."""

    IDENTIFIER = 0
    PUBLISHERS = 1
    PRICE = 2
    NO_SIDE = 3
    PRICE_OF_ORDER = 4
    TOO_LONG = 5
    TICK = 6
    ORDER = 7
    LEFT_OUT = 8


FAULTS = len(Fault)
EXAMPLES = 5
EXAMPLE = np.dtype([(n, "i8") for n in ("fault", "detail", "instrument_id", "time", "one", "other")])

LEVELS = 10
# Of a side: how many, then price in 1e-8 and size of each.
SIDE_WORDS = 1 + 2 * LEVELS
NONE_YET = -1
BOOK = np.dtype(
    [
        ("directory", "i8"),  # of the order table, whose volumes are one more than the orders'
        ("depth", "i8"),
        ("index", "i8"),
        ("tick", "i8"),  # 1e-9
        ("instrument_id", "i8"),  # whose records are applied; NONE_YET
        ("publisher", "i8"),  # NONE_YET
        ("synchronised", "i8"),
        ("doubt", "i8"),  # StateReason
        ("closed", "i8"),  # StateReason
        ("state", "i8"),  # BookState as told
        ("reason", "i8"),  # StateReason as told
        ("waiting", "i8"),  # EVENT[2 ** (size_class - 3)]
        ("size_class", "i8"),
        ("waiting_count", "i8"),
        ("has_bid", "i8"),  # whether the venue has told its best order of a side alone
        ("has_ask", "i8"),
        ("top_bid", "i8"),  # and which it was
        ("top_ask", "i8"),
        ("levels", "i8"),  # int64[2, SIDE_WORDS]
    ]
)
# Of an instrument's id, the times in which it is the instrument `index`, the first that fits counts.
INTERVAL = np.dtype([("start", "i8"), ("end", "i8"), ("index", "i8")])
# In a table of 2^n rows, by the id's low bits, then the next free; `count` 0 where there is none.
IDENTIFIER = np.dtype([("instrument_id", "i8"), ("first", "i8"), ("count", "i8")])
CONTEXT = np.dtype(
    [
        ("pool", "i8"),
        ("out", "i8"),  # EVENT[room]
        ("room", "i8"),
        ("written", "i8"),
        ("data", "i8"),  # the bytes' address
        ("position", "i8"),
        ("end", "i8"),
        ("stop", "i8"),  # Stop
        ("needed", "i8"),
        ("number", "i8"),  # records read
        ("books", "i8"),  # BOOK[n]
        ("identifiers", "i8"),  # IDENTIFIER[mask + 1]
        ("mask", "i8"),
        ("intervals", "i8"),  # INTERVAL[n]
        ("known_id", "i8"),  # the instrument of the last record, and the times in which it is that
        ("known_start", "i8"),
        ("known_end", "i8"),
        ("known_index", "i8"),
        ("counts", "i8"),  # int64[FAULTS]
        ("examples", "i8"),  # EXAMPLE[n]
        ("example_count", "i8"),
        ("reasons", "i8"),  # int64[ACTIONS]: by StatusAction, NO_REASON where nothing has happened
        ("levels", "i8"),  # int64[2, SIDE_WORDS], of the record at hand
        ("alone", "i8"),  # every record is a unit
        ("sound", "i8"),  # books are not these records' concern
        ("exchange_time", "i8"),  # of events, from here on
        ("receive_time", "i8"),
        ("sequence", "i8"),
        ("flags", "i8"),
        ("unit", "i8"),  # of those written, where the open unit begins
        ("ends", "i8"),  # whether the record at hand ends its unit
    ]
)
ACTIONS, NO_REASON = 256, -1
