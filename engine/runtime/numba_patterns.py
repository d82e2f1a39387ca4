"""The row patterns of a compiled program: their memory, and their rows again where maps are replaced."""

import weakref
from collections.abc import Callable
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from orderbook.core.generated_code import publish_text
from orderbook.engine.generate.numbering import NumberedPlan, Numbering
from orderbook.engine.generate.row_patterns import (
    BEFORE,
    FRESH,
    GONE,
    NEXT,
    NOTHING,
    NOW,
    PARTITIONS,
    PATTERN_WORDS,
    SEEN,
    TABLE,
    TRIAL,
    KeptWords,
    position_table,
    row_pattern_module,
)
from orderbook.engine.generate.state_layout import (
    COUNT,
    PATTERN_COUNT,
    PATTERNS,
    RECORDS,
    Layout,
    column_words,
    row_words,
)
from orderbook.engine.generate.support import free
from orderbook.engine.maps.memory import Block, address_of, callable_at
from orderbook.engine.maps.shapes import hashed
from orderbook.engine.plan.steps import Plan
from orderbook.engine.runtime.numba_memory import NumbaViewDiffs
from orderbook.views.m3 import RowPattern
from orderbook.views.types import Kind


class NumbaPatterns:
    """The row patterns of a runtime; `state` and `layout` are its program's.

    rows: gives the rows of a result of the program by name, int64[n, words of the key and of the row].
    """

    def __init__(
        self,
        plan: Plan,
        numbered: NumberedPlan,
        numbering: Numbering,
        layout: Layout,
        state: Block,
        program: ModuleType,
        rows: Callable[[str], NDArray[np.int64]],
    ) -> None:
        self._plan, self._layout, self._state, self._rows = plan, layout, state, rows
        first, results = len(plan.program.results), len(plan.results)
        self._looks = NumbaViewDiffs(plan, layout, state, program, range(first, results))
        self._modules: list[ModuleType] = []
        self._numbers = range(first, results)
        names = {
            r.name: n.name for r, n in zip(plan.program.relations, numbered.program.relations, strict=True)
        }
        for view, pattern in zip(self._numbers, plan.program.patterns, strict=True):
            own = numbering.pattern(pattern, names[pattern.name])
            source = row_pattern_module(numbered, program.__name__, own, view)
            self._modules.append(publish_text("pattern", source))
        self._table = Block(2 * len(self._modules))
        self._held: list[_PatternMemory] = []
        state[PATTERNS] = self._table.address
        self._open()

    def _open(self) -> None:
        patterns = self._plan.program.patterns
        for place, (view, pattern, module) in enumerate(
            zip(self._numbers, patterns, self._modules, strict=True)
        ):
            words = row_words(self._plan.results[view])
            at = self._looks.open(view, False, words)
            # Nothing was touched: there are no rows.
            self._state[at + COUNT] = 0
            held = _PatternMemory(pattern, words, module)
            self._held.append(held)
            self._state[at + RECORDS] = held.address
            self._table[2 * place], self._table[2 * place + 1] = at, address_of(module, "follow")
        self._state[PATTERN_COUNT] = len(patterns)

    def rest(self) -> None:
        """Follows rows no more until `again`."""
        self._state[PATTERN_COUNT] = 0
        for place in range(len(self._modules)):
            # Touched rows need no list: all will be looked at.
            self._state[self._table[2 * place] + COUNT] = -1

    def again(self, tell: bool = False) -> None:
        """Takes the rows as they are, after maps have been replaced.

        Their matches are there already, unless the triggers are to be told of them.
        """
        if not self._modules:
            return
        self.close()
        self._open()
        for place, pattern in enumerate(self._plan.program.patterns):
            at = self._table[2 * place]
            self._state[at + COUNT] = -1
            callable_at(self._table[2 * place + 1])(self._state.address, at, 1)
            keys = len(pattern.rows.keys)
            rows = self._rows(pattern.rows.name)
            rows = np.ascontiguousarray(rows[_order(pattern, rows[:, keys:])][:, keys:])
            block = Block(4)
            for word, value in enumerate((rows.ctypes.data, rows.strides[0], len(rows), tell)):
                block[word] = value
            fill = callable_at(address_of(self._modules[place], "fill"))
            fill(self._state.address, self._held[place].address, block.address)

    def memory_bytes(self) -> int:
        """Bytes of the rows in their order."""
        pairs = zip(self._modules, self._held, strict=True)
        return sum(
            callable_at(address_of(module, "held_bytes"))(0, held.address, 0) for module, held in pairs
        )

    def close(self) -> None:
        """Gives all memory back."""
        for held in self._held:
            held.close()
        self._held.clear()
        self._looks.close()
        self._state[PATTERN_COUNT] = 0


def _order(pattern: RowPattern, rows: NDArray[np.int64]) -> NDArray[np.intp]:
    """The places of int64[n, words of a row] rows in the pattern's order, within partitions in any order."""
    columns = pattern.rows.columns
    ats = np.cumsum([1, *(1 + column_words(c.type) for c in columns)]).tolist()
    found: list[NDArray[np.int64] | NDArray[np.uint64] | NDArray[np.float64]] = []
    for place, descending in pattern.order:
        at, kind = ats[place], columns[place].type
        low, there = np.ascontiguousarray(rows[:, at + 1]), rows[:, at]
        found.append(1 - there)
        if kind.kind is Kind.DOUBLE:
            value = low.view(np.float64)
            found.append(-value if descending else value)
        elif column_words(kind) == 2:
            # The complement of both words turns the order round.
            high, unsigned = rows[:, at + 2], low.view(np.uint64)
            found += [~high, ~unsigned] if descending else [high, unsigned]
        else:
            found.append(-low if descending else low)
    return np.lexsort(found[::-1])


class _PatternMemory:
    """What a pattern works on in raw memory; its words are those of generate/row_patterns.py."""

    def __init__(self, pattern: RowPattern, row: int, module: ModuleType) -> None:
        kept = KeptWords.of(pattern)
        words = self._words = Block(PATTERN_WORDS)
        table = position_table(pattern)
        self._blocks = [Block(row + 2), Block(max(1, kept.words)), Block(len(table))]
        words[NOTHING], words[TRIAL], words[TABLE] = (block.address for block in self._blocks)
        for place, word in enumerate(table):
            self._blocks[2][place] = word
        shape = None
        if pattern.partition:
            keys = sum(column_words(pattern.rows.columns[place].type) for place in pattern.partition)
            shape = hashed(keys, "i", ())
            words[PARTITIONS] = shape.create()
        self._finalizer = weakref.finalize(self, _close, words, self._blocks, module, shape)

    @property
    def address(self) -> int:
        """Of its words."""
        return self._words.address

    def close(self) -> None:
        """Gives the memory back."""
        self._finalizer()


def _close(words: Block, blocks: object, module: ModuleType, shape: ModuleType | None) -> None:
    callable_at(address_of(module, "finish"))(0, words.address, 0)
    if shape is not None:
        shape.destroy(words[PARTITIONS])
    for at in (NOW, NEXT, GONE, FRESH, SEEN, BEFORE):
        free(words[at])
