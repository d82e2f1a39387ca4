"""SQL's LIKE: `%` is any run of characters, `_` any one of them, and the pattern is the whole string."""

from functools import cache
from typing import NamedTuple


class Pattern(NamedTuple):
    """A pattern of LIKE, or of ILIKE where case is ignored."""

    text: str
    ignore_case: bool = False

    def matches(self, string: str) -> bool:
        """Whether the whole string is as the pattern says; takes |string| * |pattern| steps at most."""
        if self.ignore_case:
            string = string.lower()
        first, *others = _runs(self)
        if not others:
            return len(string) == len(first) and _is_at(first, string, 0)
        last = others.pop()
        end = len(string) - len(last)
        at = len(first)
        if end < at or not _is_at(first, string, 0) or not _is_at(last, string, end):
            return False
        for run in others:
            # The leftmost place leaves most room to the runs that follow.
            while at + len(run) <= end and not _is_at(run, string, at):
                at += 1
            if at + len(run) > end:
                return False
            at += len(run)
        return True


@cache
def _runs(pattern: Pattern) -> tuple[str, ...]:
    """The pieces between `%`."""
    text = pattern.text.lower() if pattern.ignore_case else pattern.text
    return tuple(text.split("%"))


def _is_at(run: str, string: str, place: int) -> bool:
    return all(c in ("_", string[place + i]) for i, c in enumerate(run))
