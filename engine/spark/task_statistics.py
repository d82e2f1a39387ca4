"""What each task of a job took: rows, seconds, memory. They travel with the blocks, as rows of their own."""

import json
import resource
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

STATISTICS = "#statistics"  # the source of a row that is no block


@dataclass(frozen=True, slots=True)
class TaskStatistics:
    """One task that ended well.

    kind: "map" or "reduce". number: of the task, or the partition. seconds: by the wall, with waiting for
    input and for what takes the output. cpu_seconds: of all threads of the process. peak_memory: bytes
    resident at most in the process meanwhile. extra: what the task's function says beside.
    """

    kind: str
    number: int
    blocks_in: int
    rows_in: int
    bytes_in: int
    blocks_out: int
    rows_out: int
    bytes_out: int
    seconds: float
    cpu_seconds: float
    peak_memory: int
    extra: dict[str, float] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        """As JSON."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def of_bytes(cls, text: bytes) -> "TaskStatistics":
        """From JSON."""
        return cls(**json.loads(text))


class TaskClock:
    """Counts what a task does from now on; begins where it is made."""

    def __init__(self) -> None:
        self.blocks_in = self.rows_in = self.bytes_in = 0
        self.blocks_out = self.rows_out = self.bytes_out = 0
        _forget_peak()
        self._began, self._cpu_began = time.perf_counter(), time.process_time()

    def ended(self, kind: str, number: int, extra: Mapping[str, float]) -> TaskStatistics:
        """The statistics of the task, now that it is done."""
        return TaskStatistics(
            kind=kind,
            number=number,
            blocks_in=self.blocks_in,
            rows_in=self.rows_in,
            bytes_in=self.bytes_in,
            blocks_out=self.blocks_out,
            rows_out=self.rows_out,
            bytes_out=self.bytes_out,
            seconds=time.perf_counter() - self._began,
            cpu_seconds=time.process_time() - self._cpu_began,
            peak_memory=_peak(),
            extra=dict(extra),
        )


def _forget_peak() -> None:
    """Let the peak of memory begin anew, as far as the system can: workers serve many tasks."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return


def _peak() -> int:
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
