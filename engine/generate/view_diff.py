"""Text of what compares views: rows that were touched are computed, and compared with what they were before.

Both modules that look are made of it: the one that fires watches, below, and the one that records
(driver.py).

The module that fires watches is the same for all views with rows of one form. What tells views and watches
apart lies in the state: addresses of functions that compute rows, and of conditions. So a subscription
compiles its condition alone, a function of a row as it lies in memory.
"""

from collections.abc import Callable
from dataclasses import dataclass

from orderbook.engine.generate.expressions import Code, in_word, truth
from orderbook.engine.generate.module_text import ModuleText, Names, Writer
from orderbook.engine.generate.numbering import NumberedPlan
from orderbook.engine.generate.state_layout import (
    CACHE,
    COUNT,
    GROUP,
    GROUP_WORDS,
    KEYS_AT,
    KEYS_OF,
    LIST,
    ROW,
    ROW_AT,
    WATCH_WORDS,
    WATCHES,
    column_words,
)
from orderbook.views.calculus import Scalar, Var
from orderbook.views.intervals import exact
from orderbook.views.m3 import Result
from orderbook.views.types import DOUBLE, Kind, unscaled

_KEYS_HEAD = '''\
"""Generated: the keys of a store, noted for a look at all of them."""

from orderbook.engine.generate.support import push_key
from orderbook.core.jit import exported
from orderbook.engine.maps.memory import store
from orderbook.engine.maps.shapes import hashed
'''


@dataclass(frozen=True, slots=True)
class ViewDiffText:
    """How the functions of a look are written.

    tag: their names end in it. keys: of the view. words: of a row; `more` are kept with it. at: where the
    look's words lie in the state. told: a parameter that is handed on with every row. row: computes a row,
    of the keys at `keys` to `new`; how often it stands.
    """

    tag: str
    keys: int
    words: int
    more: int
    at: str
    told: str
    row: str

    @property
    def cache(self) -> str:
        """Imports the store of rows as they were at the last look."""
        if not self.keys:
            return ""
        name = f"cache{self.tag}"
        used = ["find", "insert", "remove", "first", "next_entry", *(f"key_{i}" for i in range(self.keys))]
        return f"{name} = hashed({self.keys}, {'i' * (self.words + self.more)!r}, ())\n" + "".join(
            f"{name}_{u} = {name}.{u}\n" for u in used
        )

    @property
    def _own(self) -> str:
        return ", ".join(f"load(keys, {i})" for i in range(self.keys))

    def entry(self, w: Writer, there: Callable[[], None]) -> None:
        """`old`, the row that is kept of the keys at `keys`; `there` writes what comes before a new one."""
        if not self.keys:
            w.line("old = last")
            return
        w.line(f"entry = cache{self.tag}_find(last, {self._own})")
        with w.block("if entry == 0:"):
            there()
            w.line(f"entry = cache{self.tag}_insert(last, {self._own})")
            with w.block(f"for word in range({self.words + self.more}):"):
                w.line(f"store(entry, {self.keys} + word, 0)")
        w.line(f"old = entry + {8 * self.keys}")

    def removal(self, w: Writer, gone: str) -> None:
        """Keeps a row no longer that is gone."""
        if self.keys:
            with w.block(f"if {gone}:"):
                w.line(f"cache{self.tag}_remove(last, entry)")

    def refresh(self, w: Writer, noted: Callable[[], None]) -> None:
        """`refresh`: looks at one row; where it is another, does what `noted` writes, and keeps it."""

        def unless_gone() -> None:
            with w.block("if count == 0:"):
                w.line("return")

        w.line("@jit(error_model='numpy')")
        with w.block(f"def refresh{self.tag}(S, at, last, keys, new, {self.told}):"):
            w.line(f"count = {self.row}")
            self.entry(w, unless_gone)
            with w.block("if count == 0:"), w.block(f"for word in range({self.words}):"):
                w.line("store(new, word, 0)")
            w.line("changed = False")
            with w.block(f"for word in range({self.words}):"):
                w.line("changed = changed or load(new, word) != load(old, word)")
            with w.block("if changed:"):
                noted()
                with w.block(f"for word in range({self.words}):"):
                    w.line("store(old, word, load(new, word))")
            self.removal(w, "count == 0")
        w.line("")
        w.line("")

    def look(self, w: Writer) -> None:
        """Refreshes the rows touched since the last look; every row where that is not known."""
        at, tag = self.at, self.tag
        w.line(f"last = load(S, {at} + {CACHE})")
        w.line(f"touched = load(S, {at} + {COUNT})")
        w.line(f"new = load(S, {at} + {ROW})")
        if self.keys:
            with w.block("if touched < 0:"):
                w.line(f"store(S, {at} + {COUNT}, 0)")
                w.line(f"held = load(S, load(S, {at} + {KEYS_OF}))")
                w.line(f"call(load(S, {at} + {KEYS_AT}), held, S, {at} + {LIST})")
                w.line(f"entry = cache{tag}_first(last)")
                with w.block("while entry != 0:"):
                    w.line(f"place = push_key(S, {at} + {LIST}, {self.keys})")
                    for i in range(self.keys):
                        w.line(f"store(place, {i}, cache{tag}_key_{i}(entry))")
                    w.line(f"entry = cache{tag}_next_entry(last, entry)")
                w.line(f"touched = load(S, {at} + {COUNT})")
            w.line(f"place = load(S, {at} + {LIST})")
            with w.block("for _ in range(touched):"):
                w.line(f"refresh{tag}(S, {at}, last, place, new, {self.told})")
                w.line(f"place += {8 * self.keys}")
        else:
            with w.block("if touched != 0:"):
                w.line(f"refresh{tag}(S, {at}, last, new, new, {self.told})")
        w.line(f"store(S, {at} + {COUNT}, 0)")


def keys_module(count: int, layout: str, slices: tuple[tuple[int, ...], ...]) -> str:
    """The source of `keys(H, S, at)`: adds the keys of a hashed store's entries to the list at state word
    `at`; the store has so many keys, and its shape's layout and slices."""
    w, keys = Writer(), range(count)
    w.line("@exported")
    with w.block("def keys(H, S, at):"):
        w.line("entry = store_first(H)")
        with w.block("while entry != 0:"):
            w.line(f"place = push_key(S, at, {len(keys)})")
            for i in keys:
                w.line(f"store(place, {i}, store_key_{i}(entry))")
            w.line("entry = store_next_entry(H, entry)")
        w.line("return 0")
    names = ["first", "next_entry", *(f"key_{i}" for i in keys)]
    shape = f"shape = hashed({count}, {layout!r}, {slices!r})\n"
    return _KEYS_HEAD + shape + "".join(f"store_{n} = shape.{n}\n" for n in names) + "\n\n" + w.text()


_HEAD = '''\
"""Generated: looks at rows of {keys} keys and {words} words, with watches in {groups} groups."""

from orderbook.engine.generate.support import condition_bits, fire_group, push_key
from orderbook.engine.maps.memory import call, load, store
from orderbook.engine.maps.shapes import hashed
from orderbook.core.jit import exported, jit
'''


def watched_module(keys: int, words: int, groups: int) -> str:
    """The source of `look(S, at, quiet)`, which looks at the view whose words lie at `at` in the state.

    words: of a row; behind it are kept the bits of conditions, a word for each group of watches. Nothing
    fires where `quiet`.
    """
    look = ViewDiffText(
        "", keys, words, groups, "at", "quiet",
        f"call(load(S, at + {ROW_AT}), S, keys, new)",
    )  # fmt: skip
    w = Writer()

    def noted() -> None:
        w.line(f"group = load(S, at + {WATCHES})")
        for word in range(words, words + groups):
            w.line("now = condition_bits(S, group, new) if count != 0 else 0")
            with w.block("if quiet == 0:"):
                w.line(f"fire_group(S, group, load(old, {word}), now, {keys}, keys, {words}, old, new)")
            w.line(f"store(old, {word}, now)")
            w.line(f"group += {8 * (GROUP_WORDS + GROUP * WATCH_WORDS)}")

    look.refresh(w, noted)
    w.line("@exported")
    with w.block("def look(S, at, quiet):"):
        w.line('"""Looks at the rows that were touched."""')
        look.look(w)
        w.line("return 0")
    return _HEAD.format(keys=keys, words=words, groups=groups) + look.cache + "\n\n" + w.text()


def condition_module(plan: NumberedPlan, view: int, condition: Scalar) -> str:
    """The source of `holds(S, row, nothing)`: 1 where the condition holds of a row of a view, else 0.

    condition: as `Numbering.condition` makes it, over the view's columns.
    """
    module = ModuleText(plan)
    with module.exported("holds(S, row, nothing)", "Whether a condition holds of a row.") as emitter:
        holds = truth(emitter.scalar(condition, _columns(plan.results[view].result)))
        module.writer.line(f"return 1 if {holds} else 0")
    return module.text(stores=())


def _columns(result: Result) -> Names:
    """The columns of a row at the address `row`."""
    names: Names = {}
    at = 1
    for number, column in enumerate(result.columns):
        names[Var(f"t{number}")] = Code(f"load(row, {at})", exact(0, 1))
        own, words = Var(f"c{number}"), column_words(column.type)
        if column.type.kind is Kind.DOUBLE:
            names[own] = Code(f"load_double(row, {at + 1})", DOUBLE)
        elif words == 2:
            text = f"words_to_wide(load(row, {at + 1}), load(row, {at + 2}))"
            names[own] = Code(text, unscaled(column.type))
        else:
            names[own] = Code(f"load(row, {at + 1})", in_word(unscaled(column.type)))
        at += 1 + words
    return names
