"""What can be wrong with a checkpoint."""

from pathlib import Path

from orderbook.errors import OrderbookError


class CheckpointError(OrderbookError):
    """A checkpoint that cannot be written, read or trusted: one line that names the file and why."""

    def __init__(self, path: Path, problem: str):
        super().__init__(f"{path}: {problem}")
        self.path, self.problem = path, problem
