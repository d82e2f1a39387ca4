"""The generated module of a look that fires watches, the same for all views with rows of one form.

What tells views and watches apart lies in the state: addresses of functions that compute rows, and of
conditions. So a subscription compiles its condition alone.
"""

from .layout import GROUP, GROUP_WORDS, ROW_AT, WATCH_WORDS, WATCHES
from .looks import LookText
from .writer import Writer

_HEAD = '''\
"""Generated: looks at rows of {keys} keys and {words} words, with watches in {groups} groups."""

from engine.generate.support import condition_bits, fire_group, push_key
from engine.maps.linkage import call, exported
from engine.maps.memory import load, store
from engine.maps.shapes import hashed
from orderbook.jit import jit
'''


def watched_module(keys: int, words: int, groups: int) -> str:
    """The source of `look(S, at, quiet)`, which looks at the view whose words lie at `at` in the state.

    words: of a row; behind it are kept the bits of conditions, a word for each group of watches. Nothing
    fires where `quiet`.
    """
    look = LookText(
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
