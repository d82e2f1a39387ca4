"""Serial execution: stage after stage in one partition, over all rows in the order of their versions."""

from collections.abc import Callable, Sequence

import numpy as np

from engine.distribution.block import Block
from engine.distribution.routing import narrowed
from engine.distribution.stage import Distribution
from engine.protocol.operators import OperatorFactory
from engine.protocol.rows import FIXED, block, matrix, net

# History of views by name: matrices of rows, in order.
Histories = dict[str, np.ndarray]


def serial(
    distribution: Distribution, factory: Callable[[int], OperatorFactory], blocks: Sequence[Block], end: int
) -> Histories:
    """The history of all views where rows come in order; `end` is above all stamps."""
    sources = gathered(blocks)
    views: list[Block] = []
    for place, stage in enumerate(distribution.stages):
        operator = factory(place)(None)
        rows = [
            narrowed(block(i.source, sources[i.source]), i) for i in stage.inputs if i.source in sources
        ]
        for produced in (operator.apply((), -(2**63)), operator.apply(rows, end)):
            sources |= gathered(produced.outputs)
            views += produced.views
    return gathered(views)


def gathered(blocks: Sequence[Block]) -> Histories:
    """The rows of blocks by source, in order."""
    parts: dict[str, list[np.ndarray]] = {}
    for found in blocks:
        parts.setdefault(found.source, []).append(matrix(found))
    return {source: ordered(np.concatenate(rows)) for source, rows in parts.items() if sum(map(len, rows))}


def ordered(rows: np.ndarray) -> np.ndarray:
    """Rows in order; as often as they are."""
    distinct, counts = net(rows, np.ones(len(rows), np.int64))
    return np.repeat(distinct, counts, axis=0)


def difference_of(expected: Histories, found: Histories) -> str | None:
    """What differs between two histories; None: nothing."""
    for view in sorted(expected.keys() | found.keys()):
        none = np.empty((0, FIXED), np.int64)
        want, have = expected.get(view, none), found.get(view, none)
        if want.shape != have.shape or not np.array_equal(want, have):
            missing = [row for row in want.tolist() if row not in have.tolist()][:5]
            extra = [row for row in have.tolist() if row not in want.tolist()][:5]
            return f"view {view}: {len(want)} rows, not {len(have)}; missing {missing}, too many {extra}"
    return None
