"""Who watches a session on the virtual network."""

from contextlib import AbstractContextManager
from typing import Protocol

import numpy as np

from feeds.session import Command
from feeds.simulation.venue import Frame


class Observer(Protocol):
    """Sees everything that happens to the session, in order."""

    def hands(self, frame: Frame, fault: str | None) -> AbstractContextManager[None]:
        """A frame reaches the session inside of this, spoilt by a fault or as it was sent."""

    def suffers(self, fault: str, product: str) -> AbstractContextManager[None]:
        """What a fault does to something else than a frame happens inside of this."""

    def answers(self, product: str, number: int) -> AbstractContextManager[None]:
        """A whole snapshot of this number reaches the session inside of this."""

    def events(self, events: np.ndarray) -> None:
        """The session has made events (EVENT[n])."""

    def commanded(self, command: Command) -> None:
        """The session wants something done, which begins now."""

    def ended(self, product: str | None, retry_after: float = 0.0) -> None:
        """A GET has ended, told to wait so many seconds, or the connection where no product is named."""
