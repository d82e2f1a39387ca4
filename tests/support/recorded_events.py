"""The first events of recordings as digests; as a script, of those that it is given, in their order."""

import hashlib
import sys
from collections.abc import Iterable

import numpy as np

from orderbook.feeds.merge import Merger
from orderbook.feeds.source_kinds import open_source

_EVENTS = 600


def digests(paths: Iterable[str]) -> list[str]:
    """Of each the events, and their digest."""
    found = []
    for path in paths:
        items = Merger([open_source(path)], crossed_limit=0)
        first = next(item for item in items if isinstance(item, np.ndarray))[:_EVENTS]
        found.append(f"{len(first)} {hashlib.sha256(first.tobytes()).hexdigest()}")
    return found


if __name__ == "__main__":
    print("\n".join(digests(sys.argv[1:])))
