"""What was measured on a source, and the planner chooses by."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import ceil
from pathlib import Path

from orderbook.errors import SourceError
from orderbook.whole_files import replace_file


@dataclass(frozen=True, slots=True)
class Statistics:
    """Measured numbers; what was not measured is not there.

    entries: of every map, by name, at the end.
    updates: changes of every relation, by `+name` and `-name`.
    loops: mean entries a loop walked, by `map[known key positions]`, such as `m1[0]`; `m1[]` is a scan.
    """

    entries: Mapping[str, int] = field(default_factory=dict)
    updates: Mapping[str, int] = field(default_factory=dict)
    loops: Mapping[str, float] = field(default_factory=dict)

    def loop_length(self, name: str, known: Iterable[int]) -> float | None:
        """Mean entries of a map that agree in the keys at `known`; None where that was not measured."""
        return self.loops.get(loop_name(name, known))

    def write(self, path: Path) -> None:
        """Writes the statistics as JSON. Raises OutputError where the file cannot be written."""
        text = json.dumps({k: dict(v) for k, v in asdict(self).items()}, indent=1)
        replace_file(path, f"{text}\n".encode())


def distinct(statistics: Statistics, name: str, entries: int, positions: Sequence[int]) -> int:
    """How many values the keys at `positions` have among the entries; where not measured, one for each."""
    length = statistics.loop_length(name, positions)
    return entries if not length else min(entries, ceil(entries / length))


def loop_name(name: str, known: Iterable[int]) -> str:
    """The key of a loop in `Statistics.loops`."""
    return f"{name}[{','.join(map(str, known))}]"


def read_statistics(path: Path) -> Statistics:
    """The statistics of a file that `orderbook replan` wrote. Raises SourceError where it is none."""
    try:
        read = json.loads(path.read_text("utf-8"))
        tables = [read[name] for name in ("entries", "updates", "loops")]
        if not all(isinstance(v, int | float) and v >= 0 for table in tables for v in table.values()):
            raise ValueError("a count is not a number")
    except OSError as error:
        raise SourceError(f"{path}: cannot read: {error.strerror}; run orderbook replan first") from None
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise SourceError(f"{path}: not statistics of orderbook replan ({error}); run it again") from None
    return Statistics(*tables)
