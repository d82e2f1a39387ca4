"""The generated module of a look that fires watches, the same for all views with rows of one form.

What tells views and watches apart lies in the state: addresses of functions that compute rows, and of
conditions. So a subscription compiles its condition alone.
"""

from .layout import KEYS_AT, LIST, ROW_AT
from .looks import LookText
from .writer import Writer

_HEAD = '''\
"""Generated: looks at rows of {keys} keys and {words} words, with {bits} words of bits of conditions."""

from engine.generate.support import fire_watches, push_key, set_bits
from engine.maps.linkage import call, exported
from engine.maps.memory import load, store
from engine.maps.shapes import hashed
from orderbook.jit import jit
'''


def watched_module(keys: int, words: int, bits: int) -> str:
    """The source of `look(S, at, quiet)`, which looks at the view whose words lie at `at` in the state.

    words: of a row. bits: words of conditions' bits, which are kept with it. Nothing fires where `quiet`.
    """
    look = LookText(
        "", keys, words + bits, "at", "quiet",
        f"call(load(S, at + {ROW_AT}), S, keys, new)", f"call(load(S, at + {KEYS_AT}), S, at + {LIST}, 0)",
    )  # fmt: skip
    w = Writer()

    def more() -> None:
        with w.block("if count != 0:"):
            w.line(f"set_bits(S, at, new, {words})")

    def noted() -> None:
        with w.block("if quiet == 0:"):
            w.line(f"fire_watches(S, at, {keys}, keys, {words}, old, new)")

    look.refresh(w, more, noted)
    w.line("@exported")
    with w.block("def look(S, at, quiet):"):
        w.line('"""Looks at the rows that were touched."""')
        look.look(w)
        w.line("return 0")
    return _HEAD.format(keys=keys, words=words, bits=bits) + look.cache + "\n\n" + w.text()
