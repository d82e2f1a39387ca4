"""Minimum cuts of small directed graphs, by augmenting shortest paths (Edmonds and Karp)."""

from collections import defaultdict, deque
from collections.abc import Hashable

_SMALL = 1e-9


class Network:
    """Nodes between a source and a sink, with capacities."""

    SOURCE, SINK = "source", "sink"

    def __init__(self) -> None:
        self._left: defaultdict[Hashable, defaultdict[Hashable, float]]
        self._left = defaultdict(lambda: defaultdict(float))

    def add(self, start: Hashable, end: Hashable, capacity: float) -> None:
        """Lets so much more flow from one node to another; cutting between them costs as much."""
        if capacity > 0:
            self._left[start][end] += capacity
            self._left[end][start] += 0.0

    def source_side(self) -> set[Hashable]:
        """The nodes on the source's side of a minimum cut."""
        while True:
            before = self._reached()
            if self.SINK not in before:
                return set(before)
            path = []
            node: Hashable = self.SINK
            while node != self.SOURCE:
                path.append((before[node], node))
                node = before[node]
            flow = min(self._left[a][b] for a, b in path)
            for a, b in path:
                self._left[a][b] -= flow
                self._left[b][a] += flow

    def _reached(self) -> dict[Hashable, Hashable]:
        """Each node to which more can flow, and the one before it."""
        before: dict[Hashable, Hashable] = {self.SOURCE: self.SOURCE}
        waiting: deque[Hashable] = deque((self.SOURCE,))
        while waiting and self.SINK not in before:
            node = waiting.popleft()
            for end, capacity in self._left[node].items():
                if capacity > _SMALL and end not in before:
                    before[end] = node
                    waiting.append(end)
        return before
