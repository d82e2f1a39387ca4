"""A distribution run by StageRunners over whole blocks, stage after stage, as a batch job does."""

from collections.abc import Mapping, Sequence

import numpy as np

from engine.distribution.block import VERSION, Block
from engine.distribution.history import Granularity
from engine.distribution.routing import Router
from engine.distribution.runner import StageRunner
from engine.distribution.stage import Distribution
from engine.encoding import pack
from orderbook.dictionary import Dictionary
from views.compiler.m3 import Program

Words = tuple[int | float | None, ...]
# Relation, whether inserted, encoded row.
Change = tuple[str, bool, Words]


def blocks_of(program: Program, events: Sequence[Sequence[Change]]) -> dict[str, Block]:
    """The changes of each relation; events are a nanosecond apart."""
    found: dict[str, list[tuple[tuple[int, ...], bool, list[int]]]] = {}
    for number, event in enumerate(events, 1):
        for part, (relation, insert, row) in enumerate(event):
            version = (number, 0, part, number, number)
            found.setdefault(relation, []).append((version, not insert, [pack(w) for w in row]))
    return {
        name: Block(
            name,
            np.array([r[0] for r in rows], VERSION),
            np.array([r[1] for r in rows], np.bool_),
            np.array([r[2] for r in rows], np.int64),
        )
        for name, rows in found.items()
    }


def histories(
    distribution: Distribution,
    words: Dictionary,
    blocks: Mapping[str, Block],
    partitions: int,
    backend: str,
) -> dict[str, list[tuple[object, ...]]]:
    """The history rows of every view of all partitions, in order: look, key and row words."""
    sources: dict[str, list[Block]] = {name: [block] for name, block in blocks.items()}
    found: dict[str, list[tuple[object, ...]]] = {}
    for stage in distribution.stages:
        router = Router(stage.axes, [partitions] * len(stage.axes), words)
        arrived: dict[int, list[Block]] = {}
        for entry in stage.inputs:
            for block in sources.get(entry.source, ()):
                for number, part in router.route(block, entry):
                    arrived.setdefault(number, []).append(part)
        for number in range(router.count):
            runner = StageRunner(stage, words, backend, Granularity("event"))
            result = runner.apply(arrived.get(number, []))
            for name, block in result.outputs.items():
                sources.setdefault(name, []).append(block)
            for view, history in result.history.items():
                rows = zip(history.looks.tolist(), history.keys.tolist(), history.rows.tolist(), strict=True)
                found.setdefault(view, []).extend(
                    (tuple(look), tuple(key), tuple(row)) for look, key, row in rows
                )
            runner.close()
    return {view: sorted(rows) for view, rows in found.items()}
