"""Waking an asyncio loop from the thread of an engine, its own or another."""

import asyncio
import threading
from collections.abc import Callable


class Waker:
    """Calls into one loop: at once in its own thread, else as soon as the loop can. Made in the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._thread = threading.get_ident()

    def call(self, action: Callable[[], object]) -> bool:
        """From any thread; False where the loop is closed, so that nobody can be told."""
        if threading.get_ident() == self._thread:
            action()
            return True
        try:
            self.loop.call_soon_threadsafe(action)
        except RuntimeError:
            return False
        return True
