"""Replacements in their order, and what is done while one is under way."""

from collections import deque
from collections.abc import Callable

from .replacement import Replacement


class Replacements:
    """Replacements of one engine: each begins when those before it are done.

    `stepped` is called after each step of one.
    """

    def __init__(self, stepped: Callable[[Replacement], None]) -> None:
        self._waiting: deque[Replacement] = deque()
        self._stepped = stepped

    def __bool__(self) -> bool:
        return bool(self._waiting)

    @property
    def first(self) -> Replacement | None:
        """The one under way."""
        return self._waiting[0] if self._waiting else None

    @property
    def last(self) -> Replacement | None:
        """The one that the next comes after."""
        return self._waiting[-1] if self._waiting else None

    def append(self, replacement: Replacement) -> None:
        self._waiting.append(replacement)

    def advance(self) -> None:
        """The steps that can be done now; in the background one of them, so that messages come between."""
        while self._waiting and self._waiting[0].ready:
            first = self._waiting[0]
            first.advance()
            if first.done:
                self._waiting.popleft()
            self._stepped(first)
            if first.background and not first.done:
                break
        for later in [one for one in list(self._waiting)[1:] if one.error is not None]:
            later.advance()
            if later.done:
                self._waiting.remove(later)
                self._stepped(later)

    def finish(self, last: Replacement) -> None:
        """Waits until `last` is done; raises what is in its `error`."""
        while not last.done:
            self._waiting[0].settle()
            self.advance()
        if last.error is not None:
            raise last.error
