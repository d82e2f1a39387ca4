"""Looks at views: rows that were touched are computed, and compared with what they were at the last look.

What both modules that look are made of: the one that fires watches (watched.py), and the one that records
(recorded.py).
"""

from collections.abc import Callable
from dataclasses import dataclass

from .layout import CACHE, COUNT, KEYS_AT, KEYS_OF, LIST, ROW
from .writer import Writer

_KEYS_HEAD = '''\
"""Generated: the keys of a store, noted for a look at all of them."""

from engine.generate.support import push_key
from engine.maps.linkage import exported
from engine.maps.memory import store
from engine.maps.shapes import hashed
'''


@dataclass(frozen=True, slots=True)
class LookText:
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
