"""Where the seconds of a start go: wall time of its steps, each without that of steps within it.

with step_times.step("plans"):
    chosen = plan(program)
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager


class StepTimes:
    """Sums of wall time, seconds by the name of a step, in the order in which steps first ended."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._open = threading.local()

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Adds the time that passes within, less that of steps of the same thread that begin within."""
        stack: list[float] = self._open.__dict__.setdefault("stack", [])
        stack.append(0.0)
        began = time.perf_counter()
        try:
            yield
        finally:
            taken = time.perf_counter() - began
            self.seconds[name] = self.seconds.get(name, 0.0) + taken - stack.pop()
            if stack:
                stack[-1] += taken


step_times = StepTimes()
