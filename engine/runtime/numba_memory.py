"""What the compiled code of one runtime works on in raw memory that Python owns.

The texts and patterns of a program: dictionary codes, and tables of what a LIKE matches. For watched and
recorded views: rows as they were, keys touched, watches, recordings, which are copied column by column.
"""

import ctypes
import struct
import weakref
from collections.abc import Sequence
from types import ModuleType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from orderbook.core.changes import NULL_CODE, Dictionary
from orderbook.core.generated_code import publish_text
from orderbook.core.jit import called_with
from orderbook.engine.generate.numbering import Constant, Real
from orderbook.engine.generate.state_layout import (
    ACTIVE,
    CACHE,
    CONSTANTS,
    COUNT,
    DIRTY,
    ERROR,
    FIRED_WORDS,
    GROUP,
    KEYS_AT,
    KEYS_OF,
    LIST,
    LOOK_COUNT,
    LOOK_WORDS,
    LOOKS,
    NO_TEXT,
    RECORDS,
    ROW,
    ROW_AT,
    STORES,
    TEXT_PLACES,
    TEXT_VALUE,
    TEXT_WORDS,
    TEXTS,
    WATCHES,
    Layout,
    row_words,
)
from orderbook.engine.generate.support import free
from orderbook.engine.generate.view_diff import keys_module, watched_module
from orderbook.engine.maps.memory import MASK64, Block, Callback, address_of, callable_at, load, store
from orderbook.engine.maps.shapes import hashed
from orderbook.engine.plan.steps import Plan
from orderbook.views.scalars.evaluate import Pattern
from orderbook.views.scalars.texts import FUNCTIONS, NUMBERS, of_codes


@called_with("iiiiii")
def _turn(rows: int, size: int, count: int, first: int, words: int, out: int) -> int:
    """Writes words first … first + words - 1 of `count` rows of `size` words to int64[words, count]."""
    at = rows + 8 * first
    for row in range(count):
        # Row by row, since a row is read once and columns are written in their order.
        to = out + 8 * row
        for word in range(words):
            store(to, 0, load(at, word))
            to += 8 * count
        at += 8 * size
    return 0


def columns_at(rows: int, size: int, count: int, first: int, words: int) -> NDArray[np.int64]:
    """Words first … first + words - 1 of `count` rows of `size` words at an address: int64[count, words], a
    copy, of which each column is contiguous."""
    out = np.empty((words, count), np.int64)
    _turn(rows, size, count, first, words, out.ctypes.data)
    return out.T


class Constants:
    """A block with a word for each constant: a text's code, the address of a pattern's table, or a double.

    `places` numbers the words; whoever generates code adds to it and calls `store` before it runs.
    """

    def __init__(self, dictionary: Dictionary) -> None:
        self.places: dict[Constant, int] = {}
        self._dictionary = dictionary
        self.tables: dict[Pattern, PatternTable] = {}
        self._known = 0
        self._words = (ctypes.c_int64 * 1)()

    def store(self) -> int:
        """Lays out a block of all constants; its address."""
        self._words = (ctypes.c_int64 * max(1, len(self.places)))()
        for constant, place in self.places.items():
            if isinstance(constant, Pattern):
                self.tables.setdefault(constant, PatternTable(constant))
            elif isinstance(constant, Real):
                self._words[place] = constant.bits
            else:
                self._words[place] = self._dictionary.encode(constant)
        self._extend()
        return ctypes.addressof(self._words)

    def apart(self) -> Block:
        """A state that has nothing but the constants as they are now, for code in another thread."""
        state = Block(STORES + len(self._words))
        state.words[STORES:] = list(self._words)
        state[CONSTANTS] = state.address + 8 * STORES
        return state

    def follow(self) -> None:
        """Takes in the strings that are new in the dictionary; call it before code meets their codes."""
        if self.tables and len(self._dictionary) != self._known:
            self._extend()

    def _extend(self) -> None:
        for pattern, table in self.tables.items():
            table.extend(self._dictionary)
            self._words[self.places[pattern]] = table.address
        self._known = len(self._dictionary)


class PatternTable:
    """One pattern's table: a word that counts the codes it knows, then a bit for each of them.

    `address` is where compiled code reads it; it changes as the table grows.
    """

    def __init__(self, pattern: Pattern) -> None:
        self._pattern = pattern
        self._reserve(2)

    def extend(self, dictionary: Dictionary) -> None:
        """Adds the strings that are new in the dictionary."""
        size = len(dictionary)
        needed = 1 + (size + 63) // 64
        if needed > len(self._words):
            old = self._words
            self._reserve(max(needed, 2 * len(old)))
            ctypes.memmove(self._words, old, ctypes.sizeof(old))
        words = self._words
        for code in range(words[0], size):
            if self._pattern.matches(dictionary.decode(code)):
                words[1 + (code >> 6)] |= 1 << (code & 63)
        words[0] = size

    def _reserve(self, words: int) -> None:
        self._words = (ctypes.c_uint64 * words)()
        self.address = ctypes.addressof(self._words)


class TextValues:
    """What compiled code asks for values of functions of texts that it does not hold; see `text_value`.

    Texts that a function gives may be new to the tables of patterns, which are extended before code sees
    them. `problem` is what a function has raised, which the state notes.
    """

    def __init__(self, dictionary: Dictionary, constants: Constants, state: Block) -> None:
        self.problem: Exception | None = None
        self._dictionary, self._constants, self._state = dictionary, constants, state
        self._held = Block(TEXT_WORDS * TEXT_PLACES)
        self._words = memoryview(self._held.words).cast("B").cast("q")
        own = weakref.ref(self)

        def value(number: int, place: int, _: int) -> int:
            values = own()
            assert values is not None
            return values.value(number, place)

        self._callback = Callback(value)
        state[TEXTS], state[TEXT_VALUE] = self._held.address, self._callback.address

    def value(self, number: int, place: int) -> int:
        """The word of a function's value, by its number; its arguments are the words 1 to 3 at a place."""
        name, letters, double = _TEXT_FUNCTIONS[number]
        at = (place - self._held.address) // 8 + 1
        words = self._words[at : at + len(letters) + letters.count("w")].tolist()
        args: list[int | float] = []
        for letter in letters:
            word = words.pop(0)
            if letter == "w":
                args.append(words.pop(0) << 64 | word & MASK64)
            elif word == NULL_CODE:
                return 0
            else:
                args.append(_DOUBLE.unpack(_WORD.pack(word))[0] if letter == "d" else word)
        try:
            found = of_codes(name, args, self._dictionary)
        except Exception as problem:  # raised in the thread's own time, by the runtime
            self.problem, self._state[ERROR] = problem, NO_TEXT
            return 0
        self._constants.follow()
        return int(_WORD.unpack(_DOUBLE.pack(found))[0]) if double else int(found)


# By number: the name, the letters of the arguments, whether a double is the result.
_TEXT_FUNCTIONS = {
    number: (name, FUNCTIONS[name].arguments, FUNCTIONS[name].result == "d")
    for name, number in NUMBERS.items()
}
_WORD, _DOUBLE = struct.Struct("=q"), struct.Struct("=d")


class Watching(NamedTuple):
    """A watch of a look: its number, where its condition is (0: always), whether only its edge fires."""

    number: int
    condition: int
    edge: bool


class NumbaViewDiffs:
    """The looks of a runtime, by view and granularity; `state` and `layout` are the program's."""

    def __init__(self, plan: Plan, layout: Layout, state: Block, program: ModuleType, views: range) -> None:
        """views: those that it may look at, by number."""
        self._views = views
        self._plan, self._layout, self._state, self._program = plan, layout, state, program
        # Stores of rows as they were, and what else is held for the looks there are.
        self._caches: list[tuple[ModuleType, int]] = []
        self._blocks: list[Block] = []
        self._lists: list[Block] = []
        # What the driver looks at: where it lies in the state, whether at messages alone, the function.
        self._looking: list[tuple[int, int, int]] = []

    def watch(self, view: int, per_message: bool, watches: Sequence[Watching]) -> None:
        """Adds a look that fires watches."""
        result = self._plan.results[view]
        groups = [watches[first : first + GROUP] for first in range(0, len(watches), GROUP)]
        at = self.open(view, per_message, row_words(result) + len(groups))
        self._state[at + ROW_AT] = address_of(self._program, f"row_{view}")
        self._state[at + WATCHES] = self._table([word for group in groups for word in _words(group)])
        source = watched_module(len(result.result.keys), row_words(result), len(groups))
        look = publish_text("watched", source)
        self._looking.append((at, int(per_message), address_of(look, "look")))

    def begin(self) -> None:
        """Rows as they are now are the first look of all that were added."""
        self._state[LOOKS] = self._table([word for one in self._looking for word in one])
        self._state[LOOK_COUNT] = len(self._looking)
        for at, _, look in self._looking:
            callable_at(look)(self._state.address, at, 1)
        self._state[DIRTY] = 0

    def record(self, view: int, per_message: bool) -> Block:
        """Adds a look that records; the list to which it does: address, words used and capacity."""
        at = self.open(view, per_message, row_words(self._plan.results[view]))
        self._lists.append(Block(3))
        self._state[at + RECORDS] = self._lists[-1].address
        return self._lists[-1]

    def close(self) -> None:
        """Ends all looks, also of views that are being copied."""
        for shape, handle in self._caches:
            shape.destroy(handle)
        first, end = (self._layout.look(view, False) for view in (self._views.start, self._views.stop))
        for at in range(first, end, LOOK_WORDS):
            free(self._state[at + LIST])
            for word in range(LOOK_WORDS):
                self._state[at + word] = 0
        for block in self._lists:
            free(block[0])
        for own in (self._caches, self._lists, self._blocks, self._looking):
            own.clear()
        self._state[LOOKS] = self._state[LOOK_COUNT] = 0
        self._state[DIRTY] = self._state[FIRED_WORDS] = 0

    def open(self, view: int, per_message: bool, words: int) -> int:
        """Where a look lies in the state that keeps so many words of a row, and has seen none."""
        at, state = self._layout.look(view, per_message), self._state
        result = self._plan.results[view].result
        if result.keys:
            assert result.multiplicity is not None
            held = self._plan.entries_of(result.multiplicity)
            shape = hashed(len(result.keys), "i" * words, ())
            state[at + CACHE] = shape.create()
            self._caches.append((shape, state[at + CACHE]))
            source = keys_module(len(held.key_types), held.layout, held.slices)
            state[at + KEYS_AT] = address_of(publish_text("keys", source), "keys")
            state[at + KEYS_OF] = self._layout.handles[held.name]
        else:
            state[at + CACHE] = self._block(words).address
        state[at + ROW] = self._block(words).address
        state[at + COUNT] = -1
        state[at + ACTIVE] = 1
        return at

    def _table(self, words: Sequence[int]) -> int:
        """The address of these words."""
        block = self._block(len(words))
        for place, word in enumerate(words):
            block[place] = word
        return block.address

    def _block(self, words: int) -> Block:
        self._blocks.append(Block(words))
        return self._blocks[-1]


def _words(group: Sequence[Watching]) -> list[int]:
    """The words of a group of watches."""
    edges = sum(1 << bit for bit, one in enumerate(group) if one.edge)
    always = sum(1 << bit for bit, one in enumerate(group) if not one.condition)
    return [len(group), edges, always, *(word for one in group for word in (one.number, one.condition))]
