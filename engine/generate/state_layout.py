"""Where a program's state lies in raw memory: one block of words, whose address is the state."""

from dataclasses import dataclass

from orderbook.core.user_functions import MOST_PARAMETERS
from orderbook.engine.plan.steps import Plan, ResultPlan
from orderbook.engine.plan.stores import layout_of
from orderbook.views.types import Kind, Type

# Words of the state block.
ERROR = 0  # not 0 after an overflow, says of what
SCRATCH = 1  # for the bits of a double
CONSTANTS = 2  # address of a word for each constant, see numbering.Constant
DIRTY = 3  # not 0 when a watched view was touched since the last look
FIRED = 4  # address, words used and capacity of the firings
FIRED_WORDS = 5
FIRED_CAPACITY = 6
MEASURES = 7  # address of counts and times of statements, in a module that measures
# The ERROR of a double that is not finite, of a key beyond 64 bits, of a function of texts that failed, of a
# user's function that raised; 1 is a value beyond 128 bits.
INFINITE = 2
WIDE_KEY = 3
NO_TEXT = 4
CALL_RAISED = 5
# What the driver returns when ERROR is set; the complement of an index says that a watch fired.
FAILED = -(2**63)
# What calls with a batch return for arrays that are not as ChangeBatch says; and what is taken from what the
# driver returns where the events that it has applied are not counted.
NOT_DESCRIBED = -(2**63) + 1
UNCOUNTED = 2**62
# Words of an engine's progress: how many events were applied, whether the last message is open.
EVENTS, OPEN = 0, 1

LOOKS = 8  # address of what the driver looks at, LOOKING words for each, and how many they are
LOOK_COUNT = 9
CHECKED_ROWS = 10  # address of the block of relations whose rows are checked and kept, 0: none
BATCH = 11  # of the changes at hand: address and stride of kinds, of flags, of rows
RUN = 17  # address of the driver's `run`
FIRED_BYTES = 18  # address of the firings, and how many bytes they have
TEXTS = 20  # address of the values of functions of texts that were computed last, TEXT_WORDS for each
TEXT_VALUE = 21  # address of what computes others
CALLED = 22  # what a user's function that raised has noted: its number, a word for each argument
CALLED_WORDS = 1 + MOST_PARAMETERS
PATTERNS = (
    CALLED + CALLED_WORDS
)  # address of what follows from touched rows of patterns, and how many they are
PATTERN_COUNT = PATTERNS + 1
STORES = PATTERN_COUNT + 1  # handles of the stores, then the looks

# Of a value of a function of texts: the function's number, three arguments, the value.
TEXT_WORDS = 5
TEXT_PLACES = 2**14

# Words of a look of the driver: where its words lie in the state, whether at messages alone, the function.
LOOKING = 3

# Words of a pattern: where the look at its rows lies in the state, the function that follows them.
FOLLOWING = 2

# Words of a look: a view as it is watched at one granularity.
LOOK_WORDS = 11
ACTIVE = 0  # not 0 while it is watched
LIST = 1  # address, count (-1: every row) and capacity of the keys touched
COUNT = 2
CAPACITY = 3
CACHE = 4  # rows as they were at the last look
ROW = 5  # address of the row at hand
RECORDS = 6  # of what is recorded: address of a list's address, words used and capacity
ROW_AT = 7  # address of the function that writes one row
KEYS_AT = 8  # address of the function that notes the keys of all rows, and the state word of their store
KEYS_OF = 9
WATCHES = 10  # of what is watched: address of groups of watches, all but the last full

# A group of watches, whose conditions have a bit each: how many, which bits fire on the edge alone, which
# have no condition and always fire. Then WATCH_WORDS for each: its number, the address of its condition or 0.
GROUP = 62
GROUP_WORDS = 3
COUNTED = 0
EDGES = 1
ALWAYS = 2
WATCH_WORDS = 2
NUMBER = 0
CONDITION = 1


@dataclass(frozen=True, slots=True)
class Layout:
    """Offsets in the state block of a plan."""

    handles: dict[str, int]
    looks: int
    words: int

    def look(self, view: int, per_message: bool) -> int:
        return self.looks + (2 * view + per_message) * LOOK_WORDS


def layout_for(plan: Plan) -> Layout:
    handles = {s.name: STORES + i for i, s in enumerate(plan.stores)}
    looks = STORES + len(handles)
    return Layout(handles, looks, looks + 2 * len(plan.results) * LOOK_WORDS)


def column_words(kind: Type) -> int:
    """Words of a column's value in a row: 2 for 128 bits, else 1."""
    return 2 if kind.kind is not Kind.DOUBLE and layout_of(kind) != "i" else 1


def row_words(result: ResultPlan) -> int:
    """Words of a row: how often it stands, then for each column whether it is there, and its value."""
    return 1 + sum(1 + column_words(c.type) for c in result.result.columns)
