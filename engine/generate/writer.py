"""Indented text with scopes: an expression computed before in an enclosing block is not computed again."""

from collections.abc import Iterator
from contextlib import contextmanager


class Writer:
    """Collects the lines of a module's functions."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._depth = 0
        self._scopes: list[dict[str, str]] = [{}]
        self._number = 0

    def line(self, text: str) -> None:
        self.lines.append("    " * self._depth + text if text else "")

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """An indented block; what is computed inside is forgotten after it."""
        self.line(head)
        self._depth += 1
        self._scopes.append({})
        mark = len(self.lines)
        yield
        if len(self.lines) == mark:
            self.line("pass")
        self._scopes.pop()
        self._depth -= 1

    def fresh(self, prefix: str) -> str:
        self._number += 1
        return f"{prefix}_{self._number}"

    def once(self, prefix: str, expression: str) -> str:
        """The variable that holds an expression, assigned here unless it is known already."""
        name = self.recall(expression)
        if name is None:
            name = self.fresh(prefix)
            self.line(f"{name} = {expression}")
            self.remember(expression, name)
        return name

    def recall(self, what: str) -> str | None:
        """The variable that is known to hold something here."""
        return next((scope[what] for scope in reversed(self._scopes) if what in scope), None)

    def remember(self, what: str, name: str) -> None:
        """Lets the rest of the block know what a variable holds."""
        self._scopes[-1][what] = name

    def forget(self) -> None:
        """Drops what is known: the state has changed."""
        for scope in self._scopes:
            scope.clear()

    def text(self) -> str:
        return "\n".join(self.lines) + "\n"
