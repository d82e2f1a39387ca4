"""A bound on the work that compiling one view may take, so that every query ends in a program or a refusal.

Work is counted in factors looked at, not in time, so that the same text always ends the same way.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

# The largest view of the repository's tests takes a thirtieth.
MOST_STEPS = 200_000


class TooMuchWorkError(Exception):
    """Compiling the view `view` takes more steps than it has."""

    def __init__(self, view: str):
        super().__init__(f"compiling view {view} takes more than {MOST_STEPS} steps")
        self.view = view


class Budget:
    """The steps that are left for one view."""

    def __init__(self, view: str, steps: int = MOST_STEPS):
        self.view, self.left = view, steps

    @contextmanager
    def spending(self) -> Iterator[None]:
        """Within, `spend` takes from this budget and raises TooMuchWorkError when it is used up."""
        token = _at_hand.set(self)
        try:
            yield
        finally:
            _at_hand.reset(token)


_at_hand: ContextVar[Budget | None] = ContextVar("budget at hand", default=None)


def spend(steps: int) -> None:
    """Counts steps of work against the budget at hand, if there is one."""
    budget = _at_hand.get()
    if budget is not None:
        budget.left -= steps
        if budget.left < 0:
            raise TooMuchWorkError(budget.view)
